"""Real histories that come with freshopt."""

from freshopt.datasets.change_histories import Example as Example
from freshopt.datasets.change_histories import example_events as example_events
from freshopt.datasets.change_histories import load_example as load_example

__all__ = ["Example", "example_events", "load_example"]

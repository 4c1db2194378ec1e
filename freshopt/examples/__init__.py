"""Real histories that come with freshopt."""

from freshopt.examples.histories import EXAMPLES as EXAMPLES
from freshopt.examples.histories import Example as Example
from freshopt.examples.histories import example_events as example_events
from freshopt.examples.histories import load_example as load_example

__all__ = ["EXAMPLES", "Example", "example_events", "load_example"]

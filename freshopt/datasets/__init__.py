"""Real histories that come with freshopt.

``debian-uploads`` has the days on which 344 Debian source packages were uploaded, 2019 to 2023, crawled
daily; ``gstreamer-plugins`` the minutes in which 368 plugins of GStreamer were edited, 2016 to 2020, crawled
at random times, once a week on average, and told the date of the last change. Their origin, licence, limits
and numbers are in the Markdown files beside the data, ``freshopt/datasets/*.md``.
"""

from freshopt.datasets.change_histories import Example as Example
from freshopt.datasets.change_histories import example_events as example_events
from freshopt.datasets.change_histories import load_example as load_example

__all__ = ["Example", "example_events", "load_example"]

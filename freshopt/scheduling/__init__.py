"""Refresh times from refresh rates."""

from freshopt.scheduling.carousel import Carousel
from freshopt.scheduling.crawl_counts import crawl_counts
from freshopt.scheduling.discrete_counts import DiscreteCounts
from freshopt.scheduling.earliest_deadline import EarliestDeadline
from freshopt.scheduling.greedy import Greedy
from freshopt.scheduling.noisy_signal_freshness import NoisySignalFreshness
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.schedule import Schedule
from freshopt.scheduling.signal_greedy import SignalCrawler, SignalGreedy
from freshopt.scheduling.signal_thresholds import SignalThresholds
from freshopt.scheduling.slot_assignment import SlotAssignment

__all__ = [
    "Carousel",
    "DiscreteCounts",
    "EarliestDeadline",
    "Greedy",
    "NoisySignalFreshness",
    "Periodic",
    "PoissonArrivals",
    "Schedule",
    "SignalCrawler",
    "SignalGreedy",
    "SignalThresholds",
    "SlotAssignment",
    "crawl_counts",
]

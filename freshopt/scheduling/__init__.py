"""Refresh times from refresh rates."""

from freshopt.modelling.failing_fetches import retried_at_once
from freshopt.scheduling.constant_load import Carousel, EarliestDeadline
from freshopt.scheduling.greedy import Greedy
from freshopt.scheduling.host_gap import with_host_gap
from freshopt.scheduling.integer_counts import DiscreteCounts, crawl_counts
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.schedule import Schedule
from freshopt.scheduling.slot_assignment import SlotAssignment

__all__ = [
    "Carousel",
    "DiscreteCounts",
    "EarliestDeadline",
    "Greedy",
    "Periodic",
    "PoissonArrivals",
    "Schedule",
    "SlotAssignment",
    "crawl_counts",
    "retried_at_once",
    "with_host_gap",
]

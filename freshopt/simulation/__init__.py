"""Worlds whose sources change, crawlers in them, and what staleness cost there."""

from freshopt.simulation.age_costs import AgeCosts as AgeCosts
from freshopt.simulation.crawler import Crawler as Crawler
from freshopt.simulation.crawler import SignallingCrawler as SignallingCrawler
from freshopt.simulation.crawler import SimulatedCrawler as SimulatedCrawler
from freshopt.simulation.measured import Measured as Measured
from freshopt.simulation.measured import Replay as Replay
from freshopt.simulation.replaying import replay as replay
from freshopt.simulation.signals import noisy_signals as noisy_signals
from freshopt.simulation.signals import replay_signals as replay_signals
from freshopt.simulation.staleness import MissedCosts as MissedCosts
from freshopt.simulation.staleness import missed_costs as missed_costs
from freshopt.simulation.world import World as World

__all__ = [
    "AgeCosts",
    "Crawler",
    "Measured",
    "MissedCosts",
    "Replay",
    "SignallingCrawler",
    "SimulatedCrawler",
    "World",
    "missed_costs",
    "noisy_signals",
    "replay",
    "replay_signals",
]

"""Simulated worlds, crawlers in them, and replay of schedules."""

from freshopt.renamed import exports
from freshopt.simulation.crawler import AgeCosts as AgeCosts
from freshopt.simulation.crawler import CountingCrawler as CountingCrawler
from freshopt.simulation.crawler import Crawler as Crawler
from freshopt.simulation.crawler import SignallingCrawler as SignallingCrawler
from freshopt.simulation.crawler import SimulatedCrawler as SimulatedCrawler
from freshopt.simulation.replay_result import Measured as Measured
from freshopt.simulation.replay_result import Replay as Replay
from freshopt.simulation.replaying import replay as replay
from freshopt.simulation.request_replay import compare_lifetimes as compare_lifetimes
from freshopt.simulation.staleness_integrals import MissedCosts as MissedCosts
from freshopt.simulation.staleness_integrals import missed_costs as missed_costs
from freshopt.simulation.world import World as World

__all__ = exports(globals())

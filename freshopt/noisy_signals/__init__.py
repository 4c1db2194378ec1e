"""Noisy change signals, from estimation to schedules.

Their quality from logs, crawl thresholds, schedules and simulation.
"""

from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness as NoisySignalFreshness
from freshopt.noisy_signals.signal_greedy import SignalCrawler as SignalCrawler
from freshopt.noisy_signals.signal_greedy import SignalGreedy as SignalGreedy
from freshopt.noisy_signals.signal_quality import NoisySignals as NoisySignals
from freshopt.noisy_signals.signal_thresholds import SignalThresholds as SignalThresholds
from freshopt.noisy_signals.simulated_signals import noisy_signals as noisy_signals
from freshopt.noisy_signals.simulated_signals import replay_signals as replay_signals

__all__ = [
    "NoisySignalFreshness",
    "NoisySignals",
    "SignalCrawler",
    "SignalGreedy",
    "SignalThresholds",
    "noisy_signals",
    "replay_signals",
]

"""Noisy change signals, from estimation to schedules.

Their quality from logs, crawl thresholds, schedules and simulation. Of all changes a share is announced (the
recall), and of the announcements a share is true (the precision). Both are learnt from a log whose rows are
crawls: how long after the crawl before, how many signals in between, and whether the source had changed. A
source is then crawled when the time since its last crawl, plus ``bonus`` for each signal since, reaches
``threshold``.

>>> import freshopt as fo
>>> from freshopt.noisy_signals import NoisySignalFreshness, NoisySignals
>>> log = {  # or a dataframe
...     "source": ["page"] * 6,
...     "elapsed": [1.0, 2.0, 1.0, 3.0, 1.0, 2.0],
...     "signals": [0, 1, 0, 1, 1, 0],
...     "changed": [0, 1, 0, 0, 1, 1],
... }
>>> model = NoisySignals().fit(log)
>>> change_rate, recall, precision = model.for_planning()
>>> sources = fo.Sources(change_rate, names=model.sources_)
>>> objective = NoisySignalFreshness(recall, precision)
>>> solution = fo.solve(fo.Problem(objective, sources, bandwidth=0.5))
>>> thresholds = objective.thresholds(solution.rates, sources).to_frame()
"""

from freshopt.noisy_signals.age_thresholds import AgeThresholds as AgeThresholds
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness as NoisySignalFreshness
from freshopt.noisy_signals.signal_greedy import SignalCrawler as SignalCrawler
from freshopt.noisy_signals.signal_greedy import SignalGreedy as SignalGreedy
from freshopt.noisy_signals.signal_quality import NoisySignals as NoisySignals
from freshopt.noisy_signals.signal_thresholds import SignalThresholds as SignalThresholds
from freshopt.noisy_signals.signal_waits import SignalWaits as SignalWaits
from freshopt.noisy_signals.simulated_signals import noisy_signals as noisy_signals
from freshopt.noisy_signals.simulated_signals import replay_signals as replay_signals
from freshopt.noisy_signals.with_noisy_signals import WithNoisySignals as WithNoisySignals
from freshopt.renamed import exports

__all__ = exports(globals())

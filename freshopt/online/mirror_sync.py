"""`MirrorSync`: mirror descent from periodic refreshes with random probes.

A mirror step follows each round.

A round is as long as the longest refresh interval allowed, 1/r_min, so that every source has at least one
whole interval in it and thereby an unbiased sample of its slope (see `freshopt.online.gradient_probes`).
Under the log barrier −Σ log r a step changes a rate by a share of itself, which fits slopes that grow like
1/r.

Cost: one step per round, 1 ms at a hundred sources; polls as fast as the crawler answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.online.gradient_probes import (
    SLACK,
    Descent,
    Spent,
    Synchronization,
    SyncLearner,
    seen_cost,
)
from freshopt.online.runs import State
from freshopt.simulation import Crawler
from freshopt.solvers.mirror_descent import MirrorDescent


@dataclass(frozen=True, slots=True)
class MirrorSync(SyncLearner):
    """Synchronous mirror descent from observed costs.

    Learns periodic refresh rates, all sources in step.

    Parameters
    ----------
    learning_rate : float
        η ≥ 0, for the gradient of the weighted mean cost Σ w J/Σ w.
    exploration : float
        ε, the probability with which an interval is probed.
    seed : int
        Of the probes.

    Notes
    -----
    [1]_ takes the first sample of a round; here all of them are averaged, as for its published results. Every
    round begins with all copies fresh, and the refreshes for that are free, as in [1]_: they are counted in
    the history's column ``resets`` and not in ``spent``. `AsyncMirrorSync` does without.

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       Algorithm 1.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import BinaryCost, SynchronizationCost
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], min_rate=0.1)
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=3.0)
    >>> learner = MirrorSync(learning_rate=0.1, seed=1)
    >>> history = learner.run(fo.World.poisson(sources, seed=1), problem, horizon=4000.0)
    >>> history.value[[0, -1]].round(3).tolist(), round(float(history.best[0]), 3)
    ([1.326, 1.274], 1.245)
    """

    learning_rate: float
    exploration: float = 0.05
    seed: int = 0
    descent: ClassVar[Descent] = MirrorDescent()
    _period: ClassVar[str] = "round"

    def __post_init__(self) -> None:
        """Raise if settings are not numbers."""
        self._check()

    def _length(self, problem: Problem) -> float:
        return 1.0 / float(np.min(problem.lower))

    def _first(self, rates: Array, origin: float) -> State:  # noqa: ARG002 - each round is begun anew
        return {"interval": np.zeros(len(rates), dtype=np.int64)}

    def _step(
        self,
        terms: Synchronization,
        crawler: Crawler,
        descent: Descent,
        state: State,
        begin: float,
        end: float,
    ) -> tuple[State, Spent]:
        # All copies fresh, then whole intervals of length 1/r.
        n, rates = len(terms), state["rates"]
        crawler.refresh(np.arange(n), np.full(n, begin))
        counts = (self._length(terms.problem) * rates + SLACK).astype(np.int64)
        source = np.repeat(np.arange(n), counts)
        j = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = state["interval"][source] + j
        interval = 1.0 / rates[source]
        probed = np.where(
            terms.is_probed(source, at), begin + (j + terms.probe_point(source, at)) * interval, np.nan
        )
        polled = terms.play(
            crawler, source, np.minimum(probed, end), np.minimum(begin + (j + 1) * interval, end)
        )
        sums = np.bincount(source, weights=terms.samples(polled, interval), minlength=n)
        gradient = terms.weight * sums / counts
        probes = int(np.count_nonzero(~np.isnan(probed)))
        after: State = {
            "rates": terms.step(descent, rates, gradient, self.learning_rate, np.ones(n, dtype=np.bool_)),
            "interval": state["interval"] + counts,
            "seen_cost": seen_cost(state["seen_cost"], source, polled.probed),
        }
        return after, Spent(len(source) + probes, probes, n)

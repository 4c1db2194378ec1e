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
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError, expect_settings
from freshopt.modelling.problem import Problem
from freshopt.online.gradient_probes import (
    SLACK,
    Synchronization,
    check_exploration,
    check_rate,
    check_rounds,
    journal_of,
    seen_cost,
)
from freshopt.online.oracle import Truth
from freshopt.online.run_history import RunHistory
from freshopt.online.runs import State, run_rounds, settings_of
from freshopt.simulation import Crawler, World
from freshopt.simulation.crawler import as_crawler
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.units import check_horizon


@dataclass(frozen=True, slots=True)
class MirrorSync:
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

    def __post_init__(self) -> None:
        """Raise if settings are not numbers."""
        expect_settings(self)
        check_rate(self.learning_rate)
        check_exploration(self.exploration)

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> RunHistory:
        """Run whole rounds, each of 1/min(min_rate); see `Learner.run`.

        Of the problem, bandwidth, importances and bounds (min_rate > 0) are used; its change rates and its
        objective are only used to evaluate the rates. The history has columns ``probes`` and ``resets``.

        Raises
        ------
        SourceDataError
            If the problem is not one of synchronization, or the horizon is too short.
        """
        terms = Synchronization.of(problem, "MirrorSync", self.exploration, self.seed)
        length = 1.0 / float(np.min(problem.lower))
        horizon = check_horizon(horizon)
        check_rounds(horizon / length, horizon, problem.bandwidth * length)
        rounds = int(horizon / length + SLACK)
        if rounds < 1:
            raise SourceDataError(f"horizon is {horizon:g}, shorter than a round. Pass at least {length:g}.")
        crawler, known = as_crawler(world), Truth.of(problem, world, truth)
        journal, n = journal_of(self, problem, known), len(terms)

        def next_round(state: State, number: int) -> State:
            # All copies fresh, then whole intervals of length 1/r.
            begin = float(state["origin"]) + number * length
            end = float(state["origin"]) + (number + 1) * length
            rates = state["rates"]
            crawler.refresh(np.arange(n), np.full(n, begin))
            counts = (length * rates + SLACK).astype(np.int64)
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
            seen = {**state, "seen_cost": seen_cost(state["seen_cost"], source, polled.probed)}
            probes = int(np.count_nonzero(~np.isnan(probed)))
            terms.record(
                journal, known, seen, (begin, end), spent=len(source) + probes, probes=probes, resets=n
            )
            everyone = np.ones(n, dtype=np.bool_)
            return {
                **seen,
                "rates": terms.step(MirrorDescent(), rates, gradient, self.learning_rate, everyone),
                "interval": state["interval"] + counts,
            }

        start: State = {
            "origin": np.array(getattr(crawler, "clock", 0.0)),
            "rates": terms.first_rates(),
            "interval": np.zeros(n, dtype=np.int64),
            "seen_cost": np.full(n, np.nan),
        }
        last = run_rounds(
            start,
            next_round,
            rounds,
            journal,
            crawler=crawler,
            checkpoint=checkpoint,
            settings=settings_of(self, problem, world),
            progress=progress,
        )
        return journal.history(last["rates"])

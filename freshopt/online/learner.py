"""`Learner`: protocol of all online policies.

A policy is a frozen record of its settings. Its one method runs it in a world, or with a crawler of one's
own, for a problem whose true change rates it does not know; it chooses crawls, updates its estimates, and
returns a `RunHistory`. With a checkpoint an interrupted run ends with the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from freshopt.errors import SourceDataError, expect
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.online.run_history import RunHistory, Sense
from freshopt.online.runs import Journal, State, run_rounds, settings_of, world_of
from freshopt.simulation import Crawler, World
from freshopt.simulation.crawler import as_crawler


class Learner(Protocol):
    """Online policy: it chooses crawls while estimating change rates."""

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
        """Run the policy in a world until the horizon.

        Parameters
        ----------
        world : World or Crawler
            A simulation, or anything with the methods of `Crawler`: whether a source had changed, or what its
            copy cost at that moment.
        problem : Problem
            Problem to optimise. Its change rates are at most a first guess: each policy documents what it
            uses of them.
        horizon : float
            Time units from the beginning.
        truth : Problem, optional
            The true problem, for evaluation; a Poisson world has its own. Without it values are those
            under the estimates.
        checkpoint : path, optional
            A file to resume from and to save to.
        progress : bool
            Whether to show a bar.

        Returns
        -------
        RunHistory
            Rates, values and bandwidth used, round by round.

        Raises
        ------
        SourceDataError
            If the world, the problem and the truth are not of the same sources, or the horizon is not
            positive and finite or too short for a round.
        """
        ...


class Course(NamedTuple):
    """Rounds of a learner in a world.

    ``start`` is the state before the first; ``play(state, k, journal)`` runs round k, adds it to the journal,
    and returns the next state. ``exact``: whether values are under the true parameters. ``final``: the rates
    that a last state has learnt, if not those of the last round. ``sense``: that of the values, if not the
    objective's.
    """

    start: State
    play: Callable[[State, int, Journal], State]
    rounds: int
    exact: bool
    final: Callable[[State], Array | None] = lambda _: None
    sense: Sense | None = None


class RoundLearner(ABC):
    """Learner that is told by its course of rounds."""

    __slots__ = ()

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
        """Learn until the horizon, round by round; see `Learner.run`."""
        expect(problem, Problem, "problem", "Pass a freshopt.Problem")
        crawler = as_crawler(world)
        _require_sources(world_of(crawler), problem)
        course = self._course(crawler, problem, horizon, truth)
        sense, unit = course.sense or problem.objective.sense, problem.sources.time_unit
        journal = Journal(repr(self), sense, exact=course.exact, time_unit=unit)
        last = run_rounds(
            course.start,
            lambda state, number: course.play(state, number, journal),
            course.rounds,
            journal,
            crawler=crawler,
            checkpoint=checkpoint,
            settings=settings_of(self, problem, crawler),
            progress=progress,
        )
        return journal.history(course.final(last))

    @abstractmethod
    def _course(self, crawler: Crawler, problem: Problem, horizon: float, truth: Problem | None) -> Course:
        """Return the rounds until the horizon.

        A problem that the learner cannot keep is refused.
        """


def _require_sources(world: World | None, problem: Problem) -> None:
    """Raise SourceDataError unless world and problem are of the same sources."""
    if world is None:
        return
    n, names, called = len(problem.sources), world.names, problem.sources.names
    if len(world) != n:
        raise SourceDataError(
            f"the world has {len(world)} sources but the problem {n}. Pass the world of its sources."
        )
    if names is not None and called is not None and not np.array_equal(names, called):
        k = int(np.flatnonzero(np.asarray(names) != np.asarray(called))[0])
        raise SourceDataError(
            f"source {k} is '{names[k]}' in the world but '{called[k]}' in the problem. Give both their "
            "sources in one order (World.from_events(..., names=...))."
        )
    if world.time_unit != problem.sources.time_unit:
        raise SourceDataError(
            f"the world's clock counts {world.time_unit}s but the problem's {problem.sources.time_unit}s. "
            "Give both one time_unit."
        )

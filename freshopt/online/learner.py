"""`Learner`: protocol of all online policies.

A policy is a frozen record of its settings. Its one method runs it in a world, or with a crawler of one's
own, for a problem whose true change rates it does not know; it chooses crawls, updates its estimates, and
returns a `RunHistory`. With a checkpoint an interrupted run ends with the same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from freshopt.modelling.problem import Problem
from freshopt.online.run_history import RunHistory
from freshopt.simulation import Crawler, World


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

"""`Learner`: what all learners that act while they learn have in common, one method.

A learner is a frozen record of its settings. It is given a world, or a crawler of one's own, and a problem
whose true change rates it does not know; it chooses what to crawl, learns from what it finds, and returns a
`History`. A checkpoint makes a run that was interrupted end with the same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from freshopt.learning.history import History
from freshopt.model import Problem
from freshopt.simulation import Crawler, World


class Learner(Protocol):
    """A way to choose crawls while the change rates are being learnt."""

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> History:
        """Learn in a world until the horizon.

        Parameters
        ----------
        world : World or Crawler
            A simulation, or anything with the methods of `Crawler`: whether a source had changed, or what its
            copy cost at that moment.
        problem : Problem
            What is to be optimised. Its change rates are at most a first guess: each learner says what it
            uses of them.
        horizon : float
            Time units from the beginning.
        truth : Problem, optional
            The true problem, to judge by; a Poisson world knows its own. Without it values are those that
            the estimates promise.
        checkpoint : path, optional
            A file to resume from and to save to.
        progress : bool
            Whether to show a bar.

        Returns
        -------
        History
            Rates, values and bandwidth spent, round by round.

        Raises
        ------
        SourceDataError
            If the world, the problem and the truth are not of the same sources, or the horizon is not
            positive and finite or too short for a round.
        """
        ...

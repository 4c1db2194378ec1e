"""`FixedPolling`: baseline polling policies with fixed rates.

They are for comparison with a learner of polls, and know or ignore the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from freshopt import automata
from freshopt.automata import Polling
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import expect_settings
from freshopt.modelling.problem import Problem
from freshopt.online.automata_tree import AutomataTree, require_plain, run_tree
from freshopt.online.run_history import RunHistory
from freshopt.simulation import Crawler, World
from freshopt.solvers.uniform import Uniform
from freshopt.solving import solve


@dataclass(frozen=True, slots=True)
class FixedPolling:
    """Poll at fixed rates from a solver.

    They are those for the problem as it is given, and never change.

    Parameters
    ----------
    solver : Solver, optional
        ``Uniform()`` by default. ``Proportional()`` for rates proportional to the change rates, ``Auto()``
        for the best ones.
    polling : Polling
    rounds : int
        Rows of the history.
    seed : int

    Notes
    -----
    The policies Uniform and Optimal of [1]_, the latter with ``Auto()``; it knows the true change rates: pass
    the problem with these. Their Proportional polls in proportion to the probability u of an update in a
    slot. ``Proportional()`` is not that policy: its rates are proportional to the change rates −log(1 − u),
    which on a `PollingKnapsack` of equal importances is Optimal.

    References
    ----------
    .. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
       twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010,
       doi:10.1109/TC.2009.189.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 0.3, 0.6, 1.0])
    >>> problem = fo.Problem(fo.problems.PollingKnapsack(), sources, bandwidth=1.0)
    >>> world = fo.World.poisson(sources, seed=1)
    >>> history = FixedPolling(fo.solvers.Auto()).run(world, problem, 10_000.0)
    >>> round(float(history.shortfall[-1]), 9), round(float(history.extra["found"].mean()), 2)
    (0.0, 0.83)
    """

    solver: Solver = field(default_factory=Uniform)
    polling: Polling = Polling.CREDIT
    rounds: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if settings are invalid or out of range."""
        expect_settings(self)
        AutomataTree(polling=self.polling, rounds=self.rounds)

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
        """Poll a world until the horizon; see `Learner.run`."""
        require_plain(problem, type(self).__name__)
        rates = solve(problem, self.solver).rates
        tree = automata.AutomataTree.from_shares(rates, polling=self.polling, seed=self.seed)
        settings = AutomataTree(polling=self.polling, rounds=self.rounds, seed=self.seed)
        return run_tree(settings, tree, world, problem, horizon, truth, checkpoint, progress, name=self)

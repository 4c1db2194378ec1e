"""`AsyncMirrorSync`: mirror steps at fixed times, of the sources that have been sampled since.

No round has to be long enough for the slowest source, and no copies are made fresh for free. What it takes
instead: a step of some sources shares out anew what these have together, and an interval during which the
rate changed is of no use as a sample. Such an interval has lost its chance to be probed, and that chance is
spent on the update: with probability ε the source is refreshed at once, else at its new gap after its last
refresh.

Cost: as `MirrorSync`, a step per update.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from freshopt.errors import expect_settings
from freshopt.learning.history import History
from freshopt.learning.sync_cycles import run_cycles
from freshopt.learning.synchronization import check_rate
from freshopt.model import Problem
from freshopt.simulation import Crawler, World
from freshopt.solvers.mirror_descent import MirrorDescent


@dataclass(frozen=True, slots=True)
class AsyncMirrorSync:
    """Learn periodic refresh rates from observed costs, each source when it has been sampled.

    Parameters
    ----------
    learning_rate : float
        η ≥ 0, for the gradient of the mean cost of the sources that are updated.
    cycle : float
        Time between updates, in time units.
    exploration : float
        ε, the probability with which an interval is probed.
    seed : int
        Of the probes.

    Notes
    -----
    [1]_ Algorithm 2 gives the updated sources Σ r/(1+ε) of what was Σ r, at each update anew: so printed,
    rates wither. Here they keep Σ r. Resets are of updated sources only.

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       Algorithm 2.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import BinaryCost, SynchronizationCost
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], min_rate=0.1)
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=3.0)
    >>> learner = AsyncMirrorSync(learning_rate=0.05, cycle=5.0, seed=1)
    >>> history = learner.run(fo.World.poisson(sources, seed=1), problem, horizon=4000.0)
    >>> history.value[[0, -1]].round(3).tolist(), round(float(history.best[0]), 3)
    ([1.326, 1.262], 1.245)
    """

    learning_rate: float
    cycle: float
    exploration: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that are no numbers."""
        expect_settings(self)
        check_rate(self.learning_rate)

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
        """Play up to a horizon, in whole cycles; see `Learner.run` and `MirrorSync.run`."""
        return run_cycles(
            self, MirrorDescent(), world, problem, horizon, truth, checkpoint, progress=progress
        )

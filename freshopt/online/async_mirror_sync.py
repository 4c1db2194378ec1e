"""`AsyncMirrorSync`: asynchronous mirror descent for refresh rates.

Its steps are at fixed times, of the sources that have been sampled since.

No round has to be long enough for the slowest source, and no copies are made fresh for free. What it takes
instead: a step of some sources shares out anew what these have together, and an interval during which the
rate changed is of no use as a sample. Such an interval has lost its chance to be probed, and that chance is
spent on the update: with probability ε the source is refreshed at once, else at its new interval after its
last refresh.

Cost: as `MirrorSync`, a step per update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.online.async_updates import CyclicPolicy
from freshopt.online.gradient_probes import Descent
from freshopt.solvers.mirror_descent import MirrorDescent


@dataclass(frozen=True, slots=True)
class AsyncMirrorSync(CyclicPolicy):
    """Asynchronous mirror descent from observed costs.

    Learns periodic refresh rates, each source when it has been sampled.

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

    descent: ClassVar[Descent] = MirrorDescent()

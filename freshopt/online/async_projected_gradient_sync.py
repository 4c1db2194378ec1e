"""`AsyncProjectedGradientSync`: `AsyncMirrorSync` with Euclidean steps in place of mirror steps.

The rival of [1]_: the nearest feasible rates to q − ηg. One learning rate then serves slopes near rate 0 and
at large rates alike, though they differ by decades; so it has to be small, and progress at first is slow. It
needs long cycles, whose averages are less noisy.

Cost: as `AsyncMirrorSync`.

.. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.online.async_updates import CyclicPolicy
from freshopt.online.gradient_probes import Descent
from freshopt.solvers.projected_gradient import ProjectedGradient


@dataclass(frozen=True, slots=True)
class AsyncProjectedGradientSync(CyclicPolicy):
    """Asynchronous projected gradient descent from observed costs.

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

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       section 8.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import BinaryCost, SynchronizationCost
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], min_rate=0.1)
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=3.0)
    >>> learner = AsyncProjectedGradientSync(learning_rate=0.2, cycle=20.0, seed=1)
    >>> history = learner.run(fo.World.poisson(sources, seed=1), problem, horizon=4000.0)
    >>> history.value[[0, -1]].round(3).tolist(), round(float(history.best[0]), 3)
    ([1.326, 1.27], 1.245)
    """

    descent: ClassVar[Descent] = ProjectedGradient()

"""`AgeCosts`: crawler that observes costs by age.

This is the feedback of a policy that learns costs [1]_: not whether a source changed, but the cost of a copy
of this age, with noise. The noise is one factor per copy, so that of two observations of one copy the later
one costs no less; mean 1, so that the expected cost is the curve. Like changes, a factor belongs to (seed,
source, number of the copy), whenever it is observed.

Cost: sorts the polls of a batch, 200 ns a poll.

References
----------
.. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020, Assumptions 1-3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, check_seed
from freshopt.numerics.arrays import Array, IntArray, as_number, as_whole
from freshopt.numerics.random_streams import uniforms
from freshopt.simulation.change_processes import State

if TYPE_CHECKING:
    from freshopt.modelling.cost_curve import Curve

# Largest number of sources: two columns of them take 16 GB.
MOST = 10**9


class AgeCosts:
    """Crawler that observes noisy costs of age.

    An observation is c(age)·(1 + noise·U), U uniform in (−1, 1) for each copy.

    Parameters
    ----------
    curve : Curve
        The expected cost of age of n sources, such as ``PowerCost(scale, exponent).curve(sources)``.
    n : int
        The number of sources.
    noise : float
        In 0..1.
    seed : int

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import PowerCost
    >>> sources = fo.Sources(change_rate=[1.0, 1.0])
    >>> costs = AgeCosts(PowerCost([1.0, 2.0], 0.5).curve(sources), n=2, noise=0.0, seed=1)
    >>> costs.refresh([0, 1, 0], [4.0, 4.0, 5.0])
    array([2., 4., 1.])
    """

    def __init__(self, curve: Curve, n: int, *, noise: float = 0.1, seed: int = 0) -> None:
        noise = as_number(noise, "noise", "Pass a share from 0 to 1.")
        n = as_whole(n, "n", 1, MOST)
        if not 0.0 <= noise <= 1.0:
            raise SourceDataError(f"noise is {noise}. Pass a share from 0 to 1, so that no cost is negative.")
        self._curve, self._noise, self._seed = curve, noise, check_seed(seed)
        self._refreshed = np.zeros(n)
        self._copies = np.zeros(n, dtype=np.int64)

    def __repr__(self) -> str:
        """Return the size and the noise."""
        return f"AgeCosts({len(self._copies)} sources, noise {self._noise:g}, seed {self._seed})"

    def refresh(self, source: npt.ArrayLike, time: npt.ArrayLike) -> Array:
        """Return the costs of the copies just before their refresh."""
        return self.poll(source, time, np.zeros(np.size(time), dtype=np.bool_))

    def probe(self, source: npt.ArrayLike, time: npt.ArrayLike) -> Array:
        """Return the costs of the copies."""
        return self.poll(source, time, np.ones(np.size(time), dtype=np.bool_))

    def poll(self, source: npt.ArrayLike, time: npt.ArrayLike, keep: npt.ArrayLike) -> Array:
        """Probe where `keep` is true and refresh elsewhere.

        Parameters
        ----------
        source : array_like of int, shape (m,)
        time : array_like, shape (m,)
            Sorted; of each source not before its latest refresh.
        keep : array_like of bool, shape (m,)

        Raises
        ------
        SourceDataError
            If a time runs backwards.
        """
        sources, times = np.asarray(source, dtype=np.int64), np.asarray(time, dtype=np.float64)
        order = np.argsort(sources, kind="stable")
        k, t, renewed = sources[order], times[order], ~np.asarray(keep, dtype=np.bool_)[order]
        m = len(k)
        if m == 0:
            return np.empty(0)
        since, copies = self._before(k, t, renewed)
        age = t - since
        if not (age >= 0.0).all():
            at = int(np.argmin(age))
            raise SourceDataError(
                f"source {k[at]} is polled at {t[at]:g}, before its refresh at {since[at]:g}. Sort polls "
                "by time."
            )
        curve = self._curve.take(k)
        factor = 1.0 + self._noise * (2.0 * uniforms(self._seed, k, copies) - 1.0)
        with np.errstate(all="ignore"):
            costs = np.where(age > 0.0, curve.at(np.where(age > 0.0, age, 1.0), *curve.parameters), 0.0)
        answer = np.empty(m)
        answer[order] = factor * costs
        last = np.flatnonzero(renewed)
        self._refreshed[k[last]] = t[last]  # of several the last one, as NumPy assigns in order
        self._copies += np.bincount(k[last], minlength=len(self._copies))
        return answer

    def state(self) -> State:
        """Return the state for a checkpoint."""
        return {"refreshed": self._refreshed.copy(), "copies": self._copies.copy()}

    def restore(self, state: State) -> None:
        """Restore the records of `state`."""
        if {key: np.shape(array) for key, array in state.items()} != {
            key: array.shape for key, array in self.state().items()
        }:
            raise SourceDataError(
                f"the saved state is not one of costs of {len(self._copies)} sources. Restore it with the "
                "costs that it was saved with."
            )
        self._refreshed, self._copies = state["refreshed"].copy(), state["copies"].copy()

    def _before(self, k: IntArray, t: Array, renewed: npt.NDArray[np.bool_]) -> tuple[Array, IntArray]:
        """Return each poll's latest earlier refresh and its copy.

        The copy is given by its number; polls come source by source.
        """
        m = len(k)
        head = np.ones(m, dtype=np.bool_)
        np.not_equal(k[1:], k[:-1], out=head[1:])
        begins = np.maximum.accumulate(np.where(head, np.arange(m), 0))
        earlier = np.zeros(m, dtype=np.int64)  # 1 + position of the latest refresh before, 0 if none
        earlier[1:] = np.maximum.accumulate(np.where(renewed, np.arange(1, m + 1), 0))[:-1]
        here = earlier > begins
        since = np.where(here, t[earlier - 1], self._refreshed[k])
        count = np.concatenate([[0], np.cumsum(renewed)[:-1]])
        return since, self._copies[k] + count - count[begins]

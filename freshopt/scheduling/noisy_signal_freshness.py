"""Binary freshness of sources whose change signals are incomplete and partly false. Maximised.

A sitemap, a feed or a webhook announces a share of the changes (its recall l), and of its announcements a
share is true (its precision p). The best policy crawls a source when the time since its last crawl, with a
bonus for each signal since, reaches a threshold (`freshopt.signal_cycle`); a rate ρ is the threshold whose
cycle has the length 1/ρ. In between lie two cells of `BinaryFreshness`: periodic refreshes without signals
(l = 0), and refreshes on signal where all changes and nothing else is announced (l = p = 1).

With complete signals (l = 1) time adds nothing, and thresholds are numbers of signals: freshness is linear
between ρ = g/N and g/(N+1), and 1 from ρ = g on. With true signals (p = 1) every signal is followed by a
crawl, and freshness is linear below ρ = g, where only a share of them is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, as_vector, total
from freshopt.errors import ObjectiveError
from freshopt.kernel import Index, Kernel
from freshopt.objective import Objective, Refresh
from freshopt.signal_cycle import cycle, threshold_of_index, threshold_of_length
from freshopt.sources import Sources

COMPLETE = 1.0 - 1e-9  # recall from which on time adds nothing that could be told from nothing


@dataclass(frozen=True, slots=True, eq=False)
class NoisySignalFreshness(Objective):
    """Maximise Σ w·(share of time that the copy is fresh), with signals of known quality.

    Parameters
    ----------
    recall : float or array_like, shape (n,)
        l: the share of changes that are announced, 0 ≤ l ≤ 1.
    precision : float or array_like, shape (n,)
        p: the share of announcements that are true, 0 < p ≤ 1; of no account where the recall is 0.

    Raises
    ------
    ObjectiveError
        If a recall or precision is out of range, or not one number for each source.

    Notes
    -----
    V(i) = w(i) − e^{−ai}ψ(i) is the marginal at the rate 1/ψ(i): lengthening a cycle by dψ adds e^{−ai}dψ to
    its fresh time. The cell has no cone form that CVXPY could be given, so that cone solvers refuse it; the
    dual solves it, and the certificate proves it. `thresholds` turns rates into what a crawler compares
    elapsed time and signals with. Sources are not ``signalled``: that word promises every change.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0, 1.0])
    >>> objective = NoisySignalFreshness(recall=[0.0, 0.5, 1.0], precision=[1.0, 0.8, 1.0])
    >>> solution = fo.solve(fo.Problem(objective, sources, bandwidth=1.5))
    >>> solution.rates.round(3), round(solution.value, 3)
    (array([0.203, 0.297, 1.   ]), 1.496)
    """

    recall: npt.ArrayLike
    precision: npt.ArrayLike
    refresh: Refresh = field(default=Refresh.PERIODIC, init=False)
    sense: ClassVar[Literal["minimise", "maximise"]] = "maximise"

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for key, lowest in (("recall", "0 or more"), ("precision", "> 0")):
            value = np.asarray(getattr(self, key), dtype=np.float64)
            good = (value <= 1.0) & ((value >= 0.0) if key == "recall" else (value > 0.0))
            if not bool(np.all(good)):
                bad = value[~good].ravel()[0] if value.ndim else float(value)
                raise ObjectiveError(f"{key} is {bad:g}. It is a share: {lowest}, and at most 1. Correct it.")

    def __repr__(self) -> str:
        """Return the ranges, never the arrays."""
        spans = []
        for key in ("recall", "precision"):
            value = np.asarray(getattr(self, key), dtype=np.float64)
            low, high = float(np.min(value)), float(np.max(value))
            spans.append(f"{key}={low:.4g}" if low == high else f"{key}={low:.4g}..{high:.4g}")
        return f"NoisySignalFreshness({', '.join(spans)})"

    def take(self, index: Index) -> NoisySignalFreshness:
        """Return the objective for some of the sources."""
        taken = [
            value[index] if (value := np.asarray(getattr(self, key))).ndim else value
            for key in ("recall", "precision")
        ]
        return NoisySignalFreshness(*taken)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of the stale part."""
        recall, precision = self._quality(len(sources))
        parameters = (sources.change_rate, recall, precision)
        return Kernel(sources.importance, parameters, _cost, _marginal, _inverse)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return Σw − (stale part)."""
        return total(sources.column("importance")) - cost

    def thresholds(self, rates: npt.ArrayLike, sources: Sources) -> tuple[Array, Array]:
        """Return when to crawl: at the first moment at which elapsed time + bonus · signals ≥ threshold.

        Parameters
        ----------
        rates : array_like, shape (n,)
            Crawls per time unit, as solved for.
        sources : Sources

        Returns
        -------
        threshold : ndarray, shape (n,)
            i in time units; inf for a source that is never crawled. With a recall of 1 time does not count,
            and it is the number of signals to wait for, rounded up (the bonus is then 1 and the elapsed time
            must be left out); with a precision of 1 the bonus is inf: every signal is followed by a crawl.
        bonus : ndarray, shape (n,)
            b = ln(g/v)/a in time units; inf where a signal is certain, 0 where there are none.
        """
        n = len(sources)
        d, rate = sources.change_rate, as_vector(rates, n, "rates")
        recall, precision = self._quality(n)
        threshold, bonus = np.full(n, np.inf), np.zeros(n)
        with np.errstate(all="ignore"):
            lattice = recall >= COMPLETE
            bonus = np.where(recall > 0.0, -np.log1p(-precision) / (1.0 - recall) / d, 0.0)
            threshold[lattice] = np.ceil(recall * d / precision / rate - 1e-9)[lattice]
            bonus[lattice] = 1.0
            rest = np.flatnonzero(~lattice & (rate > 0.0))
            length = d[rest] / rate[rest]
            reachable = ~((precision[rest] == 1.0) & (length * recall[rest] >= 1.0))
            rest = rest[reachable]
            found = threshold_of_length(length[reachable], recall[rest], precision[rest])
            threshold[rest] = found / d[rest]
        return threshold, bonus

    def _quality(self, n: int) -> tuple[Array, Array]:
        given = (np.asarray(share, dtype=np.float64) for share in (self.recall, self.precision))
        try:
            recall, precision = (np.broadcast_to(share, (n,)) for share in given)
        except ValueError:
            raise ObjectiveError(
                f"{self!r} does not have one recall and precision for each of {n} sources. Give one each."
            ) from None
        return recall, precision


def _cost(rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    cost = np.ones(np.shape(rate))
    for where, x, share, kind in _kinds(rate, d, recall, precision):
        if kind == "linear":
            cost[where] = 1.0 - x
        elif kind == "lattice":
            signals = 1.0 / share[1]
            number = np.ceil(signals / x) - 1.0
            beyond = signals / (number + 1.0)
            fresh = _power_sum(number + 1.0, share[1]) / (number + 1.0)
            cost[where] = np.maximum(1.0 - fresh - _lattice_index(number, *share) * (x - beyond), 0.0)
        else:
            found = cycle(threshold_of_length(1.0 / x, *share), *share)
            cost[where] = found.stale / found.length
    return cost


def _marginal(rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    marginal = np.ones(np.shape(rate))
    for where, x, share, kind in _kinds(rate, d, recall, precision):
        if kind == "lattice":
            marginal[where] = _lattice_index(np.ceil(1.0 / share[1] / x) - 1.0, *share)
        elif kind == "cycle":
            marginal[where] = cycle(threshold_of_length(1.0 / x, *share), *share).worth
    return marginal / d


def _inverse(price: Array, d: Array, recall: Array, precision: Array) -> Array:
    worth = price * d
    rate = np.zeros(np.shape(worth))
    lattice = recall >= COMPLETE
    for where in (np.flatnonzero(lattice & (worth < 1.0)), np.flatnonzero(~lattice & (worth < 1.0))):
        if not len(where):
            continue
        share = (recall[where], precision[where])
        if lattice[where[0]]:
            rate[where] = 1.0 / share[1] / (_signals_worth(worth[where], *share) + 1.0)
        else:
            rate[where] = 1.0 / cycle(threshold_of_index(worth[where], *share), *share).length
    return rate * d


ENDLESS = 60.0  # N·p at which (1−p)^N, and N times it, are nothing beside 1
Share = tuple[Array, Array]


def _kinds(
    rate: Array, d: Array, recall: Array, precision: Array
) -> list[tuple[npt.NDArray[np.int64], Array, Share, str]]:
    """Return the sources of each kind that are refreshed at all: places, rates over Δ, qualities, kind."""
    x = np.asarray(rate / d)
    lattice = recall >= COMPLETE
    linear = ~lattice & (precision == 1.0) & (x <= recall)
    found = []
    for kind, chosen in (("lattice", lattice), ("linear", linear), ("cycle", ~lattice & ~linear)):
        where = np.flatnonzero(chosen & (x > 0.0))
        if len(where):
            found.append((where, x[where], (recall[where], precision[where]), kind))
    return found


def _power_sum(number: Array, precision: Array) -> Array:
    """Return Σ_{k<N} (1−p)^k."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(number > 0.0, -np.expm1(number * np.log1p(-precision)) / precision, 0.0)


def _lattice_index(number: Array, _: Array, precision: Array) -> Array:
    """Return V of N signals, Σ_{k<N} (q^k − q^N)/g with q = 1−p and g = 1/p, with recall 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        last = np.exp(number * np.log1p(-precision))
    last = np.where(number > 0.0, last, 1.0)
    return np.maximum(_power_sum(number, precision) - number * last, 0.0) * precision


def _signals_worth(worth: Array, recall: Array, precision: Array) -> Array:
    """Return the largest N with V(N) ≤ worth < 1; that of all but no freshness where V is 1 to rounding."""
    low, high = np.zeros(len(worth)), np.ceil(ENDLESS / precision)
    while bool(np.any(high - low > 1.0)):
        middle = np.floor(0.5 * (low + high))
        within = _lattice_index(middle, recall, precision) <= worth
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    return low

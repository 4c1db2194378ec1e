"""`NoisySignalFreshness`: binary freshness with noisy change signals.

Signals are incomplete and partly false. Maximised.

A sitemap, a feed or a webhook announces a share of the changes (its recall l), and of its announcements a
share is true (its precision p). The optimal policy crawls a source when the time since its last crawl, with a
bonus for each signal since, reaches a threshold (`freshopt.noisy_signals.renewal_cycle`); a rate ρ is the
threshold whose cycle has the length 1/ρ. In between lie two cells of `BinaryFreshness`: periodic refreshes
without signals (l = 0), and refreshes on signal where all changes and nothing else is announced (l = p = 1).

With complete signals (l = 1) time adds nothing, and thresholds are numbers of signals: freshness is linear
between ρ = g/N and g/(N+1), and 1 from ρ = g on. With true signals (p = 1) every signal is followed by a
crawl, and freshness is linear below ρ = g, where only a share of them is. As the precision falls signals
carry no more information than a clock, and the policy tends to periodic refreshes.

Cost: 2 μs a source and price (`freshopt.noisy_signals.renewal_cycle`); 10⁵ sources are solved and proved
in seconds. What it brings, measured in worlds with signals: ``docs/evidence/benchmarks.md``.
"""

from __future__ import annotations

import copy
from dataclasses import field
from typing import ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals.expected_costs import Cost
from freshopt.noisy_signals.quality_tables import with_tables
from freshopt.noisy_signals.renewal_cycle import bonus, rate_at_index, stale_and_index, threshold_of_length
from freshopt.noisy_signals.signal_thresholds import SignalThresholds
from freshopt.numerics.arrays import Array, Index, as_numbers, as_vector, read_only, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel

Signalled = TypeVar("Signalled", bound=Objective)
# The node, and the weight, of staleness.
ONE = read_only(np.ones(1))


@frozen_value()
class NoisySignalFreshness(Objective):
    """Binary freshness with signals of known quality, maximised.

    Σ w·(share of time that the copy is fresh).

    Parameters
    ----------
    recall : float or array_like, shape (n,)
        l: the share of changes that are announced, 0 ≤ l ≤ 1.
    precision : float or array_like, shape (n,)
        p: the share of announcements that are true, 0 < p ≤ 1; of no account where the recall is 0.

    Attributes
    ----------
    classes : tuple of two ndarray of float, shape (n,), or None
        Recall and precision by which rates are found in place of the sources' own, in plans of many sources:
        those of classes of like sources, for which tables answer. Rules are of each source's own.

    Raises
    ------
    ObjectiveError
        If a recall or precision is out of range, or not one number for each source.

    Notes
    -----
    V(i) = w(i) − e^{−ai}ψ(i) is the marginal at the rate 1/ψ(i): lengthening a cycle by dψ adds e^{−ai}dψ to
    its fresh time. The cell has no conic form in CVXPY, so that conic solvers do not apply; the
    dual solves it, and the certificate proves it. `thresholds` turns rates into what a crawler compares
    elapsed time and signals with, `SignalGreedy` picks the source that is ahead at each moment, and
    `freshopt.noisy_signals.NoisySignals` estimates recall and precision from a log that counts signals.
    Sources are not ``signalled``: that word promises every change.

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
    classes: tuple[Array, Array] | None = field(default=None, init=False)
    refresh: Refresh = field(default=Refresh.PERIODIC, init=False)
    sense: ClassVar[Literal["minimise", "maximise"]] = "maximise"

    def __post_init__(self) -> None:
        for key, lowest in (("recall", "0 or more"), ("precision", "> 0")):
            value = as_numbers(getattr(self, key), key)
            if value.ndim > 1 or not value.size:
                raise ObjectiveError(f"{key} has shape {value.shape}. Pass one number, or one per source.")
            good = (value <= 1.0) & ((value >= 0.0) if key == "recall" else (value > 0.0))
            if not bool(np.all(good)):
                bad = value[~good].ravel()[0] if value.ndim else float(value)
                raise ObjectiveError(f"{key} is {bad:g}. It is a share: {lowest}, and at most 1. Correct it.")

    def __repr__(self) -> str:
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
        return classed(NoisySignalFreshness(*taken), self.classes, index)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of the stale part."""
        parameters = (sources.change_rate, *self._quality(len(sources), self.classes))
        kernel = Kernel(sources.importance, parameters, _cost, _marginal, _inverse)
        return with_tables(kernel, Cost(0.0, ONE, ONE), 1.0)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return Σw − (stale part)."""
        return total(sources.column("importance")) - cost

    def thresholds(self, rates: npt.ArrayLike, sources: Sources) -> SignalThresholds:
        """Return the optimal crawl thresholds.

        A table that a crawler can load.

        Parameters
        ----------
        rates : array_like, shape (n,)
            Crawls per time unit, as solved for.
        sources : Sources

        Examples
        --------
        >>> import freshopt as fo
        >>> sources = fo.Sources([1.0, 1.0], names=["quiet", "loud"])
        >>> objective = NoisySignalFreshness(recall=[0.0, 0.5], precision=[1.0, 0.8])
        >>> objective.thresholds([0.5, 0.5], sources)
        SignalThresholds(2 sources, 1 with signals, thresholds 2..4.95 days)
        """
        n = len(sources)
        rate = as_vector(rates, n, "rates")
        recall, precision = self._quality(n)
        with np.errstate(divide="ignore"):
            length = sources.change_rate / np.where(rate > 0.0, rate, 0.0)
        number, wait = np.zeros(n), np.full(n, np.inf)
        some = np.flatnonzero(np.isfinite(length))
        number[some], wait[some] = threshold_of_length(length[some], recall[some], precision[some])
        share = np.where(rate > 0.0, 1.0, 0.0)
        true = (precision == 1.0) & (recall > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            partly = np.minimum(1.0, rate / (recall * sources.change_rate))
        share = np.where(true, partly, share)
        time = sources.change_rate
        return SignalThresholds(
            signals=number,
            wait=wait / time,
            bonus=bonus(recall, precision) / time,
            crawl_probability=share,
            names=sources.names,
            time_unit=sources.time_unit,
        )

    def _quality(self, n: int, classes: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Return recall and precision of n sources, or those of classes."""
        shares = (self.recall, self.precision) if classes is None else classes
        given = (np.asarray(share, dtype=np.float64) for share in shares)
        try:
            recall, precision = (np.broadcast_to(share, (n,)) for share in given)
        except ValueError:
            raise ObjectiveError(
                f"{self!r} does not have one recall and precision for each of {n} sources. Give one each."
            ) from None
        return recall, precision


def classed(
    objective: Signalled, classes: tuple[Array, Array] | None, index: Index = slice(None)
) -> Signalled:
    """Return an objective whose rates are found by classes of qualities."""
    if classes is None:
        return objective
    made = copy.copy(objective)
    object.__setattr__(made, "classes", tuple(read_only(share[index]) for share in classes))
    return made


def _cost(rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    return stale_and_index(rate / d, recall, precision)[0]


def _marginal(rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    value: Array = stale_and_index(rate / d, recall, precision)[1] / d
    return value


def _inverse(price: Array, d: Array, recall: Array, precision: Array) -> Array:
    rate: Array = rate_at_index(price * d, recall, precision) * d
    return rate

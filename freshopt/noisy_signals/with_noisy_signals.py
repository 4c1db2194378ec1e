"""`WithNoisySignals`: an objective with incomplete and partly false change signals.

Each source is crawled as soon as its copy costs so much now, in expectation over the changes that its signals
and the time since the last crawl tell of: no other rule costs less at that rate
(`freshopt.noisy_signals.expected_costs`). Silent, noisily and perfectly signalled sources may be mixed:

========================  ===========================================================================
a source of               is crawled
========================  ===========================================================================
recall 0                  at equal gaps: the objective's own periodic cell
recall and precision 1    at every N-th signal (`freshopt.compiled.cells.counted_signals`), under age some
                          time after the first
other qualities           with n signals after a time τ_n, which falls with n (`SignalWaits`), under age
                          by when its signals came (`AgeThresholds`)
========================  ===========================================================================

Binary freshness is that of `NoisySignalFreshness`, and log freshness, −log F, is made of its freshness F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import plain_or_compiled
from freshopt.errors import ObjectiveError, list_offenders, shown
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals import cycle_terms, expected_age, expected_costs, signal_rates
from freshopt.noisy_signals.age_thresholds import AgeThresholds
from freshopt.noisy_signals.expected_costs import LEAST_PRECISION, Cost, harmonic_nodes
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness, classed
from freshopt.noisy_signals.quality_tables import with_tables
from freshopt.noisy_signals.renewal_cycle import ready, run_pass, stale_and_index
from freshopt.noisy_signals.signal_thresholds import SignalThresholds
from freshopt.noisy_signals.signal_waits import SignalWaits
from freshopt.numerics.arrays import Array, Formula, Index, as_vector, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.problems.log_freshness import LogFreshness
from freshopt.separable.kernel import Kernel

loops = plain_or_compiled(
    (expected_costs.inverse, expected_costs.evaluate, expected_costs.waits),
    (signal_rates, cycle_terms, expected_age, expected_costs),
)
# Sources: some milliseconds, below which a thread costs more than it saves.
PIECE = 16
# An objective of changes missed is a row: L, y and W of `expected_costs`.
NONE = read_only(np.zeros(0))
COSTS: dict[type[Objective], Callable[[], Cost]] = {
    AccumulatedDelay: lambda: Cost(1.0, NONE, NONE),
    HarmonicStaleness: lambda: Cost(0.0, *harmonic_nodes()),
    Age: lambda: Cost(0.0, NONE, NONE, of_age=True),
}
SHARES = (BinaryFreshness, LogFreshness)
# Halvings of log₂ of a rate, from 2^±64 of the change rate to half an ulp.
HALVINGS = 60


def least_precision(objective: Objective) -> float:
    """Return the precision below which an objective's signals are refused."""
    return expected_age.LEAST_PRECISION if isinstance(objective, Age) else LEAST_PRECISION


@frozen_value(repr=False)
class WithNoisySignals(Objective):
    """Objective of copies whose sources announce some changes, and others besides.

    Parameters
    ----------
    objective : Objective
        `HarmonicStaleness`, `AccumulatedDelay`, `Age`, `BinaryFreshness` or `LogFreshness`, periodic.
    recall : float or array_like, shape (n,)
        Share of changes that are announced, from 0 (silent) to 1.
    precision : float or array_like, shape (n,)
        Share of announcements that are true, in (0, 1]; of no account where the recall is 0.

    Attributes
    ----------
    classes : tuple of two ndarray of float, shape (n,), or None
        Recall and precision by which rates are found, as in `NoisySignalFreshness`.

    Raises
    ------
    ObjectiveError
        For another objective or discipline, if a share is out of range, and for delay and harmonic staleness
        if a precision is below 0.01 (age: 0.05) where the recall is not 0: such signals are of little use.

    Notes
    -----
    The cells have no form in CVXPY: the dual solves them, and the certificate proves the rates. Of sources
    with `signalled=True` nothing is asked; a recall and precision of 1 says the same. A source and price take
    0.05-0.5 ms of harmonic staleness and age (4 ms where one signal in ten is true), 10-50 µs of delay and
    2 µs of binary freshness; silent and perfect ones take nanoseconds. Those of a recall and precision that
    hundreds share take about a microsecond in all, but for log freshness and age: tables with a proved error
    answer for them, made in some ms a quality, 300 of harmonic staleness. For many others a sample finds
    the price first.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = WithNoisySignals(fo.problems.HarmonicStaleness(), recall=[0.0, 0.6, 1.0], precision=0.8)
    >>> sources = fo.Sources(change_rate=[1.0, 1.0, 1.0])
    >>> solution = fo.solve(fo.Problem(objective, sources, bandwidth=1.5))
    >>> bool(solution.certificate.relative_gap < 1e-9)
    True
    >>> objective.rule(solution.rates, sources)
    SignalWaits(3 sources, at most 3 signals before a crawl)
    """

    objective: Objective
    recall: npt.ArrayLike
    precision: npt.ArrayLike
    classes: tuple[Array, Array] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        objective = self.objective
        if type(objective) not in (*COSTS, *SHARES):
            raise ObjectiveError(
                f"{shown(objective)} has no cost of noisy signals. Pass an instance of HarmonicStaleness, "
                "AccumulatedDelay, Age, BinaryFreshness or LogFreshness."
            )
        if objective.refresh is not Refresh.PERIODIC:
            raise ObjectiveError(
                f"{objective!r} is not periodic: noisy signals shorten equal gaps. Use Refresh.PERIODIC."
            )
        signals = NoisySignalFreshness(self.recall, self.precision)
        if type(objective) in COSTS:
            recall, precision = signals._quality(max(np.size(self.recall), np.size(self.precision)))
            least = least_precision(objective)
            low = np.flatnonzero((precision < least) & (recall > 0.0))
            if len(low):
                raise ObjectiveError(
                    f"precision {list_offenders(f'{precision[k]:g}' for k in low)} is below "
                    f"{least}: such signals are of negligible use. Pass a recall of 0 there."
                )

    def __repr__(self) -> str:
        return f"WithNoisySignals({self.objective!r}, {repr(self._freshness).partition('(')[2]}"

    @property
    def _freshness(self) -> NoisySignalFreshness:
        """Binary freshness with the same signals."""
        return classed(NoisySignalFreshness(self.recall, self.precision), self.classes)

    @property
    def sense(self) -> Literal["minimise", "maximise"]:  # type: ignore[override]
        """Whether the sum over sources is to be small or large."""
        return self.objective.sense

    @property
    def refresh(self) -> Refresh:  # type: ignore[override]
        """Periodic: gaps are equal where no signal shortens them."""
        return Refresh.PERIODIC

    def take(self, index: Index) -> WithNoisySignals:
        """Return the objective for some of the sources."""
        own = self._freshness.take(index)
        return classed(WithNoisySignals(self.objective.take(index), own.recall, own.precision), own.classes)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the numerics: each source by the cell of its quality."""
        if isinstance(self.objective, BinaryFreshness):
            return self._freshness.kernel(sources)
        parameters = (sources.change_rate, *self._freshness._quality(len(sources), self.classes))
        if isinstance(self.objective, LogFreshness):
            return with_tables(
                Kernel(sources.importance, parameters, _log_cost, _log_marginal, _log_inverse), None
            )
        silent, perfect = self.objective.kernel(sources), self.objective.signalled_kernel(sources)
        assert silent is not None
        assert perfect is not None
        noisy = COSTS[type(self.objective)]()
        own = _Cells(silent, perfect, noisy)
        kernel = Kernel(sources.importance, parameters, own.cost, own.marginal, own.inverse)
        return with_tables(kernel, None if noisy.of_age else noisy)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the value in the declared sense from the cost."""
        return self.objective.value_from_cost(cost, sources)

    def rule(self, rates: npt.ArrayLike, sources: Sources) -> SignalThresholds | SignalWaits | AgeThresholds:
        """Return when to crawl: what a crawler compares time and signals with.

        Parameters
        ----------
        rates : array_like, shape (n,)
            Crawls per time unit, as solved for.
        sources : Sources

        Returns
        -------
        SignalThresholds, SignalWaits or AgeThresholds
            The first of binary and log freshness, the last of age.
        """
        if isinstance(self.objective, SHARES):
            return self._freshness.thresholds(rates, sources)
        n = len(sources)
        recall, precision = self._freshness._quality(n)
        rate = as_vector(rates, n, "rates")
        d = np.ascontiguousarray(sources.change_rate)
        crawled = np.flatnonzero(rate > 0.0)
        cost = COSTS[type(self.objective)]()
        given = *map(ready, ((rate / d)[crawled], recall[crawled], precision[crawled])), cost
        if cost.of_age:
            level = np.zeros((len(crawled), 1))
            run_pass(loops()["waits"], given, (level,), PIECE)
            ages = np.full(n, np.inf)
            ages[crawled] = level[:, 0] / d[crawled]
            unheard = (1.0 - recall) * d
            return AgeThresholds(ages, unheard, precision, sources.names, sources.time_unit)
        # The last number of signals that leaves a copy waiting is not known before.
        room = 4
        while True:
            times = np.zeros((len(crawled), room))
            run_pass(loops()["waits"], given, (times,), PIECE)
            if not len(crawled) or not np.any(times[:, -1] > 0.0):
                break
            room *= 2
        waits = np.zeros((n, times.shape[1]))
        waits[rate <= 0.0] = np.inf
        waits[crawled] = times / d[crawled, None]
        # Where all changes are announced, N and N + 1 signals alternate.
        last = np.count_nonzero(waits > 0.0, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = last + 1.0 - recall * d / (precision * rate)
        complete = (recall == 1.0) & (rate > 0.0)
        shares = np.where(complete, np.clip(share, 0.0, 1.0), np.where(rate > 0.0, 1.0, 0.0))
        return SignalWaits(waits, shares, names=sources.names, time_unit=sources.time_unit)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Formulas of silent, perfectly and noisily signalled sources, one after the other."""

    silent: Kernel
    perfect: Kernel
    noisy: Cost

    def cost(self, rate: Array, d: Array, recall: Array, precision: Array) -> Array:
        """Return J at given rates."""

        def perfect(x: Array, d: Array) -> Array:
            return np.where(x > d, 0.0, self.perfect.unit_cost(x, d))  # more often than there are signals

        def noisy(x: Array, d: Array, r: Array, p: Array) -> Array:
            found: Array = self._pass("evaluate", 2, x / d, r, p)[0] / self._unit(d)
            return found

        return _each(rate, d, recall, precision, self.silent.unit_cost, perfect, noisy)

    def marginal(self, rate: Array, d: Array, recall: Array, precision: Array) -> Array:
        """Return −J' at given rates."""

        def perfect(x: Array, d: Array) -> Array:
            return np.where(x > d, 0.0, self.perfect.unit_marginal(x, d))

        def noisy(x: Array, d: Array, r: Array, p: Array) -> Array:
            found: Array = self._pass("evaluate", 2, x / d, r, p)[1] / d / self._unit(d)
            return found

        return _each(rate, d, recall, precision, self.silent.unit_marginal, perfect, noisy)

    def inverse(self, price: Array, d: Array, recall: Array, precision: Array) -> Array:
        """Return the rate at given prices."""

        def noisy(x: Array, d: Array, r: Array, p: Array) -> Array:
            rate = np.zeros(len(x))
            # At a price without end, of a host whose limit leaves nothing, the search for a wait has no end.
            k = np.flatnonzero(x < np.inf)
            value = np.maximum((x * d * self._unit(d))[k], 1e-250)
            rate[k] = self._pass("inverse", 1, value, r[k], p[k])[0] * d[k]
            return rate

        return _each(price, d, recall, precision, self.silent.unit_inverse, self.perfect.unit_inverse, noisy)

    def _unit(self, d: Array) -> Array | float:
        """Return what costs in units of 1/Δ are divided by.

        Ages are times, other costs numbers.
        """
        return d if self.noisy.of_age else 1.0

    def _pass(self, name: str, many: int, *given: Array) -> tuple[Array, ...]:
        """Return the columns that a pass over noisy sources writes."""
        found = tuple(np.empty(len(given[0])) for _ in range(many))
        run_pass(loops()[name], (*map(ready, given), self.noisy), found, PIECE)
        return found


def _each(
    at: Array, d: Array, recall: Array, precision: Array, silent: Formula, perfect: Formula, noisy: Formula
) -> Array:
    """Return what each source's formula says."""
    found = np.empty(len(at))
    unheard, certain = recall == 0.0, (recall == 1.0) & (precision == 1.0)
    for mask, formula in ((unheard, silent), (certain, perfect)):
        if bool(np.any(mask)):
            found[mask] = formula(at[mask], d[mask])
    k = np.flatnonzero(~unheard & ~certain)
    if len(k):
        found[k] = noisy(at[k], d[k], recall[k], precision[k])
    return found


def _log_cost(rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    lost: Array = -np.log1p(-stale_and_index(rate / d, recall, precision)[0])
    return lost


def _log_marginal(rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    """Return F'/F."""
    stale, value = stale_and_index(rate / d, recall, precision)
    # Freshness is at least that of the rate times its marginal value, also where staleness rounds to 1.
    found: Array = value / d / np.maximum(1.0 - stale, value * rate / d)
    return found


def _log_inverse(price: Array, d: Array, recall: Array, precision: Array) -> Array:
    """Return the rate with F'/F = price by bisection of its logarithm."""
    # F ≥ ρF' bounds it by 1/price.
    high = -np.log2(np.maximum(price, 1e-290))
    low = np.minimum(high, np.log2(d)) - 64.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        over = _log_marginal(np.exp2(middle), d, recall, precision) > price
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return np.exp2(high)

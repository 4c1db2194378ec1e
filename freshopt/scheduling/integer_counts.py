"""`DiscreteCounts`, `crawl_counts`: optimal integer refresh counts.

Rates are optimal in the long run. Over a horizon in which many sources get one refresh or two, or none, the
counts themselves are what is to be optimised.

x refreshes at equal intervals over a horizon T cost T·J(x/T), J the periodic cell, which is convex: each
further refresh of a source gains less than the one before. So the optimal allocation of N refreshes takes the
N largest marginal gains of all sources, greedily ([1]_, [2]_); rounding optimal rates only comes close.

The dual is solved instead. At a price λ per refresh (dual variable) a source demands all gains above λ. By
convexity gain x+1 lies between the marginals of J at x/T and (x+1)/T, so that the optimal rate r for that
price decides all but one: the marginal gain of refresh ⌊r⌋ is at least the price, that of ⌈r⌉ + 1 is not. A
bisection over prices with that rule ends when few gains are left between two prices, and the largest of these
are bought. Cost: some 20 inverse marginals per source, and for
the schedule one sort of the refreshes.

References
----------
.. [1] Wolf, Squillante, Yu, Sethuraman and Ozsen, "Optimal crawling strategies for web search engines", WWW
   2002, section 4, doi:10.1145/511446.511465.
.. [2] Fox, "Discrete optimization via marginal analysis", Management Science 13 (1966),
   doi:10.1287/mnsc.13.3.210.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import InfeasibleProblemError, ObjectiveError, SourceDataError, expect, expect_settings
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.objective import Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray, as_whole, total
from freshopt.scheduling.phases import flat_phases
from freshopt.scheduling.refresh_order import order_refreshes, ordinals
from freshopt.separable.kernel import Numerics
from freshopt.units import Time, check_horizon

# Relative rounding; N = ⌊B·T⌋ where B·T is a whole number but for rounding.
ULP = 1e-12
# float64 does not represent all integers beyond.
MOST = 2**53
# Gains, beside one per source, that are sorted rather than bisected.
FEW = 4096


@dataclass(frozen=True, slots=True)
class DiscreteCounts:
    """Optimal integer number of equally spaced refreshes per source.

    Of the rates only their sum is used.

    Parameters
    ----------
    problem : Problem
        As `crawl_counts` takes it.
    repeats : bool
        True: the schedule repeats, x refreshes lie at (φ + j)·T/x with phases that spread the load. False:
        all copies are fresh at the beginning, and x refreshes lie at j·T/(x + 1), j = 1..x, the best for this
        horizon alone; the load is not flat then, as they all meet at T/2, T/3 and so on.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 10.0])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=1.5)
    >>> source, time = DiscreteCounts(problem, repeats=False).times(np.array([0.5, 1.0, 0.0]), 2.0)
    >>> source.tolist(), time.tolist()
    ([1, 1, 1], [0.5, 1.0, 1.5])
    """

    problem: Problem
    repeats: bool = True

    def __post_init__(self) -> None:
        expect(self.problem, Problem, "problem", "Pass a freshopt.Problem")
        expect_settings(self)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        n = len(self.problem.sources)
        if len(rates) != n:
            raise SourceDataError(f"there are {len(rates)} rates for {n} sources. Pass the problem's own.")
        spend = int(total(rates) * horizon * (1.0 + ULP))
        count = crawl_counts(self.problem, horizon, refreshes=spend, repeats=self.repeats)
        interval = horizon / np.maximum(count + (0 if self.repeats else 1), 1)
        phase = flat_phases(count / horizon, horizon) if self.repeats else np.ones(n)
        below = np.nextafter(horizon, 0.0)  # (φ + x − 1)·T/x may round up to T
        source, ordinal = ordinals(count)
        return order_refreshes(count, np.minimum((phase[source] + ordinal) * interval[source], below))


def crawl_counts(
    problem: Problem, horizon: Time, *, refreshes: int | None = None, repeats: bool = True
) -> IntArray:
    """Return the optimal number of refreshes per source.

    Over a horizon.

    Parameters
    ----------
    problem : Problem
        With a cost curve, or periodic; costs equal, no host limits. Rates x/T keep to its bounds, the upper
        one rounded down, the lower one up. Signalled sources get no refreshes.
    horizon : float, str or timedelta
        T, in time units, or with its unit such as "7d".
    refreshes : int, optional
        N, how many there are to spend. Default: bandwidth·T rounded down, if no source is signalled.
    repeats : bool
        Whether the horizon comes again and again, so that x refreshes make x intervals of T/x. Otherwise all
        copies are fresh at its beginning: x refreshes make x + 1 intervals, and the sum is the least expected
        cost that any schedule fixed in advance can have.

    Returns
    -------
    ndarray of int, shape (n,)
        They sum to N, or less where bounds are reached. Of equal gains those of the first source are bought.

    Raises
    ------
    ObjectiveError
        If there is no periodic cell.
    SourceDataError
        If the horizon or N cannot be used, or the problem has unequal costs or host limits.
    InfeasibleProblemError
        If N is less than the bounds need, or than sources that cost infinitely much when never refreshed.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 10.0])
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> crawl_counts(fo.Problem(objective, sources, bandwidth=1.5), horizon=2.0)
    array([1, 2, 0])
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    expect(repeats, (bool, np.bool_), "repeats", "Pass True or False")
    sources = problem.sources
    horizon = check_horizon(horizon, sources.time_unit)
    require_fixed_costs(sources, "the count of refreshes")
    if len(problem.hosts) or bool(np.any(sources.refresh_cost != sources.refresh_cost[0])):
        raise SourceDataError(
            "the problem has host limits or unequal costs, under which counts are not bought one by one. "
            "Schedule its rates with Periodic() or Carousel()."
        )
    signalled = bool(np.any(sources.signalled))
    if refreshes is None and signalled:
        raise SourceDataError("some sources are signalled. Say how many refreshes the others share.")
    if refreshes is None:
        crawls = problem.bandwidth / float(sources.refresh_cost[0]) * horizon * (1.0 + ULP)
        if not crawls <= MOST:
            raise SourceDataError(
                f"horizon {horizon:g} holds {crawls:.3g} refreshes, too many to count. Shorten it."
            )
        spend = math.floor(crawls)
    else:
        spend = as_whole(refreshes, "refreshes", 0, MOST)
    silent = np.flatnonzero(~sources.signalled) if signalled else np.arange(len(sources))
    counts = np.zeros(len(sources), dtype=np.int64)
    if len(silent):
        most = np.minimum(np.floor(problem.upper[silent] * horizon * (1.0 + ULP)), spend)
        least = np.ceil(problem.lower[silent] * horizon * (1.0 - ULP))
        gains = _Gains(_periodic(problem).take(silent), horizon, 0.0 if repeats else 1.0, least, most)
        counts[silent] = gains.buy(spend)
    return counts


def _periodic(problem: Problem) -> Numerics:
    """Return the numerics of equally spaced refreshes."""
    objective = problem.objective
    if problem.sources.failing is not None:
        raise SourceDataError(
            "fetches of the sources may fail, and counts of refreshes are for those that succeed. Use rates: "
            "fo.solve, then fo.schedule."
        )
    own = plain(objective)
    if isinstance(own, CurveObjective):
        return own.curve(problem.sources).kernel(problem.sources.importance, Refresh.PERIODIC)
    numerics = problem.numerics if own is objective else numerics_of(own, problem.sources)[0]
    if objective.refresh is Refresh.PERIODIC and numerics is not None:
        return numerics
    raise ObjectiveError(
        f"{objective!r} has no cost of equal gaps. Declare it for periodic refreshes or by a curve."
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Gains:
    """Marginal gains of integer refresh counts.

    T·(J((x+s)/T) − J((x+1+s)/T)), s = 1 if copies are fresh at first.
    """

    numerics: Numerics
    horizon: float
    shift: float
    least: Array
    most: Array

    def of_next(self, count: Array) -> Array:
        """Return the gain of one more refresh, shape (n,)."""
        rate = (count + self.shift) / self.horizon
        now, then = self.numerics.cost(rate), self.numerics.cost(rate + 1.0 / self.horizon)
        with np.errstate(invalid="ignore"):
            return np.where(now > then, self.horizon * (now - then), 0.0)

    def bought(self, price: float) -> Array:
        """Return how many refreshes gain more than a price, by source."""
        rate = self.numerics.inverse_marginal(np.full(len(self.least), price))
        sure = np.floor(np.minimum(rate * self.horizon, self.most + self.shift + 1.0) - self.shift)
        # Rounding can put `sure` one off; the gains themselves decide.
        count = np.maximum(sure - 1.0, 0.0)
        for _ in range(3):
            count += self.of_next(count) > price
        return np.clip(count, self.least, self.most)

    def buy(self, spend: int) -> IntArray:
        """Return the counts that the `spend` largest gains make up."""
        low, high = self.most, self.least
        if float(np.sum(self.least)) > spend or bool(np.any(self.least > self.most)):
            raise InfeasibleProblemError(
                f"the bounds need {np.sum(self.least):g} refreshes, whole ones per source, but there are "
                f"{spend}. Choose a longer horizon, more bandwidth or lower bounds."
            )
        if float(np.sum(low)) <= spend:
            return low.astype(np.int64)
        infinite = int(np.count_nonzero(np.isinf(self.of_next(self.least))))
        if infinite > spend - float(np.sum(self.least)):
            raise InfeasibleProblemError(
                f"{infinite} sources cost infinitely much when never refreshed, but there are {spend} "
                "refreshes. Choose a longer horizon or more bandwidth, or repeats=False."
            )
        few = len(self.least) + FEW
        bottom, top = math.log(1e-300), math.log(1e300)
        while float(np.sum(low - high)) > few and top - bottom > 1e-15 * max(abs(top), 1.0):
            middle = 0.5 * (bottom + top)
            count = self.bought(math.exp(middle))
            if float(np.sum(count)) > spend:
                bottom, low = middle, count
            else:
                top, high = middle, count
        return self._largest(low, high, spend)

    def _largest(self, low: Array, high: Array, spend: int) -> IntArray:
        """Buy the largest of the gains between two prices."""
        source, ordinal = ordinals((low - high).astype(np.int64))
        gain = replace(self, numerics=self.numerics.take(source)).of_next(high[source] + ordinal)
        order = np.lexsort((ordinal, source, -gain))
        taken = order[: max(spend - int(np.sum(high)), 0)]
        return high.astype(np.int64) + np.bincount(source[taken], minlength=len(high))

"""Separable Newton: any declared objective, at any number of sources, from its derived derivatives.

At the optimum the marginal of every source equals the price that it pays, and the rates at these prices use
up the bandwidth: n + 1 equations for n rates and one price. Newton's method on all of them at once, on
logarithms, is cheap because the sources are tied to each other by the price alone. One evaluation of the
declared expression gives every source a model of its demand, a line on logarithms (`local_models`); the price
at which the models' demand meets the bandwidth follows from a search that evaluates nothing (`price_newton`);
the models' rates at that price are where to evaluate next. Hosts at their limit have prices of their own,
which do not depend on the bandwidth's, and are settled first, all at once (`modelled_market`).

What does not end with a small estimated loss, or ends at a price of 0, where marginals are flat and have no
logarithms, is looked at by the inequality of the certificate; if that finds a gap, the market is cleared by
bracketing (`water_filling`), with the same numerics.

For smooth objectives convergence is quadratic. Where it is not seen to be (kinks, linear pieces, marginals
that end at a finite rate), cutting planes take the lines' place (`tangents`), which cannot fail but need an
evaluation for each halving of the distance. Where demand jumps at the price, rates are the mixture of both
sides that uses up the bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from freshopt.arrays import IntArray, all_finite, total
from freshopt.certificate import repair
from freshopt.cvx import cp
from freshopt.declaration import declare
from freshopt.derived import DerivedNumerics
from freshopt.elementwise import UnknownAtomError, compile_expression
from freshopt.errors import expect_settings
from freshopt.gap import Gap
from freshopt.hosts import HostPrices
from freshopt.kernel import MixedNumerics, Numerics
from freshopt.model import Problem
from freshopt.result import Answer, Solution, Status
from freshopt.solvers.modelled_market import WIDTH, Market
from freshopt.solvers.water_filling import fill
from freshopt.verdict import DEFAULT, Terms, conclude

EXACT = 1e-9  # relative difference from a kernel above which a declared expression is an approximation
_SAMPLE = 32  # sources on which that is tried
_LOOSE, _TIGHT = 1e-3, 1e-13  # relative excess of demand at the prices of early and late models
_FIRST, _STUCK = 8, 3  # evaluations, and of these without halving the loss, until Newton's lines are given up
_PATIENCE = 8  # evaluations without progress, near the optimum, until rounding is held responsible
_NEAR = 1e-10  # relative loss that is near
_MISFIT = 1e-6  # of any source's marginal, relative to its price, before the last step, which squares it
_POLISH = 4  # evaluations for that
_BRACKETING = 60  # evaluations that are kept for bracketing, should the steps not settle; it takes about 20


@dataclass(frozen=True, slots=True)
class SeparableNewton:
    """Newton's method in all rates and the price, from the declared expression alone.

    Hand-written kernels are not used, so that they and this solver check each other.

    Parameters
    ----------
    tolerance : float
        Estimated relative loss of the last evaluated rates; one more step follows, which about squares it.
    limit : int
        Evaluations of the expression.

    Notes
    -----
    Bounds, host limits, unequal costs, signalled sources, kinks and linear pieces are carried. The bandwidth,
    where it binds, is used up to a few ulp. Refused are objectives whose declaration needs auxiliary
    variables, has an atom without a derivative rule, or approximates the kernel by a quadrature.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.cvx import cp
    >>> class SquaredDelay(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2))
    >>> problem = fo.Problem(SquaredDelay(), fo.Sources(change_rate=[1.0, 8.0]), bandwidth=3.0)
    >>> solution = fo.solve(problem, SeparableNewton())
    >>> solution.rates.round(9), solution.certificate.relative_gap < 1e-12
    (array([1., 2.]), True)
    """

    tolerance: float = 1e-13
    limit: int = 200

    def __post_init__(self) -> None:
        """Refuse settings of another kind."""
        expect_settings(self)

    def supports(self, problem: Problem) -> str | None:
        """Refuse what is not declared exactly by elementwise atoms."""
        if _derived(problem.numerics):
            return None
        pick = np.unique(np.linspace(0, len(problem.sources) - 1, _SAMPLE).astype(np.int64))
        few = declared_numerics(problem, pick)
        return few if isinstance(few, str) else _difference(problem, few, pick)

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Solve and certify."""
        return conclude(self, problem, terms, lambda problem, start: _solve(problem, self, start))


def declared_numerics(problem: Problem, pick: IntArray | None = None) -> Numerics | str:
    """Return the numerics derived from the declaration, kernels ignored, or why there are none.

    Parameters
    ----------
    problem : Problem
    pick : ndarray of int, optional
        Sources to restrict it to.
    """
    objective, sources = problem.objective, problem.sources
    if pick is not None:
        objective, sources = objective.take(pick), sources.take(pick)
    sign = 1.0 if objective.sense == "minimise" else -1.0
    kinds: list[DerivedNumerics | None] = []
    for method, some in (
        (objective.per_source, not bool(np.all(sources.signalled))),
        (objective.signalled_per_source, bool(np.any(sources.signalled))),
    ):
        if not some:
            kinds.append(None)
            continue
        rate = cp.Variable(len(sources), nonneg=True, name="rate")
        declaration = declare(objective, method, rate, sources)
        if declaration.constraints:
            return f"{type(objective).__name__}.{method.__name__} declares auxiliary variables"
        try:
            node = compile_expression(declaration.expression, rate)
        except UnknownAtomError as error:
            return str(error).rstrip(".")
        kinds.append(DerivedNumerics(node, sign, sources.change_rate))
    silent, announced = kinds
    if silent is not None and announced is not None:
        return MixedNumerics(sources.signalled, silent, announced)
    return silent or announced or "there are no sources"


def _derived(numerics: Numerics | None) -> bool:
    """Tell whether numerics are derived from expressions throughout."""
    if isinstance(numerics, MixedNumerics):
        return _derived(numerics.silent_sources) and _derived(numerics.signalled_sources)
    return isinstance(numerics, DerivedNumerics)


def _difference(problem: Problem, few: Numerics, pick: IntArray) -> str | None:
    """Return a sentence if the declared marginals of a few sources are not the kernel's."""
    if problem.numerics is None:
        return None
    kernel, change_rate = problem.numerics.take(pick), problem.sources.change_rate[pick]
    worst = 0.0
    for share in (0.01, 0.3, 0.9):
        rate = np.minimum(share * change_rate, problem.upper[pick])
        rate = np.where(rate > 0.0, rate, share * change_rate)
        declared, exact = few.marginal(rate), kernel.marginal(rate)
        off = np.abs(declared - exact) / np.maximum(np.abs(exact), np.finfo(float).tiny)
        worst = max(worst, float(np.max(off)))
    if worst <= EXACT:
        return None
    return f"the declared expression is not the kernel: marginals differ by {worst:.1g} of themselves"


def _solve(problem: Problem, settings: SeparableNewton, start: float | None) -> Answer:
    """Return rates and prices, uncertified."""
    numerics = problem.numerics if _derived(problem.numerics) else declared_numerics(problem)
    if numerics is None or isinstance(numerics, str):
        return Answer(None, status=Status.REFUSED, note=numerics or problem.unknown_atom)
    market = Market(problem, numerics)
    if market.pinned is not None and bool(np.all(market.pinned)):
        return market.at_lower_bounds()
    log_start = market.begin()
    if start is not None and 0.0 < start < math.inf:
        log_start = math.log(start)
    market.clear(log_start, _LOOSE)
    spare = settings.limit >= 2 * _BRACKETING
    steps = settings.limit - _BRACKETING if spare else settings.limit
    newton, width, best, since, polished, note, sure = True, WIDTH, math.inf, 0, 0, "", False
    while True:
        gap, cost = market.models.evaluate(market.prices)
        used = problem.sources.cost * market.rates
        paid = float(np.dot(market.prices, used))
        scale = paid if market.price > 0.0 else abs(cost)
        if newton and market.price > 0.0:
            gap += paid * (total(used) / problem.bandwidth - 1.0) ** 2
        if gap <= settings.tolerance * scale and width == WIDTH:
            polished += 1  # next, the sources of which the sum knows nothing
            sure = market.price > 0.0
            if market.price == 0.0 or market.models.misfit <= _MISFIT or polished > _POLISH:
                break
        since = 0 if gap < 0.5 * best else since + 1
        best = min(best, gap)
        if since >= _PATIENCE and not polished and width == WIDTH and best <= _NEAR * (paid + abs(cost)):
            break
        if market.models.evaluations >= steps:
            note = f"stopped at the limit of {settings.limit} evaluations."
            break
        share = min(1.0, gap / scale) if scale > 0.0 else 1.0
        if newton and since >= _STUCK and not polished and market.models.evaluations >= _FIRST:
            newton, best, since = False, math.inf, 0
            market.doubt()
        if newton:
            market.clear(None, max(_TIGHT, min(_LOOSE, 1e-2 * math.sqrt(share))))
        else:
            width = WIDTH if share < _NEAR else min(_LOOSE, 1e-2 * share)
            market.clear(None, 0.0, width)
    if newton:
        market.clear(None, 0.0)
    answer = market.answer(note)
    if sure or not spare or _settled(problem, numerics, answer):
        return answer
    safe = fill(problem, numerics)
    note = "The steps did not settle; prices were bracketed instead."
    return replace(safe, iterations=answer.iterations + safe.iterations, note=note)


def _settled(problem: Problem, numerics: Numerics, answer: Answer) -> bool:
    """Tell whether the certificate's inequality finds next to no gap."""
    if answer.rates is None or answer.price is None or not all_finite(answer.rates):
        return False
    gap = Gap.of(problem, repair(problem, answer.rates)[0], numerics, lean=True)
    prices = answer.host_prices
    on_top = prices.values_ if isinstance(prices, HostPrices) else np.zeros(len(problem.hosts))
    scale = abs(gap.cost) + answer.price * problem.bandwidth + float(np.dot(on_top, problem.hosts.limits))
    return bool(gap.at(answer.price, on_top) <= EXACT * scale)

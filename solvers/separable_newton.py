"""Separable Newton's method for any declared objective.

It takes any number of sources, and the derivatives derived from the declaration.

At the optimum the marginal of every source equals the price that it pays, and the rates at these prices use
up the bandwidth: n + 1 equations for n rates and one price. Newton's method on all of them at once, on
logarithms, is cheap because the sources are tied to each other by the price alone. One evaluation of the
declared expression gives every source a model of its demand function, a line on logarithms (`local_models`);
the price at which the models' demand meets the bandwidth follows from a search that evaluates nothing
(`price_newton`); the models' rates at that price are where to evaluate next. Hosts at their limit have
prices of their own, which do not depend on the bandwidth's; their duals are solved first, all at once
(`model_dual`).

Convergence is quadratic. Where a cost has kinks they are found first, and the lines are those of the pieces
between them (`segments`). Where demand jumps at the price, rates are the mixture of both sides that uses
up the bandwidth. Sources that pay nothing, where marginals are flat and have no logarithms, have their best
responses searched in the end.

Where convergence is not seen (a kink that was not found, marginals that end at a finite rate), the steps
end. What does not end with a small estimated suboptimality is certified; if that finds a duality gap, the
dual is solved by bracketing (`water_filling`), with the same numerics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from freshopt.autodiff.compiler import UnknownAtomError, compile_expression
from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.relative_gap import free_limits, scale_at
from freshopt.certificates.row_repair import repair
from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution, check_search
from freshopt.cvx import cp
from freshopt.dual_search.demand_models import DemandModels
from freshopt.dual_search.local_models import TINY_PRICE
from freshopt.dual_search.model_dual import (
    DualPoint,
    answer_at_lower,
    answer_of,
    first_models,
    solve_model_dual,
    sources_at_lower,
)
from freshopt.dual_search.segment_ends import hull_of
from freshopt.errors import ObjectiveError, expect_settings
from freshopt.modelling.declaration import declare
from freshopt.modelling.host_limits import HostPrices
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import IntArray, all_finite, chunks, exact_sum, is_scalar, total
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import MixedNumerics, Numerics
from freshopt.separable.kernel_columns import kinds_of
from freshopt.solvers.water_filling import fill

# Relative difference from a kernel above which a declared expression is an approximation of it.
EXACT = 1e-9
# Sources on which that is tried.
_SAMPLE = 32
# Relative excess of demand at the prices of early and late models.
_LOOSE, _TIGHT = 1e-3, 1e-13
# Evaluations, and of these without halving the loss, until Newton's lines are given up; once the loss was
# small, of these until rounding is held responsible.
_FIRST, _STUCK, _PATIENCE = 8, 3, 8
# Of any source's marginal, relative to its price, before the last step, which squares it.
_MISFIT = 1e-6
# Evaluations for that.
_POLISH = 4
# Relative difference of costs that is rounding.
_ROUNDED = 1e-12
# Evaluations that are kept for bracketing, should the steps not converge; it takes about 20.
_BRACKETING = 60


@dataclass(frozen=True, slots=True)
class SeparableNewton:
    """Newton's method in all rates and the dual variable.

    It needs the declared expression alone.

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
        expect_settings(self)
        check_search(self.tolerance, self.limit)

    def supports(self, problem: Problem) -> str | None:
        """Return why not: only what elementwise atoms declare exactly."""
        if _derived(problem.numerics):
            return None
        if hull_of(problem.numerics) is not None:
            return "the good phases of a profile make marginals jump, use WaterFilling"
        pick = np.unique(np.linspace(0, len(problem.sources) - 1, _SAMPLE).astype(np.int64))
        try:
            few = declared_numerics(problem, pick)
        except ObjectiveError:
            # One with arrays of length n that does not say how to take some of them is declared whole.
            try:
                whole = declared_numerics(problem)
            except ObjectiveError as error:
                # What has numerics of its own may have no declared form: periodic attempts, windows.
                return str(error).rstrip(".")
            few = whole if isinstance(whole, str) else whole.take(pick)
        return few if isinstance(few, str) else _difference(problem, few, pick)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve and certify."""
        return certified_solution(self, problem, options, lambda problem, start: _solve(problem, self, start))


def declared_numerics(problem: Problem, pick: IntArray | None = None) -> Numerics | str:
    """Return numerics of the declaration, or why there are none.

    They are derived from the declared expression, kernels ignored.

    - `pick`: Sources to restrict it to.
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
        kinds.append(DerivedNumerics(node, sign, sources.scale))
    silent, announced = kinds
    if silent is not None and announced is not None:
        return MixedNumerics(sources.signalled, silent, announced)
    return silent or announced or "there are no sources"


def _derived(numerics: Numerics | None) -> bool:
    """Return whether numerics are derived from expressions throughout."""
    return all(isinstance(each, DerivedNumerics) for each in kinds_of(numerics))


def _difference(problem: Problem, few: Numerics, pick: IntArray) -> str | None:
    """Return how a few sources' declared and kernel marginals differ, or None."""
    if problem.numerics is None:
        return None
    kernel, change_rate = problem.numerics.take(pick), problem.sources.scale[pick]
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
    pinned = sources_at_lower(problem, numerics)
    if pinned is not None and bool(np.all(pinned)):
        return answer_at_lower(problem, numerics)
    models, point = first_models(problem, numerics, pinned)
    if start is not None and 0.0 < start < math.inf:
        point = point.starting_from(math.log(start))
    spare = settings.limit >= 2 * _BRACKETING
    steps = settings.limit - _BRACKETING if spare else settings.limit
    found = _iterate(problem, models, point, settings.tolerance, steps)
    note = "" if found.ended else f"stopped at the limit of {settings.limit} evaluations."
    answer = answer_of(problem, found.models, found.point, pinned, note)
    if answer.price == 0.0:
        answer = _at_no_price(problem, numerics, answer)
    if found.converged or not spare or _gap_is_negligible(problem, numerics, answer):
        return answer
    safe = fill(problem, numerics)
    note = "The steps did not settle; prices were bracketed instead."
    return replace(safe, iterations=answer.iterations + safe.iterations, note=note)


def _at_no_price(problem: Problem, numerics: Numerics, answer: Answer) -> Answer:
    """Return an answer whose sources that pay nothing have their best responses.

    A small loss says little of rates where it is flat, and nothing of small rates among large ones.
    """
    prices, hosts = answer.host_prices, problem.hosts
    if answer.rates is None:
        return answer
    free = np.ones(len(answer.rates), dtype=np.bool_)
    if isinstance(prices, HostPrices):
        free = hosts.broadcast_to_sources(prices.values_, 0.0) == 0.0
    some = np.flatnonzero(free)
    with np.errstate(all="ignore"):
        own = numerics.take(some)
        response = own.inverse_marginal(np.full(len(some), TINY_PRICE))
        response = np.clip(response, problem.lower[some], problem.upper[some])
        before = own.cost(answer.rates[some])
        # Where a cost vanishes, the steps may have gone beyond the rates at the smallest price.
        better = own.cost(response) <= before + _ROUNDED * np.abs(before)
    rates = np.array(answer.rates)
    rates[some[better]] = response[better]
    used, most = problem.sources.refresh_cost * rates, 1.0 + FEW_ULP
    within = (
        bool(np.all(hosts.totals(used) <= hosts.limits * most)) and total(used) <= problem.bandwidth * most
    )
    return replace(answer, rates=rates, iterations=answer.iterations + 1) if within else answer


class _Iterate(NamedTuple):
    """Where the steps ended.

    - `ended`: Whether it was before the limit of evaluations.
    - `converged`: Whether the estimated loss is small, at a positive price.
    """

    models: DemandModels
    point: DualPoint
    ended: bool
    converged: bool


@dataclass(frozen=True, slots=True)
class _Progress:
    """Progress of the loss over the evaluations.

    It holds the smallest loss so far, evaluations since it was halved, and those with a loss within the
    tolerance.
    """

    best: float = math.inf
    since: int = 0
    small: int = 0

    def after(self, gap: float) -> _Progress:
        """Return the progress after one more evaluation."""
        since = 0 if gap < 0.5 * self.best else self.since + 1
        return replace(self, best=min(self.best, gap), since=since)


def _iterate(
    problem: Problem, models: DemandModels, point: DualPoint, tolerance: float, steps: int
) -> _Iterate:
    """Alternate between the models' dual and an evaluation at its rates.

    - `models`: Newton's lines.
    - `point`: Where to start from.
    - `tolerance`: Estimated relative loss to end with.
    - `steps`: Evaluations to end after.
    """
    progress, ended, converged = _Progress(), True, False
    amounts, free = free_limits(problem)
    # What demand exceeds a limit by is small or large beside what min_rate leaves of it.
    share_free = float(np.min((free / amounts)[free > FEW_ULP * amounts]))
    point = solve_model_dual(problem, models, point, _LOOSE * share_free)
    while True:
        models, gap, cost, misfit = models.evaluated(point.rates, point.source_prices)
        used, paid = _spent(problem, point)
        scale = paid if point.price > 0.0 else abs(cost)
        if point.price > 0.0:
            gap += paid * (used / float(free[0]) - 1.0) ** 2
        if gap <= tolerance * scale:
            # Next, the sources of which the sum knows nothing.
            progress = replace(progress, small=progress.small + 1)
            converged = point.price > 0.0
            if point.price == 0.0 or misfit <= _MISFIT or progress.small > _POLISH:
                break
        progress = progress.after(gap)
        stuck = progress.since >= (_PATIENCE if progress.small else _STUCK)
        if stuck and models.evaluations >= _FIRST:
            break
        if models.evaluations >= steps:
            ended = False
            break
        share = min(1.0, gap / scale) if scale > 0.0 else 1.0
        excess = max(_TIGHT, min(_LOOSE, 1e-2 * math.sqrt(share)))
        point = solve_model_dual(problem, models, point, excess * share_free)
    point = solve_model_dual(problem, models, point, 0.0)
    return _Iterate(models, point, ended, converged)


def _spent(problem: Problem, point: DualPoint) -> tuple[float, float]:
    """Return the bandwidth used above lower bounds, and its price."""
    used, paid, prices = [], [], point.source_prices
    for part in chunks(len(point.rates)):
        some = point.rates[part] - problem.lower[part]
        np.maximum(some, 0.0, out=some)
        some *= problem.sources.refresh_cost[part]
        used.append(float(np.sum(some)))
        paid.append(float(prices[0]) * used[-1] if is_scalar(prices) else float(np.dot(prices[part], some)))
    return exact_sum(used), exact_sum(paid)


def _gap_is_negligible(problem: Problem, numerics: Numerics, answer: Answer) -> bool:
    """Return whether the certificate finds a negligible duality gap."""
    if answer.rates is None or answer.price is None or not all_finite(answer.rates):
        return False
    gap = Gap.of(problem, repair(problem, answer.rates)[0], numerics)
    prices = answer.host_prices
    on_top = prices.values_ if isinstance(prices, HostPrices) else np.zeros(len(problem.hosts))
    short = gap.at(answer.price, on_top)
    return short <= EXACT * scale_at(gap, answer.price, on_top, short)

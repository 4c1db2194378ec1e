"""Separable Newton: any declared objective, at any number of sources, from its derived derivatives.

At the optimum the marginal of every source equals the price that it pays, and the rates at these prices use
up the bandwidth: n + 1 equations for n rates and one price. Newton's method on all of them at once, on
logarithms, is cheap because the sources are tied to each other by the price alone. One evaluation of the
declared expression gives every source a model of its demand, a line on logarithms (`local_models`); the price
at which the models' demand meets the bandwidth follows from a search that evaluates nothing (`price_newton`);
the models' rates at that price are where to evaluate next. Hosts at their limit have prices of their own,
which do not depend on the bandwidth's, and are settled first, all at once.

For smooth objectives convergence is quadratic. Where it is not seen to be (kinks, linear pieces, marginals
that end at a finite rate), cutting planes take the lines' place (`tangents`), which cannot fail but need an
evaluation for each halving of the distance. Where demand jumps at the price, rates are the mixture of both
sides that uses up the bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, BoolArray, IntArray, total
from freshopt.cvx import cp
from freshopt.declaration import declare
from freshopt.derived import DerivedNumerics
from freshopt.elementwise import UnknownAtomError, compile_expression
from freshopt.errors import InfeasibleProblemError, list_offenders
from freshopt.kernel import MixedNumerics, Numerics
from freshopt.model import FEW_ULP, Problem
from freshopt.result import Answer, Solution, Status
from freshopt.solvers.local_models import FREE, LocalModels
from freshopt.solvers.price_newton import PriceBracket, newton_prices
from freshopt.solvers.tangents import Tangents
from freshopt.verdict import DEFAULT, Terms, conclude

EXACT = 1e-9  # relative difference from a kernel above which a declared expression is an approximation
_SAMPLE = 32  # sources on which that is tried
_LOOSE, _TIGHT = 1e-3, 1e-13  # relative excess of demand at the prices of early and late models
_WIDTH = 4e-15  # relative width of the last brackets of prices, between whose ends rates are mixed
_FIRST, _STUCK = 8, 3  # evaluations, and of these without halving the loss, until Newton's lines are given up
_PATIENCE = 8  # evaluations without progress, near the optimum, until rounding is held responsible
_NEAR = 1e-10  # relative loss that is near
_MISFIT = 1e-6  # of any source's marginal, relative to its price, before the last step, which squares it
_POLISH = 4  # evaluations for that
_SEARCHED = 680.0  # log prices from which the next search starts, within those it may end at


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
    market = _Market(problem, numerics)
    if market.pinned is not None and bool(np.all(market.pinned)):
        return market.at_lower_bounds()
    log_start = market.begin()
    if start is not None and 0.0 < start < math.inf:
        log_start = math.log(start)
    market.clear(log_start, _LOOSE)
    newton, width, best, since, polished, note = True, _WIDTH, math.inf, 0, 0, ""
    while True:
        gap, cost = market.models.evaluate(market.prices)
        used = problem.sources.cost * market.rates
        paid = float(np.dot(market.prices, used))
        scale = paid if market.price > 0.0 else abs(cost)
        if newton and market.price > 0.0:
            gap += paid * (total(used) / problem.bandwidth - 1.0) ** 2
        if gap <= settings.tolerance * scale and width == _WIDTH:
            polished += 1  # next, the sources of which the sum knows nothing
            if market.models.misfit <= _MISFIT or polished > _POLISH:
                break
        since = 0 if gap < 0.5 * best else since + 1
        best = min(best, gap)
        if since >= _PATIENCE and not polished and width == _WIDTH and best <= _NEAR * (paid + abs(cost)):
            break
        if market.models.evaluations >= settings.limit:
            note = f"stopped at the limit of {settings.limit} evaluations."
            break
        share = min(1.0, gap / scale) if scale > 0.0 else 1.0
        if newton and since >= _STUCK and not polished and market.models.evaluations >= _FIRST:
            newton, best, since = False, math.inf, 0
            market.doubt()
        if newton:
            market.clear(None, max(_TIGHT, min(_LOOSE, 1e-2 * math.sqrt(share))))
        else:
            width = _WIDTH if share < _NEAR else min(_LOOSE, 1e-2 * share)
            market.clear(None, 0.0, width)
    if newton:
        market.clear(None, 0.0)
    return market.answer(note)


class _Market:
    """The constraints, to be cleared by the models' demand: hosts first, then the bandwidth."""

    def __init__(self, problem: Problem, numerics: Numerics) -> None:
        self.problem, self.numerics = problem, numerics
        hosts, cost = problem.hosts, problem.sources.cost
        n = len(problem.sources)
        most = 2.0 * problem.bandwidth / cost
        if len(hosts):
            most = np.minimum(most, 2.0 * hosts.spread(hosts.limits, problem.bandwidth) / cost)
        self.pinned = self._used_up()
        share = np.full(n, problem.bandwidth / total(cost))
        share = np.clip(share, problem.lower, np.minimum(problem.upper, most))
        models = LocalModels(
            problem, numerics, most, np.where(share > 0.0, share, problem.sources.change_rate)
        )
        if self.pinned is not None:
            np.copyto(models.upper, problem.lower, where=self.pinned)
        self.models: LocalModels | Tangents = models
        self.rates = share
        self.price = math.nan
        self.log_price, self.log_host = 0.0, np.zeros(len(hosts))
        self.host_prices = np.zeros(len(hosts))
        self.prices = np.full(n, np.nan)

    def clear(self, log_start: float | None, tolerance: float, width: float = _WIDTH) -> None:
        """Find prices at which the models' demand meets the limits, and take the rates there.

        With tolerance 0 the limits are met to rounding, by mixing rates at prices `width` apart.
        """
        problem, models, hosts = self.problem, self.models, self.problem.hosts
        if log_start is not None:
            self.log_price, self.log_host = log_start, np.full(len(hosts), log_start)
        if len(hosts):
            found = newton_prices(self._host_response, hosts.limits, self.log_host, tolerance, width)
            models.cap(self._host_rates(found))
            self.log_host = np.clip(found.high, -_SEARCHED, _SEARCHED)
            self.host_prices = _prices(found.high)
        target = np.array([problem.bandwidth])
        found = newton_prices(self._response, target, np.array([self.log_price]), tolerance, width)
        low, high = float(found.low[0]), float(found.high[0])
        self.rates = models.rates(high)
        if low < high:
            generous = models.rates(low)
            self.rates = self._mixed(generous)
        self.log_price = min(max(high, -_SEARCHED), _SEARCHED)
        self.price = float(_prices(found.high)[0])
        effective = np.maximum(self.price, hosts.spread(self.host_prices, 0.0)) if len(hosts) else self.price
        self.prices = np.broadcast_to(effective, self.rates.shape)
        models.move(self.rates)

    def begin(self) -> float:
        """Evaluate once, and return a log price to start from."""
        self.models.evaluate(np.full(len(self.rates), np.nan))
        return self.models.typical_log_price() if isinstance(self.models, LocalModels) else 0.0

    def doubt(self) -> None:
        """Take cutting planes in place of Newton's lines, beginning with the latest evaluation."""
        if isinstance(self.models, LocalModels):
            self.models = Tangents(self.models)
            self.models.evaluate(self.prices)

    def answer(self, note: str) -> Answer:
        """Return rates and prices as they are now."""
        hosts, problem = self.problem.hosts, self.problem
        host_prices = self.host_prices
        if self.pinned is not None:
            edge = self._edge_prices()
            np.maximum.at(host_prices, hosts.codes[self.pinned], edge[self.pinned])
        excess = np.maximum(0.0, host_prices - self.price)
        names = dict(zip(hosts.names, excess.tolist(), strict=True))
        rates = np.clip(self.rates, problem.lower, problem.upper)
        return Answer(rates, self.price, names, self.models.evaluations, note=note)

    def at_lower_bounds(self) -> Answer:
        """Return min_rate for everyone, where it uses up the bandwidth, and the price that forbids more."""
        problem = self.problem
        self.models.move(np.array(problem.lower))
        self.models.evaluate(np.full(len(self.rates), np.nan))
        price = float(np.max(self._edge_prices(), initial=0.0))
        none = dict.fromkeys(problem.hosts.names, 0.0)
        return Answer(np.array(problem.lower), price, none, self.models.evaluations)

    def _host_response(self, log_prices: Array) -> tuple[Array, Array]:
        hosts = self.problem.hosts
        used, falls = self.models.response(hosts.spread(log_prices, 0.0))
        return hosts.totals(used), hosts.totals(falls)

    def _response(self, log_price: Array) -> tuple[Array, Array]:
        used, falls = self.models.total_response(float(log_price[0]))
        return np.array([used]), np.array([falls])

    def _host_rates(self, found: PriceBracket) -> Array:
        """Return rates at the hosts' own prices, mixed where the demand jumps; inf beyond limited hosts."""
        hosts, cost = self.problem.hosts, self.problem.sources.cost
        frugal = self.models.rates(hosts.spread(found.high, 0.0))
        if bool(np.any(found.low < found.high)):
            generous = self.models.rates(hosts.spread(found.low, 0.0))
            above, below = hosts.totals(cost * generous), hosts.totals(cost * frugal)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(above > below, (hosts.limits - below) / (above - below), 0.0)
            frugal = frugal + hosts.spread(np.clip(share, 0.0, 1.0)) * (generous - frugal)
        limited: Array = np.where(hosts.codes < len(hosts), frugal, np.inf)
        return limited

    def _mixed(self, generous: Array) -> Array:
        """Return the mixture of the current rates and more generous ones that uses the bandwidth."""
        cost = self.problem.sources.cost
        frugal: Array = self.rates
        above, below = total(cost * generous), total(cost * frugal)
        if above <= below:
            return frugal
        share = min(1.0, max(0.0, (self.problem.bandwidth - below) / (above - below)))
        mixed: Array = frugal + share * (generous - frugal)
        return mixed

    def _used_up(self) -> BoolArray | None:
        """Return the sources held at min_rate because it uses up their limit; refuse where that costs inf."""
        problem, hosts = self.problem, self.problem.hosts
        need = problem.sources.cost * problem.lower
        if total(need) >= problem.bandwidth * (1.0 - FEW_ULP):
            pinned, what = np.ones(len(need), dtype=np.bool_), f"the bandwidth {problem.bandwidth:g}"
        elif len(hosts):
            full = hosts.totals(need) >= hosts.limits * (1.0 - FEW_ULP)
            if not bool(np.any(full)):
                return None
            pinned, what = hosts.spread(full.astype(float)) > 0.0, "a host's limit"
        else:
            return None
        starved = np.flatnonzero(pinned & ~np.isfinite(self.numerics.cost(np.array(problem.lower))))
        if len(starved):
            raise InfeasibleProblemError(
                f"min_rate uses up {what} and leaves nothing for "
                f"{list_offenders(map(problem.sources.label, starved))}, whose cost is then infinite. "
                "Raise the bandwidth or the limit, or lower min_rate."
            )
        return pinned

    def _edge_prices(self) -> Array:
        """Return the price at which each source would take its min_rate and no more."""
        problem = self.problem
        slope = self.models.lowest()
        open_ = (problem.upper > problem.lower) & np.isfinite(slope)
        edges: Array = np.where(open_, np.maximum(slope, 0.0), 0.0)
        return edges


def _prices(logarithms: Array) -> Array:
    """Return prices, 0 where none was low enough."""
    prices: Array = np.exp(logarithms)
    prices[prices <= FREE] = 0.0
    return prices

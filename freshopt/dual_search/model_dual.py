"""Dual of the separable model problem.

Host multipliers are solved for first, then the bandwidth multiplier.

A host at its limit has a price of its own, which does not depend on the bandwidth's, and rates fall with the
price: a source's rate is the smaller of those at its host's price and at the bandwidth's. So the duals of all
hosts are solved side by side, their rates become ceilings, and one search for the bandwidth's price remains.
Where prices are not unique they are the least: what is searched for is where demand crosses the limit plus
rounding, as in `freshopt.solvers.water_filling`.

Models and dual points are frozen values: `first_models` makes the models of a problem, `solve_model_dual`
takes models to a dual point, and `freshopt.dual_search.demand_models` takes both to better models.

`newton_prices`: safeguarded Newton search for dual prices, for many independent groups at once.

On logarithms of price and demand the demand of local models is nearly straight, and its slope comes with it,
so two or three evaluations are enough from a price that is nearly right. Brackets, halved whenever two steps
did not, keep it safe at jumps, where the root is a step between two neighbouring floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.autodiff.kink_rates import kinked
from freshopt.certificates.solution import Answer
from freshopt.compiled.model_passes import model_passes
from freshopt.dual_search.demand_models import COMPILED_SIZE, SIZE, DemandModels, split
from freshopt.dual_search.local_models import TINY_PRICE, LocalModel, typical_log_price
from freshopt.dual_search.price_bracketing import BEYOND, trimmed
from freshopt.modelling.bounds_check import require_finite
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, total
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Numerics
from freshopt.separable.kernel_columns import kinds_of

Response: TypeAlias = Callable[[Array], tuple[Array, Array]]

# Logarithms of 1e±300: prices beyond are not representable.
LOWEST, HIGHEST = -690.0, 690.0
# Width of the last brackets of log prices, relative to these, between whose ends rates are mixed.
_WIDTH = 4e-15
# Nats; the error of Newton's step is some 1e-8 then, well below a thousandth of it.
_NEAR = 1e-4
# Share of the last width at which both sides of a jump are tried: together they are within it.
_SIDE = 0.4
# Evaluations of the response; halving 1380 nats down to an ulp takes 63.
_LIMIT = 400


class PriceBracket(NamedTuple):
    """Log prices on both sides of each root.

    They are as near as the tolerance asked for.

    Demand exceeds the target at `low`, and not at `high`. Both are the same where the target is met to the
    tolerance; `low` is LOWEST where no price is low enough.
    """

    low: Array
    high: Array


def newton_prices(
    response: Response,
    targets: Array,
    start: Array,
    tolerance: float,
    jumps: Array | None = None,
) -> PriceBracket:
    """Return the least log prices at which demands meet targets.

    At these no demand exceeds its target.

    - `response`: For log prices, shape (G,): the demands, non-increasing, and their falls per nat, shape (G,)
      each.
    - `targets` (G,): > 0.
    - `start` (G,): Log prices to start from.
    - `tolerance`: Relative excess of demand that is none; with 0 a bracket is returned.
    - `jumps`: Log prices at which the demand of a single group may jump: a bracket is divided at the middle
      one of those in it.
    """
    x = np.clip(start, LOWEST, HIGHEST)
    low, high = np.full(len(x), LOWEST), np.full(len(x), HIGHEST)
    stride, spans = np.ones(len(x)), np.full((2, len(x)), np.inf)
    met = np.zeros(len(x), dtype=np.bool_)
    for _ in range(_LIMIT):
        used, falls = response(x)
        with np.errstate(all="ignore"):
            excess = np.log(used / targets)
            step = excess * used / falls
            # Almost there: a little farther than Newton's step, so that the root is enclosed.
            beyond = 1e-3 * step + np.copysign(0.3 * _WIDTH * np.maximum(1.0, np.abs(x)), step)
            newton = x + step + np.where(np.abs(step) < _NEAR, beyond, 0.0)
        met |= (np.abs(excess) <= tolerance) & (tolerance > 0.0)
        above = excess > 0.0
        low, high = np.where(met, x, np.where(above, x, low)), np.where(met, x, np.where(above, high, x))
        done = met | (high - low <= _WIDTH * np.maximum(1.0, np.abs(x)))
        if bool(np.all(done)):
            break
        inner = (newton > low) & (newton < high)
        bounded = (low > LOWEST) & (high < HIGHEST)
        slow = bounded & (high - low > 0.5 * spans[0])
        spans = np.stack([spans[1], high - low])
        outward = np.clip(np.where(above, x + stride, x - stride), LOWEST, HIGHEST)
        stride = np.where(inner | bounded, stride, 2.0 * stride)
        middle = 0.5 * (low + high)
        if jumps is not None and len(jumps) and not bool((inner & ~slow)[0]):
            jumps = jumps[(jumps > low) & (jumps < high)]
            middle = np.array([_beside_jump(jumps, float(low[0]), float(high[0]))])
        safe = np.where(bounded, middle, outward)
        x = np.where(done, x, np.where(inner & ~slow, newton, safe))
    return PriceBracket(low, high)


def _beside_jump(jumps: Array, low: float, high: float) -> float:
    """Return a log price beside a bracket's middle jump, or its middle.

    - `jumps`: Those in it.
    """
    if not len(jumps):
        return 0.5 * (low + high)
    jump = float(np.partition(jumps, len(jumps) // 2)[len(jumps) // 2])
    near = _SIDE * _WIDTH * max(1.0, abs(jump))
    beside = jump + near if jump + near < high else jump - near
    return beside if low < beside < high else 0.5 * (low + high)


# Log prices from which the next search starts, within those it may end at.
_SEARCHED = 680.0
# Nats from a price at which demand is a limit and rounding to one at which it is below.
_BEYOND = math.log(BEYOND)


@dataclass(frozen=True, slots=True, eq=False)
class DualPoint:
    """Prices at which modelled demand meets the limits, and the rates there.

    - `rates` (n,)
    - `price`: The bandwidth's; nan before the first search.
    - `host_prices` (H,): Not on top of `price` but instead of it, where they are higher.
    - `source_prices` (n,): What each source pays per unit of bandwidth.
    - `log_host_prices` (H,): Where the next search starts.
    """

    rates: Array
    price: float
    host_prices: Array
    source_prices: Array
    log_price: float
    log_host_prices: Array

    def starting_from(self, log_price: float) -> DualPoint:
        """Return the point with the next search started from a log price."""
        return replace(
            self, log_price=log_price, log_host_prices=np.full(len(self.log_host_prices), log_price)
        )


def sources_at_lower(problem: Problem, numerics: Numerics) -> BoolArray | None:
    """Return the sources held at min_rate because it uses up their limit.

    - raises InfeasibleProblemError if such a source has an infinite cost there.
    """
    hosts = problem.hosts
    need = problem.sources.refresh_cost * problem.lower
    if total(need) >= problem.bandwidth * (1.0 - FEW_ULP):
        pinned, what = np.ones(len(need), dtype=np.bool_), f"the bandwidth {problem.bandwidth:g}"
    elif len(hosts):
        full = hosts.totals(need) >= hosts.limits * (1.0 - FEW_ULP)
        if not bool(np.any(full)):
            return None
        pinned, what = hosts.broadcast_to_sources(full.astype(float)) > 0.0, "a host's limit"
    else:
        return None
    require_finite(problem, numerics, what, pinned)
    return pinned


def first_models(
    problem: Problem, numerics: Numerics, pinned: BoolArray | None
) -> tuple[DemandModels, DualPoint]:
    """Return local models and a dual point to start from.

    Models are taken at equal shares of the bandwidth.

    - `pinned` (n,): Sources held at min_rate.
    """
    hosts = len(problem.hosts)
    models, share = _unevaluated(problem, numerics, pinned)
    unknown = np.broadcast_to(np.nan, share.shape)
    first = np.where(share > 0.0, share, problem.sources.scale)
    models = models.evaluated(first, unknown).models
    start = typical_log_price([piece.marginal for piece in models.pieces])
    return models, DualPoint(share, math.nan, np.zeros(hosts), unknown, start, np.full(hosts, start))


def solve_model_dual(problem: Problem, models: DemandModels, start: DualPoint, tolerance: float) -> DualPoint:
    """Return the dual prices of the models' problem.

    At these the models' demand meets the limits; the point holds the rates there, too.

    - `start`: Where to start from.
    - `tolerance`: Relative excess of demand that is none; with 0 the limits are met to rounding, by mixing
      rates.
    """
    hosts, host_prices, log_host_prices = problem.hosts, start.host_prices, start.log_host_prices
    if len(hosts):
        found = _host_multipliers(problem, models, log_host_prices, tolerance)
        models = models.capped(_host_rates(problem, models, found))
        log_host_prices = np.clip(found.high, -_SEARCHED, _SEARCHED)
        host_prices = _prices(found.high)

    def response(log_price: Array) -> tuple[Array, Array]:
        used, falls = models.total_response(float(log_price[0]))
        return np.array([used]), np.array([falls])

    target, first = np.array([problem.bandwidth * (1.0 + ROUNDED)]), np.array([start.log_price])
    found = newton_prices(response, target, first, tolerance, models.jumps())
    low, high = float(found.low[0]), float(found.high[0])
    rates = models.rates(high + _BEYOND if low < high else high)
    if low < high:
        rates = _mixture(problem, models.rates(low), rates)
    price = float(_prices(found.high)[0])
    paid = np.maximum(price, hosts.broadcast_to_sources(host_prices, 0.0)) if len(hosts) else price
    return DualPoint(
        rates,
        price,
        host_prices,
        np.broadcast_to(paid, rates.shape),
        min(max(high, -_SEARCHED), _SEARCHED),
        log_host_prices,
    )


def answer_of(
    problem: Problem, models: DemandModels, point: DualPoint, pinned: BoolArray | None, note: str
) -> Answer:
    """Return the rates and multipliers of a dual point."""
    hosts, host_prices = problem.hosts, np.array(point.host_prices)
    if pinned is not None:
        np.maximum.at(host_prices, hosts.codes[pinned], _edge_prices(problem, models)[pinned])
    on_top = hosts.named(np.maximum(0.0, host_prices - point.price))
    rates = trimmed(problem, np.clip(point.rates, problem.lower, problem.upper))
    return Answer(rates, point.price, on_top, models.evaluations, note=note)


def answer_at_lower(problem: Problem, numerics: Numerics) -> Answer:
    """Return min_rate for every source, and the least price for it."""
    lower = np.array(problem.lower)
    models, _ = _unevaluated(problem, numerics, None)
    models = models.evaluated(lower, np.full(len(lower), np.nan)).models
    price = float(np.max(_edge_prices(problem, models), initial=0.0))
    none = dict.fromkeys(problem.hosts.names, 0.0)
    return Answer(lower, price, none, models.evaluations)


def _unevaluated(
    problem: Problem, numerics: Numerics, pinned: BoolArray | None
) -> tuple[DemandModels, Array]:
    """Return local models at rate 0, and equal shares."""
    hosts, cost = problem.hosts, problem.sources.refresh_cost
    most = 2.0 * problem.bandwidth / cost
    if len(hosts):
        most = np.minimum(most, 2.0 * hosts.broadcast_to_sources(hosts.limits, problem.bandwidth) / cost)
    upper = np.minimum(problem.upper, most)
    share = np.clip(np.full(len(cost), problem.bandwidth / total(cost)), problem.lower, upper)
    if pinned is not None:
        upper = np.where(pinned, problem.lower, upper)
    rates = np.where(share > 0.0, share, problem.sources.scale)
    bent = any(isinstance(each, DerivedNumerics) and kinked(each.node) for each in kinds_of(numerics))
    passes = model_passes(len(rates), bent=bent)
    size = SIZE if passes is None else COMPILED_SIZE

    pieces = split(
        problem, numerics, upper, lambda chunk: LocalModel.at(chunk, rates[chunk.part], passes), size
    )
    return DemandModels(pieces, max(piece.evaluations for piece in pieces)), share


def _host_multipliers(problem: Problem, models: DemandModels, start: Array, tolerance: float) -> PriceBracket:
    """Return the log dual variables at which hosts meet their limits."""
    hosts = problem.hosts

    def response(log_prices: Array) -> tuple[Array, Array]:
        used, falls = models.response(hosts.broadcast_to_sources(log_prices, 0.0))
        return hosts.totals(used), hosts.totals(falls)

    return newton_prices(response, hosts.limits * (1.0 + ROUNDED), start, tolerance)


def _host_rates(problem: Problem, models: DemandModels, found: PriceBracket) -> Array:
    """Return rates at the hosts' own prices, mixed at jumps."""
    hosts, cost = problem.hosts, problem.sources.refresh_cost
    high = np.where(found.low < found.high, found.high + _BEYOND, found.high)
    frugal = models.rates(hosts.broadcast_to_sources(high, 0.0))
    if bool(np.any(found.low < found.high)):
        generous = models.rates(hosts.broadcast_to_sources(found.low, 0.0))
        above, below = hosts.totals(cost * generous), hosts.totals(cost * frugal)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(above > below, (hosts.limits - below) / (above - below), 0.0)
        frugal = frugal + hosts.broadcast_to_sources(np.clip(share, 0.0, 1.0)) * (generous - frugal)
    limited: Array = np.where(hosts.codes < len(hosts), frugal, np.inf)
    return limited


def _mixture(problem: Problem, generous: Array, frugal: Array) -> Array:
    """Return the convex combination of two rate vectors that uses the bandwidth."""
    cost = problem.sources.refresh_cost
    above, below = total(cost * generous), total(cost * frugal)
    if above <= below:
        return frugal
    share = min(1.0, max(0.0, (problem.bandwidth - below) / (above - below)))
    mixed: Array = frugal + share * (generous - frugal)
    return mixed


def _edge_prices(problem: Problem, models: DemandModels) -> Array:
    """Return the marginal price at which each source takes its min_rate."""
    slope = models.marginals_at_lower()
    open_ = (problem.upper > problem.lower) & np.isfinite(slope)
    edges: Array = np.where(open_, np.maximum(slope, 0.0), 0.0)
    return edges


def _prices(logarithms: Array) -> Array:
    """Return prices, 0 where none was low enough."""
    prices: Array = np.exp(logarithms)
    prices[prices <= TINY_PRICE] = 0.0
    return prices

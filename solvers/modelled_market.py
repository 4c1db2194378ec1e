"""`Market`: a problem's constraints, cleared by the demand of models: hosts first, then the bandwidth.

A host at its limit has a price of its own, which does not depend on the bandwidth's, and rates fall with the
price: a source's rate is the smaller of those at its host's price and at the bandwidth's. So all hosts are
settled side by side, their rates become ceilings, and one search for the bandwidth's price remains.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.arrays import Array, BoolArray, total
from freshopt.errors import InfeasibleProblemError, list_offenders
from freshopt.kernel import Numerics
from freshopt.model import FEW_ULP, Problem
from freshopt.result import Answer
from freshopt.solvers.local_models import FREE, LocalModels
from freshopt.solvers.price_newton import PriceBracket, newton_prices
from freshopt.solvers.tangents import Tangents

WIDTH = 4e-15  # relative width of the last brackets of prices, between whose ends rates are mixed
_SEARCHED = 680.0  # log prices from which the next search starts, within those it may end at


class Market:
    """Models of the sources' demand, and the prices and rates at which it meets the limits.

    Parameters
    ----------
    problem : Problem
    numerics : DerivedNumerics or MixedNumerics of such

    Attributes
    ----------
    models : LocalModels or Tangents
    pinned : ndarray of bool, shape (n,), or None
        Sources held at min_rate, which uses up their limit.
    rates : ndarray, shape (n,)
    price : float
    prices : ndarray, shape (n,)
        What each source pays per unit of bandwidth.

    Raises
    ------
    InfeasibleProblemError
        If a source that is held at min_rate has an infinite cost there.
    """

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

    def clear(self, log_start: float | None, tolerance: float, width: float = WIDTH) -> None:
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
        names = hosts.named(excess)
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

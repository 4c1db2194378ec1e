"""Rates in force, and what changing them brings.

At the plan's prices each source has a Lagrangian of its own, its cost plus what its refreshes are charged,
which the plan's rate minimises. What it falls by on the way from the old rate to the new one is what that
source's change brings. These gains add up to what all changes bring, less the price of the bandwidth that the
old rates left unused or used beyond the limit. They are ≥ 0 where the old rate is within the plan's bounds,
and tell large changes from important ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.certificates.certificate import Certificate, certify
from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import options_from, run_solver
from freshopt.errors import SourceDataError
from freshopt.formatting import finite
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.fetches.conditional_fetches import with_numerics
from freshopt.modelling.matched_rates import match
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import SMALLEST, Array, BoolArray, IntArray, as_vector, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.scheduling.rate_table import RateTable
from freshopt.solvers.auto import Auto
from freshopt.units import convert_time

# A limit that is exceeded by less is met.
ROUNDING = 1e-9


def rates_in_force(log: CrawlLog) -> Array:
    """Return how often a log crawls each source, shape (n,).

    A source of a single crawl has no rate in the log, and counts with none.
    """
    rate = log.crawl_rate
    known = np.isfinite(rate) & (rate > 0.0)
    if not np.any(known):
        raise SourceDataError("no source of the log was crawled twice, which would tell the rates in force.")
    return np.where(known, rate, 0.0)


def attempted(crawled: Array, log: CrawlLog, success: Array | None, place: IntArray | slice) -> Array:
    """Return rates of attempts for those of a log's crawls.

    A log's crawls are fetches that tell something. Its other rows tell all attempts; without them each crawl
    took as many as the chance of success says.
    """
    expected: Array = crawled if success is None else crawled / success
    if log.attempt_rate is None:
        return expected
    recorded = log.attempt_rate[place]
    return np.where(np.isnan(recorded) | ~(crawled > 0.0), expected, recorded)


def rates_of(sources: Sources, today: CrawlLog | npt.ArrayLike) -> Array:
    """Return the rates in force of a problem's sources, shape (n,)."""
    if not isinstance(today, CrawlLog):
        rates = as_vector(today, len(sources), "today")
        if not bool(np.all(np.isfinite(rates) & (rates >= 0.0))):
            raise SourceDataError("today has a rate that is no number >= 0. Pass refreshes per time unit.")
    else:
        own = Crawled(today)
        unit = convert_time(1.0, sources.time_unit, today.time_unit)
        place = match(sources, own)
        rates = attempted(rates_in_force(today)[place], today, sources.failing, place) * unit
    # A source that announces its changes is refreshed no more often than it changes.
    return np.where(sources.signalled, np.minimum(rates, sources.change_rate), rates)


def cut_to_limits(problem: Problem, rates: Array) -> Array | None:
    """Return rates cut to max_rate and host limits, None if within."""
    cut, hosts = np.minimum(rates, problem.upper), problem.hosts
    if len(hosts):
        used = hosts.totals(problem.used_by_source(cut))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(used > hosts.limits * (1.0 + ROUNDING), hosts.limits / used, 1.0)
        cut = cut * hosts.broadcast_to_sources(share, 1.0)
    return cut if bool(np.any(cut < rates * (1.0 - ROUNDING))) else None


def old_rates(sources: Sources, table: RateTable) -> tuple[Array, int]:
    """Return earlier rates of the sources, and how many are gone.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_rates
    >>> old_rates(Sources([1.0, 2.0], names=["a", "b"]), read_rates({"b": 3.0, "x": 1.0}))
    (array([nan,  3.]), 1)
    """
    unit = convert_time(1.0, sources.time_unit, table.time_unit)
    names = np.arange(len(sources)) if sources.names is None else np.asarray(sources.names)
    if table.names is None:
        return as_vector(table.rates, len(sources), "the earlier rates") * unit, 0
    known = dict(zip(np.asarray(table.names).tolist(), table.rates.tolist(), strict=True))
    found = np.array([known.get(name, np.nan) for name in names.tolist()]) * unit
    there = int(np.count_nonzero(~np.isnan(found)))
    if not there:
        some = [", ".join(repr(name) for name in each[:2]) for each in (list(known), names.tolist())]
        raise SourceDataError(
            f"no source has an earlier rate: they are of such as {some[0]}, and the sources are such as "
            f"{some[1]}. Pass rates of the same sources."
        )
    return found, len(known) - there


class Crawled:
    """A log's sources, in the words of estimates."""

    def __init__(self, log: CrawlLog) -> None:
        self.sources_, self.change_rate_, self.time_unit_ = log.names, log.crawl_rate, log.time_unit


# Changes that a terminal has room for.
LISTED = 10
# Rates that differ by less are the same: a hundred times the rounding of a search for the price.
SAME = 1e-12
# A difference of costs that is a smaller share of them is rounding: four units in the last place.
_ROUNDING = 1e-15


@frozen_value(repr=False)
class RateChanges:
    """Old and new rates, with what each change brings.

    - `solution`: The new rates.
    - `old` (n,): Rates in force; NaN of a source that has none.
    - `gain` (n,): What each source's change brings, net of the price of its bandwidth, in the objective's
      units; 0 where unchanged, inf where a source was never refreshed whose cost is then infinite.
    - `bandwidth`: What the old rates use.
    - `value`: The objective at the old rates, under today's change rates; of sources without one, at the new
      rate.
    - `cut`: Bandwidth and value of the old rates cut to maximum rates and host limits, where they exceed
      them.
    - `certificate`: Of the old rates, cut to the limits, at the bandwidth that they use; None where they are
      below min_rate.
    - `gone`: Sources with an old rate that are no longer there.
    - `priced`: Whether the gains are net of a price; under declared constraints no source has one of its own.
    """

    solution: Solution
    old: Array
    gain: Array
    bandwidth: float
    value: float
    certificate: Certificate | None
    gone: int = 0
    priced: bool = True
    cut: tuple[float, float] | None = None

    @property
    def changed(self) -> BoolArray:
        """Which sources' rates change, shape (n,); new ones do not count."""
        return is_changed(self.old, self.solution.rates)

    @property
    def new(self) -> int:
        """The number of sources without an old rate."""
        return int(np.count_nonzero(np.isnan(self.old)))

    @property
    def largest(self) -> IntArray:
        """Positions of the changes that bring most, the largest first."""
        order = np.argsort(-self.gain, kind="stable")
        return order[self.changed[order]][:LISTED]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table, the change that brings most first.

        Columns are source, old_rate, rate, old_interval, interval and gain; intervals are null at rate 0, the
        old ones where there is none.
        """
        names, rates = self.solution.problem.sources.names, self.solution.rates
        frame = polars.DataFrame(
            {
                "source": np.arange(len(rates)) if names is None else names,
                "old_rate": self.old,
                "rate": rates,
                "gain": self.gain,
            }
        ).with_columns(polars.col("old_rate").fill_nan(None))
        intervals = {
            name: polars.when(polars.col(rate) > 0.0).then(1.0 / polars.col(rate))
            for name, rate in (("old_interval", "old_rate"), ("interval", "rate"))
        }
        columns = ["source", "old_rate", "rate", "old_interval", "interval", "gain"]
        order = np.argsort(-self.gain, kind="stable")
        return frame.with_columns(**intervals).select(columns)[order]

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        proof = self.certificate
        cut = {} if self.cut is None else {"bandwidth": self.cut[0], "value": finite(self.cut[1])}
        return {
            "changed": int(np.count_nonzero(self.changed)),
            "new": self.new,
            "gone": self.gone,
            "bandwidth": self.bandwidth,
            "value": finite(self.value),
            "gap": None if proof is None else finite(proof.gap),
            "relative_gap": None if proof is None else finite(proof.relative_gap),
            **({"cut": cut} if cut else {}),
        }


def rate_changes(solution: Solution, old: Array, gone: int = 0, prices: Array | None = None) -> RateChanges:
    """Return what new rates change, and what that brings.

    - `old` (n,): Rates in force in the order of the sources; NaN for a source without one.
    - `gone`: Sources with an old rate that are no longer there.
    - `prices` (n,): Of each source's bandwidth, at which the changes are best; by default the solution's.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> plan = fo.solve(fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=3.0))
    >>> found = rate_changes(plan, np.array([1.5, 1.5]))
    >>> found.gain.round(6), round(found.value - plan.value, 6)
    (array([0.166667, 0.166667]), 0.333333)
    """
    problem = solution.problem
    known = np.where(np.isnan(old), solution.rates, old)
    used = total(problem.used_by_source(np.nan_to_num(old)))
    value, gain = np.nan, np.zeros(len(old))
    if prices is None:
        # Under declared constraints no source has a price of its own.
        has_own = problem.program is None and bool(np.isfinite(solution.price))
        prices = source_prices(solution) if has_own else np.zeros(len(old))
    (own, before), (_, after) = (with_numerics(problem, rates) for rates in (known, solution.rates))
    if own.numerics is not None:
        costs = own.numerics.cost(before), own.numerics.cost(after)
        value = plain(problem.objective).value_from_cost(total(costs[0]), problem.sources)
        charged = prices * own.sources.refresh_cost * (before - after)
        with np.errstate(invalid="ignore"):
            fall = costs[0] - costs[1] + charged
            lost = np.abs(fall) < _ROUNDING * (np.abs(costs[0]) + np.abs(costs[1]) + np.abs(charged))
        gain = np.where(is_changed(old, solution.rates) & ~lost, fall, 0.0)
    within, cut = cut_to_limits(problem, known), None
    if within is not None:
        at_limits, rates = with_numerics(problem, within)
        cost = np.nan if at_limits.numerics is None else total(at_limits.numerics.cost(rates))
        cut = (
            total(problem.used_by_source(within)),
            plain(problem.objective).value_from_cost(cost, problem.sources),
        )
    certificate = _certificate(problem, known if within is None else within)
    priced = bool(np.any(prices > 0.0))
    return RateChanges(solution, old, gain, used, value, certificate, gone, priced, cut)


def is_changed(old: Array, new: Array) -> BoolArray:
    """Return where a rate is another than before, shape (n,)."""
    with np.errstate(invalid="ignore"):
        found: BoolArray = np.abs(new - old) > SAME * np.maximum(new, old)
    return found


def source_prices(solution: Solution) -> Array:
    """Return each source's price of bandwidth, its host's included."""
    hosts = solution.problem.hosts
    if not len(hosts):
        return np.full(len(solution.rates), solution.price)
    on_top = np.array([solution.host_prices[host] for host in hosts.names])
    return solution.price + hosts.broadcast_to_sources(on_top)


def _certificate(problem: Problem, rates: Array) -> Certificate | None:
    """Return the certificate of rates at the bandwidth that they use."""
    used = total(problem.used_by_source(rates))
    # Rates below their lower bounds have no problem that they are feasible for.
    below = bool(np.any(rates < problem.lower * (1.0 - SAME)))
    known = with_numerics(problem, rates)[0].numerics is not None
    if problem.program is not None or not known or below or not used >= SMALLEST:
        return None
    own = problem.with_bandwidth(used)
    best = run_solver(Auto(), own, options_from(own, None, 1e-9, certify=True))
    proof = certificate_beside(own, rates, best)
    return proof if proof.infeasibility <= SAME else None


def certificate_beside(problem: Problem, rates: Array, best: Solution) -> Certificate:
    """Return the certificate of rates, by the optimum's bound."""
    proof, other = certify(problem, rates), best.certificate
    if other is None or not other.gap < np.inf or not proof.gap > 0.0:
        return proof
    gap = min(proof.gap, abs(proof.value - other.bound))
    part = gap / proof.gap
    bound = proof.value - gap if problem.objective.sense == "minimise" else proof.value + gap
    return replace(
        proof,
        bound=bound,
        gap=gap,
        relative_gap=proof.relative_gap * part,
        beyond_rounding=proof.beyond_rounding * part,
        price=other.price,
        host_prices=other.host_prices,
    )

"""Expected regret of a plan under posterior draws of change rates.

A plan is optimal for the estimates. If the rates are others, it loses against the plan that knew them. Bounds
on that loss (`sensitivity_bound`) hold in the worst case; here the rates are drawn with the prior that they
share (`shared_prior`), the problem is solved for each draw, and the plan is evaluated under it: the regret
that a better log could save, on average and in its spread.

Cost: one solve and one certificate per draw, each begun at the plan's price.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError, check_seed, expect, list_offenders
from freshopt.estimators.estimator import Estimator, check_confidence
from freshopt.estimators.rate_distribution import MOST_NUMBERS
from freshopt.estimators.shared_prior import RateDraws
from freshopt.formatting import percent
from freshopt.heavy import polars
from freshopt.many import solve_many
from freshopt.modelling.matched_rates import match
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, as_whole, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.declared import depends_on_change_rates
from freshopt.renamed import keywords
from freshopt.report.value_words import ends_in_words
from freshopt.solving import solve
from freshopt.units import convert_time

# Share of the cost from which sources that may change arbitrarily fast leave it without an end.
OPEN = 0.5
# Draws that tell an interval: quantiles of 5 % to a fifth of what lies beyond them, and of as many rates in
# all as take a second at least.
MOST, FEWEST, RATES = 240, 40, 2_000_000


@frozen_value(repr=False)
class PlanUncertainty:
    """Value and regret of a plan under posterior change rates.

    The change rates may be others than estimated; each draw of them is taken for the truth once.

    Attributes
    ----------
    solution : Solution
        The plan: optimal for the estimates.
    change_rates : ndarray of float, shape (draws, n)
        Drawn change rates, per time unit of the problem.
    rates : ndarray of float, shape (draws, n)
        The refresh rates that are optimal for each draw.
    optimal : ndarray of float, shape (draws,)
        Their values, in the declared sense.
    planned : ndarray of float, shape (draws,)
        The values that the plan has if the draw is the truth.
    limits : (float, float)
        Ends of the value's interval that no log gives, as `limits_of` has them; NaN where draws do.

    Notes
    -----
    ``regret`` is what the plan loses, never below 0 by more than the solver's tolerance.

    Examples
    --------
    >>> import freshopt as fo
    >>> log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
    >>> found = fo.plan(log, draws=5).uncertainty
    >>> len(found.planned)
    5
    """

    solution: Solution
    change_rates: Array
    rates: Array
    optimal: Array
    planned: Array
    limits: tuple[float, float] = (math.nan, math.nan)

    @property
    def regret(self) -> Array:
        """Regret of the plan under each draw, shape (draws,).

        It is in units of the value.
        """
        loss = self.planned - self.optimal
        return loss if self.solution.problem.objective.sense == "minimise" else -loss

    @property
    def relative_regret(self) -> float:
        """The mean regret over the size of the mean optimal value.

        Where that mean is 0, it is 0 without regret and infinite with some.
        """
        size, regret = abs(float(np.mean(self.optimal))), float(np.mean(self.regret))
        return regret / size if size > 0.0 else math.inf if regret > 0.0 else 0.0

    def value_interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """Return the interval of the value that the plan will have.

        As `quantiles` has it; where the log bounds no side, the end is that of any change rates.
        """
        return limited(tuple(map(float, quantiles(self.planned, confidence))), self.limits)

    def to_frame(self, confidence: float = 0.9) -> polars.DataFrame:
        """Return a polars table (source, rate, lower, upper, change_rate, ...).

        It has one row per source.

        ``lower`` and ``upper`` are quantiles of the refresh rates that are optimal for the draws,
        ``change_rate_lower`` and ``change_rate_upper`` those of the draws.
        """
        sources = self.solution.problem.sources
        lower, upper = quantiles(self.rates, confidence)
        slowest, fastest = quantiles(self.change_rates, confidence)
        return polars.DataFrame(
            {
                "source": np.arange(len(sources)) if sources.names is None else sources.names.tolist(),
                "rate": self.solution.rates,
                "lower": lower,
                "upper": upper,
                "change_rate": np.ascontiguousarray(sources.change_rate),
                "change_rate_lower": slowest,
                "change_rate_upper": fastest,
            }
        )

    def __repr__(self) -> str:
        loss = self.regret
        value = f"{self.solution.value:.6g} if the estimates are right"
        ends = ends_in_words(*told(self.value_interval(), self.limits), lambda end: f"{end:.6g}")
        share = percent(self.relative_regret, space=" ")
        return (
            f"PlanUncertainty({len(self.planned)} draws of {len(self.solution.rates)} change rates)\n"
            f"  value    {value}, {ends} in 90 % of draws\n"
            f"  regret   {np.mean(loss):.3g} on average, at most {np.max(loss):.3g}; the average is "
            f"{share} of the mean optimal value {np.mean(self.optimal):.6g}"
        )


@keywords()
def plan_uncertainty(
    problem: Problem, estimator: Estimator, draws: int = 20, seed: int = 0, solver: Solver | None = None
) -> PlanUncertainty:
    """Estimate the regret of a plan by posterior sampling.

    Solves under draws of the change rates and evaluates the plan for the estimates under each.

    Parameters
    ----------
    problem : Problem
        Its own change rates are not used; its sources are matched with the estimator's by name.
    estimator : Estimator
        Fitted to a log.
    draws : int
        How often to draw all change rates.
    seed : int
    solver : Solver, optional
        For the plan and all draws; None means ``solvers.Auto()``.

    Returns
    -------
    PlanUncertainty

    Raises
    ------
    SourceDataError
        If a source has no estimate or no usable one, is signalled, or `draws` is not positive; if the log has
        nothing but baselines.
    CertificateError
        If a solution is not proved optimal.

    Notes
    -----
    Draws are those of ``estimator.draws``: change rates of all sources with the prior that they share, so
    that what is not known of it is in every total. They scatter about the rates without the estimates'
    smoothing, so that the plan is judged for that, too. A regret counts only what knowing the rates would
    save. The value under the draws spreads little where there are many sources, and may lie to one side of
    the plan's own: the value is not linear in the rates. Where no crawl found a change the interval has no
    end towards smaller costs, and where sources that changed at every crawl have most of the cost none
    towards larger ones, unless the objective has. How often it holds the true value: ``docs/evidence``.

    Examples
    --------
    >>> import freshopt as fo
    >>> changed = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    >>> log = fo.CrawlLog(["a"] * 9 + ["b"] * 9, [*range(9)] * 2, changed)
    >>> model = fo.estimators.MaximumLikelihood().fit(log)
    >>> sources = fo.Sources(1.0, names=["a", "b"])
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> spread = plan_uncertainty(fo.Problem(objective, sources, 2.0), model)
    >>> bool(spread.regret.min() > -1e-9), 0 < spread.relative_regret < 0.1
    (True, True)
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    seed = check_seed(seed)
    draws = as_whole(draws, "draws", 1, MOST_NUMBERS // len(problem.sources))
    signalled = np.flatnonzero(problem.sources.signalled)
    if len(signalled):
        raise SourceDataError(
            f"{list_offenders(map(problem.sources.label, signalled))} is signalled: its refreshes follow its "
            "changes, whatever their rate. Pass signalled=False, or leave these sources out."
        )
    if depends_on_change_rates(problem):
        raise SourceDataError(
            "the problem has targets, which the same rates may miss under other change rates: a value does "
            "not tell what that costs. Leave the targets out."
        )
    planned = problem.with_estimates(estimator)
    return uncertainty_under(
        solve(planned, solver), rate_draws(planned.sources, estimator, draws, seed), solver
    )


def uncertainty_under(plan: Solution, drawn: RateDraws, solver: Solver | None = None) -> PlanUncertainty:
    """Return what a plan loses under draws of the change rates."""
    planned, change_rates = plan.problem, drawn.rates
    truths = [planned.with_change_rate(rate) for rate in change_rates]
    best = solve_many(truths, solver=solver)
    rates, values = np.reshape(best.rates, change_rates.shape), np.empty(len(truths))
    costs = np.zeros(len(plan.rates))
    for k, (truth, own) in enumerate(zip(truths, best, strict=True)):
        if truth.program is None:
            values[k] = certify(truth, plan.rates, own.price, own.host_prices).value
        else:
            values[k] = certify(truth, plan.rates, prices=own.prices).value
        costs += 1.0 if truth.numerics is None else truth.numerics.cost(plan.rates)
    limits = limits_of(planned.objective, planned.sources, drawn, costs)
    drawn_rates, best_rates, optimal, told_values = map(read_only, (change_rates, rates, best.values, values))
    return PlanUncertainty(plan, drawn_rates, best_rates, optimal, told_values, limits)


def quantiles(draws: Array, confidence: float) -> tuple[Array, Array]:
    """Return the central interval of draws, over their first axis.

    It holds one draw more with the probability `confidence`: of m draws in order, the gaps between neighbours
    and beyond the ends each hold it with 1/(m+1). Too few draws for that leave the least and the largest; of
    20, an interval between sample quantiles that count m−1 gaps would hold it with 0.81 in place of 0.9.

    Examples
    --------
    >>> quantiles(np.arange(1.0, 20.0), 0.9)
    (np.float64(1.0), np.float64(19.0))
    """
    check_confidence(confidence)
    tail = 0.5 * (1.0 - confidence)
    lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0, method="weibull")
    return lower, upper


def limits_of(objective: Objective, sources: Sources, drawn: RateDraws, costs: Array) -> tuple[float, float]:
    """Return ends of an interval of the value that no log gives.

    NaN where the log has a bound.

    Where no crawl found a change, rates and costs may be as small as any. Where sources that changed at every
    crawl have half of the `costs`, shape (n,), or more, these have no largest value unless the objective has.
    """
    least, largest = math.nan, math.nan
    nothing = objective.value_from_cost(0.0, sources)
    minimised = objective.sense == "minimise"
    if drawn.known and not np.any(drawn.changed):
        least = nothing
    if np.sum(costs[drawn.open]) > OPEN * np.sum(costs) and (minimised or not nothing > 0.0):
        largest = math.inf if minimised else -math.inf
    return (least, largest) if minimised else (largest, least)


def limited(interval: tuple[float, ...], limits: tuple[float, float]) -> tuple[float, float]:
    """Return an interval with those ends that no log gives."""
    low, high = (end if math.isnan(limit) else limit for end, limit in zip(interval, limits, strict=True))
    return low, high


def told(interval: tuple[float, float], limits: tuple[float, float]) -> tuple[float | None, float | None]:
    """Return an interval with None for the ends that no log gives."""
    low, high = (end if math.isnan(limit) else None for end, limit in zip(interval, limits, strict=True))
    return low, high


def rate_draws(sources: Sources, estimator: Estimator, draws: int, seed: int) -> RateDraws:
    """Return draws of the change rates of sources, matched by name."""
    at, unit = match(sources, estimator), convert_time(1.0, sources.time_unit, estimator.time_unit_)
    drawn = estimator._draws(draws, seed)
    rates = drawn.rates[:, at] * unit
    if np.any(np.isnan(rates[0])):
        raise SourceDataError(
            "the log has nothing but baselines. Pass more crawls or a prior learnt elsewhere, or leave the "
            "spread out (--draws 0 of freshopt plan)."
        )
    return RateDraws(np.clip(rates, SMALLEST, LARGEST), drawn.changed[at], drawn.open[at], drawn.known)


def draws_for(n: int) -> int:
    """Return how many draws of n change rates tell an interval."""
    return min(max(RATES // n, FEWEST), MOST)

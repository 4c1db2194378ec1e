"""Expected regret of a plan under posterior draws of change rates.

A plan is optimal for the estimates. If the rates are others, it loses against the plan that knew them. Bounds
on that loss (`sensitivity_bound`) hold in the worst case; here the rates are drawn from their
posterior distributions, whose intervals the estimator reports, the problem is solved for each draw, and the
plan is evaluated under it: the regret that a better log could save, on average and in its spread.

Cost: one solve and one certificate per draw, each begun at the plan's price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError, check_seed, expect, list_offenders
from freshopt.estimators.estimator import Estimator
from freshopt.formatting import percent
from freshopt.inference.interval_methods import check_confidence
from freshopt.inference.rate_distribution import MOST_NUMBERS
from freshopt.many import solve_many
from freshopt.modelling.matched_rates import match
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, as_whole, read_only
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.declared import depends_on_change_rates
from freshopt.solving import solve
from freshopt.units import convert_time

if TYPE_CHECKING:
    import polars


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
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

    Notes
    -----
    ``regret`` is what the plan loses, never below 0 by more than the solver's tolerance.
    """

    solution: Solution
    change_rates: Array
    rates: Array
    optimal: Array
    planned: Array

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

        As `quantiles` has it.
        """
        lower, upper = quantiles(self.planned, confidence)
        return float(lower), float(upper)

    def to_frame(self, confidence: float = 0.9) -> polars.DataFrame:
        """Return a polars table (source, rate, lower, upper, change_rate, ...).

        It has one row per source.

        ``lower`` and ``upper`` are quantiles of the refresh rates that are optimal for the draws,
        ``change_rate_lower`` and ``change_rate_upper`` those of the draws.
        """
        import polars

        sources = self.solution.problem.sources
        lower, upper = quantiles(self.rates, confidence)
        slowest, fastest = quantiles(self.change_rates, confidence)
        return polars.DataFrame(
            {
                "source": np.arange(len(sources)) if sources.name is None else sources.name.tolist(),
                "rate": self.solution.rates,
                "lower": lower,
                "upper": upper,
                "change_rate": np.ascontiguousarray(sources.change_rate),
                "change_rate_lower": slowest,
                "change_rate_upper": fastest,
            }
        )

    def __repr__(self) -> str:
        """Return three lines: the plan's value, its spread, and what is lost."""
        low, high = self.value_interval()
        loss = self.regret
        value = f"{self.solution.value:.6g} if the estimates are right"
        share = percent(self.relative_regret, space=" ")
        return (
            f"PlanUncertainty({len(self.planned)} draws of {len(self.solution.rates)} change rates)\n"
            f"  value    {value}, {low:.6g}..{high:.6g} in 90 % of draws\n"
            f"  regret   {np.mean(loss):.3g} on average, at most {np.max(loss):.3g}; the average is "
            f"{share} of the mean optimal value {np.mean(self.optimal):.6g}"
        )


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
    Draws come from the distributions behind ``estimator.interval(...)`` with its default method, independent
    between sources: rates of one log share no errors if its sources do not. A source with a baseline only,
    and no prior, is drawn from the estimates of the other sources. Draws scatter about the estimates without
    their smoothing, so that the plan is judged for that, too. A regret counts only what knowing the rates
    would save. The value under the draws spreads little where there are many sources, and may lie to one side
    of the plan's own: the value is not linear in the rates. Plans of 10 sources, with rates spread evenly in
    ln Δ from 0.05 to 3 changes per crawl interval, had their true value in the interval of 0.9 from 20 draws
    in 0.82 of 400 logs of 5 crawls per source, 0.86 at 10 and 0.88 at 20: Jeffreys' prior is not how these
    rates are spread, and errors of the sources add up (``benchmarks/results/interval_coverage.json``).

    Examples
    --------
    >>> import freshopt as fo
    >>> changed = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    >>> log = fo.CrawlLog(["a"] * 9 + ["b"] * 9, [*range(9)] * 2, changed)
    >>> model = fo.estimators.MaximumLikelihood().fit(log)
    >>> sources = fo.Sources(1.0, name=["a", "b"])
    >>> spread = plan_uncertainty(fo.Problem(fo.problems.BinaryFreshness(), sources, 2.0), model)
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
    plan = solve(planned, solver)
    change_rates = _draws(planned, estimator, draws, seed)
    truths = [planned.with_change_rate(drawn) for drawn in change_rates]
    best = solve_many(truths, solver=solver)
    rates, values = np.reshape(best.rates, change_rates.shape), np.empty(draws)
    for k, (truth, own) in enumerate(zip(truths, best, strict=True)):
        if truth.program is None:
            values[k] = certify(truth, plan.rates, own.price, own.host_prices).value
        else:
            values[k] = certify(truth, plan.rates, prices=own.prices).value
    return PlanUncertainty(plan, *map(read_only, (change_rates, rates, best.values, values)))


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


def _draws(problem: Problem, estimator: Estimator, draws: int, seed: int) -> Array:
    """Return change rates per time unit of the problem, shape (draws, n)."""
    drawn = estimator.draws(draws, seed)
    blank = np.isnan(drawn[0])
    if blank.all():
        raise SourceDataError(
            "the log has nothing but baselines. Pass more crawls or a prior learnt elsewhere, or leave the "
            "spread out (--draws 0 of freshopt plan)."
        )
    if blank.any():
        others = np.random.default_rng([seed, 1]).choice(
            estimator.change_rate_[~blank], (draws, int(blank.sum()))
        )
        drawn[:, blank] = others
    drawn = drawn[:, match(problem.sources, estimator)]
    drawn *= convert_time(1.0, problem.sources.time_unit, estimator.time_unit_)
    return np.clip(drawn, SMALLEST, LARGEST)

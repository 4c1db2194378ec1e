"""`sensitivity_bound`: regret bound of certainty-equivalent rates.

How much is lost at most by rates that are optimal for estimated change rates.

Let ρ* be optimal under the true change rates ξ and ρ̂ under the estimates ξ̂, over the same feasible rates.
Since ρ* is optimal, the loss is at least the Bregman divergence of the cost between ρ̂ and ρ*, a sum of
squares of ρ̂−ρ*. Since ρ̂ is optimal for the estimates, the loss is at most a sum of products
``|ρ̂−ρ*|·|ξ̂−ξ|``. By Cauchy and Schwarz the second is at most the root of (the first) times (a sum of
squares of ξ̂−ξ); dividing by the root of the loss leaves the bound. It is quadratic in the errors: halving
them quarters the loss.

Cost: one pass over the sources.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError, expect, list_offenders
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, as_vector
from freshopt.online.rate_evaluation import is_bounded
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness


def sensitivity_bound(
    problem: Problem, estimated: npt.ArrayLike, true: npt.ArrayLike, rates: npt.ArrayLike | None = None
) -> float:
    """Bound the regret of certainty-equivalent rates.

    It is the loss F(ρ*; ξ) − F(ρ̂; ξ) of rates ρ̂ that are optimal for estimated change rates.

    Parameters
    ----------
    problem : Problem
        Objective (binary freshness or harmonic staleness under Poisson refreshes, or accumulated delay),
        importances w, constraints and bandwidth R. Its own change rates are not used.
    estimated, true : array_like, scalar or shape (n,)
        Change rates ξ̂ for which ρ̂ is optimal, and ξ under which it is judged; per time unit, > 0.
    rates : array_like of shape (n,), optional
        ρ̂, refreshes per time unit. With them the bound is much tighter; without, it holds whatever they are.

    Returns
    -------
    float
        In units of the objective's value, Σ w(·), not divided by n. inf if a source of positive importance
        has rate 0 in `rates` where that costs infinitely much.

    Raises
    ------
    ObjectiveError
        For another objective or discipline, or signalled sources.
    SourceDataError
        If change rates or `rates` cannot be used; or without `rates` for accumulated delay with bounds, host
        limits or unequal costs.

    Notes
    -----
    With `rates`, of each source:

    ===================  ===================================
    binary freshness     w (ξ+ρ̂)(ξ̂−ξ)² / (ξ (ξ̂+ρ̂)²)
    harmonic staleness   w (ξ̂−ξ)² / ((ξ̂+ρ̂)² ln(1+ξ/ρ̂))
    accumulated delay    w (ξ̂−ξ)² / (ξ ρ̂)
    ===================  ===================================

    The first is the last line but one of the proof of Lemma 4 [1]_; the others are derived here in the same
    way, with the divergences (ρ̂−ρ*)²∫₀^ξ ds/((ρ*+s)²(ρ̂+s)) and ξ(ρ̂−ρ*)²/(ρ*²ρ̂). They hold under any bounds,
    host limits and costs of a refresh. Where bandwidth is very scarce Lemma 6 can be below the second, and
    the smaller of the two is returned. Accumulated delay under periodic refreshes is half of everything.

    Without `rates` the lemmas as published, r the largest rate that the constraints allow:

    ===================  =================================================
    Lemma 4, binary      Σ w (ξ̂−ξ)² / (ξ̂ min(ξ̂, ξ))
    Lemma 6, harmonic    2 (ξ_min + r) r² / ξ_min⁵ · Σ w (ξ̂−ξ)²
    Lemma 7, delay       ξ_max² (Σ√w)⁴ / (R w_min ξ_min³) · Σ (ξ̂−ξ)²
    ===================  =================================================

    with extremes over ξ and ξ̂ of sources of positive importance. The factor 2 of Lemma 6 is lost in the last
    line of its proof. Under periodic refreshes the curvature of binary freshness has no positive bound, and
    no such lemma is known ([1]_, appendix I).

    Where truth and estimate are both at hand, ``fo.certify`` of ρ̂ under the true rates tells the loss to
    rounding; the bound is for errors of which only the size is known.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067, Lemmas 4, 6 and 7
       (arXiv:1905.12781, appendices D-F).

    Examples
    --------
    >>> import freshopt as fo
    >>> guess, truth = fo.Sources([1.0, 2.0, 8.0]), fo.Sources([1.1, 2.4, 6.0])
    >>> plan = fo.solve(fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), guess, bandwidth=4.0))
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), truth, bandwidth=4.0)
    >>> lost = fo.solve(problem).value - fo.certify(problem, plan.rates).value
    >>> given = (problem, guess.change_rate, truth.change_rate)
    >>> round(lost, 4), round(sensitivity_bound(*given, plan.rates), 4), round(sensitivity_bound(*given), 4)
    (0.0089, 0.0834, 0.1333)
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    require_fixed_costs(problem.sources, "the sensitivity bound")
    if bool(np.any(problem.sources.signalled)):
        raise ObjectiveError(
            "the sensitivity bound is for sources that do not announce their changes. Pass signalled=False, "
            "or certify the rates under the true change rates."
        )
    kind, refresh = type(problem.objective), getattr(problem.objective, "refresh", None)
    halved = kind is AccumulatedDelay and refresh is Refresh.PERIODIC
    if kind not in _WITH_RATES or (refresh is not Refresh.POISSON and not halved):
        raise ObjectiveError(
            f"no sensitivity bound is known for {problem.objective!r}. Use BinaryFreshness or "
            "HarmonicStaleness under Poisson refreshes or AccumulatedDelay, or certify the rates under the "
            "true change rates."
        )
    n = len(problem.sources)
    guess, truth = (
        _positive(problem, value, name) for value, name in ((estimated, "estimated"), (true, "true"))
    )
    matters = problem.sources.importance > 0.0
    if not bool(np.any(matters)):
        return 0.0
    w, guess, truth = problem.sources.importance[matters], guess[matters], truth[matters]
    if rates is None:
        whole = _WITHOUT_RATES[kind](problem, w, guess, truth)
        return 0.5 * whole if halved else whole
    planned = as_vector(rates, n, "rates")
    wrong = np.flatnonzero(~((planned >= 0.0) & np.isfinite(planned)))
    if len(wrong):
        where = list_offenders(f"{problem.sources.label(k)}: {planned[k]:g}" for k in wrong)
        raise SourceDataError(f"rates out of range for {where}. They are finite and 0 or more. Correct them.")
    with np.errstate(divide="ignore", over="ignore"):  # a rate of 1e300 leaves nothing to lose
        unit = _WITH_RATES[kind](guess, truth, planned[matters])
    whole = float(np.sum(w * (guess - truth) ** 2 * unit))
    if kind is HarmonicStaleness and whole < np.inf:  # Lemma 6 is better where bandwidth is very scarce
        whole = min(whole, _harmonic_without(problem, w, guess, truth))
    return 0.5 * whole if halved else whole


def _positive(problem: Problem, value: npt.ArrayLike, name: str) -> Array:
    rates = as_vector(value, len(problem.sources), name)
    wrong = np.flatnonzero(~((rates >= SMALLEST) & (rates <= LARGEST)))
    if len(wrong):
        where = list_offenders(f"{problem.sources.label(k)}: {rates[k]:g}" for k in wrong)
        raise SourceDataError(
            f"{name} change rates out of range for {where}. They must be positive numbers. Clip them to "
            "bounds, or use an estimator with its defaults."
        )
    return rates


def _harmonic_with(guess: Array, truth: Array, rates: Array) -> Array:
    # A rate of 0 makes the logarithm infinite and the term 0, but the cost itself is infinite there.
    unit = 1.0 / ((guess + rates) ** 2 * np.log1p(truth / rates))
    return np.where(rates > 0.0, unit, np.inf)


def _binary_without(_: Problem, w: Array, guess: Array, truth: Array) -> float:
    return float(np.sum(w * (guess - truth) ** 2 / (guess * np.minimum(guess, truth))))


def _harmonic_without(problem: Problem, w: Array, guess: Array, truth: Array) -> float:
    slowest = float(min(np.min(guess), np.min(truth)))
    most = float(np.max(np.minimum(problem.upper, problem.bandwidth / problem.sources.refresh_cost)))
    return 2.0 * (slowest + most) * most**2 / slowest**5 * float(np.sum(w * (guess - truth) ** 2))


def _delay_without(problem: Problem, w: Array, guess: Array, truth: Array) -> float:
    sources = problem.sources
    unequal = bool(np.any(sources.refresh_cost != sources.refresh_cost[0]))
    if unequal or is_bounded(problem):
        raise SourceDataError(
            "the bound of accumulated delay without rates uses the square-root rule, which bounds, host "
            "limits and unequal costs break. Pass the rates that are optimal for the estimates."
        )
    slowest = float(min(np.min(guess), np.min(truth)))
    fastest = float(max(np.max(guess), np.max(truth)))
    scale = fastest**2 * float(np.sum(np.sqrt(w))) ** 4
    bandwidth = problem.bandwidth / float(sources.refresh_cost[0])
    return scale / (bandwidth * float(np.min(w)) * slowest**3) * float(np.sum((guess - truth) ** 2))


_WITH_RATES: dict[type, Callable[[Array, Array, Array], Array]] = {
    BinaryFreshness: lambda guess, truth, rates: (truth + rates) / (truth * (guess + rates) ** 2),
    HarmonicStaleness: _harmonic_with,
    AccumulatedDelay: lambda _, truth, rates: 1.0 / (truth * rates),
}
_WITHOUT_RATES: dict[type, Callable[[Problem, Array, Array, Array], float]] = {
    BinaryFreshness: _binary_without,
    HarmonicStaleness: _harmonic_without,
    AccumulatedDelay: _delay_without,
}

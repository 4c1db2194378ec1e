"""LambdaCrawl: harmonic staleness by bisection and a golden-section split.

Three algorithms, one inside the other. *Silent* sources have the marginal wΔ/(ρ(ρ+Δ)), which inverts in
closed form, so bisection on the price, the dual variable of their bandwidth, uses it up. *Signalled* sources
have the marginal w/ρ up to ρ = Δ: without the caps rates are proportional to importance; those that would
exceed their cap are fixed at it and the others share what is left, until no cap is exceeded. Where there are
both kinds, golden section finds how much of the bandwidth the signalled ones get.

One price for both kinds needs no split at all, which is what `WaterFilling` does; here the published search
is kept, so that the two can be held against each other. It shares no code with the dual solver. Cost: about
45 passes for silent sources alone, two or three for signalled ones, about 70 times their sum for a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.errors import SolverRefusedError, expect_settings, list_offenders
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, total
from freshopt.problems.harmonic_staleness import HarmonicStaleness

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
TINY = float(np.finfo(np.float64).tiny)
# Log of 1e300: ratios beyond are not representable.
FAR = 690.0


class Share(NamedTuple):
    """Rates of one kind that use a bandwidth, their price and passes."""

    rates: Array
    price: float
    passes: int


# (importance, change_rate, bandwidth) -> Share; importances > 0, bandwidth > 0
Sharing: TypeAlias = Callable[[Array, Array, float], Share]


@dataclass(frozen=True, slots=True)
class LambdaCrawl:
    """Harmonic staleness under Poisson refreshes and signals, as published.

    Parameters
    ----------
    tolerance : float
        Relative accuracy of the price and of the split, in 1e-14..0.1.

    Notes
    -----
    [1]_ Algorithm 1 for silent sources, Algorithm 2 for signalled ones, Algorithm 3 for both. Differences:
    the tolerance is relative where the paper's is absolute, so bisection runs in log λ; golden section runs
    in log(R°/R⁻), the logarithm of the ratio of the two parts, between bounds that follow from the marginals
    (`split_bracket`), because the ends of the paper's interval [0, min(R, ΣΔ)] have infinite cost and a
    small part would be found with few digits; rates are scaled to meet the bandwidth to rounding. Sources of
    importance 0, which the paper excludes, get rate 0.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Algorithms 1-3 and Propositions 2-7.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0, 0.5], importance=[1.0, 3.0, 2.0], signalled=[0, 0, 1])
    >>> problem = fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth=1.5)
    >>> fo.solve(problem, LambdaCrawl()).rates.round(6)
    array([0.302776, 0.697224, 0.5     ])
    """

    tolerance: float = 1e-12

    def __post_init__(self) -> None:
        expect_settings(self)
        if not 1e-14 <= self.tolerance <= 0.1:
            raise SolverRefusedError(f"tolerance is {self.tolerance!r}. Pass a number in 1e-14..0.1.")

    def supports(self, problem: Problem) -> str | None:
        """Return why the problem is unsupported, or None.

        Supported is harmonic staleness under Poisson refreshes without bounds and limits.
        """
        if problem.sources.failing is not None:
            return "its formulas are for fetches that succeed"
        return unsupported_objective(problem) or unsupported_constraint(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Search price and split, and certify."""
        return certified_solution(self, problem, options, lambda problem, _: self._crawl(problem))

    def _crawl(self, problem: Problem) -> Answer:
        def silent(w: Array, d: Array, bandwidth: float) -> Share:
            return share_silent(w, d, bandwidth, self.tolerance)

        return split_bandwidth(problem, silent, self.tolerance)


def unsupported_objective(problem: Problem) -> str | None:
    """Return why anything but harmonic staleness under Poisson refreshes is unsupported."""
    objective = problem.objective
    if not isinstance(objective, HarmonicStaleness):
        return f"it minimises HarmonicStaleness, not {type(objective).__name__}"
    if objective.refresh is not Refresh.POISSON:
        return f"its rates are of {Refresh.POISSON!r}, not {objective.refresh!r}"
    return None


def unsupported_constraint(problem: Problem, lower_bounds: bool = False) -> str | None:
    """Return the constraint beside the bandwidth that is unsupported, or None.

    - `lower_bounds`: Whether min_rate is accepted.
    """
    sources = problem.sources
    if len(problem.hosts):
        return f"it knows no host limits, here on {list_offenders(map(repr, problem.hosts.names))}"
    if bool(np.any(sources.refresh_cost != sources.refresh_cost[0])):
        return "it knows only one cost of a refresh, here costs differ"
    bounded = np.flatnonzero(problem.lower > 0.0)
    if len(bounded) and not lower_bounds:
        return f"it knows no min_rate, here of {list_offenders(map(sources.label, bounded))}"
    cap = np.where(sources.signalled, sources.change_rate, np.inf)
    bounded = np.flatnonzero(problem.upper < cap)
    if len(bounded):
        return f"it knows no max_rate, here of {list_offenders(map(sources.label, bounded))}"
    return None


def split_bandwidth(problem: Problem, share: Sharing, tolerance: float) -> Answer:
    """Return the rates at the optimal split of the bandwidth.

    It is split between silent and signalled sources.

    - `problem`: Of harmonic staleness, without bounds, limits and unequal costs.
    - `share`: Gives the silent sources' rates at their part of the bandwidth.
    - `tolerance`: Relative accuracy of the split.
    """
    sources = problem.sources
    unit = float(sources.refresh_cost[0])
    bandwidth = problem.bandwidth / unit  # in refreshes
    matters = sources.importance > 0.0
    silent = np.flatnonzero(matters & ~sources.signalled)
    signalled = np.flatnonzero(matters & sources.signalled)
    rates = np.zeros(len(sources))
    if not len(signalled):
        if not len(silent):
            return Answer(rates, 0.0)
        part = share(sources.importance[silent], sources.change_rate[silent], bandwidth)
        rates[silent] = part.rates
        return Answer(rates, part.price / unit, iterations=part.passes)
    if not len(silent):
        part = share_signalled(sources.importance[signalled], sources.change_rate[signalled], bandwidth)
        rates[signalled] = part.rates
        return Answer(rates, part.price / unit, iterations=part.passes)
    search = _Split(
        sources.importance[silent],
        sources.change_rate[silent],
        sources.importance[signalled],
        sources.change_rate[signalled],
        bandwidth,
        share,
    )
    quiet, loud = search.best(tolerance)
    rates[silent], rates[signalled] = quiet.rates, loud.rates
    # The two prices agree as well as the split is known; of a kind that hardly counts it is arbitrary.
    price = min((quiet.price / unit, loud.price / unit), key=lambda price: certify(problem, rates, price).gap)
    return Answer(rates, price, iterations=search.passes)


class _Split:
    """Golden-section search of the split (Algorithm 3).

    The cost is a function of the split. The coordinate is z = log(R°/R⁻) with R° + R⁻ = R: both parts keep
    their digits however small they are.
    """

    def __init__(
        self, w: Array, d: Array, w_signalled: Array, d_signalled: Array, bandwidth: float, share: Sharing
    ) -> None:
        self.w, self.d, self.w_signalled, self.d_signalled = w, d, w_signalled, d_signalled
        self.bandwidth, self.share = bandwidth, share
        self.most = total(d_signalled)  # signalled sources cannot use more
        self.full = math.inf  # the z at which they use it
        if self.most < bandwidth:
            self.full = math.log(self.most) - math.log(bandwidth - self.most)
        self.passes = 0

    def best(self, tolerance: float) -> tuple[Share, Share]:
        """Return both kinds' shares at the optimal split."""
        low, high = split_bracket(self.w, self.d, self.w_signalled, self.d_signalled, self.bandwidth)
        high = min(high, self.full)
        z = minimise(lambda z: self._cost(*self._shares(z)), min(low, high), high, tolerance)
        return self._shares(z)

    def _parts(self, z: float) -> tuple[float, float]:
        """Return R⁻ and R° at e^z; silent sources take what remains."""
        if z >= self.full:
            return self.bandwidth - self.most, self.most
        quiet, loud = self.bandwidth / (1.0 + math.exp(z)), self.bandwidth / (1.0 + math.exp(-z))
        return quiet, min(loud, self.most)

    def _shares(self, z: float) -> tuple[Share, Share]:
        quiet_part, loud_part = self._parts(z)
        quiet = self.share(self.w, self.d, quiet_part)
        loud = share_signalled(self.w_signalled, self.d_signalled, loud_part)
        self.passes += quiet.passes + loud.passes
        return quiet, loud

    def _cost(self, quiet: Share, loud: Share) -> float:
        with np.errstate(divide="ignore", over="ignore"):  # a part too small to be divided costs inf
            stale = total(self.w * np.log1p(self.d / quiet.rates))
            return stale - total(self.w_signalled * np.log(loud.rates / self.d_signalled))


def split_bracket(
    w: Array, d: Array, w_signalled: Array, d_signalled: Array, bandwidth: float
) -> tuple[float, float]:
    """Return a bracket of log(R°/R⁻) at the optimal split.

    Every marginal times its rate is at most w, so λR ≤ Σw =: W. At such a price a signalled source takes at
    least min(wR/W, Δ), and as ρ ≤ R, a silent one at least wΔ/((R+Δ)λ) ≥ wR/W / (1+R/Δ).
    """
    price = (total(w) + total(w_signalled)) / bandwidth
    most, most_signalled = w / price, w_signalled / price  # together R: what is left of R needs no difference
    loud = total(np.minimum(most_signalled, d_signalled))
    beside_loud = total(most) + total(np.maximum(most_signalled - d_signalled, 0.0))
    quiet = total(most / (1.0 + bandwidth / d))
    beside_quiet = total(most_signalled) + total(most / (1.0 + d / bandwidth))
    low = math.log(max(loud, TINY)) - math.log(max(beside_loud, TINY))
    high = math.log(max(beside_quiet, TINY)) - math.log(max(quiet, TINY))
    return max(low, -FAR), min(high, FAR)


def minimise(function: Callable[[float], float], low: float, high: float, width: float) -> float:
    """Return the best point of golden section on low..high.

    Both ends are among the points compared.

    It ends when the bracket is narrower than `width`. Differences of the values below rounding decide nothing
    that matters: what is returned is as good as can be told.
    """
    seen = [(function(high), high), (function(low), low)]
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = function(a), function(b)
    while high - low > width * max(1.0, abs(a)):
        if at_a < at_b:
            seen.append((at_a, a))
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = function(a)
        else:
            seen.append((at_b, b))
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = function(b)
    return min([*seen, (at_a, a), (at_b, b)])[1]


def share_silent(w: Array, d: Array, bandwidth: float, tolerance: float) -> Share:
    """Share a bandwidth among silent sources by bisection on λ.

    - `w`, `d` (n,): Importance and change rate, > 0.
    - `bandwidth`: In refreshes, > 0.
    - `tolerance`: Relative accuracy of the price.

    Notes
    -----
    [1]_ Algorithm 1: ρ = (−Δ + √(Δ² + 4wΔ/λ))/2, here in the form without cancellation, 2/(b(b + √(b² +
    4/Δ))) with b = √(λ/w). The loop steps through log λ.
    """
    low, high = price_bracket(w, d, bandwidth)
    scarcity, slowness = 1.0 / np.sqrt(w), 4.0 / d
    passes = 0

    def rates_at(log_price: float) -> Array:
        nonlocal passes
        passes += 1
        b = math.exp(log_price / 2.0) * scarcity
        with np.errstate(over="ignore", divide="ignore"):  # at prices that are far off, rates of 0 and inf
            return 2.0 / (b * (b + np.sqrt(b * b + slowness)))

    middle = (low + high) / 2.0
    while high - low > tolerance and low < middle < high:  # a large |log λ| has no finer steps
        if total(rates_at(middle)) > bandwidth:
            low = middle
        else:
            high = middle
        middle = (low + high) / 2.0
    rates = rates_at(middle)
    return Share(rates * (bandwidth / total(rates)), math.exp(middle), passes)


def price_bracket(w: Array, d: Array, bandwidth: float) -> tuple[float, float]:
    """Return a bracket of log λ for silent sources.

    λ is the price at which they use up the bandwidth.

    Some source gets at most the mean rate R/n and another at least that, so λ lies between the marginals
    there, n²wΔ/(nΔR + R²), with the extremes of w and Δ put in: [1]_ Algorithm 1 lines 1-2.
    """
    mean = bandwidth / len(w)
    slowest, fastest = float(np.min(d)), float(np.max(d))
    low = math.log(np.min(w)) - math.log(mean) + math.log(slowest) - math.log(fastest + mean)
    high = math.log(np.max(w)) - math.log(mean) + math.log(fastest) - math.log(slowest + mean)
    return low, high


def share_signalled(w: Array, d: Array, bandwidth: float) -> Share:
    """Share a bandwidth among signalled sources by importance, below their caps.

    Rates are proportional to importance and at most the change rate.

    - `w`, `d` (n,): Importance and change rate, > 0.
    - `bandwidth`: In refreshes, > 0; what exceeds Σ d is left over.

    Notes
    -----
    [1]_ Algorithm 2, in rates ρ = pΔ. All sources beyond their cap are fixed in one round. At least their
    share of importance remains for the others in exact arithmetic, which bounds what rounding can take away.
    """
    rates = np.array(d)
    if bandwidth >= total(d):
        return Share(rates, 0.0, 1)
    remaining, left, rounds = np.arange(len(d)), bandwidth, 0
    while len(remaining):
        rounds += 1
        importance = total(w[remaining])
        uncapped = w[remaining] * (left / importance)
        capped = uncapped >= d[remaining]
        if not bool(np.any(capped)):
            rates[remaining] = uncapped
            return Share(rates, importance / left, rounds)
        fixed, remaining = remaining[capped], remaining[~capped]
        left = max(left - total(d[fixed]), left * (total(w[remaining]) / importance))
    return Share(rates, float(np.min(w / d)), rounds)  # all capped: the bandwidth is Σ d but for rounding

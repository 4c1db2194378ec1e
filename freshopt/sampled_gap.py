"""`SampledGap`: verdict on a solver that learns from samples.

A certified gap says how far one answer falls short, and not whether that is for want of samples or for a
mistake. So such a solver is run again with other seeds, with as many samples N and with a quarter of them.
Averaged stochastic methods on convex problems have gaps that fall at least as 1/√N [1]_, so that with ḡ(N)
the mean over the seeds

    gap after infinitely many samples ≥ 2·ḡ(N) − ḡ(N/4),

with equality where they fall as the root, of a standard error that the spread over the seeds gives. A solver
that tends to another point keeps its gap: the extrapolated one is then above zero by many standard errors.
One that is right extrapolates to zero, or below where its gap falls faster. Where the least cost is 0, gaps
are over the cost at half the mean rate instead: any cost is infinitely many times the least.

What this cannot see is a mistake that costs less than the margin.

References
----------
.. [1] Nemirovski, Juditsky, Lan and Shapiro, "Robust stochastic approximation approach to stochastic
   programming", SIAM Journal on Optimization 19(4), 2009, doi:10.1137/070704277.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import SolveOptions, Solver
from freshopt.modelling.problem import Problem

# Runs of each length: the fewest whose standard error is itself right to about a factor of two.
SEEDS = 4
# Divisor of the samples of the shorter runs, and its root, by which gaps fall at least.
SHORTER, FALL = 4, 2.0
# Standard errors of a verdict, and the relative gap that finite automata keep: 64 sources over two decades,
# a million polls, every cost with a continuous marginal that rises to infinity kept less than 0.1 %.
ERRORS, MARGIN = 2.0, 0.01
AGREES, TOO_FEW, DISAGREES = f"agrees within {ERRORS:.0f} s.e.", "too few polls to tell", "DISAGREES"
NO_GAP = "no gap to judge by"
# A dual bound below this share of a typical cost cannot be told from 0 in float64.
NOTHING = 1e-15


@runtime_checkable
class SampledSolver(Solver, Protocol):
    """Protocol of solvers that learn from samples and can be repeated."""

    def replica(self, number: int, shorter: int = 1) -> Self:
        """Return the solver with another seed and a fraction of its samples."""

    def enough(self, problem: Problem) -> bool:
        """Return whether the shorter runs too are long enough to judge."""


@dataclass(frozen=True, slots=True)
class SampledGap:
    """Certified relative gaps of independent runs.

    - `gaps`: With all samples, a run per seed.
    - `shorter`: With a quarter of them.
    - `enough`: Whether there are samples enough for a verdict against the solver.

    Examples
    --------
    >>> SampledGap((0.004, 0.005, 0.004, 0.006), (0.02, 0.018, 0.021, 0.017), enough=True).verdict
    'agrees within 2 s.e.'
    >>> SampledGap((0.094, 0.09, 0.1, 0.09), (0.1, 0.09, 0.1, 0.1), enough=False).verdict
    'too few polls to tell'
    >>> SampledGap((0.094, 0.093, 0.095, 0.094), (0.1, 0.097, 0.1, 0.11), enough=True).verdict
    'DISAGREES'
    >>> SampledGap((0.004, float("inf"), 0.004, 0.006), (0.02, 0.018, 0.021, 0.017), enough=True).verdict
    'no gap to judge by'
    """

    gaps: tuple[float, ...]
    shorter: tuple[float, ...]
    enough: bool

    @property
    def mean(self) -> float:
        """Mean gap with all samples."""
        return float(np.mean(self.gaps))

    @property
    def error(self) -> float:
        """Standard error of that mean, from the seeds."""
        return _standard_error(self.gaps)

    @property
    def extrapolated(self) -> float:
        """Least gap after infinitely many samples; below 0 where gaps fall fast."""
        return (FALL * self.mean - float(np.mean(self.shorter))) / (FALL - 1.0)

    @property
    def extrapolated_error(self) -> float:
        """Standard error of the extrapolated gap."""
        return math.hypot(FALL * self.error, _standard_error(self.shorter)) / (FALL - 1.0)

    @property
    def unproved(self) -> int:
        """Number of runs without a certified gap."""
        return sum(not math.isfinite(gap) for gap in (*self.gaps, *self.shorter))

    @property
    def verdict(self) -> str:
        """Agreement, disagreement, too few polls to tell, or no gaps.

        The solver agrees if its mean gap is below the margin by two standard errors, and disagrees if it has
        samples enough and the gap after infinitely many is above the margin by more than that.
        """
        if self.unproved:
            return NO_GAP
        if self.mean + ERRORS * self.error <= MARGIN:
            return AGREES
        beyond = self.extrapolated - ERRORS * self.extrapolated_error > MARGIN
        return DISAGREES if self.enough and beyond else TOO_FEW

    def __str__(self) -> str:
        if self.unproved:
            return f"{self.unproved} of {len(self.gaps) + len(self.shorter)} runs have no certified gap"
        return (
            f"gap {self.mean:.2%} ± {self.error:.2%} over {len(self.gaps)} seeds, "
            f"{self.extrapolated:.2%} ± {self.extrapolated_error:.2%} extrapolated"
        )


def sampled_gap(
    solver: SampledSolver, solution: Solution, problem: Problem, options: SolveOptions
) -> SampledGap:
    """Run a sampled solver again, and return the gaps."""
    longer = [solver.replica(k).solve(problem, options) for k in range(1, SEEDS)]
    shorter = [solver.replica(SEEDS + k, SHORTER).solve(problem, options) for k in range(SEEDS)]
    gaps = _gaps([solution, *longer, *shorter], problem)
    return SampledGap(gaps[:SEEDS], gaps[SEEDS:], solver.enough(problem))


def _gaps(solutions: list[Solution], problem: Problem) -> tuple[float, ...]:
    """Return relative gaps; over a typical cost where the least is 0."""
    proofs = [solution.certificate for solution in solutions]
    relative = tuple(math.inf if proof is None else proof.relative_gap for proof in proofs)
    if problem.objective.sense != "minimise" or not all(map(math.isfinite, relative)):
        return relative
    proved = [proof for proof in proofs if proof is not None]
    half = np.full(len(problem.sources), 0.5 * float(np.mean(proved[0].rates)))
    typical = certify(problem, half).value
    if not 0.0 < typical < math.inf or max(proof.bound for proof in proved) > NOTHING * typical:
        return relative
    return tuple(proof.gap / typical for proof in proved)


def _standard_error(values: tuple[float, ...]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))

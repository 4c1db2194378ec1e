"""`Solutions`: certified solutions of many problems, as arrays and singly.

They come from the sums of one compiled call. Values and relative gaps of all problems are told at once, of
those whose gap is within rounding of their cost; a `Solution` with its certificate is made from the same sums
when it is asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, overload

import numpy as np

from freshopt.certificates.best_response import limit_terms
from freshopt.certificates.certificate import Certificate, certificate_of_gap
from freshopt.certificates.proof_pass import gap_of_proof
from freshopt.certificates.relative_gap import MENTIONED
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.solution import UNPROVED, Solution, Status
from freshopt.compiled.proof_columns import INFLATION, Proof
from freshopt.errors import CertificateError
from freshopt.formatting import count
from freshopt.modelling.host_limits import without_limits
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, BoolArray, IntArray, read_only
from freshopt.numerics.frozen_arrays import frozen_value, later

_NO_HOSTS = read_only(np.zeros(0))


@frozen_value()
class BatchSums:
    """Sums of m problems at their rates and prices.

    - `prices` (m,)
    - `sums` (m, 5): Cost, gain, bandwidth used, gap of the sources before inflation, rates outside their
      bounds.
    """

    prices: Array
    sums: Array

    def proof(self, k: int) -> Proof:
        """Return the sums of one problem."""
        cost, gain, used, gap, outside = self.sums[k].tolist()
        return Proof(cost, gain, used, INFLATION * gap, outside, _NO_HOSTS)


class BatchVerdicts(NamedTuple):
    """Values and duality gaps of m problems.

    - `values`, `gaps`, `relative_gaps` (m,)
    - `proved` (m,): Whether the gap is within the tolerance; where not, these numbers do not decide.
    """

    values: Array
    gaps: Array
    relative_gaps: Array
    proved: BoolArray


def verdicts(found: BatchSums, bandwidth: Array, free: Array, gains: bool, tolerance: float) -> BatchVerdicts:
    """Return the values and gaps of problems, as their certificates have them.

    - `bandwidth`, `free` (m,): The limits, and what min_rate leaves of them.
    - `gains`: Whether values are gains.
    - `tolerance`: Largest relative gap of a problem that counts as proved.
    """
    cost, gain, used, gap, outside = found.sums.T
    with np.errstate(all="ignore"):
        slack = np.maximum(0.0, bandwidth - used)
        gaps = limit_terms(found.prices, slack, bandwidth) + INFLATION * gap
        scale = np.abs(cost) + np.where(found.prices > 0.0, found.prices * free, 0.0)
        relative = np.where(gaps == 0.0, 0.0, gaps / scale)
        # Gaps that float64 resolves in the cost are relative to less, and rounding of a limit has its say.
        plain = (gaps <= FEW_ULP * scale) & (FEW_ULP * found.prices * bandwidth <= MENTIONED * scale)
        feasible = (outside == 0.0) & (used <= bandwidth * (1.0 + FEW_ULP))
        proved = plain & feasible & (relative <= tolerance) & np.isfinite(cost)
    return BatchVerdicts(gain if gains else cost, gaps, relative, proved)


def proved_solution(
    problem: Problem,
    rates: Array,
    price: float,
    proof: Proof,
    solver: object,
    tolerance: float,
    *,
    iterations: int,
    seconds: float,
    note: str = "",
    certify: bool = True,
) -> Solution | None:
    """Return the solution of a problem whose sums prove it, or None.

    - `problem`: With a batch route.
    - `rates` (n,)
    - `proof`: The sums at rates and price.
    - `certify`: False leaves the certificate out.
    """
    with np.errstate(all="ignore"):
        proved = gap_of_proof(problem, rates, price, _NO_HOSTS, proof)
        if proved is None:
            return None
        certificate = certificate_of_gap(proved, price, _NO_HOSTS)
    if certificate is None or not certificate.confirms(tolerance):
        return None
    return Solution(
        problem=problem,
        status=Status.OPTIMAL,
        rates=certificate.rates,
        value=certificate.value,
        price=price,
        host_prices=certificate.host_prices,
        certificate=certificate if certify else UNPROVED,
        iterations=iterations,
        seconds=seconds,
        solver=solver,
        note=" ".join(part for part in (certificate.reason, note) if part),
    )


@frozen_value(repr=False)
class Solutions(Sequence[Solution]):
    """Solutions of many problems, in their order.

    A sequence: ``solutions[k]`` is the `Solution` of problem k with its certificate, made when it is asked
    for. The arrays hold what is wanted of all of them.

    Attributes
    ----------
    problems : sequence of Problem
    rates : ndarray, shape (N,)
        Refreshes per time unit of all problems, one after the other; NaN where there is no answer.
    offsets : ndarray of int, shape (m+1,)
        Problem k has the rates ``rates[offsets[k]:offsets[k + 1]]``.
    prices : ndarray, shape (m,)
        Dual variables (shadow prices) of the bandwidths.
    values : ndarray, shape (m,)
        The objectives in the declared sense.
    gaps, relative_gaps : ndarray, shape (m,)
        Duality gaps, as in `Certificate`; inf where nothing is proved.
    statuses : tuple of Status
    solver : object
        The settings of the solver of those that were solved at once.
    seconds : float
        Time of the call.
    sums : BatchSums
        What certificates are made of.
    iterations : ndarray of int, shape (m,)
    batches : ndarray of int, shape (m,)
        Which problems were solved at once, by the same formulas: the number of their batch.
    alone : mapping of int to Solution
        Those that were solved one by one.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.5, 2.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=3.0)
    >>> many = fo.solve_many([problem, problem.with_bandwidth(6.0)])
    >>> [one.status.value for one in many]
    ['optimal', 'optimal']
    """

    problems: Sequence[Problem]
    rates: Array
    offsets: IntArray
    prices: Array
    values: Array
    gaps: Array
    relative_gaps: Array
    statuses: tuple[Status, ...]
    solver: object
    seconds: float
    sums: BatchSums
    iterations: IntArray
    batches: IntArray
    alone: Mapping[int, Solution]
    # Whether a bound is above the value, by batch whose tangents were compared with costs: once one of its
    # certificates is read.
    convex_: dict[int, bool] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self.prices)

    @overload
    def __getitem__(self, k: int) -> Solution: ...

    @overload
    def __getitem__(self, k: slice) -> list[Solution]: ...

    def __getitem__(self, k: int | slice) -> Solution | list[Solution]:
        """Return one problem's solution, or a list of them.

        Raises
        ------
        InfeasibleProblemError
            If the problem cannot be declared, for its bounds need more than its bandwidth.
        """
        if isinstance(k, slice):
            return [self[one] for one in range(len(self))[k]]
        k = range(len(self))[k]
        if k in self.alone:
            return self.alone[k]
        batch, note = int(self.batches[k]), f"Solved among {count(len(self), 'problem')} at once."
        rates, price = self.rates[self.offsets[k] : self.offsets[k + 1]], float(self.prices[k])
        iterations, seconds = int(self.iterations[k]), self.seconds / len(self)
        # Where tangents were compared with costs, the arrays tell the certificate.
        if (
            batch in self.convex_
            and self.relative_gaps[k] <= MENTIONED
            and self.sums.sums[k, 0] > self.gaps[k]
        ):
            # Of a batch that nobody else holds, a solution holds its own problem alone.
            whole = self.problems
            problem = whole[k] if isinstance(whole, tuple) else later(whole.__getitem__, k)
            proof = self._certificate(k, problem, rates, price)
            answer = proof.value, price, proof.host_prices, proof, iterations, seconds, self.solver, note
            return Solution(problem, Status.OPTIMAL, rates, *answer)
        found = proved_solution(
            self.problems[k],
            rates,
            price,
            self.sums.proof(k),
            self.solver,
            math.inf,
            iterations=iterations,
            seconds=seconds,
            note=note,
        )
        if found is None:
            raise CertificateError(f"the sums of problem {k} do not prove it. Solve it by itself.", None)
        if found.certificate.gap == self.gaps[k] and found.value == self.values[k]:
            self.convex_[batch] = found.problem.objective.sense == "maximise"
        return found

    def _certificate(
        self, k: int, problem: Problem | Callable[[], Problem], rates: Array, price: float
    ) -> Certificate:
        """Return the certificate of a problem by the numbers that are known."""
        value, gap, relative = (float(each[k]) for each in (self.values, self.gaps, self.relative_gaps))
        return Certificate(
            value=value,
            bound=value + gap if self.convex_[int(self.batches[k])] else value - gap,
            gap=gap,
            relative_gap=relative,
            beyond_rounding=relative,
            infeasibility=0.0,
            price=price,
            host_prices=without_limits(len(rates)).named(_NO_HOSTS),
            rates=rates,
            reason="",
            vanishing=False,
            rows=later(_rows_of, problem, rates, price, self.sums.proof(k)),
        )

    def __repr__(self) -> str:
        sizes = np.diff(self.offsets)
        least, most = int(sizes.min()), int(sizes.max())
        of = f"{least}" if least == most else f"{least}..{most}"
        kinds = Counter(status.value for status in self.statuses)
        words = ", ".join(f"{number} {word}" for word, number in kinds.items())
        proved = self.relative_gaps[np.isfinite(self.relative_gaps)]
        gap = float(proved.max()) if len(proved) else math.inf
        return (
            f"Solutions({count(len(self), 'problem')} of {of} sources: {words}; relative gaps <= {gap:.2g})"
        )


def _rows_of(given: Problem | Callable[[], Problem], rates: Array, price: float, sums: Proof) -> RowTable:
    """Return a certificate's rows, of its problem or what makes it."""
    problem = given if isinstance(given, Problem) else given()
    proved = gap_of_proof(problem, rates, price, _NO_HOSTS, sums)
    assert proved is not None, "the sums of its batch proved it"
    return RowTable.of_limits(proved.gap, price, _NO_HOSTS, proved.gap_bound)

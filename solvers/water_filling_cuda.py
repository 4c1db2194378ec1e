"""Water-filling on a CUDA device.

The algorithm is that of `freshopt.solvers.water_filling`: one price decides every rate. Demand functions and
proofs are those of `freshopt.compiled`, compiled for the device, and columns stay there: a search of three or
four passes over the sources, one pass that writes rates, and one that proves them. Sums are added in a fixed
order, without atomic operations, so that the same input gives the same bits on the same kind of device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.compiled.columns import Columns
from freshopt.compiled.proof_columns import Proof, ProofColumns
from freshopt.cuda.device import require_device, why_no_device
from freshopt.cuda.device_columns import DeviceColumns
from freshopt.cuda.device_problem import DeviceProblem
from freshopt.cuda.device_solution import DeviceSolution
from freshopt.cuda.kernel_text import why_no_text
from freshopt.cuda.transfers import on_host
from freshopt.cuda.water_filling import DeviceAnswer, fill_on_device, solve_on_device
from freshopt.errors import one_of
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, as_float64
from freshopt.separable.kernel_columns import kernel_columns


@dataclass(frozen=True, slots=True)
class WaterFillingCuda:
    """Exact dual solver on a CUDA device, in the extra ``freshopt[cuda]``.

    Bounds, unequal costs and signalled sources are carried, and every objective with a compiled demand
    function and proof: harmonic staleness, binary freshness, accumulated delay, age, and power costs without
    a cap, under either discipline.

    Parameters
    ----------
    dtype : {"float64", "float32"}
        In which rates are kept on the device; computed is in float64. float32 halves their memory. The
        certificate is that of the rates as they are kept. It holds rates from 1e-38 to 3e38, and a bound that
        is no float32 number is kept to 1e-7.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 2.0, 50.0]), bandwidth=1.0)
    >>> reason = WaterFillingCuda().supports(problem)  # None, or why there is no device here
    """

    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        one_of(self.dtype, ("float64", "float32"), "dtype")

    def supports(self, problem: Problem) -> str | None:
        """Return why the problem is not solved on a device, or None."""
        if len(problem.hosts):
            return "devices carry no host limits; use WaterFilling()"
        found = _columns(problem)
        if found is None:
            return "the objective has no demand function and proof for devices; use WaterFilling()"
        return why_no_text(*found) or why_no_device()

    @overload
    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution: ...

    @overload
    def solve(self, problem: DeviceProblem, options: SolveOptions = DEFAULT) -> DeviceSolution: ...

    def solve(
        self, problem: Problem | DeviceProblem, options: SolveOptions = DEFAULT
    ) -> Solution | DeviceSolution:
        """Solve the dual on the device and certify the rates there."""
        if isinstance(problem, DeviceProblem):
            require_device()
            return solve_on_device(problem, self, self.dtype, options)
        kept: list[tuple[DeviceColumns, DeviceAnswer]] = []

        def method(problem: Problem, start: float | None) -> Answer:
            found = _columns(problem)
            if found is None:
                return Answer(None, status=Status.REFUSED, note="the objective has no kernels for devices.")
            columns = DeviceColumns.of(*found, self.dtype)
            unit = problem.sources.time_unit
            answer = fill_on_device(columns, problem.bandwidth, self.dtype, start, unit)
            if answer.rates is None:
                return Answer(
                    None, status=Status.REFUSED, note=f"{type(self).__name__} does not apply: {answer.note}."
                )
            kept.append((columns, answer))
            rates: Array = as_float64(on_host(answer.rates))
            return Answer(rates, answer.price, problem.hosts.named(problem.hosts.limits), answer.passes)

        def prove(price: float) -> Proof:
            columns, answer = kept[0]
            return columns.prove(answer.rates, price)

        return certified_solution(self, problem, options, method, prove)


def _columns(problem: Problem) -> tuple[Columns, ProofColumns] | None:
    """Return the columns of demand and proof of a problem, or None."""
    own = problem.numerics, problem.sources.refresh_cost, problem.lower, problem.upper
    demand, proof = kernel_columns(Columns, *own), kernel_columns(ProofColumns, *own)
    return None if demand is None or proof is None else (demand, proof)

"""`DeviceProblem`: a problem whose columns are on a CUDA device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.compiled.columns import Columns
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.cuda.device import DeviceArray, adopted, empty, loops, require_device
from freshopt.cuda.device_columns import counted, is_array
from freshopt.cuda.kernel_text import BLOCK
from freshopt.cuda.transfers import on_host, uploaded
from freshopt.errors import ObjectiveError, SourceDataError, list_offenders
from freshopt.modelling.objective import Objective, Refresh, as_objective, require_discipline
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, as_vector, is_on_device
from freshopt.separable.kernel import Kernel
from freshopt.units import bandwidth_of, check_time_unit

# A column that is given: an array on the device or on the host, or a number.
Given = Any
COLUMNS = ("change_rate", "importance", "min_rate", "max_rate", "refresh_cost")
# What each column may be besides 1e-100..1e100, as a device reads it.
BESIDES = {
    "change_rate": "False",
    "importance": "x == 0.0",
    "min_rate": "x == 0.0",
    "max_rate": "(x == 0.0) | (x == np.inf)",
    "refresh_cost": "False",
}
POSITIVE = ("change_rate", "refresh_cost")


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class DeviceProblem:
    """Separable convex program whose columns are on a CUDA device.

    It is checked there and frozen; `fo.solve` solves it there. Nothing of length n is copied to the host.

    Parameters
    ----------
    objective : Objective or str
    change_rate : device array, shape (n,)
        Δ > 0, per time unit: an array of CuPy, PyTorch, JAX, Numba or any library that speaks
        ``__cuda_array_interface__`` or DLPack, float32 or float64, contiguous. It is read where it is. An
        array of the host is copied to the device.
    bandwidth : float
        Total refreshes (more exactly, refresh cost) per time unit, > 0.
    importance, min_rate, max_rate, refresh_cost : device array or float, optional
        As those of `Sources`.
    time_unit : str
        The clock of every rate here.

    Raises
    ------
    SolverRefusedError
        If there is no device.
    SourceDataError
        If a value is no number or out of range; names the source by its position.
    ObjectiveError
        If the objective has no kernels.

    Notes
    -----
    Hosts, signals, requests, chances of success, costs of changes, profiles and declared constraints are not
    carried; a `Problem` of host arrays may have
    signalled sources on a device.
    """

    objective: Objective
    bandwidth: float
    time_unit: str
    columns: Columns
    proof: ProofColumns

    def __init__(
        self,
        objective: Objective | str,
        change_rate: Given,
        bandwidth: float | str,
        importance: Given = 1.0,
        min_rate: Given = 0.0,
        max_rate: Given = math.inf,
        refresh_cost: Given = 1.0,
        time_unit: str = "day",
    ) -> None:
        objective = as_objective(objective, check_time_unit(time_unit))
        require_discipline(objective)
        if objective.refresh is Refresh.ON_REQUEST:
            raise ObjectiveError(
                f"{objective!r} needs request rates, which a DeviceProblem does not carry. Solve a Problem "
                "of host arrays."
            )
        unit = check_time_unit(time_unit)
        total = bandwidth_of(bandwidth, unit)
        require_device()
        given = dict(zip(COLUMNS, (change_rate, importance, min_rate, max_rate, refresh_cost), strict=True))
        placed = {key: _placed(value, key) for key, value in given.items()}
        n = _length(placed)
        for key, column in placed.items():
            _require(key, column, n)
        _require_order(placed["min_rate"], placed["max_rate"], n)
        columns, proof = _columns(objective, placed, n)
        values = (objective, total, unit, columns, proof)
        for key, value in zip(DeviceProblem.__slots__, values, strict=True):
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        """Return the number of sources."""
        return self.columns.n

    def __repr__(self) -> str:
        total = f"bandwidth={self.bandwidth:g} per {self.time_unit}"
        return f"DeviceProblem({self.objective!r}, n={len(self)}, {total})"

    def with_bandwidth(self, bandwidth: float | str) -> DeviceProblem:
        """Return the same problem with another bandwidth; the columns are shared."""
        total = bandwidth_of(bandwidth, self.time_unit)
        other = object.__new__(DeviceProblem)
        for key in DeviceProblem.__slots__:
            object.__setattr__(other, key, getattr(self, key))
        object.__setattr__(other, "bandwidth", total)
        return other


def _placed(value: Given, what: str) -> Given:
    """Return a column on the device, or a number."""
    if is_on_device(value):
        return adopted(value, what)
    try:
        shape = np.shape(value)
    except ValueError:
        shape = ()
    if shape == ():
        return float(as_vector(value, 1, what)[0])
    if len(shape) != 1 or shape[0] == 0:
        raise SourceDataError(f"{what} has shape {shape}. Pass a number, or one entry per source.")
    narrow = isinstance(value, np.ndarray) and value.dtype == np.float32
    return uploaded(value if narrow else as_vector(value, shape[0], what))


def _length(placed: dict[str, Given]) -> int:
    lengths = {key: len(column) for key, column in placed.items() if is_array(column)}
    if not lengths:
        return 1
    n = max(lengths.values())
    for key, length in lengths.items():
        if length != n:
            raise SourceDataError(
                f"{key} has length {length} but there are {n} sources. Give one entry per source."
            )
    return n


def _require(key: str, column: Given, n: int) -> None:
    """Raise SourceDataError by position where a column is out of range."""
    if is_array(column):
        condition = f"not ((x >= {SMALLEST!r}) & (x <= {LARGEST!r}) | ({BESIDES[key]}))"
        offenders = _offenders(condition, lambda x: _is_wrong(key, x), [column], n)
        where = list_offenders(f"source {k}: {value:g}" for k, (value,) in offenders)
    else:
        where = f"all sources: {column:g}" if _is_wrong(key, column) else ""
    words = "> 0" if key in POSITIVE else "0 or more"
    if where:
        raise SourceDataError(
            f"{key} out of range for {where}. It must be {words}, within {SMALLEST:g}..{LARGEST:g}. "
            "Correct or drop these sources."
        )


def _is_wrong(key: str, x: float) -> bool:
    """Return whether a number is out of its column's range."""
    besides = (x == 0.0 and key not in POSITIVE) or (x == math.inf and key == "max_rate")
    return not (SMALLEST <= x <= LARGEST or besides)


def _require_order(lower: Given, upper: Given, n: int) -> None:
    """Raise SourceDataError by position where min_rate exceeds max_rate."""
    if is_array(lower) and is_array(upper):
        offenders = _offenders("x > y", lambda x, y: x > y, [lower, upper], n)
    elif is_array(lower) and upper < math.inf:
        offenders = _offenders(f"x > {upper!r}", lambda x: x > upper, [lower], n)
    elif is_array(upper):
        offenders = _offenders(f"x < {lower!r}", lambda x: x < lower, [upper], n)
    else:
        offenders = [(0, ())] if not is_array(lower) and lower > upper else []
    alike = not is_array(lower) and not is_array(upper)
    where = list_offenders("all sources" if alike else f"source {k}" for k, _ in offenders)
    if where:
        raise SourceDataError(f"min_rate exceeds max_rate for {where}. Swap or widen them.")


def _offenders(
    condition: str, holds: Callable[..., bool], columns: list[DeviceArray], n: int
) -> list[tuple[int, tuple[float, ...]]]:
    """Return positions and entries where a condition holds.

    The condition, on x and y, is given for the device and for the host. Those returned are of the first block
    that has any.
    """
    blocks = np.flatnonzero(counted(condition, dict(zip(("x", "y"), columns, strict=False)), n))
    if not len(blocks):
        return []
    first = int(blocks[0]) * BLOCK
    part = [on_host(column[first : first + BLOCK]).astype(np.float64).tolist() for column in columns]
    return [(first + k, row) for k, row in enumerate(zip(*part, strict=True)) if holds(*row)]


def _columns(objective: Objective, placed: dict[str, Given], n: int) -> tuple[Columns, ProofColumns]:
    """Return the columns of demand and proof.

    The objective's kernel of two sources tells formulas and parameters: those that are the change rates, and
    those that are the same for all sources.
    """
    change_rate, importance = np.array([1.0, 2.0]), np.array([1.0, 1.0])
    try:
        kernel = objective.kernel(Sources(change_rate, importance))
    except SourceDataError:
        raise ObjectiveError(
            f"{objective!r} has columns of its own, on the host. Pass numbers for all sources, or a Problem."
        ) from None
    name = repr(objective)
    if not isinstance(kernel, Kernel) or kernel.unit_demand is None or kernel.unit_proof is None:
        raise ObjectiveError(f"{name} has no kernels for devices. Solve a Problem of host arrays.")
    if objective.sense == "maximise" and kernel.unit_gain is None:
        raise ObjectiveError(f"{name} has no gain on devices. Solve a Problem of host arrays.")
    own = _like(kernel.parameters, placed, name)
    proof = own if kernel.proof_parameters is None else _like(kernel.proof_parameters, placed, name)
    demand, weight = own, placed["importance"]
    if kernel.demand_parameters is not None:
        # A power law: its first parameter is log(importance) and a constant, in both.
        scale = float(kernel.demand_parameters[0][0])
        logs = _logarithms(placed["importance"], scale, n)
        demand, proof = (logs, *_like(kernel.demand_parameters[1:], placed, name)), (logs, *proof[1:])
        weight = 1.0
    bounds = placed["min_rate"], placed["max_rate"]
    columns = Columns(n, kernel.unit_demand, None, False, weight, demand, placed["refresh_cost"], *bounds)
    proofs = ProofColumns(
        n, kernel.unit_proof, None, False, placed["importance"], proof, placed["refresh_cost"], *bounds
    )
    return columns, proofs


def _like(parameters: tuple[Any, ...], placed: dict[str, Given], name: str) -> tuple[Given, ...]:
    """Return a kernel's parameters on the device."""
    found: list[Given] = []
    for parameter in parameters:
        first, second = float(parameter[0]), float(parameter[-1])
        if first != second and (first, second) != (1.0, 2.0):
            raise ObjectiveError(
                f"{name} has parameters that devices do not know. Solve a Problem of host arrays."
            )
        found.append(first if first == second else placed["change_rate"])
    return tuple(found)


def _logarithms(importance: Given, constant: float, n: int) -> Given:
    """Return log(importance) + constant, on the device where importance is."""
    if not is_array(importance):
        return math.log(importance) + constant if importance > 0.0 else -math.inf
    out = empty(n, np.float64)
    blocks = -(-n // loops().THREADS)
    loops().launch(loops().logarithms, blocks, n, constant, importance, out)
    return out

"""Compile the kernels of every cell to PTX for sm_90: numba-cuda is needed, and no GPU or driver.

    python .ci/ptx.py

What it compiles is what runs on a device; numba asks the device for its kind, and is told here. It also looks
at an array through DLPack, as arrays on a device are.
"""

from __future__ import annotations

import importlib
import time
from types import SimpleNamespace

import numpy as np
from numba import cuda, types

from freshopt.compiled import demand_functions as demands
from freshopt.compiled import proof_functions as proofs
from freshopt.cuda import kernel_loops
from freshopt.cuda.device import _from_dlpack
from freshopt.cuda.kernel_text import BLOCK, Kinds, find_text, kernels_of, reduce_text

CAPABILITY = (9, 0)
# Demand functions and proofs, and those of signalled sources; a power law has two parameters.
CELLS = [
    (demands.harmonic_poisson, demands.reciprocal_below, proofs.HARMONIC, proofs.HARMONIC_SIGNAL),
    (demands.harmonic_periodic, None, proofs.HARMONIC_PERIODIC, None),
    (demands.log_periodic, None, proofs.LOG_PERIODIC, None),
    (demands.binary_poisson, demands.all_or_nothing, proofs.BINARY, proofs.BINARY_SIGNAL),
    (demands.binary_periodic, None, proofs.BINARY_PERIODIC, None),
    (demands.delay, demands.delay, proofs.DELAY, proofs.DELAY_SIGNAL),
    (demands.delay_periodic, None, proofs.DELAY_PERIODIC, None),
    (demands.age_poisson, demands.reciprocal_root_below, proofs.AGE, proofs.AGE_SIGNAL),
    (demands.age_periodic, None, proofs.AGE_PERIODIC, None),
    (demands.power_law, None, proofs.POWER, None),
]
NUMBER, NARROW = types.float64, types.float32
WIDE_COLUMN, NARROW_COLUMN = types.Array(NUMBER, 1, "C"), types.Array(NARROW, 1, "C")
TABLE = types.Array(NUMBER, 2, "C")


class Speaker:
    """An array that speaks DLPack alone, and does not mind on which stream it is read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, *, stream: int | None = None, **settings: object) -> object:
        """Return the array's capsule."""
        return self.array.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where it is: on the host, here."""
        return self.array.__dlpack_device__()


def compiled(functions: dict[str, str], kernels: dict[str, str]) -> dict[str, object]:
    """Return the kernels as Python functions that call device functions."""
    jitted = kernel_loops.compiled(functions, kernels)
    return {name: kernel.py_func for name, kernel in jitted.items()}


def check(name: str, kernel: object, signature: list[object]) -> int:
    """Compile one kernel; return the size of its PTX."""
    text, _ = cuda.compile_ptx(kernel, tuple(signature), cc=CAPABILITY)
    wanted = f".target sm_{CAPABILITY[0]}{CAPABILITY[1]}"
    if wanted not in text or ".extern .func" in text:
        raise SystemExit(f"{name}: the PTX is not for {wanted}, or calls what is not in it")
    return len(text)


def main() -> None:
    """Compile every cell's kernels, with float32 columns, and the kernels of sums and checks."""
    asked = SimpleNamespace(compute_capability=CAPABILITY)
    importlib.import_module("numba.cuda.dispatcher").get_current_device = lambda: asked
    threads = kernel_loops.THREADS
    for demand, announced, silent, other in CELLS:
        begun = time.perf_counter()
        names = ("p0", "p1") if demand is demands.power_law else ("p0",)
        flags = ("signalled",) if announced is not None else ()
        arrays = (*flags, "importance", *names, "upper")
        taken = len(names)
        kinds = Kinds(demand, announced, silent, other, arrays, arrays, taken, taken, narrow=True)
        text = kernels_of(kinds, threads, BLOCK)
        flag = types.Array(types.boolean, 1, "C") if flags else types.boolean
        columns = [flag, NARROW_COLUMN, *[NARROW_COLUMN] * len(names), NUMBER, NUMBER, WIDE_COLUMN]
        first = {
            "demand": [NUMBER],
            "fill": [NUMBER, NARROW_COLUMN],
            "mix": [NUMBER, NUMBER, NUMBER, NARROW_COLUMN],
            "prove": [NUMBER, NUMBER, NARROW_COLUMN],
        }
        size = 0
        for name, kernel in compiled(text.functions, text.kernels).items():
            tables = text.proof_tables if name == "prove" else text.demand_tables
            signature = [types.int64, *first[name], *columns, *[TABLE] * len(tables), TABLE]
            size += check(f"{demand.__name__} {name}", kernel, signature)
        print(f"{demand.__name__}: {size} characters of PTX in {time.perf_counter() - begun:.1f} s")
    functions, body = reduce_text(5, threads)
    check("reduced", compiled(functions, {"reduced": body})["reduced"], [types.int64, TABLE, TABLE])
    functions, body = find_text(["x"], "not (x > 0.0)", threads, BLOCK)
    check("find", compiled(functions, {"find": body})["find"], [types.int64, NARROW_COLUMN, TABLE])
    for name, more in (("gather", [types.int64]), ("scatter", [types.int64]), ("logarithms", [NUMBER])):
        columns = [NARROW_COLUMN, WIDE_COLUMN if name == "logarithms" else NARROW_COLUMN]
        check(name, getattr(kernel_loops, name).py_func, [types.int64, *more, *columns])
    given = np.arange(5, dtype=np.float32)
    seen = _from_dlpack(Speaker(given)).__cuda_array_interface__
    own = given.__array_interface__
    if (seen["shape"], seen["typestr"], seen["data"][0]) != (own["shape"], own["typestr"], own["data"][0]):
        raise SystemExit(f"DLPack shows {seen}, and not {own}")


if __name__ == "__main__":
    main()

"""Kernels compiled by numba for a CUDA device, or for its simulator.

This module imports numba.cuda and is imported when a device is used.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.core import config

SIMULATED = bool(vars(config)["ENABLE_CUDASIM"])
# Threads of a block. The simulator has a thread of the computer for each, and waits for them in a loop.
THREADS = 4 if SIMULATED else 256


def compiled(functions: dict[str, str], kernels: dict[str, str]) -> dict[str, Callable[..., Any]]:
    """Return kernels by name, from their text and device functions."""
    names: dict[str, Any] = {"np": np, "math": math, "cuda": cuda}
    for name, text in functions.items():
        exec(compile(text, f"<{name}>", "exec"), names)
        # The simulator runs Python: nothing is to be made of a function that knows no thread.
        names[name] = names[name] if SIMULATED else cuda.jit(device=True)(names[name])  # type: ignore[no-untyped-call]
    for name, text in kernels.items():
        exec(compile(text, f"<{name}>", "exec"), names)
    return {name: cuda.jit(names[name]) for name in kernels}  # type: ignore[no-untyped-call]


def launch(kernel: Any, blocks: int, *arguments: object) -> None:  # noqa: ANN401 - numba's
    """Run a kernel on a number of blocks."""
    with warnings.catch_warnings():
        # That samples and the last addition take few blocks is meant so; numba-cuda has warnings of its own.
        warnings.filterwarnings("ignore", ".*Grid size")
        kernel[blocks, THREADS](*arguments)


@cuda.jit  # type: ignore[untyped-decorator]
def gather(n: int, stride: int, column: Any, out: Any) -> None:  # noqa: ANN401 - an array on the device
    """Copy every so manieth entry."""
    k = cuda.grid(1)  # type: ignore[attr-defined]
    if k < n:
        out[k] = column[np.int64(k) * stride]


@cuda.jit  # type: ignore[untyped-decorator]
def scatter(n: int, stride: int, values: Any, column: Any) -> None:  # noqa: ANN401 - arrays on the device
    """Write entries to every so manieth place."""
    k = cuda.grid(1)  # type: ignore[attr-defined]
    if k < n:
        column[np.int64(k) * stride] = values[k]


@cuda.jit  # type: ignore[untyped-decorator]
def logarithms(n: int, constant: float, column: Any, out: Any) -> None:  # noqa: ANN401 - arrays on the device
    """Write log x + constant, −inf for 0."""
    k = cuda.grid(1)  # type: ignore[attr-defined]
    if k < n:
        x = np.float64(column[k])
        out[k] = math.log(x) + constant if x > 0.0 else -np.inf

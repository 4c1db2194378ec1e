"""Solving on a CUDA device: search, proof and rates.

``pip install "freshopt[cuda]"`` brings numba-cuda with CUDA 12's compiler (some 430 MB; ``numba-cuda[cu13]``
brings CUDA 13's). NVIDIA's driver has to be there. Without package, driver or device `fo.solve` raises
`SolverRefusedError` with one line that says which is missing.

Columns on the device may be arrays of CuPy, PyTorch, JAX, Numba or whatever speaks
``__cuda_array_interface__`` or DLPack, float32 or float64, contiguous. They are read where they are; the
rates stay on the device, value, price and certificate are on the host::

    change_rate = cupy.random.lognormal(0.0, 1.0, 10**9, dtype=cupy.float32)
    importance = cupy.random.lognormal(0.0, 1.0, 10**9, dtype=cupy.float32)
    problem = fo.cuda.DeviceProblem(
        fo.problems.HarmonicStaleness(), change_rate, bandwidth=5e8, importance=importance
    )
    solution = fo.solve(problem, fo.solvers.WaterFillingCuda(dtype="float32"))
    rates = cupy.asarray(solution.rates)  # a view, no copy

An ordinary `fo.Problem` is solved there too, by ``fo.solve(problem, fo.solvers.WaterFillingCuda())``: columns
are copied to the device and rates back.

Supported are harmonic staleness, binary freshness, accumulated delay and age, Poisson and periodic, and power
costs without a cap; bounds and unequal refresh costs; signalled sources if the columns are on the host. Host
limits, weekly profiles, declared constraints and other objectives are refused by one line that names the
solver to use.

With float32 a source takes 12 bytes. Sums are added in a fixed order: the same input gives the same bits on
one kind of device, though not those of the host. Certificates of more than a few hundred sources stay below
1e-9.
"""

from __future__ import annotations

from freshopt.cuda.device_problem import DeviceProblem as DeviceProblem
from freshopt.cuda.device_solution import DeviceSolution as DeviceSolution

__all__ = ["DeviceProblem", "DeviceSolution"]

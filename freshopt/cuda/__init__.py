"""Solving on a CUDA device: search, proof and rates."""

from __future__ import annotations

from freshopt.cuda.device_problem import DeviceProblem as DeviceProblem
from freshopt.cuda.device_solution import DeviceSolution as DeviceSolution

__all__ = ["DeviceProblem", "DeviceSolution"]

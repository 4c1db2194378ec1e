"""Measurements of the claims on change-rate estimators (Avrachenkov, Patil, Thoppe, 2022).

Theorems and remarks are in `estimators_theory`, Figures 1 to 5 in `estimators_figures`, other crawl gaps and
the cost of an observation in `estimators_gaps`, section 5 in `estimators_adaptive`.
"""

from __future__ import annotations

from benchmarks.reproduce import estimators_adaptive, estimators_figures, estimators_gaps, estimators_theory
from benchmarks.reproduce.claims import Measurements

PARTS = (estimators_theory, estimators_figures, estimators_gaps, estimators_adaptive)
measure = Measurements([group for part in PARTS for group in part.measure.groups])

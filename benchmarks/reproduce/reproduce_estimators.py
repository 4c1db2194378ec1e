"""Measurements of the claims on change-rate estimators (Avrachenkov, Patil, Thoppe, 2022).

Theorems and remarks are in `estimators_theory`, Figures 1 to 5 in `estimators_figures`, other crawl gaps and
the cost of an observation in `estimators_gaps`, section 5 in `estimators_adaptive`.
"""

from __future__ import annotations

import estimators_adaptive
import estimators_figures
import estimators_gaps
import estimators_theory
from claims import Measurements

PARTS = (estimators_theory, estimators_figures, estimators_gaps, estimators_adaptive)
measure = Measurements([group for part in PARTS for group in part.measure.groups])

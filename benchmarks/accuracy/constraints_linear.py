"""Linear programs: freshness of sources that announce their changes, under budgets, against HiGHS."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

import freshopt as fo
from benchmarks.accuracy.constraints_families import MET, Row, measured
from freshopt.problems import BinaryFreshness
from freshopt.solvers import InteriorPoint

LINEAR = 1e-10
# HiGHS ends within 1e-7 of feasibility by default; values then agree to less than this.
HIGHS = 1e-6


def linear(count: int, quick: bool) -> Row:
    """Return random linear programs, a third of them with ties, half of them ill-scaled."""

    def one(seed: int) -> Row:
        rng = np.random.default_rng([seed, 9])
        n, m, ill = 300, int(rng.integers(2, 13)), seed % 2 == 1
        d = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 1.0, n)
        w, a = rng.lognormal(0.0, 3.0 if ill else 1.0, n), rng.lognormal(0.0, 1.5 if ill else 0.5, (m, n))
        if seed % 3 == 0:
            # Few kinds of sources: whole groups have one marginal value per unit of every budget.
            kind = rng.integers(0, 12, n)
            d, w, a = d[kind], w[kind], a[:, kind]
        limits = (a @ d) * rng.uniform(0.1, 0.7, m)
        sources = fo.Sources(d, w, signalled=np.ones(n, dtype=np.bool_))
        rows = [
            fo.Budget(float(b), cost=c, name=f"row {j}")
            for j, (b, c) in enumerate(zip(limits, a, strict=True))
        ]
        solution = fo.solve(
            fo.Problem(BinaryFreshness(), sources, constraints=rows), InteriorPoint(), throw=False
        )
        proof = solution.certificate
        if proof is None:
            return {"error": solution.note}
        y = np.array([solution.prices[f"row {j}"] for j in range(m)])
        lost = float(np.sum(w * (1.0 - solution.rates / d)))
        # Over ρ/Δ; the loss is Σ w less what is fresh.
        other = linprog(
            -w, A_ub=a * d / limits[:, None], b_ub=np.ones(m), bounds=[(0.0, 1.0)] * n, method="highs"
        )
        size = lost + float(y @ limits)
        return {
            "certified": proof.gap / size,
            "beside HiGHS": abs(lost - float(np.sum(w) + other.fun)) / size,
            "limits missed": max(0.0, float(np.max(a @ solution.rates / limits - 1.0))),
            "passes": solution.iterations,
        }

    band = {"certified": LINEAR, "beside HiGHS": HIGHS, "limits missed": MET}
    return measured("linear programs", band, count, one, quick)

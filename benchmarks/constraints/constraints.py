"""Measure how exact declared constraints are solved, proved, and refused where they conflict.

    python -m benchmarks constraints [--quick] [--checks 10000] [--families budgets leximin ...] [--save]

Stated before the run; ill-scaled means w lognormal of σ 3, Δ over ten decades, coefficients lognormal of σ
1.5, and is every second instance. ``certified`` is the duality gap over |F| + Σ y|b|, and every limit is to
be met to 1e-12.

budgets, targets, ε-constraint  186 + 96 + 48 instances with planted optimum (2 to 60 rows, n = 300; rows
            without a price, degenerate multipliers, bounds that just touch) by `fo.solve`: certified ≤ 1e-12,
            within 2e-12 of the planted value
nested      156 trees of 3 to 169 groups with limits and reserves, by `fo.Nested`: KKT residual ≤ 1e-14
nested targets  156 trees of targets by `fo.Target`, one a level: KKT residual ≤ 1e-14
minimax     112 with planted optimum, groups overlapping, on the general program: certified ≤ 1e-12
leximin     20 of disjoint groups by `fo.Worst(..., then="next")`: worst level certified ≤ 1e-12, all levels
            within 1e-5 of successive minimax by CLARABEL
certificate fuzz  at least 10⁴ bounds for random feasible rates at random prices, on declared problems by
            `fo.certify` and on general programs: 0 below the planted loss, while half of the bound is below
            it in more than 1 %
infeasible  60 problems that miss by 1e-4 to 43 %: 60 proved and named by an irreducible set of rows, 60 of
            their feasible twins solved, 0 false alarms
linear      180 linear programs (announced changes under 2 to 12 budgets, a third with ties) by
            `InteriorPoint`: certified ≤ 1e-10, within 1e-6 of HiGHS

Optima, KKT residuals and feasibility are checked by the formulas of `tests/ground_truth`. --quick takes a few
instances of each family.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.constraints.constraints_families import (
    Row,
    leximin,
    linear,
    minimax,
    nested,
    nested_targets,
    planted,
)
from benchmarks.constraints.constraints_proofs import fuzz, infeasible
from benchmarks.harness import Claims, Measurement, Record, by

COUNTS = {"budgets": 186, "targets": 96, "mixed": 48, "minimax": 112, "leximin": 20, "infeasible": 60}
LINEAR = 180


FAMILIES: dict[str, Callable[[bool], Row]] = {
    **{name: partial(planted, name, COUNTS[name]) for name in ("budgets", "targets", "mixed")},
    "nested": nested,
    "nested_targets": nested_targets,
    "minimax": partial(minimax, COUNTS["minimax"]),
    "leximin": partial(leximin, COUNTS["leximin"]),
    "infeasible": partial(infeasible, COUNTS["infeasible"]),
    "linear": partial(linear, LINEAR),
}


def rows(
    families: tuple[str, ...] = (*FAMILIES, "fuzz"), checks: int = 10_000, few: bool = False
) -> Iterator[Row]:
    """Yield the families that are asked for; the others stay as saved."""
    warnings.simplefilter("ignore")
    for name in families:
        yield {"key": name, **(fuzz(checks) if name == "fuzz" else FAMILIES[name](few))}


def claims(record: Record) -> Claims:
    """Yield that verdicts are those of the instances, and that all instances were measured."""
    full = {**COUNTS, "nested": 156, "nested_targets": 156, "linear": LINEAR}
    for row in record["rows"]:
        outside = [*row.get("outside", ()), *row.get("errors", ())]
        yield f"{row['family']}: outside {outside}", row["met"] == (not outside)
        if row["key"] == "fuzz":
            yield f"{row['violations']} violations", row["violations"] == 0
        elif not record["quick"]:
            yield f"{row['family']}: {row['instances']} instances", row["instances"] == full[row["key"]]
        if row["key"] == "infeasible":
            yield f"{row['false alarms']} false alarms", row["false alarms"] == 0
        if row["key"] == "fuzz" and not record["quick"]:
            enough = row["checks"] >= 10_000 and row["halved"] > 100
            yield f"{row['checks']} bounds, half of {row['halved']} would not hold", enough


BENCH = Measurement(
    {"rows": rows},
    quick={"few": True, "checks": 200},
    facts=("quick", "load"),
    merge=by("key"),
    claims=claims,
)

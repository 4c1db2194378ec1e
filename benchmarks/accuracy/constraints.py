"""Measure how exact declared constraints are solved, proved, and refused where they conflict.

    python -m benchmarks.accuracy.constraints [--quick] [--checks 10000] [--families budgets leximin ...]
        [--save FILE]

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

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from benchmarks.accuracy.constraints_fairness import leximin
from benchmarks.accuracy.constraints_families import Row, minimax, nested, nested_targets, planted
from benchmarks.accuracy.constraints_linear import linear
from benchmarks.accuracy.constraints_proofs import fuzz, infeasible

COUNTS = {"budgets": 186, "targets": 96, "mixed": 48, "minimax": 112, "leximin": 20, "infeasible": 60}
LINEAR = 180
# Checks of a quick run.
FEW = 200


def families(checks: int, *, quick: bool) -> dict[str, Callable[[], Row]]:
    """Return what measures each family."""
    return {
        "budgets": lambda: planted("budgets", COUNTS["budgets"], quick),
        "targets": lambda: planted("targets", COUNTS["targets"], quick),
        "mixed": lambda: planted("mixed", COUNTS["mixed"], quick),
        "nested": lambda: nested(quick),
        "nested_targets": lambda: nested_targets(quick),
        "minimax": lambda: minimax(COUNTS["minimax"], quick),
        "leximin": lambda: leximin(COUNTS["leximin"], quick),
        "fuzz": lambda: fuzz(FEW if quick else checks),
        "infeasible": lambda: infeasible(COUNTS["infeasible"], quick),
        "linear": lambda: linear(LINEAR, quick),
    }


def line(row: Row) -> str:
    """Return a family's line."""
    told = []
    for key, value in row.items():
        if key in ("key", "family", "instances", "band", "outside", "errors", "met", "seconds"):
            continue
        told.append(f"{key} {value:.2g}" if isinstance(value, float) else f"{key} {value}")
    verdict = "met" if row["met"] else f"NOT MET {row.get('outside', '')} {row.get('errors', '')}"
    return f"{row['family']:26}{row['instances']:5}  {', '.join(told)}  ({row['seconds']} s)  {verdict}"


def main() -> None:
    """Measure the families, print a line of each and save them."""
    names = list(families(0, quick=True))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--checks", type=int, default=10_000)
    parser.add_argument(
        "--families",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help="the others stay as saved",
    )
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept: dict[str, Row] = {}
    if options.save and options.save.exists() and options.families != names:
        kept = {row["key"]: row for row in json.loads(options.save.read_text(encoding="utf-8"))["rows"]}
    chosen = families(options.checks, quick=options.quick)
    for name in options.families:
        kept[name] = {"key": name, **chosen[name]()}
        print(line(kept[name]), flush=True)
        if options.save:
            options.save.parent.mkdir(parents=True, exist_ok=True)
            rows = [kept[key] for key in names if key in kept]
            record = {"quick": options.quick, "load": os.getloadavg(), "rows": rows}
            text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
            options.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

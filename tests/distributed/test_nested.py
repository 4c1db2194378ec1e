"""Nested limits over partitions: optimality conditions, the answer in memory, edges, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.distributed import nested_tree
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.nested_truth import Floats, Forest, forest, residuals
from tests.ground_truth.partitioned import rates_of, write
from tests.ground_truth.tolerances import EXACT

OBJECTIVES = {
    "harmonic": HarmonicStaleness(),
    "delay": AccumulatedDelay(),
    "binary": BinaryFreshness(),
    "jump": BinaryFreshness(),
}
# Sources that a worker may gather: none, so that all prices are searched in passes; a few; all.
GATHERED = (0, 20, 10**6)
USUAL = {("harmonic", 3), ("delay", 5), ("binary", 2), ("jump", 7), ("harmonic", 9), ("jump", 4)}


def levels_of(case: Forest) -> list[list[str | None]]:
    """Return the groups of each source, level by level, innermost first."""
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in case.member]
    # Of groups with the same sources the earlier ones are inside.
    depth = [
        sum(own < other or (own == other and k > g) for k, other in enumerate(sets))
        for g, own in enumerate(sets)
    ]
    levels: list[list[str | None]] = []
    for deep in range(max(depth), -1, -1):
        labels: list[str | None] = [None] * len(case.cost)
        for g in (g for g in range(len(sets)) if depth[g] == deep):
            for k in sets[g]:
                labels[k] = f"g{g}"
        levels.append(labels)
    return levels


def frame_of(case: Forest, seed: int) -> pl.DataFrame:
    """Return the sources in any order, with a column per level."""
    columns: dict[str, Any] = {
        "source": np.arange(len(case.cost)),
        "change_rate": case.change,
        "importance": case.weight,
        "refresh_cost": case.cost,
        "min_rate": case.lower,
        "max_rate": case.upper,
    }
    if case.curve == "jump":
        columns["signalled"] = np.ones(len(case.cost), dtype=bool)
    columns |= {f"level{k}": pl.Series(labels, dtype=pl.String) for k, labels in enumerate(levels_of(case))}
    return pl.DataFrame(columns)[np.random.default_rng(seed).permutation(len(case.cost))]


def nested(case: Forest, levels: Any) -> fo.Nested:  # noqa: ANN401
    limits = {f"g{g}": float(v) for g, v in enumerate(case.limit) if np.isfinite(v)}
    reserves = {f"g{g}": float(v) for g, v in enumerate(case.reserve) if v > 0.0}
    return fo.Nested(levels, limits, reserves or None, name="tree")


def solved(case: Forest, folder: Path, seed: int, **options: Any) -> tuple[Any, Floats, Floats, Floats]:  # noqa: ANN401
    """Solve a case over four files, one of them empty; return the solution, rates, and multipliers."""
    frame = frame_of(case, seed)
    write(folder, frame, 3)
    frame[:0].write_parquet(folder / "001a.parquet")
    columns = [name for name in frame.columns if name.startswith("level")]
    found = fo.distributed.solve(
        OBJECTIVES[case.curve], folder, constraints=[nested(case, columns)], tolerance=EXACT, **options
    )
    rates = np.empty(len(case.cost))
    rates[frame["source"].to_numpy()] = rates_of(found)
    price = [
        np.array([found.prices.get(f"{name}[g{g}]", 0.0) for g in range(len(case.limit))])
        for name in ("tree", "tree reserve")
    ]
    return found, rates, price[0], price[1]


@pytest.mark.parametrize("gathered", GATHERED)
@pytest.mark.parametrize(
    ("curve", "seed"),
    [
        pytest.param(curve, seed, marks=[] if (curve, seed) in USUAL else [pytest.mark.exhaustive])
        for seed in range(12)
        for curve in OBJECTIVES
    ],
)
def test_optimality_conditions(
    curve: str, seed: int, gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested_tree, "COLLECTED", gathered)
    case = forest(seed, curve, ill=seed % 2 == 1)
    found, rates, mu, xi = solved(case, tmp_path / "in", seed)
    assert np.all(mu >= 0.0)
    assert np.all(xi >= 0.0)
    checked = residuals(case, rates, mu, xi)
    assert checked.limits <= EXACT
    assert checked.reserves <= EXACT
    assert checked.bounds <= 0.0
    assert checked.gap <= EXACT
    assert found.relative_gap <= EXACT
    assert found.infeasibility == 0.0

"""Nested limits over partitions: optimality conditions, the answer in memory, edges, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.distributed import driver
from tests.ground_truth.named import BINARY, DELAY, chosen, present, written
from tests.ground_truth.nested_truth import Floats, Forest, forest, residuals
from tests.ground_truth.partitioned import rates_of, write
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

OBJECTIVES = {
    **chosen("harmonic", "delay", "binary"),
    "jump": BINARY,
}
# Sources that a worker may gather: none, so that all prices are searched in passes; a few; all.
GATHERED = (0, 20, 10**6)
USUAL = {("harmonic", 3), ("delay", 5), ("binary", 2), ("jump", 7)}


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
@pytest.mark.exhaustive
def test_optimality_conditions(
    curve: str, seed: int, gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    case = forest(seed, curve, ill=seed % 2 == 1)
    found, rates, mu, xi = solved(case, tmp_path / "in", seed)
    assert np.all(mu >= 0.0)
    assert np.all(xi >= 0.0)
    residuals(case, rates, mu, xi).require(EXACT, EXACT)
    assert found.relative_gap <= EXACT
    assert found.infeasibility == 0.0


def small(**columns: Any) -> pl.DataFrame:  # noqa: ANN401
    """Return six sources in three hosts of two domains."""
    frame = pl.DataFrame(
        {
            "change_rate": [1.0, 2.0, 4.0, 1.0, 2.0, 4.0],
            "host": ["a", "b", "c", "c", "b", "a"],
            "domain": ["x", "x", None, None, "x", "x"],
        }
    )
    return frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def tree(levels: Any, at_most: Any = None, at_least: Any = None) -> fo.Nested:  # noqa: ANN401
    return fo.Nested(levels, at_most, at_least, name="tree")


@pytest.mark.parametrize("gathered", GATHERED)
def test_prices_and_rows_are_those_of_memory(
    gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    frame, limits, reserves = small(), {"x": 2.0, "c": 1.5, "a": 0.9}, {"b": 0.8, "c": 0.3}
    sources = fo.Sources.from_frame(frame)
    arrays = [np.array(frame[name].to_list(), dtype=object) for name in ("host", "domain")]
    more = fo.Budget({"a": 0.7}, by="host", name="again")
    memory = fo.solve(fo.Problem(DELAY, sources, 3.0, constraints=[tree(arrays, limits, reserves), more]))
    found = fo.distributed.solve(
        DELAY,
        write(tmp_path / "in", frame, 4),
        3.0,
        constraints=[tree(["host", "domain"], limits, reserves), more],
    )
    assert rates_of(found) == pytest.approx(memory.rates, rel=SCALAR)
    # In memory the first limits on disjoint groups come first.
    assert set(found.prices) == set(memory.prices)
    names = [label for label in found.prices if label.startswith("tree")]
    assert names == ["tree[x]", "tree[c]", "tree[a]", "tree reserve[b]", "tree reserve[c]"]
    for label, price in memory.prices.items():
        assert found.prices[label] == pytest.approx(price, rel=1e-8, abs=EXACT)
    for row in present(present(memory.certificate).rows):
        assert present(found.rows)[row.label].used == pytest.approx(row.used, rel=SCALAR)
        assert present(found.rows)[row.label].limit == row.limit
    again = rates_of(found)
    assert np.array_equal(again, rates_of(found))


@pytest.mark.parametrize("gathered", GATHERED)
def test_a_source_alone_and_equal_sources(
    gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Σ 1/ρ, Σρ ≤ 4, two of four equal sources held to 1 together: ρ = .5 and 1.5, μ = 1/.5² − 1/1.5².
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    frame = pl.DataFrame({"change_rate": np.ones(4), "g": ["p", "q", "q", "p"]})
    found = fo.distributed.solve(
        DELAY, write(tmp_path / "in", frame, 2), 4.0, constraints=[tree(["g"], {"p": 1.0})]
    )
    assert rates_of(found) == pytest.approx([0.5, 1.5, 1.5, 0.5], rel=EXACT)
    assert dict(found.prices) == pytest.approx({"bandwidth": 1 / 2.25, "tree[p]": 4 - 1 / 2.25}, rel=1e-8)
    alone = pl.DataFrame({"change_rate": [1.0], "g": ["p"]})
    one = fo.distributed.solve(
        DELAY, write(tmp_path / "one", alone, 1), constraints=[tree(["g"], {"p": 2.0})]
    )
    assert rates_of(one) == pytest.approx([2.0], rel=EXACT)
    assert one.bandwidth == np.inf


@pytest.mark.parametrize("gathered", GATHERED)
def test_bounds_that_use_up_a_limit_or_are_a_reserve(
    gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    frame = pl.DataFrame(
        {
            "change_rate": np.ones(5),
            "min_rate": [0.5, 0.5, 0.0, 0.0, 0.0],
            "max_rate": [np.inf, np.inf, np.inf, np.inf, 0.25],
            "g": ["p", "p", "q", "q", "r"],
        }
    )
    nested_limits = tree(["g"], {"p": 1.0}, {"r": 0.25})
    found = fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 3), 4.25, constraints=[nested_limits])
    assert rates_of(found) == pytest.approx([0.5, 0.5, 1.5, 1.5, 0.25], rel=SCALAR)
    assert found.prices["tree[p]"] == pytest.approx(4.0 - 1.0 / 2.25, rel=1e-8)
    assert found.prices["tree reserve[r]"] == 0.0
    starved = frame.with_columns(min_rate=pl.Series([1.0, 0.0, 0.0, 0.0, 0.0]))
    with pytest.raises(fo.InfeasibleProblemError, match="leave nothing for the other sources"):
        fo.distributed.solve(DELAY, write(tmp_path / "no", starved, 3), 4.25, constraints=[nested_limits])


# (ρ − 1)², whose marginal changes its sign at the rate 1.
Square = written("Square", lambda rate, sources: cp.multiply(sources.importance, cp.square(rate - 1.0)))


# (1 − ρ)⁺, of which nothing is left beyond the rate 1.
Shortfall = written("Shortfall", lambda rate, sources: cp.multiply(sources.importance, cp.pos(1.0 - rate)))


@pytest.mark.parametrize("gathered", GATHERED)
@pytest.mark.parametrize(
    ("objective", "price"), [pytest.param(Square(), 1.0, marks=pytest.mark.exhaustive), (Shortfall(), 0.0)]
)
def test_reserves_beyond_what_gains_anything(
    objective: fo.Objective, price: float, gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sources that gain nothing beyond 1 share a reserve of 3; d(ρ−1)²/dρ at 1.5 is 1."""
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    frame = pl.DataFrame({"change_rate": np.ones(4), "g": ["p", "q", "q", "p"]})
    folder = write(tmp_path / "in", frame, 2)
    found = fo.distributed.solve(objective, folder, 20.0, constraints=[tree(["g"], None, {"q": 3.0})])
    assert rates_of(found) == pytest.approx([1.0, 1.5, 1.5, 1.0], rel=SCALAR)
    assert found.prices["tree reserve[q]"] == pytest.approx(price, rel=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_infeasible_groups_are_named_as_in_memory(seed: int, tmp_path: Path) -> None:
    case = forest(seed, "delay", ill=False, groups=8)
    rng = np.random.default_rng(seed)
    case = replace(case, reserve=case.reserve * np.where(rng.random(len(case.reserve)) < 0.5, 1.0, 1.6))
    frame = frame_of(case, seed)
    names = [name for name in frame.columns if name.startswith("level")]
    arrays = [np.array(frame[name].to_list(), dtype=object) for name in names]
    try:
        memory = fo.solve(
            fo.Problem(OBJECTIVES["delay"], fo.Sources.from_frame(frame), constraints=[nested(case, arrays)])
        )
    except fo.InfeasibleProblemError as error:
        expected = str(error)
        with pytest.raises(fo.InfeasibleProblemError) as caught:
            solved(case, tmp_path / "in", seed)
        assert expected.endswith(str(caught.value))
    else:
        found, _, _, _ = solved(case, tmp_path / "in", seed)
        assert found.value == pytest.approx(memory.value, rel=EXACT)


def test_overlapping_groups_are_refused(tmp_path: Path) -> None:
    # Host b is in the domain x and c in none; of two tiers each has sources of both.
    folder = write(tmp_path / "in", small(tier=[1, 2, 1, 2, 1, 2]), 2)
    overlap = [tree(["host", "domain"], {"x": 2.0}), fo.Budget({1: 1.0}, by="tier", name="tier")]
    with pytest.raises(fo.SolverRefusedError, match=r"overlap, .* fo\.solve"):
        fo.distributed.solve(DELAY, folder, 3.0, constraints=overlap)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (tree(["host", "domain"], {"mars": 1.0}), "names unknown groups 'mars'"),
        (tree(["host", "host"], {"a": 1.0}), "has the group 'a' in two levels"),
        (tree(["domain", "host"], {"x": 1.0, "a": 1.0}), "'x' is in .* Groups must be nested"),
        (tree(["none"], {"a": 1.0}), "names the column 'none'"),
        (tree(["host"], {"a": 1.0}), "no constraint bounds the rate of row"),
    ],
)
def test_what_is_refused_and_why(constraint: fo.Nested, words: str, tmp_path: Path) -> None:
    refused(words, fo.distributed.solve, DELAY, write(tmp_path / "in", small(), 2), constraints=[constraint])


def test_columns_of_a_constraint_are_none_of_a_table_in_memory() -> None:
    refused("'domain'", fo.Problem, DELAY, fo.Sources([1.0]), 1.0, constraints=[tree(["domain"], {"x": 1.0})])

"""Columns of one's own ride with the sources; change rates are there where an objective asks for them."""

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.certificates.solver_protocol import Solver
from freshopt.cvx import Expression, cp
from freshopt.modelling.failing_fetches import retried_at_once
from freshopt.testing.recipe import Recipe
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import CONIC, EXACT

COLUMNS: dict[str, Any] = {"size": [1.0, 4.0, 9.0], "kind": ["page", "feed", "page"], "seen": 2}


class Sized(fo.Objective):
    """Size times the mean gap."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance * sources["size"], cp.inv_pos(rate))


def test_columns_are_checked_and_frozen() -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], columns=COLUMNS)
    assert sources["size"].tolist() == [1.0, 4.0, 9.0]
    assert sources["kind"].tolist() == COLUMNS["kind"]
    assert sources["seen"].tolist() == [2.0, 2.0, 2.0]
    assert sources["change_rate"].tolist() == [1.0, 2.0, 3.0]
    assert [*sources.columns] == [*COLUMNS]
    with pytest.raises(ValueError, match="read-only"):
        sources["size"][0] = 2.0
    with pytest.raises(TypeError):
        sources.columns["size"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    "made",
    [
        lambda s: s.take(np.array([2, 0])),
        lambda s: s.take(slice(None, None, -2)),
        lambda s: pickle.loads(pickle.dumps(s)).take(np.array([2, 0])),
        lambda s: s.with_change_rate(2.0).take(np.array([2, 0])),
        lambda s: s.with_importance(2.0).take(np.array([2, 0])),
        lambda s: retried_at_once(s).take(np.array([2, 0])),
        lambda s: s.never_failing().take(np.array([2, 0])),
        lambda s: fo.Sources.from_frame(s.to_frame(), columns=["size", "kind"]).take(np.array([2, 0])),
        lambda s: Recipe.from_problem(fo.Problem(Sized(), s, 3.0)).take(np.array([2, 0])).problem().sources,
    ],
)
def test_columns_are_taken_along(made: Callable[[fo.Sources], fo.Sources]) -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], success=0.5, columns=COLUMNS)
    found = made(sources)
    assert found["size"].tolist() == [9.0, 1.0]
    assert found["kind"].tolist() == ["page", "page"]


@pytest.mark.parametrize(
    ("columns", "pattern"),
    [
        ({"size": [1.0, 2.0]}, r"size has length 2 but change_rate has 3"),
        ({"size": [1.0, np.nan, 2.0]}, r"column 'size' has entries that are not finite"),
        ({"host": [1.0, 2.0, 3.0]}, r"columns has 'host', which is no name that is free"),
        ({1: [1.0, 2.0, 3.0]}, r"columns has 1, which"),
        ({"kind": ["a", None, "b"]}, r"column 'kind' has entries of several kinds"),
        ([1.0, 2.0, 3.0], r"columns is \[1.0, 2.0, 3.0\]\. Pass a mapping"),
        (
            {"size": np.array(["2026-01-01"] * 3, dtype="M8[D]")},
            r"column 'size' must be numbers, and has dates",
        ),
    ],
)
def test_columns_that_are_none(columns: Mapping[str, object], pattern: str) -> None:
    refused(pattern, fo.Sources, [1.0, 2.0, 3.0], columns=columns)


def test_a_column_that_is_not_there() -> None:
    refused(r"no column 'sise', but 'size'\. Pass", lambda: fo.Sources([1.0], columns={"size": 1})["sise"])
    refused(r"no column 'size', but none of your own", lambda: fo.Sources([1.0])["size"])
    frame = pl.DataFrame({"change_rate": [1.0]})
    refused(r"has no column 'size'", fo.Sources.from_frame, frame, columns=["size"])


def test_arrays_of_an_objective_name_take_and_columns() -> None:
    class Fixed(fo.Objective):
        def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
            return cp.multiply(np.array([1.0, 2.0, 3.0]) * sources.importance, cp.inv_pos(rate))

    whole = fo.Sources([1.0, 2.0, 3.0])
    fo.Problem(Fixed(), whole, 3.0)
    refused(
        r"Sources\(columns=...\), or are cut by the objective's take\(index\)",
        lambda: fo.Problem(Fixed(), whole.take(slice(2)), 3.0),
        error=fo.ObjectiveError,
    )


@pytest.mark.parametrize(
    "solver",
    [None, fo.solvers.WaterFilling(), fo.solvers.SeparableNewton(), fo.solvers.Conic("CLARABEL")],
)
def test_no_change_rate_where_none_is_asked_for(solver: Solver | None) -> None:
    sources = fo.Sources(columns=COLUMNS, max_rate=[np.inf, np.inf, 2.0])
    problem = fo.Problem(Sized(), sources, bandwidth=5.0)
    found = fo.solve(problem) if solver is None else fo.solve(problem, solver)
    # √size in proportion under the bound: 1, 2 and 2.
    near = 1e-3 if isinstance(solver, fo.solvers.Conic) else 1e-9
    assert found.rates == pytest.approx([1.0, 2.0, 2.0], rel=near)
    assert found.value == pytest.approx(1.0 + 2.0 + 4.5, rel=CONIC if near > EXACT else EXACT)
    assert len(fo.schedule(found, 4.0)) > 0
    assert "change_rate" not in sources.to_frame().columns
    assert "change_rate" not in repr(sources)


def test_who_asks_for_change_rates_is_told() -> None:
    sources = fo.Sources(columns=COLUMNS)
    refused(r"the sources have no change rates\. Pass", lambda: sources.change_rate)
    refused(r"the sources have no change rates", lambda: fo.Problem("binary", sources, 1.0))
    refused(r"signalled sources need change rates", fo.Sources, signalled=[True, False], names=["a", "b"])
    refused(r"there are no sources\. Pass change_rate=", fo.Sources)
    refused(r"there are no sources\. Pass change_rate=", fo.Sources, max_rate=2.0)


def test_any_column_tells_how_many_sources_there_are() -> None:
    two = [1.0, 2.0]
    for sources in (
        fo.Sources(refresh_cost=two),
        fo.Sources(min_rate=two),
        fo.Sources(max_rate=two),
        fo.Sources(request_rate=two),
    ):
        assert len(sources) == 2


def test_own_constraints_use_own_columns() -> None:
    sources = fo.Sources(columns={"size": [1.0, 4.0, 9.0], "bytes": [1.0, 5.0, 5.0]})

    def bytes_a_day(rate: Expression) -> Expression:
        return cp.sum(cp.multiply(sources["bytes"], rate)) <= 12.0

    found = fo.solve(fo.Problem(Sized(), sources, 6.0, constraints=[bytes_a_day]))
    used = float(sources["bytes"] @ found.rates)
    assert used <= 12.0 * (1.0 + CONIC)
    assert present(found.certificate).relative_gap < CONIC
    # With all of both limits used, √(size/(λ + μ·bytes)) solves a linear problem in the last two rates.
    assert float(np.sum(found.rates)) <= 6.0 * (1.0 + CONIC)
    assert found.value == pytest.approx(_least_under_bytes(), rel=CONIC)


def _least_under_bytes() -> float:
    """Return the least cost by a search on the first rate, the two others being in proportion 2 to 3."""
    first = np.linspace(0.5, 6.0, 200_001)
    rest = np.minimum(6.0 - first, (12.0 - first) / 5.0)
    with np.errstate(divide="ignore"):
        cost = np.where(rest > 0.0, 1.0 / first + 25.0 / rest, np.inf)
    return float(np.min(cost))


def test_constraints_name_columns() -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], columns=COLUMNS)
    size, kind = np.array(COLUMNS["size"]), np.array(COLUMNS["kind"])
    by_name = [fo.Budget(9.0, cost="size", name="bytes"), fo.Budget({"feed": 0.5}, by="kind")]
    by_value = [fo.Budget(9.0, cost=size, name="bytes"), fo.Budget({"feed": 0.5}, by=kind)]
    found, same = (
        fo.solve(fo.Problem(Sized(), sources, 9.0, constraints=[*limits, fo.Tied(by)])).rates.tolist()
        for limits, by in ((by_name, "kind"), (by_value, kind))
    )
    assert found == same
    worst = [fo.solve(fo.Problem(fo.Worst(Sized(), by=by), sources, 9.0)).value for by in ("kind", kind)]
    assert worst[0] == worst[1]
    for wrong, said in (
        (fo.Budget(2.0, cost="bytes"), "no column 'bytes', but 'size', 'kind', 'seen'"),
        (fo.Budget(2.0, cost="kind"), "must be numbers"),
        (fo.Budget(2.0, by="tier"), "by 'tier' but there is no column"),
        (fo.Tied("tier"), "by 'tier' but there is no column"),
    ):
        refused(said, fo.Problem, Sized(), sources, 9.0, constraints=[wrong])

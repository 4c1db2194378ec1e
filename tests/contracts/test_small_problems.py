"""Budgets met exactly, random constraints, and sources that are float32."""

import math
import re
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import freshopt as fo
from freshopt.cvx import quiet
from freshopt.problems import PollingKnapsack
from freshopt.solvers import SeparableNewton, WaterFilling
from freshopt.testing import standard_objectives
from tests.contracts import discovery
from tests.contracts.discovery import Cell
from tests.ground_truth import named
from tests.ground_truth.constrained_strategies import Drawn, constrained_problems
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import exhaustive, matrix, rare, stratified
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

BASE = np.array([1.0, 2.0, 5.0])
WIDE = np.asfortranarray(np.column_stack([BASE, BASE]))


class Own(np.ndarray):
    """A subclass, as other libraries have them."""


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


KINDS: dict[str, Any] = {
    "float32": BASE.astype(np.float32),
    "float16": BASE.astype(np.float16),
    "long double": BASE.astype(np.longdouble),
    "the other byte order": BASE.astype(">f8"),
    "whole numbers": BASE.astype(np.int64),
    "objects": BASE.astype(object),
    "read-only": frozen(BASE.copy()),
    "strided": np.column_stack([BASE, BASE])[:, 0],
    "backwards": BASE[::-1].copy()[::-1],
    "Fortran": WIDE[:, 1],
    "subclass": BASE.view(Own),
    "nothing masked": np.ma.masked_array(BASE, mask=[False, False, False]),
    "list": [1, 2, 5],
    "tuple": (1.0, 2, 5),
    "pandas": pd.Series(BASE, index=[7, 8, 9]),
    "pandas Int64": pd.Series([1, 2, 5], dtype="Int64"),
    "polars": pl.Series(BASE),
    "polars Float32": pl.Series(BASE, dtype=pl.Float32),
    "pyarrow": pa.array(BASE),
    "pyarrow chunks": pa.chunked_array([[1.0], [2.0, 5.0]]),
}


STANDARD = [discovery.Cell(objective) for objective in standard_objectives()]
OTHERS = [cell for cell in discovery.cells().values() if cell.fetches != "plain" or cell.on_request]
CELLS = [*stratified(STANDARD, every=1), *stratified(OTHERS, every=7)]


def suited(cell: discovery.Cell, rates: np.ndarray) -> dict[str, Any] | None:
    """Return the columns of a cell whose requests allow the rates, or None where it is refused."""
    more = cell.columns(3, 2.0 * rates)
    if cell.on_request:
        more["request_rate"] = np.maximum(more["request_rate"], rates)
    try:
        fo.Problem(discovery.sized(cell.objective, len(rates)), fo.Sources(rates, **more), 1.0)
    except fo.ObjectiveError:
        return None
    return more


@pytest.mark.parametrize("cell", CELLS, ids=repr)
@pytest.mark.sampled(5)
def test_budgets_at_the_sum_of_bounds(cell: discovery.Cell) -> None:
    """Each budget is solved, whichever of the bounds use it up, or is just short of what they need."""
    rng = np.random.default_rng(8)
    for n in (1, 2, 7):
        d, w, bound = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n), rng.uniform(0.05, 1.0, n)
        more, objective = suited(cell, bound), discovery.sized(cell.objective, n)
        if more is None:
            return
        used = fo.Problem(objective, fo.Sources(d, w, **more), 1.0).used_by_source(bound)
        needed = math.fsum(used)
        hosts, of_first = np.arange(n) % 2, math.fsum(used[::2])
        for budget in (np.nextafter(needed, 0.0), needed, np.nextafter(needed, np.inf)):
            fixed = fo.Sources(d, w, min_rate=bound, max_rate=bound, host=hosts, **more)
            for problem in (
                fo.Problem(objective, fo.Sources(d, w, min_rate=bound, **more), budget),
                fo.Problem(objective, fo.Sources(d, w, max_rate=bound, **more), budget),
                fo.Problem(objective, fixed, budget),
                fo.Problem(objective, fixed, 2.0 * budget, {0: of_first}),
            ):
                solution = fo.solve(problem)
                assert present(solution.certificate).confirms(SCALAR)
                assert np.all(np.abs(solution.rates - bound)[problem.upper == problem.lower] <= EXACT)


@pytest.mark.parametrize("cell", CELLS, ids=repr)
@pytest.mark.sampled(3)
def test_nothing_matters_and_all_alike(cell: discovery.Cell) -> None:
    for n in (1, 2, 7):
        more, objective = suited(cell, np.ones(n)), discovery.sized(cell.objective, n)
        if more is None:
            return
        alike: dict[str, Any] = {key: np.full(n, column[-1]) for key, column in more.items()}
        for weight in (0.0, 1.0):
            solution = fo.solve(
                fo.Problem(objective, fo.Sources(np.ones(n), np.full(n, weight), **alike), 1.0)
            )
            proof = present(solution.certificate)
            # The rate at which a late copy costs nothing is off by an ulp, of the lifetime.
            assert proof.relative_gap <= SCALAR or (cell.on_request and proof.vanishing)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_kind(kind: str) -> None:
    given, before = KINDS[kind], list(KINDS[kind])
    reference = fo.solve(fo.Problem(named.AGE, fo.Sources(BASE, BASE, max_rate=BASE), 2.0)).rates
    found = fo.solve(fo.Problem(named.AGE, fo.Sources(given, given, max_rate=given), 2.0)).rates
    assert np.all(np.abs(found / reference - 1.0) <= EXACT)
    assert list(given) == before


@matrix(n=[10_000, *rare(100_000)], each=[True, False])
def test_as_many_hosts_as_sources_and_one_host(each: bool, n: int) -> None:
    """A host each or all on one; the larger limits do not bind."""
    d = np.random.default_rng(9).lognormal(0.0, 1.0, n)
    budget = 0.3 * float(d.sum())
    host = np.arange(n) if each else np.zeros(n, dtype=np.int64)
    limits = dict.fromkeys(range(n), 0.2) if each else {0: budget / 3.0}
    solution = fo.solve(fo.Problem(named.HARMONIC, fo.Sources(d, host=host), budget, limits))
    assert present(solution.certificate).relative_gap <= EXACT
    spent = solution.rates if each else np.array([math.fsum(solution.rates)])
    assert np.all(spent <= np.array(list(limits.values())) * (1.0 + EXACT))


BOUNDED = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def row_values(drawn: Drawn, rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Return by how much of its limit each row is over, from CVXPY's evaluation."""
    rate = cp.Variable(len(rates), nonneg=True)
    rate.value = np.array(rates)
    found = []
    for constraint, (*_, limit) in zip(drawn.constraints(rate), drawn.rows, strict=True):
        found.append(float(np.max(constraint.violation())) / limit)
    return found


def least_excess(drawn: Drawn) -> float:
    """Return the least t for which every limit, raised by the factor 1 + t, can be met."""
    rate, t = cp.Variable(len(drawn.change_rate), nonneg=True), cp.Variable()
    raised = []
    for constraint, (*_, limit) in zip(drawn.constraints(rate), drawn.rows, strict=True):
        left = constraint.args[0]
        raised.append(left / limit <= 1.0 + t)
    program = cp.Problem(cp.Minimize(t), raised)
    with quiet:  # "may be inaccurate" is no error of ours
        program.solve(solver="CLARABEL")
    return float(program.value)


@settings(BOUNDED, max_examples=18)
@given(constrained_problems())
def test_every_problem_is_certified_or_its_conflict_is(drawn: Drawn) -> None:
    solution = fo.solve(drawn.problem, throw=False)
    if solution.status is fo.Status.INFEASIBLE:
        assert "\n" not in solution.note
        assert re.search(r"\d", solution.note)
        if drawn.benign:
            assert least_excess(drawn) > -CONIC
        return
    proof = present(solution.certificate)
    assert proof.relative_gap <= 1e-6
    assert max(row_values(drawn, solution.rates)) <= 1e-9
    assert proof.rows is None or np.all(proof.rows.slack >= 0.0)


@settings(BOUNDED, max_examples=8)
@given(constrained_problems(benign=True))
def test_benign_problems_agree_with_cvxpy(drawn: Drawn) -> None:
    program, _ = drawn.program()
    with quiet:  # "may be inaccurate" is no error of ours
        program.solve(solver="CLARABEL")
    solution = fo.solve(drawn.problem, throw=False)
    if solution.status is fo.Status.INFEASIBLE:
        assert program.status in ("infeasible", "infeasible_inaccurate") or least_excess(drawn) > -CONIC
        return
    if program.status != "optimal":  # nothing to compare with, and the certificate says it all
        assert present(solution.certificate).relative_gap <= 1e-6
        return
    value = solution.value
    if drawn.problem.objective.sense == "maximise":
        value = float(np.sum(drawn.importance)) - value
    assert value == pytest.approx(program.value, rel=1e-5)


N = 3000
OBJECTIVES = [
    named.HARMONIC,
    named.HARMONIC_PERIODIC,
    named.BINARY,
    named.BINARY_PERIODIC,
    named.DELAY,
    named.AGE,
    named.AGE_PERIODIC,
    PollingKnapsack(),
    PollingKnapsack(form="materials"),
]
COMPILED = [OBJECTIVES[k] for k in (0, 3, 4)]  # compiling takes time
CASES = [*((Cell(each), "0") for each in OBJECTIVES), *((Cell(each), "1") for each in COMPILED)]
FLOAT32_OTHERS = [
    Cell(named.HARMONIC_ON_REQUEST),
    Cell(named.BINARY_ON_REQUEST, "windows"),
    Cell(named.DELAY_PERIODIC, "failing"),
    Cell(named.HARMONIC, "failing"),
    Cell(named.BINARY, "conditional"),
    Cell(named.AGE_PERIODIC, "conditional"),
]
COMPILED_OTHERS = [pytest.param(each, "1", marks=exhaustive) for each in FLOAT32_OTHERS]


def columns() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    d = rng.lognormal(0.0, 3.0, N).astype(np.float32)
    return d, rng.lognormal(0.0, 2.0, N).astype(np.float32)


def test_narrow_columns_are_kept_and_never_copied() -> None:
    d, w = columns()
    sources = fo.Sources(d, w)
    assert np.shares_memory(sources.column("change_rate"), d)
    assert np.shares_memory(sources.take(slice(10, 20)).column("importance"), w)
    assert not sources.column("importance").flags.writeable
    assert sources.change_rate.dtype == sources.importance.dtype == np.float64
    assert np.array_equal(sources.change_rate, d.astype(np.float64))
    assert sources.to_frame()["change_rate"].to_list() == d.tolist()


@pytest.mark.parametrize("key", ["importance", "min_rate", "max_rate", "refresh_cost", "signalled"])
def test_columns_of_one_number_are_shared_and_cannot_be_changed(key: str) -> None:
    one, other = (getattr(fo.Sources([rate, 2.0], signalled=True), key) for rate in (1.0, 3.0))
    assert np.shares_memory(one, other)
    assert one.dtype == (np.bool_ if key == "signalled" else np.float64)
    with pytest.raises(ValueError, match="WRITEABLE"):
        one.flags.writeable = True


@pytest.mark.parametrize(
    ("cell", "compiled"), [*CASES, *stratified(FLOAT32_OTHERS, ["0"], every=2), *COMPILED_OTHERS], ids=repr
)
@pytest.mark.sampled(15)
def test_as_if_widened(cell: Cell, compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    d, w = columns()
    bandwidth = 0.3 * float(np.sum(d, dtype=float))
    more = cell.columns(1, d.astype(float))
    narrow = fo.solve(fo.Problem(cell.objective, fo.Sources(d, w, **more), bandwidth), WaterFilling())
    widened = fo.Sources(d.astype(float), w.astype(float), **more)
    wide = fo.solve(fo.Problem(cell.objective, widened, bandwidth), WaterFilling())
    assert narrow.status is fo.Status.OPTIMAL
    assert np.allclose(narrow.rates, wide.rates, rtol=EXACT, atol=0.0)
    assert narrow.value == pytest.approx(wide.value, rel=EXACT)
    assert present(narrow.certificate).relative_gap <= EXACT


@pytest.mark.exhaustive
def test_hosts_signals_and_other_solvers() -> None:
    d, w = columns()
    host, signalled = np.arange(N) % 50, np.arange(N) % 7 == 0
    limits = dict.fromkeys(range(25), 0.004 * float(np.sum(d, dtype=float)))
    for solver in (WaterFilling(), SeparableNewton()):
        found = [
            fo.solve(
                fo.Problem(
                    named.HARMONIC,
                    fo.Sources(d.astype(kind), w.astype(kind), host=host, signalled=signalled),
                    0.3 * float(np.sum(d, dtype=float)),
                    limits,
                ),
                solver,
            )
            for kind in (np.float32, np.float64)
        ]
        assert found[0].value == pytest.approx(found[1].value, rel=EXACT)


def test_a_value_out_of_range_is_named() -> None:
    d, w = columns()
    d[7] = np.float32(np.inf)
    refused(r"change_rate out of range for source 7: inf", fo.Sources, d, w)

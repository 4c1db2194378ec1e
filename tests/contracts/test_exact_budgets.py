"""Budgets exactly at the sum of bounds and an ulp beside it, bounds that meet, and arrays of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import freshopt as fo
from freshopt.problems import Age, HarmonicStaleness
from freshopt.testing import standard_objectives
from tests.contracts import discovery
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import EXACT, SCALAR

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
                assert solution.certificate is not None
                assert solution.certificate.confirms(SCALAR)
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
            proof = solution.certificate
            assert proof is not None
            # The rate at which a late copy costs nothing is off by an ulp, of the lifetime.
            assert proof.relative_gap <= SCALAR or (cell.on_request and proof.vanishing)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_kind(kind: str) -> None:
    given, before = KINDS[kind], list(KINDS[kind])
    reference = fo.solve(fo.Problem(Age(), fo.Sources(BASE, BASE, max_rate=BASE), 2.0)).rates
    found = fo.solve(fo.Problem(Age(), fo.Sources(given, given, max_rate=given), 2.0)).rates
    assert np.all(np.abs(found / reference - 1.0) <= EXACT)
    assert list(given) == before


@pytest.mark.parametrize("n", [10_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("each", [True, False])
def test_as_many_hosts_as_sources_and_one_host(each: bool, n: int) -> None:
    """A host each or all on one; the larger limits do not bind."""
    d = np.random.default_rng(9).lognormal(0.0, 1.0, n)
    budget = 0.3 * float(d.sum())
    host = np.arange(n) if each else np.zeros(n, dtype=np.int64)
    limits = dict.fromkeys(range(n), 0.2) if each else {0: budget / 3.0}
    solution = fo.solve(fo.Problem(HarmonicStaleness(), fo.Sources(d, host=host), budget, limits))
    assert solution.certificate is not None
    assert solution.certificate.relative_gap <= EXACT
    spent = solution.rates if each else np.array([math.fsum(solution.rates)])
    assert np.all(spent <= np.array(list(limits.values())) * (1.0 + EXACT))

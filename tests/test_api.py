"""The public API with wrong arguments: an answer that holds, or one line of the library's own errors."""

from __future__ import annotations

import copy
import importlib
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt import learning
from tests.api_calls import CALLS
from tests.api_elsewhere import ELSEWHERE

PACKAGES = (
    "problems", "solvers", "learning", "scheduling", "simulation", "automata", "exporting", "io", "testing",
    "distributed",
)  # fmt: skip
ROOT = Path(__file__).parent
HOSTILE: dict[str, Any] = {
    "None": None,
    "empty text": "",
    "text": "nonsense",
    "bytes": b"\x00",
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "minus one": -1,
    "zero": 0,
    "half": 0.5,
    "true": True,
    "complex": 1j,
    "next to nothing": 1e-300,
    "huge": 1e300,
    "no float": 10**400,
    "least float": 5e-324,
    "largest float": 1.7976931348623157e308,
    "NumPy integer": np.int64(2),
    "minus zero": -0.0,
    "empty list": [],
    "one": [1.0],
    "nans": np.full(3, np.nan),
    "infs": np.full(3, np.inf),
    "zeros": np.zeros(3),
    "negative": -np.ones(3),
    "matrix": np.ones((3, 3)),
    "ragged": [[1.0], [1.0, 2.0]],
    "texts": ["x", "y", "z"],
    "mixed": [1.0, "y", None],
    "dates": np.array(["2024-01-01", "2024-01-02", "NaT"], dtype="datetime64[D]"),
    "records": np.zeros(3, dtype=[("x", float)]),
    "set": {1.0, 2.0},
    "mapping": {"a": 1.0},
    "mapping of nothing": {},
    "object": object(),
    "class": fo.Problem,
    "function": lambda *_: math.nan,
    "generator": None,  # made anew for each call
    "masked": np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]),
    "pair": (2.0, 1.0),
    "slice": slice(None),
}
ARGUMENTS = [(name, key) for name, call in CALLS.items() for key in call.arguments]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write what is exported to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def public_names() -> set[str]:
    """Every public name, as "subpackage.Name"."""
    found = {f"freshopt.{name}" for name in fo.__all__}
    for package in PACKAGES:
        found |= {f"{package}.{name}" for name in importlib.import_module(f"freshopt.{package}").__all__}
    return found


def test_every_public_name_is_covered() -> None:
    listed = [set(CALLS), *map(set, ELSEWHERE.values())]
    covered = set().union(*listed)
    assert sum(map(len, listed)) == len(covered), "each name is listed once"
    assert public_names() - covered == set(), "give these a call in tests/api_calls.py"
    assert covered - public_names() == set(), "these are no public names"
    for reason in ELSEWHERE:
        if reason.startswith("test_"):
            assert (ROOT / f"{reason}.py").exists()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_right_arguments_succeed(name: str) -> None:
    call = CALLS[name]
    call.function(**call.arguments)


def provoke(name: str, wrong: dict[str, Any]) -> None:
    """Call with some arguments replaced; check what comes back, and that nothing handed over was changed."""
    call = CALLS[name]
    refusals: tuple[type[Exception], ...] = (fo.FreshoptError, TypeError, *call.refuses)
    arguments = {**call.arguments, **wrong}
    before = {
        key: copy.deepcopy(value) for key, value in arguments.items() if isinstance(value, list | np.ndarray)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = call.function(**arguments)
        except refusals as error:
            said = str(error)
        else:
            said = "an answer"
            holds(result)
    assert said
    assert "\n" not in said
    for key, value in before.items():
        np.testing.assert_equal(arguments[key], value)


def holds(result: Any) -> None:  # noqa: ANN401
    """What is called optimal is finite, feasible and certified."""
    if isinstance(result, fo.Solution) and result.status is fo.Status.OPTIMAL:
        assert np.all(np.isfinite(result.rates))
        assert math.isfinite(result.value)
        assert np.all(result.rates >= result.problem.lower)
        assert np.all(result.rates <= result.problem.upper)
        used = math.fsum(result.problem.sources.cost * result.rates)
        assert used <= result.problem.bandwidth * (1.0 + 1e-12)
        if result.certificate is not None:
            assert result.certificate.gap >= 0.0
    if isinstance(result, fo.Certificate):
        assert result.gap >= 0.0
    if isinstance(result, fo.Schedule):
        assert np.all((result.time >= 0.0) & (result.time < result.horizon))
    if isinstance(result, learning.History):
        for column in (result.time, result.value, result.spent, result.rates, result.final):
            assert np.all(np.isfinite(column))
    if isinstance(result, float):
        assert not math.isnan(result)


def value_of(kind: str) -> Any:  # noqa: ANN401
    return (x for x in (1.0, 2.0)) if kind == "generator" else HOSTILE[kind]


@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_any_wrong_argument(name: str, key: str) -> None:
    for kind in HOSTILE:
        try:
            provoke(name, {key: value_of(kind)})
        except Exception as error:
            error.add_note(f"{name}({key}={kind})")
            raise


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_several_wrong_arguments(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted({name for name, _ in ARGUMENTS})))
    keys = data.draw(st.sets(st.sampled_from(sorted(CALLS[name].arguments)), min_size=1, max_size=3))
    provoke(name, {key: value_of(data.draw(st.sampled_from(sorted(HOSTILE)))) for key in sorted(keys)})

"""The public API with wrong arguments: an answer that holds, or one line of the library's own errors."""

import copy
import importlib
import inspect
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt import online, problems, solvers
from tests.contracts.api_calls import CALLS
from tests.contracts.api_elsewhere import ELSEWHERE
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, stratified

PACKAGES = (
    "problems", "solvers", "estimators", "online", "goodness_of_fit", "noisy_signals", "scheduling",
    "simulation", "automata", "tools", "logs", "testing", "pipelines",
    "distributed",
)  # fmt: skip
ROOT = Path(__file__).parents[1]
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
ARGUMENTS = [f"{name}-{key}" for name, call in CALLS.items() for key in call.arguments]
PARTS = 4  # of what is hostile; each argument meets one of them in every run


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
    assert public_names() - covered == set(), "give these a call in tests/contracts/api_calls.py"
    assert covered - public_names() == set(), "these are no public names"
    for reason in ELSEWHERE:
        if reason.startswith("test_"):
            assert list(ROOT.rglob(f"{reason}.py"))


@pytest.mark.parametrize("package", ["estimators", "logs"])
def test_a_name_that_comes_on_use_is_that_of_no_file(package: str) -> None:
    """A file takes its name in the package as soon as anything imports it."""
    module = importlib.import_module(f"freshopt.{package}")
    folder = Path(str(module.__file__)).parent
    files = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    assert {home.removeprefix(f"freshopt.{package}.") for home in module._HOMES.values()} <= files
    assert files.isdisjoint(module.__all__)
    assert sorted(module._HOMES) == sorted(module.__all__)


@matrix(name=sorted(CALLS), every=4)
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
        used = math.fsum(result.problem.sources.refresh_cost * result.rates)
        once = any(isinstance(one, fo.Tied) for one in result.problem.constraints)
        assert once or used <= result.problem.bandwidth * (1.0 + 1e-12)
        if result.certificate is not None and result.certificate.rows is not None:
            assert np.all(result.certificate.rows.slack >= 0.0)
            assert result.certificate.infeasibility == 0.0
        if result.certificate is not None:
            assert result.certificate.gap >= 0.0
    if isinstance(result, fo.Certificate):
        assert result.gap >= 0.0
    if isinstance(result, fo.Schedule):
        assert np.all((result.time >= 0.0) & (result.time < result.horizon))
    if isinstance(result, online.RunHistory):
        for column in (result.time, result.value, result.spent, result.rates, result.final):
            assert np.all(np.isfinite(column))
    if isinstance(result, float):
        assert not math.isnan(result)


def value_of(kind: str) -> Any:  # noqa: ANN401
    return (x for x in (1.0, 2.0)) if kind == "generator" else HOSTILE[kind]


@pytest.mark.parametrize(("argument", "part"), stratified(ARGUMENTS, range(PARTS), every=PARTS))
@pytest.mark.sampled(8)
def test_any_wrong_argument(argument: str, part: int) -> None:
    name, key = argument.split("-")
    for kind in list(HOSTILE)[part::PARTS]:
        try:
            provoke(name, {key: value_of(kind)})
        except Exception as error:
            error.add_note(f"{name}({key}={kind})")
            raise


# Settings whose use a class cannot judge by itself, and why.
RELATIVE = {
    ("freshopt.Budget", "by"): "the name of a column, of sources in memory",
    ("freshopt.Budget", "cost"): "the name of a column, of sources in memory",
    ("freshopt.Tied", "bundle"): "the name of a column, of sources in memory",
    ("freshopt.Worst", "by"): "the name of a column, of sources in memory",
    ("freshopt.Target", "by"): "the name of a column, of sources in memory",
    ("freshopt.Priced", "cost"): "a function, of what is used",
    ("freshopt.Ratio", "at_most"): "a ratio under which nothing is refreshed",
    ("freshopt.Target", "at_most"): "less than any rates reach",
    ("online.AdaptiveRates", "batch"): "too short for the horizon",
    ("online.AdaptiveRates", "floor"): "more than the bandwidth",
    ("online.AsyncMirrorSync", "cycle"): "too short for the horizon, or too long for the bandwidth",
    ("online.AsyncMirrorSync", "exploration"): "more than min_rate leaves",
    (
        "online.AsyncProjectedGradientSync",
        "cycle",
    ): "too short for the horizon, or too long for the bandwidth",
    ("online.AsyncProjectedGradientSync", "exploration"): "more than min_rate leaves",
    ("online.LambdaLearnAndCrawl", "approximate"): "not for the problem's objective",
    ("online.LambdaLearnAndCrawl", "epoch"): "too short for the horizon",
    ("online.LambdaLearnAndCrawl", "floor"): "a share of too small a rate",
    ("online.ReplanEvery", "epoch"): "too short for the horizon",
    ("online.ReplanEvery", "floor"): "a share of too small a rate",
    ("online.MirrorSync", "exploration"): "more than min_rate leaves",
    ("online.PhasedEpsilonGreedy", "phase"): "too short for the horizon",
    ("estimators.LawOfLargeNumbers", "alpha"): "a function, of the log's sources",
    ("problems.PowerCost", "scale"): "a float whose optimum is none",
    ("problems.PowerCost", "exponent"): "a float whose optimum is none",
    ("scheduling.SlotAssignment", "slot"): "too short or too long for the horizon",
    ("scheduling.SlotAssignment", "min_gap"): "too long for the rates",
}
# No single setting either: one per source, or as many as there are; or rows of another log.
MANY = (
    "empty list", "one", "nans", "infs", "zeros", "negative", "matrix", "ragged", "texts", "mixed", "dates",
    "records", "set", "mapping", "mapping of nothing", "generator", "masked", "pair",
)  # fmt: skip
WORDS: dict[str, Any] = {"weekly": "weekly", "periodic": "periodic", "half": 0.5}
SINGLE = [kind for kind in HOSTILE if kind not in MANY]
CONSTRAINTS = ("Budget", "Nested", "Priced", "Ratio", "Spend", "Target", "Tied", "Worst")


def public(name: str) -> Any:  # noqa: ANN401
    """Return what has a public name, "subpackage.Name"."""
    package, _, own = name.partition(".")
    return getattr(fo if package == "freshopt" else importlib.import_module(f"freshopt.{package}"), own)


CONSTRUCTED = {
    name: owner
    for name in CALLS
    if (
        name.split(".")[0] in ("problems", "solvers", "scheduling", "online", "estimators")
        or name.removeprefix("freshopt.") in CONSTRAINTS
    )
    and inspect.isclass(owner := public(name))
}


@matrix(name=sorted(CONSTRUCTED), every=5)
def test_a_wrong_setting_is_refused_at_construction_and_not_later(name: str) -> None:
    call, owner = CALLS[name], CONSTRUCTED[name]
    known = inspect.signature(owner).parameters
    right = {key: value for key, value in call.arguments.items() if key in known}
    for key in right:
        if (name, key) in RELATIVE:
            continue
        for kind in SINGLE:
            wrong = {key: HOSTILE[kind]}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if refusal_of(owner, {**right, **wrong}):
                    continue
                later = refusal_of(call.function, {**call.arguments, **wrong})
            assert later is None, f"{name}({key}={kind}) is made, and refused later: {later}"


def refusal_of(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """Return with which words a call is refused; None for an answer, even one that is not certified."""
    try:
        function(**arguments)
    except fo.CertificateError:
        return None
    except (fo.FreshoptError, TypeError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: problems.PowerCost(1.0, -1.0), fo.SourceDataError, "exponent must be > 0, got -1"),
        (
            lambda: problems.BinaryFreshness(refresh=WORDS["weekly"]),
            fo.ObjectiveError,
            "refresh is 'weekly'. Pass Refresh.",
        ),
        (
            lambda: problems.BinaryFreshness(refresh=WORDS["periodic"]),
            fo.ObjectiveError,
            "Pass Refresh.PERIODIC, Refresh.POISSON or",
        ),
        (
            lambda: problems.Age(nodes=0, refresh=fo.Refresh.POISSON),
            fo.ObjectiveError,
            "nodes of Age is 0. Pass a whole number",
        ),
        (lambda: solvers.MirrorDescent(limit=0), fo.SourceDataError, "limit is 0. Pass a whole number"),
        (lambda: solvers.SeparableNewton(tolerance=-1.0), fo.SourceDataError, "tolerance is -1.0. Pass"),
        (
            lambda: solvers.ProjectedGradient(scaled=WORDS["half"]),
            TypeError,
            "scaled of ProjectedGradient is of type",
        ),
        (lambda: online.MirrorSync(1.0, exploration=2.0), fo.SourceDataError, "exploration is 2.0. Pass"),
        (lambda: online.AutomataTree(gain=-1.0), fo.SourceDataError, "gain is -1.0. Pass"),
    ],
)
def test_settings_that_no_later_step_would_notice(
    make: Callable[[], object], kind: type[Exception], words: str
) -> None:
    refused(re.escape(words), make, error=kind)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
@pytest.mark.exhaustive
def test_several_wrong_arguments(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(name for name, call in CALLS.items() if call.arguments)))
    keys = data.draw(st.sets(st.sampled_from(sorted(CALLS[name].arguments)), min_size=1, max_size=3))
    provoke(name, {key: value_of(data.draw(st.sampled_from(sorted(HOSTILE)))) for key in sorted(keys)})

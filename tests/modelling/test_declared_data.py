"""Sources and problems: arithmetic before any solver."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.numerics.arrays import as_vector, chunks, exact_sum, total
from freshopt.problems import AccumulatedDelay
from tests.ground_truth.cases import CASES, Case, as_problem
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present, written
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import CONIC


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        ({"change_rate": [1.0, 0.0]}, ("change_rate out of range for source 1: 0", "> 0", "Correct or drop")),
        ({"change_rate": [1.0, -2.0]}, ("source 1: -2",)),
        ({"change_rate": [np.nan]}, ("change_rate out of range for source 0: nan",)),
        ({"change_rate": [np.inf]}, ("source 0: inf",)),
        ({"change_rate": [1e-101]}, ("source 0: 1e-101", "1e-100..1e+100")),
        ({"change_rate": [1e101]}, ("source 0: 1e+101",)),
        ({"change_rate": 0.0}, ("change_rate out of range for source 0: 0",)),
        (
            {"change_rate": [1.0, 2.0], "importance": [1.0, -1.0]},
            ("importance out of range for source 1: -1",),
        ),
        ({"change_rate": [1.0], "importance": [1e-120]}, ("importance out of range", "It must be 0 or more")),
        ({"change_rate": [1.0], "refresh_cost": [0.0]}, ("refresh_cost out of range for source 0: 0", "> 0")),
        ({"change_rate": [1.0], "min_rate": -1.0}, ("min_rate out of range",)),
        ({"change_rate": [1.0], "min_rate": np.inf}, ("min_rate out of range for source 0: inf",)),
        ({"change_rate": [1.0], "max_rate": np.nan}, ("max_rate out of range for source 0: nan",)),
        (
            {"change_rate": [1.0, 1.0], "min_rate": [0.0, 3.0], "max_rate": 2.0, "names": ["a", "b"]},
            ("min_rate exceeds max_rate for 'b': 3 > 2", "Swap or widen"),
        ),
        ({"change_rate": [1.0, 2.0], "importance": [1.0]}, ("importance has length 1", "change_rate has 2")),
        ({"change_rate": [1.0, 2.0], "signalled": [0, 2]}, ("signalled must be true or false",)),
        ({"change_rate": ["x", "y"]}, ("change_rate must be numbers", "Pass floats")),
        ({"change_rate": []}, ("no sources", "at least one")),
        ({"change_rate": [[1.0, 2.0]]}, ("shape (1, 2)",)),
        ({"change_rate": [1.0, 2.0], "names": ["a", "a"]}, ("name occurs more than once: 'a'", "unique")),
        ({"change_rate": [1.0, 2.0], "names": ["a", "b", "c"]}, ("length",)),
        ({"change_rate": [1.0], "time_unit": "fortnight"}, ("'fortnight' is not known", "week")),
    ],
)
def test_refused_by_name_with_a_remedy(arguments: dict[str, Any], phrases: tuple[str, ...]) -> None:
    with pytest.raises(fo.SourceDataError) as caught:
        fo.Sources(**arguments)
    assert all(phrase in str(caught.value) for phrase in phrases), caught.value
    assert isinstance(caught.value, ValueError)


def test_at_most_five_offenders_are_listed() -> None:
    with pytest.raises(fo.SourceDataError, match=r"source 4: 0 and 12 more. It") as caught:
        fo.Sources(np.zeros(17))
    assert "source 5" not in str(caught.value)


@pytest.mark.parametrize("edge", [1e-100, 1e100])
def test_edges_of_the_accepted_range(edge: float) -> None:
    sources = fo.Sources([edge], importance=[0.0], refresh_cost=[edge], min_rate=0.0, max_rate=[edge])
    assert sources.change_rate[0] == edge


def test_arrays_are_viewed_and_read_only_while_the_callers_stay_writable() -> None:
    mine = np.array([1.0, 2.0])
    sources = fo.Sources(mine)
    assert np.shares_memory(sources.change_rate, mine)
    with pytest.raises(ValueError, match="read-only"):
        sources.change_rate[0] = 5.0
    mine[0] = 3.0
    with pytest.raises(AttributeError):
        sources.time_unit = "week"  # type: ignore[misc]


def test_scalars_take_no_memory_and_are_not_tied_to_the_caller() -> None:
    scalar = np.array(2.0)
    sources = fo.Sources(np.ones(1000), importance=scalar)
    assert sources.importance.strides == (0,)
    scalar[...] = 7.0
    assert np.all(sources.importance == 2.0)
    assert len(sources.importance) == len(sources) == 1000


def test_one_scalar_source() -> None:
    assert len(fo.Sources(2.0)) == 1


def test_labels_are_names_or_positions() -> None:
    assert fo.Sources([1.0, 2.0]).label(1) == "source 1"
    assert fo.Sources([1.0, 2.0], names=["a", "b"]).label(1) == "'b'"


def test_repr_is_one_line_without_arrays() -> None:
    text = repr(fo.Sources(np.linspace(0.5, 2.0, 1000), time_unit="hour"))
    assert text == "Sources(n=1000, change_rate=0.5..2 per hour, importance=1)"


def test_take_selects_every_column() -> None:
    sources = fo.Sources(
        [1.0, 2.0, 3.0],
        importance=[4.0, 5.0, 6.0],
        names=list("abc"),
        host=["x", "y", "x"],
        signalled=[1, 0, 1],
    )
    part = sources.take(np.array([2, 0]))
    assert part.change_rate.tolist() == [3.0, 1.0]
    assert part.importance.tolist() == [6.0, 4.0]
    assert present(part.names).tolist() == ["c", "a"]
    assert present(part.host).tolist() == ["x", "x"]
    assert part.signalled.tolist() == [True, True]
    assert sources.take(slice(1, 2)).label(0) == "'b'"


@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame])
def test_frames_of_any_library(library: Any) -> None:  # noqa: ANN401
    frame = library(
        {"source": ["a", "b"], "change_rate": [1.0, 2.0], "importance": [3.0, 4.0], "junk": [0, 0]}
    )
    sources = fo.Sources.from_frame(frame, time_unit="week")
    assert sources.label(1) == "'b'"
    assert sources.importance.tolist() == [3.0, 4.0]
    assert sources.time_unit == "week"


def test_to_frame_and_back() -> None:
    sources = fo.Sources(
        [1.0, 2.0],
        importance=[1.0, 0.0],
        names=["a", "b"],
        host=["x", "y"],
        signalled=[True, False],
        max_rate=[1.0, np.inf],
    )
    again = fo.Sources.from_frame(sources.to_frame())
    for key in ("change_rate", "importance", "signalled", "min_rate", "max_rate", "refresh_cost"):
        assert np.array_equal(getattr(again, key), getattr(sources, key)), key
    assert again.label(0) == "'a'"
    assert present(again.host).tolist() == ["x", "y"]


def test_frames_that_are_refused() -> None:
    refused(r"no column 'change_rate'; it has 'rate'.", fo.Sources.from_frame, pl.DataFrame({"rate": [1.0]}))
    with pytest.raises(fo.SourceDataError, match="importance is empty in row 0\\."):
        fo.Sources.from_frame(pl.DataFrame({"change_rate": [1.0, 2.0], "importance": [None, 1.0]}))


def test_vectors_are_checked_once_and_chunks_cover_them() -> None:
    refused(r"weights has shape \(2,\) but there are 3 sources", as_vector, [1.0, 2.0], 3, "weights")
    parts = list(chunks(200_001))
    assert parts[0].start == 0
    assert parts[-1].stop == 200_001
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))


def test_sums_do_not_lose_small_terms() -> None:
    assert exact_sum([1e16, 1.0, -1e16]) == 1.0
    assert exact_sum([np.inf, 1.0]) == np.inf
    values = np.full(200_001, 0.1)
    assert abs(total(values) - 20_000.1) <= 1e-15 * 20_000.1


TWO = fo.Sources([1.0, 4.0], names=["slow", "fast"], host=["h", "h"])


@pytest.mark.parametrize(
    ("arguments", "kind", "phrases"),
    [
        (
            (AccumulatedDelay, TWO, 1.0),
            fo.ObjectiveError,
            ("not an Objective instance", "BinaryFreshness()"),
        ),
        (("dely", TWO, 1.0), fo.ObjectiveError, ("no objective 'dely'. Did you mean 'delay'?",)),
        ((DELAY, [1.0, 2.0], 1.0), fo.SourceDataError, ("list is not Sources", "fo.Sources(")),
        ((DELAY, TWO, 0.0), fo.SourceDataError, ("bandwidth is 0", "> 0")),
        ((DELAY, TWO, -1.0), fo.SourceDataError, ("bandwidth is -1",)),
        ((DELAY, TWO, np.nan), fo.SourceDataError, ("bandwidth is nan",)),
        ((DELAY, TWO, np.inf), fo.SourceDataError, ("bandwidth is inf",)),
        ((DELAY, TWO, "lots"), fo.SourceDataError, ("bandwidth: 'lots' cannot be read", "such as 200/day")),
        ((DELAY, TWO, 1.0, {"g": 1.0}), fo.SourceDataError, ("unknown hosts 'g'", "Correct")),
        ((DELAY, fo.Sources([1.0], host=["east"]), 1.0, {"eats": 1}), fo.SourceDataError, ("mean 'east'?",)),
        ((DELAY, TWO, 1.0, {"h": 0.0}), fo.SourceDataError, ("'h': 0", "> 0")),
        ((DELAY, TWO, 1.0, {"h": np.nan}), fo.SourceDataError, ("'h': nan",)),
        ((DELAY, fo.Sources([1.0]), 1.0, {"h": 1.0}), fo.SourceDataError, ("no host", "Sources(host=...)")),
        (
            (DELAY, fo.Sources([1.0, 1.0], names=["a", "b"], min_rate=[3.0, 9.4]), 10.0),
            fo.InfeasibleProblemError,
            ("need 12.4 refreshes/day", "bandwidth is 10", "short by 2.4", ">= 12.4", "largest: 'b' 9.4"),
        ),
        (
            (DELAY, fo.Sources([1.0, 1.0], min_rate=[1.0, 2.0], host=["h", "g"]), 9.0, {"g": 1.5}),
            fo.InfeasibleProblemError,
            ("need 2 refreshes/day", "limit of host 'g' is 1.5", "largest: source 1 2"),
        ),
        (
            (DELAY, fo.Sources([1.0, 1.0], min_rate=1.0, refresh_cost=[5.0, 6.0]), 10.0),
            fo.InfeasibleProblemError,
            ("need 11 refreshes/day",),
        ),
        (
            (HARMONIC, fo.Sources([1.0, 2.0], signalled=True, min_rate=[1.5, 0.0]), 9.0),
            fo.InfeasibleProblemError,
            ("change rate of signalled sources source 0: 1.5 > 1", "Lower min_rate"),
        ),
        (
            (HARMONIC, fo.Sources([1.0, 2.0], max_rate=[0.0, 1.0]), 9.0),
            fo.InfeasibleProblemError,
            ("max_rate is 0 for source 0", "infinite", "importance to 0"),
        ),
    ],
)
def test_refused_by_arithmetic(
    arguments: tuple[Any, ...], kind: type[Exception], phrases: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        fo.Problem(*arguments)
    assert all(phrase in str(caught.value) for phrase in phrases), caught.value


def test_a_closed_source_is_no_matter_where_its_cost_is_finite() -> None:
    fo.Problem(BINARY, fo.Sources([1.0, 2.0], max_rate=[0.0, 1.0]), 9.0)
    fo.Problem(HARMONIC, fo.Sources([1.0, 2.0], importance=[0.0, 1.0], max_rate=[0.0, 1.0]), 9.0)


def test_bounds_that_use_up_the_bandwidth_exactly_are_feasible() -> None:
    problem = fo.Problem(DELAY, fo.Sources([1.0] * 3, min_rate=0.1), 0.3)  # 0.1·3 > 0.3 in floats
    assert fo.solve(problem).rates.tolist() == [0.1] * 3


def test_a_problem_is_frozen() -> None:
    problem = fo.Problem(DELAY, TWO, 3.0, {"h": 2.0})
    with pytest.raises(AttributeError):
        problem.bandwidth = 4.0  # type: ignore[misc]
    problem.host_limits["h"] = 9.0
    assert problem.host_limits == {"h": 2.0}


def test_with_bandwidth_changes_that_alone_and_checks_it() -> None:
    sources = fo.Sources([1.0, 4.0], min_rate=[1.0, 0.0])
    problem = fo.Problem(DELAY, sources, 3.0)
    other = problem.with_bandwidth(6.0)
    assert (problem.bandwidth, other.bandwidth) == (3.0, 6.0)
    assert other.sources is sources
    assert other.numerics is problem.numerics
    refused(r"bandwidth is 0.5", problem.with_bandwidth, 0.5, error=fo.InfeasibleProblemError)
    refused("bandwidth is 0", problem.with_bandwidth, 0.0)


def test_signalled_sources_are_capped_at_their_change_rates() -> None:
    sources = fo.Sources([1.0, 4.0, 2.0], signalled=[True, True, False], max_rate=[9.0, 3.0, 9.0])
    assert fo.Problem(HARMONIC, sources, 3.0).upper.tolist() == [1.0, 3.0, 9.0]


def test_repr_is_one_line() -> None:
    text = repr(fo.Problem(DELAY, TWO, 3.0, {"h": 2.0}))
    assert (
        text == "Problem(AccumulatedDelay(refresh=Refresh.POISSON), n=2, bandwidth=3 per day, 1 host limit)"
    )


def test_an_objective_that_is_no_dataclass_is_called_by_its_name() -> None:
    Delay = written("Delay", lambda rate, sources: cp.multiply(sources.change_rate, cp.inv_pos(rate)))

    assert repr(fo.Problem(Delay(), TWO, 3.0)) == "Problem(Delay(), n=2, bandwidth=3 per day)"


def test_the_cvxpy_problem_has_names_to_look_at() -> None:
    sources = fo.Sources([1.0, 4.0], min_rate=[0.1, 0.0], max_rate=[np.inf, 2.0], host=["h", "h"])
    program = fo.Problem(DELAY, sources, 3.0, {"h": 2.0}).to_cvxpy()
    assert isinstance(program, cp.Problem)
    assert [variable.name() for variable in program.variables()] == ["rate"]
    assert [c.label for c in program.constraints] == ["bandwidth", "min_rate", "max_rate", "host[h]"]


# Harmonic staleness under periodic refreshes is declared by quadrature, cones over seven decades: unscaled
# it is for looking at; `Conic` scales it, and the contract test solves it so.
SOLVABLE = [
    case for case in CASES if (case.problem.curve, case.problem.discipline) != ("harmonic", "periodic")
]


@pytest.mark.parametrize("case", SOLVABLE, ids=lambda case: case.name)
@pytest.mark.sampled(3)
def test_the_cvxpy_problem_has_the_known_optimum(case: Case) -> None:
    """Its value at the known rates is the numerics' value, and Clarabel finds none better by more."""
    problem = as_problem(case.problem)
    program = problem.to_cvxpy()
    found = float(program.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9))
    value = fo.certify(problem, case.known.rates).value
    unit = abs(value) + float(np.sum(problem.sources.importance))
    assert abs(found - value) <= 2.0 * CONIC * unit

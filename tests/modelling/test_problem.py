"""Problem: arithmetic before any solver, frozen, inspectable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.cases import CASES, Case, as_problem
from tests.ground_truth.tolerances import CONIC

TWO = fo.Sources([1.0, 4.0], name=["slow", "fast"], host=["h", "h"])


@pytest.mark.parametrize(
    ("arguments", "kind", "phrases"),
    [
        (
            (AccumulatedDelay, TWO, 1.0),
            fo.ObjectiveError,
            ("not an Objective instance", "HarmonicStaleness()"),
        ),
        (("delay", TWO, 1.0), fo.ObjectiveError, ("'delay' is not an Objective",)),
        ((AccumulatedDelay(), [1.0, 2.0], 1.0), fo.SourceDataError, ("list is not Sources", "fo.Sources(")),
        ((AccumulatedDelay(), TWO, 0.0), fo.SourceDataError, ("bandwidth is 0", "> 0")),
        ((AccumulatedDelay(), TWO, -1.0), fo.SourceDataError, ("bandwidth is -1",)),
        ((AccumulatedDelay(), TWO, np.nan), fo.SourceDataError, ("bandwidth is nan",)),
        ((AccumulatedDelay(), TWO, np.inf), fo.SourceDataError, ("bandwidth is inf",)),
        ((AccumulatedDelay(), TWO, "lots"), fo.SourceDataError, ("bandwidth 'lots' is not a number",)),
        ((AccumulatedDelay(), TWO, 1.0, {"g": 1.0}), fo.SourceDataError, ("unknown hosts 'g'", "Correct")),
        ((AccumulatedDelay(), TWO, 1.0, {"h": 0.0}), fo.SourceDataError, ("'h': 0", "> 0")),
        ((AccumulatedDelay(), TWO, 1.0, {"h": np.nan}), fo.SourceDataError, ("'h': nan",)),
        (
            (AccumulatedDelay(), fo.Sources([1.0]), 1.0, {"h": 1.0}),
            fo.SourceDataError,
            ("no host", "Sources(host=...)"),
        ),
        (
            (AccumulatedDelay(), fo.Sources([1.0, 1.0], name=["a", "b"], min_rate=[3.0, 9.4]), 10.0),
            fo.InfeasibleProblemError,
            ("need 12.4 refreshes/day", "bandwidth is 10", "short by 2.4", ">= 12.4", "largest: 'b' 9.4"),
        ),
        (
            (
                AccumulatedDelay(),
                fo.Sources([1.0, 1.0], min_rate=[1.0, 2.0], host=["h", "g"]),
                9.0,
                {"g": 1.5},
            ),
            fo.InfeasibleProblemError,
            ("need 2 refreshes/day", "limit of host 'g' is 1.5", "largest: source 1 2"),
        ),
        (
            (AccumulatedDelay(), fo.Sources([1.0, 1.0], min_rate=1.0, refresh_cost=[5.0, 6.0]), 10.0),
            fo.InfeasibleProblemError,
            ("need 11 refreshes/day",),
        ),
        (
            (HarmonicStaleness(), fo.Sources([1.0, 2.0], signalled=True, min_rate=[1.5, 0.0]), 9.0),
            fo.InfeasibleProblemError,
            ("change rate of signalled sources source 0: 1.5 > 1", "Lower min_rate"),
        ),
        (
            (HarmonicStaleness(), fo.Sources([1.0, 2.0], max_rate=[0.0, 1.0]), 9.0),
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
    fo.Problem(BinaryFreshness(), fo.Sources([1.0, 2.0], max_rate=[0.0, 1.0]), 9.0)
    fo.Problem(HarmonicStaleness(), fo.Sources([1.0, 2.0], importance=[0.0, 1.0], max_rate=[0.0, 1.0]), 9.0)


def test_bounds_that_use_up_the_bandwidth_exactly_are_feasible() -> None:
    problem = fo.Problem(
        AccumulatedDelay(), fo.Sources([1.0] * 3, min_rate=0.1), 0.3
    )  # 0.1·3 > 0.3 in floats
    assert fo.solve(problem).rates.tolist() == [0.1] * 3


def test_a_problem_is_frozen() -> None:
    problem = fo.Problem(AccumulatedDelay(), TWO, 3.0, {"h": 2.0})
    with pytest.raises(AttributeError):
        problem.bandwidth = 4.0  # type: ignore[misc]
    problem.host_limits["h"] = 9.0
    assert problem.host_limits == {"h": 2.0}


def test_with_bandwidth_changes_that_alone_and_checks_it() -> None:
    sources = fo.Sources([1.0, 4.0], min_rate=[1.0, 0.0])
    problem = fo.Problem(AccumulatedDelay(), sources, 3.0)
    other = problem.with_bandwidth(6.0)
    assert (problem.bandwidth, other.bandwidth) == (3.0, 6.0)
    assert other.sources is sources
    assert other.numerics is problem.numerics
    with pytest.raises(fo.InfeasibleProblemError, match=r"bandwidth is 0.5"):
        problem.with_bandwidth(0.5)
    with pytest.raises(fo.SourceDataError, match="bandwidth is 0"):
        problem.with_bandwidth(0.0)


def test_signalled_sources_are_capped_at_their_change_rates() -> None:
    sources = fo.Sources([1.0, 4.0, 2.0], signalled=[True, True, False], max_rate=[9.0, 3.0, 9.0])
    assert fo.Problem(HarmonicStaleness(), sources, 3.0).upper.tolist() == [1.0, 3.0, 9.0]


def test_repr_is_one_line() -> None:
    text = repr(fo.Problem(AccumulatedDelay(), TWO, 3.0, {"h": 2.0}))
    assert (
        text == "Problem(AccumulatedDelay(refresh=Refresh.POISSON), n=2, bandwidth=3 per day, 1 host limit)"
    )


def test_an_objective_that_is_no_dataclass_is_called_by_its_name() -> None:
    class Delay(fo.Objective):
        def per_source(self, rate: cp.Expression, sources: fo.Sources) -> cp.Expression:
            return cp.multiply(sources.change_rate, cp.inv_pos(rate))

    assert repr(fo.Problem(Delay(), TWO, 3.0)) == "Problem(Delay(), n=2, bandwidth=3 per day)"


def test_the_cvxpy_problem_has_names_to_look_at() -> None:
    sources = fo.Sources([1.0, 4.0], min_rate=[0.1, 0.0], max_rate=[np.inf, 2.0], host=["h", "h"])
    program = fo.Problem(AccumulatedDelay(), sources, 3.0, {"h": 2.0}).to_cvxpy()
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

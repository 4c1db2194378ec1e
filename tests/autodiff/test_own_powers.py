"""`fo.power`: exponents of each source's own, in objectives, cones, rows and parts of problems."""

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.solvers import Conic, SeparableNewton
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC, EXACT

Floats = Any
# Of all signs, with the special ones, and so that importances span twelve decades.
CONVEX = np.array([-2.5, -1.0, -0.5, -0.02, 1.5, 2.0, 3.7])
CONCAVE = np.array([0.02, 0.25, 0.5, 0.75, 0.9])


class Powers(fo.Objective):
    """Σ w·ρ^p."""

    def __init__(self, exponents: Floats, sense: str = "minimise") -> None:
        self.exponents = np.asarray(exponents)
        self.sense = sense  # type: ignore[misc, assignment]

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401 - CVXPY's expressions
        return cp.multiply(sources.importance, fo.power(rate, self.exponents))


def bisected(weight: Floats, exponent: Floats, bandwidth: float) -> Floats:
    """Return rates of equal marginal gain w|p|ρ^{p−1}, by bisection of its logarithm; p < 1, p not 0."""
    log_gain = np.log(weight * np.abs(exponent))

    def rates(log_price: float) -> Floats:
        return np.exp((log_gain - log_price) / (1.0 - exponent))

    low, high = -2000.0, 2000.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        with np.errstate(over="ignore"):
            low, high = (middle, high) if np.sum(rates(middle)) > bandwidth else (low, middle)
    return rates(high)


@matrix(decades=[0.0, 6.0], share=[1e-3, 1.0, 20.0], case=["falling", "concave"])
def test_rates_have_equal_marginal_gains(case: str, share: float, decades: float) -> None:
    exponents = CONVEX[CONVEX < 0.0] if case == "falling" else CONCAVE
    weight = 10.0 ** np.linspace(-decades, decades, len(exponents))
    sources = fo.Sources(np.ones(len(exponents)), weight)
    objective = Powers(exponents, "minimise" if case == "falling" else "maximise")
    solution = fo.solve(fo.Problem(objective, sources, share), SeparableNewton())
    exact = bisected(weight, exponents, share)
    reached = float(weight @ exact**exponents)
    assert solution.value == pytest.approx(reached, rel=EXACT)
    assert solution.rates == pytest.approx(exact, rel=1e-9, abs=1e-12 * share)
    assert present(solution.certificate).relative_gap <= EXACT


def test_a_cone_solver_takes_it() -> None:
    rates = np.linspace(0.5, 2.0, len(CONVEX))
    fitted = cp.Variable(len(CONVEX))
    program = cp.Problem(cp.Minimize(cp.sum(fo.power(fitted, CONVEX))), [fitted == rates])
    assert program.solve(solver="CLARABEL") == pytest.approx(np.sum(rates**CONVEX), rel=CONIC)
    for exponents, sense in ((CONVEX[:3], "minimise"), (CONCAVE, "maximise"), ([0.0, 1.0], "minimise")):
        sources = fo.Sources(np.ones(len(exponents)), np.linspace(1.0, 2.0, len(exponents)))
        problem = fo.Problem(Powers(exponents, sense), sources, 3.0)
        assert fo.solve(problem, Conic()).value == pytest.approx(
            fo.solve(problem).value, rel=CONIC, abs=CONIC
        )


def test_a_part_of_the_sources_keeps_its_exponents() -> None:
    """A cone solver leaves out sources that its bounds decide, and `take` is the objective's own."""
    exponents = np.array([-1.0, -2.0, -3.0, -0.5])
    sources = fo.Sources(np.ones(4), [1.0, 1e-9, 2.0, 3.0])
    problem = fo.Problem(Powers(exponents), sources, 4.0)
    expected = fo.solve(problem)
    mean = expected.value / float(np.sum(sources.importance))
    assert fo.solve(problem, Conic()).value == pytest.approx(expected.value, rel=1e-6)
    spend = fo.Problem(fo.Spend(), sources, 9.0, constraints=[fo.Target(Powers(exponents), at_most=mean)])
    assert fo.solve(spend).value == pytest.approx(4.0, rel=1e-6)


def test_exponents_that_make_no_convex_problem_are_refused() -> None:
    x = cp.Variable(2, nonneg=True)
    refused("all <= 0 or >= 1", fo.power, x, [0.5, 2.0], error=fo.ObjectiveError)
    refused("one exponent for each", fo.power, x, [0.5], error=fo.ObjectiveError)
    refused("must be finite", fo.power, x, [0.5, np.nan], error=fo.ObjectiveError)
    refused("must be numbers", fo.power, x, ["a", "b"], error=fo.SourceDataError)
    sources = fo.Sources([1.0, 1.0])
    refused("is concave but sense", fo.Problem, Powers([0.5, 0.25]), sources, 1.0, error=fo.ObjectiveError)

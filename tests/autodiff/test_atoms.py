"""Atoms with kinks, and atoms of a user's own."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt.autodiff import compiler
from freshopt.autodiff.compiler import UnknownAtomError, compile_expression, known_atoms, register
from freshopt.cvx import cp
from freshopt.solvers import Conic, WaterFilling
from tests.ground_truth.named import declared, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.ground_truth.unknown_atom import own_atom, stranger

mp = mpmath.MPContext()
mp.dps = 50
Written = Callable[[Any], Any]


def jet(written: Written, rates: Any, side: int = 1) -> Any:  # noqa: ANN401 - a Jet
    rate = cp.Variable(len(rates), nonneg=True)
    tape = compile_expression(written(rate), rate)
    with np.errstate(all="ignore"):
        return tape.evaluate(np.asarray(rates, dtype=float), side=side)


# A function with a kink at rate 2, for CVXPY and for mpmath.
KINKS: dict[str, tuple[Written, Callable[[Any], Any]]] = {
    "abs": (lambda x: cp.abs(x - 2), lambda r: abs(r - 2)),
    "abs, falling": (lambda x: cp.abs(4 - 2 * x), lambda r: abs(4 - 2 * r)),
    "maximum": (lambda x: cp.maximum(4 - 2 * x, 2 - x, 0), lambda r: max(4 - 2 * r, 2 - r, 0)),
    "maximum, the other way": (lambda x: cp.maximum(0, 2 - x, 4 - 2 * x), lambda r: max(4 - 2 * r, 2 - r, 0)),
    "maximum of curves": (
        lambda x: cp.maximum(cp.square(x), 4 * x - 4, 8 * cp.inv_pos(x)),
        lambda r: max(r * r, 8 / r),
    ),
    "minimum": (lambda x: cp.minimum(x, 2, 3 - x / 2), lambda r: min(r, 2, 3 - r / 2)),
    "minus a minimum": (lambda x: -cp.minimum(x - 2, 0), lambda r: -min(r - 2, 0)),
    "pos": (lambda x: cp.multiply(2.5, cp.pos(2 - x)), lambda r: 2.5 * max(2 - r, 0)),
    "neg": (lambda x: cp.neg(x - 2), lambda r: max(2 - r, 0)),
    "scalene": (lambda x: cp.scalene(2 - x, 3, 0.5), lambda r: 3 * max(2 - r, 0) + 0.5 * max(r - 2, 0)),
    "exp of a kink": (
        lambda x: cp.exp(cp.maximum(2 - x, 6 - 3 * x)),
        lambda r: mp.exp(max(2 - r, 6 - 3 * r)),
    ),
    "falling outside": (lambda x: cp.inv_pos(cp.minimum(x, 2)), lambda r: 1 / min(r, mp.mpf(2))),
    "square of a kink": (
        lambda x: cp.square(cp.pos(x - 1) + cp.abs(x - 2)),
        lambda r: (r - 1 + abs(r - 2)) ** 2,
    ),
    "kink within a kink": (
        lambda x: cp.maximum(cp.abs(x - 2), cp.abs(2 * x - 4) - 0),
        lambda r: max(abs(r - 2), abs(2 * r - 4)),
    ),
    "no kink": (lambda x: cp.maximum(cp.exp(x), 1), mp.exp),
}


@matrix(side=[1, -1], name=KINKS)
def test_slopes_at_a_kink_are_those_of_the_side(name: str, side: int) -> None:
    written, exact = KINKS[name]
    found = jet(written, [1.5, 2.0, 2.5], side)
    step = side * mp.mpf(10) ** -15
    for k, r in enumerate((1.5, 2.0, 2.5)):
        a, b, c = (exact(mp.mpf(r) + j * step) for j in (0, 1, 2))
        assert abs(found.value[k] - float(a)) <= EXACT * (1 + abs(float(a)))
        # Forward differences with steps of 1e-15 are off by 1e-15 times the next derivative.
        assert abs(found.slope[k] - float((b - a) / step)) <= EXACT * (1 + abs(found.slope[k]))
        assert abs(found.curvature[k] - float((c - 2 * b + a) / step**2)) <= EXACT * (1 + found.curvature[k])


def test_the_left_slope_of_a_convex_function_is_the_smaller() -> None:
    for name, (written, _) in KINKS.items():
        left, right = (jet(written, [2.0], side).slope[0] for side in (-1, 1))
        rate = cp.Variable(1, nonneg=True)
        if written(rate).is_convex() and name != "no kink":
            assert left < right, name


@pytest.mark.parametrize(
    ("written", "rate", "value", "slope"),
    [
        pytest.param(lambda x: -cp.log(x - 3.5), 3.0, np.inf, -np.inf, id="log, left of its domain"),
        pytest.param(lambda x: -cp.log(5 - x), 7.0, np.inf, np.inf, id="log, right of it"),
        pytest.param(lambda x: -cp.log(x), 0.0, np.inf, -np.inf, id="log, at 0"),
        pytest.param(lambda x: cp.log1p(x - 3), 1.0, -np.inf, np.inf, id="log1p, outside"),
        pytest.param(cp.entr, 0.0, 0.0, np.inf, id="entr, at 0"),
        pytest.param(lambda x: cp.entr(5 - x), 6.0, -np.inf, -np.inf, id="entr, outside"),
        pytest.param(cp.inv_pos, 0.0, np.inf, -np.inf, id="inv_pos, at 0"),
        pytest.param(lambda x: cp.inv_pos(5 - x), 6.0, np.inf, np.inf, id="inv_pos, outside"),
        pytest.param(cp.sqrt, 0.0, 0.0, np.inf, id="sqrt, at 0"),
        pytest.param(lambda x: cp.sqrt(x - 1), 0.5, -np.inf, np.inf, id="sqrt, outside"),
        pytest.param(lambda x: cp.power(x, 0.3), 0.0, 0.0, np.inf, id="root, at 0"),
        pytest.param(lambda x: cp.power(x, 1.5), 0.0, 0.0, 0.0, id="power 1.5, at 0"),
        pytest.param(lambda x: cp.power(x - 1, 3), 1.0, 0.0, 0.0, id="cube, at 0"),
        pytest.param(lambda x: cp.power(x - 1, 3), 0.5, np.inf, -np.inf, id="cube, outside"),
        pytest.param(lambda x: cp.kl_div(x, 3), 0.0, 3.0, -np.inf, id="kl_div, at 0"),
        pytest.param(lambda x: cp.kl_div(0 * x, x + 1), 2.0, 3.0, 1.0, id="kl_div, of 0"),
        pytest.param(lambda x: cp.kl_div(x - 1, 3), 0.5, np.inf, -np.inf, id="kl_div, outside"),
        pytest.param(lambda x: cp.rel_entr(3, x), 0.0, np.inf, -np.inf, id="rel_entr, towards 0"),
        pytest.param(lambda x: cp.rel_entr(3, 5 - x), 6.0, np.inf, np.inf, id="rel_entr, outside"),
    ],
)
def test_at_and_beyond_the_edge_of_a_domain(
    written: Written, rate: float, value: float, slope: float
) -> None:
    found = jet(written, [rate, 4.0])
    assert found.value[0] == value
    assert found.slope[0] == slope
    assert np.isfinite(found.slope[1])
    assert jet(written, [rate]).slope[0] == slope  # also where nothing is inside


def test_a_search_that_leaves_the_domain_comes_back() -> None:
    """The search for a rate starts at the change rate, far outside; the optimum is 5 + w/λ, and 8 − w/λ."""
    w = np.array([1.0, 2.0, 4.0])
    sources = fo.Sources([1e-3, 1.0, 1e3], importance=w, min_rate=5.1, max_rate=100.0)
    left = declared(lambda rate, s: -cp.multiply(s.importance, cp.log(rate - 5.0)))
    solution = fo.solve(fo.Problem(left, sources, 22.0), WaterFilling(), tolerance=SCALAR)
    assert np.all(np.abs(solution.rates - (5.0 + w)) <= SCALAR * 9.0)
    inner = fo.Sources([1e-3, 1.0, 1e3], importance=w, max_rate=7.9)
    right = declared(lambda rate, s: -rate - cp.multiply(s.importance, cp.log(8.0 - rate)))
    solution = fo.solve(fo.Problem(right, inner, 24.0), WaterFilling(), tolerance=SCALAR)
    assert np.all(np.abs(solution.rates - (8.0 - w)) <= SCALAR * 8.0)


def knapsack(price: Any, target: Any, bandwidth: float) -> float:  # noqa: ANN401 - arrays
    """Σ w·max(0, t − ρ) at its least: fill the dearest targets first."""
    left, cost = bandwidth, float(np.sum(price * target))
    for k in np.argsort(-price, kind="stable"):
        filled = min(left, float(target[k]))
        left, cost = left - filled, cost - float(price[k]) * filled
    return cost


def pos_form(w: Any, t: Any, x: Any) -> Any:  # noqa: ANN401
    return cp.multiply(w, cp.pos(t - x))


TARGETS: dict[str, Callable[[Any, Any, Any], Any]] = {  # Σ w·max(0, t − ρ), where no rate needs to exceed t
    "pos": pos_form,
    "neg": lambda w, t, x: cp.multiply(w, cp.neg(x - t)),
    "abs": lambda w, t, x: cp.multiply(w, cp.abs(t - x)),
    "maximum": lambda w, t, x: cp.maximum(cp.multiply(-w, x) + w * t, 0),
    "scalene": lambda w, t, x: cp.multiply(w, cp.scalene(x - t, 0, 1)),
    "minimum": lambda w, t, x: w * t - cp.minimum(cp.multiply(w, x), w * t),
}


@matrix(share=[0.1, 0.6, 1.3], form=TARGETS, every=5)
def test_costs_with_kinks_are_solved_and_certified(form: str, share: float) -> None:
    """Targets t, below each of which a missing refresh costs w: a fractional knapsack, with ties."""
    w, t = np.array([0.5, 1.0, 1.0, 2.0, 3.7, 0.0]), np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    problem, best, scale = targeted(TARGETS[form], w, t, share)
    solution = fo.solve(problem, WaterFilling(), tolerance=SCALAR)
    assert -EXACT * scale <= solution.value - best <= SCALAR * scale
    assert present(solution.certificate).bound <= best + EXACT * scale


@pytest.mark.exhaustive
def test_a_cone_solver_with_kinks() -> None:
    w, t = np.array([0.5, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    problem, best, scale = targeted(pos_form, w, t, 0.6)
    solution = fo.solve(problem, Conic(), tolerance=CONIC)
    assert abs(solution.value - best) <= CONIC * scale
    assert present(solution.certificate).bound <= best + EXACT * scale


def targeted(form: Any, w: Any, t: Any, share: float) -> tuple[fo.Problem, float, float]:  # noqa: ANN401
    """Return the problem with that share of Σt as bandwidth, its least cost, and what is large beside it."""
    bandwidth = share * float(t.sum())
    problem = fo.Problem(declared(lambda rate, _: form(w, t, rate)), fo.Sources(t, w), bandwidth)
    best = knapsack(w, t, bandwidth)
    return problem, best, best + float(np.max(w)) * bandwidth


@pytest.mark.exhaustive
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), at_kinks=st.booleans(), price=st.sampled_from([0.0, 0.3, 1.0, 2.0, 5.0]))
def test_no_certificate_is_below_the_true_gap(seed: int, at_kinks: bool, price: float) -> None:
    """Whatever the rates, also on kinks, and whatever the price."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    w, t = rng.choice([0.5, 1.0, 2.0, 3.0], n), rng.choice([0.5, 1.0, 2.0], n)
    bandwidth = float(rng.uniform(0.2, 1.2) * t.sum())
    form = declared(lambda rate, _: cp.multiply(w, cp.pos(t - rate)))
    problem = fo.Problem(form, fo.Sources(t, w), bandwidth)
    rates = t * rng.choice([0.0, 1.0], n) if at_kinks else rng.uniform(0.0, 2.0, n)
    proof = fo.certify(problem, rates, price)
    gap = float(np.sum(w * np.maximum(0.0, t - proof.rates))) - knapsack(w, t, bandwidth)
    assert proof.gap >= gap - EXACT * float(np.sum(w * t))


class Shortfall(fo.Objective):
    """Importance times the part of the change rate that is not refreshed: linear, then nothing."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, cp.pos(1 - cp.multiply(1 / sources.change_rate, rate)))


@matrix(seed=stratified(range(60), every=9), every=5)
def test_water_filling_lands_on_kinks_however_steep_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    d, w = 10 ** rng.uniform(-6, 4, n), 10 ** rng.uniform(-6, 6, n)
    bandwidth = float(rng.choice([1e-3, 0.1, 0.5, 0.9])) * float(np.sum(d))
    found = fo.solve(fo.Problem(Shortfall(), fo.Sources(d, w), bandwidth), WaterFilling(), tolerance=EXACT)
    # A knapsack that may be filled in fractions: the best order is by worth per bandwidth (Dantzig 1957).
    order = np.argsort(-w / d)
    room = bandwidth - np.concatenate(([0.0], np.cumsum(d[order])[:-1]))
    taken = np.clip(room, 0.0, d[order])
    best = float(np.sum(w[order] * (1.0 - taken / d[order])))
    assert found.value == pytest.approx(best, rel=SCALAR, abs=EXACT * float(np.sum(w)))


RATES = np.array([0.3, 1.0, 2.5, 40.0])


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(compiler, "_REGISTERED", dict(compiler._REGISTERED))


class rounded(own_atom):  # noqa: N801
    """√(s² + x²), s one per source."""

    def __init__(self, x: Any, scale: Any) -> None:  # noqa: ANN401
        self.scale = scale
        super().__init__(x)

    def get_data(self) -> list[Any]:
        return [self.scale]

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        return np.sqrt(self.scale**2 + values[0] ** 2)


def rounded_derivatives(x: Any, scale: Any) -> Any:  # noqa: ANN401
    f = np.hypot(scale, x)
    return f, x / f, scale**2 / f**3


class distance(own_atom):  # noqa: N801
    """√(1 + x² + y²) of two arguments."""

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        return np.sqrt(1.0 + values[0] ** 2 + values[1] ** 2)


def distance_derivatives(x: Any, y: Any) -> Any:  # noqa: ANN401
    f = np.sqrt(1.0 + x * x + y * y)
    cross = -x * y / f**3
    return f, (x / f, y / f), (((1.0 + y * y) / f**3, cross), (cross, (1.0 + x * x) / f**3))


def jet_own(written: Any) -> Any:  # noqa: ANN401
    rate = cp.Variable(len(RATES), nonneg=True)
    return compile_expression(written(rate), rate).evaluate(RATES)


def close(found: Any, *expected: Any) -> None:  # noqa: ANN401
    for a, b in zip(found, expected, strict=True):
        assert np.all(np.abs(a - b) <= EXACT * np.abs(b))


def test_an_atom_with_parameters_of_each_source() -> None:
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    register(rounded, rounded_derivatives, parameters=lambda atom: (atom.scale,))
    x = 2.0 * RATES - 1.0
    f = np.sqrt(scale**2 + x**2)
    close(jet_own(lambda r: rounded(2 * r - 1, scale)), f, 2.0 * x / f, 4.0 * scale**2 / f**3)
    assert "rounded" in known_atoms()


def test_an_atom_of_two_arguments() -> None:
    register(distance, distance_derivatives)
    f = np.sqrt(1.0 + 5.0 * RATES**2)  # both arguments in proportion to the rate: one of √5·r
    close(jet_own(lambda r: distance(r, 2 * r)), f, 5.0 * RATES / f, 5.0 / f**3)
    g = np.sqrt(10.0 + RATES**2)
    close(jet_own(lambda r: distance(3.0, r)), g, RATES / g, 10.0 / g**3)


def test_an_atom_of_cvxpy_by_its_name() -> None:
    refused("'ceil'", jet_own, cp.ceil, error=UnknownAtomError)
    register("ceil", lambda x: (np.ceil(x), 0.0 * x, 0.0 * x))
    close(jet_own(cp.ceil), np.ceil(RATES), 0.0 * RATES, 0.0 * RATES)


def test_a_name_belongs_to_cvxpy_and_a_class_to_itself() -> None:
    impostor = type("log", (own_atom,), {})
    refused("atom 'log'", jet_own, impostor, error=UnknownAtomError)
    heir = type("heir", (stranger,), {})
    refused("'heir'", jet_own, heir, error=UnknownAtomError)


@pytest.mark.parametrize("atom", [3, None, cp.log(cp.Variable(2))])
def test_what_is_no_atom_is_refused(atom: Any) -> None:  # noqa: ANN401
    refused(r"is no atom\. Pass", register, atom, rounded_derivatives, error=fo.ObjectiveError)


class NearTarget(fo.Objective):
    """Σ w·√(Δ² + (ρ−Δ)²): be refreshed about as often as there are changes."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, rounded(rate - sources.change_rate, sources.change_rate))


def test_an_objective_with_it_is_solved_and_certified_without_a_cone_form() -> None:
    """With equal weights the optimum has ρ−Δ in proportion to Δ, so rates are in proportion to Δ."""
    register(rounded, rounded_derivatives, parameters=lambda atom: (atom.scale,))
    d = np.array([0.5, 1.0, 2.5])
    problem = fo.Problem(NearTarget(), fo.Sources(d), 2.0)
    solution = fo.solve(problem, WaterFilling(), tolerance=SCALAR)
    assert np.all(np.abs(solution.rates - d / 2.0) <= SCALAR * d)
    assert abs(solution.value - float(np.sum(d * np.sqrt(1.25)))) <= SCALAR * solution.value
    conic = fo.solve(problem, Conic(), throw=False)  # CVXPY has no cones for it
    assert conic.status is fo.Status.REFUSED
    assert "no cone form of atom 'rounded'" in conic.note

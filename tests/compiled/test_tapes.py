"""Compiled declared expressions: generated source and loops against the tape and bisection."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression, register
from freshopt.autodiff.tape_description import describe
from freshopt.compiled.tapes import atom_functions, tape_passes
from freshopt.compiled.tapes.tape_passes import TapePasses, row_response
from freshopt.compiled.tapes.tape_source import jet_source, numbers_of
from freshopt.cvx import cp
from freshopt.numerics import vector_math
from freshopt.numerics.arrays import CACHED, Array
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.autodiff.test_compiler import EXPRESSIONS
from tests.ground_truth.named import present
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import EXACT
from tests.ground_truth.unknown_atom import own_atom


def accepted(name: str) -> bool:
    """Return whether this CVXPY builds an expression: exponents that vary are of 1.9."""
    try:
        EXPRESSIONS[name][0](cp.Variable(1, nonneg=True))
    except ValueError:
        return False
    return True


ACCEPTED = [name for name in EXPRESSIONS if name != "power: of a constant" or accepted(name)]
RATES = np.logspace(-6.0, 5.0, 25)
# Zero, the smallest and largest floats, ties and the edges of the tested atoms' domains.
TINY = (0.0, 5e-324, 1e-310, 2.3e-308, 1e-200, 1e-100, 1e-30)
USUAL = (0.25, 0.5, 1.0, 1.3, 2.0, 2.5, 3.0, 4.0, 8.0, 9.0, 10.0, 50.0, 700.0, 800.0)
EDGES = np.array([*TINY, *USUAL, 1e30, 1e150, 1e300, 1.7e308])


def disagreement(found: Array, expected: Array) -> float:
    """Return the largest relative difference; infinities and NaN must agree in place and sign."""
    known = np.isfinite(expected)
    if not np.array_equal(found[~known], expected[~known], equal_nan=True):
        return np.inf
    if not np.all(np.isfinite(found[known])):
        return np.inf
    difference = np.abs(found[known] - expected[known])
    return float(np.max(difference / np.maximum(np.abs(expected[known]), 1e-300), initial=0.0))


def data(n: int) -> tuple[Array, Array]:
    """Return change rates over ten decades, and importances that are lognormal with σ = 3, some 0."""
    rng = np.random.default_rng(n)
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), rng.lognormal(0.0, 3.0, n)
    w[10::17] = 0.0
    return d, w


Written = Callable[[Any, Array, Array], Any]


def _entropies(rate: Any, d: Array, w: Array) -> Any:  # noqa: ANN401 - CVXPY's expressions
    share = cp.multiply(1.0 / d, rate)
    return cp.multiply(w, cp.rel_entr(1.0, share + 1.0) - cp.log1p(share) - cp.sqrt(share))


# Written as users do, and the sign: −1 of what is maximised. Costs fall and are convex, over all rates > 0.
FORMS: dict[str, tuple[Written, float]] = {
    "harmonic": (lambda r, d, w: cp.multiply(w, cp.logistic(np.log(d) - cp.log(r))), 1.0),
    "binary": (lambda r, d, w: -cp.multiply(w, cp.inv_pos(1.0 + cp.multiply(1.0 / d, r))), -1.0),
    "tail": (lambda r, _, w: cp.multiply(w, cp.exp(-0.01 * r) + cp.power(r, -1.5)), 1.0),
    "deadline": (
        lambda r, d, w: cp.multiply(
            w,
            cp.maximum(3 - 4 * cp.multiply(1.0 / d, r), 2 - 1.5 * cp.multiply(1.0 / d, r), 0.0)
            + cp.pos(1 - cp.multiply(1.0 / d, r)),
        ),
        1.0,
    ),
    "entropies": (_entropies, 1.0),
    "concave, kinked": (
        lambda r, d, w: cp.multiply(
            w, cp.minimum(cp.log(1 + cp.multiply(1.0 / d, r)), cp.sqrt(cp.multiply(0.5 / d, r)))
        ),
        -1.0,
    ),
}
# At small rates these marginals are flat on logarithms: ρ/Δ = 1e-4 changes them by 1e-4.
FLAT = {"binary": 1e-11, "entropies": 1e-10, "concave, kinked": 1e-10}


class rounded(own_atom):  # noqa: N801 - as in CVXPY
    """√(1 + x²), an atom of a user, registered below."""

    def numeric(self, values: Any) -> Any:  # noqa: ANN401
        return np.sqrt(1.0 + values[0] ** 2)

    def is_incr(self, idx: int) -> bool:
        return bool(self.args[idx].is_nonneg())

    def is_decr(self, idx: int) -> bool:
        return bool(self.args[idx].is_nonpos())


register(rounded, lambda x: (np.sqrt(1.0 + x * x), x / np.sqrt(1.0 + x * x), (1.0 + x * x) ** -1.5))


ULP = float(np.finfo(np.float64).eps)
# e^(d·log x) multiplies the error of the logarithm by its argument, up to 40 here.
AMPLIFIED = {"exp": 400.0 * ULP, "exp, twice": 100.0 * ULP}


def names() -> dict[str, Any]:
    """Return the functions that generated source calls, uncompiled; NumPy's numbers divide by 0."""
    found: dict[str, Any] = {"inf": np.inf, "nan": np.nan}
    for module in (vector_math, atom_functions):
        found.update(vars(module))
    for key in ("fast_exp", "fast_log"):
        own = found[key]
        found[key] = lambda x, own=own: np.float64(own(x))
    functions = inspect.getmembers(atom_functions, inspect.isfunction)
    for key, function in functions:
        if function.__module__ == atom_functions.__name__:
            found[key] = type(function)(function.__code__, found, key)
    return found


def jet_of(tape: Any, rates: Array, side: int) -> Array:  # noqa: ANN401 - a node
    """Return the jets by the generated source, shape (3, n)."""
    description = present(describe(tape))
    space = names()
    exec(jet_source("jet", description), space)
    columns = [np.broadcast_to(tape.constants[k], rates.shape) for k, _ in numbers_of(description)]
    found = [space["jet"](r, np.float64(side), [c[k] for c in columns]) for k, r in enumerate(rates)]
    return np.array(found, dtype=float).T


@matrix(name=ACCEPTED, where=["inside", "edges"])
def test_generated_source_has_the_tapes_numbers(name: str, where: str) -> None:
    rate = cp.Variable(len(RATES), nonneg=True)
    tape = compile_expression(EXPRESSIONS[name][0](rate), rate)
    rates = RATES if where == "inside" else EDGES
    with np.errstate(all="ignore"):
        for side in (1, -1):
            expected = tape.evaluate(rates, 2, side)
            found = jet_of(tape, rates, side)
            for order in range(3):
                assert disagreement(found[order], expected[order]) <= AMPLIFIED.get(name, 32.0 * ULP), order


N = 1000
# Compiling takes a second per loop: two forms by default.
STRATIFIED = [
    pytest.param(name, marks=[] if name in ("harmonic", "deadline") else [pytest.mark.exhaustive])
    for name in FORMS
]
SUMS: list[tuple[str | None, ...]] = [
    ("harmonic", "binary"),
    (None, "harmonic", "deadline"),
    ("tail", "harmonic", "binary"),
]


def derived(name: str, n: int = N) -> DerivedNumerics:
    """Return the numerics of a form for ill-scaled sources; `with_passes` compiles them."""
    written, sign = FORMS[name]
    d, w = data(n)
    rate = cp.Variable(n, nonneg=True)
    return DerivedNumerics(compile_expression(written(rate, d, w), rate), sign, d)


def with_passes(numerics: DerivedNumerics, monkeypatch: pytest.MonkeyPatch) -> DerivedNumerics:
    """Return the numerics as those of many sources are."""
    monkeypatch.setattr(tape_passes, "COMPILED_FROM", 0)
    monkeypatch.setattr(tape_passes, "EVALUATED_FROM", 0)
    found = DerivedNumerics(numerics.node, numerics.sign, numerics.scale)
    assert found.passes is not None
    return found


def bisected(numerics: DerivedNumerics, price: Array) -> Array:
    """Return best responses by bisection of log ρ, over all floats."""
    low, high = np.full(len(price), -744.0), np.full(len(price), 709.0)
    with np.errstate(all="ignore"):
        for _ in range(70):
            middle = 0.5 * (low + high)
            above = numerics.node.evaluate(np.exp(middle)).slope * -numerics.sign > price
            low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.exp(low))


@matrix(name=STRATIFIED, every=2)
def test_jets_are_those_of_the_tape(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = derived(name)
    compiled = with_passes(plain, monkeypatch)
    rng = np.random.default_rng(2)
    for rates in (
        plain.scale * rng.lognormal(0.0, 3.0, N),
        np.resize(EDGES, N),
        np.resize([0.25, 1.0, 3.0], N),
    ):
        for side in (1, -1):
            expected, found = plain.jet(rates, 2, side), compiled.jet(rates, 2, side)
            assert max(map(disagreement, found, expected)) <= 16.0 * ULP


@pytest.mark.exhaustive
def test_jets_have_the_same_bits_alone_in_chunks_and_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 20 * CACHED + 77
    numerics = with_passes(derived("harmonic", n), monkeypatch)
    rates = numerics.scale * np.random.default_rng(3).lognormal(0.0, 2.0, n)
    price = np.array(numerics.marginal(rates))
    monkeypatch.setenv("FRESHOPT_THREADS", "1")
    jets, inverse = numerics.jet(rates), numerics.inverse_marginal(price)
    monkeypatch.setenv("FRESHOPT_THREADS", "3")
    assert np.array_equal(jets, numerics.jet(rates))
    assert np.array_equal(inverse, numerics.inverse_marginal(price))
    for index in (slice(5, 1234), np.arange(n - 9, n), np.array([17])):
        some = numerics.take(index)
        assert np.array_equal(np.array(jets)[:, index], some.jet(rates[index]))
        assert np.array_equal(inverse[index], some.inverse_marginal(price[index]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STRATIFIED)
def test_best_responses_are_those_of_bisection_and_of_numpy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = derived(name)
    compiled = with_passes(plain, monkeypatch)
    rng = np.random.default_rng(4)
    own = np.array(plain.marginal(plain.scale * rng.lognormal(0.0, 1.5, N)))
    for price in (own, np.full(N, 1e-3), np.full(N, 1e9)):
        price = np.where(price > 0.0, price, 1.0)
        found, expected = compiled.inverse_marginal(price), plain.inverse_marginal(price)
        assert np.array_equal(found == 0.0, expected == 0.0)
        assert np.array_equal(np.isinf(found), np.isinf(expected))
        inner = (found > 1e-290) & np.isfinite(found)
        # Where the marginal is flat, the rate is what rounding leaves of it.
        loose = FLAT.get(name, EXACT)
        assert disagreement(found[inner], expected[inner]) <= loose
        assert disagreement(found[inner], bisected(plain, price)[inner]) <= loose


@pytest.mark.exhaustive
def test_no_price_and_no_number_end_as_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = derived("binary")
    compiled = with_passes(plain, monkeypatch)
    for price in (np.inf, np.nan, -1.0):
        prices = np.full(N, price)
        assert np.array_equal(compiled.inverse_marginal(prices), plain.inverse_marginal(prices))


def program(objective: DerivedNumerics | None, rng: np.random.Generator) -> Program:
    """Return a program whose sources have bounds of every sort; its curves are the Lagrangian's."""
    d, _ = data(N)
    one = RowBlock.linear("rate", [0], np.arange(N), np.zeros(N, np.int64), np.ones(N), np.ones(1))
    lower = np.where(rng.random(N) < 0.3, 0.1 * d, 0.0)
    upper = np.where(rng.random(N) < 0.3, 10.0 * d, np.inf)
    upper = np.where(rng.random(N) < 0.1, lower, upper)
    return Program(objective, lower, upper, d, Rows.gather([one], N))


@pytest.mark.exhaustive
@pytest.mark.parametrize("names", [SUMS[0], *rare(*SUMS[1:])])
def test_row_responses_are_those_of_the_lagrangian(
    names: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    numerics = [None if name is None else derived(name) for name in names]
    curves = [one for one in numerics[1:] if one is not None]
    theta = rng.lognormal(0.0, 3.0, (len(names), N))
    theta[0] *= np.where(rng.random(N) < 0.1, -1.0, 1.0)
    theta[:, rng.random(N) < 0.1] = 0.0
    theta[1:][rng.random((len(curves), N)) < 0.2] = 0.0
    given = program(numerics[0], rng)
    parts = [*([] if numerics[0] is None else [(None, numerics[0])]), *zip(theta[1:], curves, strict=True)]
    lagrangian = Lagrangian(given, theta[0], tuple(parts), None)
    with np.errstate(all="ignore"):
        expected = lagrangian.best_response()
    own = [None if one is None else with_passes(one, monkeypatch).compiled() for one in numerics]
    start = given.typical * rng.lognormal(0.0, 2.0, N)
    found = row_response(
        own[0], [one for one in own[1:] if one is not None], theta, start, given.lower, given.upper
    )
    assert np.all((found.rates >= given.lower) & (found.rates <= given.upper))
    with np.errstate(all="ignore"):
        # At price 0 the tails' marginals are below all floats before they meet it.
        known = (theta[0] != 0.0) | (expected == given.lower) | np.isinf(expected)
        assert disagreement(found.rates[known], expected[known]) <= EXACT
        for t, curve in enumerate(curves, start=1):
            assert disagreement(found.values[t], curve.cost(found.rates)) <= 16.0 * ULP
            assert disagreement(found.slopes[t], -curve.marginal(found.rates)) <= 16.0 * ULP
        assert disagreement(found.curvature, lagrangian.curvature(found.rates)) <= 32.0 * ULP
        assert np.array_equal(found.values[0], found.rates)
        assert np.all(found.slopes[0] == 1.0)
        assert disagreement(found.cost, given.cost(found.rates)) <= 16.0 * ULP
    compiled = [*([] if numerics[0] is None else [(None, with_passes(numerics[0], monkeypatch))])]
    compiled += [(w, with_passes(c, monkeypatch)) for w, c in zip(theta[1:], curves, strict=True)]
    again = Lagrangian(given, theta[0], tuple(compiled), None).best_response(start)
    assert np.array_equal(again, found.rates)


class Declared(fo.Objective):
    """Harmonic staleness, as a user declares it."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return FORMS["harmonic"][0](rate, sources.change_rate, sources.importance)


@matrix(solver=[SeparableNewton(), WaterFilling()], every=2)
def test_solves_have_the_certificates_of_numpy(
    solver: SeparableNewton | WaterFilling, monkeypatch: pytest.MonkeyPatch
) -> None:
    d, w = data(3000)
    sources = fo.Sources(d, w, refresh_cost=np.random.default_rng(6).uniform(0.2, 5.0, 3000))
    monkeypatch.setattr(tape_passes, "COMPILED_FROM", 0)
    monkeypatch.setattr(tape_passes, "EVALUATED_FROM", 0)
    problem = fo.Problem(Declared(), sources, 0.3 * float(d.sum()))
    assert isinstance(problem.numerics, DerivedNumerics)
    assert problem.numerics.passes is not None
    found = fo.solve(problem, solver)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    expected = fo.solve(problem, solver)
    assert present(found.certificate).relative_gap <= EXACT
    assert fo.certify(problem, found.rates, found.price).relative_gap <= EXACT
    assert abs(found.value - expected.value) <= EXACT * expected.value
    assert abs(found.price - expected.price) <= EXACT * expected.price
    assert np.all(np.abs(found.rates - expected.rates) <= 1e3 * EXACT * expected.rates)


def test_few_sources_and_users_rules_stay_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert derived("harmonic").passes is None
    monkeypatch.setattr(tape_passes, "COMPILED_FROM", 0)
    assert derived("harmonic").passes is not None
    rate = cp.Variable(3, nonneg=True)
    tape = compile_expression(rounded(rate), rate)
    assert describe(tape) is None
    numerics = DerivedNumerics(tape, 1.0, np.ones(3))
    assert numerics.passes is None
    assert numerics.marginal(np.ones(3)) == pytest.approx(np.full(3, -(0.5**0.5)))
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert derived("harmonic").passes is None


@pytest.mark.exhaustive
def test_one_source_and_none_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    numerics = with_passes(derived("harmonic", 1), monkeypatch)
    rate = 2.0 * numerics.scale
    assert numerics.inverse_marginal(numerics.marginal(rate)) == pytest.approx(rate, rel=EXACT)
    none = with_passes(derived("harmonic"), monkeypatch).take(np.zeros(0, dtype=np.int64))
    assert none.inverse_marginal(np.zeros(0)).shape == none.marginal(np.zeros(0)).shape == (0,)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ACCEPTED)
def test_every_atom_compiled_has_the_tapes_numbers(name: str) -> None:
    rate = cp.Variable(len(RATES), nonneg=True)
    tape = compile_expression(EXPRESSIONS[name][0](rate), rate)
    description = present(describe(tape))
    passes = TapePasses.of(description, len(RATES), maximised=False)
    for side in (1, -1):
        for rates in (RATES, EDGES):
            with np.errstate(all="ignore"):
                value, slope, curvature = tape.evaluate(rates, 2, side)
            found = passes.jets(tape.constants, rates, side)
            for own, expected in zip(found, (value, -slope, curvature), strict=True):
                assert disagreement(own, expected) <= 32.0 * ULP

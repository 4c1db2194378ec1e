"""Compiled passes of declared constraints against bisection, exact sums and NumPy; bits, threads, edges."""

import math
from dataclasses import replace
from typing import NamedTuple

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import backend, cost_functions
from freshopt.compiled.rows.row_columns import ArrowGram, RowColumns
from freshopt.compiled.source_columns import SourceColumns
from freshopt.interior_point import program_columns
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_column, as_float64
from freshopt.problems import accumulated_delay, age, binary_freshness, harmonic_staleness
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.strata import rare

pytestmark = pytest.mark.usefixtures("all_compiled")
PERIODIC, POISSON, SIGNAL = fo.Refresh.PERIODIC, fo.Refresh.POISSON, "on signal"
SOME = [(named.HARMONIC, None), (fo.problems.SynchronizationCost(fo.problems.PowerCost(2.0, 0.7)), None)]
OTHERS = [
    (named.BINARY_PERIODIC, None),
    (named.BINARY, SIGNAL),
    (named.HARMONIC_PERIODIC, None),
    (named.HARMONIC, SIGNAL),
    (named.BINARY, None),
    (named.DELAY, None),
    (named.DELAY_PERIODIC, None),
    (named.AGE, None),
    (named.AGE_PERIODIC, None),
    (named.AGE, SIGNAL),
    (fo.problems.PollingKnapsack("polls"), None),
    (fo.problems.PollingKnapsack("materials"), None),
]
CELLS = [*SOME, *(pytest.param(*cell, marks=pytest.mark.exhaustive) for cell in OTHERS)]
MORE = (named.BINARY, named.DELAY, named.DELAY_PERIODIC, named.AGE)
FAMILIES = [named.HARMONIC, *rare(*MORE)]
# Of φ' and of a bound: the demand functions are right to a few ulp.
NEAR = 1e-11


class Case(NamedTuple):
    program: Program
    matrix: Array
    multipliers: Array


def kernel_of(objective: fo.Objective, signals: str | None, d: Array, w: Array) -> Kernel:
    sources = fo.Sources(d, w)
    kernel = objective.signalled_kernel(sources) if signals else objective.kernel(sources)
    assert isinstance(kernel, Kernel)
    return kernel


def scales(n: int, rng: np.random.Generator, ill: bool) -> tuple[Array, Array]:
    """Change rates and importance; every twentieth source is of none."""
    d = 10 ** rng.uniform(-5, 5, n) if ill else rng.lognormal(size=n)
    return d, rng.lognormal(0.0, 3.0 if ill else 1.0, n) * (np.arange(n) % 20 != 3)


def entries(n: int, rng: np.random.Generator, ill: bool) -> Array:
    """Coefficients of two rows of every source, seven of some, and a reserve of some."""
    dense = rng.lognormal(0.0, 1.5 if ill else 0.3, (2, n))
    some = rng.lognormal(0.0, 1.5 if ill else 0.3, (7, n)) * (rng.random((7, n)) < 0.3)
    reserve = -0.5 * dense[:1] * (rng.random(n) < 0.2) * 10 ** rng.uniform(-1, 1, n)
    return np.concatenate((some[:3], dense, some[3:], reserve))


def blocks(matrix: Array) -> list[RowBlock]:
    row, source = np.nonzero(matrix)
    return [
        RowBlock.linear("row", range(len(matrix)), source, row, matrix[row, source], np.ones(len(matrix)))
    ]


def curved(source: IntArray, row: IntArray, coefficient: Array, curve: Numerics) -> RowBlock:
    """Rows of the cost that a curve says."""
    ones, kind = np.ones(int(row.max()) + 1), np.ones(len(source), dtype=np.int64)
    keys = tuple(range(len(ones)))
    return RowBlock("target", keys, source, row, kind, coefficient, (curve,), ones, ones, 0.0 * ones)


def case(numerics: Numerics, d: Array, rng: np.random.Generator, *, ill: bool, most: Array) -> Case:
    n = len(d)
    matrix = entries(n, rng, ill)
    typical = np.median(d)
    upper = np.minimum(most, typical * 10 ** rng.uniform(-1, 3, n))
    lower = upper * rng.choice([0.0, 0.0, 1e-3, 1.0], n)
    # Multipliers at which the middle source refreshes about as often as it changes.
    level = float(np.median(numerics.marginal(np.full(n, typical)))) / 4.0
    multipliers = level * rng.lognormal(0.0, 0.5, len(matrix))
    program = Program(numerics, lower, upper, np.full(n, typical), Rows.gather(blocks(matrix), n))
    return Case(program, matrix, multipliers)


def columns_of(program: Program, disjoint: BoolArray | None = None) -> RowColumns:
    columns = present(program_columns.row_columns(program, disjoint))
    return columns


def assert_optimal(numerics: Numerics, program: Program, price: Array, rates: Array) -> None:
    """Require that φ' changes its sign at the rates, or a bound is met."""
    below, above = np.nextafter(rates, 0.0) * (1.0 - NEAR), rates * (1.0 + NEAR)
    rises = numerics.marginal(below) >= price - NEAR * np.abs(price)
    falls = numerics.marginal(above) <= price + NEAR * np.abs(price)
    # No price at all leaves what is gained: at these rates next to nothing, or a bound.
    assert np.all(rises | (rates <= program.lower))
    assert np.all(falls | (rates >= program.upper))
    assert np.all((rates >= program.lower) & (rates <= program.upper))


def assert_used(matrix: Array, values: Array, used: Array) -> None:
    for line, found in zip(matrix, used, strict=True):
        amounts = (line * values)[line != 0.0].tolist()
        assert abs(found - math.fsum(amounts)) <= 1e-15 * math.fsum(map(abs, amounts))


def assert_gram(slopes: Array, inverse: Array, gram: Array, tolerance: float = 1e-6) -> None:
    expected = (slopes * inverse) @ slopes.T
    size = np.sqrt(np.diag(expected))
    assert np.all(np.abs(gram - expected) <= tolerance * np.outer(size, size))
    np.testing.assert_array_equal(gram, gram.T)


def inverse_curvature(numerics: Numerics, program: Program, rates: Array) -> Array:
    inside = (rates > program.lower) & (rates < program.upper)
    with np.errstate(all="ignore"):
        inverse = 1.0 / numerics.curvature(rates)
    return np.where(inside & np.isfinite(inverse), inverse, 0.0)


@pytest.mark.parametrize("ill", [False, True], ids=["benign", "ill"])
@pytest.mark.parametrize(("objective", "signals"), CELLS, ids=str)
@pytest.mark.sampled(4)
def test_rows_of_the_rate(objective: fo.Objective, signals: str | None, ill: bool) -> None:
    n, rng = 3000, np.random.default_rng(1)
    d, w = scales(n, rng, ill)
    kernel = kernel_of(objective, signals, d, w)
    program, matrix, y = case(kernel, d, rng, ill=ill, most=d if signals else np.full(n, np.inf))
    rates, used, gram = columns_of(program).evaluate(y)
    price = y @ matrix
    assert_optimal(kernel, program, price, rates)
    inside = (rates > program.lower) & (rates < program.upper)
    assert inside.sum() > n / 20 or isinstance(objective, fo.problems.BinaryFreshness)
    assert np.count_nonzero(price < 0.0) > 10
    assert_used(matrix, rates, used)
    assert isinstance(gram, np.ndarray)
    flat = signals is not None and isinstance(objective, fo.problems.BinaryFreshness)
    inverse = np.zeros(n) if flat else inverse_curvature(kernel, program, rates)
    assert_gram(matrix, inverse, gram, 1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [False, True], ids=["benign", "ill"])
@pytest.mark.parametrize("objective", FAMILIES, ids=repr)
def test_rows_of_a_cost_of_the_same_family(objective: fo.Objective, ill: bool) -> None:
    n, rng = 3000, np.random.default_rng(2)
    d, w = scales(n, rng, ill)
    kernel, other = (kernel_of(objective, None, d, v) for v in (w, rng.permutation(w)))
    program, matrix, y = case(kernel, d, rng, ill=ill, most=np.full(n, np.inf))
    own = np.abs(entries(n, rng, ill))
    both = [*blocks(matrix)]
    for lines, curve in ((own[:4], kernel), (own[4:], other)):
        row, source = np.nonzero(lines)
        both.append(curved(source, row, lines[row, source], curve))
    program = Program(kernel, program.lower, program.upper, program.typical, Rows.gather(both, n))
    mu = rng.lognormal(0.0, 1.0, len(own)) * (rng.random(len(own)) < 0.8)
    multipliers = np.concatenate((y, mu))
    rates, used, gram = columns_of(program).evaluate(multipliers)
    lagrangian = Lagrangian.at(program, multipliers)
    assert_optimal(lagrangian, program, y @ matrix, rates)  # type: ignore[arg-type]
    costs = [own[:4] * as_float64(kernel.importance), own[4:] * as_float64(other.importance)]
    assert_used(matrix, rates, used[: len(matrix)])
    weighed = np.concatenate(costs)
    with np.errstate(all="ignore"):
        unit = kernel.unit_cost(rates, *kernel.parameters)
        steep = -kernel.unit_marginal(rates, *kernel.parameters)
    for line, found in zip(weighed, used[len(matrix) :], strict=True):
        amounts = line[line > 0.0] * unit[line > 0.0]
        assert found == pytest.approx(math.fsum(amounts.tolist()), rel=2e-15)
    assert isinstance(gram, np.ndarray)
    inverse = inverse_curvature(lagrangian, program, rates)  # type: ignore[arg-type]
    slopes = np.concatenate((matrix, weighed * np.where(inverse > 0.0, steep, 0.0)))
    assert_gram(slopes, inverse, gram, 1e-5)


@pytest.mark.exhaustive
def test_targets_alone_have_no_objective_to_weigh() -> None:
    n, rng = 500, np.random.default_rng(3)
    d, w = scales(n, rng, False)
    kernel = kernel_of(named.HARMONIC, None, d, w)
    target = curved(np.arange(n), np.zeros(n, dtype=np.int64), np.ones(n), kernel)
    rows = Rows.gather([*blocks(np.ones((1, n))), target], n)
    program = Program(None, np.full(n, 1e-3), np.full(n, np.inf), np.ones(n), rows)
    y = np.array([1.0, 3.0])
    rates, used, _ = columns_of(program).evaluate(y)
    expected = np.maximum(1e-3, 6.0 * w * d / (d + np.sqrt(d * d + 12.0 * w * d)))
    np.testing.assert_allclose(rates, expected, rtol=1e-13)
    assert used[1] == pytest.approx(float(w @ np.log1p(d / rates)), rel=1e-13)


def test_an_objective_may_have_a_price_of_its_own() -> None:
    n, rng = 1000, np.random.default_rng(9)
    d, w = scales(n, rng, False)
    kernel = kernel_of(named.HARMONIC, None, d, w)
    program, matrix, y = case(kernel, d, rng, ill=False, most=np.full(n, np.inf))
    columns, c = columns_of(program), 0.5
    source_columns = columns.columns
    assert isinstance(source_columns, SourceColumns)
    priced = replace(columns, columns=source_columns._replace(cost=c)).evaluate(y)
    assert_optimal(kernel, program, y @ matrix + c, priced.rates)
    assert np.any(priced.rates < columns.evaluate(y).rates)


@pytest.mark.parametrize("targets", [False, True], ids=["budgets", "targets"])
@pytest.mark.sampled(2)
def test_disjoint_rows_make_an_arrow_of_the_matrix(targets: bool) -> None:
    n, hosts, rng = 5000, 300, np.random.default_rng(4)
    d, w = scales(n, rng, False)
    kernel = kernel_of(named.HARMONIC, None, d, w)
    program, matrix, y = case(kernel, d, rng, ill=False, most=np.full(n, np.inf))
    some = np.flatnonzero(rng.random(n) < 0.7)
    host = rng.integers(0, hosts, len(some))
    share, first = rng.random(len(some)), np.zeros(n, dtype=np.int64)
    own = (
        curved(some, host, share, kernel)
        if targets
        else RowBlock.linear("host", range(hosts), some, host, share, np.ones(hosts))
    )
    middle = [RowBlock.linear("first", [None], np.arange(n), first, d, np.ones(1)), own]
    rows = Rows.gather([*middle, *blocks(matrix)], n)
    program = Program(kernel, program.lower, program.upper, program.typical, rows)
    multipliers = np.concatenate(([0.1], rng.random(hosts), y))
    flags = np.zeros(len(rows), dtype=np.bool_)
    flags[1 : 1 + hosts] = True
    full, arrow = columns_of(program).evaluate(multipliers), columns_of(program, flags).evaluate(multipliers)
    # θ is added up in another order.
    np.testing.assert_allclose(arrow.rates, full.rates, rtol=1e-11)
    np.testing.assert_allclose(arrow.used, full.used, rtol=1e-11)
    assert isinstance(arrow.gram, ArrowGram)
    assert isinstance(full.gram, np.ndarray)
    size = np.sqrt(np.diag(full.gram)) + 1e-100  # of rows whose sources are all at bounds
    scaled = full.gram / np.outer(size, size)
    diagonal, cross, corner = arrow.gram
    np.testing.assert_allclose(diagonal, np.diag(full.gram)[flags], rtol=1e-8, atol=0.0)
    hosts_size, other_size = size[flags], size[~flags]
    np.testing.assert_allclose(cross / np.outer(hosts_size, other_size), scaled[flags][:, ~flags], atol=1e-8)
    np.testing.assert_allclose(
        corner / np.outer(other_size, other_size), scaled[~flags][:, ~flags], atol=1e-8
    )
    without = columns_of(program, flags).evaluate(multipliers, gram=False)
    np.testing.assert_array_equal(without.used, arrow.used)
    with pytest.raises(ValueError, match="two host rows"):
        columns_of(program, np.ones(len(rows), dtype=np.bool_))


@pytest.mark.parametrize("kind", ["dense", "sparse", "host"])
def test_sums_that_cancel_keep_their_digits(kind: str) -> None:
    # Bounds leave one choice, and coefficients of ±1 make every product exact.
    n, rng = 30_000, np.random.default_rng(10)
    rates = np.repeat(rng.lognormal(0.0, 3.0, n // 2), 2)
    rates[1::2] *= 1.0 + 1e-7 * rng.random(n // 2)
    order = rng.permutation(n)
    rates, sign = rates[order], np.where(order % 2 == 0, -1.0, 1.0)
    row = np.zeros(n, dtype=np.int64) if kind == "dense" else rng.integers(0, 3, n)
    rows = Rows.gather([RowBlock.linear("row", range(3), np.arange(n), row, sign, np.ones(3))], n)
    kernel = named.HARMONIC.kernel(fo.Sources(np.ones(n), np.array(rates)))
    program = Program(kernel, rates, rates, rates, rows)
    flags = np.full(3, kind == "host")
    used = columns_of(program, flags).evaluate(np.ones(3)).used
    for j in range(3):
        amounts = (sign * rates)[row == j].tolist()
        # The sum of sizes is a million times the sum: without its rounding errors it is right to 1e-10.
        assert used[j] == pytest.approx(math.fsum(amounts), rel=1e-15, abs=0.0)


def test_bits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    n, rng = 40_000, np.random.default_rng(5)
    d, w = scales(n, rng, True)
    kernel = kernel_of(named.HARMONIC, None, d, w)
    program, _, y = case(kernel, d, rng, ill=True, most=np.full(n, np.inf))
    many = 300  # rows, with which there are fewer blocks
    group = rng.integers(0, many, n)
    extra = RowBlock.linear("group", range(many), np.arange(n), group, rng.random(n), np.ones(many))
    more = Program(
        kernel,
        program.lower,
        program.upper,
        program.typical,
        Rows.gather([extra, *blocks(entries(n, rng, True))], n),
    )
    for each, multipliers in ((program, y), (more, np.concatenate((np.full(many, y[0]), y)))):
        columns, found = columns_of(each), []
        for threads in ("1", "3", "8"):
            monkeypatch.setenv("FRESHOPT_THREADS", threads)
            got = columns.evaluate(multipliers)
            assert isinstance(got.gram, np.ndarray)
            found.append((got.rates.tobytes(), got.used.tobytes(), got.gram.tobytes()))
        assert found[0] == found[1] == found[2]


def test_numpy_says_the_same() -> None:
    n, rng = 20_000, np.random.default_rng(6)
    d, w = scales(n, rng, True)
    kernel = kernel_of(named.HARMONIC, None, d, w)
    program, _, y = case(kernel, d, rng, ill=True, most=np.full(n, np.inf))
    got = columns_of(program).evaluate(y)
    lagrangian = Lagrangian.at(program, y)
    rates = lagrangian.best_response()
    # A price that nearly cancels has lost the same digits in another order.
    np.testing.assert_allclose(got.rates, rates, rtol=1e-9)
    np.testing.assert_allclose(got.used, program.rows.used(got.rates), rtol=1e-14)


@pytest.mark.exhaustive
def test_signalled_sources_have_their_own_demand() -> None:
    n, rng = 3000, np.random.default_rng(7)
    d, w = scales(n, rng, False)
    objective, signalled = named.HARMONIC, rng.random(n) < 0.5
    sources = fo.Sources(d, w)
    assert objective.signalled_kernel(sources) is not None
    curve = objective.curve(sources)
    silent = curve.kernel(sources.importance, fo.Refresh.POISSON)
    other = curve.kernel(sources.importance, fo.Refresh.ON_SIGNAL)
    numerics = MixedNumerics(signalled, silent, other)
    program, matrix, y = case(numerics, d, rng, ill=False, most=np.where(signalled, d, np.inf))
    rates, used, gram = columns_of(program).evaluate(y)
    assert_optimal(numerics, program, y @ matrix, rates)
    assert_used(matrix, rates, used)
    assert isinstance(gram, np.ndarray)
    assert_gram(matrix, inverse_curvature(numerics, program, rates), gram)


@pytest.mark.exhaustive
def test_narrow_and_scalar_columns() -> None:
    n, rng = 3000, np.random.default_rng(8)
    d = rng.lognormal(size=n)
    matrix, y = entries(n, rng, False), np.full(10, 0.1)
    rows = Rows.gather(blocks(matrix), n)
    narrow = rng.lognormal(size=n).astype(np.float32)
    for importance in (narrow, np.broadcast_to(2.0, (n,))):
        wide = as_float64(importance)
        results = []
        for weights in (as_column(importance, n, "w", narrow=True), np.array(wide)):
            kernel = named.HARMONIC.curve(fo.Sources(d)).kernel(weights, fo.Refresh.POISSON)
            program = Program(kernel, np.broadcast_to(0.0, (n,)), np.full(n, 10.0), d, rows)
            results.append(columns_of(program).evaluate(y))
        np.testing.assert_allclose(results[0].rates, results[1].rates, rtol=1e-14)
        np.testing.assert_allclose(results[0].used, results[1].used, rtol=1e-14)


def test_one_source_entries_twice_and_rows_of_nobody() -> None:
    none, source, one = np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64), np.ones(1)
    twice = RowBlock.linear("twice", [None], source, source, np.array([1.0, 3.0]), one)
    rows = Rows.gather([RowBlock.linear("nobody", [None], none, none, np.zeros(0), one), twice], 1)
    kernel = named.HARMONIC.kernel(fo.Sources([1.0], [8.0]))
    program = Program(kernel, np.zeros(1), np.full(1, np.inf), np.ones(1), rows)
    rates, used, gram = columns_of(program).evaluate(np.array([5.0, 1.0]))
    assert isinstance(gram, np.ndarray)
    assert rates == pytest.approx([1.0])  # ρ² + ρ = 8/4
    assert used.tolist() == pytest.approx([0.0, 4.0])
    # φ'' = 8·(2ρ+1)/(ρ²+ρ)² = 6 and the slope of the row is 4.
    np.testing.assert_allclose(gram, [[0.0, 0.0], [0.0, 16.0 / 6.0]], rtol=1e-8)


def test_nothing_paid_and_nothing_gained() -> None:
    # Price and importance of each source, and the rate that is right.
    cases = [(1.0, 0.0, 0.1), (0.0, 0.0, 0.1), (-1.0, 0.0, 9.0), (0.0, 1.0, 9.0), (-1.0, 1.0, 9.0)]
    price, w, expected = map(np.array, zip(*cases, strict=True))
    rows = Rows.gather(blocks(price[None, :]), len(cases))
    kernel = named.HARMONIC.kernel(fo.Sources(np.ones(len(cases)), w))
    for lower, upper in ((0.1, 9.0),):
        program = Program(
            kernel, np.full(len(cases), lower), np.full(len(cases), upper), np.ones(len(cases)), rows
        )
        found = columns_of(program).evaluate(np.ones(1))
        np.testing.assert_array_equal(found.rates, expected)
        np.testing.assert_array_equal(found.gram, [[0.0]])
        np.testing.assert_array_equal(Lagrangian.at(program, np.ones(1)).best_response(), expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [named.BINARY, named.AGE])
def test_jumps_and_kinks_add_nothing(objective: fo.Objective) -> None:
    # Demand jumps from 0 to Δ, or stops rising, at the price 1; these are next to it, on either side.
    near = 1.0 + np.array([1e-6, -1e-6, 3e-6])
    kernel = kernel_of(objective, SIGNAL, np.ones(3), near)
    rows = Rows.gather(blocks(np.ones((1, 3))), 3)
    program = Program(kernel, np.full(3, -1.0), np.full(3, 2.0), np.ones(3), rows)
    found = columns_of(program).evaluate(np.ones(1))
    assert isinstance(found.gram, np.ndarray)
    np.testing.assert_allclose(found.rates[[0, 2]], 1.0, rtol=1e-15)
    # The age's source below the kink has the slope 1/2 on one side and less on the other.
    most = 0.0 if isinstance(objective, fo.problems.BinaryFreshness) else 0.5
    assert 0.0 <= found.gram[0, 0] <= most


def test_costs_without_end_are_used_without_end() -> None:
    n = 4
    kernel = named.HARMONIC.kernel(fo.Sources(np.ones(n), [0.0, 1.0, 1.0, 1.0]))
    target = curved(np.arange(n), np.zeros(n, dtype=np.int64), np.ones(n), kernel)
    program = Program(
        None, np.zeros(n), np.ones(n), np.ones(n), Rows.gather([*blocks(np.ones((1, n))), target], n)
    )
    assert columns_of(program).evaluate(np.array([1.0, 0.0])).used.tolist() == [0.0, np.inf]


def test_what_numpy_alone_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 100
    sources, matrix = fo.Sources(np.ones(n)), np.ones((2, n))
    harmonic, binary = (named.HARMONIC.kernel(sources), named.BINARY.kernel(sources))
    entry = (np.arange(n), np.zeros(n, dtype=np.int64), np.ones(n))

    def program(numerics: Numerics | None, *curves: Numerics) -> Program:
        own = [curved(*entry, curve) for curve in curves]
        rows = Rows.gather([*blocks(matrix), *own], n)
        return Program(numerics, np.zeros(n), np.ones(n), np.ones(n), rows)

    assert program_columns.row_columns(program(harmonic, harmonic)) is not None
    assert program_columns.row_columns(program(None)) is None
    periodic = named.BINARY_PERIODIC.kernel(sources)
    assert program_columns.row_columns(program(periodic)) is not None
    assert program_columns.row_columns(program(periodic, periodic)) is None
    assert program_columns.row_columns(program(harmonic, periodic)) is None
    # A row of two kinds.
    both = Rows.gather([*blocks(matrix), curved(*entry, binary)], n)
    both = replace(both, row=np.where(both.row == 1, 2, both.row).astype(np.int32))
    assert program_columns.row_columns(replace(program(harmonic, binary), rows=both)) is None
    monkeypatch.setattr(backend, "AT_HAND", n + 1)
    assert program_columns.row_columns(program(harmonic)) is None
    monkeypatch.setattr(backend, "AT_HAND", n)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert program_columns.row_columns(program(harmonic)) is None


@pytest.mark.parametrize("ratio", [0.0, 1e-300, 1e-20, 1e-9, 0.3, 1.0, 7.0, 1e9, 1e200, 1e300])
def test_log_one_plus(ratio: float) -> None:
    with mpmath.workdps(50):
        expected = float(mpmath.log1p(mpmath.mpf(ratio)))
    assert cost_functions.log_one_plus(ratio) == pytest.approx(expected, rel=5e-16, abs=0.0)


@pytest.mark.parametrize("rate", [1e-12, 0.1, 0.4999, 0.5])
def test_values_are_the_costs(rate: float) -> None:
    d, r = mpmath.mpf(0.5), mpmath.mpf(rate)
    with mpmath.workdps(50):
        for cell, exact in (
            (harmonic_staleness.POISSON, mpmath.log1p(d / r)),
            (harmonic_staleness.ON_SIGNAL, mpmath.log(d / r)),
            (binary_freshness.POISSON, d / (r + d)),
            (accumulated_delay.POISSON, d / r),
            (accumulated_delay.ON_SIGNAL, d / r - 1),
            (age.POISSON, d / r / (r + d)),
        ):
            assert present(cell.value)(rate, 0.5) == pytest.approx(float(exact), rel=1e-15, abs=0.0)
        periodic = present(named.DELAY_PERIODIC.kernel(fo.Sources([0.5])).unit_value)
        assert periodic(rate, 0.5) == pytest.approx(float(d / r / 2), rel=1e-15, abs=0.0)


def test_values_at_rate_zero_are_infinite() -> None:
    for cell in (harmonic_staleness.POISSON, accumulated_delay.POISSON, age.POISSON):
        assert present(cell.value)(0.0, 0.5) == np.inf

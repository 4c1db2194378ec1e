"""Compiled passes over costs of several families against bisection, exact sums and formulas of their own."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.rows import mixed_costs
from freshopt.compiled.rows.row_records import FamilyColumns
from freshopt.interior_point.program_columns import row_columns as columns_of
from freshopt.numerics.arrays import Array
from freshopt.problems import LaterThan
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.named import AGE, DELAY_PERIODIC, chosen, present

# Its loops take long to compile.
pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("all_compiled")]

LATE = 0.7
# J, −J' and J'' of a source of importance 1, as in the documentation.
FORMULAS: dict[str, tuple[Callable[..., Array], Callable[..., Array], Callable[..., Array]]] = {
    "harmonic": (
        lambda r, d: np.log1p(d / r),
        lambda r, d: d / (r * (r + d)),
        lambda r, d: d * (2.0 * r + d) / (r * (r + d)) ** 2,
    ),
    "binary": (lambda r, d: d / (r + d), lambda r, d: d / (r + d) ** 2, lambda r, d: 2.0 * d / (r + d) ** 3),
    "delay": (lambda r, d: d / r, lambda r, d: d / r**2, lambda r, d: 2.0 * d / r**3),
    "periodic": (lambda r, d: 0.5 * d / r, lambda r, d: 0.5 * d / r**2, lambda r, d: d / r**3),
    "age": (
        lambda r, d: 1.0 / r - 1.0 / (r + d),
        lambda r, d: d / (r * (r + d)) * ((2.0 * r + d) / (r * (r + d))),
        lambda r, d: 2.0 * d * ((r + d) ** 2 + (r + d) * r + r**2) / (r * (r + d)) ** 3,
    ),
    "later": (
        lambda r, _: np.exp(-LATE * r),
        lambda r, _: LATE * np.exp(-LATE * r),
        lambda r, _: LATE**2 * np.exp(-LATE * r),
    ),
}
OBJECTIVES: dict[str, fo.Objective] = {
    **chosen("harmonic", "binary", "delay"),
    "periodic": DELAY_PERIODIC,
    "age": AGE,
    "later": LaterThan(LATE, refresh=fo.Refresh.POISSON),
}
MIXED = [
    ("harmonic", "binary", "delay"),
    ("none", "harmonic", "binary", "later"),
    ("spend", "binary", "later"),
    ("age", "harmonic", "binary", "periodic"),
    ("binary", "later", "age"),
]


class Case:
    """Two budgets, one of few sources, and three rows of each curve; with importance 0 here and there."""

    def __init__(self, names: tuple[str, ...], ill: bool, n: int = 3000) -> None:
        rng = np.random.default_rng(len(names) + 7 * ill)
        self.d = 10 ** rng.uniform(-6, 4, n) if ill else rng.lognormal(size=n)
        self.objective, self.curves = names[0], names[1:]
        spread = 3.0 if ill else 1.0
        self.w = {name: rng.lognormal(0.0, spread, n) * (rng.random(n) < 0.9) for name in names}
        self.rows: list[tuple[str, Array]] = []
        blocks, every, one = [], np.arange(n), np.ones(1)
        for j, name in enumerate(("rate", "rate", *np.repeat(self.curves, 3))):
            share = 1.0 if j % 3 == 0 else 0.3
            line = rng.lognormal(0.0, spread / 2, n) * (rng.random(n) < share)
            own = line > 0.0
            kind = np.full(int(own.sum()), int(name != "rate"))
            curves: tuple[Numerics, ...] = () if name == "rate" else (self.kernel(name),)
            none = np.zeros(int(own.sum()), dtype=np.int64)
            blocks.append(
                RowBlock(f"{j}", (None,), every[own], none, kind, line[own], curves, one, one, 0.0 * one)
            )
            self.rows.append((name, line * (1.0 if name == "rate" else self.w[name])))
        typical = np.exp(np.median(np.log(self.d)))
        self.lower = typical * 10 ** rng.uniform(-6, 0, n) * (rng.random(n) < 0.5)
        self.upper = np.where(rng.random(n) < 0.8, np.inf, np.maximum(self.lower, typical))
        numerics: Numerics | None = None
        self.price = np.zeros(n)
        if self.objective == "spend":
            self.price = rng.lognormal(size=n)
            numerics = LinearCost(self.price)
        elif self.objective != "none":
            numerics = self.kernel(self.objective)
        self.program = Program(numerics, self.lower, self.upper, self.d, Rows.gather(blocks, n))
        self.y = rng.lognormal(0.0, 1.0, len(self.rows)) * (rng.random(len(self.rows)) < 0.9)
        self.y[0] = 0.5

    def kernel(self, name: str) -> Kernel:
        kernel = OBJECTIVES[name].kernel(fo.Sources(self.d, self.w[name]))
        assert isinstance(kernel, Kernel)
        return kernel

    def paid(self, y: Array) -> tuple[Array, dict[str, Array]]:
        """Return the price of a unit of rate, and the weight of each unit cost."""
        price, weight = self.price.copy(), {name: np.zeros(len(self.d)) for name in FORMULAS}
        if self.objective in FORMULAS:
            weight[self.objective] += self.w[self.objective]
        for (name, line), one in zip(self.rows, y, strict=True):
            if name == "rate":
                price += one * line
            else:
                weight[name] += one * line
        return price, weight

    def fall(self, rates: Array, y: Array, order: int = 1) -> Array:
        """Return −Σ W J' or Σ W J''."""
        with np.errstate(all="ignore"):
            each = [
                np.where(weight > 0.0, weight * FORMULAS[name][order](rates, self.d), 0.0)
                for name, weight in self.paid(y)[1].items()
            ]
        summed: Array = np.sum(each, axis=0)
        return summed

    def responses(self, y: Array) -> Array:
        """Return best responses by bisection over all floats."""
        price = self.paid(y)[0]
        low, high = np.full(len(self.d), -700.0), np.full(len(self.d), 430.0)
        for _ in range(80):
            middle = 0.5 * (low + high)
            more = self.fall(np.exp(middle), y) > price
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.clip(np.where(low == -700.0, 0.0, np.exp(high)), self.lower, self.upper)


@pytest.mark.parametrize("ill", [False, True], ids=["benign", "ill"])
@pytest.mark.parametrize("names", MIXED, ids="-".join)
def test_responses_used_amounts_and_matrix(names: tuple[str, ...], ill: bool) -> None:
    case = Case(names, ill)
    columns = present(columns_of(case.program))
    assert columns.formula is None
    # The second and third pass start where the last one ended.
    for factor in (1.0, 1.3, 1e-4):
        y = factor * case.y
        rates, used, gram = columns.evaluate(y)
        expected = case.responses(y)
        unbounded = expected > 1e150
        np.testing.assert_allclose(rates[~unbounded], expected[~unbounded], rtol=2e-12)
        assert np.all(rates[unbounded] > 1e150)
        with np.errstate(all="ignore"):
            values = {name: formulas[0](rates, case.d) for name, formulas in FORMULAS.items()}
        for (name, line), found in zip(case.rows, used, strict=True):
            own = line > 0.0
            amounts = line[own] * (rates if name == "rate" else values[name])[own]
            assert found == pytest.approx(math.fsum(amounts.tolist()), rel=1e-13)
        inside = (rates > case.lower) & (rates < case.upper) & (rates < 1e150)
        with np.errstate(all="ignore"):
            inverse = np.where(inside, 1.0 / case.fall(rates, y, order=2), 0.0)
            steep = {name: np.where(inside, -FORMULAS[name][1](rates, case.d), 0.0) for name in FORMULAS}
        slopes = np.array([line * (1.0 if name == "rate" else steep[name]) for name, line in case.rows])
        matrix = (slopes * inverse) @ slopes.T
        size = np.sqrt(np.diag(matrix))
        assert isinstance(gram, np.ndarray)
        assert np.all(np.abs(gram - matrix) <= 1e-11 * np.outer(size, size))


def test_one_by_one_ends_where_all_at_once_does() -> None:
    case = Case(("harmonic", "binary", "later"), ill=True, n=400)
    columns = present(columns_of(case.program))
    price, weight = case.paid(case.y)
    order = ["harmonic", "binary", "later"]
    assert isinstance(columns.columns, FamilyColumns)
    codes = [mixed_costs.HARMONIC, mixed_costs.BINARY, mixed_costs.LATER]
    assert columns.columns.code.tolist() == codes
    theta = np.stack([price, *(weight[name] for name in order)])
    with np.errstate(all="ignore"):
        found = [mixed_costs.bracketed(columns.columns, theta, 0, k) for k in range(400)]
    np.testing.assert_allclose(found, case.responses(case.y), rtol=2e-12, atol=1e-290)


def test_a_source_that_neither_pays_nor_gains_stays_at_its_lower_bound() -> None:
    case = Case(("none", "harmonic", "binary"), ill=False, n=300)
    columns = present(columns_of(case.program))
    np.testing.assert_array_equal(columns.evaluate(0.0 * case.y).rates, case.lower)


@pytest.mark.exhaustive
def test_bits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    case, found = Case(("harmonic", "binary", "delay"), ill=True, n=30_000), []
    for threads in ("1", "3", "8"):
        monkeypatch.setenv("FRESHOPT_THREADS", threads)
        columns = present(columns_of(case.program))
        for factor in (1.0, 2.0):
            got = columns.evaluate(factor * case.y)
        assert isinstance(got.gram, np.ndarray)
        found.append((got.rates.tobytes(), got.used.tobytes(), got.gram.tobytes()))
    assert found[0] == found[1] == found[2]

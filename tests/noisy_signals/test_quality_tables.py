"""Tables of qualities: the bound by mpmath, rows by exact cycles, proofs that claim no more than is true."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.dual_search.quick_search import fill_quickly
from freshopt.noisy_signals import NoisySignalFreshness, WithNoisySignals, quality_tables
from freshopt.noisy_signals.expected_costs import Cost, cost_row, expected_cost, harmonic_nodes, moments
from freshopt.noisy_signals.quality_lookup import ends_at
from freshopt.noisy_signals.quality_rows import COLUMNS, ETA, OFF, ROUNDED, VALUE, WIDTH, rows_of
from freshopt.noisy_signals.quality_tables import QualityTables
from freshopt.numerics.arrays import Array
from freshopt.problems import AccumulatedDelay, Age, HarmonicStaleness, LogFreshness
from freshopt.separable.kernel import Kernel
from tests.noisy_signals.cycles import cycle_at, split

PERIODIC = fo.Refresh.PERIODIC
BINARY = Cost(0.0, np.ones(1), np.ones(1))
TWO_NODES = Cost(0.3, np.array([0.2, 0.9]), np.array([1.5, 0.4]))
LINEAR = Cost(1.0, np.zeros(0), np.zeros(0))
QUALITIES = [(0.5, 0.6), (0.9, 0.3), (0.3, 1.0), (0.85, 0.9)]
FORMS: dict[str, Any] = {
    "binary": NoisySignalFreshness,
    "delay": lambda *quality: WithNoisySignals(AccumulatedDelay(PERIODIC), *quality),
    "harmonic": lambda *quality: WithNoisySignals(HarmonicStaleness(PERIODIC), *quality),
}


KINDS = ["binary", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("delay", "harmonic"))]


def rows(recall: float, precision: float, high: float, cost: Cost) -> Array:
    """Rows from 1e-4 to a value, and the end of the last."""
    out = np.empty((800, COLUMNS))
    count = rows_of(recall, precision, 1e-4, high, 4e-10, cost, out)
    assert 10 < count < 799
    return out[: count + 1]


def length(eta: Any, recall: float, precision: float, cost: Cost) -> Any:  # noqa: ANN401
    """ψ(η) by the definition: each wait by root finding, each tail an incomplete gamma function."""
    a, g, total, n = 1 - mpmath.mpf(recall), mpmath.mpf(recall) / mpmath.mpf(precision), mpmath.mpf(0), 0

    def missing(s: Any, n: int) -> Any:  # noqa: ANN401 - mpmath numbers
        kept = [(1 - precision * mpmath.mpf(y)) ** n * mpmath.exp(-a * y * s) for y in cost.nodes]
        told = sum(w * (1 - k) for w, k in zip(cost.weights, kept, strict=True))
        return cost.linear * (a * s + n * mpmath.mpf(precision)) + told - eta

    while missing(mpmath.mpf(0), n) < 0 and n < 40:
        high = mpmath.mpf(1)
        while missing(high, n) < 0:
            high *= 2
        tau = mpmath.findroot(lambda s, n=n: missing(s, n), (mpmath.mpf(0), high), solver="anderson")
        total += mpmath.gammainc(n + 1, 0, g * tau, regularized=True) / g
        n += 1
    return total


@pytest.mark.parametrize("cost", [BINARY, LINEAR, TWO_NODES], ids=["binary", "delay", "two nodes"])
@pytest.mark.parametrize(("recall", "precision"), QUALITIES[:3])
@pytest.mark.sampled(2)
def test_the_fifth_derivative_is_within_its_bound(cost: Cost, recall: float, precision: float) -> None:
    table = rows(recall, precision, 0.9, cost)
    with mpmath.workdps(40):
        for row in table[np.linspace(1, len(table) - 3, 5).astype(int)]:
            bend = (row[OFF] - ROUNDED * row[VALUE]) * 46080.0 / row[WIDTH] ** 6
            for t in (0.2, 0.5, 0.8):
                eta = mpmath.mpf(row[ETA]) + t * mpmath.mpf(row[WIDTH])
                step = mpmath.mpf(row[WIDTH]) / 100
                at = [length(eta + k * step, recall, precision, cost) for k in range(-3, 4)]
                # Central differences of the fifth order, of an error of a hundredth.
                fifth = (-at[0] + 4 * at[1] - 5 * at[2] + 5 * at[4] - 4 * at[5] + at[6]) / (2 * step**5)
                assert abs(fifth) <= bend * 1.001


@pytest.mark.parametrize("cost", [BINARY, TWO_NODES], ids=["binary", "two nodes"])
@pytest.mark.parametrize("silent", [1e-6, 2e-8, 1e-10])
@pytest.mark.sampled(5)
def test_values_keep_their_digits_where_nearly_all_changes_are_announced(cost: Cost, silent: float) -> None:
    """A cycle surely ends with the first signal, at costs far below those of a signal."""
    eta, precision = 200.0 * silent, 0.4
    with mpmath.workdps(30):
        ends = [0, *(k * silent for k in (1, 3, 10, 30, 100)), eta]
        exact = mpmath.quad(lambda at: length(at, 1.0 - silent, precision, cost), ends)
    assert moments(eta, cost_row(1.0 - silent, precision, 10.0, cost)).value == pytest.approx(
        float(exact), rel=1e-13, abs=0.0
    )


@pytest.mark.parametrize("recall", [0.5, 0.9, 1.0 - 3e-6])
def test_a_threshold_but_for_rounding_on_what_a_signal_costs(recall: float) -> None:
    """Perhaps it is still waited for then, for no time."""
    for precision in (0.3, 0.9, 1.0 - 1e-6, 1.0 - 1e-12):
        q = cost_row(recall, precision, 20.0, Cost(0.0, *harmonic_nodes()))
        eta = expected_cost(0.0, 1.0, q)
        near = [moments(eta + k * np.spacing(eta), q).length for k in range(-8, 9)]
        assert near == pytest.approx([near[0]] * 17, rel=1e-12)


@pytest.mark.parametrize(("recall", "precision"), QUALITIES)
def test_rows_are_right_to_their_bound_by_another_formula(recall: float, precision: float) -> None:
    """V and ψ of binary freshness by `renewal_cycle`, which shares no sums with the rows."""
    table = rows(recall, precision, 0.99, BINARY)
    t = np.random.default_rng(1).random(len(table) - 1)
    found = np.array([ends_at(t[k], table[k])[0] for k in range(len(t))])
    eta = table[:-1, ETA] + t * table[:-1, WIDTH]
    thresholds = (-np.log1p(-eta) / (1.0 - recall)).tolist()
    quality = recall, precision
    exact = np.array([cycle_at(*split(each, *quality), *quality)[2] for each in thresholds])
    off = np.abs(exact - found)
    assert np.all(off <= table[:-1, OFF])
    # The bound is of use: rows are as long as a tolerance of 4e-10 allows, kinks and the end apart.
    assert np.median(table[:-1, OFF] / table[:-1, VALUE]) > 5e-11


def problem_of(kind: str, n: int, seed: int) -> fo.Problem:
    """Shared, own, silent, perfect, certain and complete signals; ties, ill scales, no importance."""
    random = np.random.default_rng(seed)
    d, w = np.exp(random.normal(0.0, 2.0, (2, n)))
    w[::17] *= 1e-6
    d[::19] *= 1e3
    w[5::50], d[7::40], w[7::40] = 0.0, 1.0, 1.0
    quality = np.array(QUALITIES)[random.integers(0, 2, n)].T
    own = random.random(n) < 0.05
    quality[:, own] = random.uniform(0.1, 0.9, (2, int(np.sum(own))))
    quality[:, 3::31] = np.array([[0.0], [1.0]])
    quality[:, 4::31] = 1.0
    quality[:, 6::31] = np.array([[1.0], [0.6]])
    sources = fo.Sources(d, w, refresh_cost=np.exp(random.normal(0.0, 1.0, n)))
    return fo.Problem(FORMS[kind](*quality), sources, 0.2 * float(np.sum(d)))


def prepared(problem: fo.Problem, price: float) -> tuple[QualityTables, Array]:
    kernel: Any = problem.numerics
    paid = price * np.asarray(problem.sources.refresh_cost)
    kernel.quick.cover(paid)
    assert len(kernel.quick.tabled.rows) > 50
    return kernel.quick, paid


@pytest.mark.parametrize(("recall", "precision"), [(0.5, 0.6), (0.75, 0.9), (0.3, 1.0), (0.6, 0.2)])
@pytest.mark.sampled(2)
def test_far_rows_of_a_linear_cost_are_right_to_their_bound(recall: float, precision: float) -> None:
    found = rows(recall, precision, 3e5, LINEAR)
    far = found[:-1][found[:-1, WIDTH] == found[:-1, ETA]]
    assert len(far) >= 3
    for row in far[:3]:
        for t in (0.0, 0.37, 1.0):
            eta = row[ETA] + t * row[WIDTH]
            exact = moments(eta, cost_row(recall, precision, 4.0 * eta + 10.0, LINEAR))
            value, slope = ends_at(t, row)
            assert abs(value - exact.value) <= row[OFF] + 1e-12 * exact.value
            assert slope / row[WIDTH] == pytest.approx(exact.length, rel=1e-11)
    # Recall near 1 has overshoots that do not settle: its rows stay short.
    assert np.all(rows_up_to(0.97, 0.98, 3e5)[:-1, WIDTH] < 5.0)


def rows_up_to(recall: float, precision: float, high: float) -> Array:
    """Rows as far as there is room for them."""
    out = np.empty((800, COLUMNS))
    return out[: rows_of(recall, precision, 1e-4, high, 4e-10, LINEAR, out) + 1]


@pytest.mark.parametrize("kind", KINDS)
def test_proofs_claim_no_more_than_is_true(kind: str) -> None:
    """Of rates from best to far off, at bounds or between, costs and gaps are no less than exact ones."""
    problem = problem_of(kind, 1500, 1)
    n, random = 1500, np.random.default_rng(2)
    tables, paid = prepared(problem, 0.5)
    best = tables.kernel.inverse_marginal(paid)
    few = np.flatnonzero(np.isfinite(best) & (best > 0.0))
    answered = tables.respond(paid, slice(None))
    assert np.all(np.abs(answered - best)[few] <= 1e-4 * best[few])
    for spread in (0.0, 1e-9, 1e-6, 1e-2, 1.0):
        rates = np.where(np.isfinite(best), best, 1.0) * np.exp(spread * random.normal(0.0, 1.0, n))
        lower, upper = rates * random.choice([0.0, 0.5, 1.0], n), rates * random.choice([1.0, 2.0, 1e9], n)
        with np.errstate(all="ignore"):
            cost, gap, halving = tables.prove(rates, paid, lower, upper)
        exact = tables.kernel.cost(rates)
        clipped = np.clip(best, lower, upper)
        with np.errstate(invalid="ignore"):
            least = tables.kernel.cost(clipped) + paid * clipped
        true = exact + paid * rates - least
        scale = exact + paid * (rates + clipped)
        # The formulas sum cycles of up to 4000 signals; far rows know longer ones better.
        often = np.asarray(tables.kernel.parameters[0]) > 3500.0 * rates
        summed = ~(often & (rates > 0.0))
        own = np.isfinite(true) & np.isfinite(cost) & summed
        assert np.mean(own) > 0.5
        assert np.all((cost >= exact * (1.0 - 1e-12))[own])
        assert np.all((gap - true >= -1e-12 * scale)[own])
        lost = tables.kernel.cost(0.5 * rates) - exact
        assert np.all((halving <= lost * (1.0 + 1e-12) + 1e-12 * scale)[own & np.isfinite(lost)])
        if spread <= 1e-6:
            assert np.all((cost - exact <= 1e-7 * scale)[own])
            assert np.sum((gap - true)[own]) <= 2e-9 * np.sum(scale[own])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", ["bandwidth", "bounds", "hosts"])
def test_the_answer_is_that_of_all_best_responses(
    kind: str, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, random = 600, np.random.default_rng(4)
    plain, total, more, hosts = problem_of(kind, 600, 3), 0.0, {}, None
    d = np.asarray(plain.sources.change_rate)
    if limits == "bounds":
        more = {"min_rate": 0.01 * d, "max_rate": d * random.choice([0.3, 5.0], n)}
    if limits == "hosts":
        more, total = {"host": random.integers(0, 5, n).astype(str)}, float(np.sum(d))
        hosts = {"0": 0.01 * total, "1": 0.005 * total}
    sources = fo.Sources(d, plain.sources.importance, refresh_cost=plain.sources.refresh_cost, **more)
    problem = fo.Problem(plain.objective, sources, plain.bandwidth, hosts)
    found = fo.solve(problem)
    monkeypatch.setattr(quality_tables, "MANY", n + 1)
    plain = fo.Problem(plain.objective, sources, plain.bandwidth, hosts)
    expected = fo.solve(plain)
    assert found.certificate is not None
    assert found.certificate.relative_gap < 1e-9
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert found.price == pytest.approx(expected.price, rel=1e-5)
    assert fo.certify(plain, found.rates, found.price, found.host_prices).relative_gap < 1e-9


@pytest.mark.parametrize("objective", [Age(PERIODIC), LogFreshness(PERIODIC)], ids=["age", "log"])
def test_objectives_without_tables_take_few_passes(objective: fo.Objective) -> None:
    random = np.random.default_rng(5)
    d, w = random.lognormal(0.0, 1.0, (2, 520))
    with_signals = WithNoisySignals(objective, random.uniform(0.1, 0.8, 520), 0.7)
    solution = fo.solve(fo.Problem(with_signals, fo.Sources(d, w), 0.3 * float(np.sum(d))))
    assert solution.certificate is not None
    assert solution.certificate.relative_gap < 1e-9
    assert solution.iterations <= 5


@pytest.mark.parametrize(("n", "seed"), [(20_000, 12), (20_000, 48), (3_000, 4), (3_000, 45)])
def test_demand_that_jumps_is_met_on_the_line_through_two_passes(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    recall, precision = np.full(n, rng.uniform(0.5, 0.95)), np.full(n, rng.uniform(0.05, 0.4))
    rates = rng.lognormal(0.0, [0.3, 1.0, 2.0, 4.0][seed % 4], n)
    sources = fo.Sources(rates, importance=rng.lognormal(0.0, [1.0, 3.0][seed // 4 % 2], n))
    for share in (0.01, 0.1, 1.0, 3.0):
        problem = fo.Problem(NoisySignalFreshness(recall, precision), sources, share * rates.sum())
        kernel = problem.numerics
        assert isinstance(kernel, Kernel)
        assert kernel.quick is not None
        found, _ = fill_quickly(problem, kernel, kernel.quick, None)
        assert found is not None, share
        assert found.rates is not None
        assert fo.certify(problem, found.rates, found.price).relative_gap <= 1e-9

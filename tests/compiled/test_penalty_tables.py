"""Tables of penalties against closed forms of their sums."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import backend
from freshopt.compiled.penalty_tables import (
    ANNOUNCED,
    LEAST_SOURCES,
    PENALTY,
    ROUNDING,
    PenaltyTables,
    announced_response,
    announced_values,
    penalty_response,
    penalty_tables,
    penalty_values,
)
from freshopt.compiled.proof_functions import ProofCell, proved
from freshopt.numerics.arrays import Array
from freshopt.problems import ExpectedPenalty
from freshopt.separable.kernel_columns import kinds_of
from tests.ground_truth.named import present
from tests.ground_truth.strata import rare

# Its loops take long to compile.
pytestmark = pytest.mark.exhaustive

# Rows are right to 1e-13 where they are made, and sums to 1e-12.
RIGHT = 2e-12


class Closed(NamedTuple):
    """A penalty and closed forms of its cost J and marginal M = −J' at x = ρ/Δ, in any arithmetic."""

    penalty: Callable[[Any], Any]
    cost: Callable[[Any], Any]
    marginal: Callable[[Any], Any]


def root_cost(x: mpmath.mpf) -> mpmath.mpf:
    """Return (1 − y)·Li_{−1/2}(y), y = 1/(1 + x): summation by parts of Σ (√m − √(m−1)) y^m."""
    y = 1 / (1 + x)
    return (1 - y) * mpmath.polylog(mpmath.mpf(-1) / 2, y)


def root_marginal(x: mpmath.mpf) -> mpmath.mpf:
    """Return y²·dJ/dy."""
    y = 1 / (1 + x)
    half = mpmath.mpf(1) / 2
    return y * ((1 - y) * mpmath.polylog(-3 * half, y) - y * mpmath.polylog(-half, y))


CLOSED = {
    "changes": Closed(lambda m: m, lambda x: 1 / x, lambda x: 1 / x**2),
    "squares": Closed(lambda m: m * m, lambda x: (2 + x) / x**2, lambda x: (4 + x) / x**3),
    "two are free": Closed(
        lambda m: np.maximum(m - 2, 0),
        lambda x: 1 / (x * (1 + x) ** 2),
        lambda x: (3 * x + 1) / (x**2 * (1 + x) ** 3),
    ),
    "roots": Closed(np.sqrt, root_cost, root_marginal),
}


def tables_of(penalty: Callable[[Any], Any], *, announced: bool = False) -> PenaltyTables:
    objective, sources = ExpectedPenalty(penalty), fo.Sources([1.0])
    kernel = objective.signalled_kernel(sources) if announced else objective.kernel(sources)
    tables = present(present(kernel.tables_of)(LEAST_SOURCES))
    return tables


def term_of(
    cell: ProofCell, rate: float, w: float, paid: float, upper: float, parameters: tuple[Any, ...]
) -> float:
    """Return a source's share of the gap that is proved."""
    values, reach = (lambda _, given, p, own=own: own(*given, *p) for own in (cell.values, cell.reach))
    return float(proved(values, reach, False, np.float64(rate), w, paid, 0.0, upper, parameters)[2])


@pytest.mark.parametrize("name", CLOSED)
def test_tables_are_the_closed_forms(name: str) -> None:
    closed, tables = CLOSED[name], tables_of(CLOSED[name].penalty)
    exponents = np.linspace(-15.0, 4.0, 6) if name == "roots" else np.linspace(-15.0, 70.0, 43)
    with mpmath.workdps(60):
        for exponent in exponents:
            x = float(10.0**exponent) * 1.37
            d = float(10.0 ** ((exponent * 7.0) % 3.0))
            cost, marginal = (float(f(mpmath.mpf(x))) for f in (closed.cost, closed.marginal))
            found = penalty_values(np.float64(x * d), 2.0, d, tables.values)
            assert found[0] == pytest.approx(cost, rel=RIGHT)
            assert found[2] == pytest.approx(2.0 * marginal / d, rel=RIGHT)
            assert abs(found[2] / (2.0 * marginal / d) - 1.0) < 0.5 * ROUNDING
            assert penalty_response(np.float64(d / marginal), d, tables.response) == pytest.approx(
                x * d, rel=RIGHT
            )


@pytest.mark.parametrize("name", CLOSED)
def test_announced_changes_are_the_closed_forms_of_the_share_that_is_not_followed(name: str) -> None:
    """J and −dJ/dp are functions of 1 − p = 1/(1 + x), and M of x: −dJ/dp is M(1 + x)²."""
    closed, tables = CLOSED[name], tables_of(CLOSED[name].penalty, announced=True)
    exponents = np.linspace(-12.0, 3.0, 6) if name == "roots" else np.linspace(-12.0, 12.0, 43)
    with mpmath.workdps(60):
        for exponent in exponents:
            d = float(10.0 ** ((exponent * 7.0) % 3.0))
            wanted = mpmath.mpf(float(10.0**exponent) * 1.37)
            rate = float(d * wanted / (1 + wanted))
            x = mpmath.mpf(rate) / (mpmath.mpf(d) - rate)
            cost, marginal = closed.cost(x), closed.marginal(x) * (1 + x) ** 2
            found = announced_values(np.float64(rate), 2.0, d, tables.values)
            assert found[0] == pytest.approx(float(cost), rel=RIGHT)
            assert found[2] == pytest.approx(float(2 * marginal / d), rel=RIGHT)
            assert abs(found[2] / float(2 * marginal / d) - 1.0) < 0.5 * ROUNDING
            # Beside d₁ a price tells as much less of the rate as what is above it is less.
            share = float((marginal - closed.penalty(1)) / marginal)
            back = announced_response(np.float64(d / float(marginal)), d, tables.response)
            assert back == pytest.approx(rate, rel=RIGHT + 1e-15 / (share * float(1 + x)))


def test_ends_of_announced_changes() -> None:
    tables = tables_of(np.sqrt, announced=True)
    with np.errstate(all="ignore"):
        # What the first missed change costs, 1, is what the last refresh saves.
        for worth in (1.0 + 1e-15, 2.0, 1e300, np.inf):
            assert announced_response(np.float64(worth * 3.0), 3.0, tables.response) == 3.0
        assert announced_response(np.float64(0.0), 3.0, tables.response) == 0.0
        worths = 3.0 / (1.0 + 10.0 ** np.arange(-15.0, 16.0))
        responses = [float(announced_response(worth, 3.0, tables.response)) for worth in worths]
        assert np.all(np.diff(responses) < 0.0)
        cost, _, marginal, _ = announced_values(np.float64(3.0), 2.0, 3.0, tables.values)
        assert cost == 0.0
        assert marginal == pytest.approx(2.0 / 3.0, rel=RIGHT)
        assert announced_values(np.float64(0.0), 2.0, 3.0, tables.values)[0] == np.inf
        last = announced_values(np.nextafter(3.0, 0.0), 2.0, 3.0, tables.values)
        assert last[0] == pytest.approx(1.0 - np.nextafter(3.0, 0.0) / 3.0, rel=1e-6)
        assert last[2] == pytest.approx(2.0 / 3.0, rel=RIGHT)


def test_ends_of_the_floats() -> None:
    tables = tables_of(np.sqrt)
    worths = 10.0 ** np.arange(-300, 301)
    responses = [float(penalty_response(worth, 1.0, tables.response)) for worth in worths]
    # Prices beyond all marginals that are known get the least rate that is.
    assert np.all(np.diff(responses) >= 0.0)
    assert 0.0 < responses[0] < 1e-16
    assert responses[-1] > 1e100
    with np.errstate(divide="ignore"):
        assert penalty_response(np.float64(0.0), 1.0, tables.response) == 0.0
    assert penalty_response(np.float64(np.inf), 1.0, tables.response) > 1e150
    with np.errstate(all="ignore"):
        assert penalty_values(np.float64(0.0), 1.0, 1.0, tables.values)[0] == np.inf
        assert np.isnan(penalty_values(np.float64(1e-20), 1.0, 1.0, tables.values)[2])


@pytest.mark.parametrize("name", ["changes", "squares", "two are free"])
def test_terms_bound_the_exact_share_of_a_gap(name: str) -> None:
    closed, tables = CLOSED[name], tables_of(CLOSED[name].penalty)
    rng, informative = np.random.default_rng(3), 0
    with mpmath.workdps(60):
        for _ in range(60):
            d, w = (float(10.0 ** rng.uniform(-4.0, 4.0)) for _ in range(2))
            best = float(10.0 ** rng.uniform(-6.0, 4.0))
            paid = float(w / d * closed.marginal(mpmath.mpf(best)))
            rate = d * best * (1.0 + float(rng.choice([-0.9, 1.0])) * float(10.0 ** rng.uniform(-12.0, 0.0)))
            root = best * (1 + mpmath.mpf(0))
            for _ in range(6):  # Newton, as the price paid is rounded
                slope = mpmath.diff(closed.marginal, root)
                root -= (closed.marginal(root) - paid * d / mpmath.mpf(w)) / slope
            x = mpmath.mpf(rate) / d
            truth = w * (closed.cost(x) - closed.cost(root)) + paid * d * (x - root)
            assert term_of(PENALTY, rate, w, paid, np.inf, (d, tables.values)) >= truth
            informative += truth > 1e-9 * paid * rate
    assert informative > 10


@pytest.mark.parametrize("name", ["changes", "squares", "two are free"])
def test_terms_bound_the_exact_share_of_a_gap_of_announced_changes(name: str) -> None:
    closed, tables = CLOSED[name], tables_of(CLOSED[name].penalty, announced=True)
    rng, informative = np.random.default_rng(5), 0

    def cost(p: mpmath.mpf) -> mpmath.mpf:
        return closed.cost(p / (1 - p)) if p < 1 else mpmath.mpf(0)

    with mpmath.workdps(60):
        for _ in range(120):
            d, w = (float(10.0 ** rng.uniform(-4.0, 4.0)) for _ in range(2))
            best, at = (mpmath.mpf(float(10.0 ** rng.uniform(-6.0, 6.0))) for _ in range(2))
            near = best * (1 + float(rng.choice([-0.9, 1.0])) * mpmath.mpf(10) ** rng.uniform(-12.0, 0.0))
            x = near if rng.random() < 0.7 else at
            rate = float(d * x / (1 + x))
            if rate >= d:
                continue
            paid = float(w / d * closed.marginal(best) * (1 + best) ** 2)
            low, high = mpmath.mpf(0), mpmath.mpf(1)
            for _ in range(180):  # the best response by bisection: marginals fall with p
                p = (low + high) / 2
                own = p / (1 - p)
                low, high = (p, high) if w / d * closed.marginal(own) * (1 + own) ** 2 > paid else (low, p)
            p = mpmath.mpf(rate) / d
            truth = w * (cost(p) - cost(high)) + paid * d * (p - high)
            assert term_of(ANNOUNCED, rate, w, paid, d, (d, tables.values)) >= truth
            informative += truth > 1e-9 * paid * rate
    assert informative > 10


@pytest.mark.parametrize(
    "penalty",
    [lambda m: np.minimum(m, 5), lambda m: 1e-8 * m + (m > 7)],
    ids=["bounded", "late"],
)
def test_penalties_that_have_no_tables(penalty: Callable[[Any], Any]) -> None:
    objective, sources = ExpectedPenalty(penalty), fo.Sources([1.0])
    for kernel in (objective.kernel(sources), objective.signalled_kernel(sources)):
        assert present(kernel.tables_of)(LEAST_SOURCES) is None


@pytest.mark.parametrize(
    "penalty",
    [lambda m: np.where(m > 0, 1e20 + m, 0.0), lambda m: (m > 0) + 1.0 * np.maximum(m - 1000, 0)],
    ids=["lost in rounding", "late"],
)
def test_later_changes_that_have_no_table(penalty: Callable[[Any], Any]) -> None:
    objective, sources = ExpectedPenalty(penalty), fo.Sources([1.0])
    assert present(objective.signalled_kernel(sources).tables_of)(LEAST_SOURCES) is None


def test_unknown_sums_make_no_tables() -> None:
    # J = 1/x is known from x = 1 on alone.
    def sums(x: Array) -> tuple[Array, Array]:
        known = np.where(x >= 1.0, x, np.nan)
        return 1.0 / known, 1.0 / known**2

    assert penalty_tables(sums, 1) is None


@pytest.mark.parametrize("announced", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("hosts", [0, *rare(50)])
def test_passes_by_tables_solve_and_prove(
    monkeypatch: pytest.MonkeyPatch, hosts: int, announced: float
) -> None:
    rng, n = np.random.default_rng(4), 20_000
    sources = fo.Sources(
        rng.lognormal(0.0, 2.0, n),
        np.where(rng.random(n) < 0.1, 0.0, rng.lognormal(0.0, 2.0, n)),
        refresh_cost=rng.uniform(0.5, 2.0, n),
        max_rate=np.where(rng.random(n) < 0.5, 0.1, np.inf),
        host=np.arange(n) % 100 if hosts else None,
        signalled=rng.random(n) < announced,
    )
    limits = dict.fromkeys(range(hosts), 20.0)
    task = fo.Problem(ExpectedPenalty(np.square), sources, 5000.0, limits)
    with backend.loading():
        fast = fo.solve(task)
    kernel: Any = kinds_of(task.numerics)[-1]
    assert kernel.tables_of(0) is not None
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    slow = fo.solve(task)
    assert fast.value == pytest.approx(slow.value, rel=1e-11)
    assert fast.price == pytest.approx(slow.price, rel=1e-10)
    assert present(fast.certificate).relative_gap < 1e-12
    again = fo.certify(task, fast.rates, fast.price, fast.host_prices)
    assert again.value == pytest.approx(fast.value, rel=1e-11)


def test_copies_make_their_own_tables() -> None:
    objective = ExpectedPenalty(np.sqrt)
    kernel = objective.kernel(fo.Sources([1.0]))
    assert present(kernel.tables_of)(LEAST_SOURCES - 1) is None
    assert present(kernel.tables_of)(1) is present(kernel.tables_of)(0) is not None
    other = copy.deepcopy(objective).kernel(fo.Sources([1.0]))
    assert present(other.tables_of)(1) is None


def test_solves_of_fewer_sources_share_the_tables() -> None:
    """Several solves ask for tables as one of many sources does; before, few sources never had them."""
    rng, n = np.random.default_rng(6), 4_000
    sources = fo.Sources(rng.lognormal(0.0, 2.0, n), host=np.arange(n) % 50)
    objective = ExpectedPenalty(np.sqrt)
    task = fo.Problem(objective, sources, 2_000.0, dict.fromkeys(range(0, 50, 2), 20.0))
    kernel: Any = task.numerics
    first = fo.solve(task)
    with backend.loading():
        while kernel.tables_of(0) is None:
            fo.solve(task)
        fast = fo.solve(task)
    assert fast.value == pytest.approx(first.value, rel=1e-11)
    assert fast.price == pytest.approx(first.price, rel=1e-10)
    assert present(fast.certificate).relative_gap < 1e-12
    assert fast.iterations < first.iterations

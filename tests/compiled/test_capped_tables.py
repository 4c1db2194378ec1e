"""Tables of capped powers under Poisson refreshes, against incomplete gamma functions."""

import pickle
from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import backend, columns
from freshopt.compiled.cells.capped_tables import (
    CAPPED_TABLES,
    ROUNDING,
    capped_tables,
    tabled_response,
    tabled_values,
    tables_for,
)
from freshopt.compiled.penalty_tables import LEAST_SOURCES, PenaltyTables
from freshopt.compiled.proof_functions import proved
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.separable.kernel import Kernel
from tests.ground_truth.named import present
from tests.ground_truth.routes import require_same_compiled

EXPONENTS = (0.1, 0.5, 1.0, 2.0)
# Rows are right to 1e-13 where they are made.
RIGHT = 1.2e-13


def share(x: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    """Return (1 + e)∫₀¹ z^e e^{−xz} dz."""
    if x < mpmath.mpf(10) ** -9:
        return 1 - x * (1 + e) / (2 + e) + x**2 * (1 + e) / (2 * (3 + e))
    return (1 + e) * mpmath.gammainc(1 + e, 0, x) / x ** (1 + e)


def left(x: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    """Return the cost over that of rate 0: e∫₀¹ z^{e−1}·e^{−xz} dz, as J = E min(s, t₀)^e."""
    return mpmath.exp(-x) + x * share(x, e) / (1 + e)


def tables_of(e: float) -> PenaltyTables:
    return present(capped_tables(e))


@pytest.mark.parametrize("e", EXPONENTS)
def test_tables_are_incomplete_gamma_functions(e: float) -> None:
    tables, kink, plateau, w = tables_of(e), 0.25, 3.0, 2.0
    with mpmath.workdps(60):
        for exponent in (*np.linspace(-14.0, 3.0, 52), 8.0, 15.9, 17.0, 40.0):
            x = float(10.0**exponent) * 1.37
            cost, _, marginal, _ = tabled_values(
                np.float64(kink * x), w, 0.0, e, kink, plateau, tables.values
            )
            exact = plateau * float(share(mpmath.mpf(x), mpmath.mpf(e)))
            assert marginal == pytest.approx(w * exact, rel=RIGHT, abs=0.0)
            assert abs(marginal / (w * exact) - 1.0) < ROUNDING
            whole = plateau * kink * (1.0 + e) / e
            assert cost == pytest.approx(
                whole * float(left(mpmath.mpf(x), mpmath.mpf(e))), rel=RIGHT, abs=0.0
            )


@pytest.mark.parametrize("e", EXPONENTS)
def test_responses_have_the_price_for_their_marginal_value(e: float) -> None:
    tables = tables_of(e)
    with mpmath.workdps(60):
        for exponent in (*np.linspace(-15.0, 20.0, 106), 60.0):
            worth = float(1.0 + 10.0**exponent)
            x = float(tabled_response(np.float64(worth), 0.0, e, 1.0, 1.0, tables.response))
            exact = mpmath.mpf(x)
            for _ in range(3):  # Newton, on logarithms of 1 − G or of G
                g, own = share(exact, mpmath.mpf(e)), mpmath.mpf(e)
                slope = (1 + own) * (g - mpmath.exp(-exact))
                off = (1 - 1 / mpmath.mpf(worth)) / (1 - g) if worth < 2.0 else g * worth
                exact *= mpmath.exp(mpmath.log(off) * ((1 - g) if worth < 2.0 else g) / slope)
            # Beside the plateau a price tells as much less of the rate as what is below it is less.
            assert x == pytest.approx(float(exact), rel=1e-14 + 2e-16 / float(1 - 1 / mpmath.mpf(worth)))


def test_many_sources_take_tables_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the cell's loops would be compiled first, and those of tables in the next solve."""
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    monkeypatch.setattr(backend, "account", backend.Account())
    assert columns.enabled(100_000, CAPPED_TABLES.demand)


def test_ends_of_the_floats() -> None:
    tables = tables_of(0.5)
    with np.errstate(all="ignore"):
        for worth in (0.0, 1e-300, 0.5, 1.0):
            assert tabled_response(np.float64(worth), 0.0, 0.5, 1.0, 1.0, tables.response) == 0.0
        worths = 10.0 ** np.arange(0.0, 301.0, 0.25)[1:]
        found = [float(tabled_response(worth, 0.0, 0.5, 1.0, 1.0, tables.response)) for worth in worths]
        assert np.all(np.diff(found) > 0.0)
        free = (1.5 * float(mpmath.gamma(1.5)) * worths[-1]) ** (1 / 1.5)
        assert found[-1] == pytest.approx(free, rel=1e-12)
        assert tabled_response(np.float64(np.inf), 0.0, 0.5, 1.0, 1.0, tables.response) > 1e150
        cost, _, marginal, _ = tabled_values(np.float64(0.0), 2.0, 0.0, 0.5, 1.0, 1.0, tables.values)
    assert (cost, marginal) == (3.0, 2.0)


@pytest.mark.parametrize("e", [0.5, 2.0])
def test_terms_bound_the_exact_share_of_a_gap(e: float) -> None:
    tables, rng, informative = tables_of(e), np.random.default_rng(3), 0
    values, reach = (
        lambda _, given, p, own=own: own(*given, *p)
        for own in (CAPPED_TABLES.proof.values, CAPPED_TABLES.proof.reach)
    )
    with mpmath.workdps(40):
        own = mpmath.mpf(e)
        for _ in range(60):
            kink, w, plateau = (float(10.0 ** rng.uniform(-4.0, 4.0)) for _ in range(3))
            best = float(10.0 ** rng.uniform(-5.0, 5.0))
            paid = float(w * plateau * share(mpmath.mpf(best), own))
            rate = (
                kink * best * (1.0 + float(rng.choice([-0.9, 1.0])) * float(10.0 ** rng.uniform(-12.0, 0.0)))
            )
            low, high = mpmath.mpf(best) * 0.999, mpmath.mpf(best) * 1.001
            for _ in range(100):  # as the price paid is rounded
                root = (low + high) / 2
                low, high = (root, high) if w * plateau * share(root, own) > paid else (low, root)
            x, unit = mpmath.mpf(rate) / kink, w * plateau * kink * (1 + own) / own
            truth = unit * (left(x, own) - left(root, own)) + paid * kink * (x - root)
            parameters: tuple[Any, ...] = 0.0, e, kink, plateau, tables.values
            told = proved(values, reach, False, np.float64(rate), w, paid, 0.0, np.inf, parameters)[2]
            assert told >= truth
            informative += truth > 1e-9 * paid * rate
    assert informative > 10


def test_steep_powers_and_few_sources_have_none() -> None:
    assert capped_tables(3.0) is None
    assert tables_for(0.5, LEAST_SOURCES - 1) is None
    assert tables_for(0.5, LEAST_SOURCES) is capped_tables(0.5)
    for steep in (40.0, 400.0, 1e6):
        assert tables_for(steep, LEAST_SOURCES) is None


def kernel_of(exponent: float | list[float], cap: float | list[float]) -> Kernel:
    cost = PowerCost(1.0, exponent, cap)
    kernel = SynchronizationCost(cost, fo.Refresh.POISSON).kernel(fo.Sources([1.0, 1.0]))
    assert isinstance(kernel, Kernel)
    return kernel


def test_sources_have_tables_where_they_share_an_exponent_and_all_have_a_cap() -> None:
    kernel = kernel_of(0.5, [2.0, 3.0])
    assert present(pickle.loads(pickle.dumps(kernel.tables_of)))(LEAST_SOURCES) is not None
    assert kernel_of([0.5, 0.7], 2.0).tables_of is None
    assert kernel_of(0.5, [2.0, np.inf]).tables_of is None
    # Caps that no rate feels: of 1e300 changes, or a plateau that is no number.
    assert kernel_of(0.01, 700.0).tables_of is None
    assert kernel_of(0.1, 1e30).tables_of is None


@pytest.mark.exhaustive  # its loops take long to compile
@pytest.mark.parametrize("e", [0.5, 2.0])
def test_many_sources_are_solved_as_by_the_cell(e: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    d, w, cap = 10.0 ** rng.uniform(-3.0, 3.0, (3, LEAST_SOURCES))
    host = np.arange(LEAST_SOURCES) % 900
    sources = fo.Sources(d, w, host=host)
    objective = SynchronizationCost(PowerCost(1.0, e, cap), fo.Refresh.POISSON)
    problem = fo.Problem(objective, sources, 0.1 * float(np.sum(d)), dict.fromkeys(range(0, 900, 3), 8.0))
    require_same_compiled(problem, monkeypatch)

"""Tables of powers on request with a window, against incomplete gamma functions."""

import pickle
from itertools import product

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import backend, columns
from freshopt.compiled.cells.window_power import window_power
from freshopt.compiled.cells.window_tables import (
    NEAR,
    WINDOW_TABLES,
    look,
    tabled_values,
    tabled_window,
    tables_for,
    window_tables,
)
from freshopt.compiled.penalty_tables import LEAST_SOURCES
from freshopt.compiled.proof_functions import ProofCell
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.separable.kernel import Kernel
from tests.compiled.test_proofs import term
from tests.ground_truth.fetch_gaps import WINDOW_POWER
from tests.ground_truth.named import ON_REQUEST, present
from tests.ground_truth.routes import require_same_compiled
from tests.ground_truth.source_gaps import Number, exact_source_gap

EXPONENTS = (0.3, 0.5, 1.0, 1.7, 2.0, 3.0, 4.0)
LIVES = (*np.logspace(-12.0, 12.0, 13), 0.7, 1.31, 1.6, 2.9, 4.3)
WINDOWS = (0.0, 1e-9, 1e-4, 0.03, 0.61, 1.4, 2.5, 7.0, 60.0, 1e3)
# Differences of incomplete gamma functions of short windows lose up to 40 digits.
DIGITS, EPSILON = 100, 2.0**-52


def upper(s: float, e: float) -> Number:
    return e * mpmath.exp(s) * mpmath.gammainc(e, s)


def lower(s: float, e: float) -> Number:
    return mpmath.exp(s) * mpmath.gammainc(1 + mpmath.mpf(e), 0, s)


@pytest.mark.parametrize("e", EXPONENTS)
def test_tables_are_incomplete_gamma_functions(e: float) -> None:
    table = present(window_tables(e)).values
    with mpmath.workdps(DIGITS):
        for s in np.logspace(-25.0, 25.0, 120) * 1.37:
            here, there = look(s, 0.0, e, 1.0, 50.0, table)
            # The exponents 1 + e and e − 1 are rounded.
            most = 3e-15 + EPSILON * abs(np.log(s))
            assert here == pytest.approx(float(upper(s, e)), rel=most, abs=0.0)
            assert there == pytest.approx(float(upper(s + 50.0, e)), rel=most, abs=0.0)
            if s < min(1.0 + e, NEAR):
                assert look(s, 0.0, e, 1.0, 0.0, table)[0] == pytest.approx(
                    float(lower(s, e)), rel=most, abs=0.0
                )


@pytest.mark.parametrize("e", EXPONENTS)
def test_costs_and_marginal_values_of_all_scales(e: float) -> None:
    table, asked, w = present(window_tables(e)).values, 0.25, 3.0
    with mpmath.workdps(DIGITS):
        for life, window in product(LIVES, WINDOWS):
            own = 0.5, e, asked, window / asked
            rate = np.float64(asked / (1.0 + life))
            with np.errstate(all="ignore"):
                cost, _, marginal, rounding = tabled_values(rate, w, *own, table)
            given = [*map(mpmath.mpf, (rate, *own))]
            # Logarithms of ages lose as many ulp as they are large, times e.
            size = EPSILON * (20.0 + 2.0 * e * abs(np.log(life + window)))
            exact = float(w * WINDOW_POWER.marginal(*given))
            assert marginal == pytest.approx(exact, rel=size, abs=0.0), (life, window)
            assert abs(marginal / exact - 1.0) < 0.5 * rounding
            assert cost == pytest.approx(float(WINDOW_POWER.cost(*given)), rel=size, abs=0.0), (life, window)


@pytest.mark.parametrize("e", EXPONENTS)
def test_responses_have_the_price_for_their_marginal_value(e: float) -> None:
    table, asked = present(window_tables(e)).response, 4.0
    with mpmath.workdps(DIGITS):
        for life, window in product(LIVES, WINDOWS):
            own = 0.5, e, asked, window / asked
            rate = asked / (1.0 + life)
            given = [*map(mpmath.mpf, (rate, *own))]
            price = WINDOW_POWER.marginal(*given)
            with np.errstate(all="ignore"):
                found = float(tabled_window(np.float64(1 / price), *own, table))
            beside = WINDOW_POWER.marginal(mpmath.mpf(rate) * (1 + mpmath.mpf(10) ** -12), *given[1:])
            steep = float((price - beside) / price) * 1e12
            # What rounding takes from a price that lies next to that of all requests is lost.
            lost = EPSILON * (20.0 + 4.0 * e * abs(np.log(life + window))) / steep
            assert found == pytest.approx(rate, rel=1e-13 + lost, abs=0.0), (life, window)


@pytest.mark.parametrize("e", [0.3, 0.5, 2.0])
def test_terms_bound_the_exact_share_of_a_gap(e: float) -> None:
    rng, ratios = np.random.default_rng(5), []
    own = WINDOW_TABLES.proof
    table = present(window_tables(e)).values
    cell = ProofCell(
        lambda *given: own.values(*given, table),
        lambda *given: own.reach(*given, table),
    )
    with mpmath.workdps(DIGITS):
        for _ in range(40):
            asked = float(10.0 ** rng.uniform(-3.0, 3.0))
            window = float(10.0 ** rng.uniform(-5.0, 2.5)) / asked
            p = [float(rng.normal(0.0, 8.0)), e, asked, window]
            best = asked * float(10.0 ** rng.uniform(-6.0, -0.01))
            w, off = float(10.0 ** rng.uniform(-6.0, 6.0)), float(10.0 ** rng.uniform(-12.0, 0.5))
            rate = min(best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off), asked)
            paid = float(w * WINDOW_POWER.marginal(*map(mpmath.mpf, (best, *p))))
            paid *= float(rng.choice([1.0, 1.0 + 1e-16, 0.3, 40.0]))
            truth = exact_source_gap(WINDOW_POWER, rate, w, paid, (0.0, asked), p)
            found = term(cell, rate, w, paid, (0.0, asked), p)[2]
            assert found >= truth, (p, w, rate, paid)
            if truth > 1e-20 * paid * rate:
                ratios.append(float(found / truth))
    assert np.median(ratios) < 12.0


def test_ends_of_the_floats() -> None:
    tables, e, asked = present(window_tables(0.5)), 0.5, 2.0
    with np.errstate(all="ignore"):
        for window in (0.0, 1e-300, 1.0, 1e300):
            for worth in (0.0, 1e-300, 1e-100, 1e100, 1e300):
                own = np.float64(worth), 0.0, e, np.float64(asked), window
                found = tabled_window(*own, tables.response)
                assert found == pytest.approx(window_power(*own), rel=1e-14, abs=0.0)
            values = tabled_values(np.float64(0.0), 1.0, 0.0, e, asked, window, tables.values)
            assert values[0] == np.inf
            assert values[2] > 1e100


def test_other_exponents_and_few_sources_have_none() -> None:
    assert tables_for(0.5, LEAST_SOURCES - 1) is None
    assert tables_for(0.5, LEAST_SOURCES) is window_tables(0.5)
    assert tables_for(0.29, LEAST_SOURCES) is None
    assert tables_for(4.1, LEAST_SOURCES) is None


def kernel_of(exponent: float | list[float]) -> Kernel:
    sources = fo.Sources(importance=[1.0, 2.0], request_rate=3.0, stale_while_revalidate=[0.1, 0.2])
    kernel = SynchronizationCost(PowerCost(1.0, exponent), ON_REQUEST).kernel(sources)
    assert isinstance(kernel, Kernel)
    return kernel


def test_sources_have_tables_where_they_share_an_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(0.5)
    assert kernel.table_cell is WINDOW_TABLES
    assert present(pickle.loads(pickle.dumps(kernel.tables_of)))(LEAST_SOURCES) is not None
    assert kernel_of([0.5, 0.7]).tables_of is None
    # They take them at once: else loops would be compiled that the next solve does without.
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    monkeypatch.setattr(backend, "account", backend.Account())
    assert columns.enabled(100_000, WINDOW_TABLES.demand)


@pytest.mark.exhaustive  # its loops take long to compile
@pytest.mark.parametrize("e", [0.5, 2.0])
def test_many_sources_are_solved_as_by_the_cell(e: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    w, asked = 10.0 ** rng.uniform(-3.0, 3.0, (2, LEAST_SOURCES))
    w[::50] = 0.0
    window = 10.0 ** rng.uniform(-4.0, 2.0, LEAST_SOURCES) / asked
    host = np.arange(LEAST_SOURCES) % 900
    sources = fo.Sources(importance=w, request_rate=asked, stale_while_revalidate=window, host=host)
    objective = SynchronizationCost(PowerCost(1.0, e), ON_REQUEST)
    problem = fo.Problem(objective, sources, 0.1 * float(np.sum(asked)), dict.fromkeys(range(0, 900, 3), 8.0))
    require_same_compiled(problem, monkeypatch)


@pytest.mark.parametrize(("e", "window"), list(product((1.0, 3.0, 3.5, 4.0), (1e-3, 1.0, 1e12))))
def test_lifetimes_of_very_many_requests_are_those_without_a_window(e: float, window: float) -> None:
    table = present(window_tables(e)).response
    for level in (-170.0, -200.0, -230.0):
        # kτ^{1+e} is the price over C, to 1/τ.
        life = float(mpmath.exp((mpmath.log((1 + mpmath.mpf(e)) / e) - level) / (1 + mpmath.mpf(e))))
        assert life > 1e14
        given = (np.float64(1.0), np.float64(level), np.float64(e), np.float64(2.0), np.float64(window))
        for rate in (tabled_window(*given, table), window_power(*given)):
            assert rate == pytest.approx(2.0 / (1.0 + life), rel=1e-13, abs=0.0)

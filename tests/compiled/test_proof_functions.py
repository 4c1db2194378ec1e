"""Gap terms of single sources against best responses in 50 digits: never smaller, hardly larger."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from freshopt.compiled import poll_proofs, proof_functions
from freshopt.compiled.proof_functions import HALF_ULP, ROUNDING, ProofCell, proved
from freshopt.compiled.proof_tables import mean_harmonic_loss
from tests.ground_truth.source_gaps import CELLS, DIGITS, exact_source_gap

PROOFS: dict[str, ProofCell] = {
    "harmonic": proof_functions.HARMONIC,
    "harmonic periodic": proof_functions.HARMONIC_PERIODIC,
    "log periodic": proof_functions.LOG_PERIODIC,
    "harmonic signals": proof_functions.HARMONIC_SIGNAL,
    "binary": proof_functions.BINARY,
    "binary periodic": proof_functions.BINARY_PERIODIC,
    "binary signals": proof_functions.BINARY_SIGNAL,
    "delay": proof_functions.DELAY,
    "delay periodic": proof_functions.DELAY_PERIODIC,
    "delay signals": proof_functions.DELAY_SIGNAL,
    "age": proof_functions.AGE,
    "age periodic": proof_functions.AGE_PERIODIC,
    "age signals": proof_functions.AGE_SIGNAL,
    "power": proof_functions.POWER,
    "polls": poll_proofs.POLLS,
    "materials": poll_proofs.MATERIALS,
}
TRIALS = 60
# Near the best response a bound exceeds the exact share by twice the elasticity, at most 3.
MEDIAN = 6.5


def term(
    cell: ProofCell, rate: float, w: float, paid: float, bounds: tuple[float, float], p: list[float]
) -> tuple[float, float, float, float]:
    """Return cost, gain, gap term and whether outside, in plain Python."""
    own: Any = tuple(np.float64(value) for value in p)
    here, weight, price, lower, upper = (np.float64(value) for value in (rate, w, paid, *bounds))
    with np.errstate(all="ignore"):
        return proved(
            lambda _, rate, w, p: cell.values(rate, w, *p),
            lambda _, *given: cell.reach(*given[:-1], *given[-1]),
            False,
            here,
            weight,
            price,
            lower,
            upper,
            own,
        )


def parameters(name: str, rng: np.random.Generator) -> list[float]:
    if name == "power":
        return [float(rng.normal(0.0, 8.0)), float(10.0 ** rng.uniform(-1.0, 0.7))]
    return [float(10.0 ** rng.uniform(-4.0, 4.0))]


@pytest.mark.parametrize("name", PROOFS)
@pytest.mark.sampled(5)
def test_terms_bound_the_exact_share_of_a_gap(name: str) -> None:
    rng, ratios, floor = np.random.default_rng(len(name)), [], 0.0
    exact = CELLS[name]
    with mpmath.workdps(DIGITS):
        for trial in range(TRIALS):
            p = parameters(name, rng)
            own = float(rng.choice([1.0, 1e-6, 1e6, 0.37]))
            w = 1.0 if name == "power" else own  # that of a power is in its scale
            scale = 1.0 if name == "power" else p[0]
            signals = "signals" in name
            best = scale * float(10.0 ** (rng.uniform(-2.0, -0.1) if signals else rng.uniform(-2.8, 5.0)))
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off)
            rate = min(rate, scale) if signals else rate
            paid = float(w * exact.marginal(mpmath.mpf(best), *map(mpmath.mpf, p)))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            upper = scale if signals else np.inf
            bounds = [(0.0, upper), (min(rate, 0.9 * best), min(upper, max(rate, 1.1 * best))), (rate, upper)]
            lower, upper = bounds[trial % 3]
            truth = exact_source_gap(exact, rate, w, paid, (lower, upper), p)
            cost, _, found, outside = term(PROOFS[name], rate, own, paid, (lower, upper), p)
            assert outside == 0.0
            assert found >= truth, (name, p, w, rate, paid, lower, upper)
            whole = float(w * exact.cost(mpmath.mpf(rate), *map(mpmath.mpf, p)))
            assert cost == pytest.approx(whole, rel=1e-12, abs=1e-15 * w)
            floor = max(floor, float(truth) / (abs(whole) + paid * rate))
            # What rounding adds to a linear source is no square.
            if truth > (1e-12 if name == "binary signals" else 1e-24) * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    assert floor > 1e-6  # some rates are far from their best responses
    assert np.median(ratios) < MEDIAN


@pytest.mark.parametrize("name", PROOFS)
def test_marginal_values_are_within_the_rounding_allowed(name: str) -> None:
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS + 40):
        for x in rng.uniform(-15.0, 15.0, 150):
            p = parameters(name, rng)
            rate = (1.0 if name == "power" else p[0]) * 10.0 ** (min(x, 0.0) if "signals" in name else x)
            cell = PROOFS[name]
            _, _, marginal, rounding = cell.values(np.float64(rate), 1.0, *map(np.float64, p))
            exact = CELLS[name].marginal(mpmath.mpf(rate), *map(mpmath.mpf, p))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    # Prices times costs, and the difference, take the rest.
    assert worst <= 0.5


@pytest.mark.parametrize(
    "name",
    [name for name in PROOFS if name not in ("binary signals", "binary periodic", "polls", "materials")],
)
def test_marginal_values_fall_at_least_as_fast_as_the_reach_says(name: str) -> None:
    shifted = name == "binary"
    with mpmath.workdps(DIGITS):
        for x in np.linspace(-12.0, 12.0, 121):
            p = [mpmath.mpf("0.3"), mpmath.mpf("0.8")] if name == "power" else [mpmath.mpf("1.7")]
            shift = p[0] if shifted else mpmath.mpf(0)
            here = mpmath.mpf(10) ** mpmath.mpf(float(x)) * 2
            there = here * (1 + mpmath.mpf(10) ** -6)
            fall = (here + shift) * CELLS[name].marginal(here, *p)
            assert fall * (1 + mpmath.mpf(10) ** -25) >= (there + shift) * CELLS[name].marginal(there, *p)


def test_the_logarithm_behind_the_plateau_has_an_elasticity_of_at_least_one() -> None:
    with mpmath.workdps(DIGITS):
        for x in np.linspace(-12.0, 6.0, 181):
            u = mpmath.mpf(10) ** mpmath.mpf(float(x))
            whole = u - mpmath.log1p(u)
            assert u * u / (1 + u) >= whole >= u * u / (2 * (1 + u))


@pytest.mark.parametrize("name", PROOFS)
def test_no_importance_costs_nothing_and_wastes_what_it_takes(name: str) -> None:
    p = [-np.inf, 1.0] if name == "power" else [1.0]
    for rate, lower in ((0.5, 0.0), (0.5, 0.25), (0.5, 0.5)):
        cost, gain, gap, outside = term(PROOFS[name], rate, 0.0, 2.0, (lower, 1.0), p)
        assert (cost, gain, outside) == (0.0, 0.0, 0.0)
        assert 2.0 * (rate - lower) <= gap <= 2.0 * (rate - lower) * (1.0 + 1e-11)
    assert term(PROOFS[name], 0.0, 0.0, 2.0, (0.0, 1.0), p)[:3] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", PROOFS)
def test_rates_that_are_no_rates_prove_nothing(name: str) -> None:
    p = [0.0, 1.0] if name == "power" else [1.0]
    for rate in (np.nan, np.inf, -np.inf, -1.0, 2.0):
        assert term(PROOFS[name], rate, 1.0, 2.0, (0.0, 1.0), p)[3] == 1.0
    cost, _, gap, _ = term(PROOFS[name], 0.0, 1.0, 2.0, (0.0, 1.0), p)
    if name in ("binary", "binary periodic", "binary signals", "polls", "materials"):
        # Starved for good: the marginal value at 0 is below the price.
        assert (cost, gap) == (0.0 if name == "materials" else 1.0, 0.0)
    else:
        assert not np.isfinite(gap)


def test_the_tables_mean_harmonic_needs_no_other_library() -> None:
    u = 10.0 ** np.linspace(-12.0, 12.0, 97)
    with mpmath.workdps(DIGITS):
        for value, found in zip(u, mean_harmonic_loss(u), strict=True):
            exact = CELLS["harmonic periodic"].cost(mpmath.mpf(1), mpmath.mpf(float(value)))
            assert abs(float(found / exact - 1)) < 2e-15


def test_the_allowance_is_thirty_two_half_ulps() -> None:
    assert ROUNDING == 32.0 * HALF_ULP == 2.0**-48

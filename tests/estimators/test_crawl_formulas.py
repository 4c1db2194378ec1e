"""Formulas of NumPy and compiled loops: against the printed density and its derivatives in 40 digits."""

import math
from typing import Any

import mpmath
import numba
import numpy as np
import pytest

from freshopt.estimators import crawl_loops
from freshopt.estimators.crawl_formulas import climbing_step, curvature, information, odds_of, turning
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import FirstDates, Intervals
from freshopt.numerics.density_quantiles import integral, polynomial, quintic, within
from tests.ground_truth.tolerances import EXACT, SCALAR

GAPS, QUIET = np.array([0.5, 3.0, 0.02, 8.0]), np.array([1.0, 4.0])
WEIGHT, QUIET_WEIGHT = np.array([1.0, 0.3, 2.0, 0.7]), np.array([0.9, 0.25])
COUNTED, EXPOSURE, TIME = 2.5, 6.0, 1.5
# Of the case's weights, pseudo-observation, P, η, and whether Jeffreys' prior is taken.
CASES = [
    (False, 0.0, 0.0, 0.0, False),
    (True, 0.0, 0.0, 0.0, True),
    (False, 0.0, 0.0, 0.0, True),
    (True, 0.7, 0.0, 0.0, False),
    (True, 0.0, 0.8, 0.3, False),
]


def likelihood(case: tuple[bool, float, float, float, bool]) -> CrawlLikelihood:
    weighted, pseudo, possible, births, jeffreys = case
    quiet = Intervals(QUIET, np.array([0, 2]), QUIET_WEIGHT if weighted else None)
    made = CrawlLikelihood(
        Intervals(GAPS, np.array([0, 4]), WEIGHT if weighted else None),
        counted=np.array([COUNTED]),
        exposure=np.array([EXPOSURE - pseudo]),
        dates=FirstDates(np.array([possible]), np.zeros(1)) if possible else None,
        birth_rate=np.array([births]) if possible else None,
        quiet=quiet if jeffreys else None,
        time=np.array([TIME]) if jeffreys else None,
    )
    return made.smoothed(pseudo)


def printed(case: tuple[bool, float, float, float, bool], t: Any) -> Any:  # noqa: ANN401 - mpmath's
    """The log density of t, term by term as the model has it."""
    weighted, pseudo, possible, births, jeffreys = case
    rate = mpmath.exp(t)
    rows = list(zip(GAPS.tolist(), WEIGHT.tolist() if weighted else [1.0] * 4, strict=True))
    quiet = list(zip(QUIET.tolist(), QUIET_WEIGHT.tolist() if weighted else [1.0] * 2, strict=True))
    value = sum(w * mpmath.log(1 - mpmath.exp(-a * rate)) for a, w in rows)
    value += COUNTED * t - EXPOSURE * rate
    value += mpmath.log(1 - mpmath.exp(-pseudo * rate)) if pseudo else 0
    value += possible * mpmath.log(rate + births) if possible else 0
    if jeffreys:
        h = TIME * rate + sum(w * (a * rate) ** 2 / mpmath.expm1(a * rate) for a, w in rows + quiet)
        value += mpmath.log(h) / 2
    return value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("t", [-9.0, -1.0, 0.4, 3.0])
def test_densities_have_the_printed_value_and_derivatives(case: Any, t: float) -> None:  # noqa: ANN401
    mpmath.mp.dps = 40
    exact = [float(mpmath.diff(lambda x: printed(case, x), mpmath.mpf(t), order)) for order in range(3)]
    for found, expected in zip(likelihood(case).density(np.array([t])), exact, strict=True):
        assert found[0] == pytest.approx(expected, rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("x", [1e-9, 0.3, 2.0, 60.0, 650.0])
def test_terms_of_a_crawl_are_derivatives_of_the_one_before(x: float) -> None:
    mpmath.mp.dps = 40

    def q(t: Any) -> Any:  # noqa: ANN401 - mpmath's
        return mpmath.exp(t) / mpmath.expm1(mpmath.exp(t))

    t, odds = mpmath.log(x), float(odds_of(x))
    share = x * odds
    assert odds == pytest.approx(float(1 / mpmath.expm1(x)), rel=EXACT)
    size = max(share, 1e-280) * (1.0 + x)
    assert curvature(x, share) == pytest.approx(float(mpmath.diff(q, t)), rel=EXACT, abs=1e-15 * size)
    bend = float(mpmath.diff(q, t, 2))
    assert turning(x, share) == pytest.approx(bend, rel=EXACT, abs=1e-15 * size * (1.0 + x))
    for order, found in enumerate(information(x, share)):
        exact = float(mpmath.diff(lambda s: mpmath.exp(s) * q(s), t, order))
        assert found == pytest.approx(exact, rel=EXACT, abs=1e-15 * x * size * (1.0 + x))


@pytest.mark.parametrize("case", [case for case in CASES if not case[4]])
def test_a_step_near_the_maximum_is_cubic_and_a_plain_one_quadratic(case: Any) -> None:  # noqa: ANN401
    made = likelihood(case)
    best = float(made.maximum()[0])
    assert made.density(np.log([best]))[1][0] == pytest.approx(0.0, abs=1e-13)
    for cubic, power in ((True, 3), (False, 2)):
        errors = []
        for off in (0.1, 0.05):
            rate = np.array([best * (1.0 - off)])
            x, _, q = made.rows.shares(rate)
            sums = tuple(made.rows.sums(each) for each in (q, curvature(x, q), turning(x, q)))
            move = climbing_step(sums, made.terms, rate, cubic)  # type: ignore[arg-type]
            errors.append(abs(float(rate[0] * (1.0 + move[0])) / best - 1.0))
        assert errors[1] < errors[0] * 0.75 * 0.5 ** (power - 1)


def test_a_cell_interpolates_and_is_integrated() -> None:
    """ln of a Gamma density: six numbers at the ends, mass by quadrature, and where half of it lies."""

    def density(t: float) -> tuple[float, float, float]:
        return 3.0 * t - math.exp(t), 3.0 - math.exp(t), -math.exp(t)

    left, width = 0.4, 0.1
    cell = np.array(quintic(*density(left), *density(left + width), width))
    for u in (0.0, 0.37, 1.0):
        assert polynomial(cell, u) == pytest.approx(density(left + u * width)[0], rel=1e-8)
    mass = mpmath.quad(lambda u: mpmath.exp(3.0 * (left + u * width) - mpmath.exp(left + u * width)), [0, 1])
    whole = float(integral(cell, 1.0))
    assert whole == pytest.approx(float(mass), rel=1e-8)
    place = float(within(cell, 0.5 * whole, whole))
    assert integral(cell, place) == pytest.approx(0.5 * whole, rel=SCALAR)


def test_compiled_integral_is_summed_in_lanes() -> None:
    """Its points are a sum, which the compiler may take in any order: quantiles take a third longer else."""
    compiled = numba.njit(**crawl_loops.OPTIONS)(lambda cell, at: integral(cell, at))
    compiled(np.zeros(6), 1.0)
    assert "fadd reassoc" in compiled.inspect_llvm(compiled.signatures[0])

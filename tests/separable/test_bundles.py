from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.separable.bundles import BundledNumerics, Bundles

Floats = np.typing.NDArray[np.float64]
OBJECTIVES = {"harmonic": HarmonicStaleness(), "delay": AccumulatedDelay(), "binary": BinaryFreshness()}


def marginal(name: str, rate: Floats, d: Floats) -> Floats:
    """−J'(ρ) in closed form."""
    with np.errstate(all="ignore"):
        return {
            "harmonic": d / rate / (rate + d),
            "delay": d / rate / rate,
            "binary": d / (d + rate) ** 2,
        }[name]


def roots(name: str, w: Floats, d: Floats, codes: Floats, price: Floats) -> Floats:
    """Return where the bundles' marginal values fall to their prices, by bisection in log ρ."""
    low, high = np.full(len(price), -300.0), np.full(len(price), 300.0)
    for _ in range(120):
        middle = 0.5 * (low + high)
        each = np.where(w > 0.0, w * marginal(name, np.exp(middle)[codes], d), 0.0)
        above = np.bincount(codes, each, len(price)) > price
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(low < -299.0, 0.0, np.exp(low))


def drawn(seed: int, name: str, *, ill: bool) -> tuple[BundledNumerics, Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    b = int(rng.integers(1, 30))
    n = b + int(rng.integers(0, 200))
    codes = rng.permutation(np.append(np.arange(b), rng.integers(0, b, n - b)))
    w = rng.lognormal(0.0, 3.0 if ill else 0.5, n)
    w[rng.random(n) < 0.1] = 0.0
    d = 10.0 ** rng.uniform(-5.0, 4.0, n) if ill else rng.lognormal(0.0, 0.7, n)
    sources, objective = fo.Sources(d, w), OBJECTIVES[name]
    each = objective.kernel(sources)
    assert each is not None
    bundles = Bundles.of(codes)
    typical = bundles.totals(d) / np.diff(bundles.first)
    # Around what the bundles would pay at typical rates, and far from it.
    value = np.bincount(codes, np.where(w > 0.0, w * marginal(name, typical[codes], d), 0.0), b)
    price = np.where(value > 0.0, value, 1.0) * rng.lognormal(0.0, 5.0 if ill else 1.0, b)
    return BundledNumerics(each, bundles, typical), w, d, codes, price


@pytest.mark.parametrize("name", ["harmonic", "delay", "binary"])
@pytest.mark.parametrize("seed", range(8))
def test_best_responses_of_bundles_are_roots_of_their_marginal_values(name: str, seed: int) -> None:
    numerics, w, d, codes, price = drawn(seed, name, ill=seed % 2 == 1)
    expected = roots(name, w, d, codes, price)
    found = numerics.inverse_marginal(price)
    # Of a flat marginal the root is known to rounding over its fall: √ε where w − price·Δ cancels.
    assert found == pytest.approx(
        expected, rel=1e-12, abs=1e-13 * float(np.max(d)) if name == "binary" else 0
    )


def test_some_bundles_are_answered_as_among_all() -> None:
    numerics, *_, price = drawn(3, "harmonic", ill=True)
    some = np.arange(len(price))[::2]
    whole = numerics.inverse_marginal(price)
    np.testing.assert_allclose(numerics.take(some).inverse_marginal(price[some]), whole[some], rtol=1e-14)

"""Each cell's response, values and reach against many digits over 24 decades, one by one and on arrays.

NumPy, compiled loops and proofs are made of these three functions: nothing else holds them to the truth.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from freshopt.compiled import demand_functions as responses
from freshopt.compiled.cells.array_edition import COST, GAIN, MARGINAL, OfPrice, OfRate, array_edition
from freshopt.compiled.cells.capped_poisson import capped_poisson
from freshopt.compiled.demand_functions import Demand, power_law
from freshopt.compiled.proof_functions import ProofCell
from tests.compiled.test_cells import PROVED as FETCHES
from tests.compiled.test_cells import decades
from tests.compiled.test_proofs import PROOFS, capped, felt, kinks
from tests.ground_truth.source_gaps import CELLS as EXACT
from tests.ground_truth.source_gaps import ExactCell, Number

Rng = np.random.Generator
Floats = npt.NDArray[np.float64]
Drawn = tuple[float, list[float]]  # a rate, and parameters
DIGITS, TRIALS = 100, 60
# Relative errors of what is looked up, of a price and of a cost; and of exponentials of large logarithms.
ROUNDING, POWER, LATER = 4e-15, 1e-11, 1e-13
EXPONENTIALS = {"power": POWER, "capped power": POWER, "capped Poisson": POWER, "later": LATER}


def power(worth: float, log_scale: float, e: float) -> float:
    """Return the response of a power law, of the parameters that its proof takes."""
    return power_law(worth, log_scale, 1.0 / (1.0 + e))


RESPONSES: dict[str, Demand] = {
    "harmonic": responses.harmonic_poisson,
    "harmonic periodic": responses.harmonic_periodic,
    "harmonic signals": responses.reciprocal_below,
    "log periodic": responses.log_periodic,
    "binary": responses.binary_poisson,
    "binary periodic": responses.binary_periodic,
    "binary signals": responses.all_or_nothing,
    "delay": responses.delay,
    "delay periodic": responses.delay_periodic,
    "delay signals": responses.delay,
    "age": responses.age_poisson,
    "age periodic": responses.age_periodic,
    "age signals": responses.reciprocal_root_below,
    "polls": responses.polls,
    "materials": responses.materials,
    "later": responses.later,
    "kinks": responses.last_kink,
    "power": power,
    "capped power": responses.capped_power,
    "capped Poisson": capped_poisson,
}


class Cell(NamedTuple):
    """A cell, its truth, how its sources are drawn, and how wrong it may be."""

    response: Demand
    proof: ProofCell
    exact: ExactCell
    draw: Callable[[Rng], Drawn]
    rounding: float = ROUNDING


def plain(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        if name == "power":
            return decades(rng, -12.0, 12.0), [float(rng.normal(0.0, 8.0)), decades(rng, -1.0, 0.7)]
        if name == "capped power":
            kink = decades(rng, -4.0, 4.0)
            own = capped(float(rng.normal(0.0, 8.0)), decades(rng, -1.0, 0.7), kink)
            return kink * decades(rng, -12.0, 12.0), own
        if name == "capped Poisson":
            kink = decades(rng, -4.0, 4.0)
            return kink * decades(rng, -12.0, 12.0), felt(decades(rng, -1.5, 1.0), kink)
        if name == "kinks":
            own = kinks(rng, 3)
            return own[-2] * decades(rng, -12.0, -1e-9), own
        d = decades(rng, -4.0, 4.0)
        if name == "later":
            return decades(rng, -12.0, 2.5) / d, [d]
        return d * decades(rng, -12.0, 0.0 if "signals" in name else 12.0), [d]

    return draw


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
CELLS = {
    name: Cell(RESPONSES[name], proof, EXACT[name], plain(name), EXPONENTIALS.get(name, ROUNDING))
    for name, proof in PROOFS.items()
}
CELLS |= {
    name: Cell(cell.demand, cell.proof, cell.exact, cell.far, POWER if "power" in name else 2.0 * ROUNDING)
    for name, cell in FETCHES.items()
}


def drawn(name: str, trials: int = TRIALS) -> list[Drawn]:
    rng = np.random.default_rng(len(name))
    return [CELLS[name].draw(rng) for _ in range(trials)]


def exact_marginal(name: str, rate: Number, own: list[float]) -> Number:
    return CELLS[name].exact.marginal(mpmath.mpf(rate), *map(mpmath.mpf, own))


def alone(formula: Callable[..., Any], columns: npt.ArrayLike) -> Floats:
    """Return what a formula says of each source, one after the other."""
    return np.array([formula(*each) for each in np.array(columns).T])


def columns_of(first: npt.ArrayLike, sources: list[Drawn]) -> Floats:
    return np.array([first, *np.array([own for _, own in sources]).T])


@pytest.mark.parametrize("name", CELLS)
def test_responses_are_roots_of_the_exact_marginal_value(name: str) -> None:
    """Next to a response the exact marginal value falls past a price that is next to the one asked."""
    cell, sources = CELLS[name], drawn(name)
    with mpmath.workdps(DIGITS):
        prices = [float(exact_marginal(name, *source)) for source in sources]
        columns = columns_of(prices, sources)
        found = alone(cell.response, [1.0 / columns[0], *columns[1:]]), OfPrice(cell.response)(*columns)
        off = mpmath.mpf(cell.rounding)
        for (rate, own), price, *each in zip(sources, prices, *found, strict=True):
            for best in map(mpmath.mpf, each):
                # What buys nothing is dearer than the first refreshes, as far as floats tell.
                high = best * (1 + off) if best > 0 else mpmath.mpf(rate) / 1000
                assert exact_marginal(name, high, own) <= price * (1 + off), (rate, own, best)
                assert best == 0 or exact_marginal(name, best * (1 - off), own) >= price * (1 - off)


@pytest.mark.parametrize("name", CELLS)
def test_responses_and_values_are_of_one_curve(name: str) -> None:
    """They are two formulas: at the response to a price the marginal value is the price."""
    cell, sources = CELLS[name], drawn(name, 500)
    columns = columns_of([rate for rate, _ in sources], sources)
    marginal, response = OfRate(cell.proof.values, MARGINAL), OfPrice(cell.response)
    price = marginal(*columns)
    found = response(price, *columns[1:])
    off = 2.0 * cell.rounding
    some = found > 0.0
    assert np.all((marginal(found * (1.0 + off), *columns[1:]) <= price * (1.0 + off)) | ~some)
    assert np.all((marginal(found * (1.0 - off), *columns[1:]) >= price * (1.0 - off)) | ~some)
    assert np.all(some | (marginal(columns[0] / 1000.0, *columns[1:]) <= price * (1.0 + off)))


@pytest.mark.parametrize("name", CELLS)
def test_costs_and_gains_are_exact(name: str) -> None:
    cell = CELLS[name]
    # The cost of harmonic attempts is a quadrature of many digits.
    sources = drawn(name, 4 if name == "attempt harmonic" else TRIALS)
    columns = columns_of([rate for rate, _ in sources], sources)
    gains = "binary" in name or name == "polls"
    with mpmath.workdps(DIGITS):
        exact = [cell.exact.cost(*map(mpmath.mpf, (rate, *own))) for rate, own in sources]
        whole = [mpmath.mpf(own[0]) if name == "polls" else mpmath.mpf(1) for _, own in sources]
        left = [w - c if gains else 0 for w, c in zip(whole, exact, strict=True)]
        for part, truth in ((COST, exact), (GAIN, left)):
            expected = np.array([float(each) for each in truth])
            # Signals that are all followed leave a difference of numbers near 1, or near 1/rate.
            least = ROUNDING if "signals" in name or name in FETCHES else 0.0
            for found in (
                alone(lambda rate, *own: cell.proof.values(rate, 1.0, *own), columns)[:, part],
                OfRate(cell.proof.values, part)(*columns),
            ):
                assert np.all(np.abs(found - expected) <= cell.rounding * np.abs(expected) + least)


# Where there are kinks there are many best responses: their gaps are compared, in tests of proofs.
@pytest.mark.parametrize("name", [name for name in CELLS if name != "kinks"])
def test_reaches_bound_the_distance_to_the_response(name: str) -> None:
    cell, rng = CELLS[name], np.random.default_rng(3)
    sources = drawn(name, 20 if "attempt" in name else TRIALS)
    with mpmath.workdps(DIGITS):
        for best, own in sources:
            away = float(1.0 + 10.0 ** rng.uniform(-7.0, 0.0))
            rate = best * away if rng.random() < 0.5 and "signals" not in name else best / away
            paid, marginal = (float(exact_marginal(name, each, own)) for each in (best, rate))
            off = abs(marginal - paid) + 1e-13 * (marginal + paid)
            given = map(np.float64, (rate, 1.0))
            excess = (np.float64(off), np.float64(paid), rate < best, rate > best)
            reach = float(cell.proof.reach(*given, excess, *map(np.float64, own)))
            far = abs(rate - best)
            if name == "later" and rate < best:
                # Between both prices there is an area that is less than that of the distance.
                cost = [cell.exact.cost(mpmath.mpf(each), *map(mpmath.mpf, own)) for each in (rate, best)]
                far = float(cost[0] - cost[1] - mpmath.mpf(paid) * (best - rate)) / off
            assert reach >= far * (1.0 - 1e-12), (rate, best, own)


# Where they leave the floats, exponentials of loops have other ends than NumPy's.
@pytest.mark.parametrize("name", [name for name in CELLS if "power" not in name and name not in EXPONENTIALS])
def test_array_editions_are_the_scalar_formulas_at_the_ends_of_the_floats(name: str) -> None:
    """Of rates from 0 on and prices of nothing and of everything NumPy says what loops say."""
    cell, sources = CELLS[name], drawn(name)
    ends = np.resize([0.0, 1e-250, 1e-100, 1e100, 1e250], TRIALS)
    columns = columns_of(ends, sources)
    values = alone(lambda rate, *own: cell.proof.values(rate, 1.0, *own), columns)
    for part in (COST, GAIN, MARGINAL):
        found = np.broadcast_to(OfRate(cell.proof.values, part)(*columns), TRIALS)
        np.testing.assert_allclose(found, values[:, part], rtol=ROUNDING)
    prices = np.resize([1e-300, 1e-100, 1e100, 1e300], TRIALS)
    columns = columns_of(prices, sources)
    expected = alone(cell.response, [1.0 / prices, *columns[1:]])
    np.testing.assert_allclose(OfPrice(cell.response)(*columns), expected, rtol=cell.rounding)


def test_no_rate_is_too_large_for_an_array_edition() -> None:
    for name, cell in CELLS.items():
        columns = columns_of(np.full(TRIALS, np.inf), drawn(name))
        for part in (COST, GAIN, MARGINAL):
            assert not np.any(np.isnan(OfRate(cell.proof.values, part)(*columns))), name


def branch(x: float) -> float:
    if x > 1.0:
        x = 2.0
    return x


def test_a_formula_with_work_in_a_branch_is_refused() -> None:
    with pytest.raises(TypeError, match="line 2 of branch has no array edition"):
        array_edition(branch)


@pytest.mark.parametrize("name", ["request harmonic", "request age"])
def test_where_nothing_is_paid_every_request_fetches(name: str) -> None:
    """Rates are the request rates to the last bit: an ulp less would have a cost."""
    columns = columns_of(np.full(TRIALS, 1e-300), drawn(name))
    assert np.array_equal(OfPrice(CELLS[name].response)(*columns), columns[2])

"""Few sources alone and all others by interpolation: against sums over all, bisection, and jumps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gammainc

import freshopt as fo
from freshopt.compiled.columns import Columns
from freshopt.compiled.price_pairs import at_two_prices, memory
from freshopt.dual_search.few_alone import FewAlone, crossing
from freshopt.dual_search.jump_search import jump_search
from freshopt.dual_search.sampled_search import sampled_search
from freshopt.numerics.arrays import Array
from freshopt.problems import BinaryFreshness, PollingKnapsack
from tests.dual_search.test_jump_search import bisected, columns_of

PERIODIC = fo.Refresh.PERIODIC
N = 40_000


def drawn(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)


def enclosed(columns: Columns, low: float, high: float) -> FewAlone:
    """Return the demand between two prices."""
    into = memory(columns.n)
    used = at_two_prices(columns, low, high, into, steep=64.0 * math.log(high / low))
    jumps = np.flatnonzero(into.jumps)
    return FewAlone(columns.take(jumps, len(jumps)), (low, high), used)


def test_demand_within_a_bracket_is_that_of_all() -> None:
    """At the ends exactly, within to the square of the width; a known price brings its cube."""
    d, w = drawn(N, 1)
    columns = columns_of(fo.Problem(BinaryFreshness(PERIODIC), fo.Sources(d, w), 0.3 * float(np.sum(d))))
    low, middle, high = 0.6, 0.60002, 0.60005
    demand = enclosed(columns, low, high)
    assert 0 < demand.alone.n < N // 100
    for end in (low, high):
        assert demand(end) == pytest.approx(columns.demand(end), rel=1e-14)
    off = abs(demand(middle) / columns.demand(middle) - 1.0)
    assert 1e-14 < off < 1e-8
    rates = np.empty(N)
    target = columns.demand(middle)
    price, passes = demand.settle(columns, target, crossing(demand, target, middle, low, high), rates)
    assert passes == 2
    assert price == pytest.approx(middle, rel=1e-11)
    assert math.fsum(rates) == pytest.approx(target, rel=2e-13)


def test_where_rates_jump_nothing_is_settled() -> None:
    d, w = drawn(N, 2)
    own = fo.Sources(d, w, signalled=np.arange(N) % 2 == 0)
    columns = columns_of(fo.Problem(BinaryFreshness(), own, 0.3 * float(np.sum(d))))
    jump = float(np.sort(w / d)[N // 2 :][::2][0])
    place = float(np.min(np.abs(w[::2] / d[::2] - jump))) + jump
    below, above = columns.demand(place * (1.0 - 1e-12)), columns.demand(place * (1.0 + 1e-12))
    assert below > above * (1.0 + 1e-9)
    demand = enclosed(columns, place * (1.0 - 1e-6), place * (1.0 + 1e-6))
    target = 0.5 * (below + above)
    price, passes = demand.settle(columns, target, crossing(demand, target, place, *demand.ends), np.empty(N))
    assert (price, passes) == (None, 0)


@pytest.mark.parametrize("form", ["binary", pytest.param("polls", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("budget", [0.02, 0.3])
def test_infinite_slopes_take_two_samples_a_pair_and_few_passes(form: str, budget: float) -> None:
    """The price is that of bisection; sources leave with an infinite slope all around it."""
    d, w = drawn(N, 3)
    objective = BinaryFreshness(PERIODIC) if form == "binary" else PollingKnapsack(form="polls")
    task = fo.Problem(objective, fo.Sources(d, w), budget * float(np.sum(d)))
    columns = columns_of(task)
    known: list[tuple[float, float]] = []
    found = sampled_search(columns, task.bandwidth, known=known)
    if found is None:
        assert len(known) <= 2
        found = jump_search(columns, task.bandwidth, known=known)
    assert found is not None
    assert found.passes <= 12
    scale = w / d if form == "binary" else w
    some = found.rates > 0.0
    marginal = scale[some] * gammainc(2.0, d[some] / found.rates[some])
    np.testing.assert_allclose(marginal, found.price, rtol=1e-11)
    assert np.all(scale[found.rates == 0.0] <= found.price * (1.0 + 1e-12))
    assert math.fsum(found.rates) == pytest.approx(task.bandwidth, rel=2e-13)
    assert bisected(columns.demand, task.bandwidth) == pytest.approx(found.price, rel=1e-11)

"""What makes crawls of rates: slots, equal gaps, and signals that pay with slots."""

import numpy as np
import pytest

from freshopt.online.epoch_crawls import drawn, periodic_visits, serve
from tests.ground_truth.tolerances import EXACT


def queue(
    signals: list[float], slots: list[float], price: list[float], debt: float
) -> tuple[list[bool], list[bool], float]:
    """Serve one event after the other: each signal owes its price, each slot pays one of the oldest debts."""
    free, ends, owed, paid = [True] * len(slots), [debt], debt, 0
    events = sorted([(t, 0, k) for k, t in enumerate(signals)] + [(t, 1, k) for k, t in enumerate(slots)])
    for _, kind, k in events:
        if kind == 0:
            owed += price[k]
            ends.append(owed)
        elif owed > paid:
            paid, free[k] = paid + 1, False
    begun = [end < paid for end in ends[:-1]]
    return begun, free, ends[sum(begun)] - paid


def test_signals_pay_with_the_next_slots() -> None:
    rng = np.random.default_rng(1)
    for round_ in range(300):
        signals, slots = (np.sort(rng.random(int(rng.integers(0, 12)))) for _ in range(2))
        alike = round_ % 2 == 0
        price = np.ones(len(signals)) if alike else rng.uniform(0.2, 4.0, len(signals))
        before = 0.0 if alike else float(rng.uniform(0.0, 3.0))
        followed, free, debt = serve(signals, slots, price, before)
        begun, left, owed = queue(signals.tolist(), slots.tolist(), price.tolist(), before)
        assert (followed.tolist(), free.tolist()) == (begun, left)
        assert debt == pytest.approx(owed, abs=EXACT)
        # All that was followed is paid, or owed.
        assert price[followed].sum() + before == pytest.approx(len(slots) - free.sum() + debt, abs=EXACT)
        if alike:
            assert debt == 0.0


def test_nobody_looks_ahead() -> None:
    """What happens until some moment does not depend on what comes after it."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        signals, slots = np.sort(rng.random(20)), np.sort(rng.random(30))
        cut = float(rng.random())
        price = rng.uniform(0.2, 4.0, 20)
        _, free, _ = serve(signals, slots, price, 0.0)
        _, before, _ = serve(signals[signals < cut], slots[slots < cut], price[signals < cut], 0.0)
        assert free[slots < cut].tolist() == before.tolist()


def test_slots_are_drawn_in_proportion() -> None:
    rates = np.array([0.0, 1.0, 3.0, 0.0, 6.0, 0.0])
    source = drawn(rates, 100_000, np.random.default_rng(3))
    found = np.bincount(source, minlength=6) / 1e5
    share = rates / rates.sum()
    assert np.all(np.abs(found - share) <= 4.0 * np.sqrt(share * (1 - share) / 1e5))
    assert found[[0, 3, 5]].tolist() == [0.0, 0.0, 0.0]


def test_equal_gaps_over_rounds() -> None:
    rng = np.random.default_rng(4)
    rates = rng.uniform(0.1, 3.0, 7)
    done, begin, visits = np.zeros(7), 0.0, []
    for end in (3.7, 4.0, 4.01, 12.0):
        source, time = periodic_visits(rates, done, begin, end)
        assert np.all((time > begin) & (time <= end))
        assert np.all(np.diff(time) >= 0)
        visits += list(zip(source.tolist(), time.tolist(), strict=True))
        done, begin = done + rates * (end - begin), end
    for k in range(7):
        times = np.array([time for source, time in visits if source == k])
        first = (k + 0.5) / 7 / rates[k]
        expected = np.arange(first, 12.0, 1.0 / rates[k])
        assert times == pytest.approx(expected, rel=EXACT)


def test_a_source_without_a_rate_is_not_visited() -> None:
    source, _ = periodic_visits(np.array([0.0, 1.0]), np.zeros(2), 0.0, 5.0)
    assert set(source.tolist()) == {1}

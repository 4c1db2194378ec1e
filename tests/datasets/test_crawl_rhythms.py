"""Crawls of known changes about once a week: against a loop over single crawls."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from freshopt.datasets.crawl_rhythms import weekly_crawls

START, END = date(2020, 1, 6), date(2021, 1, 4)
ORIGIN = np.datetime64(START, "s")


def random_changes(sources: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return changes in no order: of each source one before the window, and some in it."""
    rng = np.random.default_rng(seed)
    source = np.concatenate([np.arange(sources), rng.integers(0, sources, 6 * sources)])
    minutes = np.concatenate([-rng.integers(1, 10**6, sources), rng.integers(0, 363 * 1440, 6 * sources)])
    order = rng.permutation(len(source))
    return source[order], (ORIGIN + minutes.astype("timedelta64[m]"))[order]


def test_every_crawl_tells_what_happened_since_the_one_before() -> None:
    source, time = random_changes(30, 3)
    of, at, changed, told = weekly_crawls(source, time, START, END, seed=5)
    assert (np.diff(of) >= 0).all()
    for k in range(30):
        changes, rows = np.sort(time[source == k]), np.flatnonzero(of == k)
        previous = None
        for row in rows.tolist():
            assert ORIGIN < at[row] < np.datetime64(END, "s")
            assert told[row] == changes[changes <= at[row]][-1]
            since = previous is not None and bool(((changes > previous) & (changes <= at[row])).any())
            assert changed[row] == since
            assert previous is None or at[row] > previous
            previous = at[row]


def test_crawls_are_a_week_apart_on_average_and_at_all_hours() -> None:
    n = 400
    of, at, _, _ = weekly_crawls(np.arange(n), np.full(n, ORIGIN - 1), START, END)
    day = (at - ORIGIN) / np.timedelta64(1, "D")
    # Poisson counts: 52 per source; the share of gaps above a week is 1/e.
    assert len(of) / n == pytest.approx(52.0, abs=4 * np.sqrt(52.0 / n))
    counts = np.bincount(of, minlength=n)
    assert counts.var() == pytest.approx(52.0, rel=4 * np.sqrt(2 / n))
    gaps = np.diff(day)[np.diff(of) == 0]
    assert np.mean(gaps > 7.0) == pytest.approx(np.exp(-1.0), abs=0.02)
    hours = np.bincount((day % 7.0 * 24).astype(int), minlength=168)
    assert ((hours - len(of) / 168) ** 2 / (len(of) / 168)).sum() < 167 + 4 * np.sqrt(2 * 167)


def test_a_source_is_crawled_from_its_birth_on() -> None:
    born = np.array(["2020-07-01T12:34", "2021-01-03T23:59:59"], dtype="datetime64[s]")
    of, at, changed, told = weekly_crawls([0, 1], born, START, END)
    assert set(of.tolist()) == {0}  # born a second before the end, the other had no crawl
    assert (at >= born[0]).all()
    assert not changed.any()
    assert (told == born[0]).all()


def test_the_same_seed_gives_the_same_crawls_whatever_the_other_sources() -> None:
    source, time = random_changes(8, 1)
    first, again = (weekly_crawls(source, time, START, END, seed=4) for _ in range(2))
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    few = source < 3
    part = weekly_crawls(source[few], time[few], START, END, seed=4)
    assert all((one == other[first[0] < 3]).all() for one, other in zip(part, first, strict=True))
    other = weekly_crawls(source, time, START, END, seed=5)
    assert len(other[1]) != len(first[1]) or (other[1] != first[1]).any()

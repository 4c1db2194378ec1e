"""Dates of simulated sites (honest, frozen, births, always now): what is learnt holds against the truth."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from freshopt.errors import SourceDataWarning
from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.last_modified import usable_dates
from tests.ground_truth.refusals import present

Column: TypeAlias = npt.NDArray[Any]
BEGIN, SECOND = np.datetime64("2026-05-01T00:00:00", "us"), 1.0 / 86_400.0
FROZEN = -20.0 + 0.123  # days before the first crawl
# What a source tells at each of its crawls: its birth, the last change, and the crawl, in days.
KINDS: dict[str, Callable[[float, Column, Column], Column]] = {
    "honest": lambda birth, last, crawl: last,  # noqa: ARG005
    "frozen": lambda birth, last, crawl: np.full(len(crawl), FROZEN),  # noqa: ARG005
    "frozen to the day": lambda birth, last, crawl: np.full(len(crawl), -20.0),  # noqa: ARG005
    "born": lambda birth, last, crawl: np.full(len(crawl), birth),  # noqa: ARG005
    "now": lambda birth, last, crawl: crawl - 2.0 * SECOND,  # noqa: ARG005
    "rebuilt": lambda birth, last, crawl: np.floor(crawl / 3.0) * 3.0 - 0.4321,  # noqa: ARG005
    "days": lambda birth, last, crawl: np.floor(last),  # noqa: ARG005
}


class Site(NamedTuple):
    """Columns of a simulated log, and each source's name, kind and true rate."""

    source: list[str]
    time: Column
    changed: Column
    told: Column
    kind: dict[str, str]
    rate: dict[str, float]

    def log(self) -> tuple[CrawlLog, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            log = CrawlLog(self.source, moments(self.time), self.changed, last_modified=seconds(self.told))
        assert all(issubclass(each.category, SourceDataWarning) for each in caught)
        return log, [str(each.message) for each in caught]

    def dated(self, log: CrawlLog) -> dict[str, bool]:
        """Whether each source has a date that is used."""
        if log.last_modified is None:
            return dict.fromkeys(self.rate, False)
        own = np.maximum.reduceat(~np.isnan(log.last_modified), log.offsets[:-1])
        return dict(zip(log.names.tolist(), own.tolist(), strict=True))


def moments(days: Column) -> Column:
    return BEGIN + np.rint(days * 86_400e6).astype("timedelta64[us]")


def seconds(days: Column) -> Column:
    return BEGIN + np.floor(days * 86_400.0 + 1e-6).astype("timedelta64[s]").astype("timedelta64[us]")


def site(
    kinds: dict[str, int], seed: int, *, name: str = "https://{kind}.example/{k}", crawls: int = 14,
    gap: float = 1.0, mean: float = 0.15,
) -> Site:  # fmt: skip
    """So many sources of each kind, with Gamma(0.6) rates, that came into being at 1 in 400 days."""
    rng = np.random.default_rng(seed)
    source, times, changes, dates = [], [], [], []
    kind_of, rate_of = {}, {}
    for kind, many in kinds.items():
        for k in range(many):
            rate = max(rng.gamma(0.6, mean / 0.6), 1e-3)
            birth = -5.0 - rng.exponential(400.0)
            crawl = gap * np.arange(crawls) + rng.uniform(0.0, 0.1, crawls)
            expected = rate * (crawl[-1] - birth)
            change = np.sort(rng.uniform(birth, crawl[-1], rng.poisson(expected)))
            change = np.concatenate([[birth], change])
            seen = np.searchsorted(change, crawl)
            own = name.format(kind=kind.replace(" ", "-"), k=k) + ("" if "{kind}" in name else f"-{kind}")
            kind_of[own], rate_of[own] = kind, rate
            source += [own] * crawls
            times.append(crawl)
            changes.append(np.diff(seen, prepend=seen[0]) > 0)
            dates.append(KINDS[kind](birth, change[seen - 1], crawl))
    time, changed, told = (np.concatenate(own) for own in (times, changes, dates))
    return Site(source, time, changed, told, kind_of, rate_of)


class Fit(NamedTuple):
    """Sum of the estimates over that of the true rates, and share of 95 % intervals that hold the truth."""

    sum: float
    covered: float


def fit(sites: list[Site]) -> Fit:
    estimates, truths, inside = 0.0, 0.0, []
    for each in sites:
        log, _ = each.log()
        found = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
        truth = np.array([each.rate[name] for name in log.names.tolist()])
        low, high = found.interval(0.95)
        inside.append((low <= truth) & (truth <= high))
        estimates, truths = estimates + float(found.change_rate_.sum()), truths + float(truth.sum())
    return Fit(estimates / truths, float(np.mean(inside)))


ONE = "https://one.example/{k}"
MIXED = [
    {"frozen": 150, "honest": 150},
    {"born": 150, "honest": 150},
    {"born": 60, "honest": 240},
    {"frozen": 15, "honest": 285},
    {"now": 100, "frozen": 100, "honest": 100},
]
NAMES = ["https://{kind}.example/{k}", ONE, "page {k}"]
ALONE: list[tuple[dict[str, int], str]] = [({kind: 300}, NAMES[0]) for kind in KINDS]
CASES = ALONE + [(MIXED[k], NAMES[1]) for k in range(len(MIXED))] + [(MIXED[0], NAMES[2])]


@pytest.mark.parametrize(("kinds", "name"), CASES)
@pytest.mark.sampled(4)
def test_rates_hold_whatever_the_dates_are_worth(kinds: dict[str, int], name: str) -> None:
    found = fit([site(kinds, seed, name=name) for seed in range(4)])
    assert 0.95 < found.sum < 1.05
    assert 0.93 < found.covered < 0.98


@pytest.mark.exhaustive
@pytest.mark.parametrize("kinds", [{kind: 300} for kind in KINDS] + MIXED)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("gap", "mean", "crawls"), [(1.0, 0.15, 14), (7.0, 0.05, 14), (0.25, 0.15, 40), (1.0, 0.15, 4)]
)
def test_rates_hold_at_other_gaps(
    kinds: dict[str, int], name: str, gap: float, mean: float, crawls: int
) -> None:
    found = fit([site(kinds, seed, name=name, gap=gap, mean=mean, crawls=crawls) for seed in range(8)])
    assert 0.93 < found.sum < 1.07
    assert 0.92 < found.covered < 0.98


@pytest.mark.parametrize("kind", ["frozen", "frozen to the day", "born"])
def test_a_date_that_stands_still_is_not_believed_and_counted(kind: str) -> None:
    one = site({kind: 130}, 1275)
    log, said = one.log()
    assert log.last_modified is None
    assert np.isnan(log.interval[log.offsets[:-1]]).all()  # nor is it a deployment
    found = [log.changed[log.offsets[k] : log.offsets[k + 1]].any() for k in range(130)]
    moved, rows = sum(found), int(log.changed.sum())
    assert len(said) == 1
    assert (
        f"last_modified of {moved} sources stood still while the content changed, in {rows} rows" in said[0]
    )
    assert f"nor are those of {130 - moved} sources of the same host or date" in said[0]


@pytest.mark.parametrize("name", [NAMES[0], ONE])
def test_mixed_sites_lose_only_the_sources_concerned(name: str) -> None:
    one = site({"frozen": 100, "honest": 100}, 5, name=name)
    log, said = one.log()
    assert len(said) == 1
    kept = one.dated(log)
    assert not any(kept[own] for own, kind in one.kind.items() if kind == "frozen")
    changed = dict(
        zip(log.names.tolist(), np.maximum.reduceat(log.changed, log.offsets[:-1]).tolist(), strict=True)
    )
    honest = [own for own, kind in one.kind.items() if kind == "honest"]
    assert all(kept[own] for own in honest if changed[own])
    # On a host of its own the others keep theirs, too.
    assert all(kept[own] for own in honest if not changed[own]) == (name != ONE)


def test_honest_dates_stay_and_nobody_is_warned() -> None:
    for kind in ("honest", "days"):
        one = site({kind: 200}, 3)
        log, said = one.log()
        assert said == []
        assert all(one.dated(log).values())


def row_by_row(worth: list[bool], others: int = 0) -> tuple[list[bool], list[str]]:
    """Dates kept of a source whose changes are dated in their gaps or long before, and of others."""
    rows = len(worth) + 1
    time, told = np.arange(float(rows)), np.full(rows, -40.0 + 0.123)
    inside = np.array(worth, dtype=bool)
    told[1:][inside] = time[1:][inside] - 0.321
    quiet = 3
    source = ["a"] * rows + [f"q{k}" for k in range(others) for _ in range(quiet)]
    time = np.concatenate([time, np.tile(np.arange(float(quiet)), others)])
    changed = np.concatenate([[0], np.ones(rows - 1), np.zeros(quiet * others)])
    told = np.concatenate([told, np.repeat(-30.0 - 0.1 * np.arange(others) - 0.01, quiet)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log = CrawlLog(source, time, changed, last_modified=told)
    kept = np.zeros(len(source), dtype=bool) if log.last_modified is None else ~np.isnan(log.last_modified)
    return kept.tolist(), [str(each.message) for each in caught]


def test_one_row_in_a_long_log_is_noise() -> None:
    kept, said = row_by_row([True] * 5 + [False] + [True] * 4)
    assert kept == [True] * 6 + [False] + [True] * 4
    assert said == []
    kept, said = row_by_row([True, False, True])
    assert not any(kept)
    assert "1 source stood still while the content changed, in 1 row" in said[0]
    # One source alone does not discredit those around it.
    kept, _ = row_by_row([False, False], others=5)
    assert kept == [False] * 3 + [True, False, False] * 5


def test_a_date_may_be_of_the_second_or_the_day_of_the_crawl_before() -> None:
    times = ["2026-01-01T06:00:00.7Z", "2026-01-02T06:00:00.7Z", "2026-01-09T06:00:00Z", "2026-01-10T06:00Z"]
    for told in (
        [None, None, "2026-01-02T06:00:00Z", None],
        [None, None, "2026-01-02", None],
        [None, None, "2026-01-02T00:00:00+02:00", "2026-01-09T00:00:00+02:00"],
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            CrawlLog(["a"] * 4, times, [0, 0, 1, 1], last_modified=told)
    with pytest.warns(SourceDataWarning, match="stood still"):
        CrawlLog(["a"] * 4, times, [0, 0, 1, 1], last_modified=[None, None, "2026-01-02T05:59:59Z", None])
    with pytest.warns(SourceDataWarning, match="stood still"):
        CrawlLog(["a"] * 4, times, [0, 0, 1, 1], last_modified=[None, None, "2026-01-01", None])


def test_one_unchanged_crawl_is_enough_among_pages_dated_now() -> None:
    """Alone its date would be refused; one whose every crawl found a change has none that contradicts."""
    source = ["a"] * 5 + ["b"] * 5 + ["c"] * 2 + ["d"] * 3
    time = np.array([*range(5), *range(5), 0, 1, 0, 1, 2], dtype=float)
    changed = [0] * 12 + [0, 1, 1]
    with pytest.warns(SourceDataWarning, match=r"of 3 sources .* in 9 rows: .* nor are those of 1 source of"):
        log = CrawlLog(source, time, changed, last_modified=time - 0.003)
    assert log.last_modified is None


def test_days_stand_for_their_middle() -> None:
    times = [
        "2026-01-01T06:00Z",
        "2026-01-08T06:00Z",
        "2026-01-15T06:00Z",
        "2026-01-16T06:00Z",
        "2026-01-30T06:00Z",
    ]
    told = ["2025-12-30", "2026-01-08", "2026-01-08", "2026-01-15", "2026-01-20"]
    log = CrawlLog(["a"] * 5, times, [0, 1, 1, 1, 1], last_modified=told)
    assert log.last_modified is not None
    # Noon; from midnight or the crawl before up to midnight or the crawl; nothing of crawls a day apart.
    np.testing.assert_allclose(log.last_modified, [-1.5, 7.125, 7.625, np.nan, 19.5])
    again = CrawlLog(
        log.source_index, moments_of(log), log.changed, last_modified=moments_of(log, dates=True)
    )
    np.testing.assert_allclose(present(again.last_modified), log.last_modified)
    mixed = CrawlLog(["a"] * 5, times, [0, 1, 1, 1, 1], last_modified=[*told[:4], "2026-01-20T08:30Z"])
    assert present(mixed.last_modified)[0] == -2.0


def moments_of(log: CrawlLog, *, dates: bool = False) -> Column:
    days = present(log.last_modified) if dates else log.time
    ticks = np.where(np.isnan(days), 0.0, np.rint(days * 86_400e6)).astype("timedelta64[us]")
    found = np.datetime64(present(log.origin).replace(tzinfo=None), "us") + ticks
    found[np.isnan(days)] = np.datetime64("NaT")
    return found


def test_a_planner_believes_what_a_log_does() -> None:
    for kinds in ({"frozen": 60}, {"now": 60}, {"honest": 60}, {"frozen": 60, "honest": 60}):
        one = site(kinds, 9)
        log, _ = one.log()
        names, source = np.unique(one.source, return_inverse=True)
        order = np.lexsort((one.time, source))
        found = usable_dates(
            source[order], one.time[order], one.changed[order].astype(bool),
            np.floor(one.told[order] / SECOND) * SECOND, "day", names,
        )  # fmt: skip
        dated = np.maximum.reduceat(~np.isnan(found), log.offsets[:-1])
        assert dict(zip(names.tolist(), dated.tolist(), strict=True)) == one.dated(log)

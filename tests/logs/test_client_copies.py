"""Evidence of several clients' copies, against a world whose changes are known to the second."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood
from freshopt.logs.client_copies import CopyEvidence, evidence_of_copies
from freshopt.numerics.arrays import Array, IntArray
from tests.ground_truth.site_logs import BOTS, KINDS, Site, site

DAY = 86_400.0


def evidence(world: Site) -> CopyEvidence:
    names = np.unique(world.agent)
    return evidence_of_copies(
        world.page, world.client, np.searchsorted(names, world.agent), world.second, world.status
    )


def log_of(found: CopyEvidence, page: IntArray | None = None) -> fo.CrawlLog:
    """One log; all pages in one where a page is given, as the rates of all are the same."""
    rows = np.flatnonzero(found.elapsed > 0) if page is not None else np.arange(len(found.time))
    elapsed = np.where(found.elapsed > 0, found.elapsed / DAY, np.nan)
    own = found.source if page is None else np.zeros(len(found.source), dtype=np.int64)
    columns = {"source": own, "time": np.arange(len(own)), "changed": found.changed, "elapsed": elapsed}
    return fo.CrawlLog.from_columns({key: value[rows] for key, value in columns.items()})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_the_rate_of_a_site_is_recovered(kind: str, rate: float) -> None:
    pages, days = 40, 30.0
    found = evidence(site(KINDS[kind], rate, pages=pages, days=days, seed=1))
    pooled = MaximumLikelihood(prior=None).fit(log_of(found, np.arange(pages)))
    lower, upper = pooled.interval(0.99)
    assert lower[0] <= rate <= upper[0]
    assert upper[0] < 2.5 * lower[0], "evidence of so many changes says more"
    lower, upper = MaximumLikelihood(prior=None).fit(log_of(found)).interval(0.95)
    # Of 40 intervals of 95 % at least 34 cover with probability .999.
    assert np.count_nonzero((lower <= rate) & (rate <= upper)) >= 34


def truly(world: Site, page: IntArray, begin: Array, end: Array) -> IntArray:
    """Return how often pages changed in (begin, end], in seconds."""
    every = [world.changes[k] for k in page.tolist()]
    return np.array(
        [np.count_nonzero((at > b) & (at <= e)) for at, b, e in zip(every, begin, end, strict=True)]
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_clients_say_is_said_once_and_true(seed: int) -> None:
    world = site(BOTS, 1.0, pages=5, days=20.0, seed=seed)
    found = evidence(world)
    told = found.elapsed > 0
    still, moved = told & ~found.changed, found.changed
    begin = (found.time - found.elapsed).astype(float)
    changes = truly(world, found.source[still], begin[still], found.time[still].astype(float))
    assert not changes.any()
    # A change lies before the row, where no other row says that there was none; and no row says it twice.
    for page in range(5):
        own = np.flatnonzero(found.source == page)
        assert np.all(np.diff(found.time[own]) > 0)
        assert found.elapsed[own[0]] == 0
        assert np.all(found.elapsed[own[1:]] > 0)
        seconds = world.second[world.page == page]
        assert found.elapsed[own].sum() <= seconds.max() - seconds.min()
        assert np.count_nonzero(found.changed[own]) <= len(world.changes[page])
    assert np.count_nonzero(moved) > 0.6 * sum(map(len, world.changes))


def one_page(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, bool]]:
    """Return time, elapsed and changed of requests (client, time, status) of one page."""
    client, time, status = np.array(rows).T
    found = evidence_of_copies(np.zeros(len(rows), int), client, client, time, status.astype(float))
    return list(zip(found.time.tolist(), found.elapsed.tolist(), found.changed.tolist(), strict=True))


def test_a_first_answer_is_a_baseline_and_a_client_counts_after_its_first_304() -> None:
    alone = [(0, 0, 200), (0, 1, 200), (0, 3, 304), (0, 6, 304), (0, 10, 200)]
    assert one_page(alone) == [(0, 0, False), (6, 3, False), (10, 4, True)]
    # Others who come once, or never with a copy, say nothing.
    others = [(1, 2, 200), (2, 5, 200), (2, 7, 200), (2, 12, 200)]
    assert one_page(alone + others) == [(0, 0, False), (6, 3, False), (10, 4, True)]


def test_time_that_two_clients_saw_counts_once() -> None:
    rows = [(0, 0, 200), (0, 1, 304), (0, 5, 304), (0, 9, 304), (1, 0, 200), (1, 1, 304), (1, 7, 304)]
    assert one_page(rows) == [(0, 0, False), (5, 4, False), (7, 2, False), (9, 2, False)]


def test_a_change_that_two_clients_saw_counts_once_and_lies_in_what_remains() -> None:
    first = [(0, 0, 200), (0, 1, 304), (0, 4, 304), (0, 8, 200), (0, 12, 304)]
    second = [(1, 0, 200), (1, 1, 304), (1, 10, 200)]
    # Of (1, 10] there remains (4, 8], as of (4, 8]; the rest did not change.
    assert one_page(first + second) == [(0, 0, False), (4, 3, False), (8, 4, True), (12, 4, False)]
    assert one_page(second + [row for row in first if row[1] != 8]) == [
        (0, 0, False),
        (4, 3, False),
        (12, 8, False),
    ]


def test_a_200_that_others_rule_out_is_no_change_and_its_client_is_not_believed() -> None:
    honest = [(0, 0, 200)] + [(0, time, 304) for time in range(1, 30)]
    other = [(1, 0, 200), (1, 2, 304), (1, 5, 200), (1, 40, 200), (1, 50, 304)]
    client, time, status = np.array(honest + other).T
    found = evidence_of_copies(np.zeros(len(time), int), client, client, time, status.astype(float))
    assert (found.clients, found.ruled_out) == (1, 1)
    assert not found.changed.any()
    assert found.elapsed.sum() == 28


def test_clients_that_share_copies_are_named_and_left_out() -> None:
    world = site(KINDS["machines that share copies"], 0.3, pages=10, days=20.0, seed=3)
    found = evidence(world)
    assert np.unique(world.agent)[found.shared].tolist() == ["shared"]
    assert found.clients == 1

"""A server's access log: its clients told apart, chosen, or refused; what their copies are evidence of."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataWarning
from freshopt.estimators import MaximumLikelihood
from freshopt.logs.client_copies import Client, CopyEvidence, evidence_of_copies
from freshopt.logs.read_crawls import fetch_statuses, read_log
from freshopt.logs.read_events import read_requests
from freshopt.numerics.arrays import Array, IntArray
from tests.ground_truth.command_lines import Run, fields, refuse, unwrapped
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.site_logs import BOTS, KINDS, Site, Visitors, site

pytestmark = pytest.mark.usefixtures("folder")
SITE = KINDS["crawlers, browsers and a scraper"]


def written(world: Site, name: str = "site.access.log") -> Path:
    path = Path(name)
    path.write_text("\n".join(world.lines()) + "\n")
    return path


@pytest.fixture
def world() -> Site:
    return site(SITE, 0.01, pages=1, days=10.0, seed=2)


def test_a_page_that_hardly_changes_is_told_so(run: Run, world: Site) -> None:
    path = written(world)
    ran = run("estimate", str(path), "--out", "found.csv")
    assert "requests of 63 clients, each with copies of its own" in unwrapped(ran.stderr)
    found = pl.read_csv("found.csv").row(0, named=True)
    assert found["lower"] <= 0.01 <= found["upper"]
    assert found["change_rate"] < 0.3  # of all requests as one client's it is 10 and more
    run("plan", str(path), "--bandwidth", "1/day", "--horizon", "7d", "--out", "plan", "--csv")
    assert pl.read_csv("plan/change_rates.csv")["change_rate"][0] == found["change_rate"]


def test_one_client_is_chosen_by_its_address_or_agent(run: Run, world: Site) -> None:
    path = written(world)
    own = written(
        Site(*(column[world.agent == "bot0"] for column in list(vars(world).values())[:5])), "own.access.log"
    )
    alone = read_log(own)  # as a crawler's own log: nothing is to be told apart, and nobody is warned
    assert len(alone) == np.count_nonzero(world.agent == "bot0")
    for client, agent in ((None, "bot0"), ("198.51.0.0", None), ("198.51.0.0", "ot0")):
        log = read_log(path, client=client, agent=agent)
        np.testing.assert_array_equal(log.time, alone.time)
        np.testing.assert_array_equal(log.changed, alone.changed)
        np.testing.assert_array_equal(log.interval, alone.interval)
    run("estimate", str(path), "--agent", "bot0", "--out", "chosen.csv")
    run("estimate", str(own), "--out", "own.csv")
    assert Path("chosen.csv").read_text() == Path("own.csv").read_text()
    told = present(fetch_statuses(path, client=Client(agent="bot0")))
    assert len(told.status) == len(alone)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "numbers"])
def test_a_table_of_clients_is_read_as_their_access_log(kind: str) -> None:
    world = site(SITE, 0.5, pages=3, days=10.0, seed=2)
    with pytest.warns(SourceDataWarning, match="clients, each with copies of its own"):
        expected = read_log(written(world))
    begin = np.datetime64("2026-09-01", "ms")
    frame = pl.DataFrame(
        {
            "uri": [f"/{page}" for page in world.page],
            "at": world.second / 86_400.0 if kind == "numbers" else begin + world.second.astype("m8[s]"),
            "code": world.status.astype(int),
            "ip": world.client,
            "who": world.agent,
        }
    ).sort("at")
    path = Path(f"table.{kind if kind != 'numbers' else 'parquet'}")
    if kind == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    columns = {"uri": "source", "at": "time", "code": "status"}
    whose = {"ip": "client", "who": "agent"}
    with pytest.warns(SourceDataWarning, match="clients, each with copies of its own"):
        log = read_log(path, columns=columns | whose)
    for key in ("time", "changed", "interval"):
        np.testing.assert_allclose(getattr(log, key), getattr(expected, key), atol=1e-8)
    chosen, alone = read_log(path, columns=columns | whose, agent="bot1"), world.agent == "bot1"
    assert len(chosen) == np.count_nonzero(alone)
    told = present(fetch_statuses(path, columns | whose, client=Client(agent="bot1")))
    assert len(told.status) == np.count_nonzero(alone)
    # A column that nobody names is none of the log's.
    frame.rename(columns | whose).write_parquet("named.parquet")
    assert len(read_log("named.parquet")) == len(read_log(path, columns=columns))


def test_a_row_of_a_chosen_client_keeps_its_line() -> None:
    rows = ["source,time,status,ip", "/a,0,200,x", "/a,1,304,y", "/a,2,304,x", "/a,soon,200,x"]
    Path("table.csv").write_text("\n".join(rows))
    refused("'soon' in row 4, line 5 of", read_log, "table.csv", columns={"ip": "client"}, client="x")


def test_requests_count_all_clients(world: Site) -> None:
    found = read_requests(written(world))
    assert found["requests"].to_list() == [len(world.lines())]


def test_a_crawler_on_several_machines_is_one_client_by_its_agent() -> None:
    world = site(Visitors(bots=(1.0,), shared=6.0), 0.3, pages=20, days=20.0, seed=1)
    path = written(world)
    with pytest.warns(SourceDataWarning, match=r"addresses share the copies of 'shared' \(2,[0-9]+\)"):
        read_log(path)
    log = read_log(path, agent="shared")
    rate = log.changed.sum() / np.nansum(log.interval)
    assert rate == pytest.approx(sum(map(len, world.changes)) / 400.0, rel=0.1)


def test_a_choice_of_several_agents_names_them(world: Site) -> None:
    with pytest.warns(SourceDataWarning, match=r"2 agents are taken as one client's: 'bot0' \(.*, 'bot1' \("):
        read_log(written(world), agent="bot")


COMMON = '192.0.2.{} - - [{:02d}/Oct/2025:13:55:36 +0000] "GET /a HTTP/1.1" {} 5'


def test_addresses_alone_tell_clients_apart() -> None:
    rows = [(1, 1, 200), (1, 2, 304), (2, 3, 200), (1, 4, 304), (3, 5, 200), (1, 6, 200), (2, 7, 200)]
    Path("access.log").write_text("\n".join(COMMON.format(*row) for row in rows))
    with pytest.warns(SourceDataWarning, match=r"3 clients, each with copies of its own\. 1 count"):
        log = read_log("access.log")
    assert log.interval[1:].tolist() == [2.0, 2.0]
    assert log.changed.tolist() == [False, False, True]


def hidden(agent: str) -> str:
    lines = [f'- - - [{day:02d}/Oct/2025:13:55:36 +0000] "GET /a HTTP/1.1" 200 5{agent}' for day in (1, 2, 3)]
    return "\n".join([*lines, lines[0].replace("01/", "04/").replace(" 200 ", " 304 ")])


@pytest.mark.parametrize("agent", ["", ' "-" "-"'])
def test_a_log_that_cannot_tell_is_refused(agent: str) -> None:
    Path("access.log").write_text(hidden(agent))
    refused(r"does not tell whose requests .*--client -", read_log, "access.log")
    assert read_log("access.log", client="-").changed.tolist() == [False, True, True, False]


def test_a_log_in_which_nobody_asks_conditionally_is_refused() -> None:
    path = written(site(Visitors(browsers=30, returning=0.001, scraper=4.0), 0.1, pages=2, days=9.0, seed=1))
    refused(r"counts after its first 304, .*--agent TEXT", read_log, path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("site.access.log", "--client", "192.0.2.9"),
            ("no request of address '192.0.2.9'", "'198.51.0.0' ("),
        ),
        (("site.access.log", "--agent", "curl"), ("no request of agent 'curl'", "'browser' (", "Choose one")),
        (("log.csv", "--agent", "bot0"), ("log.csv does not tell clients", "remote_addr=client", "leave")),
        (("--example", "debian-uploads", "--client", "-"), ("--client is for LOG",)),
    ],
)
def test_what_cannot_be_chosen(arguments: tuple[str, ...], words: tuple[str, ...], world: Site) -> None:
    written(world)
    Path("log.csv").write_text("source,time,changed\na,0,0\na,1,1\n")
    refuse(Path(), ("estimate", *arguments, "--out", "found.csv"), words)


def test_the_first_row_tells_what_times_are(run: Run) -> None:
    Path("days.csv").write_text("source,time,changed\na,0,0\na,120.5,1\n")
    Path("dates.csv").write_text("source,time,changed\na,20190706,0\na,20190901,1\n")
    numbers, dates = "times as plain numbers of days, from 0 to 120.5", "2019-07-06 to 2019-09-01"
    for name, words in (("days.csv", numbers), ("dates.csv", dates)):
        told = fields(run("estimate", name, "--out", "found.csv", "--overwrite").stdout)["log"]
        assert told.endswith(f"1 found a change, {words}")
        made = ("--bandwidth", "1/day", "--horizon", "7d", "--out", "plan", "--overwrite")
        assert fields(run("plan", "--details", name, *made).stdout)["log"].endswith(f"1 source, {words}")


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

"""Access logs of each format tell the same crawls and the same requests; patterns of unknown formats too."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import freshopt as fo
from freshopt.logs.access_formats import expression
from freshopt.logs.client_copies import Client
from freshopt.logs.read_crawls import fetch_statuses, read_log
from freshopt.logs.read_events import read_requests, requests_of
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.refusals import present, refused

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


class Line(NamedTuple):
    """A request: hours, URL, status to the client, and what a cache did."""

    hour: int
    url: str
    status: int
    cache: str


# What a client that asks conditionally got, through a cache that asks the origin now and then.
LINES = [
    Line(0, "/a", 200, "miss"),
    Line(1, "/b", 200, "miss"),
    Line(2, "/a", 304, "hit"),
    Line(6, "/a", 304, "valid"),
    Line(9, "/a", 200, "changed"),
    Line(11, "/b", 304, "valid"),
    Line(12, "/a", 504, "failed"),
    Line(15, "/a", 304, "valid"),
]
BY_STATUS = [
    ("a", 0, False),
    ("a", 2, False),
    ("a", 6, False),
    ("a", 9, True),
    ("a", 15, False),
    ("b", 1, False),
    ("b", 11, False),
]
BY_CACHE = [row for row in BY_STATUS if row[:2] != ("a", 2)]
SQUID = {
    "miss": "TCP_MISS",
    "hit": "TCP_MEM_HIT",
    "valid": "TCP_REFRESH_UNMODIFIED",
    "changed": "TCP_REFRESH_MODIFIED",
    "failed": "TCP_REFRESH_FAIL_OLD",
}
NGINX = {"miss": "MISS", "hit": "HIT", "valid": "REVALIDATED", "changed": "EXPIRED", "failed": "STALE"}
CLOUDFRONT = {"miss": "Miss", "hit": "Hit", "valid": "RefreshHit", "changed": "Miss", "failed": "Error"}
HEADER = "#Version: 1.0\n#Fields: date time x-edge-location c-ip cs-method cs(Host) cs-uri-stem sc-status "
HEADER += "cs(User-Agent) cs-uri-query x-edge-result-type\n"


def written(form: str, line: Line) -> str:
    """A line in a format."""
    hour, url, status, cache = line
    at = BEGIN + timedelta(hours=hour)
    local, stamp = f"{at:%d/%b/%Y:%H:%M:%S +0000}", f"{at.timestamp():.3f}"
    request, agent, stated = f'"GET {url} HTTP/1.1"', '"-" "bot/1 (HIT)"', f"{status} 512"
    whole = f"http://x{url}"
    nested = {
        "remote_ip": "192.0.2.1",
        "method": "GET",
        "host": "x",
        "uri": url,
        "headers": {"User-Agent": ["b"]},
    }
    flat = {
        "time_iso8601": at.isoformat(),
        "remote_addr": "192.0.2.1",
        "request": request[1:-1],
        "status": status,
    }
    return {
        "common": f"192.0.2.1 - - [{local}] {request} {stated}",
        "combined": f"192.0.2.1 - jane [{local}] {request} {stated} {agent}",
        "vhost_combined": f"x:443 192.0.2.1 - - [{local}] {request} {stated} {agent}",
        "varnishncsa": f'192.0.2.1 - - [{local}] "GET {whole} HTTP/1.1" {stated} {agent}',
        "caddy": json.dumps({"level": "info", "ts": at.timestamp(), "request": nested, "status": status}),
        "nginx JSON": json.dumps({key: str(value) for key, value in flat.items()}),
        "squid": f"{stamp}    501 192.0.2.1 {SQUID[cache]}/{stated} GET {whole} - HIER_DIRECT/x text/html",
        "nginx cache": f'192.0.2.1 [{local}] {request} {stated} {agent} "{NGINX[cache]}" ',
        "cloudfront": f"{at:%Y-%m-%d\t%H:%M:%S}\tIAD79-C1\t192.0.2.1\tGET\tx\t{url}\t{status}\tb\t-\t"
        f"{CLOUDFRONT[cache]}",
        "heritrix": f"{at:%Y-%m-%dT%H:%M:%S}.004Z {status if status < 500 else -2:5d} 940 {whole} L http://x/"
        f" text/html #047 20260301000000+25 sha1:{int(url == '/a' and hour >= 9)} - -",
    }[form]


def file_of(form: str, folder: Path) -> Path:
    ending = ".jsonl" if form in ("caddy", "nginx JSON") else ".txt"
    path = folder / f"requests{ending}"
    lines = "".join(f"{written(form, line)}\n" for line in LINES)
    path.write_text((HEADER if form == "cloudfront" else "") + lines)
    return path


def crawls(log: fo.CrawlLog) -> list[tuple[str, int, bool]]:
    names = (str(name)[-1] for name in log.names[log.source_index])
    return list(zip(names, (log.time * 24).round().astype(int).tolist(), log.changed.tolist(), strict=True))


@pytest.mark.parametrize(
    ("form", "source", "expected"),
    [
        ("common", "/a", BY_STATUS),
        ("combined", "/a", BY_STATUS),
        ("vhost_combined", "x/a", BY_STATUS),
        ("varnishncsa", "http://x/a", BY_STATUS),
        ("caddy", "x/a", BY_STATUS),
        ("nginx JSON", "/a", BY_STATUS),
        ("heritrix", "http://x/a", BY_STATUS),
        ("squid", "http://x/a", BY_CACHE),
        ("nginx cache", "/a", BY_CACHE),
        ("cloudfront", "x/a", BY_CACHE),
    ],
)
def test_each_format_tells_the_same(tmp_path: Path, form: str, source: str, expected: list[object]) -> None:
    path = file_of(form, tmp_path)
    log = read_log(path)
    assert crawls(log) == expected
    assert log.names[0] == source
    # Whoever asks a cache asks it with each line, also where the cache asks nobody.
    assert read_requests(path)["requests"].to_list() == [6, 2]


def test_a_client_that_is_chosen_has_copies_of_its_own(tmp_path: Path) -> None:
    log = read_log(file_of("nginx cache", tmp_path), client="192.0.2.1")
    assert crawls(log) == BY_STATUS


def test_edges_of_one_network_have_copies_each(tmp_path: Path) -> None:
    path = file_of("cloudfront", tmp_path)
    lines = path.read_text().splitlines()
    # The second edge gets /a for the first time at hour 3: its miss is no change.
    other = [written("cloudfront", line).replace("IAD79", "FRA2") for line in (LINES[0], LINES[3])]
    path.write_text("\n".join([*lines, *(each.replace("00:00", "03:00", 1) for each in other)]) + "\n")
    with pytest.warns(UserWarning, match="requests of 2 clients, each with copies of its own. 1 count"):
        log = read_log(path)
    assert [row for row in crawls(log) if row[2]] == [("a", 9, True)]


def test_a_cache_that_never_asks_is_no_evidence(tmp_path: Path) -> None:
    path = file_of("nginx cache", tmp_path)
    path.write_text(path.read_text().replace("REVALIDATED", "EXPIRED"))
    refused("no status 304, hash or ETag", read_log, path)


ODD = '{at} ms=7 addr=192.0.2.1 code={status} via "GET {url} HTTP/2" done'
PATTERNS = [
    '$time_iso8601 ms=$request_time addr=$remote_addr code=$status via "$request" done',
    "log_format odd '$time_iso8601 ms=$request_time addr=${remote_addr} '\n"
    "    'code=$status via \"$request\" done';",
    '%{%Y-%m-%dT%H:%M:%S}t ms=%D addr=%a code=%>s via "%r" done',
    'LogFormat "%{%Y-%m-%dT%H:%M:%S}t ms=%D addr=%a code=%>s via \\"%m %U%q HTTP/2\\" done" odd',
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_a_servers_configuration(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "odd.txt"
    texts = (ODD.format(at=f"2026-03-01T{line.hour:02}:00:00", **line._asdict()) for line in LINES)
    path.write_text("\n".join(texts))
    assert crawls(read_log(path, pattern=pattern)) == BY_STATUS
    told = present(fetch_statuses(path, client=Client(pattern=pattern)))
    assert (told.status == 504).sum() == 1
    with pytest.raises(fo.SourceDataError, match=r"no line of .*odd.log is .*--pattern '\$remote_addr"):
        read_log(path.rename(tmp_path / "odd.log"))
    path = tmp_path / "odd.log"
    refused("is of the pattern", read_log, path, pattern="%h %t %U")


@pytest.mark.parametrize("pattern", ["$remote_addr $status", "%h %>s %t", "$request"])
def test_a_pattern_without_a_request_or_time_is_refused(pattern: str) -> None:
    refused("does not say where the request stands", expression, pattern)


@pytest.mark.parametrize(
    "text",
    [
        "source,time,changed\na,0,0\na,1,1\n",
        "URL\tFetched At\tmd5\na\t2026-01-01\tx\na\t2026-01-02\ty\n",
        '{"url": "a", "ts": "2026-01-01", "hash": "x"}\n{"url": "a", "ts": "2026-01-02", "hash": "y"}\n',
        '{"url": "/a", "client_ip": "b", "timestamp": "2026-01-01", "status": 200, "content_hash": "x"}\n'
        '{"url": "/a", "client_ip": "b", "timestamp": "2026-01-02", "status": 200, "content_hash": "y"}\n',
    ],
)
def test_a_table_is_read_whatever_its_name(tmp_path: Path, text: str) -> None:
    path = file_with(tmp_path / "crawl.log", text)
    assert [row[2] for row in crawls(read_log(path))] == [False, True]


LINE = '192.0.2.1 - - [{}/Jan/2026:{} +0000] "GET {} HTTP/1.1" {} 7\n'


def test_an_access_log_counts_every_request(tmp_path: Path) -> None:
    path = tmp_path / "edge.log"
    lines = [("01", "00:00:00", "/a", 200), ("01", "00:00:00", "/a", 304), ("02", "12:00:00", "/b", 200)]
    lines += [("03", "00:00:00", "/a", 404)]
    path.write_text(
        "".join(LINE.format(*line) for line in lines)
        + LINE.replace("GET", "POST").format("09", "00:00:00", "/c", 200)
    )
    found = read_requests(path)
    assert found.to_dict(as_series=False) == {
        "source": ["/a", "/b"],
        "requests": [3, 1],
        "request_rate": [3.5 / 2.0, 1.5 / 2.0],
    }
    assert requests_of(found, ["/c", "/a"]).tolist() == pytest.approx([0.25, 1.75])
    assert read_requests(path, time_unit="hour")["request_rate"].to_list() == [3.5 / 48.0, 1.5 / 48.0]


def test_two_logs_that_name_sources_differently_are_refused(tmp_path: Path) -> None:
    """Else all sources had the rate of no requests, and a cache that fetches at each were proved optimal."""
    (tmp_path / "edge.csv").write_text("source,time\nhttps://x.example/a,1\nhttps://x.example/b,3\n")
    found = read_requests(tmp_path / "edge.csv")
    words = r"no source of the log \('/a'\) is among those that are requested \('https://x.example/a', "
    refused(words, requests_of, found, ["/a"])


def test_tables_and_their_names(tmp_path: Path) -> None:
    pl.DataFrame({"url": ["x", "y", "x"], "at": [1.0, 3.0, 5.0]}).write_parquet(tmp_path / "a.parquet")
    found = read_requests(tmp_path / "a.parquet", columns={"url": "source", "at": "time"})
    assert found["request_rate"].to_list() == [2.5 / 4.0, 1.5 / 4.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,moved\na,1\n", r"no column 'time'.*A log of requests has source and time"),
        ("source,time\n", r"no rows"),
        ("source,time\na,1\nb,1\n", r"all requests .* are at one time"),
        ("source,time\na,1\nb,x\n", r"row 2, line 3"),
    ],
)
def test_refusals(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "edge.csv").write_text(text)
    refused(words, read_requests, tmp_path / "edge.csv")

"""Logs as people have them: other names, hashes and ETags, JSON lines, access logs."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import freshopt as fo
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.refusals import present, refused, refusing

# Written as Apache's combined format and nginx's default have it; addresses are those for documentation.
AGENT = '"-" "ExampleBot/1.0 (+https://bot.example)"'
ACCESS = [
    f'192.0.2.1 - - [10/Oct/2025:13:55:36 +0200] "GET /news HTTP/1.1" 200 5123 {AGENT}',
    f'192.0.2.1 - - [10/Oct/2025:13:55:40 +0200] "GET /about HTTP/1.1" 200 812 {AGENT}',
    f'192.0.2.1 - - [11/Oct/2025:13:55:36 +0200] "GET /news HTTP/1.1" 200 5190 {AGENT}',
    f'192.0.2.1 - - [11/Oct/2025:13:55:41 +0200] "GET /about HTTP/1.1" 304 0 {AGENT}',
    f'192.0.2.1 - - [12/Oct/2025:13:55:36 +0200] "GET /news HTTP/1.1" 503 190 {AGENT}',
    f'192.0.2.1 - - [12/Oct/2025:13:55:50 +0200] "POST /news HTTP/1.1" 200 10 {AGENT}',
    f'192.0.2.1 - - [13/Oct/2025:13:55:36 +0200] "GET /news HTTP/1.1" 304 - {AGENT}',
]


def found(log: fo.CrawlLog) -> list[tuple[str | int, float, bool]]:
    names = log.names[log.source_index].tolist()
    return list(zip(names, log.time.round(6).tolist(), log.changed.tolist(), strict=True))


def access(folder: Path, lines: list[str], name: str = "access.log") -> Path:
    path = folder / name
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["access.log", "access.log.1", "site_access_log", "access.log.2.gz"])
def test_an_access_log_tells_changes_by_200_and_304(tmp_path: Path, name: str) -> None:
    log = fo.read_log(access(tmp_path, ACCESS, name), "hour")
    assert present(log.origin).isoformat() == "2025-10-10T00:00:00+00:00"
    noon = 11.0 + 55.0 / 60.0
    assert found(log) == [
        ("/about", round(noon + 40 / 3600, 6), False),
        ("/about", round(noon + 24 + 41 / 3600, 6), False),
        ("/news", round(noon + 36 / 3600, 6), False),  # the baseline
        ("/news", round(noon + 24 + 36 / 3600, 6), True),
        ("/news", round(noon + 72 + 36 / 3600, 6), False),  # 503 is no evidence, POST no crawl
    ]


def test_common_format_virtual_hosts_and_proxies(tmp_path: Path) -> None:
    lines = [
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326',
        '127.0.0.1 - frank [11/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 304 -',
        '127.0.0.1 - - [11/Oct/2000:13:55:36 -0700] "GET http://c.example/ HTTP/1.0" 200 1',
        'a.example:443 127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.1" 200 5',
    ]
    log = fo.read_log(access(tmp_path, lines))
    assert log.names.tolist() == ["/apache_pb.gif", "a.example/x", "http://c.example/"]
    assert [row[2] for row in found(log)] == [False] * 4


def test_requests_at_one_second_are_one_crawl(tmp_path: Path) -> None:
    later = [ACCESS[3].replace("304", "200"), *ACCESS]
    log = fo.read_log(access(tmp_path, later))
    assert [row[2] for row in found(log) if row[0] == "/about"] == [False, True]


def test_malformed_lines_are_counted_and_shown(tmp_path: Path) -> None:
    lines = [ACCESS[0], "", "-- MARK --", *ACCESS[1:], 'x [y] "z"', '192.0.2.9 - - [x] "" 200 1']
    with pytest.warns(fo.SourceDataWarning, match=r"3 lines of 10 left out, .*line 3: '-- MARK"):
        log = fo.read_log(access(tmp_path, lines))
    assert found(log) == found(fo.read_log(access(tmp_path, ACCESS)))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            ["hello", "world"],
            ["no line of", "common, combined", "line 1: 'hello'", "--pattern '$remote_addr", "table"],
        ),
        ([""], ["access.log is empty"]),
        ([ACCESS[5]], ["no request by GET or HEAD"]),
        ([ACCESS[4]], ["no row of", "status", "1 row"]),
    ],
)
def test_unusable_access_logs(tmp_path: Path, lines: list[str], words: list[str]) -> None:
    with refusing(*words):
        fo.read_log(access(tmp_path, lines))


def test_answers_alone_are_refused_unless_they_are_said_to_be_changes(tmp_path: Path) -> None:
    path = access(tmp_path, [ACCESS[0], ACCESS[2]])
    refused(r"no status 304, hash or ETag: .*answers_are_changes=True", fo.read_log, path)
    with pytest.warns(
        fo.SourceDataWarning, match="no status 304, hash or ETag: every answer counts as a change"
    ):
        log = fo.read_log(path, answers_are_changes=True)
    assert [row[2] for row in found(log)] == [False, True]
    assert [(each.of_rates, each.count("every answer")) for each in log.warnings] == [(True, 1)]


def test_columns_have_other_names(tmp_path: Path) -> None:
    path = file_with(tmp_path / "log.csv", "url,fetched_at,source,modified\na,0,feed,0\na,1,feed,1\n")
    names = {"url": "source", "fetched_at": "time", "modified": "changed"}
    assert found(fo.read_log(path, columns=names)) == [("a", 0.0, False), ("a", 1.0, True)]
    pl.read_csv(path).write_parquet(path.with_suffix(".parquet"))
    assert found(fo.read_log(path.with_suffix(".parquet"), columns=names)) == found(
        fo.read_log(path, columns=names)
    )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"uri": "source"}, ["no column 'uri'", "'url'", "url=source"]),
        ({"url": "name"}, ["'name' is no column of a log", "source, time, changed"]),
        ({"url": "source", "when": "source"}, ["'source' is named for two columns"]),
        ({"url": "source"}, ["no column 'changed'", "--columns when=time,modified=changed,url=source"]),
    ],
)
def test_wrong_names_are_refused(tmp_path: Path, columns: dict[str, str], words: list[str]) -> None:
    path = file_with(tmp_path / "log.csv", "url,when,modified\na,0,0\n")
    with refusing(*words):
        fo.read_log(path, columns=columns)


def test_etags_may_be_weak_and_quoted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('source,time,etag\na,0,"W/""v1"""\na,1,"""v1"""\na,2,v2\na,3,\na,4,v2\n')
    assert found(fo.read_log(path)) == [
        ("a", 0.0, False),
        ("a", 1.0, False),
        ("a", 2.0, True),
        ("a", 4.0, False),
    ]


def test_a_column_without_any_state_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "log.csv", "source,time,hash\na,0,\na,1,\n")
    refused(r"no row of .* has a value in hash .*2 rows", fo.read_log, path)


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "jsonl.gz", "ndjson.gz"])
def test_json_lines(tmp_path: Path, ending: str) -> None:
    rows = [
        {"url": 7, "at": "2026-01-01T06:00:00Z", "sha": "00ff", "headers": {"server": "x"}},
        {"url": 7, "at": "2026-01-02T06:00:00Z", "sha": "00fe"},
        {"url": 8, "at": "2026-01-02T06:00:00Z", "sha": None},
        {"url": 8, "at": "2026-01-03T06:00:00Z", "sha": "1"},
    ]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    path = tmp_path / f"crawls.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    log = fo.read_log(path, columns={"url": "source", "at": "time", "sha": "hash"})
    assert found(log) == [(7, 0.25, False), (7, 1.25, True), (8, 2.25, False)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"source":"a","time":0,"changed":0}\nnot json\n', ["line 2: 'not json' is no JSON object"]),
        (
            '{"source":"a","time":0,"changed":0}\n{"source":"a","time":"x","changed":1}\n',
            ["time is 'x' in line 2"],
        ),
        (
            '{"source":"a","time":0,"changed":0}\n{"source":"a","time":1,"changed":"perhaps"}\n',
            ["changed is 'perhaps' in line 2"],
        ),
        ('{"source":"a","time":0}\n', ["no column 'changed'"]),
        ("", ["log.jsonl is empty"]),
    ],
)
def test_unusable_json_lines(tmp_path: Path, text: str, words: list[str]) -> None:
    path = file_with(tmp_path / "log.jsonl", text)
    with refusing(*words):
        fo.read_log(path)


def test_rows_keep_their_names_after_some_are_left_out(tmp_path: Path) -> None:
    path = file_with(tmp_path / "log.csv", "source,time,hash\nb,5,x\na,3,\na,1,x\na,1,y\n")
    refused(r"row 4, line 5 of .*repeats the time of row 3, line 4", fo.read_log, path)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,min_interval,max_interval\na,1d,7d\n", ["a table of limits", "--limits "]),
        ("URL,Min Rate\na,1/d\n", ["a table of limits", "--limits "]),
        ("host,limit\na,400\n", ["a table of host limits", "--host-limits "]),
        ("group,at_least\na,400\n", ["a table of limits", "--nested-limits "]),
        ("page,weight\na,400\n", ["a table of importances", "--importance "]),
    ],
)
def test_a_table_of_an_option_is_no_log(tmp_path: Path, table: str, words: list[str]) -> None:
    path = file_with(tmp_path / "given.csv", table)
    with refusing("no log", *words):
        fo.read_log(path)


@pytest.mark.parametrize("failed", [False, True])
def test_records_of_dbt_name_their_reader(tmp_path: Path, failed: bool) -> None:
    done = {
        "status": "pass",
        "max_loaded_at": "2026-01-04T10:30:00Z",
        "snapshotted_at": "2026-01-05T06:00:00Z",
    }
    results = [{"unique_id": "source.a", **done}]
    results += [{"unique_id": "source.b", "status": "runtime error", "error": "no such table"}] * failed
    file_with(tmp_path / "sources-1.json", json.dumps({"metadata": {}, "results": results}))
    with refusing("dbt source freshness", f"freshopt import dbt {tmp_path}"):
        fo.read_log(tmp_path)

"""What formats cannot hold and what readers cannot read: one line that says what, why and what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import freshopt as fo
from freshopt.tools import (
    CacheControl,
    ChangeDetection,
    Crontab,
    Dbt,
    Dns,
    ExternalSecrets,
    Nginx,
    Nutch,
    PgCron,
    StormCrawler,
    TextTemplate,
    export,
    read_changedetection,
    read_dbt,
    read_nutch,
)
from freshopt.tools.dbt_project import DbtJobs, read_manifest, read_run_times
from freshopt.tools.export import ToolFormat
from tests.ground_truth.refusals import refused
from tests.tools.test_dbt import manifest
from tests.tools.test_read_crawlers import BEGIN, HEADER, data_folder, dump_line

BAD_URLS: tuple[str, ...] = (
    *("page/7", "ftp://a/", "http://", "http://a b/", "http://a/\tb", "http://a/\n", "http://[::1/", ""),
    *("http://a:99999/", "#http://a/", "http://a/\u2028", "javascript:alert(1)", "http://a/\x00b"),
)
BAD_SECRETS = ("Upper", "a_b", "-a", "a/b/c", "a" * 254, "a/", "ü", f"{'n' * 64}/a", "a..b", "a\n")
BAD_TABLES = ("orders", "model.shop.orders", "source.shop.raw.a.b", "source.shop..a", "source.s.r.\n")
BAD_RECORDS = (
    *("example.org", "example.org. 60 IN A 192.0.2.1", "example.org. IN A 192.0.2.1", "ü.org. A 192.0.2.1"),
    *("example.org. A 192.0.2.1 ; a", ".".join(["a" * 62] * 4) + ".bc. A 1"),
)
BAD_COMMANDS = (
    *((" ", "is empty"), ("-n fetch", "begins with - or"), ("* fetch", "begins with - or")),
    *(("a\nb", "control character"), (r"printf '\\'", "a backslash before another")),
    *((r"date +\%F", "before %"), ("fetch \\", "at its end"), ('curl "{source}"', "within quotes")),
    ("echo `curl {source}`", "within quotes"),
)
SOURCE, STALE = "source.a.b.c", pl.DataFrame({"source": ["a"], "rate": [1.0], "lifetime": [1.0]})
TWICE = pl.DataFrame({"source": ["a", "a"], "lifetime": [1.0, 2.0]})
WRITTEN: list[tuple[ToolFormat[Any], Any, str]] = [
    *(
        (target, {name: 1.0}, "is no URL")
        for target in (Nutch(), StormCrawler(), ChangeDetection())
        for name in BAD_URLS
    ),
    *((ExternalSecrets(), {name: 1.0}, "is no name of a Kubernetes resource") for name in BAD_SECRETS),
    *((Dbt(), {name: 1.0}, "is no unique_id of a dbt source.*Name it") for name in BAD_TABLES),
    *((Dns(), {name: 1.0}, "is no record of a zone file") for name in BAD_RECORDS),
    *((Crontab(command), {"a": 1.0}, words) for command, words in BAD_COMMANDS),
    (Nutch(), {"http://a/": 1 / 91}, r"'http://a/' every 91 days. Nutch has no intervals above 90 days. R"),
    (Nutch(), {"http://a/": 1e5}, r"every 0.864 s. Nutch has no intervals below 1 s. Give .* max_rate"),
    (Nutch(), {"http://a/": 1e-320}, "'http://a/' every inf days. Nutch has no intervals above 90 days"),
    (Nutch(), STALE, "format of caches"),
    (StormCrawler(), {"http://a/": 1441.0}, "every 60 s. StormCrawler has no intervals below 60 s"),
    (StormCrawler(), {"http://a/": 1e-9}, "above 1.49131e.06 days. Raise their min_rate"),
    (ChangeDetection(), {"http://a/": 2000.0}, "every 43.2 s. .*no intervals below 60 s"),
    (ChangeDetection(), {"http://a/{{now}}": 1.0}, "templates"),
    (ChangeDetection(), {"http://a/{%x%}": 1.0}, "templates"),
    (ChangeDetection(), {"http://a/" + "x" * 5000: 1.0}, "more than 5000 letters"),
    (ExternalSecrets(), {"a": 1e-10}, "above 106752 days"),
    (Dbt(), {SOURCE: 1.0 / 32.0}, "A dbt job has no intervals above 31 days. Raise"),
    (Crontab(), {"a": 1441.0}, "1441 times a day. cron goes .* Lower its max_rate"),
    (Crontab(), {"a": 1.0 / 366.0}, "0.002732 times a day. .* Raise its min_rate"),
    (TextTemplate("curl x"), {"a": 1.0}, r"the template has no \{source\}.*Add"),
    (TextTemplate("{source} {sorce}"), {"a": 1.0}, r"placeholder \{sorce\}. Known are \{source\}.*Correct"),
    (TextTemplate("{source!z}"), {"a": 1.0}, r"the template has \{source!z\}. Quotings are .*Correct"),
    (TextTemplate("{source} {host}"), {"a": 1.0}, "'a' is no URL"),
    (TextTemplate("{source}"), {"a\nb": 1.0}, "has a newline"),
    (TextTemplate("{source} {minutes}"), {"a": 2880.0}, "The template has no intervals below 60 s"),
    (PgCron("SELECT 1"), {"a": 1.0}, r"the command has no \{source\}.*Add"),
    (PgCron("SELECT f('{source}')"), {"a": 1.0}, "within quotes"),
    (PgCron('REFRESH MATERIALIZED VIEW "{source}"'), {"a": 1.0}, "within quotes"),
    (PgCron(), {"a\0b": 1.0}, "zero byte"),
    (PgCron(), {"a": 1e5}, "goes from once in 365 days to once a second. Lower its max_rate"),
    (CacheControl(), {"a\nb": 1.0}, r"source 'a\\nb' has a line break"),
    (CacheControl(), {"a": -1.0}, "lifetime out of range for 'a': -1"),
    (CacheControl(), {"a": float("nan")}, "lifetime out of range for 'a'"),
    (CacheControl(), {}, "there are no lifetimes"),
    (CacheControl(), pl.DataFrame({"source": ["a"], "rate": [1.0]}), "no column 'lifetime'"),
    (CacheControl(), TWICE, "more than one lifetime"),
    (Nginx(), {"": 1.0}, "is empty"),
    (Nginx(), {"/A": 1.0, "/a": 2.0}, "large and small letters only"),
    (Nginx(key="uri"), {"/a": 1.0}, "names no variables of nginx"),
    (Nginx(key='$uri" {'), {"/a": 1.0}, "names no variables of nginx"),
]


@pytest.mark.parametrize(("target", "given", "words"), WRITTEN)
def test_what_a_format_cannot_hold(target: ToolFormat[Any], given: Any, words: str, tmp_path: Path) -> None:  # noqa: ANN401
    refused(words, export, given, target, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "target", [PgCron(r"SELECT f('\', {source})"), Crontab("curl '\\'{source}''")], ids=repr
)
def test_quotes_that_end_before_a_placeholder(target: ToolFormat[Any], tmp_path: Path) -> None:
    assert export({"a": 1.0}, target, tmp_path / "out").sources == 1


LINE = dump_line("u", BEGIN, "1.0", "1")
RESULT = '{"results": [{"unique_id": "a", "max_loaded_at": %s}]}'
WATCH = '{"watching": {"k": {"url": "u", %s}}}'
RUN = '{"results": [{"unique_id": "a", "status": "success", "execution_time": %s}]}'
# Reader, its file, what that holds, and what is said.
READ: list[tuple[Callable[[Path], object], str, str, str]] = [
    (read_nutch, "dump.csv", "Url,Status\n", "no column 'Status name', 'Fetch Time'"),
    (read_nutch, "dump.csv", "", "no column 'Url'"),
    (read_nutch, "dump.csv", HEADER, "no URL that was fetched. Add dumps"),
    (read_nutch, "dump.csv", HEADER + LINE.replace("UTC", "CET"), "line 2 of .*zone 'CET'.* TZ=UTC"),
    (read_nutch, "dump.csv", HEADER + LINE.replace("Jan 31", "Jan 32"), "line 2 of .*'Sat Jan 32"),
    (read_nutch, "dump.csv", HEADER + '"u",2,"db_fetched",soon,,0,1.0,1,1,"1",""\n', "line 2 of .*'soon'"),
    (read_nutch, "dump.csv", HEADER + LINE.replace(",1.0,1.0,", ",NaN,1.0,", 1), "'NaN'"),
    (read_nutch, "dump.csv", HEADER + '"u",2,"db_fetched"\n', "line 2 of .*has 3 columns"),
    (
        read_nutch,
        "dump.csv",
        HEADER + LINE + dump_line("u", BEGIN, "1.0", "2"),
        "line 3 of .* and line 2 of .*different signatures of 'u'",
    ),
    (read_nutch, "none.txt", "", r"no file named part-\* or \*\.csv"),
    (read_dbt, "sources.json", "", "sources.json: input data was truncated"),
    (read_dbt, "sources.json", '{"results": [\n{"unique_id": "a",}]}', "malformed: trailing comma .*byte 32"),
    (read_dbt, "sources.json", "[]", r"sources.json: expected object, got array\. Pass .*schema v1"),
    (read_dbt, "sources.json", "{}", r"sources.json: object missing required field results\."),
    (read_dbt, "sources.json", '{"results": {}}', "sources.json: expected array, got object at results"),
    (read_dbt, "sources.json", '{"results": [3]}', r"json: expected object, got int at results\[0\]"),
    (read_dbt, "sources.json", '{"results": [{}]}', r"missing required field unique_id at results\[0\]"),
    (read_dbt, "sources.json", '{"results": [{"unique_id": ""}]}', r"unique_id is empty in results\[0\] of"),
    (read_dbt, "sources.json", '{"results": [{"unique_id": 7}]}', r"str, got int at results\[0\].unique_id"),
    (read_dbt, "sources.json", '{"results": [{"unique_id": "a"}]}', r"max_loaded_at is '' in results\[0\]"),
    (read_dbt, "sources.json", RESULT % "null", r"snapshotted_at is '' in results\[0\] of"),
    (read_dbt, "sources.json", RESULT % '"x", "snapshotted_at": "2024"', r"max_loaded_at is 'x' in results"),
    (read_dbt, "sources.json", '{"results": []}', "no result of a freshness check that succeeded"),
    (read_dbt, "sources.json", "9" * 5000, "sources.json: number out of range"),
    (read_dbt, "sources.json", '{"a": ' + "[" * 100_000, "sources.json: JSON that no tool writes"),
    (read_dbt, "none.json", "{}", "begins with sources or freshness.*keep a copy"),
    (read_manifest, "manifest.json", '{"nodes": []}', "manifest.json: expected object, got array at nodes"),
    (read_manifest, "manifest.json", '{"nodes": {}}', "missing required field sources"),
    (
        read_manifest,
        "manifest.json",
        '{"nodes": {}, "sources": {}, "exposures": {}}',
        "has no model with a parent",
    ),
    (read_run_times, "run_results.json", RUN % '"long"', r"float . null, got str at results\[0\].execution"),
    (read_run_times, "run_results.json", RUN % "-1", "execution_time of 'a' is -1"),
    (read_run_times, "run_results.json", RUN % "null", "execution_time of 'a' is None"),
    (read_changedetection, "url-watches.json", "{", "url-watches.json: input data was truncated"),
    (read_changedetection, "url-watches.json", "[]", "url-watches.json: expected object, got array"),
    (read_changedetection, "url-watches.json", '{"watching": {}}', "no watch with a snapshot"),
    (read_changedetection, "url-watches.json", '{"watching": [1]}', "object . null, got array at watching"),
    (read_changedetection, "url-watches.json", '{"watching": {"k": {}}}', "'k' of .*: .*required field url"),
    (read_changedetection, "url-watches.json", '{"watching": {"k": {"url": ""}}}', "'k' of .* has no url"),
    (read_changedetection, "url-watches.json", WATCH % '"last_checked": "x"', "'x', which is no"),
    (
        read_changedetection,
        "url-watches.json",
        WATCH % '"time_between_check": {"hours": "3"}',
        r"watch 'k' of .*: expected int . null, got str at time_between_check",
    ),
    (read_changedetection, "u1/history.txt", "5,a.txt\nyesterday,b.txt\n", "line 2 of .*'yesterday,b.txt'"),
    (read_changedetection, "u1/history.txt", "5\n", "line 1 of .*'5'"),
    (read_changedetection, "u1/history.txt", "9999999999999,a\n", "line 1 of "),
]


@pytest.mark.parametrize(("read", "name", "text", "words"), READ)
def test_what_a_reader_cannot_read(
    read: Callable[[Path], object], name: str, text: str, words: str, tmp_path: Path
) -> None:
    if read is read_changedetection:
        data_folder(tmp_path, single=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(fo.SourceDataError, match=words) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("read", "name", "words"),
    [
        (read_nutch, "no.csv", r"no\.csv cannot be read: No such file"),
        (read_dbt, "no.json", r"no.json cannot be read"),
        (read_run_times, "no.json", r"no.json cannot be read"),
        (read_changedetection, "no", "there is no file or folder"),
        (read_dbt, "octets.json", r"octets.json: JSON is malformed: invalid character \(byte 0\)"),
        (read_dbt, "text.json", r"text.json: not UTF-8 \(byte 28\)"),
        (read_changedetection, "octets.json", "neither a folder nor a ZIP file"),
    ],
)
def test_files_that_are_none(read: Callable[[Path], object], name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "octets.json").write_bytes(b"\xff{}")
    (tmp_path / "text.json").write_bytes(b'{"results": [{"unique_id": "\xff"}]}')
    refused(words, read, tmp_path / name)


@pytest.mark.parametrize(("importance", "words"), [("x", "expected float, got str"), (-1, "is -1. Write a")])
def test_importances_of_exposures(importance: object, words: str, tmp_path: Path) -> None:
    exposure = {"depends_on": {"nodes": ["model.shop.daily"]}, "meta": {"importance": importance}}
    with pytest.raises(fo.SourceDataError, match=rf"the importance of 'e' in .*manifest.json.*{words}"):
        read_manifest(manifest(tmp_path, exposures={"e": exposure}))


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"model.shop.stg_orders": 1.0}, r"is no model that .* keeps as a table"),
        ({"model.shop.daily": 0.1}, "no intervals above 7 days"),
    ],
)
def test_jobs_of_models(rates: dict[str, float], words: str, tmp_path: Path) -> None:
    refused(words, export, rates, DbtJobs(manifest(tmp_path)), tmp_path / "jobs")


def test_times_of_nodes_that_are_lacking(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    refused(r"root 'seed\.shop\.rates' has no change rate", fo.pipeline, path, {"orders": 1.0, "items": 1.0})
    (tmp_path / "run_results.json").write_text(json.dumps({"results": []}))
    rates = {"orders": 1.0, "items": 1.0, "rates": 0.0}
    with pytest.raises(fo.SourceDataError, match=r"has no run time of 'model\.shop\.revenue'"):
        fo.pipeline(path, rates, cost=tmp_path / "run_results.json")

"""`freshopt import`: what each tool has recorded, written as a log and read again."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from freshopt.errors import SourceDataError
from freshopt.logs import ChangeHistory, CrawlLog, read_history, read_log
from freshopt.logs.read_events import is_history
from freshopt.terminal.tool_options import read_tool
from freshopt.tools.table import FLAGS, READ
from tests.ground_truth.command_lines import Run, fields, refuse, unwrapped
from tests.ground_truth.refusals import present, refused
from tests.tools.test_dbt import RUNS
from tests.tools.test_feed_readers import FRESHRSS
from tests.tools.test_git import Repository
from tests.tools.test_read_crawlers import BEGIN, HEADER, data_folder, dump_line

pytestmark = pytest.mark.usefixtures("folder")
DAY = timedelta(days=1)
SITEMAP = '<?xml version="1.0"?>\n<{0} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{1}</{0}>'
CDX = [
    "org,a)/ 20230307092216 http://a.org/ text/html 200 AAA 5264",
    "org,a)/ 20230430081729 https://a.org/ text/html 200 BBB 6493",
    "org,a)/ 20230505092425 https://a.org/ warc/revisit - BBB 848",
    "org,b)/ 20230307092216 https://b.org/ text/html 200 CCC 5264",
    "org,b)/ 20230310 https://b.org/ text/html 503 DDD 10",
    "org,b)/ 20230430081729 https://b.org/ text/html 200 CCC 5264",
]


def git(at: Path) -> None:
    made = Repository(at)
    for k, day in enumerate([0.25, 1.5, 2.75, 9.0]):
        made.commit(day, **{f"f{k % 2}": str(k), "often": str(k)})


def history(at: Path) -> None:
    at.write_text("source,time\na,0\na,2.1\nb,3\na,10\n")


def dbt(at: Path) -> None:
    for name, document in RUNS.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(json.dumps(document))


def nutch(at: Path) -> None:
    lines = [dump_line("http://a/", BEGIN + k * DAY, "86400.0", str(k // 2)) for k in range(9)]
    at.write_text(HEADER + "".join(lines))


def changedetection(at: Path) -> None:
    data_folder(at, single=True)


def sitemap(at: Path) -> None:
    """Three days: /a changes on each, /b never, /c is new on the last and has no date."""
    at.mkdir()
    for day in (1, 2, 3):
        dates = {
            "/a": f"2026-05-0{day}T03:00:00+02:00",
            "/b": "2026-04-01",
            **({"/c": ""} if day == 3 else {}),
        }
        pages = (
            f"<url><loc>https://x{url}</loc>{f'<lastmod>{date}</lastmod>' if date else ''}</url>"
            for url, date in dates.items()
        )
        text = SITEMAP.format("urlset", "".join(pages)).encode()
        name = at / f"sitemap-2026-05-0{day}T0600.xml"
        (name.with_suffix(".xml.gz") if day == 2 else name).write_bytes(
            gzip.compress(text) if day == 2 else text
        )
        index = SITEMAP.format("sitemapindex", f"<sitemap><loc>https://x/s{day}.xml</loc></sitemap>")
        (at / f"index-2026050{day}.xml").write_text(index)


def wayback(at: Path) -> None:
    at.write_text("\n".join(CDX) + "\n")


def freshrss(at: Path) -> None:
    with closing(sqlite3.connect(at)) as database:
        database.executescript(FRESHRSS)
        looked = int(datetime(2026, 5, 20, tzinfo=UTC).timestamp())
        for feed, url in enumerate(("https://a.org/f?x=1&amp;y=2", "https://b.org/f"), start=1):
            database.execute("INSERT INTO feed (id, url, lastUpdate) VALUES (?, ?, ?)", (feed, url, looked))
            for k in range(9):
                date = looked - 43_200 * feed * (k + 1)
                entry = (1_000_000 * (date + 60) + feed, date, feed)
                database.execute("INSERT INTO entry (id, date, id_feed) VALUES (?, ?, ?)", entry)
        database.commit()


MADE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "git": ("repo", git),
    "history": ("changes.csv", history),
    "dbt": ("runs", dbt),
    "nutch": ("dump.csv", nutch),
    "changedetection": ("data", changedetection),
    "sitemap": ("sitemaps", sitemap),
    "wayback": ("a.cdx", wayback),
    "freshrss": ("db.sqlite", freshrss),
}


# Tools that make a log of files; those of a server, or of other tables, are in test_feed_readers.py and
# test_signals.py.
LOGS = [name for name, tool in READ.items() if tool.makes == "log" and tool.metavar != "URL"]


def test_every_tool_that_is_read_has_a_case() -> None:
    assert set(MADE) == set(LOGS)
    others = {"dbt-freshness", "miniflux", "opml", "sitemap-signals", "feed-signals", "push-signals"}
    assert READ.keys() - MADE.keys() == others


def made(tool: str) -> Path:
    name, make = MADE[tool]
    make(Path(name))
    return Path(name)


def read(path: str) -> CrawlLog | ChangeHistory:
    return read_history(path) if is_history(Path(path)) else read_log(path)


@pytest.mark.filterwarnings("ignore::freshopt.errors.SourceDataWarning")
@pytest.mark.parametrize("tool", LOGS)
def test_what_is_written_is_read_again(run: Run, tool: str) -> None:
    path = made(tool)
    expected = read_tool(READ[tool], path, {}, "day")
    for out in ("own.parquet", "own.csv"):
        told = unwrapped(run("import", tool, str(path), "--out", out).output)
        assert f"{len(expected)} c" in told
        found = read(out)
        assert type(found) is type(expected)
        for key in (
            "names",
            "offsets",
            "time",
            "origin",
            "start",
            "end",
            "interval",
            "changed",
            "last_modified",
        ):
            own, other = (getattr(each, key, None) for each in (found, expected))
            np.testing.assert_array_equal(own, other, err_msg=key)


@pytest.mark.filterwarnings("ignore::freshopt.errors.SourceDataWarning")
@pytest.mark.parametrize("tool", FLAGS)
def test_a_flag_of_before_still_works_and_names_what_replaces_it(run: Run, tool: str) -> None:
    path = str(made(tool))
    run("import", tool, path)
    run("estimate", "log.parquet", "--out", "new.csv")
    ran = run("estimate", f"--{tool}", path, "--out", "old.csv")
    assert Path("old.csv").read_text() == Path("new.csv").read_text()
    line = f"freshopt import {tool} {path} --out log.parquet, and give log.parquet as LOG"
    assert f"Warning: --{tool} goes in 0.3.0. Write {line}." in unwrapped(ran.stderr)
    assert f"--{tool} " not in run("estimate", "--help").output


def test_settings_of_a_tool_are_options_of_its_import(run: Run) -> None:
    path = str(made("git"))
    run(
        "import", "git", path, "--files", "f*", "--files", "o*", "--since", "2023-11-16", "--min-changes", "1"
    )
    since = read_tool(
        READ["git"], Path(path), {"files": ["f*", "o*"], "since": "2023-11-16", "min-changes": 1}, "day"
    )
    np.testing.assert_array_equal(read("log.parquet").time, since.time)
    assert "--min-changes" in run("import", "git", "--help").output
    ran = run("estimate", "--git", path, "--files", "f*", "--since", "2023-11-16", "--out", "o.csv")
    assert f"import git {path} --since 2023-11-16 --files 'f*' --out log.parquet" in unwrapped(ran.stderr)


def test_csv_goes_to_standard_output(run: Run) -> None:
    ran = run("import", "history", str(made("history")), "--out", "-")
    assert ran.stdout.splitlines()[:3] == ["source,time,history", "a,0.0,start", "a,0.0,change"]
    assert "4 changes of 2 sources" in ran.stderr


def test_a_history_is_planned_as_one(run: Run) -> None:
    run("import", "git", str(made("git")))
    ran = run("plan", "log.parquet", "--bandwidth", "1/day", "--out", "plan", "--details")
    assert fields(ran.output)["log"].startswith("log.parquet: 5 changes of 3 sources in 8.75 days, all known")
    refused(r"all changes.*read_history", read_log, "log.parquet")


def rows(log: CrawlLog) -> list[tuple[str, bool]]:
    names = log.names[log.source_index].tolist()
    return list(zip(names, log.changed.tolist(), strict=True))


def test_pages_of_sitemaps_change_with_their_dates() -> None:
    path = made("sitemap")
    with pytest.warns(UserWarning, match="1 page without lastmod left out, such as https://x/c"):
        log = read_tool(READ["sitemap"], path, {}, "day")
    assert rows(log) == [(f"https://x/{page}", page == "a" and day > 1) for page in "ab" for day in (1, 2, 3)]
    assert log.origin == datetime(2026, 5, 1, tzinfo=UTC)
    np.testing.assert_allclose(log.time[:3], [0.25, 1.25, 2.25])
    np.testing.assert_allclose(log.last_modified[1:3], [25 / 24, 49 / 24])


def test_news_have_a_date_of_publication_and_an_index_alone_lists_sitemaps() -> None:
    for day in (1, 2):
        published = f"<news><publication_date>2026-05-0{day}T01:00:00Z</publication_date></news>"
        text = SITEMAP.format("urlset", f"<url><loc>https://x/n</loc>{published}</url>")
        Path(f"news.2026-05-0{day}.xml").write_text(text)
        Path(f"2026-05-0{day}").mkdir()
        listed = f"<sitemap><loc>https://x/s.xml</loc><lastmod>2026-05-0{day}</lastmod></sitemap>"
        Path(f"2026-05-0{day}/sitemap.xml").write_text(SITEMAP.format("sitemapindex", listed))
    read_sitemap = present(READ["sitemap"].read)
    news = [Path(f"news.2026-05-0{day}.xml") for day in (1, 2)]
    index = [Path(f"2026-05-0{day}/sitemap.xml") for day in (1, 2)]
    for files, name in ((news, "https://x/n"), (index, "https://x/s.xml"), (news + index, "https://x/n")):
        log = read_sitemap(files)
        assert isinstance(log, CrawlLog)
        assert rows(log) == [(name, False), (name, True)]


FIELDS = ("urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length")
FORMS = {
    "text": "\n".join(CDX),
    "CSV": "\n".join(
        [",".join(FIELDS), *(f'"{line.replace(" ", chr(34) + "," + chr(34))}"' for line in CDX)]
    ),
    "JSON": json.dumps([FIELDS, *(line.split() for line in CDX)]),
    "a CDX file": "\n".join([" CDX N b a m s k S", *CDX]),
    "CDXJ": "\n".join(
        f"{key} {stamp} {json.dumps({'url': url, 'status': status, 'digest': digest})}"
        for key, stamp, url, _, status, digest, _ in (line.split() for line in CDX)
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_captures_in_each_form(form: str, packed: bool) -> None:
    """A page is one with http and https; a revisit found the same, and 503 is no evidence."""
    path = Path("captures")
    data = FORMS[form].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    log = read_tool(READ["wayback"], path, {}, "day")
    a, b = "https://a.org/", "https://b.org/"
    assert rows(log) == [(a, False), (a, True), (a, False), (b, False), (b, False)]
    assert log.origin == datetime(2023, 3, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tool", "name", "text", "words"),
    [
        ("wayback", "w", "org,a)/ 20230307092216 http://a.org/", ("has not 7 fields",)),
        ("wayback", "w", CDX[0].replace("20230307092216", "soon"), ("'soon' is no moment of a capture",)),
        ("wayback", "w", '[["urlkey", "original"], ["a", "b"]]', ("no timestamp, digest", "these fields")),
        ("wayback", "w", "[[", ("cannot be read as an index", "anew")),
        ("wayback", "w", "", ("has no captures",)),
        ("sitemap", "s-2026-05-01.xml", "<urlset>", ("only copy of its sitemap", "each day")),
        ("sitemap", ".", "", ("no file *.xml",)),
        ("history", "h.csv", "source,time,history\na,1,start\na,2,change\n", ("'a' has 0", "history end")),
        ("history", "h.csv", "source,time,history\na,1,begin\n", ("'begin'", "not start, change or end")),
        ("history", "h.csv", "source,time,changed\na,1,1\na,2,No\n", ("No in row 2", "freshopt plan")),
        ("git", "no", "", ("is not a folder",)),
    ],
)
def test_refusals(folder: Path, tool: str, name: str, text: str, words: tuple[str, ...]) -> None:
    if text or name == "w":
        Path(name).write_text(text)
    refuse(folder, ["import", tool, name], words)
    assert not Path("log.parquet").exists()


def test_damaged_copies_are_named() -> None:
    for day in (1, 2):
        Path(f"s-2026-05-0{day}.xml").write_text(
            "<urlset><url>" if day == 2 else SITEMAP.format("urlset", "")
        )
    with pytest.raises(
        SourceDataError, match=r"s-2026-05-02.xml cannot be read as a sitemap: .*Remove this copy"
    ):
        read_tool(READ["sitemap"], Path(), {}, "day")


def test_an_earlier_log_is_kept_unless_it_may_be_overwritten(run: Run) -> None:
    path = str(made("history"))
    pl.DataFrame({"source": ["kept"]}).write_csv("log.csv")
    run("import", "history", path, "--out", "log.csv", code=2)
    assert "kept" in Path("log.csv").read_text()
    run("import", "history", path, "--out", "log.csv", "--overwrite")
    assert "kept" not in Path("log.csv").read_text()

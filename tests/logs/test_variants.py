"""One log as people have it: every variant is read alike, or answered with the line to paste."""

import bz2
import gzip
import io
import json
import lzma
import re
import shlex
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshopt.errors import SourceDataError, SourceDataWarning, hearing
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_crawls import read_log
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.refusals import present, refused, refusing


class Crawl(NamedTuple):
    """A crawl: a URL, the minute in UTC, whether it found a change, and the content's hash."""

    url: str
    at: datetime
    changed: bool
    digest: str


def crawls() -> list[Crawl]:
    """Twenty days of four pages of two hosts, at odd minutes; equal hashes where nothing had changed."""
    rng = np.random.default_rng(7)
    found = []
    for k in range(4):
        url, version = f"https://{'ab'[k % 2]}.example/page/{k}", 0
        for day in range(20):
            changed = day > 0 and bool(rng.random() < 0.3)
            version += changed
            minute = int(rng.integers(24 * 60))
            at = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(days=day, minutes=minute)
            found.append(Crawl(url, at, changed, sha1(f"{url} {version}".encode()).hexdigest()))
    return sorted(found, key=lambda crawl: crawl.at)


CRAWLS = crawls()
TRUTH = CrawlLog(
    [crawl.url for crawl in CRAWLS],
    [crawl.at for crawl in CRAWLS],
    [crawl.changed for crawl in CRAWLS],
)
Cell = Callable[[Crawl], Any]
Write = Callable[[Path], None]


def timed(form: str, zone: timezone = UTC) -> Cell:
    return lambda crawl: crawl.at.astimezone(zone).strftime(form)


def said(yes: Any, no: Any) -> Cell:  # noqa: ANN401 - a cell
    return lambda crawl: yes if crawl.changed else no


def url(crawl: Crawl) -> str:
    return crawl.url


def digest(crawl: Crawl) -> str:
    return crawl.digest


ISO, FLAG = timed("%Y-%m-%dT%H:%M:%SZ"), said("1", "0")
BERLIN, INDIA, NEW_YORK = (timezone(timedelta(hours=h)) for h in (1.0, 5.5, -5.0))
PLAIN: dict[str, Cell] = {"source": url, "time": ISO, "changed": FLAG}


def epoch(per_second: int) -> Cell:
    return lambda crawl: str(int(crawl.at.timestamp()) * per_second)


def serial(crawl: Crawl) -> str:  # of which 2026-01-01 is 46023
    return f"{46_023.0 + (crawl.at - datetime(2026, 1, 1, tzinfo=UTC)) / timedelta(days=1):.10f}"


def rows_of(columns: dict[str, Cell]) -> list[dict[str, Any]]:
    return [{name: cell(crawl) for name, cell in columns.items()} for crawl in CRAWLS]


def quoted(cell: Any, parting: str) -> str:  # noqa: ANN401
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if parting in text or '"' in text else text


def text(columns: dict[str, Cell], parting: str = ",", before: str = "", newline: str = "\n") -> str:
    lines = [[*columns], *([*row.values()] for row in rows_of(columns))]
    return before + "".join(parting.join(quoted(cell, parting) for cell in line) + newline for line in lines)


def table(
    columns: dict[str, Cell] = PLAIN,
    parting: str = ",",
    before: str = "",
    newline: str = "\n",
    encoding: str = "utf-8",
    packed: Callable[[bytes], bytes] = bytes,
) -> Write:
    data = text(columns, parting, before, newline)
    return lambda path: _discard(path.write_bytes(packed(data.encode(encoding))))


def _discard(_: object) -> None:
    return None


def time_as(form: str, zone: timezone = UTC) -> Write:
    return table({**PLAIN, "time": timed(form, zone)})


def named(*names: str, parting: str = ",") -> Write:
    """The columns source, time and changed or, beyond a name with a dash, hash."""
    cells = (url, ISO, digest) if names[2].startswith("-") else (url, ISO, FLAG)
    return table(dict(zip((name.lstrip("-") for name in names), cells, strict=True)), parting)


def flagged(yes: Any, no: Any) -> Write:  # noqa: ANN401
    return table({**PLAIN, "changed": said(yes, no)})


def json_text(value: Callable[[list[dict[str, Any]]], Any], columns: dict[str, Cell] = PLAIN) -> Write:
    return lambda path: _discard(path.write_text(json.dumps(value(rows_of(columns)), indent=1)))


def json_lines(row: Callable[[Crawl], dict[str, Any]]) -> Write:
    data = "\n".join(json.dumps(row(crawl)) for crawl in CRAWLS)
    return lambda path: _discard(path.write_text(data))


def zst(path: Path) -> None:
    """Through Polars, which packs as it unpacks."""
    pl.read_csv(text(PLAIN).encode(), infer_schema_length=0).lazy().sink_csv(path, compression="zstd")


def nested(crawl: Crawl) -> dict[str, Any]:
    return {
        "_index": "crawls",
        "_source": {
            "url": crawl.url,
            "metadata": {"fetchDate": [ISO(crawl)], "signature": [crawl.digest], "hostname": "x.example"},
        },
    }


def parquet(columns: dict[str, Cell] = PLAIN, **types: Any) -> Write:  # noqa: ANN401
    def write(path: Path) -> None:
        frame = pl.DataFrame(rows_of(columns))
        frame.with_columns(**{name: make(frame) for name, make in types.items()}).write_parquet(path)

    return write


def moments(zone: str | None) -> Callable[[pl.DataFrame], pl.Series]:
    """The times as a warehouse stores them, in a zone."""

    def made(_: pl.DataFrame) -> pl.Series:
        every = pl.Series([crawl.at for crawl in CRAWLS], dtype=pl.Datetime("us", "UTC"))
        return every.dt.replace_time_zone(None) if zone is None else every.dt.convert_time_zone(zone)

    return made


def fixed_zone(path: Path) -> None:
    """As pandas stores times with an offset."""
    arrow = pl.DataFrame(rows_of(PLAIN)).to_arrow()
    times = pa.array([crawl.at for crawl in CRAWLS], pa.timestamp("us", "+05:30"))
    pq.write_table(arrow.set_column(1, "time", times), path)


# Times as databases, warehouses, programs and spreadsheets write them.
TIMES: dict[str, Write] = {
    "date -Is": time_as("%Y-%m-%dT%H:%M:%S+0100", BERLIN),
    "git %ci": time_as("%Y-%m-%d %H:%M:%S +0100", BERLIN),
    "git %cI": time_as("%Y-%m-%dT%H:%M:%S+01:00", BERLIN),
    "git %cd": time_as("%a %b %d %H:%M:%S %Y +0100", BERLIN),
    "Python logging": time_as("%Y-%m-%d %H:%M:%S,000"),
    "PostgreSQL": time_as("%Y-%m-%d %H:%M:%S.000000+00"),
    "PostgreSQL, half hours": time_as("%Y-%m-%d %H:%M:%S+05:30", INDIA),
    "BigQuery": time_as("%Y-%m-%d %H:%M:%S UTC"),
    "BigQuery, fraction": time_as("%Y-%m-%d %H:%M:%S.000000 UTC"),
    "Snowflake": time_as("%Y-%m-%d %H:%M:%S.000 +0000"),
    "Snowflake, zone": time_as("%Y-%m-%d %H:%M:%S.000 -0500", NEW_YORK),
    "SQLite": time_as("%Y-%m-%d %H:%M:%S"),
    "SQL Server": time_as("%Y-%m-%d %H:%M:%S.0000000 +00:00"),
    "Oracle": time_as("%d-%b-%y %I.%M.%S.000000000 %p"),
    "Go": time_as("%Y-%m-%d %H:%M:%S.000000000 +0000 UTC"),
    "Java": time_as("%Y-%m-%dT%H:%M:%S.000+01:00[Europe/Berlin]", BERLIN),
    "Java, UTC": time_as("%Y-%m-%dT%H:%M:%SZ[Etc/UTC]"),
    "Java, UTC alone": time_as("%Y-%m-%dT%H:%M:%S[UTC]"),
    "JavaScript": time_as("%a %b %d %Y %H:%M:%S GMT+0100 (Central European Standard Time)", BERLIN),
    "nginx error log": time_as("%Y/%m/%d %H:%M:%S"),
    "HTTP date": time_as("%a, %d %b %Y %H:%M:%S GMT"),
    "Apache": time_as("[%d/%b/%Y:%H:%M:%S +0100]", BERLIN),
    "asctime": time_as("%a %b %d %H:%M:%S %Y"),
    "date": time_as("%a %b %d %H:%M:%S UTC %Y"),
    "English": time_as("%B %d, %Y, %I:%M %p"),
    "English, short": time_as("%b %d, %Y %I:%M:%S %p"),
    "day.month.year": time_as("%d.%m.%Y %H:%M"),
    "day/month/year": time_as("%d/%m/%Y %H:%M:%S"),
    "day-month-year": time_as("%d-%m-%Y %H:%M"),
    "month/day/year": time_as("%m/%d/%Y %H:%M"),
    "month/day/year, 12 hours": time_as("%m/%d/%Y %I:%M %p"),
    "month/day/year, comma": time_as("%m/%d/%Y, %I:%M:%S %p"),
    "day.month.year of two digits": time_as("%d.%m.%y %H:%M"),
    "day/month/year of two digits": time_as("%d/%m/%y %H:%M:%S"),
    "month/day/year of two digits": time_as("%m/%d/%y %I:%M %p"),
    "year-month-day of two digits": time_as("%y-%m-%d %H:%M"),
    "a spreadsheet's days": table({**PLAIN, "time": serial}),
    "a spreadsheet's days, comma": table(
        {**PLAIN, "time": lambda crawl: serial(crawl).replace(".", ",")}, ";"
    ),
    "compact": time_as("%Y%m%d%H%M%S"),
    "compact, T": time_as("%Y%m%dT%H%M%SZ"),
    "seconds since 1970": table({**PLAIN, "time": epoch(1)}),
    "ms since 1970": table({**PLAIN, "time": epoch(10**3)}),
    "µs since 1970": table({**PLAIN, "time": epoch(10**6)}),
    "ns since 1970": table({**PLAIN, "time": epoch(10**9)}),
    "seconds with a fraction": table({**PLAIN, "time": lambda crawl: f"{crawl.at.timestamp():.5f}"}),
    "decimal comma": table(
        {**PLAIN, "time": lambda crawl: f"{crawl.at.timestamp():.1f}".replace(".", ",")}, ";"
    ),
    "date and time apart": table(
        {"url": url, "date": timed("%Y-%m-%d"), "time": timed("%H:%M:%S"), "changed": FLAG}
    ),
}
FILES: dict[str, tuple[str, Write]] = {
    "CSV": ("log.csv", table()),
    "CSV of Windows": ("log.csv", table(newline="\r\n")),
    "semicolons": ("log.csv", table(parting=";")),
    "tabs": ("log.csv", table(parting="\t")),
    "bars": ("log.csv", table(parting="|")),
    "tsv": ("log.tsv", table(parting="\t")),
    "tsv.gz": ("log.tsv.gz", table(parting="\t", packed=gzip.compress)),
    "txt": ("log.txt", table(parting=";")),
    "no ending": ("crawls", table()),
    "foreign ending": ("crawls.dat", table(parting="\t")),
    "wrong ending": (
        "log.csv",
        json_lines(lambda crawl: {name: cell(crawl) for name, cell in PLAIN.items()}),
    ),
    "sep=": ("log.csv", table(parting=";", before="sep=;\n", newline="\r\n")),
    "comments": ("log.csv", table(before="# exported by the crawler\n# of 2026\n")),
    "BOM": ("log.csv", table(encoding="utf-8-sig")),
    "UTF-16": ("log.csv", table(parting="\t", encoding="utf-16")),
    "sep= and BOM": ("log.csv", table(parting=";", before="sep=;\n", encoding="utf-8-sig")),
    "gz": ("log.csv.gz", table(packed=gzip.compress)),
    "xz": ("log.csv.xz", table(packed=lzma.compress)),
    "bz2": ("log.csv.bz2", table(packed=bz2.compress)),
    "zst": ("log.csv.zst", zst),
    "gz without a name": ("log.csv", table(packed=gzip.compress)),
    "Parquet": ("log.parquet", parquet()),
    "Parquet, moments": ("log.parquet", parquet(time=moments(None))),
    "Parquet, zone": ("log.parquet", parquet(time=moments("Asia/Kolkata"))),
    "Parquet, fixed zone": ("log.parquet", lambda path: fixed_zone(path)),
    "Parquet, offsets": ("log.parquet", parquet({**PLAIN, "time": timed("%Y-%m-%dT%H:%M:%S+05:30", INDIA)})),
    "Parquet, other names": ("log.parquet", parquet({"URL": url, "Fetched At": ISO, "Content Hash": digest})),
    "JSON lines": (
        "log.jsonl",
        json_lines(lambda crawl: {name: cell(crawl) for name, cell in PLAIN.items()}),
    ),
    "nested JSON lines": ("log.jsonl", json_lines(nested)),
    "JSON array": ("log.json", json_text(list)),
    "JSON array of arrays": (
        "log.json",
        json_text(lambda rows: [[*rows[0]], *([*row.values()] for row in rows)]),
    ),
    "JSON object": ("log.json", json_text(lambda rows: {"count": len(rows), "rows": rows})),
    "JSON of columns": (
        "log.json",
        json_text(lambda rows: {key: [row[key] for row in rows] for key in rows[0]}),
    ),
    "JSON of pandas": (
        "log.json",
        json_text(lambda rows: {key: {str(k): row[key] for k, row in enumerate(rows)} for key in rows[0]}),
    ),
    "JSON, split": (
        "log.json",
        json_text(lambda rows: {"columns": [*rows[0]], "data": [[*row.values()] for row in rows]}),
    ),
    "JSON lines as .json": (
        "log.json",
        json_lines(lambda crawl: {name: cell(crawl) for name, cell in PLAIN.items()}),
    ),
}
NAMES: dict[str, Write] = {
    "capitals": named("SOURCE", "Time", "CHANGED"),
    "blanks": named(" source", "time ", " changed"),
    "Fetched At": named("URL", "Fetched At", "-Content Hash"),
    "timestamp": named("url", "timestamp", "changed"),
    "crawl_date": named("Page URL", "crawl_date", "-digest"),
    "sha1": named("uri", "fetch-time", "-SHA-1"),
    "ETag": named("target_url", "@timestamp", "-ETag"),
    "checked at": named("feed url", "checkedAt", "-sha256"),
    "German": named("Quelle", "Zeit", "Geändert", parting=";"),
    "brackets": table({"Page (canonical)": url, "Timestamp (UTC)": ISO, "Changed?": FLAG}),
}
FLAGS: dict[str, Write] = {
    "yes": flagged("yes", "no"),
    "Y": flagged("Y", "N"),
    "T": flagged("T", "F"),
    "true": flagged("true", "false"),
    "WAHR": flagged("WAHR", "FALSCH"),
    "ja": flagged("ja", "nein"),
    "oui": flagged("oui", "non"),
    "si": flagged("sí", "no"),
    "1.0": flagged("1.0", "0.0"),
    "changed": flagged("changed", "unchanged"),
    "modified": flagged("modified", "not modified"),
    "beside a code": table({**PLAIN, "code": lambda _: "DE"}),
    "twice": table({**PLAIN, "latency": lambda crawl: str(crawl.at.minute)}),
}
READ: dict[str, tuple[str, Write]] = {
    **{f"time: {name}": ("log.csv", write) for name, write in TIMES.items()},
    **{f"file: {name}": found for name, found in FILES.items()},
    **{f"names: {name}": ("log.csv", write) for name, write in NAMES.items()},
    **{f"changed: {name}": ("log.csv", write) for name, write in FLAGS.items()},
}


def assert_same(log: CrawlLog) -> None:
    assert log.names.tolist() == TRUTH.names.tolist()
    assert (log.origin, log.time_unit) == (TRUTH.origin, TRUTH.time_unit)
    np.testing.assert_allclose(log.time, TRUTH.time, atol=1e-9)
    np.testing.assert_allclose(log.interval, TRUTH.interval, atol=1e-9)
    np.testing.assert_array_equal(log.changed, TRUTH.changed)


@pytest.mark.parametrize("variant", READ)
def test_every_variant_is_the_same_log(variant: str, tmp_path: Path) -> None:
    name, write = READ[variant]
    write(tmp_path / name)
    with warnings.catch_warnings(action="ignore"), hearing() as heard:
        assert_same(read_log(tmp_path / name))
    assert len(heard) == ("read as dates" in str(heard))


def halves(folder: Path, *names: str) -> list[Path]:
    """The log in two files, each by a writer of its own."""
    logs = [folder / name for name in names]
    for path, rows in zip(logs, (CRAWLS[:33], CRAWLS[33:]), strict=True):
        frame = pl.DataFrame([{name: cell(crawl) for name, cell in PLAIN.items()} for crawl in rows])
        if path.suffix == ".parquet":
            frame.with_columns(pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")).write_parquet(path)
        else:
            frame.rename({"source": "URL", "time": "Fetched At"}).write_csv(path, separator=";")
    return logs


def in_folder(folder: Path) -> Any:  # noqa: ANN401
    logs = halves(folder, "2026-01.csv", "2026-02.parquet")
    (folder / "notes.md").write_text("no log")
    (folder / "_SUCCESS").write_text("")
    (folder / ".2026-03.csv").write_text("half written")
    (folder / "older").mkdir()
    logs[0].rename(folder / "older" / logs[0].name)
    return folder


def from_standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    return "-"


MORE: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "two files": lambda folder, _: halves(folder, "b.csv", "a.parquet"),
    "two files, as text": lambda folder, _: [str(path) for path in halves(folder, "b.csv", "a.csv")],
    "a folder": lambda folder, _: in_folder(folder),
    "files that overlap": lambda folder, _: [*halves(folder, "b.csv", "a.csv"), folder / "b.csv"],
    "a file of text": lambda *_: io.StringIO(text(PLAIN)),
    "a file of bytes": lambda *_: io.BytesIO(lzma.compress(text(PLAIN, ";").encode())),
    "standard input": lambda _, patch: from_standard_input(text(PLAIN).encode(), patch),
    "standard input, zst": lambda folder, patch: from_standard_input(packed_zst(folder), patch),
    "standard input, Parquet": lambda folder, patch: from_standard_input(packed_parquet(folder), patch),
}


def packed_zst(folder: Path) -> bytes:
    zst(folder / "log.zst")
    return (folder / "log.zst").read_bytes()


def packed_parquet(folder: Path) -> bytes:
    parquet()(folder / "log.parquet")
    return (folder / "log.parquet").read_bytes()


@pytest.mark.parametrize("variant", MORE)
def test_every_way_to_hand_it_over_is_the_same_log(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = MORE[variant](tmp_path, monkeypatch)
    with warnings.catch_warnings(action="ignore"), hearing() as heard:
        assert_same(read_log(given))
        if not hasattr(given, "read"):
            assert_same(read_log(given))  # what a stream held is there for the next reader too
    assert all("repeated and left out" in each for each in heard)


ANSWERED: dict[str, tuple[Write, str]] = {
    "two sources": (table({"url": url, "uri": url, "time": ISO, "changed": FLAG}), "url=source"),
    "two times": (
        table({"Page": url, "Fetched At": ISO, "Checked At": ISO, "changed": FLAG}),
        '"Page=source,Fetched At=time"',
    ),
    "unknown time": (table({"url": url, "stamp": ISO, "sha1": digest}), "url=source,sha1=hash,stamp=time"),
    "unknown names": (
        table({"what": url, "then": timed("%d.%m.%Y %H:%M"), "it moved": said("ja", "nein")}),
        '"then=time,it moved=changed,what=source"',
    ),
    "a request's": (table({"url": url, "time": ISO, "fingerprint": digest}), "fingerprint=hash"),
    "unknown hash": (table({"url": url, "time": ISO, "fp": digest}), "fp=hash"),
    "unknown names in Parquet": (parquet({"what": url, "then": ISO, "fp": digest}), "what=source"),
}


@pytest.mark.parametrize("variant", ANSWERED)
def test_what_cannot_be_told_is_answered_with_the_line_to_paste(variant: str, tmp_path: Path) -> None:
    write, words = ANSWERED[variant]
    path = tmp_path / ("log.parquet" if "Parquet" in variant else "log.csv")
    write(path)
    with pytest.raises(SourceDataError) as refusal:
        read_log(path)
    message = str(refusal.value)
    assert words in message
    found = present(re.search(r'--columns ("[^"]+"|[^ ,]+(?:,[^ ,]+)*)', message))
    (pasted,) = shlex.split(found[1])
    assert_same(read_log(path, columns=dict(pair.rpartition("=")[::2] for pair in pasted.split(","))))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("source,time,changed\na,3/1/2026,0\na,3/2/2026,1\n", ["'3/1/2026' in row 1, line 2", "the month"]),
        ("source,time,changed\na,13/1/2026,0\na,1/13/2026,1\n", ["'13/1/2026'", "month"]),
        ("source,time,changed\na,05.01.2026 25:00,0\n", ["'05.01.2026 25:00'"]),
        (
            "https://a.example/,2026-01-05,0\nhttps://a.example/,2026-01-06,1\n",
            ["Write source,time,changed in a line before it"],
        ),
        ("source,time,changed\na,2026-01-05 10:00 CET,0\n", ["'2026-01-05 10:00 CET'"]),
        ("source,time,changed\na,2026-01-05T10:00:00[America/New_York],0\n", ["[America/New_York]'"]),
        ("source,time,changed\na,2026-01-05 10:00:00 (EST),0\n", ["(EST)'"]),
        ("host,name,time,hash\na,x,1,x\nb,x,2,y\n", ["name 'x' stands beside", "host", "--columns NAME"]),
        ("url,time,hash\na,05/01/26,1\na,06/01/26,2\n", ["'05/01/26'", "the day, the month or the year"]),
        ("x,y\n1,2\n", ["no column 'source', 'changed', 'time'", "--columns"]),
        ("source,time\na,1\n", ["--columns YOUR_CHANGED=changed", "freshopt import history"]),
        ("source,time,kind\na,1,0\na,2,1\n", ["--columns kind=changed", "freshopt import history"]),
    ],
)
def test_what_cannot_be_read_is_named(content: str, words: list[str], tmp_path: Path) -> None:
    path = file_with(tmp_path / "log.csv", content)
    with refusing(*words):
        read_log(path)


def test_dots_are_days_first_and_cells_of_windows_are_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes("Quelle;Zeit;Geändert\nMüller;05.01.2026;0\nMüller;06.01.2026;1\n".encode("cp1252"))
    with pytest.warns(SourceDataWarning, match="not in UTF-8. It is read as Windows-1252"):
        log = read_log(path)
    assert log.names.tolist() == ["Müller"]
    assert log.origin == datetime(2026, 1, 5, tzinfo=UTC)
    assert log.time.tolist() == [0.0, 1.0]


def test_files_of_one_log_agree_on_dates(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source,time,changed\na,2026-01-05,0\n")
    (tmp_path / "b.csv").write_text("source,time,changed\na,17,0\n")
    refused("time has dates in some files of the log and numbers in others", read_log, tmp_path)


def test_a_row_of_several_files_is_named_by_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source,time,hash\na,1,x\na,2,x\n")
    (tmp_path / "b.csv").write_text("source,time,hash\na,3,x\na,2,y\n")
    with pytest.raises(
        SourceDataError, match=r"row 2, line 3 of .*b.csv repeats the time of row 2, line 3 of .*a"
    ):
        read_log([tmp_path / "a.csv", tmp_path / "b.csv"])

"""Damaged files: every reader ends in a result or in a `FreshoptError`, whatever the bytes are.

Valid files are damaged: bytes overwritten, removed, doubled, exchanged between places, the end cut off; cells
and JSON values replaced by nonsense. Parquet is damaged in its footer as often as anywhere else, or hardly a
file would get so far as to be misunderstood.
"""

import gzip
import io
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshopt.errors import FreshoptError, SourceDataWarning
from freshopt.logs.read_crawls import read_log
from freshopt.logs.read_events import read_history
from freshopt.terminal import tables
from freshopt.tools.changedetection import read_changedetection
from freshopt.tools.dbt import read_dbt
from freshopt.tools.nutch import read_nutch
from freshopt.tools.wayback import read_wayback
from tests.ground_truth.command_lines import crawl_log

EXAMPLES = int(os.environ.get("FRESHOPT_FUZZ", "60"))  # of each test; CONTRIBUTING says how to run more
SETTINGS = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
LOG = (
    "source,time,changed,elapsed,changes\n"
    "a,2024-01-01T00:00Z,0,,\na,2024-01-02 00:00Z,1,1.0,2\nb,2024-01-03T00:00+00:00,true,0.5,1\n"
)
CHANGES = "source,time\na,2024-01-01T00:00Z\na,2024-01-02 00:00Z\nb,2024-01-03T00:00+00:00\n"
SOURCES = (
    "source,change_rate,importance,min_rate,max_rate,cost,host,signalled,time_unit,exponent,cap\n"
    "a,1.0,2,0,9,1,x,false,day,0.5,3\nb,2.0,1,0.1,inf,2,y,true,day,0.5,\n"
)
NESTED = "".join(
    f'{{"a": {{"url": ["{k}"], "time": {k}, "changed": 1, "b": {{"host": null}}}}}}\n' for k in range(5)
)
RATES = "source,rate,signalled,change_rate\na,1.5,true,2\nb,0.5,false,1\n"
LIMITS = "host,limit\nx,1.5\ny,2\n"
NUTCH = (
    "Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,Retry interval seconds,Retry "
    "interval days,Score,Signature,Metadata\n"
    '"http://a/",2,"db_fetched",Sat Jan 31 06:00:00 UTC 2026,x,0,86400.0,1.0,1.0,"c0ffee",""\n'
    '"http://b/",6,"db_notmodified",Sun Feb 01 06:00:00 UTC 2026,x,0,86400.0,1.0,1.0,"c0ffef",""\n'
)
DBT: Any = {
    "metadata": {"dbt_schema_version": "https://schemas.getdbt.com/dbt/sources/v3.json"},
    "results": [
        {
            "unique_id": "source.a",
            "status": "pass",
            "max_loaded_at": "2026-01-01T00:00:00Z",
            "snapshotted_at": s,
        }
        for s in ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00+02:00")
    ],
}
WATCHES: Any = {
    "watching": {"k1": {"url": "http://a/", "last_checked": 1767300000}, "k2": {"url": "http://b/"}}
}
SNAPSHOTS = "1767200000,a.txt\n1767250000,b.txt\n"


def parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def frame(text: str) -> pl.DataFrame:
    return pl.read_csv(io.StringIO(text), try_parse_dates=True)


@st.composite
def damage(draw: st.DrawFn, whole: bytes, tail: int = 0) -> bytes:
    """Return bytes with one to four places damaged, half of them among the last `tail`."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        if not content:
            break
        begin = max(len(content) - tail, 0) if tail and draw(st.booleans()) else 0
        at, end = sorted(draw(st.tuples(*[st.integers(begin, len(content))] * 2)))
        kind = draw(st.sampled_from(["byte", "byte", "cut", "remove", "double", "insert", "zero"]))
        if kind == "byte":
            content[min(at, len(content) - 1)] = draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at:]
        elif kind == "remove":
            del content[at:end]
        elif kind == "double":
            content[at:at] = content[at : min(end, at + 2000)]
        elif kind == "insert":
            content[at:at] = draw(st.sampled_from(NONSENSE)).encode("utf-8", "surrogatepass")
        else:
            content[at : at + 8] = bytes(min(8, len(content) - at))
    return bytes(content)


NONSENSE = [
    "", " ", "nan", "-inf", "1e999", "-1", "0", "1e-320", "99999999999999999999", "\x00", "\ud800", "\ufeff",
    "é", '"', "'", ",", ";", "\n", "\r", "\t", "true", "null", "[]", "{}", "2024-02-30", "0000-01-01",
    "9999-12-31T23:59:59.999999999+00:00", "9" * 5000, "x" * 20_000, "[" * 3000, "=1+1", "../..",
]  # fmt: skip


@st.composite
def damaged_cells(draw: st.DrawFn, text: str) -> bytes:
    """Return a table with cells replaced, moved or left out."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(draw(st.integers(1, 4))):
        row = draw(st.sampled_from(rows))
        if not row:
            continue
        k = draw(st.integers(0, len(row) - 1))
        other = draw(st.sampled_from(rows))
        value = draw(
            st.one_of(st.sampled_from(NONSENSE), st.sampled_from(other or [""]), st.text(max_size=8))
        )
        if draw(st.integers(0, 5)):
            row[k] = value
        else:
            del row[k]
    return "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")


@st.composite
def damaged_values(draw: st.DrawFn, document: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return JSON with values replaced by others of any type, or left out."""
    made = json.loads(json.dumps(document))
    anything = st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=5),
            st.sampled_from(NONSENSE),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)
        ),
        max_leaves=4,
    )
    for _ in range(draw(st.integers(1, 3))):
        node: Any = made
        parent: Any = None
        key: Any = None
        while isinstance(node, dict | list) and len(node) and draw(st.integers(0, 3)):
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            parent, key = node, draw(st.sampled_from(keys))
            node = node[key]
        if parent is None:
            made = draw(anything)
        elif draw(st.booleans()):
            parent[key] = draw(anything)
        else:
            del parent[key]
    return json.dumps(made).encode("ascii")


def survive(read: Callable[[Path], object], name: str, content: bytes, **others: bytes) -> None:
    """Check that a reader refuses a file in its own words, or reads it."""
    with tempfile.TemporaryDirectory() as folder:
        for key, value in {name: content, **others}.items():
            place = Path(folder, key.replace("__", "/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(value)
        try:
            with warnings.catch_warnings(action="ignore", category=SourceDataWarning):
                read(Path(folder))
        except FreshoptError as error:
            message = str(error)
            assert len(message) < 2_000
            assert message.endswith("."), message


def as_file(read: Callable[..., object], name: str) -> Callable[[Path], object]:
    return lambda folder: read(folder / name)


def as_table(read: Callable[..., object], name: str) -> Callable[[Path], object]:
    return lambda folder: read(folder / name, None)


def limits(path: Path, _: None) -> object:
    return tables.host_limits_of(path, "day")


TEXTS: dict[str, tuple[Callable[..., object], str]] = {
    "log": (as_file(read_log, "t.csv"), LOG),
    "semicolons": (as_file(read_log, "t.csv"), LOG.replace(",", ";")),
    "document": (as_file(read_log, "t.csv"), json.dumps(frame(LOG).cast(pl.String).to_dicts(), indent=1)),
    "nested": (as_file(read_log, "t.csv"), NESTED),
    "history": (as_file(read_history, "t.csv"), CHANGES),
    "sources": (as_table(tables.sources_of, "t.csv"), SOURCES),
    "rates": (as_table(tables.rates_of, "t.csv"), RATES),
    "limits": (as_table(limits, "t.csv"), LIMITS),
    "nutch": (as_file(read_nutch, "t.csv"), NUTCH),
}


def test_undamaged_files_are_read(tmp_path: Path) -> None:
    for name, content in {
        "t.csv": b"", "t.parquet": b"", "sources.json": json.dumps(DBT).encode(), "t.zip": backup(),
        "url-watches.json": json.dumps(WATCHES).encode(),
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(content)
    (tmp_path / "k1").mkdir()
    (tmp_path / "k1" / "history.txt").write_text(SNAPSHOTS)
    for read, text in TEXTS.values():
        (tmp_path / "t.csv").write_text(text)
        read(tmp_path)
    for read, whole in PARQUETS.values():
        (tmp_path / "t.parquet").write_bytes(whole)
        read(tmp_path)
    (
        read_dbt(tmp_path),
        read_changedetection(tmp_path),
        read_changedetection(tmp_path / "t.zip"),
    )


@pytest.mark.parametrize("kind", TEXTS)
@SETTINGS
@given(data=st.data())
@pytest.mark.sampled(5)
def test_csv(kind: str, data: st.DataObject) -> None:
    read, text = TEXTS[kind]
    survive(
        read,
        "t.csv",
        data.draw(st.one_of(damage(text.encode()), damaged_cells(text), st.binary(max_size=60))),
    )


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.jsonl"])
@pytest.mark.parametrize("begin", ["[", '{"a":', '[{"a":'])
def test_documents_too_deep_to_be_read(begin: str, name: str) -> None:
    for read in (read_log, read_history, read_wayback):
        survive(as_file(read, name), name, 100_000 * begin.encode())


@SETTINGS
@given(damage(gzip.compress(LOG.encode(), mtime=0)))
def test_gzipped_csv(content: bytes) -> None:
    survive(as_file(read_log, "t.csv.gz"), "t.csv.gz", content)


PARQUETS: dict[str, tuple[Callable[..., object], bytes]] = {
    "log": (as_file(read_log, "t.parquet"), parquet(crawl_log(2, 5))),
    "history": (as_file(read_history, "t.parquet"), parquet(crawl_log(2, 5).select("source", "time"))),
    "sources": (as_table(tables.sources_of, "t.parquet"), parquet(frame(SOURCES))),
    "rates": (as_table(tables.rates_of, "t.parquet"), parquet(frame(RATES))),
}


@pytest.mark.parametrize("kind", PARQUETS)
@SETTINGS
@given(data=st.data())
def test_parquet(kind: str, data: st.DataObject) -> None:
    read, whole = PARQUETS[kind]
    survive(read, "t.parquet", data.draw(damage(whole, tail=400)))


@SETTINGS
@given(st.one_of(damaged_values(DBT), damage(json.dumps(DBT).encode()), st.binary(max_size=60)))
def test_dbt(content: bytes) -> None:
    survive(lambda folder: read_dbt(folder), "sources.json", content)


@SETTINGS
@given(
    st.one_of(damaged_values(WATCHES), damage(json.dumps(WATCHES).encode())),
    st.one_of(damage(SNAPSHOTS.encode()), st.just(SNAPSHOTS.encode())),
    st.one_of(damaged_values(WATCHES["watching"]["k1"]), st.none()),
)
def test_changedetection(watches: bytes, snapshots: bytes, own: bytes | None) -> None:
    others = {"k1__history.txt": snapshots} | ({} if own is None else {"k1__watch.json": own})
    survive(lambda folder: read_changedetection(folder), "url-watches.json", watches, **others)


def backup() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (("url-watches.json", json.dumps(WATCHES)), ("k1/history.txt", SNAPSHOTS)):
            archive.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()


@SETTINGS
@given(damage(backup(), tail=150))
def test_changedetection_backup(content: bytes) -> None:
    survive(as_file(read_changedetection, "t.zip"), "t.zip", content)

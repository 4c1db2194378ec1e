"""Valid inputs of every format that the command line reads, command lines, and damage to files."""

import gzip
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

PLAN = ("--bandwidth", "6/day", "--horizon", "3d", "--draws", "2")
FORMATS = ("nutch", "stormcrawler", "changedetection", "crontab", "icalendar")
OBJECTIVES = ("harmonic", "binary", "delay", "age", "power", "deadline", "binary-cost", "polls")


@dataclass(frozen=True)
class Job:
    """A command line and the inputs that it reads, of which one is damaged."""

    arguments: tuple[str, ...]
    inputs: tuple[str, ...]


def log_rows(rng: np.random.Generator, n: int = 6, crawls: int = 25) -> list[str]:
    """Return rows of a crawl log with dates."""
    rows = ["source,time,changed"]
    for k in range(n):
        hours = np.cumsum(rng.integers(5, 30, crawls))
        moments = np.datetime64("2024-03-30T00:00") + hours.astype("timedelta64[h]")
        rows += [f"https://a.example/{k},{moment}Z,{int(rng.random() < 0.4)}" for moment in moments]
    return rows


def write(folder: Path) -> None:
    """Write all inputs."""
    rng = np.random.default_rng(7)
    rows = log_rows(rng)
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    (folder / "log.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode(), mtime=0))
    frame = pl.read_csv(folder / "log.csv", try_parse_dates=True)
    frame.write_parquet(folder / "log.parquet")
    history = [row.rpartition(",")[0] for row in rows if row.endswith((",1", "changed"))]
    (folder / "history.csv").write_text("\n".join(history) + "\n")
    frame.filter(pl.col("changed") == 1).select("source", "time").write_parquet(folder / "history.parquet")
    sources = ["source,change_rate,importance,min_rate,max_rate,refresh_cost,host,exponent,cap,deadline"]
    sources += [
        f"https://a.example/{k},{0.3 * (k + 1):g},{k + 1},0.01,50,{1 + k % 2},h{k % 2},0.5,3,{1 + k}"
        for k in range(6)
    ]
    (folder / "sources.csv").write_text("\n".join(sources) + "\n")
    pl.read_csv(folder / "sources.csv").write_parquet(folder / "sources.parquet")
    weights = [
        "source,change_rate,importance",
        *(f"https://a.example/{k},{0.3 * (k + 1):g},{k + 1}" for k in range(6)),
    ]
    (folder / "weights.csv").write_text("\n".join(weights) + "\n")
    rates = ["source,rate", *(f"https://a.example/{k},{0.5 * (k + 1):g}" for k in range(6))]
    (folder / "rates.csv").write_text("\n".join(rates) + "\n")
    pl.read_csv(folder / "rates.csv").write_parquet(folder / "rates.parquet")
    times = np.sort(rng.uniform(0, 7, 30)).round(3)
    schedule = [
        "source,time",
        *(f"https://a.example/{k % 6},{time}" for k, time in enumerate(times.tolist())),
    ]
    (folder / "schedule.csv").write_text("\n".join(schedule) + "\n")
    (folder / "limits.csv").write_text("host,limit\nh0,1.5\nh1,2\n")
    hosts = ["source,host", *(f"https://a.example/{k},h{k % 2}" for k in range(6))]
    (folder / "hosts.csv").write_text("\n".join(hosts) + "\n")
    importance = ["source,importance", *(f"https://a.example/{k},{k + 1}" for k in range(6))]
    (folder / "importance.csv").write_text("\n".join(importance) + "\n")
    _foreign(folder)


def _foreign(folder: Path) -> None:
    """Write the records of other tools."""
    (folder / "dbt").mkdir()
    for day in range(1, 5):
        results = [
            {"unique_id": f"source.{name}", "status": "pass", "max_loaded_at": f"2026-01-0{day}T00:00:00Z",
             "snapshotted_at": f"2026-01-0{day}T0{k + 1}:00:00Z"}
            for k, name in enumerate("ab")
        ]  # fmt: skip
        version = {"dbt_schema_version": "https://schemas.getdbt.com/dbt/sources/v3.json"}
        (folder / "dbt" / f"sources{day}.json").write_text(
            json.dumps({"metadata": version, "results": results})
        )
    head = "Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,Retry interval seconds,"
    head += "Retry interval days,Score,Signature,Metadata"
    (folder / "nutch").mkdir()
    for day in (30, 31):
        cells = f'Sat Jan {day} 06:00:00 UTC 2026,x,0,86400.0,1.0,1.0,"c0ffe{day}",""'
        body = "\n".join(f'"http://{name}/",2,"db_fetched",{cells}' for name in "ab")
        (folder / "nutch" / f"{day}.csv").write_text(f"{head}\n{body}\n")
    watches = {
        "watching": {"k1": {"url": "http://a/", "last_checked": 1767300000}, "k2": {"url": "http://b/"}}
    }
    snapshots = "1767200000,a.txt\n1767250000,b.txt\n"
    (folder / "cd" / "k1").mkdir(parents=True)
    (folder / "cd" / "url-watches.json").write_text(json.dumps(watches))
    (folder / "cd" / "k1" / "history.txt").write_text(snapshots)
    with zipfile.ZipFile(folder / "cd.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("url-watches.json"), json.dumps(watches))
        archive.writestr(zipfile.ZipInfo("k1/history.txt"), snapshots)


def jobs() -> list[Job]:
    """Return all command lines; plans of `made` are reported on."""
    found = []
    for log in ("log.csv", "log.csv.gz", "log.parquet"):
        found.append(Job(("estimate", log, "--out", "out.csv"), (log,)))
        found.append(Job(("plan", log, *PLAN, "--out", "out"), (log,)))
        found.append(Job(("poisson-check", log, "--out", "out.csv"), (log,)))
    hosts = ("--hosts", "hosts.csv", "--host-limits", "limits.csv", "--importance", "importance.csv")
    found += [
        Job(("plan", "log.csv", *PLAN, *hosts, "--csv", "--out", "out"), (each,)) for each in hosts[1::2]
    ]
    for tool, path, inside in (
        ("history", "history.csv", "history.csv"), ("history", "history.parquet", "history.parquet"),
        ("dbt", "dbt", "dbt/sources2.json"), ("nutch", "nutch", "nutch/31.csv"),
        ("changedetection", "cd", "cd/url-watches.json"), ("changedetection", "cd", "cd/k1/history.txt"),
        ("changedetection", "cd.zip", "cd.zip"),
    ):  # fmt: skip
        found.append(Job(("import", tool, path, "--out", "out.parquet"), (inside,)))
    for k, objective in enumerate(OBJECTIVES):
        table = ("sources.csv", "sources.parquet")[k % 2]
        solve = ("--objective", objective, "--bandwidth", "3", "--out", "out.csv")
        found.append(Job(("solve", table, *solve), (table,)))
        found.append(Job(("solve", "sources.csv", "--host-limits", "limits.csv", *solve), ("limits.csv",)))
    found.append(
        Job(("frontier", "sources.csv", "--bandwidths", "2,3,9", "--out", "out.csv"), ("sources.csv",))
    )
    for method in ("periodic", "poisson", "carousel", "earliest-deadline", "greedy", "counts", "slots"):
        weighed = method in ("greedy", "counts")
        more = ("--sources", "weights.csv") if weighed else ()
        more = ("--slot", "6h", "--crawlers", "9") if method == "slots" else more
        options = ("--method", method, *more, "--horizon", "3d", "--out", "out.csv")
        found.append(Job(("schedule", "rates.csv", *options), ("rates.csv", *more[1:] * weighed)))
    for name in FORMATS:
        out = {"nutch": "out", "crontab": "out.txt", "icalendar": "out.ics", "changedetection": "out.json"}
        horizon = ("--horizon", "3d", "--start", "2026-01-31") if name == "icalendar" else ()
        options = ("--format", name, *horizon, "--out", out.get(name, "out.txt"))
        found.append(Job(("schedule", "rates.parquet", *options), ("rates.parquet",)))
        found.append(Job(("schedule", "rates.csv", *options), ("rates.csv",)))
    for option, path in (("--history", "history.csv"), ("--log", "log.csv"), ("--sources", "sources.csv")):
        options = (option, path, "--out", "out.csv")
        found.append(Job(("replay", "schedule.csv", *options), ("schedule.csv", path)))
    for name in ("summary.json", "rates.parquet", "change_rates.parquet", "schedule.parquet"):
        found.append(Job(("report", "made", "--out", "out.html"), (f"made/{name}",)))
    return found


NONSENSE = (
    "", " ", "nan", "-inf", "inf", "1e999", "-1", "0", "1e-320", "1e300", "99999999999999999999", "\x00",
    "\ufeff", "é", '"', "'", ",", ";", "\n", "\r", "\t", "true", "null", "None", "[]", "{}", "2024-02-30",
    "0000-01-01", "1970-01-01", "9999-12-31T23:59:59.999999999+00:00", "9" * 5000, "x" * 20_000, "[" * 3000,
    "=1+1", "../..", "\x1b[31mred", "<script>alert(1)</script>", "a\u202eb", "😀", "%s%n{}", "$(id)", "-rf",
    "page/1", "h1", "1_000", "0x10", "１", "1,5", "1.7976931348623157e308", "5e-324", "-0.0", "1e100",
    "2262-04-12", "1677-01-01", "12:00", "1e18", "1711756800000000000",
)  # fmt: skip
NAMES = (
    "a b{}", "-rf{}", "ü{}", "a'b\"c{}", "a\nb{}", "*?[a]{}", "%s{{}}{}", "😀{}", "x" * 200 + "{}",
    "\x1b[31m{}", "~{}", "a;b|c&d{}", "$HOME{}", "{}", "a,b{}",
)  # fmt: skip
Rng = np.random.Generator


def bytes_of(rng: Rng, whole: bytes, tail: int) -> bytes:
    """Return bytes with one to four places damaged; half of them among the last `tail`, if any."""
    content = bytearray(whole)
    for _ in range(int(rng.integers(1, 5))):
        if not content:
            break
        begin = max(len(content) - tail, 0) if tail and rng.random() < 0.5 else 0
        at, end = sorted(int(x) for x in rng.integers(begin, len(content) + 1, 2))
        kind = int(rng.integers(7))
        if kind <= 1:
            content[min(at, len(content) - 1)] = int(rng.integers(256))
        elif kind == 2:
            del content[at:]
        elif kind == 3:
            del content[at:end]
        elif kind == 4:
            content[at:at] = content[at : min(end, at + 2000)]
        elif kind == 5:
            content[at:at] = pick(rng).encode()
        else:
            content[at : at + 8] = bytes(min(8, len(content) - at))
    return bytes(content)


def pick(rng: Rng) -> str:
    """Return nonsense."""
    return NONSENSE[int(rng.integers(len(NONSENSE)))]


def cells_of(rng: Rng, text: str) -> str:
    """Return a table with cells or whole columns replaced, moved or left out, or rows repeated."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(int(rng.integers(1, 4))):
        row = rows[int(rng.integers(len(rows)))]
        if not row:
            continue
        k, kind = int(rng.integers(len(row))), int(rng.integers(8))
        if kind <= 3:
            row[k] = pick(rng)
        elif kind == 4:
            del row[k]
        elif kind == 5:
            row[k] = row[int(rng.integers(len(row)))]
        elif kind == 6:
            rows += [list(each) for each in rows[1 : 1 + int(rng.integers(1, 9))]]
        else:
            value = pick(rng)
            for each in rows[1:]:
                each[k:] = [value, *each[k + 1 :]]
    return "\n".join(",".join(row) for row in rows)


def values_of(rng: Rng, document: Any) -> Any:
    """Return JSON with a value replaced by another of any type, or left out."""
    made = json.loads(json.dumps(document))
    node, parent, key = made, None, None
    while isinstance(node, dict | list) and len(node) and (parent is None or rng.random() < 0.75):
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        parent, key = node, keys[int(rng.integers(len(keys)))]
        node = node[key]
    others = (None, True, -1, 0, 1e308, 10**30, pick(rng), [], {}, [[1]], {"a": None}, float("nan"))
    if parent is None:
        return others[int(rng.integers(len(others)))]
    if rng.random() < 0.25:
        del parent[key]
    else:
        parent[key] = others[int(rng.integers(len(others)))]
    return made


TEXT: tuple[Callable[[str], bytes], ...] = (
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: text.replace("\n", "\r").encode(),
    lambda text: b"\xef\xbb\xbf" + text.encode(),
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.replace("a", "é").encode("latin-1"),
    lambda text: text.encode() + b"\x00",
    lambda text: text.encode() + b"\n\n\n",
    lambda text: text.rstrip("\n").encode(),
    lambda text: ("\n" + text).encode(),
    lambda text: text.replace(",", ";").encode(),
    lambda text: text.replace(",", ", ").encode(),
    lambda text: text.replace(",", "\t").encode(),
    lambda text: text.upper().encode(),
    lambda text: text.partition("\n")[0].encode(),
    lambda text: text.encode() * 40,
    lambda _: b"",
)


def damaged(rng: Rng, name: str, whole: bytes) -> bytes:
    """Return a file's content, damaged in a way that suits its format, a fifth of them in another way too."""
    if name.endswith((".parquet", ".zip", ".gz")):
        return bytes_of(rng, whole, 400)
    text, kind = whole.decode(), rng.random()
    if kind < 0.3:
        return bytes_of(rng, whole, 0)
    if kind < 0.45:
        content = TEXT[int(rng.integers(len(TEXT)))](text)
    elif name.endswith(".json"):
        document = json.loads(text)
        for _ in range(int(rng.integers(1, 4))):
            document = values_of(rng, document)
        content = json.dumps(document).encode()
    else:
        content = cells_of(rng, text).encode()
    return bytes_of(rng, content, 0) if rng.random() < 0.2 else content

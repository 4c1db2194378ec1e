"""Valid inputs of every format that the command line reads, and command lines that read them."""

from __future__ import annotations

import gzip
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

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
    for origin, path, inside in (
        ("--history", "history.csv", "history.csv"), ("--history", "history.parquet", "history.parquet"),
        ("--dbt", "dbt", "dbt/sources2.json"), ("--nutch", "nutch", "nutch/31.csv"),
        ("--changedetection", "cd", "cd/url-watches.json"), ("--changedetection", "cd", "cd/k1/history.txt"),
        ("--changedetection", "cd.zip", "cd.zip"),
    ):  # fmt: skip
        found.append(Job(("estimate", origin, path, "--out", "out.parquet"), (inside,)))
        found.append(Job(("plan", origin, path, *PLAN, "--out", "out"), (inside,)))
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

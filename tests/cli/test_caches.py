"""From access logs to the lifetimes of a cache: `estimate`, `solve`, `schedule`."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.ground_truth.command_lines import Run, fields, refusals, refuse

LINE = '192.0.2.1 - - [{day:02}/Jan/2026:{hour:02}:00:00 +0000] "GET {url} HTTP/1.1" {status} 7\n'


def write_logs() -> None:
    """Write 10 days: /a is asked hourly and changes daily; /b daily, and never changes; /c is not fetched."""
    hours = [(day, hour) for day in range(1, 11) for hour in range(24)]
    edge = [LINE.format(day=day, hour=hour, url="/a", status=200) for day, hour in hours]
    edge += [
        LINE.format(day=day, hour=5, url=url, status=304) for day in range(1, 11) for url in ("/b", "/c")
    ]
    fetched = [
        LINE.format(day=day, hour=hour, url=url, status=200 if url == "/a" and hour == 12 else 304)
        for day, hour in hours
        if hour % 6 == 0
        for url in ("/a", "/b")
    ]
    Path("edge.log").write_text("".join(edge))
    Path("origin.log").write_text("".join(fetched))


def test_from_logs_to_headers(run: Run) -> None:
    write_logs()
    words = fields(run("estimate", "origin.log", "--requests", "edge.log", "--out", "sources.csv").output)
    assert words["requests"] == (
        "260 requests of 3 sources in edge.log; 1 source left out, whose changes the log does not tell"
    )
    span = 9.0 + 23.0 / 24.0
    table = pl.read_csv("sources.csv")
    assert table["source"].to_list() == ["/a", "/b"]
    assert table["request_rate"].to_list() == pytest.approx([240.5 / span, 10.5 / span])
    assert table["change_rate"][0] > 5.0 * table["change_rate"][1]
    solving = ("solve", "sources.csv", "--objective", "binary", "--refresh", "on-request")
    told = run(*solving, "--bandwidth", "3/day", "--out", "lifetimes.csv").output
    assert "of requests find a fresh copy, weighted by importance" in " ".join(told.split())
    rates = pl.read_csv("lifetimes.csv")
    expected = 1.0 / rates["rate"] - 1.0 / table["request_rate"]
    assert rates["lifetime"].to_list() == pytest.approx(expected.to_list())
    shown = fields(run("schedule", "lifetimes.csv", "--format", "cache-control", "--out", "headers").output)
    assert shown["format"].startswith("cache-control: 2 sources with a lifetime")
    assert (
        "lifetimes are rounded up" in " ".join(shown["total rate"].split())
        or "planned" in shown["total rate"]
    )
    seconds = np.ceil(rates["lifetime"].to_numpy() * 86_400.0 * (1.0 - 1e-9)).astype(int)
    assert Path("headers").read_text() == f"/a\tmax-age={seconds[0]}\n/b\tmax-age={seconds[1]}\n"


def test_a_source_without_requests_has_half_of_one(run: Run) -> None:
    write_logs()
    Path("edge.csv").write_text("source,time\n/a,2026-01-01\n/a,2026-01-11\n")
    words = fields(run("estimate", "origin.log", "--requests", "edge.csv", "--out", "sources.csv").output)
    assert words["requests"] == "2 requests of 1 source in edge.csv; 1 source without any"
    assert pl.read_csv("sources.csv")["request_rate"].to_list() == pytest.approx([0.25, 0.05])


PLAN = ("lifetimes", "origin.log", "--objective", "binary", "--bandwidth", "3/day")
EARLIER = ("plan", "origin.log", "--refresh", "on-request", *PLAN[2:])


def test_a_plan_of_lifetimes_in_one_go(run: Run) -> None:
    """The numbers of `estimate`, `solve` and `schedule`, one after the other."""
    write_logs()
    wide = ("--requests", "edge.log", "--format", "cache-control", "--csv", "--out", "plan")
    told = run(*PLAN, *wide).stdout
    rows = fields(told)
    assert rows["requests"].endswith("1 source left out, whose changes the log does not tell")
    assert rows["bandwidth"] == "3 of 3 fetches per day used"
    assert "of requests find a fresh copy (" in rows["requests see"]
    assert rows["certificate"].startswith("optimal")
    files = "change_rates.csv, lifetimes.csv, per_source.csv, summary.json, report.html, cache-control.tsv"
    assert f"wrote {files}, lifetimes.toml to plan" in told
    again = run(*EARLIER, *wide[:-1], "earlier")
    assert "--refresh on-request is now a command of its own, freshopt lifetimes" in again.stderr
    run("lifetimes", "--config", "plan/lifetimes.toml", "--out", "repeated")
    for folder in ("earlier", "repeated"):
        assert Path(folder, "lifetimes.csv").read_bytes() == Path("plan/lifetimes.csv").read_bytes()
    run("estimate", "origin.log", "--requests", "edge.log", "--out", "sources.csv")
    solving = ("solve", "sources.csv", "--objective", "binary", "--refresh", "on-request")
    run(*solving, "--bandwidth", "3/day", "--out", "lifetimes.csv")
    run("schedule", "lifetimes.csv", "--format", "cache-control", "--out", "headers")
    assert Path("plan/lifetimes.csv").read_bytes() == Path("lifetimes.csv").read_bytes()
    assert Path("plan/cache-control.tsv").read_bytes() == Path("headers").read_bytes()
    run("schedule", "plan", "--format", "cache-control", "--out", "of-folder")
    assert Path("of-folder").read_bytes() == Path("headers").read_bytes()
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["relative_gap"] < 1e-9
    assert facts["requests_see_fresh"]["over time"] < facts["requests_see_fresh"]["plan"]
    assert facts["requests_see_fresh"]["one lifetime for all"] <= facts["requests_see_fresh"]["plan"]
    # Another format takes the place of the first; without --requests the lines of LOG are the requests.
    shown = run(*PLAN, "--format", "redis", "--csv", "--out", "plan", "--overwrite").stdout
    assert "each line of LOG is a request" in fields(shown)["requests"]
    assert sorted(path.name for path in Path("plan").iterdir()) == [
        "change_rates.csv",
        "expire.redis",
        "lifetimes.csv",
        "lifetimes.toml",
        "per_source.csv",
        "report.html",
        "summary.json",
    ]
    page = Path("plan/report.html").read_bytes()
    refuse(Path("plan"), ["report", "plan"], ("plan/report.html already exists", "--overwrite"))
    assert "wrote plan/report.html" in run("report", "plan", "--overwrite").stdout
    assert Path("plan/report.html").read_bytes() == page


REFUSED = refusals(
    """
EARLIER --horizon 7d -> --horizon does not go with --refresh on-request
plan origin.log --refresh on-request --out y -> fetches that the cache may make | --freshness 99%
EARLIER --replay -> --replay does not go with --refresh on-request
EARLIER --engine dask -> --engine dask does not go with --refresh on-request
EARLIER --retry-at-once -> --retry-at-once does not go with
lifetimes origin.log --out y -> '--bandwidth' (fetches that the cache may make) or '--freshness'
plan origin.log --bandwidth 3 --format redis --out y
    -> --requests, --format and --stale-while-revalidate are for
PLAN --stale-while-revalidate often -> --stale-while-revalidate: 'often' cannot be read
PLAN --stale-while-revalidate 30s --format redis -> Redis has none for each source
lifetimes --example debian-uploads --objective binary --bandwidth 3/day --out y
    -> how often each source is requested
SOLVE unasked.csv --objective binary -> freshopt estimate --requests
SOLVE asked.csv --objective binary -> request_rate out of range
SOLVE asked.csv --objective penalty-sqrt -> Error:
schedule rates.csv --format redis --out y -> 'lifetime'
schedule lifetimes.csv --format crontab --out y -> format of caches
schedule lifetimes.csv --format nginx --horizon 7d --out y -> --horizon is for
schedule empty --format nginx --out y -> holds no table lifetimes. Name the folder of freshopt lifetimes, or
""",
    EARLIER=" ".join((*EARLIER, "--out", "y")),
    PLAN=" ".join((*PLAN, "--out", "y")),
    SOLVE="solve --refresh on-request --bandwidth 1/day --out x.csv",
)


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_refused(arguments: tuple[str, ...], words: tuple[str, ...], folder: Path) -> None:
    write_logs()
    Path("unasked.csv").write_text("source,change_rate\na,1\nb,2\n")
    Path("asked.csv").write_text("source,change_rate,request_rate\na,1,-2\nb,2,1\n")
    Path("lifetimes.csv").write_text("source,rate,lifetime\na,1,0.5\n")
    Path("empty").mkdir()
    refuse(folder, arguments, words)

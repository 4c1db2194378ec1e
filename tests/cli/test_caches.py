"""From access logs to the lifetimes of a cache: `estimate`, `solve`, `schedule`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.ground_truth.command_lines import Run, fields, refuse

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


PLAN = ("plan", "origin.log", "--refresh", "on-request", "--objective", "binary", "--bandwidth", "3/day")


def test_a_plan_of_lifetimes_in_one_go(run: Run) -> None:
    """The numbers of `estimate`, `solve` and `schedule`, one after the other."""
    write_logs()
    wide = ("--requests", "edge.log", "--format", "cache-control", "--csv", "--out", "plan")
    told = run(*PLAN, *wide).stdout
    rows = fields(told)
    assert rows["requests"].endswith("1 source left out, whose changes the log does not tell")
    assert rows["bandwidth"] == "3 of 3 fetches per day used"
    assert "fresh copies, by importance; one lifetime for all" in rows["requests see"]
    assert rows["certificate"].startswith("optimal")
    files = "change_rates.csv, lifetimes.csv, per_source.csv, summary.json, report.html, cache-control.tsv"
    assert f"wrote {files} to plan" in told
    run("estimate", "origin.log", "--requests", "edge.log", "--out", "sources.csv")
    solving = ("solve", "sources.csv", "--objective", "binary", "--refresh", "on-request")
    run(*solving, "--bandwidth", "3/day", "--out", "lifetimes.csv")
    run("schedule", "lifetimes.csv", "--format", "cache-control", "--out", "headers")
    assert Path("plan/lifetimes.csv").read_bytes() == Path("lifetimes.csv").read_bytes()
    assert Path("plan/cache-control.tsv").read_bytes() == Path("headers").read_bytes()
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["relative_gap"] < 1e-9
    assert facts["requests_see_fresh"]["over time"] < facts["requests_see_fresh"]["plan"]
    assert facts["requests_see_fresh"]["one lifetime for all"] <= facts["requests_see_fresh"]["plan"]
    # Another format takes the place of the first; without --requests the lines of LOG are the requests.
    again = run(*PLAN, "--format", "redis", "--csv", "--out", "plan", "--overwrite").stdout
    assert "each line of LOG is a request" in fields(again)["requests"]
    assert sorted(path.name for path in Path("plan").iterdir()) == [
        "change_rates.csv",
        "expire.redis",
        "lifetimes.csv",
        "per_source.csv",
        "report.html",
        "summary.json",
    ]
    page = Path("plan/report.html").read_bytes()
    assert "wrote plan/report.html" in run("report", "plan").stdout
    assert Path("plan/report.html").read_bytes() == page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*PLAN, "--horizon", "7d", "--out", "y"), "--horizon does not go with --refresh on-request"),
        ((*PLAN, "--replay", "--out", "y"), "--replay does not go with --refresh on-request"),
        ((*PLAN, "--engine", "dask", "--out", "y"), "--engine dask does not go with --refresh on-request"),
        ((*PLAN, "--retry-at-once", "--out", "y"), "--retry-at-once does not go with"),
        (("plan", "origin.log", "--bandwidth", "3/day", "--out", "y"), "Missing option '--horizon'"),
        (
            (*PLAN[:2], "--bandwidth", "3", "--horizon", "7d", "--format", "redis", "--out", "y"),
            "--requests, --format and --stale-while-revalidate are for",
        ),
        (
            (*PLAN, "--stale-while-revalidate", "often", "--out", "y"),
            "--stale-while-revalidate: 'often' cannot be read",
        ),
        (
            (*PLAN, "--stale-while-revalidate", "30s", "--format", "redis", "--out", "y"),
            "Redis has none for each source",
        ),
        (
            ("plan", "--example", "debian-uploads", *PLAN[2:], "--out", "y"),
            "how often each source is requested",
        ),
    ],
)
def test_refused_plans(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_logs()
    refuse(tmp_path, arguments, [words])


SOLVE = ("solve", "sources.csv", "--refresh", "on-request", "--bandwidth", "1/day", "--out", "x.csv")
ASKED = "source,change_rate,request_rate\na,1,-2\nb,2,1\n"
LIFE = "source,rate,lifetime\na,1,0.5\n"


@pytest.mark.parametrize(
    ("table", "arguments", "words"),
    [
        ("source,change_rate\na,1\nb,2\n", (*SOLVE, "--objective", "binary"), "freshopt estimate --requests"),
        (ASKED, (*SOLVE, "--objective", "binary"), "request_rate out of range"),
        (ASKED, (*SOLVE, "--objective", "penalty-sqrt"), "Error: "),
        ("source,rate\na,1\n", ("schedule", "sources.csv", "--format", "redis", "--out", "y"), "'lifetime'"),
        (LIFE, ("schedule", "sources.csv", "--format", "crontab", "--out", "y"), "format of caches"),
        (
            LIFE,
            ("schedule", "sources.csv", "--format", "nginx", "--horizon", "7d", "--out", "y"),
            "--horizon is for",
        ),
    ],
)
def test_refusals(
    table: str, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sources.csv").write_text(table)
    refuse(tmp_path, arguments, [words])

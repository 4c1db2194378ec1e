"""`freshopt schedule --method counts` and `--method slots`, and what they refuse."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from freshopt.scheduling.integer_counts import crawl_counts
from tests.ground_truth.command_lines import Run, fields, refusals, refuse

SOURCES = "source,change_rate,importance\na,1,1\nb,4,2\nc,0.1,5\n"


def test_counts_and_slots(run: Run) -> None:
    Path("rates.csv").write_text("source,rate\na,1\nb,4\nc,0.5\n")
    Path("sources.csv").write_text(SOURCES)
    Path("hosts.csv").write_text("source,host\na,x\nb,x\nc,y\n")
    counts = ("--method", "counts", "--sources", "sources.csv", "--objective", "binary")
    run("schedule", "rates.csv", *counts, "--horizon", "4d", "--out", "counts.csv")
    known = fo.Sources([1.0, 4.0, 0.1], [1.0, 2.0, 5.0])
    best = crawl_counts(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), known, bandwidth=5.5), 4.0)
    found = pl.read_csv("counts.csv")["source"].value_counts()
    assert dict(found.iter_rows()) == dict(zip("abc", best.tolist(), strict=True))

    how = ("--method", "slots", "--slot", "1h", "--crawlers", "2", "--hosts", "hosts.csv", "--per-host", "1")
    nights = ("--blackout", "22:00-06:00", "--blackout", "8h..9h@y", "--min-gap", "2h")
    start = ("--start", "2026-03-01T04:00Z", "--horizon", "3d")
    shown = fields(run("schedule", "rates.csv", *how, *nights, *start, "--out", "slots.csv").output)
    told = re.match(r"crawls moved by ([\d.]+) hours on average, by ([\d.]+) hours at most", shown["slots"])
    assert told
    frame = pl.read_csv("slots.csv", try_parse_dates=True)
    assert frame["timestamp"].dt.hour().is_between(6, 21).all()
    x = frame.filter(pl.col("source") != "c")["time"].to_numpy()
    assert np.diff(x).min() >= 2 / 24 - 1e-9
    plain = ("schedule", "rates.csv", "--horizon", "3d", "--out", "plain.csv")
    run(*plain)
    wanted = pl.read_csv("plain.csv")
    assert sorted(frame["source"].to_list()) == sorted(wanted["source"].to_list())
    moved = max(
        np.abs(frame.filter(source=k)["time"].to_numpy() - wanted.filter(source=k)["time"].to_numpy()).max()
        for k in "abc"
    )
    assert float(told[2]) == pytest.approx(24 * moved, rel=0.3)  # crawls of one host may swap their request
    room = ("--method", "slots", "--slot", "1h", "--crawlers", "99")
    shown = fields(run("schedule", "rates.csv", *room, "--horizon", "3d", "--out", "free.csv").output)
    assert shown["slots"] == "every crawl is in its preferred slot"


REFUSED = refusals(
    """
TIMES --slot 1h -> --slot is for --method slots, not for periodic
TIMES --method counts -> --method counts needs change rates | --sources
TIMES --method slots --slot 1h -> --crawlers
TIMES --method slots --crawlers 1 -> --slot
SLOTS --sources sources.csv -> --sources is for --method greedy, counts, not for slots
SLOTS --per-host 1 -> --per-host needs to know the hosts | --hosts
SLOTS --blackout 5-6 -> --blackout: '5-6' is no window | 22:00-06:00
SLOTS --blackout 26:00-06:00 -> --blackout: '26:00-06:00' is no time of day
SLOTS --blackout 3h..2h -> ends before it begins
SLOTS --blackout 2h..3h@z -> names the host 'z' | --hosts
SLOTS --min-gap x -> --min-gap: 'x'
SLOTS --blackout 00:00-23:00 -> too many crawls of 'all sources' | room for 2
SLOTS --hosts hosts.csv -> no host for 'c'
schedule rates.csv --format nutch --slot 1h --out n -> --slot is for --format
""",
    TIMES="schedule rates.csv --horizon 2d --out o.csv",
    SLOTS="schedule rates.csv --horizon 2d --out o.csv --method slots --slot 1h --crawlers 1",
)


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_refused(arguments: tuple[str, ...], words: tuple[str, ...], folder: Path) -> None:
    Path("rates.csv").write_text("source,rate\na,1\nb,4\nc,0.5\n")
    Path("sources.csv").write_text(SOURCES)
    Path("hosts.csv").write_text("source,host\na,x\nb,x\n")
    refuse(folder, arguments, words)

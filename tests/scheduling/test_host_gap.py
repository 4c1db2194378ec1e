"""Schedules whose refreshes of one host keep their distance."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.scheduling import PoissonArrivals, with_host_gap

METHODS = [fo.scheduling.Periodic(), PoissonArrivals(seed=3), fo.scheduling.Carousel()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("seed", range(8))
def test_gaps_of_hosts_and_of_sources_are_kept(method: fo.scheduling.Periodic, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, horizon = int(rng.integers(2, 40)), float(rng.uniform(1.0, 5.0))
    rates = rng.gamma(0.5, 4.0, n)
    host = np.array([(None, "a", "b", "", "c")[k] for k in rng.integers(0, 5, n)], dtype=object)
    made = fo.schedule({k: float(rate) for k, rate in enumerate(rates)}, horizon, method)
    busiest = max(sum(made.counts[k] for k in range(n) if host[k] == name) for name in "abc")
    # Up to nine tenths of what fits at the longest gaps.
    gap = float(rng.uniform(0.05, 0.9)) * horizon / 1.5 / max(busiest, 1)
    moved = with_host_gap(made, host, gap, seed=seed)
    assert np.array_equal(moved.counts, made.counts)
    where = {name: [k for k in range(n) if host[k] == name] for name in "abc"}
    for own in where.values():
        times = moved.time[np.isin(moved.source, own)]
        gaps = np.diff(times)
        assert np.all(gaps >= gap * (1.0 - 1e-9))
    for k in range(n):
        if not host[k]:
            assert np.array_equal(moved.time[moved.source == k], made.time[made.source == k])
    # Jitter: gaps that were too short are not all alike.
    short = np.concatenate([np.diff(moved.time[np.isin(moved.source, own)]) for own in where.values()])
    tight = short[short < 1.49 * gap]
    assert len(tight) < 10 or np.std(tight) > 0.05 * gap


@pytest.mark.parametrize("seed", range(4))
def test_what_is_moved_keeps_to_max_rates(seed: int) -> None:
    """Sources at their max_rate are refreshed at their shortest gap before, and no sooner after."""
    rng = np.random.default_rng(seed)
    n = 12
    rates = rng.uniform(0.5, 3.0, n)
    most = np.where(rng.random(n) < 0.7, rates, np.inf)
    made = fo.schedule({k: float(rate) for k, rate in enumerate(rates)}, 10.0)
    moved = with_host_gap(made, ["a"] * n, 0.5 / rates.sum() / 1.5, max_rate=most)
    assert len(moved) > 0.9 * len(made)
    for k in np.flatnonzero(np.isfinite(most)):
        own = moved.time[moved.source == k]
        assert all(later - before >= (1.0 - 1e-9) / most[k] for before, later in pairwise(own.tolist()))


def test_what_does_not_fit_is_refused() -> None:
    made = fo.schedule({"x": 10.0, "y": 10.0}, 2.0)
    with pytest.raises(fo.InfeasibleProblemError, match=r"40 refreshes of host 'a' in 2 days do not fit"):
        with_host_gap(made, ["a", "a"], 0.1)
    with pytest.raises(fo.SourceDataError, match=r"for 2 sources\. Pass one host each"):
        with_host_gap(made, ["a"], 0.1)
    with pytest.raises(fo.SourceDataError, match="gap is -1"):
        with_host_gap(made, ["a", "a"], -1.0)
    assert np.array_equal(with_host_gap(made, ["a", "a"], 0.0).time, made.time)


def test_commands_keep_the_gap(tmp_path: Path) -> None:
    """`plan` and `schedule`, with hosts of the URLs or of a table."""
    urls = [f"http://{host}.example/{k}" for host in "ab" for k in range(4)]
    rows = [
        f"{url},{0.3 * k + 0.01 * i},{(k + i) % 3 == 0:d}" for i, url in enumerate(urls) for k in range(20)
    ]
    (tmp_path / "log.csv").write_text("source,time,changed\n" + "\n".join(rows) + "\n")
    how = ["--bandwidth", "100/day", "--horizon", "1d", "--draws", "0", "--csv", "--host-gap", "12min"]
    job = ["plan", str(tmp_path / "log.csv"), *how, "--out", str(tmp_path / "plan")]
    done = CliRunner().invoke(main, job)
    assert done.exit_code == 0, done.output
    out = str(tmp_path / "times.csv")
    words = ["schedule", str(tmp_path / "plan"), "--horizon", "1d", "--host-gap", "12min", "--out", out]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "12 minutes at least between two refreshes of one" in done.output
    for name in ("plan/schedule.csv", "times.csv"):
        table = pl.read_csv(tmp_path / name)
        assert len(table) > 90
        for host in "ab":
            own = table.filter(pl.col("source").str.contains(f"//{host}."))["time"].to_numpy()
            assert np.min(np.diff(own)) >= 12.0 / 1440.0 * (1.0 - 1e-9)
    hosts = tmp_path / "hosts.csv"
    hosts.write_text("source,host\n" + "\n".join(f"{url},one" for url in urls) + "\n")
    done = CliRunner().invoke(main, [*words, "--hosts", str(hosts), "--overwrite"])
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert "refreshes of host 'one' in 1 day do not fit with gaps of 12 minutes" in done.output
    slots = [*words, "--method", "slots", "--slot", "1min", "--crawlers", "9", "--overwrite"]
    assert "has --min-gap" in CliRunner().invoke(main, slots).output

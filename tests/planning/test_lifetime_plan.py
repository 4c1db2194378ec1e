"""Plans of lifetimes: what requests see, by replay and event by event; refusals."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from freshopt.tools import CacheControl, Nginx
from tests.ground_truth.refusals import present, refused

FRESH = BinaryFreshness(fo.Refresh.ON_REQUEST)
DAY = 86_400.0


def logs(folder: Path, n: int = 8, days: float = 40.0) -> tuple[Path, Path]:
    """Write what a cache with lifetimes of 5 hours fetched, and who asked it; seeded."""
    rng = np.random.default_rng(6)
    fetched: list[tuple[str, float, int]] = []
    asked: list[tuple[str, float]] = []
    for k in range(n):
        change, request = 10.0 ** rng.uniform(-1.0, 0.7), 10.0 ** rng.uniform(0.0, 1.3)
        changes = np.sort(rng.uniform(0.0, days, rng.poisson(change * days)))
        last = -math.inf
        for time in np.sort(rng.uniform(0.0, days, rng.poisson(request * days))).tolist():
            asked.append((f"/{k}", time))
            if time > last + 5.0 / 24.0:
                changed = np.searchsorted(changes, time) > np.searchsorted(changes, last)
                fetched.append((f"/{k}", time, 200 if changed else 304))
                last = time
    pl.DataFrame(fetched, schema=["source", "time", "status"], orient="row").write_csv(folder / "origin.csv")
    pl.DataFrame(asked, schema=["source", "time"], orient="row").write_csv(folder / "edge.csv")
    return folder / "origin.csv", folder / "edge.csv"


def test_requests_see_what_is_predicted(tmp_path: Path) -> None:
    """Of the file that a cache loads, request by request, by a loop that knows no formula."""
    origin, edge = logs(tmp_path)
    made = fo.plan_lifetimes(origin, edge, "30/day", objective=FRESH)
    made.write(tmp_path / "plan", CacheControl())
    lines = (tmp_path / "plan" / "cache-control.tsv").read_text().splitlines()
    life = {line.split("\t")[0]: int(line.split("max-age=")[1]) / DAY for line in lines}
    rng, fetches = np.random.default_rng(9), 0
    shares, sizes = [], []
    days = 400.0
    for name, change, request in zip(
        present(made.sources.names).tolist(), made.sources.change_rate, made.sources.asked, strict=True
    ):
        # Batches of days are as good as independent.
        changes = np.sort(rng.uniform(0.0, days, rng.poisson(change * days)))
        times = np.sort(rng.uniform(0.0, days, rng.poisson(request * days)))
        seen = np.searchsorted(changes, times)
        fresh, copy, until = np.zeros(len(times)), 0, -math.inf
        for k, (time, version) in enumerate(zip(times.tolist(), seen.tolist(), strict=True)):
            if time >= until:
                copy, until, fetches = version, time + life.get(name, math.inf), fetches + 1
            fresh[k] = copy == version
        batch = (times // 10.0).astype(int)
        shares.append(np.bincount(batch, fresh, minlength=40))
        sizes.append(np.bincount(batch, minlength=40))
    found, many = np.sum(shares, axis=0), np.sum(sizes, axis=0)
    mean = float(found.sum() / many.sum())
    error = float(np.std(found - mean * many, ddof=1)) * math.sqrt(40.0) / float(many.sum())
    assert abs(mean - made.fresh()["plan"]) < 3.0 * error
    assert fetches / days == pytest.approx(30.0, abs=3.0 * math.sqrt(30.0 / days))


def test_replay_counts_what_the_plan_says(tmp_path: Path) -> None:
    made = fo.plan_lifetimes(*logs(tmp_path), 30.0, objective=FRESH)
    found = fo.replay(made.solution, fo.World.on_request(made.sources, seed=3), skip=20.0, end=220.0)
    weight = float(np.sum(made.sources.importance))
    fresh = made.fresh()
    measured = found.costs["binary"]
    assert abs(measured.mean - fresh["plan"]) < 3.0 * measured.error / weight
    over = found.time_average["binary"]
    assert abs(over.mean - fresh["over time"]) < 3.0 * over.error / weight
    assert fresh["plan"] > max(fresh[rule] for rule in made.rules)


def test_windows_are_planned_for(tmp_path: Path) -> None:
    asked = {"objective": FRESH, "stale_while_revalidate": "2h"}
    made = fo.plan_lifetimes(*logs(tmp_path), 30.0, **asked)  # type: ignore[arg-type]
    own = fo.Sources(
        made.sources.change_rate, request_rate=made.sources.asked, stale_while_revalidate=2.0 / 24.0
    )
    alone = fo.solve(fo.Problem(FRESH, own, 30.0))
    assert made.solution.rates == pytest.approx(alone.rates, rel=1e-9)
    found = fo.replay(made.solution, fo.World.on_request(made.sources, seed=3), skip=20.0, end=220.0)
    measured = found.costs["binary"]
    assert abs(measured.mean - made.fresh()["plan"]) < 3.0 * measured.error / float(np.sum(own.importance))
    without = fo.plan_lifetimes(tmp_path / "origin.csv", tmp_path / "edge.csv", 30.0, objective=FRESH)
    assert made.fresh()["plan"] < without.fresh()["plan"]
    assert dict(made.rows())["expired"] == "copies are served for up to 2 hours while they are fetched"
    made.write(tmp_path / "plan", CacheControl())
    lines = (tmp_path / "plan" / "cache-control.tsv").read_text().splitlines()
    assert all(line.endswith(", stale-while-revalidate=7200") for line in lines)
    page = (tmp_path / "plan" / "report.html").read_text()
    assert "An expired copy is served as it is for up to 2 hours while it is fetched" in page
    refused(r"nginx's X-Accel-Expires has none", made.write, tmp_path / "other", Nginx())
    with pytest.raises(fo.SourceDataError, match=r"stale_while_revalidate: 'often' cannot be read"):
        fo.plan_lifetimes(
            tmp_path / "origin.csv", tmp_path / "edge.csv", 30.0, stale_while_revalidate="often"
        )


def test_the_least_fetches_for_a_freshness(tmp_path: Path) -> None:
    origin, edge = logs(tmp_path)
    made = fo.plan_lifetimes(origin, edge, None, freshness="95%")
    assert made.fresh()["plan"] == pytest.approx(0.95, rel=1e-9)
    # A little less does not do, and the plan within that bandwidth is this one.
    less = fo.plan_lifetimes(origin, edge, made.solution.bandwidth_used * (1.0 - 1e-6), objective=FRESH)
    assert less.fresh()["plan"] < 0.95
    assert less.solution.rates == pytest.approx(made.solution.rates, rel=1e-3)
    assert dict(made.rows())["saving"].startswith("95 % fresh needs ")
    assert made.facts()["needed"]["at_least"] <= made.solution.bandwidth_used * (1.0 + 1e-9)
    for words, more in (
        (r"does not tell the lifetimes of today", {"freshness": "as today"}),
        (r"freshness 1.0 is not between 0 and 100 %", {"freshness": 1.0}),
        (r"stands in place of bandwidth", {"freshness": 0.9, "bandwidth": 3.0}),
        (r"max_rate everywhere gives .* of requests a fresh copy", {"freshness": 0.99, "max_rate": 0.1}),
    ):
        refused(words, fo.plan_lifetimes, origin, edge, error=fo.FreshoptError, **{"bandwidth": None, **more})
    with pytest.raises(fo.SourceDataError, match=r"finds the least bandwidth"):
        fo.plan_lifetimes(origin, edge, None, freshness=0.9, objective=fo.problems.Age(fo.Refresh.ON_REQUEST))


@pytest.mark.parametrize("scale", [1e-6, 1e4])
@pytest.mark.parametrize("share", [1e-3, 0.5, 20.0])
def test_ill_scaled_requests(scale: float, share: float) -> None:
    log = fo.CrawlLog(["a"] * 4 + ["b"] * 4, [0, 1, 2, 3] * 2, [0, 1, 1, 0, 0, 0, 0, 1])
    made = fo.plan_lifetimes(log, {"a": scale, "b": 3.0}, share * (scale + 3.0), objective=FRESH)
    assert present(made.solution.certificate).relative_gap < 1e-9
    assert made.solution.bandwidth_used <= share * (scale + 3.0) * (1.0 + 1e-12)
    assert all(0.0 <= each <= 1.0 for each in made.fresh().values())
    assert dict(made.rows())["certificate"].startswith("optimal")


def test_plans_of_the_other_kind_are_refused() -> None:
    log = fo.CrawlLog(["a"] * 3, [0, 1, 2], [0, 1, 0])
    with pytest.raises(fo.ObjectiveError, match=r"lifetimes and no schedule. Use freshopt.plan_lifetimes"):
        fo.plan(log, 1.0, "7d", objective=FRESH)
    with pytest.raises(fo.ObjectiveError, match=r"is of periodic refreshes"):
        fo.plan_lifetimes(log, {"a": 1.0}, 1.0, objective=BinaryFreshness(fo.Refresh.PERIODIC))
    refused(r"requests is None. Pass the log of who asks", fo.plan_lifetimes, log, None, 1.0)
    with pytest.raises(TypeError, match=r"Pass a format of caches"):
        fo.plan_lifetimes(log, {"a": 1.0}, 1.0).write("unwritten", "redis")  # type: ignore[arg-type]
    refused(r"there is no request_rate for 'a'", fo.plan_lifetimes, log, {"b": 1.0}, 1.0)
    refused(r"request_rate", fo.plan_lifetimes, log, {"a": -1.0}, 1.0)

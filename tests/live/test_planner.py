"""A planner through its public calls: what it hands out, records, learns from contents, keeps and says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood
from freshopt.tools.live_planner import read_planner
from tests.ground_truth.refusals import present, refused

NAMES = [f"source {k}" for k in range(40)]


def crawl(planner: fo.Planner, begin: float, end: float, step: float = 0.1) -> dict[str, list[float]]:
    """Crawl what is due from time to time; sources with an even number change once a time unit."""
    times: dict[str, list[float]] = {name: [] for name in NAMES}
    last: dict[str, float] = {}
    for now in np.arange(begin, end, step).tolist():
        for visit in planner.due(now, limit=None):
            even = int(visit.source.split()[1]) % 2 == 0
            changed = even and np.floor(now) > np.floor(last.get(visit.source, -1.0))
            assert planner.observed(visit.source, now, bool(changed))
            last[visit.source] = now
            times[visit.source].append(now)
    return times


def test_an_empty_folder_becomes_a_plan(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "state", bandwidth="20/day", burst="1d") as planner:
        planner.add_many(NAMES)
        assert planner.due(0.0, limit=None)[0].source in NAMES
        times = crawl(planner, 0.05, 12.0, 0.2)
        status = planner.status(12.0)
        many = sum(map(len, times.values()))
        assert status.observations == many
        # The bandwidth is used, and never exceeded by more than one refresh.
        assert 0.9 * 240 < many <= 12.0 * 20 + 1
        moments = np.sort(np.concatenate([np.array(each) for each in times.values()]))
        ahead = np.arange(len(moments)) - 20.0 * moments
        assert np.max(ahead - np.minimum.accumulate(ahead)) <= 20.0 + 1.0
        rates = planner.to_frame()
        even = rates["source"].str.split(" ").list[1].cast(pl.Int64) % 2 == 0
        assert rates.filter(even)["rate"].min() > rates.filter(~even)["rate"].max()  # type: ignore[operator]
        assert status.relative_gap <= 0.01
        solution = planner.solution()
        assert solution.certificate is not None
        assert solution.certificate.relative_gap == pytest.approx(status.relative_gap, rel=1e-6, abs=1e-12)
        assert status.used == pytest.approx(20.0, rel=0.02)
        # Updates between re-solves lower what would add up to more than the bandwidth.
        assert status.used <= 20.0 * (1.0 + 1e-9)
        assert len(planner.log()) == many


def test_a_planner_goes_on_where_it_was(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=20.0, burst="1d") as planner:
        planner.add_many(NAMES)
        crawl(planner, 0.0, 5.0)
        before, log = planner.to_frame(), planner.log()
    with fo.Planner(tmp_path) as planner:
        assert planner.settings.bandwidth == 20.0
        assert planner.to_frame().equals(before)
        assert planner.log().time.tolist() == log.time.tolist()
    with fo.Planner(
        tmp_path, bandwidth=10.0, objective=fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
    ) as one:
        one.due(5.0)
        assert one.status().used == pytest.approx(10.0, rel=0.02)
    with fo.Planner(tmp_path) as planner:
        assert planner.settings.objective == fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)


def test_a_lease_is_nobody_elses_until_it_ends(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=10.0, lease=0.5, time_unit="hour") as planner:
        planner.add("a")
        (visit,) = planner.due(1.0)
        assert (visit.source, visit.until, visit.last_crawl) == ("a", 1.5, None)
        assert planner.due(1.4) == []
        assert [again.source for again in planner.due(1.5)] == ["a"]
        assert planner.release("a") == 1
        assert [again.source for again in planner.due(1.6)] == ["a"]
        # The first retry comes an eighth of a gap after a failure.
        planner.failed("a", 1.6)
        assert planner.due(1.612) == []
        assert [again.source for again in planner.due(1.71)] == ["a"]
        assert len(planner.log() if planner.observed("a", 1.71, False) else []) == 1


def test_an_observation_counts_once(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=10.0) as planner:
        planner.add_many(["a", "b"])
        assert planner.observed("a", 1.0, False)
        assert not planner.observed("a", 1.0, False)
        refused(r"'a' at 1.0 is recorded as unchanged, .* changed", planner.observed, "a", 1.0, True)
        refused(r"no source 'c'. Add it first", planner.observed_many, ["b", "c"], [2.0, 2.0], [1, 1])
        assert planner.observed_many(["a", "b", "b"], [1.0, 2.0, 3.0], [0, 1, 0]) == 2
        # A report that comes late is sorted into the log, and the later crawl stays the latest.
        planner.observed("b", 1.5, False)
        log = planner.log()
        assert log.time.tolist() == [1.0, 1.5, 2.0, 3.0]
        assert planner.to_frame()["last_crawl"].to_list() == [1.0, 3.0]


def test_sources_come_and_go(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=10.0, burst="1d") as planner:
        planner.add_many(pl.DataFrame({"source": ["a", "b"], "importance": [1.0, 5.0]}))
        planner.due(0.0)
        planner.observed("b", 0.5, False)
        planner.remove("b")
        assert len(planner) == 1
        assert "b" not in planner
        assert {visit.source for visit in planner.due(3.0)} == {"a"}
        planner.add("b")
        assert planner.to_frame()["importance"].to_list() == [1.0, 5.0]
        assert {visit.source for visit in planner.due(4.0)} == {"a", "b"}
        refused(r"no source 'x'. Nothing was removed", planner.remove, "a", "x")
        assert "a" in planner


def test_dates_are_moments(tmp_path: Path) -> None:
    begin = datetime.now(UTC) - timedelta(days=3)
    with fo.Planner(tmp_path, bandwidth="24/day") as planner:
        planner.add("a")
        (visit,) = planner.due(begin)
        assert visit.due == begin
        planner.observed("a", begin.isoformat(), True, last_modified=begin - timedelta(hours=1))
        planner.observed("a", begin + timedelta(days=1), True, last_modified=begin + timedelta(days=2))
        log = planner.log()
        assert present(log.origin) + timedelta(days=float(log.time[0])) == pytest.approx(
            begin, abs=timedelta(microseconds=1)
        )
        assert [visit.source for visit in planner.due()] == ["a"]
        refused("more than a day ahead", planner.observed, "a", begin + timedelta(days=30), True)
        refused(r"time is a number, 5.0, but the planner's times are dates", planner.observed, "a", 5.0, True)


def test_a_source_that_is_down_is_tried_ever_less(tmp_path: Path) -> None:
    """The first retry comes an eighth of a gap after the first failure, and each silence doubles."""
    with fo.Planner(tmp_path, bandwidth=2.0, explore=0.0) as planner:
        planner.add_many(["down", "up"])
        planner.observed_many(["down", "up", "down", "up"], [0.0, 0.0, 1.0, 1.0], [0, 1, 0, 1])
        planner.replan(1.0)
        gap = 1.0 / float(planner.to_frame().filter(source="down")["rate"][0])
        # How long nobody asked before the first failure counts for nothing.
        first = at = 1.0 + 100.0 * gap
        silent, rates = [], []
        for _ in range(9):
            planner.observed("up", at, False)
            planner.failed("down", at)
            row = planner.to_frame().filter(source="down")
            at = float(row["next_due"][0])
            silent.append((at - first) / gap)
            rates.append(float(row["rate"][0]) * gap)
    assert np.allclose(silent, 0.125 * 2.0 ** np.arange(9.0))
    # After four gaps the rate of its tries is in force.
    assert np.allclose(rates, [1.0] * 6 + [0.25, 0.125, 0.0625])


def test_while_nothing_answers_waits_do_not_grow(tmp_path: Path) -> None:
    """It is the crawler that has no network: for as long as that is so all are tried, after four gaps."""
    with fo.Planner(tmp_path, bandwidth=2.0, explore=0.0) as planner:
        planner.add_many(["a", "b"])
        planner.observed_many(["a", "b", "a", "b"], [0.0, 0.0, 1.0, 1.0], [0, 1, 0, 1])
        planner.replan(1.0)
        gap = {name: 1.0 / rate for name, rate in planner.to_frame().select("source", "rate").iter_rows()}
        at = dict.fromkeys(gap, 2.0)
        while at["a"] < 200.0:
            name = min(at, key=lambda each: at[each])
            planner.failed(name, at[name])
            due = float(planner.to_frame().filter(source=name)["next_due"][0])
            assert due - at[name] <= 4.0 * gap[name] * (1.0 + 1e-9)
            at[name] = due
        assert planner.status().down == 2
        planner.observed("a", at["a"], True)
        assert planner.status().down == 0


@pytest.fixture
def planner(tmp_path: Path) -> fo.Planner:
    found = fo.Planner(tmp_path / "state", bandwidth="2/day")
    found.add_many(["a", "b"])
    return found


def test_another_content_is_a_change(planner: fo.Planner) -> None:
    for time, seen in ((1.0, "x"), (2.0, "x"), (3.0, "y"), (4.0, "x")):
        assert planner.observed("a", time, content=seen)
    assert planner.log().changed.tolist() == [False, False, True, True]


def test_a_repeated_report_changes_nothing(planner: fo.Planner) -> None:
    planner.observed("a", 1.0, content="x")
    planner.observed("a", 2.0, content="y")
    assert not planner.observed("a", 2.0, content="y")
    assert planner.log().changed.tolist() == [False, True]
    planner.observed("a", 3.0, content="y")
    assert planner.log().changed.tolist() == [False, True, False]


def test_another_process_goes_on_with_what_was_seen(planner: fo.Planner, tmp_path: Path) -> None:
    planner.observed("a", 1.0, content="x")
    planner.close()
    with fo.Planner(tmp_path / "state") as again:
        visits = {visit.source: visit for visit in again.due(100.0, None)}
        assert visits["a"].content == "x"
        again.observed("a", 101.0, content="z")
        assert again.log().changed.tolist() == [False, True]


def test_what_cannot_be_compared_is_refused_and_nothing_kept(planner: fo.Planner) -> None:
    planner.observed("a", 4.0, content="x")
    with pytest.raises(
        fo.SourceDataError, match=r"the crawl of 'a' at 2.5 came before one that is recorded, at 4"
    ):
        planner.observed("a", 2.5, content="y")
    refused(r"there is no source 'q'", planner.observed, "q", 5.0, content="y")
    refused(r"changed and content of 'a' are both given", planner.observed, "a", 5.0, True, content="y")
    refused(r"content of 'a' is ''", planner.observed, "a", 5.0, content="")
    refused(r"changed of 'a' is None", planner.observed, "a", 5.0)
    planner.observed("a", 5.0, content="x")
    assert planner.log().changed.tolist() == [False, False]


def test_a_first_content_after_other_reports_is_no_evidence(planner: fo.Planner, tmp_path: Path) -> None:
    """Nobody knows whether it is what the crawl before saw: the gap between them is not unchanged."""
    planner.observed_many(["a"] * 3, [0.0, 1.0, 2.0], [False, True, True])
    assert planner.observed("a", 30.0, content="x")
    assert not planner.observed("a", 30.0, content="x")
    planner.observed("a", 31.0, content="x")
    planner.observed("a", 33.0, content="y")
    assert planner.status().changes_found == 3
    expected = [float("nan"), 1.0, 1.0, float("nan"), 1.0, 2.0]
    for log in (planner.log(), read_planner(tmp_path / "state")[0]):
        np.testing.assert_array_equal(log.interval, expected)
        assert log.changed.tolist() == [False, True, True, False, False, True]
        assert MaximumLikelihood().fit(log).change_rate_[0] > 0.5
    refused("not known to be changed or not", planner.observed, "a", 30.0, True)


def test_a_change_reported_without_content_forgets_what_was_seen(planner: fo.Planner) -> None:
    planner.observed("a", 1.0, content="x")
    planner.observed("a", 2.0, False)  # a 304, say: what was seen is still there
    planner.observed("a", 3.0, content="y")
    planner.observed("a", 4.0, True)
    planner.observed("a", 5.0, content="z")
    log = planner.log()
    assert log.changed.tolist() == [False, False, True, True, False]
    assert np.isnan(log.interval).tolist() == [True, False, False, False, True]

"""What a row says: one verdict for change rates, chances of success, the live planner and back-tests."""

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataWarning
from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.success_rates import SuccessRates
from freshopt.logs import log_files
from freshopt.logs import row_outcomes as rowwise
from freshopt.logs.log_files import log_hosts, may_have
from freshopt.logs.read_crawls import fetch_statuses, read_log
from freshopt.planning.failing_window import Statuses, recorded_attempts, with_failures
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.known_changes import known_changes
from freshopt.planning.wishes import BackTestWishes, Wishes
from freshopt.tools.live_planner import read_planner
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.row_evidence import Crawl, Row, crawls_of, fetch_of

STATUSES = ("", "200", "304", "503", "429", "0", "404", "301", "403")


def middle_rows() -> list[Row]:
    """Three crawls of each of 243 sources, all combinations of what the second can say."""
    rows = []
    combined = product(STATUSES, ("", "a", "b"), ("", "x", "y"), ("", "0", "1"))
    for k, (status, digest, tag, changed) in enumerate(combined):
        name = f"s{k:03d}"
        rows += [
            Row(name, 1.0, "200", "a", "x"),
            Row(name, 2.0, status, digest, tag, changed),
            Row(name, 4.0, "200", "a", "x"),
        ]
    return rows


def written(rows: Sequence[Row], path: Path, *without: str) -> Path:
    pl.DataFrame(rows, schema=Row._fields, orient="row").drop(without).write_csv(path)
    return path


def found(log: fo.CrawlLog) -> list[Crawl]:
    """The crawls of a log; the first of each source has no interval, whatever it says."""
    first = np.isin(np.arange(len(log)), log.offsets[:-1])
    rows = zip(
        log.names[log.source_index].tolist(),
        log.time.tolist(),
        log.interval,
        log.changed,
        first,
        strict=True,
    )
    return [
        Crawl(
            name, time, None if np.isnan(gap) else time - float(gap), None if np.isnan(gap) else bool(changed)
        )
        for name, time, gap, changed, _ in rows
    ]


def expected(rows: Sequence[Row]) -> list[Crawl]:
    """The crawls as a log has them: nothing is known of the time before one that nobody can compare."""
    return [
        each._replace(since=None, changed=None) if each.since is None or each.changed is None else each
        for each in crawls_of(rows)
    ]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    rows = middle_rows()
    return rows, written(rows, tmp_path_factory.mktemp("rows") / "log.csv")


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_estimates_learn_from_what_is_evidence(matrix: tuple[list[Row], Path]) -> None:
    rows, path = matrix
    log = read_log(path)
    assert found(log) == expected(rows)
    assert {each.changed for each in expected(rows)} == {None, False, True}


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
@pytest.mark.parametrize(
    "without", [("changed",), ("hash", "changed"), ("etag",), ("hash", "etag"), ("status",)]
)
def test_columns_that_are_not_there_say_nothing(
    matrix: tuple[list[Row], Path], without: tuple[str, ...], tmp_path: Path
) -> None:
    nothing: dict[str, Any] = dict.fromkeys(without, "")
    rows = [row._replace(**nothing) for row in matrix[0]]
    assert found(read_log(written(rows, tmp_path / "log.csv", *without))) == expected(rows)


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_chances_of_success_count_each_fetch_once(matrix: tuple[list[Row], Path]) -> None:
    rows, path = matrix
    told = present(fetch_statuses(path))
    chances = SuccessRates.from_statuses(*told)
    said = [(row.source, fetch_of(row)) for row in rows]
    for name, attempts, successes in zip(chances.sources_, chances.attempts, chances.successes, strict=True):
        own = [what for source, what in said if source == name]
        assert successes == own.count("success"), name
        assert attempts == own.count("success") + own.count("failure"), name
    # What is evidence was fetched.
    successful = {(row.source, row.time) for row in rows if fetch_of(row) == "success"}
    assert {(each.source, each.time) for each in crawls_of(rows)} <= successful


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_back_tests_replay_the_same_fetches(matrix: tuple[list[Row], Path]) -> None:
    rows, path = matrix
    log, told = read_log(path), fetch_statuses(path)
    statuses = Statuses.of(*present(told))
    window = HeldOutWindow.of(log, known_changes(log), 1.5, 4.0)
    asked = Wishes.of(log, {"bandwidth": 9.0}, BackTestWishes)
    outcomes = present(with_failures(window, asked, statuses)[0].outcomes)
    replayed = zip(
        log.names[outcomes.source].tolist(), outcomes.time.tolist(), outcomes.succeeded, strict=True
    )
    said = [(row.source, row.time, fetch_of(row)) for row in rows]
    assert list(replayed) == [
        (*row, what == "success") for *row, what in said if what in ("success", "failure")
    ]
    later = [source for source, time, what in said if time > 1.5 and what in ("success", "failure")]
    many = recorded_attempts(window, statuses)
    assert many.tolist() == [later.count(name) for name in log.names.tolist()]


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_a_live_planner_that_is_told_the_rows_has_the_same_log(
    matrix: tuple[list[Row], Path], tmp_path: Path
) -> None:
    """By a crawler that reports failures as such, hashes as contents, and the rest as it knows it."""
    rows = [row._replace(etag="") for row in matrix[0]]
    rows = [row for row in rows if row.status in ("", "200", "304", "503", "0")]
    rows = [row for row in rows if not (row.hash and (row.changed or row.status == "304"))]
    rows = list({(row.source, row.time): row for row in rows}.values())
    path = written(rows, tmp_path / "log.csv", "etag")
    with fo.Planner(tmp_path / "state", bandwidth="9/day") as planner:
        planner.add_many(sorted({row.source for row in rows}))
        for row in rows:
            told = row.changed or ("0" if row.status == "304" else "")
            if fetch_of(row) == "failure":
                planner.failed(row.source, row.time)
            elif told:
                planner.observed(row.source, row.time, told == "1")
            elif row.hash:
                planner.observed(row.source, row.time, content=row.hash)
        live = found(planner.log())
    assert found(read_planner(tmp_path / "state")[0]) == live
    told_of = {(each.source, each.time): each.changed for each in live}
    for each in found(read_log(path)):
        # After a flag the planner does not know what was seen; the log compares hashes across it.
        if told_of[each.source, each.time] is not None:
            assert told_of[each.source, each.time] == each.changed, each


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_long_logs_follow_the_same_rules(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [
        Row(
            f"s{rng.integers(9)}",
            float(time),
            str(rng.choice(["", "200", "304", "500"])),
            str(rng.choice(["", "aa", "bb"])),
            str(rng.choice(["", "x", "y"])),
            str(rng.choice(["", "", "", "0", "1"])),
        )
        for time in rng.permutation(900)
    ]
    assert found(read_log(written(rows, tmp_path / "log.csv"))) == expected(rows)
    plain = [row._replace(changed="") for row in rows]
    assert found(read_log(written(plain, tmp_path / "log.csv", "changed"))) == expected(plain)


def test_each_row_says_one_thing() -> None:
    told = {
        200.0: rowwise.UNKNOWN,
        304.0: rowwise.UNCHANGED,
        503.0: rowwise.FAILED,
        429.0: rowwise.FAILED,
        0.0: rowwise.FAILED,
        404.0: rowwise.GONE,
        410.0: rowwise.GONE,
        403.0: rowwise.ANSWERED,
        301.0: rowwise.ANSWERED,
        np.nan: rowwise.SILENT,
    }
    status, n = np.array(list(told)), len(told)
    hashes = pl.Series(["x" if code == 200.0 else None for code in told])
    found = rowwise.row_outcomes(
        np.arange(n, dtype=np.int32), np.zeros(n), status=status, seen={"hash": hashes}
    )
    assert found.outcome.tolist() == list(told.values())


def test_hashes_are_better_evidence_than_304(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("source,time,hash,status\na,0,x,200\na,1,y,304\na,2,z,304\na,3,,304\n")
    with pytest.warns(
        SourceDataWarning,
        match=r"304 .* another hash .* in 2 rows, such as row 2, line 3.*: each is a change",
    ):
        log = read_log(path)
    assert log.changed.tolist() == [False, True, True, False]
    path.write_text("source,time,etag,status\na,0,x,200\na,1,y,304\n")
    with pytest.warns(
        SourceDataWarning,
        match=r"304 .* another ETag .* in 1 row, such as row 2, line 3.*: each is no change",
    ):
        assert read_log(path).changed.tolist() == [False, False]


def test_sources_without_any_state_go_by_their_statuses_if_they_have_304(tmp_path: Path) -> None:
    rows = [Row("a", float(k), "200", digest) for k, digest in enumerate("xxy")]
    rows += [Row("b", float(k), status) for k, status in enumerate(("200", "200", "304", "503", "200"))]
    rows += [Row("c", float(k), "200") for k in range(3)]
    crawls = found(read_log(written(rows, tmp_path / "log.csv", "etag", "changed")))
    assert crawls == expected(rows)
    assert [each.changed for each in crawls if each.source == "b"] == [None, True, False, True]
    assert not any(each.source == "c" for each in crawls)


@pytest.mark.parametrize("absent", ["", "-", "null", "None", "NaN", '"  "'])
def test_what_stands_for_nothing_is_nothing(absent: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = f"a,0,x,200,\na,1,{absent},{absent},{absent}\na,2,y,{absent},{absent}\na,3,y,503,0\n"
    path.write_text(f"source,time,hash,status,changed\n{rows}")
    assert found(read_log(path)) == [Crawl("a", 0.0, None, None), Crawl("a", 2.0, 0.0, True)]
    told = present(fetch_statuses(path))
    assert told.status.tolist() == [200.0, 200.0, 503.0]


def test_statuses_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("source,time,hash,status\na,0,x,200\na,1,x,ERR_TIMED_OUT\na,2,,n/a\n")
    with pytest.warns(
        SourceDataWarning, match=r"status is no number in 2 rows, such as 'ERR_TIMED_OUT' in row 2"
    ):
        assert len(read_log(path)) == 2


def test_time_since_left_out_rows_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("source,time,elapsed,changed,status\na,1,1,1,200\na,2,1,0,503\na,4,2,0,200\na,5,1,,503\n")
    log = read_log(path)
    assert log.interval.tolist() == [1.0, 3.0]
    assert log.changed.tolist() == [True, False]


@pytest.mark.parametrize("head", ["changed", "hash", "status,hash"])
def test_rows_that_repeat_another_count_once(head: str, tmp_path: Path) -> None:
    cells = {"changed": ("0", "1"), "hash": ("x", "y"), "status,hash": ("200,x", "200,y")}[head]
    lines = [f"a,0,{cells[0]}", f"a,1,{cells[1]}", f"a,1,{cells[1]}", f"a,3,{cells[1]}", f"a,1,{cells[1]}"]
    path = file_with(tmp_path / "log.csv", "\n".join([f"source,time,{head}", *lines]))
    with pytest.warns(
        SourceDataWarning, match=r"(2 rows repeated|repeat another row in 2 rows).*row 3, line 4"
    ):
        log = read_log(path)
    assert log.time.tolist() == [0.0, 1.0, 3.0]
    assert log.changed.tolist() == [False, True, head == "changed"]
    path.write_text("\n".join([f"source,time,{head}", *lines[:2], f"a,1,{cells[0]}"]))
    refused(r"row 3, line 4 .* repeats the time of row 2, line 3", read_log, path)


def test_failed_fetches_in_dataframes_are_no_crawls() -> None:
    frame = pl.DataFrame(
        {
            "source": ["a"] * 5,
            "time": [0, 1, 2, 4, 4],
            "changed": [0, 1, 0, 1, 0],
            "status": [200, 503, 0, 304, 404],
        }
    )
    for told in (frame, frame.to_pandas(), frame.with_columns(pl.col("status").cast(pl.String)).to_arrow()):
        log = fo.CrawlLog.from_frame(told)
        assert (log.time.tolist(), log.changed.tolist()) == ([0.0, 4.0], [False, True])
    wrong = frame.with_columns(changed=pl.Series([0, 1, 0, 2, 0]))
    refused(r"changed is 2 in row 3\. Write 1", fo.CrawlLog.from_frame, wrong)
    assert fo.CrawlLog.from_frame(frame.with_columns(elapsed=1.0)).interval.tolist() == [1.0, 3.0]
    words = frame.head(1).with_columns(status=pl.lit("fetched"))
    with pytest.warns(SourceDataWarning, match="status is no number in 1 row, such as 'fetched' in row 0"):
        assert len(fo.CrawlLog.from_frame(words)) == 1


def test_an_empty_changed_is_no_evidence(tmp_path: Path) -> None:
    path = file_with(tmp_path / "log.csv", "source,time,changed\na,0,\na,1,1\na,2,\na,4,0\n")
    with pytest.warns(SourceDataWarning, match=r"not known whether .* in 1 row, such as row 3, line 4 .*'a'"):
        log = read_log(path)
    np.testing.assert_array_equal(log.interval, [np.nan, 1.0, np.nan, 2.0])
    assert log.crawl_rate.tolist() == [pytest.approx(2.0 / 3.0)]
    for frame in (pl.read_csv(path), pl.read_csv(path).to_pandas(), pl.read_csv(path).to_arrow()):
        with pytest.warns(SourceDataWarning, match="in 1 row, such as row 2"):
            np.testing.assert_array_equal(fo.CrawlLog.from_frame(frame).interval, log.interval)


def simulated(seed: int, path: Path) -> tuple[np.ndarray, float]:
    """A crawler's log: 60 pages for 200 days, a tenth of the fetches fail, and a third of the rows are lost.

    Its rows tell the hash of what the crawler has, also beside failures and 304.
    """
    rng = np.random.default_rng(seed)
    rates = rng.gamma(1.0, 0.4, 60)
    lines, fetches, lost = ["source,time,hash,status"], 0, 0
    for k, rate in enumerate(rates):
        state = had = 0
        for day in range(200):
            state += int(rng.poisson(rate))
            failed = day > 0 and rng.random() < 0.1
            status = "503" if failed else "304" if day and state == had else "200"
            had = had if failed else state
            if day and rng.random() < 1.0 / 3.0:
                continue
            fetches, lost = fetches + 1, lost + failed
            status = "" if status == "200" and rng.random() < 0.3 else status
            lines.append(f"p{k:02d},{day},h{had},{status}")
    path.write_text("\n".join(lines) + "\n")
    return rates, 1.0 - lost / fetches


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_rates_and_chances_of_a_simulated_crawl_are_recovered(tmp_path: Path) -> None:
    rates, share = simulated(3, tmp_path / "log.csv")
    log, told = read_log(tmp_path / "log.csv"), fetch_statuses(tmp_path / "log.csv")
    estimate = MaximumLikelihood().fit(log)
    lower, upper = estimate.interval(0.95)
    assert np.mean((lower <= rates) & (rates <= upper)) >= 0.88  # 0.95 of 60, less 2.5 standard errors
    assert estimate.change_rate_.sum() == pytest.approx(rates.sum(), rel=0.1)
    chances = SuccessRates.from_statuses(*present(told))
    assert chances.successes.sum() / chances.attempts.sum() == pytest.approx(share, rel=1e-12)


def test_hashes_of_two_kinds_are_not_compared(tmp_path: Path) -> None:
    for name, digests in (("1", ["a" * 32, "b" * 32]), ("2", ["c" * 64, "c" * 64, "d" * 64])):
        rows = "".join(f"x,{name}{k},{digest}\n" for k, digest in enumerate(digests))
        (tmp_path / f"{name}.csv").write_text(f"source,time,hash\n{rows}")
    with pytest.warns(SourceDataWarning, match="not known whether the crawl found a change in 1 row"):
        log = read_log(tmp_path)
    assert log.changed.tolist() == [False, True, False, False, True]
    assert np.isnan(log.interval).tolist() == [True, False, True, False, False]


ROWS: dict[str, Any] = {"url": ["a", "b"], "time": [1.0, 2.0], "changed": [0, 1]}


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_rows_are_not_read_for_columns_that_are_not_there(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, frame = tmp_path / f"log.{ending}", polars.DataFrame(ROWS)
    getattr(frame, f"write_{ending.replace('jsonl', 'ndjson')}")(path)
    assert may_have(path, ("source", "time", "status"), {"url": "source"}) == {"source", "time"}

    def refuse(*_: object) -> None:
        raise AssertionError("the rows were read")

    monkeypatch.setattr(log_files, "log_frame", refuse)
    monkeypatch.setattr(sys.modules["freshopt.logs.read_crawls"], "read_rows", refuse)
    assert fetch_statuses(path, {"url": "source"}) is None
    assert log_hosts(path, {"url": "source"}) is None


def test_statuses_count_beside_changed_too(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    frame = polars.DataFrame({**ROWS, "status": [503, 304], "host": ["x", "y"]}).rename({"url": "source"})
    for one in (frame, frame.drop("changed")):
        one.write_parquet(path)
        told = present(fetch_statuses(path))
        assert told.status.tolist() == [503.0, 304.0]
    assert log_hosts(path) == {"a": "x", "b": "y"}

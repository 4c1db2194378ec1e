"""What crawlers have recorded: dumps, histories and checks, read as what a server would have told."""

import json
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.logs.crawl_log import CrawlLog
from freshopt.tools import read_changedetection, read_nutch
from freshopt.tools.changedetection_api import ChangeDetectionApi
from tests.ground_truth.command_lines import Run
from tests.ground_truth.refusals import present
from tests.ground_truth.strata import matrix

BEGIN = datetime(2026, 1, 31, 6, tzinfo=UTC)
HEADER = (
    "Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,Retry interval seconds,"
    "Retry interval days,Score,Signature,Metadata\n"
)


def dump_line(url: str, fetched: datetime, interval: str, signature: str, status: str = "db_fetched") -> str:
    """A line as CrawlDbReader writes it, the time that is due as Java prints dates."""
    due = fetched + timedelta(seconds=float(interval))
    moment = due.strftime("%a %b %d %H:%M:%S UTC %Y")
    epoch = "Thu Jan 01 00:00:00 UTC 1970"
    return f'"{url}",2,"{status}",{moment},{epoch},0,{interval},1.0,1.0,"{signature}","_pst_:x|||"\n'


def test_nutch(tmp_path: Path) -> None:
    a, b = "http://a/?x=1,2", "http://b/"
    day = timedelta(days=1)
    runs: list[list[tuple[Any, ...]]] = [
        [(a, BEGIN, "86400.0", "11"), (b, BEGIN, "2.592E6", "22")],
        [(a, BEGIN + day, "86400.0", "11", "db_notmodified"), (b, BEGIN, "2.592E6", "22")],
        [(a, BEGIN + 2 * day, "86400.0", "33"), (b, BEGIN + 30 * day, "2.592E6", "44")],
        [("http://c/", BEGIN, "1.0", "null", "db_unfetched"), ("http://d/", BEGIN, "1.0", "55", "db_gone")],
    ]
    for k, lines in enumerate(runs):
        (tmp_path / f"run{k}").mkdir()
        text = HEADER + "".join(dump_line(*line) for line in lines)
        (tmp_path / f"run{k}" / "part-r-00000").write_text(text)
    log = read_nutch(tmp_path)
    assert log.names.tolist() == [a, b]
    assert log.time.tolist() == [0.25, 1.25, 2.25, 0.25, 30.25]
    assert log.changed.tolist() == [False, False, True, False, True]
    assert log.origin == datetime(2026, 1, 31, tzinfo=UTC)
    one = read_nutch([tmp_path / "run0" / "part-r-00000"], "hour")
    assert (len(one), one.time.tolist()) == (2, [6.0, 6.0])


def test_nutch_tells_when_pages_were_modified(tmp_path: Path) -> None:
    day, epoch = timedelta(days=1), "Thu Jan 01 00:00:00 UTC 1970"
    told = [
        "Thu Jan 29 06:00:00 UTC 2026",
        "Thu Jan 29 06:00:00 UTC 2026",
        "Sun Feb 01 18:00:00 UTC 2026",
        epoch,
    ]
    lines = [dump_line("u", BEGIN + k * day, "86400.0", "1122"[k]) for k in range(4)]
    lines = [line.replace(epoch, date) for line, date in zip(lines, told, strict=True)]
    (tmp_path / "dump.csv").write_text(HEADER + "".join(lines))
    log = read_nutch(tmp_path)
    assert log.last_modified is not None
    np.testing.assert_array_equal(log.last_modified, [-1.75, np.nan, 1.75, np.nan])
    # A date after the fetch, as the adaptive schedule may leave it, is none.
    late = [line.replace(epoch, "Tue Mar 03 18:00:00 UTC 2026") for line in lines]
    (tmp_path / "dump.csv").write_text(HEADER + "".join(late).replace("Thu Jan 29", "Thu Mar 05"))
    log = read_nutch(tmp_path)
    np.testing.assert_array_equal(log.last_modified, [np.nan, np.nan, 1.75, np.nan])


WATCHES = {
    "u1": ("https://a.org/", [0, 86_400, 3 * 86_400], 4 * 86_400),
    "u2": ("https://b.org/ü", [43_200], 2 * 86_400),
    "u3": ("https://never.org/", [], 0),
    "u4": ("https://a.org/", [86_400, 2 * 86_400], 0),
}


def data_folder(folder: Path, *, single: bool) -> Path:
    second = int(BEGIN.timestamp())
    listed = {}
    for key, (url, times, checked) in WATCHES.items():
        watch = {"url": url, "last_checked": second + checked if checked else 0, "title": None}
        listed[key] = watch
        (folder / key).mkdir(parents=True)
        if not single:
            (folder / key / "watch.json").write_text(json.dumps(watch))
        if times:
            lines = "".join(f"{second + time},{key}{time}.txt\n" for time in times)
            (folder / key / "history.txt").write_text(lines)
    if single:
        (folder / "url-watches.json").write_text(json.dumps({"watching": listed, "settings": {}}))
    return folder


def zipped(folder: Path) -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())
    return path


@matrix(single=[True, False], archived=[True, False])
def test_changedetection(tmp_path: Path, single: bool, archived: bool) -> None:
    """Checks every 3 hours, the interval as installed; snapshots are those that found a change."""
    folder = data_folder(tmp_path / "data", single=single)
    log = read_changedetection(zipped(folder) if archived else folder)
    assert log.names.tolist() == ["https://a.org/ [u1]", "https://a.org/ [u4]", "https://b.org/ü"]
    zero = (BEGIN - present(log.origin)).total_seconds() / 86_400.0
    expected = [np.arange(0.0, 4.01, 0.125), np.arange(1.0, 2.01, 0.125), np.arange(0.5, 2.01, 0.125)]
    np.testing.assert_allclose(log.time - zero, np.concatenate(expected), atol=1e-9)
    assert np.diff(log.offsets).tolist() == [33, 9, 13]
    np.testing.assert_allclose(log.time[log.changed] - zero, [1.0, 3.0, 2.0], atol=1e-9)
    rates = MaximumLikelihood(smoothing=0.0).fit(log).change_rate_
    found = np.array([2.0 / 32.0, 1.0 / 8.0, 0.0])
    np.testing.assert_allclose(rates, -np.log1p(-found) * 8.0, rtol=1e-9)


NOW, DAY, HOUR = 1_760_000_000, 86_400, 3600
RATES = [0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 7.0, 12.0, 30.0]
PARTS = {"days": DAY, "hours": HOUR, "minutes": 60, "seconds": 1}


class Store(NamedTuple):
    """Data folder, and the true rates of the sources by name."""

    folder: Path
    rate: dict[str, float]


def parts(seconds: int) -> dict[str, int | None]:
    """An interval as it is written."""
    found: dict[str, int | None] = {"weeks": None}
    for name, whole in PARTS.items():
        many, seconds = divmod(seconds, whole)
        found[name] = many or None
    return found


def snapshots(rng: np.random.Generator, rate: float, checks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The checks that saw another page than the one before, and the first."""
    changes = np.cumsum(rng.exponential(DAY / rate, size=int(rate * (checks[-1] - checks[0]) / DAY * 2 + 60)))
    seen = np.searchsorted(changes + checks[0], checks)
    return checks[np.diff(seen, prepend=-1) > 0]


def checks_of(rng: np.random.Generator, periods: list[tuple[float, int]]) -> npt.NDArray[np.int64]:
    """The times of checks, up to now: so many days at each interval, each check up to 2 % late."""
    end, times = NOW - sum(days for days, _ in periods) * DAY, []
    for days, interval in periods:
        gaps = interval * (1.0 + 0.02 * rng.random(int(days * DAY / interval)))
        times.append(end + np.cumsum(gaps) * (days * DAY / gaps.sum()))
        end += days * DAY
    return np.unique(np.rint(np.concatenate(times)).astype(np.int64))


def store(
    folder: Path,
    seed: int,
    periods: list[tuple[float, int]],
    *,
    own: bool = True,
    counted: bool = False,
    single: bool = True,
    settings: int | None = None,
    kept: int | None = None,
) -> Store:
    """Two watches of each rate, with the interval of the last of the periods in which they were checked."""
    rng = np.random.default_rng(seed)
    watches: dict[str, dict[str, Any]] = {}
    rates = {}
    for k, rate in enumerate(2 * RATES):
        checks = checks_of(rng, periods)
        key, url = f"k{k}", f"https://a.org/{k}"
        found = snapshots(rng, rate, checks)
        (folder / key).mkdir(parents=True)
        lines = [f"{time},{key}.txt\n" for time in found[-(kept or len(found)) :].tolist()]
        (folder / key / "history.txt").write_text("".join(lines))
        watches[key] = {"url": url, "last_checked": int(checks[-1])}
        told = parts(periods[-1][1]) if own else parts(77)
        watches[key] |= {"time_between_check": told, "time_between_check_use_default": not own}
        if counted:
            watches[key] |= {"check_count": len(checks), "date_created": int(checks[0])}
        rates[url] = rate
        if not single:
            (folder / key / "watch.json").write_text(json.dumps(watches[key]))
    above = {} if settings is None else {"requests": {"time_between_check": parts(settings)}}
    name = "url-watches.json" if single else "changedetection.json"
    (folder / name).write_text(json.dumps({"watching": watches if single else None, "settings": above}))
    return Store(folder, rates)


def fit(log: CrawlLog, rate: dict[str, float]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """True rates, estimates, and whether the intervals of 95 % hold the truth."""
    found = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
    truth = np.array([rate[name] for name in log.names.tolist()])
    low, high = found.interval(0.95)
    return truth, found.change_rate_, (low <= truth) & (truth <= high)


def assert_learnt(stores: list[Store], interval: int, within: float = 0.12) -> None:
    """Intervals hold the truth as often as they say; rates that the checks can tell are right on average."""
    truth, found, inside = (
        np.concatenate(each)
        for each in zip(*(fit(read_changedetection(each.folder), each.rate) for each in stores), strict=True)
    )
    assert np.mean(inside) > 0.9
    told = truth * interval / DAY < 2.0
    assert np.sum(found[told]) == pytest.approx(np.sum(truth[told]), rel=within)
    saturated = truth * interval / DAY > 3.0
    # Where every check found a change, rates are known from below.
    assert np.all(found[saturated] * interval / DAY > 1.5)


@pytest.mark.parametrize("interval", [600, 3 * HOUR, DAY])
def test_rates_hold_at_every_interval(tmp_path: Path, interval: int) -> None:
    periods = [(30.0 if interval < DAY else 200.0, interval)]
    assert_learnt([store(tmp_path / str(seed), seed, periods) for seed in range(3)], interval)


@matrix(single=[True, False], settings=[None, 2 * HOUR])
def test_the_default_interval_is_that_of_the_settings(
    tmp_path: Path, single: bool, settings: int | None
) -> None:
    interval = settings or 3 * HOUR
    made = store(tmp_path / "d", 7, [(30.0, interval)], own=False, single=single, settings=settings)
    assert_learnt([made], interval)
    log = read_changedetection(made.folder)
    # The fastest pages have a snapshot at nearly every check; the others get theirs in between.
    assert np.diff(log.offsets) == pytest.approx(30.0 * DAY / interval, rel=0.03)


def test_a_history_that_was_cut_tells_the_rates_all_the_same(tmp_path: Path) -> None:
    made = [store(tmp_path / str(seed), seed, [(60.0, 3 * HOUR)], kept=20) for seed in range(4)]
    # The history begins with the twentieth snapshot from the end: so many in a shorter time than on average.
    assert_learnt(made, 3 * HOUR, within=0.25)


@pytest.mark.parametrize("periods", [[(20.0, HOUR), (10.0, 3 * HOUR)], [(20.0, 3 * HOUR), (10.0, HOUR)]])
def test_an_interval_that_was_changed_is_known_from_the_count_of_checks(
    tmp_path: Path, periods: list[tuple[float, int]]
) -> None:
    made = [store(tmp_path / str(seed), seed, periods, counted=True) for seed in range(4)]
    assert_learnt(made, max(interval for _, interval in periods))


def test_a_pause_hides_no_changes(tmp_path: Path) -> None:
    """Half of the checks that the interval makes are missing: they found nothing, as they were not made."""
    periods = [(10.0, 3 * HOUR), (20.0, 20 * DAY), (10.0, 3 * HOUR)]
    assert_learnt([store(tmp_path / str(seed), seed, periods, counted=True) for seed in range(4)], 3 * HOUR)


def test_a_page_of_every_day_is_not_taken_for_one_that_is_checked_daily(tmp_path: Path) -> None:
    """Its snapshots are at equal distances, as if it were checked daily and had changed at each check."""
    days = NOW - DAY * np.arange(30, 0, -1)
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "history.txt").write_text("".join(f"{time},x\n" for time in days.tolist()))
    watch = {"url": "u", "last_checked": NOW, "check_count": 240, "date_created": int(days[0])}
    (tmp_path / "url-watches.json").write_text(json.dumps({"watching": {"k": watch}}))
    log = read_changedetection(tmp_path)
    assert len(log) == 1 + 30 * 8
    found = MaximumLikelihood(smoothing=0.0).fit(log).change_rate_
    assert found[0] == pytest.approx(29.0 / 30.0 * 1.066, rel=0.01)


def test_a_long_history_has_rows_within_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = store(tmp_path / "d", 5, [(20.0, 600)])
    whole = read_changedetection(made.folder)
    monkeypatch.setattr(sys.modules[read_changedetection.__module__], "MOST", 10_000)
    short = read_changedetection(made.folder)
    assert len(short) < 10_000 + 2 * int(whole.changed.sum()) + 100 < len(whole)
    for smoothing in (0.0, 0.5):
        rates = [MaximumLikelihood(smoothing=smoothing).fit(log).change_rate_ for log in (whole, short)]
        np.testing.assert_allclose(rates[0], rates[1], rtol=1e-6)


def test_the_watches_that_matter_most_are_checked_most(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals that are planned from the checks of a server are in the order of the true rates."""
    made = store(Path("data"), 11, [(30.0, 3 * HOUR)], counted=True)
    documents = json.loads((made.folder / "url-watches.json").read_text())["watching"]
    planned: dict[str, int] = {}

    def answer(self: ChangeDetectionApi, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401, ARG001
        _, *rest = path.split("/")
        if not rest:
            return {key: {} for key in documents}
        if method == "PUT":
            given = body["time_between_check"]
            planned[rest[0]] = sum(given[name] * whole for name, whole in PARTS.items())
            return "OK"
        lines = (made.folder / rest[0] / "history.txt").read_text().splitlines()
        return {line.split(",")[0]: "x" for line in lines} if len(rest) > 1 else documents[rest[0]]

    monkeypatch.setattr(ChangeDetectionApi, "answer", answer)
    run("sync", "changedetection", "--url", "http://a", "--key", "k")
    gaps: dict[float, list[int]] = {}
    for key, document in documents.items():
        gaps.setdefault(made.rate[document["url"]], []).append(planned[key])
    mean = {rate: float(np.mean(own)) for rate, own in gaps.items()}
    # The mean delay is least where intervals are as 1/√(change rate).
    for fast, slow in ((30.0, 7.0), (12.0, 2.0), (7.0, 1.0), (1.0, 0.1)):
        assert mean[fast] / mean[slow] == pytest.approx((slow / fast) ** 0.5, rel=0.3)

"""What Nutch and changedetection.io have found, in files written as their documentation says."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshopt.estimators import MaximumLikelihood
from freshopt.tools import read_changedetection, read_nutch
from tests.ground_truth.command_lines import Run, fields

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
    assert log.sources_.tolist() == [a, b]
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


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("archived", [True, False])
def test_changedetection(tmp_path: Path, single: bool, archived: bool) -> None:
    """Checks every 3 hours, the interval as installed; snapshots are those that found a change."""
    folder = data_folder(tmp_path / "data", single=single)
    log = read_changedetection(zipped(folder) if archived else folder)
    assert log.sources_.tolist() == ["https://a.org/ [u1]", "https://a.org/ [u4]", "https://b.org/ü"]
    assert log.origin is not None
    zero = (BEGIN - log.origin).total_seconds() / 86_400.0
    expected = [np.arange(0.0, 4.01, 0.125), np.arange(1.0, 2.01, 0.125), np.arange(0.5, 2.01, 0.125)]
    np.testing.assert_allclose(log.time - zero, np.concatenate(expected), atol=1e-9)
    assert np.diff(log.offsets).tolist() == [33, 9, 13]
    np.testing.assert_allclose(log.time[log.changed] - zero, [1.0, 3.0, 2.0], atol=1e-9)
    rates = MaximumLikelihood(smoothing=0.0).fit(log).change_rate_
    found = np.array([2.0 / 32.0, 1.0 / 8.0, 0.0])
    np.testing.assert_allclose(rates, -np.log1p(-found) * 8.0, rtol=1e-9)


@pytest.mark.exhaustive
def test_plans_from_both(run: Run) -> None:
    day = timedelta(days=1)
    lines = [dump_line("http://a/", BEGIN + k * day, "86400.0", str(k // 2)) for k in range(9)]
    Path("dump.csv").write_text(HEADER + "".join(lines))
    how = ("--bandwidth", "1/day", "--horizon", "3d")
    shown = fields(run("plan", "--nutch", "dump.csv", *how, "--out", "n").output)
    assert shown["log"].startswith("dump.csv: 9 crawls of 1 source")
    data_folder(Path("data"), single=True)
    shown = fields(run("plan", "--changedetection", "data", *how, "--replay", "--out", "c").output)
    assert shown["log"].startswith("data: 55 crawls of 3 sources, 3 found a change")
    run("plan", "--nutch", "dump.csv", "--changedetection", "data", *how, "--out", "b", code=2)

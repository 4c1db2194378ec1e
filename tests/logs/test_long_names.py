"""Names take the memory of their text: neither by the longest of all, nor once for each crawl or refresh.

As text of fixed width one name of 400 000 letters among 100 would make every array of names one of 160 MB.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.logs.read_crawls import fetch_statuses
from freshopt.logs.read_events import read_history
from freshopt.logs.source_index import code_sources
from freshopt.numerics.arrays import label_array
from freshopt.planning.known_changes import known_changes
from freshopt.scheduling.rate_table import read_rates

N, ROWS = 100, 4
LONG = "z" * 400_000
NAMES = [f"page/{k:04}" for k in range(N - 1)] + [LONG]
SOURCE = np.tile(np.arange(N), ROWS)
TIME = np.repeat(np.arange(ROWS) * 1.5, N) + 0.25 * (SOURCE % 3)
CHANGED = (SOURCE + np.repeat(np.arange(ROWS), N)) % 2
# Bytes: a quarter of one array of fixed width.
MOST = 4 * N * len(LONG) // 4


@pytest.fixture(autouse=True)
def _in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave numba out, whose memory is its own."""
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")


@contextmanager
def little() -> Iterator[None]:
    """Require that what is done in it takes little memory at any time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST, f"{peak / 1e6:.0f} MB"


@pytest.fixture
def imported(tmp_path: Path) -> None:
    """Do everything once before memory is traced: imports take some, and long while it is."""
    log = fo.CrawlLog(rows_of(NAMES)[::N], TIME[::N], CHANGED[::N])
    plan = fo.plan(log, bandwidth=1.0, horizon=1.0, draws=0)
    plan.write(tmp_path / "small", csv=True)
    fo.World.from_events({"source": np.array(["a"]), "time": np.array([0.0])})


def rows_of(names: list[str]) -> list[str]:
    return [names[k] for k in SOURCE]


def csv(folder: Path, header: str, *columns: npt.ArrayLike) -> Path:
    path = folder / "log.csv"
    lines = [header, *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def logs(folder: Path) -> dict[str, Callable[[], fo.CrawlLog]]:
    path = csv(folder, "source,time,changed", rows_of(NAMES), TIME, CHANGED)
    return {
        "list": lambda: fo.CrawlLog(rows_of(NAMES), TIME, CHANGED),
        "objects": lambda: fo.CrawlLog(np.array(rows_of(NAMES), dtype=object), TIME, CHANGED),
        "file": lambda: fo.read_log(path),
    }


@pytest.mark.parametrize("kind", ["list", "objects", "file"])
def test_a_log(kind: str, tmp_path: Path) -> None:
    make = logs(tmp_path)[kind]
    with little():
        log = make()
        known_changes(log).events(0.0, 4.0)
    short = fo.CrawlLog(rows_of([*NAMES[:-1], "z"]), TIME, CHANGED)
    assert log.names.tolist() == [*short.names.tolist()[:-1], LONG]
    for column in ("offsets", "time", "interval", "changed"):
        np.testing.assert_array_equal(getattr(log, column), getattr(short, column))


def test_histories_and_fetches(tmp_path: Path) -> None:
    path = csv(tmp_path, "source,time,status", rows_of(NAMES), TIME, np.full(len(TIME), 200))
    with little():
        history = read_history(path)
        again = fo.ChangeHistory(rows_of(NAMES), TIME)
        fetched = fetch_statuses(path)
        history.to_log(1.0)
    assert history.names.tolist() == again.names.tolist() == NAMES
    assert fetched is not None
    assert fetched.source.tolist() == rows_of(NAMES)


@pytest.mark.usefixtures("imported")
def test_a_problem_and_its_outputs() -> None:
    with little():
        sources = fo.Sources(np.linspace(1.0, 2.0, N), names=NAMES, host=NAMES)
        solution = fo.solve(
            fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth=float(N))
        )
        plan = fo.schedule(solution, horizon=5.0)
        assert plan.to_frame()["source"].n_unique() == solution.to_frame().height == N
        read_rates(dict.fromkeys(NAMES, 1.0), "day")
        world = fo.World.from_events(
            {"source": np.array(rows_of(NAMES), dtype=object), "time": TIME}, names=NAMES
        )
        assert len(world) == N
        assert {visit.source for visit in plan} == set(NAMES)


@pytest.mark.usefixtures("imported")
def test_a_whole_plan(tmp_path: Path) -> None:
    path = csv(tmp_path, "source,time,changed", rows_of(NAMES), TIME, CHANGED)
    with little():
        plan = fo.plan(fo.read_log(path), bandwidth=float(N), horizon=7.0, draws=0)
        plan.write(tmp_path / "plan", csv=True)
    assert LONG in (tmp_path / "plan" / "schedule.csv").read_text(encoding="utf-8")


def test_rows_of_long_names_hold_none_of_them() -> None:
    """All names are long here, and each is in many rows: those are not four bytes a letter each."""
    names = [f"{k:03}" + "x" * 2000 for k in range(50)]
    source, time = np.repeat(np.arange(50), 300), np.tile(np.arange(300.0), 50)
    with little():
        log = fo.CrawlLog.from_columns(
            {"source": source, "time": time, "changed": time % 2}, names=label_array(names)
        )
        known_changes(log).events(0.0, 300.0)
        history = fo.ChangeHistory([names[k] for k in source], time, names=names)
    assert history.names.tolist() == names


def test_names_of_both_kinds_are_coded_alike() -> None:
    rows = rows_of(NAMES)
    labels, codes = code_sources(rows)
    fixed, same = code_sources([name[:9] for name in rows])
    assert (labels.dtype.kind, fixed.dtype.kind) == ("O", "U")
    np.testing.assert_array_equal(codes, same)
    assert [name[:9] for name in labels.tolist()] == fixed.tolist()

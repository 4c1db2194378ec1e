"""Hostile names in every format: refused in one printable line, or read back as they are by its readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools import ChangeDetection, ExternalSecrets, Nutch, StormCrawler, write_icalendar
from freshopt.tools.whole_intervals import IntervalFormat
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.hostile_names import HOSTILE, hostile_names

NAMES = tuple(dict.fromkeys((*HOSTILE, *hostile_names(150))))
URLS = tuple(f"http://a.org/{name}" for name in NAMES)


def table(names: tuple[str, ...]) -> RateTable:
    return RateTable(np.ones(len(names)), np.array(names, dtype=object), "day", None, None)


def write_to(target: IntervalFormat) -> Callable[[tuple[str, ...], Path], None]:
    def write(names: tuple[str, ...], path: Path) -> None:
        if target.files:
            path.mkdir()
        target.write(table(names), path)

    return write


def write_calendar(names: tuple[str, ...], path: Path) -> None:
    label = np.array(names, dtype=object)
    plan = fo.Schedule(np.arange(len(names)), np.zeros(len(names)), 1.0, np.ones(len(names)), label)
    write_icalendar(plan, datetime(2026, 1, 1, tzinfo=UTC), path)


def nutch(path: Path) -> list[str]:
    return list(parse.tab_seeds((path / "seeds/seeds.tsv").read_bytes().decode()))


def storm(path: Path) -> list[str]:
    return list(parse.tab_seeds(path.read_bytes().decode()))


def watches(path: Path) -> list[str]:
    return [watch["url"] for watch in json.loads(path.read_bytes())]


def secrets(path: Path) -> list[str]:
    return [found["metadata.name"] for found in parse.yaml_documents(path.read_bytes().decode())]


def calendar(path: Path) -> list[str]:
    found = [event.summary for event in parse.calendar_events(path.read_bytes())]
    assert all(summary.startswith("refresh ") for summary in found)
    return [summary.removeprefix("refresh ") for summary in found]


@pytest.mark.parametrize(
    ("write", "read", "names", "least"),
    [
        pytest.param(write_to(Nutch()), nutch, (*NAMES, *URLS), 40, id="nutch"),
        pytest.param(write_to(StormCrawler()), storm, (*NAMES, *URLS), 40, id="stormcrawler"),
        pytest.param(write_to(ChangeDetection()), watches, (*NAMES, *URLS), 40, id="changedetection"),
        pytest.param(write_to(ExternalSecrets()), secrets, NAMES, 4, id="external-secrets"),
        pytest.param(write_calendar, calendar, NAMES, 150, id="calendar"),
    ],
)
def test_names_come_back_or_are_refused(
    write: Callable[[tuple[str, ...], Path], None],
    read: Callable[[Path], list[str]],
    names: tuple[str, ...],
    least: int,
    tmp_path: Path,
) -> None:
    kept = []
    for k, name in enumerate(names):
        try:
            write((name,), tmp_path / str(k))
        except fo.SourceDataError as error:
            words = str(error)
        else:
            kept.append(name)
            continue
        assert words.isprintable()
        assert words.endswith(".")
    assert least < len(kept) < len(names)
    write(tuple(kept), tmp_path / "all")
    assert read(tmp_path / "all") == kept

"""Alarms of a live plan: exit code and one line."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import freshopt as fo
from freshopt.cli import main


def told(*words: str) -> Result:
    return CliRunner().invoke(main, ["status", *words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("planner")
    now = datetime.now(UTC)
    with fo.Planner(place, bandwidth="10/day") as planner:
        planner.add_many(["news/1", "news/2", "docs/1", "docs/2"])
        for hours, name in ((30, "news/1"), (5, "news/1"), (30, "docs/1"), (50, "news/2")):
            planner.observed(name, now - timedelta(hours=hours), changed=True)
        planner.due(now)
    return str(place)


@pytest.mark.parametrize(
    ("words", "raised"),
    [
        ("fresh < 1%", None),
        ("fresh < 99.9%", "fresh < 99.9% ("),
        ("never > 1", None),
        ("never > 0", "never > 0 (1)"),
        ("down > 0", None),
        ("idle > 6h", None),
        ("idle > 4h", "idle > 4h (5 hours)"),
        ("75% older than 6h", "75% older than 6h (75 %)"),
        ("76% older than 6h", None),
        ("news/*: 51% older than 6h", None),
        ("news/*: 50% older than 6h", "(50 %)"),
        ("blog/*: 1% older than 6h", "no source 'blog/*'"),
    ],
)
def test_an_alarm_is_an_exit_code_and_a_line(folder: str, words: str, raised: str | None) -> None:
    result = told(folder, "--fail-if", words)
    assert result.exit_code == (0 if raised is None else 1), result.output
    assert len(result.output.splitlines()) == 1
    assert result.output.startswith("ok: 4 sources" if raised is None else "alarm: ")
    assert raised is None or raised in result.output


def test_of_several_alarms_those_that_are_raised_are_told(folder: str) -> None:
    result = told(folder, "--fail-if", "never > 0", "--fail-if", "down > 0", "--fail-if", "idle > 1h")
    assert result.exit_code == 1
    assert result.output == "alarm: never > 0 (1); idle > 1h (5 hours)\n"


def test_what_is_not_known_yet_is_an_alarm(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "new", bandwidth="10/day") as planner:
        planner.add("a")
    result = told(str(tmp_path / "new"), "--fail-if", "fresh < 1%", "--fail-if", "idle > 1d")
    assert result.output == "alarm: fresh < 1% (not known yet); idle > 1d (no crawl yet)\n"


def test_without_alarms_the_state_is_shown(folder: str) -> None:
    result = told(folder)
    assert result.exit_code == 0
    assert "certificate" in result.output


@pytest.mark.parametrize(
    "words",
    [
        "fresh",
        "stale > 3",
        "fresh < lots",
        "fresh < 190%",
        "down > nan",
        "older than 2h",
        "5% older than soon",
    ],
)
def test_what_is_no_condition_is_said_in_a_line(folder: str, words: str) -> None:
    result = told(folder, "--fail-if", words)
    assert result.exit_code not in (0, None)
    assert result.output.count("--fail-if") == 1
    assert "Write such as" in result.output


def test_a_folder_without_a_planner_stays_as_it_is(tmp_path: Path) -> None:
    result = told(str(tmp_path / "none"))
    assert "no planner" in result.output
    assert not (tmp_path / "none").exists()

"""`freshopt plan --features`: new sources are in the plan, and what does not fit is refused."""

import json
from pathlib import Path

import pytest

from tests.ground_truth.command_lines import Run, refuse
from tests.planning.test_features import log_and_features


def test_new_sources_are_planned_for(run: Run) -> None:
    log, features = log_and_features()
    log.to_frame().write_csv("log.csv")
    features.write_csv("features.csv")
    line = ("plan", "log.csv", "--features", "features.csv", "--draws", "0", "--csv", "--out", "plan")
    output = run(*line, "--details").output
    assert "2 sources not crawled yet: expected to change once in" in " ".join(output.split())
    told = json.loads(Path("plan/summary.json").read_text())
    assert told["n"] == 42
    assert told["counts"]["flags"]["never crawled"] == 2
    settings = [row for row in Path("plan/plan.toml").read_text().splitlines() if row.startswith("features")]
    assert settings[0].endswith('features.csv"')
    assert "https://slow.org/new" in Path("plan/schedule.csv").read_text()


def test_urls_alone_are_features_again_by_the_file_of_settings(run: Run) -> None:
    log_and_features()[0].to_frame().write_csv("log.csv")
    run("plan", "log.csv", "--features", "url", "--draws", "0", "--out", "plan")
    run("plan", "--config", "plan/plan.toml", "--out", "again")
    first, again = (json.loads(Path(f"{folder}/summary.json").read_text()) for folder in ("plan", "again"))
    assert first["features"] == again["features"]
    assert [each["feature"] for each in first["features"]["columns"]] == ["host"]


@pytest.mark.usefixtures("run")
def test_what_does_not_fit_is_refused() -> None:
    log, features = log_and_features()
    log.to_frame().write_csv("log.csv")
    features.head(39).write_csv("features.csv")
    line = ("plan", "log.csv", "--features", "features.csv", "--out", "plan")
    folder = Path.cwd()
    refuse(folder, [*line, "--prior", "gamma"], ["--prior does not go with --features"])
    refuse(folder, line, ["has no row of 'https://slow.org/19', which the log has"])

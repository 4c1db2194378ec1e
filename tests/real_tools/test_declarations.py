"""Files that other systems read are what those systems declare: workflows, forms, a CronJob, crontabs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.datasets import load_example

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "recipes"
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
KINDS = {
    "vendor.github-workflows": [
        RECIPES / "github-actions.yml",
        *sorted((ROOT / ".github/workflows").glob("*.yml")),
    ],
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.github-issue-config": [FORMS / "config.yml"],
    "vendor.github-issue-forms": sorted(set(FORMS.glob("*.yml")) - {FORMS / "config.yml"}),
}
# A file of each kind, a word in it, and another in its place that the system would refuse.
PLANTED = (
    ("vendor.github-workflows", "github-actions.yml", "runs-on:", "run-on:"),
    ("vendor.dependabot", "dependabot.yml", "interval: monthly", "interval: often"),
    ("vendor.github-issue-config", "config.yml", "blank_issues_enabled:", "blank_issues:"),
    ("vendor.github-issue-forms", "bug.yml", "type: textarea", "type: textbox"),
)
Programs = Callable[[str, str], Path]


def refusal(command: list[Path | str]) -> str:
    """Return what a program says that refuses a file, or nothing."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return (ended.stdout + ended.stderr or "refused") if ended.returncode else ""


@pytest.mark.parametrize("kind", KINDS)
def test_github_reads_its_files(kind: str, program: Programs) -> None:
    assert KINDS[kind]
    checker = program("schemas", "check-jsonschema")
    assert refusal([checker, "--builtin-schema", kind, *KINDS[kind]]) == ""


@pytest.mark.parametrize(("kind", "name", "word", "other"), PLANTED)
def test_github_refuses_others(
    kind: str, name: str, word: str, other: str, program: Programs, tmp_path: Path
) -> None:
    (path,) = (each for each in KINDS[kind] if each.name == name)
    text = path.read_text(encoding="utf-8")
    assert word in text
    (tmp_path / name).write_text(text.replace(word, other), encoding="utf-8")
    checker = program("schemas", "check-jsonschema")
    assert refusal([checker, "--builtin-schema", kind, tmp_path / name])


def test_kubernetes_reads_the_cron_job(program: Programs, tmp_path: Path) -> None:
    checker = program("schemas", "kubernetes-validate")
    text = (RECIPES / "kubernetes-cronjob.yml").read_text(encoding="utf-8")
    assert refusal([checker, "--strict", RECIPES / "kubernetes-cronjob.yml"]) == ""
    planted = tmp_path / "job.yml"
    for word, other in (("backoffLimit: 0", "backoffLimit: none"), ("concurrencyPolicy", "concurrency")):
        planted.write_text(text.replace(word, other), encoding="utf-8")
        assert refusal([checker, "--strict", planted])


def test_cron_reads_the_recipe_and_what_a_plan_hands_over(tmp_path: Path) -> None:
    fo.plan(load_example("gstreamer-plugins"), draws=0).write(tmp_path / "plan")
    jobs, planted = tmp_path / "jobs", tmp_path / "planted"
    given = [
        "schedule",
        f"{tmp_path}/plan",
        "--format",
        "crontab",
        "--command",
        "fetch-page",
        "--out",
        f"{jobs}",
    ]
    assert CliRunner().invoke(main, given).exit_code == 0
    for path in (RECIPES / "crontab", jobs):
        assert refusal(["crontab", "-n", path]) == ""
        lines = path.read_text(encoding="utf-8").splitlines()
        (*_, last) = (line for line in lines if line[:1].isdigit())
        planted.write_text(f"99{last[last.index(' ') :]}\n", encoding="utf-8")
        assert "bad minute" in refusal(["crontab", "-n", planted])

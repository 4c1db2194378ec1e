"""What surrounds the code names what is there: workflows, hooks, issue forms, citation, changelog."""

import importlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import freshopt
from freshopt.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
yaml: Any = importlib.import_module("yaml")
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def loaded(path: Path) -> Any:  # noqa: ANN401 - whatever YAML holds
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(path)["jobs"].values() for step in job["steps"]]


def check_command(words: list[str]) -> None:
    """Assert that a command line of freshopt names a command and options that it has."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None, words
    known = {name for option in command.params for name in option.opts}
    assert {word for word in words if word.startswith("-")} <= known, words


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_there(path: Path) -> None:
    lines = [line for step in steps(path) for line in step.get("run", "").splitlines()]
    assert lines
    for line in lines:
        words = shlex.split(line.split(" > ")[0])
        for word in words:
            if re.fullmatch(r"\.?\w+(/[\w.]+)+", word) and not word.startswith("dist/"):
                assert (ROOT / word).exists(), word
        if words[0] == "freshopt":
            check_command(words[1:])
    extras = {extra for line in lines for extra in re.findall(r"\.\[(\w+)\]", line)}
    assert extras <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_stand_by_their_commits_and_are_said_to_be_untried(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    # The publisher's branch is what its owners tell people to name.
    assert all(re.search(r"^actions/.*@[0-9a-f]{40}$|@release/v\d+$", each) for each in used)
    assert path.read_text(encoding="utf-8").startswith("# Not yet run")


def test_three_systems_and_pythons_newest_and_lowest() -> None:
    jobs = loaded(GITHUB / "workflows" / "tests.yml")["jobs"]
    matrix = jobs["newest"]["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "windows", "macos"]
    told = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert matrix["python"] == told
    ran = " ".join(step.get("run", "") for step in jobs["lowest"]["steps"])
    (named,) = re.findall(r"^with_lowest=\((.*)\)$", text_of(".ci/run"), re.MULTILINE)
    assert named in ran


def test_the_release_is_published_without_a_password() -> None:
    job = loaded(GITHUB / "workflows" / "release.yml")["jobs"]["publish"]
    assert job["permissions"] == {"id-token": "write"}
    assert all("password" not in step.get("with", {}) for step in job["steps"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_whole_and_name_commands_that_are_there(path: Path) -> None:
    form, text = loaded(path), path.read_text(encoding="utf-8")
    if path.stem != "config":
        assert {"name", "description", "body"} <= set(form)
        fields = [field["id"] for field in form["body"]]
        assert len(fields) == len(set(fields))
        assert all(field["attributes"]["label"] for field in form["body"])
    for line in re.findall(r"`freshopt ([^`]+)`", text):
        check_command(shlex.split(line))
    for name in re.findall(r"`fo\.(\w+)\(\)`", text):
        assert name in freshopt.__all__


def test_forms_ask_for_the_installation() -> None:
    for name in ("bug", "log"):
        (field,) = (
            each
            for each in loaded(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")["body"]
            if each["id"] == "doctor"
        )
        assert field["validations"]["required"]
    assert "doctor" in COMMANDS


def test_hooks_are_those_of_the_check() -> None:
    hooks = [hook for repo in loaded(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    dev = " ".join(PROJECT["optional-dependencies"]["dev"])
    assert {hook["entry"].split()[0] for hook in hooks} == {"ruff", "mypy"}
    assert all(hook["entry"].split()[0] in dev for hook in hooks)


def test_versions_and_dois_are_told_once_and_alike() -> None:
    cited = loaded(ROOT / "CITATION.cff")
    assert cited["version"] == PROJECT["version"] == freshopt.__version__
    assert re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)[0] == PROJECT["version"]
    assert len(cited["references"]) == 5
    told = "".join(
        path.read_text(encoding="utf-8")
        for room in ("freshopt", "solvers")
        for path in (ROOT / room).rglob("*.py")
    )
    dois = [each["doi"] for each in cited["references"] if "doi" in each]
    assert len(dois) == 4
    assert all(f"doi:{doi}" in told for doi in dois)

"""Recipes and commands of guides: each is read as what it is, and runs on a small log."""

import ast
import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.pages import sample_logs
from tests.pages.measured import ROOT

yaml: Any = importlib.import_module("yaml")
RECIPES = ROOT / "docs" / "recipes"
GUIDES = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "guides").glob("*.md"))
Commands = list[list[str]]


def text(name: str) -> str:
    return (RECIPES / name).read_text(encoding="utf-8")


def of_crontab() -> Commands:
    """Return the commands of the lines of a crontab, which have five fields of time."""
    jobs = [line for line in text("crontab").splitlines() if re.match(r"[\d*]", line)]
    times = [line.split(None, 5)[:5] for line in jobs]
    assert all(re.fullmatch(r"\*|\d+", field) for fields in times for field in fields)
    parts = [part for line in jobs for part in line.split(None, 5)[5].split(" && ")]
    return [words for part in parts for words in sample_logs.lines_of(part)]


def of_actions() -> Commands:
    """Return the commands of the steps of a workflow."""
    workflow = yaml.safe_load(text("github-actions.yml"))
    steps = workflow["jobs"]["plan"]["steps"]
    assert {"schedule", "workflow_dispatch"} <= set(workflow[True])  # YAML 1.1 reads `on` so
    assert all(("uses" in step) != ("run" in step) for step in steps)
    runs = [step["run"].partition(" > ")[0] for step in steps if "run" in step]
    return [words for run in runs for words in sample_logs.lines_of(run)]


def of_image() -> Commands:
    """Return the commands of a Dockerfile: those that it runs, and what the image runs by default."""
    lines = [line.split(None, 1) for line in text("Dockerfile").splitlines() if re.match("[A-Z]", line)]
    known = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in lines} == known
    assert lines[0][0] == "FROM"
    run = [part for word, rest in lines if word == "RUN" for part in rest.split(" && ")]
    ((entry,), (usual,)) = (
        [json.loads(rest) for word, rest in lines if word == of] for of in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["freshopt"]
    return [*(words for part in run for words in sample_logs.lines_of(part)), usual]


def of_cluster() -> Commands:
    """Return the command of a CronJob's container, whose volumes are those that it mounts."""
    claim, job = yaml.safe_load_all(text("kubernetes-cronjob.yml"))
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    return [container["args"]]


COMMANDS = {"crontab": of_crontab, "Dockerfile": of_image, "github-actions.yml": of_actions}
COMMANDS["kubernetes-cronjob.yml"] = of_cluster


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.sampled(2)
def test_the_commands_run(name: str, here: Path) -> None:
    sample_logs.write_files(here)
    sample_logs.run(["plan", "--init"])
    found = COMMANDS[name]()
    assert found
    for words in sample_logs.with_few_draws(found):
        sample_logs.run([re.sub(r"(?<![\w.])/(state|pages|tmp)/", "", word) for word in words])


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.name)
def test_the_python_is_python(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert any("freshopt" in ast.dump(node) for node in tree.body)


def test_each_is_told_of() -> None:
    assert set(re.findall(r"\]\(\.\./recipes/([\w.-]+)\)", GUIDES)) == {
        path.name for path in RECIPES.iterdir()
    }


def test_commands_are_words_as_a_shell_reads_them() -> None:
    assert sample_logs.lines_of("cd x\nfreshopt plan a.csv  # why\n.venv/bin/freshopt run 'a b'") == [
        ["plan", "a.csv"],
        ["run", "a b"],
    ]
    assert shlex.split(sample_logs.reader())[-1] == "{source}"


SHOWN_PAGES = sorted([*(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_WORDS = 15_000


def lines(page: Path, kind: str) -> list[list[str]]:
    """Return the command lines of freshopt in the blocks of a kind."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        words
        for of, text in blocks
        if of == kind and "freshopt" in text
        for words in sample_logs.lines_of(text)
    ]


@pytest.mark.parametrize(
    "page", [page for page in SHOWN_PAGES if lines(page, "sh")], ids=lambda path: path.stem
)
def test_commands_run(page: Path, here: Path) -> None:
    sample_logs.write_files(here)
    for words in sample_logs.with_few_draws(lines(page, "sh")):
        sample_logs.run(words)


@pytest.mark.parametrize(
    "page", [page for page in SHOWN_PAGES if lines(page, "text")], ids=lambda path: path.stem
)
def test_commands_that_need_more_than_a_log_have_their_options(page: Path) -> None:
    for words in lines(page, "text"):
        sample_logs.parse(words)


def test_start_and_guides_are_read_in_an_hour() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in SHOWN_PAGES) <= MOST_WORDS

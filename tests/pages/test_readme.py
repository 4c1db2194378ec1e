"""The README tells the truth: its commands are there, its example runs, its sample output is printed."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import COMMANDS as NAMES
from freshopt.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "start" / "python.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "start" / "plan-from-your-log.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [text.strip() for kind, text in BLOCKS if kind == "sh"]
INSTALL = "python3 -m venv .venv && .venv/bin/pip install {} && "
# What a reader asks first: each is answered by one link of the README.
QUESTIONS = ("How many fewer", "Can I trust", "What do I change", "per host", "my own cost")


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_two_commands_are_single_lines_that_install_and_run() -> None:
    assert len(COMMANDS) == 2
    assert all("\n" not in command for command in COMMANDS)
    plan, tests = COMMANDS
    assert plan.startswith(INSTALL.format(".") + ".venv/bin/freshopt plan --example ")
    assert plan.endswith("--overwrite")  # so that it runs twice
    assert tests == INSTALL.format('".[test]"') + ".venv/bin/pytest -n auto"


def test_the_main_job_prints_the_sample_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    line = shlex.split(COMMANDS[0].rpartition(".venv/bin/freshopt ")[2])
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.output
    (sample,) = (text for kind, text in BLOCKS if kind == "text")
    assert sample.splitlines() == result.stdout.strip("\n").splitlines()
    assert len(sample.splitlines()) <= 12
    assert f"```text\n{sample}```" in GUIDE
    assert (tmp_path / "plan" / "report.html").exists()


EXAMPLES = [k for k, (kind, _) in enumerate(BLOCKS) if kind == "python"]


@pytest.mark.parametrize("place", EXAMPLES)
def test_the_examples_print_what_follows_them(
    place: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(BLOCKS[place][1], "README.md", "exec"), names)
    assert BLOCKS[place + 1] == ("", printed.getvalue())


def test_all_that_it_names_is_there() -> None:
    for name in re.findall(r"`fo\.(\w+)", README):
        assert hasattr(fo, name), name
    for command in re.findall(r"`freshopt ([a-z-]+)", README):
        assert command in NAMES
    for path in re.findall(r"`((?:problems|solvers|freshopt)/[\w/]+\.py)`", README):
        assert (ROOT / path).exists(), path
    links = re.findall(r"\]\(([^)\s#]+)", README)
    assert len(links) > 15
    for path in links:
        assert (ROOT / path).exists(), path


def test_the_choices_that_the_guide_offers_are_there() -> None:
    choices = PYTHON.split("## Which solver")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)\(.*?\)`", choices))
    assert len(named) > 7
    assert named <= {*dir(fo.solvers), *dir(fo.estimators), *dir(fo.scheduling)}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_one_click_from_their_answer(question: str) -> None:
    (row,) = (line for line in README.splitlines() if line.startswith("| ") and question in line)
    ((path, anchor),) = re.findall(r"\]\(([^)\s#]+)#?([^)]*)\)", row)
    heads = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert not anchor or anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}

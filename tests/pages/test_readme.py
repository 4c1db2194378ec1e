"""The README tells the truth: its commands are there, its example runs, its sample output is printed."""

from __future__ import annotations

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
CHOOSING = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [text.strip() for kind, text in BLOCKS if kind == "sh"]
INSTALL = 'python3 -m venv .venv && .venv/bin/pip install ".[{}]" && '


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_two_commands_are_single_lines_that_install_and_run() -> None:
    assert len(COMMANDS) == 2
    assert all("\n" not in command for command in COMMANDS)
    plan, tests = COMMANDS
    assert plan.startswith(INSTALL.format("ecos") + ".venv/bin/freshopt plan --example ")
    assert plan.endswith("--overwrite")  # so that it runs twice
    assert tests == INSTALL.format("test") + ".venv/bin/pytest -n auto"


def test_the_main_job_prints_the_sample_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    line = shlex.split(COMMANDS[0].rpartition(".venv/bin/freshopt ")[2])
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.output
    (sample,) = (text for kind, text in BLOCKS if not kind and text.startswith("log  "))
    printed, timings = result.stdout.split("\n\n")[0].split("\ntime  ")
    assert "schedule" in timings
    assert sample.splitlines() == printed.splitlines()


EXAMPLES = [k for k, (kind, _) in enumerate(BLOCKS) if kind == "python"]


@pytest.mark.parametrize("place", EXAMPLES)
def test_the_examples_print_what_follows_them(place: int) -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(BLOCKS[place][1], "README.md", "exec"), names)
    assert BLOCKS[place + 1] == ("", printed.getvalue())


def test_all_that_it_names_is_there() -> None:
    for name in re.findall(r"`fo\.(\w+)", README):
        assert hasattr(fo, name), name
    for command in re.findall(r"`(?:freshopt )?(plan|estimate|solve|schedule|check|examples)\b", README):
        assert command in NAMES
    solvers = CHOOSING.split("### Which solver when")[1].split("##")[0]
    named = set(re.findall(r"`(\w+)\((?:\"\w+\")?\)`", solvers))
    assert named <= set(dir(fo.solvers))
    for path in re.findall(r"`((?:problems|solvers|freshopt)/\w+\.py)`", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\((\w+\.md)\)", README):
        assert (ROOT / path).exists(), path
    for folder in re.findall(r"^(\w+)/ ", README, re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder

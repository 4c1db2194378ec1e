"""Windows and macOS: what Python does not have there is taken away, and all commands still do their work.

No test runs on these systems. One process for each goes through `other_systems_story`.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
import sys
sys.path.append({root!r})
from tests.ground_truth.other_systems import pretend
pretend({system!r})
"""
STORY = Path(__file__).with_name("other_systems_story.py")


def told(system: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with what a system lacks taken away, in an empty folder."""
    start, work = folder / "start", folder / "work"
    start.mkdir()
    work.mkdir()
    text = START.format(root=str(ROOT), system=system)
    (start / "sitecustomize.py").write_text(text, encoding="utf-8")
    # Without the system's own time zones, and with an error where text is read or written in its encoding.
    environment = os.environ | {
        "PYTHONPATH": str(start),
        "PYTHONTZPATH": "",
        "PYTHONWARNDEFAULTENCODING": "1",
    }
    environment.pop("FRESHOPT_THREADS", None)
    return subprocess.run(
        [sys.executable, *command], cwd=work, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("system", ["win32", "darwin"])
@pytest.mark.sampled(2)
def test_all_commands_work_without_what_another_system_lacks(system: str, tmp_path: Path) -> None:
    done = told(system, tmp_path, str(STORY))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize(("system", "name"), [("win32", "register_at_fork"), ("darwin", "sched_getaffinity")])
def test_what_is_taken_away_is_gone_from_the_package_alone(system: str, name: str, tmp_path: Path) -> None:
    place = "{'__name__': 'freshopt.anywhere', 'os': os}"
    asked = f"import os; print(eval('hasattr(os, {name!r})', {place}), hasattr(os, {name!r}))"
    assert told(system, tmp_path, "-c", asked.replace(f"'{name}'", f'"{name}"', 1)).stdout == "False True\n"


def calls_of(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_text_is_written_in_utf_8_with_the_same_ends_of_lines_everywhere() -> None:
    """A crontab or a configuration made on Windows is for another machine."""
    wrong = []
    for path in (
        path for room in ("freshopt", "problems", "solvers") for path in (ROOT / room).rglob("*.py")
    ):
        for call in calls_of(path):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            given = {keyword.arg for keyword in call.keywords}
            modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            text = any(mode in ("w", "a", "x", "w+", "r+") for mode in modes)
            if name == "write_text" or (name in ("open", "fdopen") and text):
                if not {"encoding", "newline"} <= given:
                    wrong.append(f"{path.name}:{call.lineno}")
            elif name == "read_text" and isinstance(call.func, ast.Attribute) and not call.args and not given:
                wrong.append(f"{path.name}:{call.lineno}")
    assert not wrong

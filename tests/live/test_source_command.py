"""Commands that fetch a source: what they are given, what they find, how they end."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time

import pytest

from freshopt.errors import SourceDataError
from freshopt.live.source_command import SourceCommand

SHELL = "sh -c '{}' sh {{source}}"


def shell(script: str, **settings: object) -> SourceCommand:
    return SourceCommand.parse(SHELL.format(script), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a b", "x; touch never", "$(id)", "--help'\"", "ü\n2", "{host}"])
def test_a_name_comes_out_as_it_is(name: str) -> None:
    found = SourceCommand.parse("printf %s {source}").run(name)
    assert found.content == hashlib.sha256(name.encode()).hexdigest()


def test_a_backslash_between_folders_is_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: program)
    for sep, program in (("/", "C:toolsget.exe"), ("\\", "C:\\tools\\get.exe")):
        monkeypatch.setattr("os.sep", sep)
        assert SourceCommand.parse(r"C:\tools\get.exe 'a b' {source}").words == (program, "a b", "{source}")


def test_the_output_tells_a_change() -> None:
    command = shell('echo "$1"; echo noise >&2')
    assert command.run("a").content == command.run("a").content
    assert command.run("a").content != command.run("b").content


def test_the_exit_code_tells_a_change() -> None:
    command = shell("exit $1", changed_by="exit-code")
    assert command.run("0").changed is False
    assert command.run("1").changed is True
    assert command.run("2").failure == "exit code 2"


def test_a_failure_is_no_evidence() -> None:
    found = shell("echo half; echo no such page >&2; exit 22").run("a")
    assert (found.content, found.changed, found.failure) == ("", None, "exit code 22 (no such page)")
    assert shell("kill -9 $$").run("a").failure == "signal 9"
    assert "NUL" not in shell("true").run("a\0b").content
    assert shell("true").run("a\0b").failure


def test_what_hangs_is_ended_with_all_that_it_started() -> None:
    mark = f"{os.getpid()}.25"
    found = shell(f"sleep {mark} & sleep {mark}; echo late", timeout=0.3).run("a")
    assert found.failure == "took more than 0.3 s and was ended"
    time.sleep(0.1)
    running = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {mark}" not in running
    assert shell("yes", timeout=0.2).run("a").failure


@pytest.mark.parametrize("raised", [ProcessLookupError, PermissionError])
def test_a_group_that_has_ended_is_no_error(raised: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    def killpg(_group: int, _signal: int) -> None:
        raise raised

    monkeypatch.setattr("os.killpg", killpg)
    assert shell("true").run("a").content
    assert shell("exit 1", changed_by="exit-code").run("a").changed is True


def test_refusals() -> None:
    for text, why in (
        ("cat 'x {source}", r"cannot be split into words"),
        ("cat {url} {source}", r"has \{url\}, which is unknown"),
        ("cat x", r"does not name the source"),
        ("no-such-program {source}", r"the program no-such-program of the command is not there"),
    ):
        with pytest.raises(SourceDataError, match=why):
            SourceCommand.parse(text)

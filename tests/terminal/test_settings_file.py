"""Settings in a file: a template of all, the file that a plan leaves, and what is refused."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from click.testing import CliRunner

from freshopt.cli import COMMANDS, main
from freshopt.terminal.groups import GROUPS
from freshopt.terminal.settings_file import key_of
from tests.ground_truth.command_lines import MAIN_JOB, Run, refuse
from tests.ground_truth.refusals import present

# Options of `plan` that other commands have taken over, and those of no interest.
_TOOLS = {"git", "since", "files", "min-changes", "history", "dbt", "nutch", "changedetection", "bing"}
MOVED = {
    "plan": {*_TOOLS, "requests", "format", "stale-while-revalidate"},
    **dict.fromkeys(("lifetimes", "estimate", "poisson-check"), _TOOLS),
    "check": {"budget", "nested", "nested-limits", "target", "cheapest"},
    "solve": {"source-columns"},
}


def options_of(name: str) -> dict[str, click.Option]:
    command = present(main.get_command(click.Context(main), name))
    return {key_of(each).replace("_", "-"): each for each in command.params if isinstance(each, click.Option)}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_few_options_and_the_file_has_all_others(name: str) -> None:
    options = options_of(name)
    listed = {each for each, option in options.items() if not option.hidden}
    if "init" in options:
        assert f"Write {name}.toml here" in present(options["init"].help)
    assert len(listed) <= (20 if name == "plan" else 16)
    groups = GROUPS.get(name, {})
    if groups:
        told = [each for group in groups.values() for each in (*group.listed, *group.more)]
        assert len(told) == len(set(told))
        assert set(told) <= set(options)
        assert set(options) - set(told) <= {"config", "init", "verbose", *MOVED.get(name, set())}
    shown = CliRunner().invoke(main, [name, "--help"]).output
    for each in options:
        assert (re.search(rf"--{each}\b[^-]", shown) is not None) or each not in listed, each


def test_help_has_all_commands_and_imports_none(run: Run) -> None:
    shown = run("--help").output
    for name, (_, text) in COMMANDS.items():
        assert re.search(rf"{name} +{re.escape(text)}", shown)
    assert set(COMMANDS) == {each.value for each in main.shell_complete(click.Context(main), "")}


def test_a_template_explains_all_settings_and_changes_nothing(run: Run, log: Path) -> None:
    run("plan", "--init")
    text = Path("plan.toml").read_text(encoding="utf-8")
    assert not any(tomllib.loads(text).get(each) for each in ("input", "plan", "limits", "estimate"))
    told = tomllib.loads(re.sub(r"(?m)^# (\w+ = )", r"\1", text))
    names = {key for section in told.values() if isinstance(section, dict) for key in section}
    options = options_of("plan")
    apart = {"out", "overwrite", "details", "json", "quiet", "config", "init", "verbose"}
    assert names == {each.replace("-", "_") for each in set(options) - apart - MOVED["plan"]}
    assert "already exists" in run("plan", "--init", code=2).output
    asked = ("plan", str(log), *MAIN_JOB, "--draws", "0", "-q")
    run(*asked, "--config", "plan.toml", "-o", "a")
    run(*asked, "-o", "b")
    assert Path("a/rates.parquet").read_bytes() == Path("b/rates.parquet").read_bytes()


def facts(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
    return {key: value for key, value in found.items() if key != "seconds"}


def test_the_file_that_a_plan_leaves_repeats_it_from_anywhere(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(set(pl.read_parquet(log)["source"]))
    Path("tables").mkdir()
    Path("tables/weights.csv").write_text(
        "source,importance\n" + "".join(f"{n},{k + 1}\n" for k, n in enumerate(names))
    )
    Path("tables/sizes.csv").write_text(
        "source,cost\n" + "".join(f"{n},{k + 1}\n" for k, n in enumerate(names))
    )
    own = ("--importance", "tables/weights.csv", "--budget", "bytes=tables/sizes.csv:20/day", "--draws", "0")
    run("plan", str(log), "--horizon", "2w", "--target", "5%", *own, "-o", "plans/first")
    monkeypatch.chdir("tables")
    run("plan", "--config", "../plans/first/plan.toml", "-o", "again")
    monkeypatch.chdir("..")
    assert facts("plans/first")["constraints"] is not None
    again, first = facts("tables/again"), facts("plans/first")
    assert again.pop("made") >= first.pop("made")  # to the minute
    assert again.pop("command") != first.pop("command")  # where the tables are, from there
    assert again == first
    run("plan", "--config", "tables/again/plan.toml", "--horizon", "1w", "-o", "other")
    assert facts("other")["horizon"] == 7.0


def test_a_flag_takes_the_place_of_what_a_file_has_for_the_same(run: Run, log: Path) -> None:
    assert log.name == "log.parquet"
    Path("own.toml").write_text('log = "log.parquet"\n[plan]\nbandwidth = 6\ndraws = 0\n')
    run("plan", "--config", "own.toml", "-o", "six")
    run("plan", "--config", "own.toml", "--freshness", "60%", "-o", "needed")
    run("plan", "--config", "own.toml", "--example", "debian-uploads", "-b", "4/day", "-o", "example")
    assert facts("six")["bandwidth"] == 6.0
    assert facts("needed")["needed"]["freshness"] == 0.6
    assert facts("example")["counts"]["sources"] == 344


def test_an_objective_of_the_command_line_wins_over_the_parameter_of_a_file(run: Run, log: Path) -> None:
    run("plan", str(log), "-b", "6", "--draws", "0", "--objective", "power:0.5", "-o", "half")
    again = ("plan", "--config", "half/plan.toml", "--objective")
    run(*again, "power:0.7", "-o", "more")
    run(*again, "power", "-o", "same")
    run(*again, "delay", "-o", "delay")
    assert "exponent = 0.7" in Path("more/plan.toml").read_text()
    assert "\nexponent = 0.5" in Path("same/plan.toml").read_text()
    assert "\nexponent = " not in Path("delay/plan.toml").read_text()


def test_paths_lead_to_the_log_where_folders_are_links(run: Run, log: Path) -> None:
    Path("far/away").mkdir(parents=True)
    Path("near").symlink_to("far/away", target_is_directory=True)
    Path("latest.parquet").symlink_to(log.name)
    run("plan", "latest.parquet", "-b", "6", "--draws", "0", "-o", "near/first")
    assert '"../../../latest.parquet"' in Path("near/first/plan.toml").read_text()
    run("plan", "--config", "near/first/plan.toml", "-o", "again")
    assert facts("again")["counts"] == facts("near/first")["counts"]


def test_the_file_that_a_plan_leaves_is_toml_for_any_sign(run: Run, log: Path) -> None:
    name = "a\x7fb\x85'\"ü.parquet"
    log.rename(name)
    run("plan", name, "-b", "6", "--draws", "0", "-o", "first")
    assert "\\u007f" in Path("first/plan.toml").read_text(encoding="utf-8")
    run("plan", "--config", "first/plan.toml", "-o", "again")
    assert facts("again")["counts"] == facts("first")["counts"]


def test_a_flag_of_the_file_is_taken_back(run: Run, log: Path) -> None:
    Path("own.toml").write_text("replay = true\ncsv = true\n")
    run(
        "plan",
        str(log),
        "--config",
        "own.toml",
        "--no-replay",
        "--no-csv",
        "-b",
        "6",
        "-o",
        "first",
        "--draws",
        "0",
    )
    assert "backtest" not in facts("first")
    assert Path("first/rates.parquet").exists()
    assert tomllib.loads(Path("first/plan.toml").read_text())["test"]["replay"] is False
    assert "--no-replay" in facts("first")["command"]


def test_options_are_completed_without_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FRESHOPT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "freshopt plan --b")
    monkeypatch.setenv("COMP_CWORD", "2")
    for name in GROUPS:
        light = present(main.get_command(click.Context(main), name))
        told = {option for each in light.params for option in each.opts}
        monkeypatch.delenv("COMP_CWORD")
        assert told == {f"--{each}" for each, option in options_of(name).items() if not option.hidden}
        monkeypatch.setenv("COMP_CWORD", "2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("horizn = 1", ("sets 'horizn'", "Did you mean 'horizon'?")),
        ("hozirno = 1", ("own.toml sets 'hozirno'", "freshopt plan --init")),
        ("config = 'x'", ("own.toml sets 'config'",)),
        ("= 1", ("own.toml cannot be read as TOML",)),
        pytest.param("bandwidth = " + "[" * 100_000, ("own.toml cannot be read as TOML",), id="deep"),
        ("[plan]\nbandwidth = [1, 2]", ("own.toml: bandwidth is [1, 2]", "Give one value")),
        ("[plan.more]\nbandwidth = 1", ("own.toml sets 'more'",)),
        ("replay = 1", ("own.toml: replay is 1", "true or false")),
        ("objective = 'fresh'", ("'fresh'", "'harmonic'")),
        ("bandwidth = 'much'", ("--bandwidth: 'much' cannot be read",)),
    ],
)
def test_a_file_that_does_not_do_is_refused_in_a_line(
    text: str, words: tuple[str, ...], folder: Path
) -> None:
    Path("own.toml").write_text(text)
    refuse(folder, ["plan", "log.csv", "--config", "own.toml"], words)

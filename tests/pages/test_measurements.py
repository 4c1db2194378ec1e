"""Every measurement runs, its claims hold of quick and of saved records, and pages show what was saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pages.measured import ROOT, harness

NAMES = list(harness.places())
KEPT = [name for name in NAMES if harness.path_of(name).exists()]
PAGES = {str(page.relative_to(ROOT)): page for page in harness.pages()}
# They need a device, histories of a folder, a report of coverage, a cluster, or minutes.
ELSEWHERE = {"gpu", "real_histories", "coverage", "dask_scale", "interruption"}
RESULTS = sorted((ROOT / harness.RESULTS).glob("*.json"))


def strict(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON.")

    return json.loads(text, parse_constant=refuse)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("name", KEPT)
def test_the_claims_hold_of_what_is_saved(name: str) -> None:
    assert harness.measurement(name).failing(harness.saved(name)) == []
    assert harness.saved(name).get("quick") in (None, False)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_saved_records_are_strict_json_and_name_no_machine(path: Path) -> None:
    assert strict(path.read_text(encoding="utf-8"))
    assert str(ROOT) not in path.read_text(encoding="utf-8")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_a_quick_run_saves_shows_and_keeps_its_claims(name: str, tmp_path: Path) -> None:
    ran = run(name, "--quick", "--save", str(tmp_path))
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr
    record = strict(harness.path_of(name, tmp_path).read_text(encoding="utf-8"))
    assert record.get("quick") in (None, True)
    for page in tmp_path.glob("docs/*.md"):
        text = page.read_text(encoding="utf-8")
        assert harness.written(text, {name: record}) == text
        assert text != PAGES[f"docs/{page.name}"].read_text(encoding="utf-8")
    for picture in harness.measurement(name).pictures:
        assert (tmp_path / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_what_is_saved(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    name = next(found["name"] for found in harness.MARK.finditer(text))
    assert harness.written(text) == text, f"run: python -m benchmarks {name} --page"


def test_every_table_and_picture_has_its_place() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.values())
    shown = {(found["name"], found["key"]) for found in harness.MARK.finditer(text)}
    for name in NAMES:
        bench = harness.measurement(name)
        assert {(name, key) for key in bench.rows} <= shown
        for picture in bench.pictures:
            assert (ROOT / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            assert len((ROOT / picture).read_bytes()) < (80_000 if "scaling" in picture else 300_000)


def test_a_table_is_made_of_its_rows() -> None:
    page = "<!-- rows x.y | a b: {a b} | c: {c[d][0]:−.1p} % | : {e:yes} -->\n| old |\n\nend\n"
    rows = [{"a b": 1, "c": {"d": [-0.5]}, "e": True}, {"a b": None, "c": {"d": [0.25]}, "e": False}]
    told = harness.filled(page, lambda name, key: rows if (name, key) == ("x", "y") else [])
    table = "| a b | c |  |\n| --- | --- | --- |\n| 1 | −50.0 % | yes |\n|  | 25.0 % | no |\n"
    assert told == f"{page.split('| old')[0]}{table}\nend\n"
    assert harness.filled(told, lambda *_: rows) == told


def test_rows_are_replaced_by_their_keys() -> None:
    old = {"rows": [{"k": 1, "x": 1}, {"k": 2, "x": 1}], "n": 1}
    assert harness.by("k")(old, {"rows": [{"k": 3, "x": 2}, {"k": 1, "x": 2}], "n": 2}) == {
        "rows": [{"k": 1, "x": 2}, {"k": 2, "x": 1}, {"k": 3, "x": 2}],
        "n": 2,
    }


def test_works_are_timed_in_turns() -> None:
    told: list[str] = []
    found = harness.turns({name: lambda name=name: told.append(name) for name in "ab"}, 3)
    assert "".join(told) == "ababab"
    assert set(found) == {"a", "b"}
    assert min(found.values()) >= 0.0


def test_what_is_unknown_or_incomplete_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["speed", "--only", "hosts", "--save"], "only a complete measurement is saved"),
        (["slots", "rubbish"], "no part is called rubbish"),
    ):
        with pytest.raises(SystemExit):
            harness.main(words)
        assert told in capsys.readouterr().err
    with pytest.raises(SystemExit, match="NAME is one of"):
        harness.main(["rubbish"])


@pytest.mark.parametrize("name", NAMES)
def test_options_are_the_parameters_of_the_parts(name: str) -> None:
    bench = harness.measurement(name)
    parser = harness.parser_of(name, bench, sys.modules[harness.places()[name]].__doc__)
    given = vars(parser.parse_args([]))
    assert {key: given[key] for key in bench.options()} == bench.options()
    assert set(bench.quick) <= set(bench.options())
    assert f"python -m benchmarks {name}" in parser.format_help()

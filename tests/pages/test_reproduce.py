"""What the papers state: quick runs do not contradict the saved ones, and the page shows what is saved."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import EXACT

ROOT = Path(__file__).parents[2]
FOLDER, RESULTS = ROOT / "benchmarks" / "reproduce", ROOT / "benchmarks" / "results"
PAPERS = sorted(path.stem.removeprefix("reproduce_") for path in FOLDER.glob("reproduce_*.py"))
SAVED = {path.stem.removeprefix("reproduce_"): path for path in sorted(RESULTS.glob("reproduce_*.json"))}


@pytest.fixture(scope="module")
def frame() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("reproduce")
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(FOLDER)):
            sys.modules.pop(name)


@pytest.mark.parametrize("paper", stratified(PAPERS, every=3))
def test_a_quick_run_does_not_contradict_the_saved_one(frame: ModuleType, paper: str) -> None:
    kept = json.loads(SAVED[paper].read_text(encoding="utf-8"))
    assert kept["paper"] == paper
    assert kept["quick"] is False
    verdicts = {(each["figure"], each["text"]): each["verdict"] for each in kept["statements"]}
    assert len(verdicts) == len(kept["statements"]), "figure and text tell statements apart"
    record = frame.measure(paper, None, quick=True, seed=kept["seed"])
    assert record["statements"]
    contradicted = []
    for each in record["statements"]:
        expected = verdicts[each["figure"], each["text"]]
        if {each["verdict"], expected} == {"holds", "does not hold"}:
            contradicted.append((each, expected))
    assert not contradicted


def test_the_page_is_what_is_saved(frame: ModuleType) -> None:
    assert sorted(SAVED) == PAPERS
    assert (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == frame.page()


@pytest.mark.parametrize("paper", SAVED)
def test_saved_verdicts_follow_from_the_saved_intervals(frame: ModuleType, paper: str) -> None:
    for each in json.loads(SAVED[paper].read_text(encoding="utf-8"))["statements"]:
        assert frame.Statement.of(each).record() == each
        assert each["low"] is None or each["low"] <= each["ours"] <= each["high"]


def test_the_command_prints_and_saves_what_does_not_hold_too(
    frame: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def statements(runs: int | None, quick: bool, seed: int) -> Iterator[object]:
        assert (runs, quick, seed) == (5, False, 3)
        yield frame.Statement("Fig 1", "true | so", "1", 1.0, 0.9, 1.1, 5, 0.5, 1.5)
        yield frame.Statement("Fig 2", "false", "1", 3.0, 2.9, math.inf, 5, 0.5, 1.5)

    monkeypatch.setattr(frame, "load", lambda _: SimpleNamespace(statements=statements))
    monkeypatch.setattr(frame, "RESULTS", tmp_path)
    monkeypatch.setattr(frame, "PAGE", tmp_path / "page.md")
    arguments = ["reproduce.py", "--only", PAPERS[0], "--runs", "5", "--seed", "3"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--save"])
    frame.main()
    printed = capsys.readouterr().out
    assert "1 hold, 1 do not hold" in printed
    assert "does not hold: Fig 2: false" in printed
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert (kept["paper"], kept["seed"], kept["runs"]) == (PAPERS[0], 3, 5)
    assert [each["verdict"] for each in kept["statements"]] == ["holds", "does not hold"]
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page == frame.page()
    assert "| Fig 1 | true \\| so | 1 | 1.00 | 0.90 to 1.10 | 5 | holds |" in page
    assert "| Fig 2 | false | 1 | 3 | 2.9 to ∞ | 5 | does not hold |" in page
    monkeypatch.setattr(sys, "argv", [*arguments, "--quick", "--save"])
    with pytest.raises(SystemExit):
        frame.main()
    assert "only a full measurement is saved" in capsys.readouterr().err


def test_verdicts_follow_from_intervals(frame: ModuleType) -> None:  # noqa: ARG001 - makes the import work
    made = importlib.import_module("statements")
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    half = 2.7764451051977934 * math.sqrt(2.5 / 5)  # Student's 97.5 % quantile of 4 degrees, from a table
    for low, high, verdict in ((1, 5, "holds"), (2, 5, "undecided"), (5, 6, "does not hold")):
        found = made.within("", "", x, low, high)
        assert found.verdict == verdict
        np.testing.assert_allclose([found.ours, found.low, found.high], [3, 3 - half, 3 + half], rtol=EXACT)
    assert made.within("", "", [3.0], 1, 5).verdict == "undecided"
    assert made.equals("", "", 3.0, x, 2.0).verdict == "holds"
    squares = made.equals("", "", 1.5, x, 0.2, root=True)
    np.testing.assert_allclose([squares.ours, squares.low], np.sqrt([3, 3 - half]), rtol=EXACT)
    shifted = np.add(x, [0.1, 0.2, 0.1, 0.2, 0.1])
    assert made.below("", "", x, shifted).verdict == "holds"
    assert made.below("", "", shifted, x).verdict == "does not hold"
    assert made.below("", "", x, shifted, by=0.15).verdict == "undecided"
    apart = made.below("", "", x, shifted, paired=False)
    assert apart.verdict == "undecided"
    # Welch with equal sizes and almost equal variances: 8 degrees of freedom, quantile 2.306.
    assert apart.high - apart.ours == pytest.approx(2.306 * math.sqrt(1.0), rel=0.01)
    # Clopper-Pearson of 9 of 10, from a table: 0.555 to 0.9975.
    told = made.share("", "", [True] * 9 + [False], low=0.5)
    np.testing.assert_allclose([told.ours, told.low, told.high], [0.9, 0.5549839, 0.9974714], rtol=1e-6)
    assert told.verdict == "holds"
    assert made.share("", "", [True] * 10).high == 1.0
    assert made.always("", "", [True, True]).verdict == "holds"
    assert made.always("", "", [True, False]).verdict == "does not hold"
    assert made.exact("", "", 2.0, 2.0 + 1e-9, 1e-8).verdict == "holds"
    assert made.exact("", "", 2.0, 2.1, 1e-8).verdict == "does not hold"
    assert made.exact("", "", 2.0, math.nan, 1e-8).verdict == "undecided"

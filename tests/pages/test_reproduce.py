"""What the papers claim: tables fixed before the runs, verdicts that could come out otherwise, the page."""

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import EXACT
from tests.pages.measured import ROOT, harness, module

Row: TypeAlias = list[float] | list[bool] | NDArray[np.float64]
Samples: TypeAlias = Row | tuple[Row, Row]
FOLDER, RESULTS = ROOT / "benchmarks" / "reproduce", ROOT / "benchmarks" / "results"
PAPERS = sorted(path.stem for path in (FOLDER / "claims").glob("*.toml"))
OPPOSITE = {"holds": "does not hold", "does not hold": "holds", "undecided": "undecided"}


@pytest.fixture(scope="module")
def frame() -> ModuleType:
    return module("reproduce.reproduce")


@pytest.fixture(scope="module")
def made(frame: ModuleType) -> ModuleType:  # noqa: ARG001 - makes the import work
    return module("reproduce.claims")


def saved(paper: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RESULTS / f"reproduce_{paper}.json").read_text(encoding="utf-8"))
    return record


def test_every_paper_has_a_table_and_a_measurement() -> None:
    named = [name for name in harness.places() if name.startswith("reproduce_")]
    assert sorted(named) == [f"reproduce_{paper}" for paper in PAPERS]
    assert len(PAPERS) == 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("paper", stratified(PAPERS, every=3))
def test_a_quick_run_does_not_contradict_the_saved_one(paper: str) -> None:
    kept = saved(paper)
    assert (kept["paper"], kept["quick"], kept["seed"]) == (paper, False, 0)
    verdicts = {each["id"]: each["verdict"] for each in kept["findings"]}
    record = harness.measurement(f"reproduce_{paper}").measured(quick=True)
    assert record["findings"]
    contradicted = [
        each
        for each in record["findings"]
        if {each["verdict"], verdicts[each["id"]]} == {"holds", "does not hold"}
    ]
    assert not contradicted


def test_both_pages_show_all_papers() -> None:
    names = {f"reproduce_{paper}" for paper in PAPERS}
    for page in (FOLDER / "findings.md", ROOT / "docs" / "evidence" / "papers.md"):
        assert page in harness.pages()  # which are held to what is saved
        assert harness.shows(page.read_text(encoding="utf-8")) == names


@pytest.mark.parametrize("paper", PAPERS)
def test_saved_findings_are_of_the_claims_in_the_table(frame: ModuleType, paper: str) -> None:
    found = frame.findings(saved(paper))
    assert [each.claim.id for each in found] == list(frame.Table.read(paper).claims)
    measured = harness.measurement(f"reproduce_{paper}").options()["claims"]
    assert sorted(measured) == sorted(frame.Table.read(paper).claims)
    # That no band, number of runs or, without a reason, origin has changed is the measurement's claim.
    assert len(list(frame.of_the_table(saved(paper)))) == len(found)
    assert all(each.runs == each.claim.runs for each in found)
    for each, record in zip(found, saved(paper)["findings"], strict=True):
        assert each.record() == record
        assert record["low"] is None or record["low"] <= record["estimate"] <= record["high"]
    listed = [name for group in saved(paper)["groups"] for name in group["claims"]]
    assert sorted(listed) == sorted(each.claim.id for each in found)


def test_what_is_written_anew_after_a_run_is_told_and_decides_nothing(
    frame: ModuleType, made: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = made.Claim("x", "Thm 1", "theorem", "so", "mean", "mean", 3, at_most=1.0)
    finding = made.decided(then, [0.1, 0.2, 0.3], made.Plan({"x": then}, commit="abc"))
    record = {"paper": "p", "groups": [], "findings": [finding.record()]}

    def kept(now: Any) -> list[Any]:  # noqa: ANN401 - a Claim of a module that is imported by its path
        monkeypatch.setattr(frame.Table, "read", lambda paper: made.Table(paper, "", "", "", {"x": now}, []))
        void = [words for words, so in frame.of_the_table(record) if not so]
        found: list[Any] = void or frame.findings(record)
        return found

    (reworded,) = kept(replace(then, claim="just so"))
    assert reworded.as_run == then
    assert "Written before the run: so: mean" in frame.page_cells(reworded)[1]
    (judged,) = kept(replace(then, origin="own", judged="It checks our code"))
    assert judged.as_run.origin == "theorem"
    assert "Before the run: its theorem. It checks our code" in frame.page_cells(judged)[1]
    for changed in (
        replace(then, origin="own"),
        replace(then, judged="It is the same"),
        replace(then, at_most=2.0),
        replace(then, runs=4),
        replace(then, kind="root"),
    ):
        assert kept(changed) == ["x: measure again, with --claims x --save"]
    again = made.decided(replace(then, origin="own"), [0.1, 0.2, 0.6], made.Plan({"x": then}, commit="def"))
    kept_then = frame.remeasured(record["findings"][0], again.record())
    assert (kept_then["as_run"], kept_then["commit"]) == ({"origin": "theorem"}, "abc")
    assert kept_then["estimate"] == pytest.approx(0.3)
    wider = made.decided(replace(then, at_most=2.0), [0.1, 0.2, 0.6], made.Plan({"x": then}, commit="def"))
    assert frame.remeasured(record["findings"][0], wider.record()) == wider.record()


def test_what_rates_reach_that_never_learn_stands_beside(frame: ModuleType, made: ModuleType) -> None:
    claim = made.Claim("x", "Thm 1", "theorem", "so", "mean", "mean", 3, at_most=1.0)
    beside = made.Beside([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    finding = made.decided(claim, beside, made.Plan({"x": claim}))
    assert frame.estimated(finding).endswith("3 runs; without learning 0.50")
    assert made.Finding.of(finding.record()) == finding
    bounds = [
        each
        for each in frame.findings(saved("mirrorsync"))
        if each.claim.id.startswith(("theorem-5.1", "corollary-1", "gap-"))
    ]
    assert len(bounds) == 6
    assert all(each.never is not None and each.estimate < each.never for each in bounds)


@pytest.mark.parametrize("paper", PAPERS)
def test_a_saved_verdict_turns_with_the_sign_of_its_claim(frame: ModuleType, paper: str) -> None:
    ordered = [
        each for each in frame.findings(saved(paper)) if math.isinf(each.claim.at_least - each.claim.at_most)
    ]
    assert ordered
    for each in ordered:
        low, high = each.claim.at_least, each.claim.at_most
        turned = replace(
            each.claim,
            at_least=-math.inf if math.isinf(high) else high,
            at_most=math.inf if math.isinf(low) else low,
        )
        assert replace(each, claim=turned).verdict == OPPOSITE[each.verdict], each.claim.id


@pytest.mark.parametrize(
    ("kind", "samples", "mirrored"),
    [
        ("mean", [-2.0, -2.1, -2.2], [2.0, 2.1, 2.2]),
        ("root", [0.01, 0.02, 0.03], [9.0, 9.5, 10.0]),
        ("two means", ([1.0, 2.0, 3.0], [7.0, 8.0, 9.0]), ([7.0, 8.0, 9.0], [1.0, 2.0, 3.0])),
        ("share", [False] * 30, [True] * 30),
        ("exact", [-1.0], [1.0]),
    ],
)
def test_the_other_sign_gives_the_other_verdict(
    made: ModuleType, kind: str, samples: Samples, mirrored: Samples
) -> None:
    runs = len(samples[0]) if isinstance(samples, tuple) else len(samples)
    edge = {"root": 1.0, "share": 0.5}.get(kind, 0.0)
    claim = made.Claim(
        "x", "Fig 1", "figure", "one is below the other", "difference", kind, runs, at_most=edge
    )
    turned = replace(claim, at_least=edge, at_most=math.inf)
    plan = made.Plan({"x": claim})
    for given, verdict in ((samples, "holds"), (mirrored, "does not hold")):
        assert made.decided(claim, given, plan).verdict == verdict
        assert made.decided(turned, given, plan).verdict == OPPOSITE[verdict]


def test_one_run_that_disagrees_is_enough(made: ModuleType) -> None:
    claim = made.Claim("x", "Thm 1", "theorem", "always so", "share", "always", 20, 1.0, 1.0)
    plan = made.Plan({"x": claim})
    assert made.decided(claim, [True] * 20, plan).verdict == "holds"
    assert made.decided(claim, [True] * 19 + [False], plan).verdict == "does not hold"


def test_tables_decide_how_many_runs_there_are(made: ModuleType) -> None:
    claim = made.Claim("x", "Fig 1", "number", "a number", "mean", "mean", 3, 0.0, 1.0)
    refused("2 runs instead of 3", made.decided, claim, [0.1, 0.2], made.Plan({"x": claim}), error=ValueError)
    refused("decides nothing", replace, claim, at_least=-math.inf, at_most=math.inf, error=ValueError)
    refused("origin 'prototype'", replace, claim, origin="prototype", error=ValueError)
    table = made.Table("p", "P", "", "", {"x": claim}, [])
    measure = made.Measurements()
    refused(r"never \{'x'\}", measure.check, table, error=ValueError)
    measure.of("x")(lambda plan: iter([("x", [0.5] * plan.runs("x"))]))
    measure.check(table)
    measure.of("x", quick=2)(lambda plan: iter([("x", [0.5] * plan.runs("x"))]))
    refused(r"measured twice \{'x'\}", measure.check, table, error=ValueError)


def test_the_command_prints_and_saves_what_does_not_hold_too(
    frame: ModuleType,
    made: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "claims").mkdir()
    entry = (
        '[[claim]]\nid = "{0}"\nplace = "Fig {1}"\norigin = "figure"\nclaim = "{0} | so"\n'
        'statistic = "mean"\nkind = "mean"\nruns = 5\nat_least = 0.5\nat_most = 1.5\n'
    )
    head = 'title = "A paper"\nplace = "2020"\nsetting = "Small."\n'
    table = head + entry.format("true", 1) + entry.format("false", 2)
    (tmp_path / "claims" / "p.toml").write_text(table, encoding="utf-8")
    measure = made.Measurements()
    measure.of("true", quick=3)(lambda plan: iter([("true", np.linspace(0.9, 1.1, plan.runs()))]))
    measure.of("false")(lambda plan: [np.linspace(2.9, 3.1, plan.runs())])
    monkeypatch.setattr(made, "FOLDER", tmp_path / "claims")
    monkeypatch.setattr(frame, "PAPERS", ("p",))
    monkeypatch.setattr(frame, "table_commit", lambda: "abc")
    bench = frame.of_paper("p", measure)
    record = bench.merge({}, bench.measured())
    printed = capsys.readouterr().out
    assert "1 hold, 1 do not hold" in printed
    assert "does not hold: Fig 2: false" in printed
    assert harness.text_of(record) == json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    monkeypatch.setattr(harness, "places", lambda: {"reproduce_p": "p"})
    monkeypatch.setattr(harness, "measurement", lambda _: bench)
    monkeypatch.setattr(frame, "saved", lambda _: record)
    columns = "claim: {claim} | found: {found}"
    texts = (f"<!-- text reproduce_p.{key} -->\n<!-- end -->\n" for key in ("findings", "overview"))
    text = f"<!-- rows reproduce_p.not_held | {columns} -->\n| old |\n{''.join(texts)}"
    page = harness.written(text, {"reproduce_p": record})
    assert "| false \\| so: mean |" in page
    assert "| true" not in page.split("<!-- text")[0]
    assert "| the paper's ordering or figure | 1 | 1 | 0 |" in page
    assert "true \\| so: mean | 0.5 to 1.5 (mean) | 1.00 (0.90 to 1.10), 5 runs |" in page
    again = bench.merge(record, bench.measured(claims=("false",)))
    assert [each["claims"] for each in again["groups"]] == [["true"], ["false"]]
    assert again["findings"] == record["findings"]
    quick = bench.measured(quick=True)
    assert [each["id"] for each in quick["findings"]] == ["true"]
    changed = table.replace("at_most = 1.5", "at_most = 3.5")
    (tmp_path / "claims" / "p.toml").write_text(changed, encoding="utf-8")
    void = [f"{name}: measure again, with --claims {name} --save" for name in ("true", "false")]
    assert bench.failing(record) == void
    for unsaved in (quick, bench.measured(seed=1)):
        with pytest.raises(SystemExit, match="only a full measurement from seed 0"):
            bench.merge(record, unsaved)


def test_verdicts_follow_from_intervals(made: ModuleType) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764451051977934 * math.sqrt(2.5 / 5)  # Student's 97.5 % quantile of 4 degrees, from a table

    def found(kind: str, samples: Samples, low: float, high: float) -> SimpleNamespace:
        runs = len(samples[0]) if isinstance(samples, tuple) else len(samples)
        claim = made.Claim("x", "Fig 1", "own", "", "", kind, runs, low, high)
        each: SimpleNamespace = made.decided(claim, samples, made.Plan({"x": claim}))
        return each

    for low, high, verdict in ((1, 5, "holds"), (2, 5, "undecided"), (5, 6, "does not hold")):
        each = found("mean", x, low, high)
        assert each.verdict == verdict
        np.testing.assert_allclose([each.estimate, each.low, each.high], [3, 3 - half, 3 + half], rtol=EXACT)
    assert found("mean", [3.0], 1, 5).verdict == "undecided"
    squares = found("root", x, 1.3, 1.7)
    np.testing.assert_allclose([squares.estimate, squares.low], np.sqrt([3, 3 - half]), rtol=EXACT)
    apart = found("two means", (x, np.add(x, [0.1, 0.2, 0.1, 0.2, 0.1])), -math.inf, 0.0)
    assert apart.verdict == "undecided"
    # Welch with equal sizes and almost equal variances: 8 degrees of freedom, quantile 2.306.
    assert apart.high - apart.estimate == pytest.approx(2.306 * math.sqrt(1.0), rel=0.01)
    # Clopper-Pearson of 9 of 10, from a table: 0.555 to 0.9975.
    told = found("share", [True] * 9 + [False], 0.5, 1.0)
    np.testing.assert_allclose([told.estimate, told.low, told.high], [0.9, 0.5549839, 0.9974714], rtol=1e-6)
    assert told.verdict == "holds"
    assert found("share", [True] * 10, 0.0, 1.0).high == 1.0
    assert found("exact", [math.nan], 0.0, 1.0).verdict == "undecided"


def test_findings_are_saved_from_claims_that_are_committed(
    frame: ModuleType,
    made: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    claims = tmp_path / "claims"
    claims.mkdir()
    monkeypatch.setattr(frame, "ROOT", tmp_path)
    monkeypatch.setattr(made, "FOLDER", claims)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert frame.table_commit() == ""
    assert "save them in a git repository" in capsys.readouterr().out

    def git(*words: str) -> str:
        told = subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return told.stdout.strip()

    git("init", "-q")
    (claims / "p.toml").write_text("title = 'P'\n", encoding="utf-8")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "Claims")
    assert frame.table_commit() == git("rev-parse", "--short", "HEAD")
    (claims / "p.toml").write_text("title = 'Q'\n", encoding="utf-8")
    assert frame.table_commit() == ""
    assert "entered before its runs" in capsys.readouterr().out
    record = {"seed": 0, "quick": False, "findings": [{"commit": ""}]}
    with pytest.raises(SystemExit, match="of claims that are committed"):
        frame.merged({}, record)

"""`freshopt check`: what it runs, what it prints and writes, and when it fails."""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
import freshopt.cli.check  # its help names the solvers that there are when it is loaded
from freshopt.certificates.solution import Answer
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, Solver, certified_solution
from freshopt.cli import check_problems
from freshopt.cli.check_problems import FAMILY, built_in, takes_long
from freshopt.cli.check_summary import Checked, Digest, page
from freshopt.naming import OBJECTIVES
from freshopt.terminal import options
from tests.ground_truth.command_lines import Run, file_with, refuse
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.strata import exhaustive

# The command is loaded on use, and its help names the solvers: those that there are, not those of a test.
import_module("freshopt.cli.check")
SOME_AND_ALL = [
    ("plain", "signals", "hosts"),
    pytest.param(tuple(name for name, *_ in FAMILY), marks=exhaustive),
]
OWN = ("check", "sources.csv", "--objective", "delay", "--bandwidth", "48/h", "--time-unit", "hour")
OWN_OBJECTIVE = """
from dataclasses import dataclass
import freshopt as fo
from freshopt.cvx import cp

@dataclass(frozen=True)
class Mine(fo.Objective):
    power: float = 1.0
    refresh: fo.Refresh = fo.Refresh.PERIODIC
    def per_source(self, rate, sources):
        return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -self.power))
"""
ROW = re.compile(r"^(\S+) +(periodic|poisson) +(\S.*?) +(\d+)  (\d+) of (\d+) proved(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Evenly:
    """Gives every source the same, and takes that for the optimum."""

    def supports(self, problem: fo.Problem) -> str | None:  # noqa: ARG002
        return None

    def solve(self, problem: fo.Problem, terms: SolveOptions = DEFAULT) -> fo.Solution:
        even = np.full(len(problem.sources), problem.bandwidth / len(problem.sources))
        return certified_solution(self, problem, terms, lambda _problem, _start: Answer(even))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    path = file_with(tmp_path / "sources.csv", "source,change_rate\na,1\nb,2\nc,10\n")
    return path


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave two exact solvers and a baseline in the table, so that a run of everything is short."""
    kept = ("water-filling", "closed-form", "uniform")
    solvers: dict[str, Solver] = {key: options.SOLVERS[key] for key in kept}
    monkeypatch.setattr(options, "SOLVERS", solvers)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("instances", SOME_AND_ALL, ids=["some", "all"])
def test_the_default_run_covers_every_objective_discipline_and_constraint(
    run: Run, instances: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = tuple(each for each in FAMILY if each[0] in instances)
    monkeypatch.setattr(check_problems, "FAMILY", family)
    output = run("check").output
    rows = [match.groups() for match in ROW.finditer(output)]
    cells = {(name, refresh.value) for name, named in OBJECTIVES.items() for refresh in named.refreshes}
    assert {(name, refresh) for name, refresh, *_ in rows} == cells
    sizes = {name: str(n) for name, _, n, _ in family}
    for name, refresh in cells:
        own = {
            case: n
            for objective, discipline, case, n, *_ in rows
            if (objective, discipline) == (name, refresh)
        }
        wanted = {case for case in sizes if not takes_long(case, name, "water-filling")}
        assert wanted - set(own) <= {"signals"}  # which some objectives do not have
        assert all(sizes[case] == n for case, n in own.items())
    assert all(proved == judged for *_, proved, judged, _ in rows)
    assert {case for _, _, case, *_ in rows} == set(sizes)
    assert output.splitlines()[-1] == (
        f"The optimum of all {len(rows)} problems is proved, and no solver contradicts another."
    )
    assert "skipped, because there is no such problem" in output
    assert re.search(rf"^water-filling +{len(rows)} +{len(rows)} +0 ", output, re.MULTILINE)
    assert re.search(r"^closed-form +(\d+) +\1 +0 ", output, re.MULTILINE)
    assert "Left out because they take long" in output


def test_the_built_in_instances_are_what_their_names_say() -> None:
    first, again = ({case.name: case for case in built_in()} for _ in range(2))
    for name, case in first.items():
        np.testing.assert_array_equal(case.sources.change_rate, again[name].sources.change_rate)
        assert bool(case.host_limits) == (name == "hosts")
        assert bool(np.any(case.sources.signalled)) == (name == "signals")
        assert bool(np.ptp(case.sources.refresh_cost) > 0.0) == (name == "unequal costs")
        assert bool(np.any(np.isfinite(case.sources.max_rate))) == (name == "bounds")
        decades = np.ptp(np.log10(case.sources.change_rate))
        assert (decades > 5.0) == (name == check_problems.ILL)
    delay = fo.problems.AccumulatedDelay(fo.Refresh.PERIODIC)
    hosts = first["hosts"]
    solution = fo.solve(fo.Problem(delay, hosts.sources, hosts.bandwidth, hosts.host_limits))
    assert max(solution.host_prices.values()) > 0.0  # a limit that does not bind would check nothing


@pytest.mark.exhaustive
@pytest.mark.parametrize("instances", SOME_AND_ALL, ids=["some", "all"])
def test_all_solvers_prove_a_simple_objective_on_every_instance(
    run: Run, instances: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = tuple(each for each in FAMILY if each[0] in instances)
    monkeypatch.setattr(check_problems, "FAMILY", family)
    output = run("check", "--objective", "delay", "--refresh", "poisson").output
    rows = [match.groups() for match in ROW.finditer(output)]
    assert [case for _, _, case, *_ in rows] == [name for name, *_ in family]
    assert all(proved == judged and int(judged) >= 5 for *_, proved, judged, _ in rows)
    table = output[output.index("\nsolver ") :]
    for name in ("water-filling", "clarabel", "ecos", "scs", "mirror-descent", "projected-gradient"):
        assert re.search(rf"^{name} +(\d+) +\1 +0 ", table, re.MULTILINE)
    assert re.search(r"not applicable to any of these problems: .*lambda-crawl", " ".join(output.split()))
    assert not re.search(r"^uniform", table, re.MULTILINE)  # a baseline does not aim at the optimum


@pytest.mark.exhaustive
def test_linear_programs_are_highs_own(run: Run) -> None:
    output = run("check", "--objective", "deadline", "--solvers", "highs,water-filling,clarabel").output
    assert re.search(r"^highs +6 +6 +0 ", output, re.MULTILINE)


@pytest.mark.exhaustive
def test_own_sources_get_a_table_and_fail_when_a_named_solver_falls_short(run: Run, sources: Path) -> None:
    assert sources.exists()
    output = run(*OWN, "--solvers", "water-filling, closed-form").output
    assert "n=3, bandwidth=48 per hour" in output
    assert output.count("proved optimal") == 4
    assert output.count("The solvers agree: 2 of 2 prove the optimum to a relative gap of 1e-06.") == 2
    output = run(*OWN, "--solvers", "scs", "--tolerance", "1e-300", code=1).output
    assert "NOT optimal" in output
    assert (
        "The solvers do NOT agree: 0 of 1 prove the optimum to a relative gap of 1e-300; not so scs."
        in output
    )
    assert re.search(r"is proved, but not of delay periodic, sources\.csv and 1 more", output)


def test_without_names_a_solver_may_fall_short_if_another_proves_the_optimum(
    run: Run, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sources.exists()
    evenly: dict[str, Solver] = {"water-filling": options.SOLVERS["water-filling"], "evenly": Evenly()}
    monkeypatch.setattr(options, "SOLVERS", evenly)
    output = run(*OWN).output
    assert "1 of 2 prove the optimum to a relative gap of 1e-06; not so evenly." in output
    assert " ".join(output.split()).endswith("2 answers fell short of it, as a certified relative gap shows.")
    assert re.search(r"^evenly +2 +0 +2 +\d\.\de-\d\d +0\.0  delay p", output, re.MULTILINE)
    run(*OWN, "--solvers", "evenly", code=1)
    run(*OWN, "--solvers", "evenly,water-filling", code=1)
    monkeypatch.setattr(options, "SOLVERS", {"evenly": Evenly()})
    assert "The optimum of 0 of 2 problems is proved" in run(*OWN, code=1).output


def test_lines_have_a_hundred_columns_at_most(
    run: Run, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sources.exists()
    kept = ("water-filling", "binary-lambda-crawl", "nested-water-filling", "uniform")
    solvers: dict[str, Solver] = {key: options.SOLVERS[key] for key in kept}
    monkeypatch.setattr(options, "SOLVERS", {**solvers, "evenly-by-count": Evenly()})
    monkeypatch.setattr(check_problems, "FAMILY", FAMILY[:2])
    for arguments in (["sources.csv", "--objective", "power"], ["--objective", "delay", "--details"]):
        output = run("check", *arguments).output
        assert max(map(len, output.splitlines())) <= 100, output
        assert "evenly-by-count" in output


def test_a_named_solver_that_applies_to_nothing_fails(run: Run, sources: Path) -> None:
    assert sources.exists()
    age = ("check", "sources.csv", "--objective", "age")
    output = run(*age, "--solvers", "closed-form,water-filling", code=1).output
    assert "Not applicable to any of them: closed-form." in " ".join(output.split())
    assert "No solver that aims at the optimum applies." in run(*age, "--solvers", "uniform", code=1).output
    # Where there are others to check, a refusal is no failure: the closed form has two of these four.
    run("check", "sources.csv", "--solvers", "closed-form", "--objective", "delay")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("few")
def test_what_does_not_exist_is_skipped_unless_it_is_all(run: Run, folder: Path) -> None:
    Path("signalled.csv").write_text("source,change_rate,signalled\na,1,1\nb,2,0\n")
    output = run("check", "signalled.csv").output
    assert re.search(r"^ +polls periodic, signalled\.csv.*: 'a' is signalled, but", output, re.MULTILINE)
    assert re.search(r"^  deadline periodic, .*: --objective deadline needs one", output, re.MULTILINE)
    assert "harmonic poisson, signalled.csv\n" in output
    periodic = ["check", "signalled.csv", "--objective", "polls", "--refresh", "periodic"]
    refuse(folder, periodic, ("'a' is signalled", "signalled=False"))
    polls = ["check", "--objective", "polls", "--refresh", "poisson"]
    refuse(folder, polls, ("polls has no poisson cell", "Use --refresh periodic"))
    refuse(folder, ["check", "--host-limits", "l.csv"], ("--host-limits is for SOURCES", "check --help"))
    refuse(folder, ["check", "--time-unit", "hour"], ("--time-unit is for SOURCES", "check --help"))
    refuse(folder, ["check", "--bandwidth", "1e-9/day", "--objective", "x"], ("'x' is not one of",))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("few")
def test_an_objective_of_ones_own_is_checked(run: Run, sources: Path) -> None:
    Path("ownchecked.py").write_text(OWN_OBJECTIVE, encoding="utf-8")
    own = ("--objective", "ownchecked.py:Mine(2.0)")
    table = run("check", str(sources), *own).output
    assert "ownchecked.py:Mine(2.0) periodic" in table
    assert table.splitlines()[-1].startswith("The optimum of the problem is proved")
    rows = [
        row for row in run("check", *own).output.splitlines() if row.startswith("ownchecked.py:Mine(2.0)")
    ]
    assert len(rows) == len(FAMILY) - 1  # the signals it does not know
    even = ("--solver", "freshopt.solvers:WaterFilling", "--n", "2")
    assert "No shortfall: " in run("check", *own, *even).output
    wrong = run("check", *own, "--refresh", "poisson", code=2).output
    assert "is of periodic refreshes, not of poisson ones" in wrong
    assert "are not for --objective" in run("check", *own, "--deadline", "2d", code=2).output


def test_host_limits_reach_the_problem(run: Run, folder: Path) -> None:
    assert folder.exists()
    Path("hosted.csv").write_text("source,change_rate,host\na,1,x\nb,2,x\nc,3,y\n")
    Path("limits.csv").write_text("host,limit\nx,0.5\n")
    how = ("--objective", "binary", "--refresh", "poisson", "--solvers", "water-filling,clarabel")
    free = run("check", "hosted.csv", *how).output
    limited = run("check", "hosted.csv", *how, "--host-limits", "limits.csv").output
    assert "1 host limit)" in limited
    assert "1 host limit)" not in free


@pytest.mark.exhaustive
def test_the_page_stands_alone_and_says_what_the_terminal_does(run: Run, folder: Path) -> None:
    Path("a<b>.csv").write_text("source,change_rate\na,1\nb,2\n")
    how = ("check", "a<b>.csv", "--objective", "delay", "--solvers", "water-filling,ecos,closed-form")
    output = run(*how, "--html", "page.html").output
    assert output.splitlines()[-1] == "wrote page.html"
    text = Path("page.html").read_text(encoding="utf-8")
    found = PageReader(text)
    assert found.counts["details"] == 2
    assert found.counts["table"] == 3
    assert set(found.scopes) == {"col", "row"}
    assert found.text.count("proved optimal") == 6
    assert output.splitlines()[-2] in found.text
    assert "delay poisson, a<b>.csv" in found.text
    refuse(folder, [*how, "--html", "page.html"], ("page.html already exists", "--overwrite"))
    run(*how, "--html", "page.html", "--overwrite")


def test_the_page_opens_where_somebody_falls_short() -> None:
    problem = fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), fo.Sources([1.0, 4.0]), 3.0)
    good = {"exact": options.SOLVERS["water-filling"]}
    digest = Digest(())
    digest.checked.append(Checked("delay", "poisson", "one", fo.cross_check(problem, good)))
    digest.checked.append(
        Checked("delay", "poisson", "two", fo.cross_check(problem, {**good, "evenly": Evenly()}))
    )
    text = page(digest, about=["two problems"])
    assert text.count("<details>") == text.count("<details open>") == 1
    assert "evenly: the certified relative gap" in text
    assert 'class="outcome good"' in text
    assert 'class="outcome bad"' in page(Digest(("evenly",), digest.checked), about=[])

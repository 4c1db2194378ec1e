"""Saved measurements of estimators and of slow inputs hold what is promised, and rows are what they say."""

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom

import freshopt as fo
from freshopt import problems
from freshopt.compiled.columns import Columns
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.estimators import estimator
from freshopt.estimators.estimator import Estimator
from freshopt.separable.kernel_columns import kernel_columns, kinds_of
from tests.ground_truth.crawl_logs import found_changes
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.pages.measured import ROOT, harness, module

ROWS: list[dict[str, Any]] = harness.saved("interval_coverage")["rows"]


def rows(method: str, **wanted: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    chosen = [row for row in ROWS if row["method"].startswith(method)]
    return [row for row in chosen if all(row[key] == value for key, value in wanted.items())]


def test_the_docstrings_have_the_coverage_of_few_crawls() -> None:
    words = re.sub(r"\s+", " ", Estimator.interval.__doc__ or "")
    told: dict[str, Any] = {"estimator": "MaximumLikelihood", "gaps": "equal", "confidence": 0.9}
    shown = {}
    for crawls in (5, 10):
        (row,) = rows("Posterior", crawls=crawls, **told)
        shown[crawls] = f"{row['average']:.2f}", f"between {row['lowest']:.2f} and {row['highest']:.2f}"
    assert "those of 0.9 cover {} on average and {}".format(*shown[5]) in words
    assert "after 10 they cover {} and {}".format(*shown[10]) in words
    ratio = [row for crawls in (5, 10) for row in rows("LikelihoodRatio", crawls=crawls, **told)]
    least, most = min(row["lowest"] for row in ratio), max(row["highest"] for row in ratio)
    assert f"`LikelihoodRatio` covers between {least:.2f} and {most:.2f} there" in words


def test_what_is_said_of_the_others_is_so() -> None:
    few = {
        row["confidence"]: row["average"]
        for row in rows("LikelihoodRatio", estimator="MaximumLikelihood", crawls=20)
    }
    assert few[0.8] < 0.78
    assert "after 20" in (estimator.__doc__ or "").replace("\n", " ")


def test_the_docstring_has_the_measured_swing() -> None:
    words = re.sub(r"\s+", " ", Estimator.interval.__doc__ or "")
    numbers = re.search(
        r"after 20 equal crawl intervals, credible intervals of 0\.8 cover between "
        r"([\d.]+) and ([\d.]+) of the time, "
        r"those of 0\.95 between ([\d.]+) and ([\d.]+); after 200 the range is "
        r"([\d.]+) to ([\d.]+) and ([\d.]+) to ([\d.]+) ",
        words,
    )
    assert numbers
    told = iter(map(float, numbers.groups()))
    for crawls in (20, 200):
        for confidence in (0.8, 0.95):
            (row,) = rows(
                "Posterior", estimator="MaximumLikelihood", gaps="equal", crawls=crawls, confidence=confidence
            )
            assert next(told) == pytest.approx(row["lowest"], abs=0.0051)
            assert next(told) == pytest.approx(row["highest"], abs=0.0051)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_a_row_is_the_sum_of_probabilities_that_it_says(confidence: float) -> None:
    """Equal gaps: Jeffreys' interval of the share, ends opened, summed over binomial outcomes."""
    found = np.arange(21)
    tail = 0.5 * (1 - confidence)
    low = np.where(found == 0, 0.0, beta.ppf(tail, found + 0.5, 20.5 - found))
    high = np.where(found == 20, 1.0, beta.ppf(1 - tail, found + 0.5, 20.5 - found))
    (row,) = rows("Posterior", estimator="MaximumLikelihood", gaps="equal", crawls=20, confidence=confidence)
    for rate, covered in row["at"].items():
        share = -np.expm1(-float(rate))
        expected = binom.pmf(found, 20, share)[(low <= share) & (share <= high)].sum()
        assert covered == pytest.approx(expected, abs=1e-9)


FOLDER, SAVED = ROOT / "benchmarks" / "reproduce", ROOT / "benchmarks" / "results"


def test_what_the_page_says_of_lost_pages_is_so() -> None:
    found = {each["id"]: each for each in harness.saved("reproduce_estimators")["findings"]}
    assert found["lost-alpha-1"]["high"] < 1.0
    assert found["lost-others"]["estimate"] == 1.0
    assert found["lost-alpha-1"]["runs"] == found["lost-others"]["runs"] == 1000
    for name in ("adaptive-rates-lln", "adaptive-rates-mle"):
        assert found[name]["high"] < found["adaptive-rates-default"]["low"]


def log_of_a_few() -> fo.CrawlLog:
    rng = np.random.default_rng(5)
    source = np.repeat(["a", "b", "c", "d"], [40, 25, 30, 3])
    time = np.concatenate([np.cumsum(rng.exponential(1.0, n)) for n in (40, 25, 30, 3)])
    return fo.CrawlLog(source, time, rng.random(98) < 0.4)


def test_held_out_scores_are_log_likelihoods_of_gaps_after_the_middle() -> None:
    log, held_out = log_of_a_few(), module("reproduce.held_out")
    middle = (min(log.time) + max(log.time)) / 2
    assert held_out.middle_of(log) == middle
    halves = held_out.split(log, middle)
    rows = [
        (log.names[k], float(end - gap), float(end), bool(changed))
        for k, end, gap, changed in zip(log.source_index, log.time, log.interval, log.changed, strict=True)
        if not math.isnan(gap)
    ]
    kept = [
        name
        for name in log.names.tolist()
        if any(who == name and end <= middle for who, _, end, _ in rows)
        and any(who == name and begin >= middle for who, begin, _, _ in rows)
    ]
    assert kept == ["a", "b", "c"]
    assert halves.sources == len(kept)
    rates = np.array([0.3, 1.1, 2.0])
    expected = np.zeros(len(kept))
    for who, begin, end, changed in rows:
        if who in kept and begin >= middle:
            x = rates[kept.index(who)] * (end - begin)
            expected[kept.index(who)] += math.log(1 - math.exp(-x)) if changed else -x
    np.testing.assert_allclose(halves.after.scores(rates), expected, rtol=SCALAR)
    learnt = [(who, end) for who, _, end, _ in rows if who in kept and end <= middle]
    assert np.count_nonzero(~np.isnan(halves.before.interval)) == len(learnt)
    assert np.max(halves.before.time) == max(end for _, end in learnt)


def test_a_crawler_that_comes_less_often_sees_the_same_changes() -> None:
    log, every = log_of_a_few(), 7
    sparse = module("reproduce.held_out").thinned(log, every)
    expected = []
    for k, name in enumerate(log.names):
        rows = slice(log.offsets[k], log.offsets[k + 1])
        time, changed = log.time[rows], log.changed[rows]
        for last in range(0, len(time), every):
            found = bool(last) and bool(changed[last - every + 1 : last + 1].any())
            expected.append((name, time[last], found))
    names = sparse.names[sparse.source_index]
    labels = [log.names[int(name)] for name in names]
    assert list(zip(labels, sparse.time, sparse.changed.tolist(), strict=True)) == expected


@pytest.mark.exhaustive
def test_a_prior_gains_where_rates_are_spread_and_crawls_are_few() -> None:
    rng = np.random.default_rng(8)
    n, crawls = 300, 60
    rates = rng.gamma(0.5, 0.4, n)[:, None]
    gaps = rng.exponential(1.0, (n, crawls))
    changed = found_changes(rng, rates, gaps)
    log = fo.CrawlLog(np.repeat(np.arange(n), crawls), np.cumsum(gaps, axis=1).ravel(), changed.ravel())
    record = module("reproduce.held_out").judged("simulated", log)
    every, groups = record["groups"]["all"]["estimators"], record["groups"]
    assert every["MaximumLikelihood, prior"]["verdict"] == "holds"
    assert every["one rate for all"]["verdict"] == "does not hold"
    assert groups["changed before"]["sources"] + groups["never changed before"]["sources"] <= n
    assert record["learnt_from"] + record["scored"] < n * crawls  # some gaps straddle the middle
    parts = [groups[key] for key in ("changed before", "never changed before")]
    total = sum(part["scored"] * part["estimators"]["Naive"]["per_crawl"] for part in parts)
    assert total == pytest.approx(
        record["scored"] * every["Naive"]["per_crawl"], rel=1e-5
    )  # saved to 6 digits


def test_a_log_is_judged_by_signs_and_sums() -> None:
    judged = module("reproduce.held_out").compared
    told = judged(np.array([-1.0, -2.0, -3.0, -4.0]), np.array([-1.5, -2.5, -3.5, -3.0]), np.full(4, 10.0))
    assert (told["wins"], told["losses"], told["verdict"]) == (3, 1, "undecided")
    assert told["per_crawl"] == pytest.approx(-0.25, rel=EXACT)
    assert told["gain_per_1000"] == pytest.approx(1000 * 0.5 / 40, rel=EXACT)
    assert told["sign_test"] == pytest.approx(2 * (1 + 4) / 16, rel=EXACT)


def test_simulated_gaps_have_the_transforms_that_are_told() -> None:
    rng = np.random.default_rng(6)
    for kind, (draw, transform) in module("reproduce.estimator_runs").GAPS.items():
        gaps = draw(rng, (1000, 200))
        for seen, told in ((gaps, 1.0), (np.exp(-1.7 * gaps), transform(1.7))):
            error = seen.std() / math.sqrt(seen.size)
            assert abs(seen.mean() - told) <= 4 * error + EXACT, kind


N = 600
cliffs = module("speed.cliffs")
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    problems.LaterThan: (1.0,),
    problems.ExpectedPenalty: (np.sqrt,),
    problems.SynchronizationCost: (problems.PowerCost(1.0, 0.5),),
}


def task(cell: str, family: str, budget: float = 0.3, hosts: str = cliffs.NONE) -> Any:  # noqa: ANN401
    return cliffs.problem(cliffs.CELLS[cell], cliffs.Input(cell, family, budget, N, hosts))


def test_every_family_is_a_problem_of_its_budget_with_and_without_hosts() -> None:
    assert len(cliffs.FAMILIES) == 13
    for family in cliffs.FAMILIES:
        for cell in ("harmonic", "binary, signals"):
            for hosts in (cliffs.NONE, cliffs.HALF):
                own = task(cell, family, hosts=hosts)
                sources = own.sources
                assert own.bandwidth == pytest.approx(0.3 * float(np.sum(sources.change_rate)))
                assert (len(own.hosts) > 0) == (hosts == cliffs.HALF)
                signalled = np.sum(np.broadcast_to(sources.signalled, N))
                assert 0.3 * N < signalled < 0.7 * N or cell == "harmonic"
            for budget in (0.9, 1.0):
                limited = task(cell, family, budget, cliffs.ALL)
                assert np.all(limited.hosts.codes < len(limited.hosts))
                assert limited.bandwidth == pytest.approx(budget * float(np.sum(limited.hosts.limits)))
    assert np.sum(np.isfinite(task("delay", "max_rate on half").upper)) == N // 2
    assert len(set(task("delay", "all alike").sources.change_rate)) == 1


def test_every_cell_and_budget_has_the_same_data() -> None:
    one, other = (task(cell, "costs", hosts=cliffs.HALF) for cell in ("delay", "age, signals"))
    assert np.array_equal(one.sources.change_rate, other.sources.change_rate)
    more = task("delay", "costs", 0.9, cliffs.HALF)
    assert np.allclose(more.hosts.limits, 3.0 * one.hosts.limits, rtol=1e-12)
    assert 0.3 * 0.5 * N < len(one.hosts) * 30 < 3.0 * 0.5 * N


def test_every_shipped_cell_is_measured() -> None:
    """All objectives are, under each discipline that they have a cell for."""
    measured = {(type(own), getattr(own, "refresh", None)) for own, _ in cliffs.CELLS.values()}
    costs = {type(own.cost) for own, _ in cliffs.CELLS.values() if hasattr(own, "cost")}
    assert {getattr(problems, name) for name in problems.__all__} == {
        *(kind for kind, _ in measured),
        *costs,
        problems.BinaryCost,  # binary freshness, cell by cell
    }
    harmonic = (problems.LogFreshness, fo.Refresh.POISSON)  # harmonic staleness
    for kind, refresh in itertools.product({kind for kind, _ in measured}, fo.Refresh):
        try:
            sources = fo.Sources(np.ones(4), request_rate=2.0)
            fo.Problem(kind(*ARGUMENTS.get(kind, ()), refresh=refresh), sources, 1.0)
        except (fo.ObjectiveError, TypeError):
            continue
        assert (kind, refresh) in {*measured, harmonic}


@pytest.mark.parametrize("name", cliffs.CELLS)
def test_every_shipped_cell_has_compiled_loops(name: str) -> None:
    task = cliffs.problem(cliffs.CELLS[name], cliffs.Input("", "lognormal 1", 0.3, 4))
    own = task.numerics, task.sources.refresh_cost, task.lower, task.upper
    tabled = all(getattr(each, "tables_of", None) for each in kinds_of(task.numerics))
    for kind in (Columns, ProofColumns):
        assert tabled or kernel_columns(kind, *own) is not None


def test_a_row_has_the_solve_and_its_proof() -> None:
    row = cliffs.measure(cliffs.CELLS["harmonic"], cliffs.Input("harmonic", "ties", 0.3, N), 1e-6)
    assert row["held"]
    assert row["gap"] < cliffs.PROVED
    assert row["over"] < 1e-13
    assert row["add"] == pytest.approx(row["seconds"] / 1e-6)
    assert (row["family"], row["budget"], row["n"]) == ("ties", 0.3, N)


def test_only_the_slowest_are_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, cell, asked = fo.solve, cliffs.CELLS["harmonic"], []

    def counted(task: fo.Problem, *, throw: bool) -> fo.Solution:
        asked.append(task)
        return solve(task, throw=throw)

    monkeypatch.setattr(fo, "solve", counted)
    which = cliffs.Input("harmonic", "ties", 0.3, N)
    cliffs.measure(cell, which, 1e-6, np.inf)
    assert len(asked) == 1
    cliffs.measure(cell, which, 1e-6)
    assert 3 <= len(asked) <= 1 + cliffs.REPEATS


def rows_of(times: dict[str, float], n: int) -> list[dict[str, object]]:
    base = {"cell": "x", "budget": 0.3, "passes": 3, "gap": 1e-16, "over": 0.0, "held": True, "n": n}
    base["hosts"] = ""
    return [{**base, "family": family, "seconds": add * 1e-3, "add": add} for family, add in times.items()]


def test_the_slowest_inputs_are_measured_with_more_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {family: float(place) for place, family in enumerate(cliffs.FAMILIES)}
    asked = []

    def measured(_cell: object, which: tuple[str, str, float, int, str], *_: float) -> dict[str, object]:
        asked.append(which)
        row = rows_of({which[1]: times[which[1]] + which[2] - 0.4 * bool(which[4])}, which[3])[0]
        return {**row, "cell": which[0], "budget": which[2], "hosts": which[4]}

    monkeypatch.setattr(cliffs, "measure", measured)
    sizes = cliffs.Sizes((10, 20), ((30, 3), (40, 1)), (0.1, 0.2), (0.1,))
    cliffs.walk({"delay": cliffs.CELLS["delay"]}, sizes, dict.fromkeys((10, 20, 30, 40), 1.0))
    by_size = {n: [(*each[1:3], each[4]) for each in asked if each[3] == n] for n in (10, 30, 40)}
    assert len(by_size[10]) == (2 + 2 + 1) * len(cliffs.FAMILIES)
    alike, *_, slowest = cliffs.FAMILIES
    own = [(slowest, 0.2, cliffs.NONE), (slowest, 0.2, cliffs.HALF), (slowest, 0.1, cliffs.ALL)]
    assert by_size[30] == [(alike, 0.2, cliffs.NONE), *own]
    assert by_size[40] == [(alike, 0.2, cliffs.NONE), own[0]]


def test_verdicts_are_of_the_largest_size_and_name_what_is_not_proved() -> None:
    rows = rows_of({"ties": 900.0}, 10) + rows_of({"ties": 170.0, "costs": 70.0, cliffs.ALIKE: 26.0}, 1000)
    rows[0]["held"] = False
    rows[1]["hosts"] = cliffs.HALF
    assert cliffs.verdicts(rows) == [
        "any input, 1,000 sources: 170.0 ADD (x, ties, hosts, budget 0.3), to hold 200: met",
        "without hosts, 1,000 sources: 70.0 ADD (x, costs, budget 0.3), to hold 80: met",
        "all alike, without hosts, 1,000 sources: 26.0 ADD (x, all alike, budget 0.3), to hold 25: NOT MET",
        "NOT PROVED: x, ties, budget 0.3, 10 sources",
    ]


def test_the_table_has_the_worst_of_each_cell_and_size() -> None:
    rows = [row for n in (10**4, 10**7) for row in rows_of({"ties": 3.0, "costs": 70.0, "w = d": 5.0}, n)]
    rows[0] = {**rows[0], "gap": 1e-5, "held": False}
    assert cliffs.worst(rows)["family"] == "costs"
    assert not cliffs.worst(rows)["held"]
    (row,) = cliffs.table({"rows": rows})
    shown = {"10000": "70 ms", "100000": "", "1000000": "", "10000000": "70 ADD"}
    assert row == {"cell": "x", "where": "costs, budget 0.3", "gap": 1e-5, **shown}

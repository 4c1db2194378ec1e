"""docs/estimators.md shows what was measured, and what it says is so; held-out scores are what they claim."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.tolerances import EXACT, SCALAR

ROOT = Path(__file__).parents[2]
FOLDER, SAVED = ROOT / "benchmarks" / "reproduce", ROOT / "benchmarks" / "results"
PAGE = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")


def saved(name: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    return json.loads((SAVED / f"{name}.json").read_text(encoding="utf-8"))


MEASURED, HELD_OUT = saved("estimators"), saved("held_out")


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield {
            name: importlib.import_module(name)
            for name in ("estimators", "rate_prediction", "estimator_runs")
        }
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(FOLDER)):
            sys.modules.pop(name)


def test_the_tables_are_the_saved_measurements(modules: dict[str, ModuleType]) -> None:
    assert modules["estimators"].filled(PAGE, MEASURED, HELD_OUT) == PAGE
    for name in MEASURED["consistency"]:
        assert PAGE.count(f"\n| `{name}` |") == 3


def test_what_the_page_says_of_gaps_is_so() -> None:
    consistent = {
        name: {kind for kind, row in kinds.items() if row["consistent"]}
        for name, kinds in MEASURED["consistency"].items()
    }
    known_rates = {"LawOfLargeNumbers", "StochasticApproximation", "MomentumStochasticApproximation"}
    assert consistent.pop("Naive") == set()
    for name, kinds in consistent.items():
        everywhere = {"exponential", "fixed", "uniform", "Gamma"}
        assert kinds == ({"exponential"} if name in known_rates else everywhere)
        assert MEASURED["cost"]["rows"][name]["asks_crawl_rate"] is (name in known_rates)
        assert MEASURED["cost"]["rows"][name]["online"] is (name in known_rates)
        assert MEASURED["cost"]["rows"][name]["reads_gaps"] is (name not in known_rates)


def test_what_the_page_says_of_errors_and_costs_is_so() -> None:
    errors = {(row["estimator"], row["rate"], row["crawls"]): row["error"] for row in MEASURED["accuracy"]}
    costs = {name: row["copies"] for name, row in MEASURED["cost"]["rows"].items()}
    for name in ("StochasticApproximation", "MomentumStochasticApproximation"):
        assert costs[name] > costs["LawOfLargeNumbers"]
        for (other, rate, crawls), error in errors.items():
            if other == name:
                outrun = rate > 1.0  # per day, at one crawl a day
                assert (error > errors["LawOfLargeNumbers", rate, crawls]) is not outrun
    for name in ("MomentMatching", "MaximumLikelihood"):  # the prior alone bounds where all crawls found one
        assert 0.5 < errors[name, 5.0, 20] < 1.5


def test_what_the_page_says_of_lost_pages_is_so() -> None:
    found = {each["id"]: each for each in saved("reproduce_estimators")["findings"]}
    assert found["lost-alpha-1"]["high"] < 1.0
    assert found["lost-others"]["estimate"] == 1.0
    assert found["lost-alpha-1"]["runs"] == found["lost-others"]["runs"] == 1000
    for name in ("adaptive-rates-lln", "adaptive-rates-mle"):
        assert found[name]["high"] < found["adaptive-rates-default"]["low"]


def test_what_the_page_says_of_real_histories_is_so() -> None:
    assert len(HELD_OUT) == 8
    every = [record["groups"]["all"]["estimators"] for record in HELD_OUT]
    always_better = {
        name for name in every[0] if all(row[name]["gain_per_1000"] > 0 for row in every) and name != "Naive"
    }
    assert always_better == {"MaximumLikelihood, prior", "prior, half-life"}
    decided = [row["MaximumLikelihood, prior"]["verdict"] for row in every]
    assert (decided.count("holds"), decided.count("undecided")) == (7, 1)
    assert "on all of them but one" in PAGE
    forgetting = [record["forgetting"] for record in HELD_OUT]
    assert all(row["gain_per_1000"] > 0 for row in forgetting)
    assert [row["verdict"] for row in forgetting].count("holds") == 3
    assert "decided on three" in PAGE
    packages = next(record for record in HELD_OUT if record["log"] == "scoop_packages.crawl_daily")
    never = packages["groups"]["never changed before"]["sources"] - packages["changed_after_all"]
    assert 0.4 < never / packages["groups"]["all"]["sources"] < 0.43
    assert "two fifths of the package manifests" in PAGE
    wins = packages["groups"]["all"]["estimators"]["MaximumLikelihood, prior"]
    assert wins["wins"] < wins["losses"]


def log_of_a_few() -> CrawlLog:
    rng = np.random.default_rng(5)
    source = np.repeat(["a", "b", "c", "d"], [40, 25, 30, 3])
    time = np.concatenate([np.cumsum(rng.exponential(1.0, n)) for n in (40, 25, 30, 3)])
    return CrawlLog(source, time, rng.random(98) < 0.4)


def test_held_out_scores_are_log_likelihoods_of_gaps_after_the_middle(modules: dict[str, ModuleType]) -> None:
    log, held_out = log_of_a_few(), modules["rate_prediction"]
    middle = (min(log.time) + max(log.time)) / 2
    assert held_out.middle_of(log) == middle
    halves = held_out.split(log, middle)
    rows = [
        (log.sources_[k], float(end - gap), float(end), bool(changed))
        for k, end, gap, changed in zip(log.source_index, log.time, log.interval, log.changed, strict=True)
        if not math.isnan(gap)
    ]
    kept = [
        name
        for name in log.sources_.tolist()
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


def test_a_crawler_that_comes_less_often_sees_the_same_changes(modules: dict[str, ModuleType]) -> None:
    log, every = log_of_a_few(), 7
    sparse = modules["rate_prediction"].thinned(log, every)
    expected = []
    for k, name in enumerate(log.sources_):
        rows = slice(log.offsets[k], log.offsets[k + 1])
        time, changed = log.time[rows], log.changed[rows]
        for last in range(0, len(time), every):
            found = bool(last) and bool(changed[last - every + 1 : last + 1].any())
            expected.append((name, time[last], found))
    names = sparse.sources_[sparse.source_index]
    labels = [log.sources_[int(name)] for name in names]
    assert list(zip(labels, sparse.time, sparse.changed.tolist(), strict=True)) == expected


@pytest.mark.exhaustive
def test_a_prior_gains_where_rates_are_spread_and_crawls_are_few(modules: dict[str, ModuleType]) -> None:
    rng = np.random.default_rng(8)
    n, crawls = 300, 60
    rates = rng.gamma(0.5, 0.4, n)[:, None]
    gaps = rng.exponential(1.0, (n, crawls))
    changed = rng.random((n, crawls)) < -np.expm1(-rates * gaps)
    log = CrawlLog(np.repeat(np.arange(n), crawls), np.cumsum(gaps, axis=1).ravel(), changed.ravel())
    record = modules["rate_prediction"].judged("simulated", log)
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


def test_a_log_is_judged_by_signs_and_sums(modules: dict[str, ModuleType]) -> None:
    judged = modules["rate_prediction"].compared
    told = judged(np.array([-1.0, -2.0, -3.0, -4.0]), np.array([-1.5, -2.5, -3.5, -3.0]), np.full(4, 10.0))
    assert (told["wins"], told["losses"], told["verdict"]) == (3, 1, "undecided")
    assert told["per_crawl"] == pytest.approx(-0.25, rel=EXACT)
    assert told["gain_per_1000"] == pytest.approx(1000 * 0.5 / 40, rel=EXACT)
    assert told["sign_test"] == pytest.approx(2 * (1 + 4) / 16, rel=EXACT)


def test_simulated_gaps_have_the_transforms_that_are_told(modules: dict[str, ModuleType]) -> None:
    rng = np.random.default_rng(6)
    for kind, (draw, transform) in modules["estimator_runs"].GAPS.items():
        gaps = draw(rng, (1000, 200))
        for seen, told in ((gaps, 1.0), (np.exp(-1.7 * gaps), transform(1.7))):
            error = seen.std() / math.sqrt(seen.size)
            assert abs(seen.mean() - told) <= 4 * error + EXACT, kind

"""Plans under declared constraints: their rows, prices and sentences; what does not apply says so."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.distributed import plan as plan_partitions
from freshopt.planning.backtest import hold_out
from freshopt.planning.declared import constraint_facts, price_sentences, row_table
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness, LaterThan
from freshopt.questions.solve_with_kinks import solve_with_kinks
from tests.ground_truth.named import PERIODIC, POISSON
from tests.ground_truth.plans import crawls, plan_request
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT, SCALAR

N = 12
SIZE = np.geomspace(0.1, 30.0, N)


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


def made(log: fo.CrawlLog, constraints: Any, **changes: Any) -> fo.Plan:  # noqa: ANN401
    settings: dict[str, Any] = {"bandwidth": 9.0, "horizon": 14.0, "draws": 0, **changes}
    return fo.plan(log, constraints=constraints, **settings)


def test_constraints_are_in_the_order_of_the_logs_sources(log: fo.CrawlLog, tmp_path: Path) -> None:
    by_name = dict(zip(log.names.tolist(), SIZE.tolist(), strict=True))

    def declared(sources: fo.Sources) -> Sequence[fo.Budget]:
        return [fo.Budget(40.0, cost=[by_name[name] for name in present(sources.names).tolist()], name="kB")]

    first = made(log, [fo.Budget(40.0, cost=SIZE, name="kB")])
    second = made(log, declared)
    assert first.solution.rates.tolist() == second.solution.rates.tolist()
    assert float(SIZE @ first.solution.rates) == pytest.approx(40.0, rel=SCALAR)
    assert "constraints.parquet" in first.write(tmp_path / "plan")
    table = pl.read_parquet(tmp_path / "plan" / "constraints.parquet")
    assert table.columns == ["row", "used", "limit", "slack", "price", "gap_share"]
    facts = json.loads((tmp_path / "plan" / "summary.json").read_text(encoding="utf-8"))
    assert facts["baselines"] == {}
    listed = {row["label"]: row for row in facts["constraints"]["listed"]}
    for row in table.iter_rows(named=True):
        assert listed[row["row"]]["price"] == row["price"]
    assert facts["constraints"]["rows"] == 2
    assert facts["constraints"]["declared"] == ["Budget(40, name='kB')"]
    assert facts["findings"].keys() >= {"frontier", "cost"}
    assert "interior" not in facts["findings"]


def test_a_price_bounds_what_a_looser_limit_gains(log: fo.CrawlLog) -> None:
    plan = made(log, [fo.Budget(40.0, cost=SIZE, name="kB")])
    looser = made(log, [fo.Budget(40.4, cost=SIZE, name="kB")])
    gain = plan.solution.value - looser.solution.value
    bound = 0.4 * plan.solution.prices["kB"]
    assert 0.9 * bound < gain <= bound * (1.0 + 1e-9)
    sentences = price_sentences(plan.solution)
    assert f"40.4 in its place would lower the staleness by at most {bound:.4g}" in sentences[0]
    assert sentences[0].startswith("kB: at most 40 per day, which binds; ")
    assert re.search(r"Constraints +2 of 2 bind: kB, bandwidth", repr(plan))


def test_limits_of_bandwidth_alone_have_rows_too(log: fo.CrawlLog) -> None:
    region = np.array(["eu", "us"] * (N // 2))
    plan = made(log, [fo.Budget({"eu": 1.0}, by=region, name="region")])
    assert plan.problem.program is None
    table = present(row_table(plan.solution))
    assert table.labels == ("bandwidth", "region[eu]")
    assert table["region[eu]"].used == pytest.approx(1.0, rel=EXACT)
    assert table["region[eu]"].price == plan.solution.prices["region[eu]"] > 0.0
    assert set(plan.baselines) == {"uniform", "proportional", "square-root"}
    assert row_table(made(log, None).solution) is None
    assert constraint_facts(made(log, None).solution) is None


def test_the_cheapest_plan_has_the_discipline_of_its_targets(log: fo.CrawlLog) -> None:
    for refresh, method in ((PERIODIC, "Periodic()"), (POISSON, "PoissonArrivals(seed=0)")):
        target = fo.Target(BinaryFreshness(refresh), at_least=0.8)
        plan = made(log, [target], bandwidth=None, objective=fo.Spend(), draws=5)
        assert plan.schedule.method == method
        assert plan.solution.value == pytest.approx(float(np.sum(plan.solution.rates)), rel=EXACT)
        assert plan.schedule_value == pytest.approx(len(plan.schedule) / 14.0, rel=EXACT)
        assert plan.uncertainty is None
        assert plan.findings["fresh"]["plan"] == pytest.approx(0.8, rel=SCALAR)
        assert price_sentences(plan.solution)[0].startswith(
            "BinaryFreshness: at least 80 %, which binds; 79 %"
        )
    bare = fo.plan(
        log, None, 14.0, objective=HarmonicStaleness(PERIODIC), constraints=[fo.Budget(9.0)], draws=0
    )
    assert bare.solution.rates.tolist() == made(log, None).solution.rates.tolist()


def test_a_linear_program_of_bandwidth_is_solved_by_highs() -> None:
    sources = fo.Sources(np.ones(3), importance=[1.0, 2.0, 4.0])
    target = fo.Target(LaterThan(2.0, PERIODIC), at_most=0.5)
    solution = solve_with_kinks(fo.Problem(fo.Spend(), sources, constraints=[target]))
    # Half of all importance, 3.5 of 7, is bought cheapest at the heaviest source: 4·2ρ = 3.5.
    assert solution.value == pytest.approx(3.5 / 8.0, rel=1e-6)


def test_a_maximised_objective_and_many_rows_in_sentences(log: fo.CrawlLog) -> None:
    group = [f"g{k}" for k in range(N)]
    limits = dict.fromkeys(group, 0.05)
    plan = made(
        log, [fo.Budget(limits, cost=SIZE, by=group, name="own")], objective=BinaryFreshness(PERIODIC)
    )
    sentences = price_sentences(plan.solution, most=3)
    assert "would raise the freshness by at most" in sentences[0]
    assert sentences[3:] == [f"and {N - 3} more that bind", "1 more does not bind"]
    prices = plan.solution.prices
    largest = max((label for label in prices if label != "bandwidth"), key=lambda label: prices[label])
    assert sentences[0].startswith(f"{largest}: ")
    slack = made(log, [fo.Budget(1e9, cost=SIZE, name="kB"), fo.Budget(1e9, name="calls")], max_rate=0.5)
    assert price_sentences(slack.solution) == ["none of them binds"]


def test_uncertainty_is_drawn_where_rates_stay_feasible(log: fo.CrawlLog) -> None:
    plan = made(log, [fo.Budget(40.0, cost=SIZE, name="kB")], draws=3)
    assert float(np.min(present(plan.uncertainty).regret)) > -1e-6
    tight = fo.Target(AccumulatedDelay(PERIODIC), at_most=5.0)
    assert made(log, [tight], draws=3).uncertainty is None
    problem = fo.Problem(AccumulatedDelay(PERIODIC), plan.sources, 9.0, constraints=[tight])
    with pytest.raises(fo.SourceDataError, match=r"the problem has targets.*Leave the targets out\."):
        fo.plan_uncertainty(problem, plan.estimate, 3)


def test_what_does_not_apply_says_so(log: fo.CrawlLog, tmp_path: Path) -> None:
    refused("constraints are 'cheap'", made, log, "cheap", error=TypeError)
    refused("the function of the sources returned None", made, log, lambda _: None)
    with pytest.raises(
        fo.InfeasibleProblemError, match=r"^bandwidth <= 9 and fresh >= 0\.99 cannot both hold\."
    ):
        made(log, [fo.Target(BinaryFreshness(PERIODIC), at_least=0.99, name="fresh")])
    request = plan_request(constraints=(fo.Budget(1.0, cost=SIZE),))
    refused("a backtest compares", hold_out, log, request)
    with pytest.raises(fo.SolverRefusedError, match="Budget 'budget' with a cost of its own"):
        plan_partitions(tmp_path, request, tmp_path / "out")
    with pytest.raises(fo.SourceDataError, match="no function of the sources"):
        plan_partitions(tmp_path, plan_request(constraints=lambda _: []), tmp_path / "out")

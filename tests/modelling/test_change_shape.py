"""Learnt shapes of change beside quadrature, simulated processes, and a log's plan and back-test."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars
import pytest
from scipy.integrate import quad

import freshopt as fo
from freshopt.modelling.curves.change_shape import ChangeShape
from freshopt.numerics.arrays import Array
from freshopt.planning.request import default_estimate
from freshopt.questions.learnt_changes import GAPS, learnt_changes
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix

BENT = ChangeShape(np.array([0.0, 0.3, 1.0, 2.5]), np.array([0.0, 0.4, 0.8, 0.95]))
D = np.array([0.2, 1.0, 30.0])
OBJECTIVES = {"binary": fo.problems.BinaryFreshness, "age": fo.problems.Age}


def cost_of_age(name: str, s: float, d: float) -> float:
    """c(ds), or its integral over ages."""
    if name == "binary":
        return float(np.interp(d * s, BENT.ages, BENT.shares))
    return float(quad(lambda t: cost_of_age("binary", t, d), 0.0, s, points=knots(d, s), limit=200)[0])


def knots(d: float, s: float) -> list[float]:
    return [u / d for u in np.asarray(BENT.ages)[1:] if u / d < s] or [0.5 * s]


@matrix(name=OBJECTIVES, share=[0.2, 0.9, 4.0])
def test_cells_are_integrals_of_the_cost_of_age(name: str, share: float) -> None:
    curve = OBJECTIVES[name](changes=BENT).curve(fo.Sources(D))
    for k, d in enumerate(D.tolist()):
        rate = share * d
        period = 1.0 / rate
        mean = rate * quad(lambda s, d=d: cost_of_age(name, s, d), 0.0, period, points=knots(d, period))[0]
        assert float(curve.mean(np.full(3, period), D)[k]) == pytest.approx(mean, rel=1e-9)
        index = period * cost_of_age(name, period, d) - mean * period
        assert float(curve.index(np.full(3, period), D)[k]) == pytest.approx(index, rel=1e-8)
        # Poisson refreshes: copies of exponential ages.
        ends = [0.0, *knots(d, 60.0 * period), 60.0 * period]
        law = sum(
            quad(lambda s, d=d, rate=rate: rate * np.exp(-rate * s) * cost_of_age(name, s, d), a, b)[0]
            for a, b in pairwise(ends)
        )
        found = present(curve.poisson).cost(np.full(3, rate), D)
        assert float(found[k]) == pytest.approx(law, rel=1e-7)


@matrix(name=OBJECTIVES, refresh=[fo.Refresh.PERIODIC, fo.Refresh.POISSON])
def test_marginals_are_slopes_and_inverses_inverses(name: str, refresh: fo.Refresh) -> None:
    kernel = OBJECTIVES[name](refresh, changes=BENT).kernel(fo.Sources(D))
    for share in (0.03, 0.41, 1.7, 50.0, 3e4):
        rate = share * D
        step = 1e-6 * rate
        slope = (kernel.cost(rate - step) - kernel.cost(rate + step)) / (2.0 * step)
        np.testing.assert_allclose(kernel.marginal(rate), slope, rtol=1e-4, atol=1e-9 / D.min())
        if share > 0.41 or refresh is fo.Refresh.POISSON:
            np.testing.assert_allclose(kernel.inverse_marginal(kernel.marginal(rate)), rate, rtol=1e-8)


def test_the_poisson_shape_is_the_shipped_objective() -> None:
    ages = np.append(0.0, np.geomspace(1e-2, 40.0, 1200))
    shape = ChangeShape.poisson(ages)
    sources = fo.Sources(D, [1.0, 5.0, 90.0])
    for refresh in (fo.Refresh.PERIODIC, fo.Refresh.POISSON):
        for objective in OBJECTIVES.values():
            plain = fo.solve(fo.Problem(objective(refresh), sources, 9.0))
            found = fo.solve(fo.Problem(objective(refresh, changes=shape), sources, 9.0))
            assert found.value == pytest.approx(plain.value, rel=1e-5)
            np.testing.assert_allclose(found.rates, plain.rates, rtol=1e-3)
            assert found.certificate.relative_gap < 1e-12


def test_shapes_that_are_none_are_refused() -> None:
    for ages, shares in (
        ([0.0, 1.0, 2.0], [0.0, 0.2, 0.8]),
        ([0.0, 1.0], [0.1, 1.0]),
        ([0.0, 1.0], [0.0, 1.5]),
        ([0.0, 1.0, 1.0], [0.0, 0.5, 0.6]),
    ):
        refused("ChangeShape", ChangeShape, np.array(ages), np.array(shares), error=fo.ObjectiveError)
    learnt = fo.problems.BinaryFreshness(changes=BENT)
    with pytest.raises(fo.SolverRefusedError, match="change model is learnt"):
        fo.solve(fo.Problem(learnt, fo.Sources(D), 3.0), fo.solvers.Conic())
    with pytest.raises(fo.ObjectiveError, match="change model is learnt"):
        fo.Problem(fo.problems.Age(changes=BENT), fo.Sources(D, signalled=[True, False, False]), 3.0)


@matrix(refresh=[fo.Refresh.PERIODIC, fo.Refresh.POISSON], shape=[0.3, 1.0, 40.0])
def test_signals_keep_a_copy_fresh_for_the_share_that_is_followed(refresh: fo.Refresh, shape: float) -> None:
    gaps = np.random.default_rng(5).gamma(shape, 1.0 / (D[2] * shape), 200_000)
    learnt = fo.problems.BinaryFreshness(refresh, changes=BENT)
    sources = fo.Sources(D, [1.0, 1.0, 2.0], signalled=[False, False, True])
    found = fo.solve(fo.Problem(learnt, sources, 20.0))
    assert found.certificate.relative_gap < 1e-12
    kernel = present(learnt.signalled_kernel(sources))
    share = 0.37
    followed = np.random.default_rng(6).random(len(gaps)) < share
    fresh = float(np.sum(gaps[followed]) / np.sum(gaps))
    assert 1.0 - 0.5 * float(kernel.cost(share * D)[2]) == pytest.approx(fresh, abs=0.02)


def log_of(kind: str, n: int = 150, crawls: int = 30) -> fo.CrawlLog:
    """A log of sources that change as a renewal process of some regularity."""
    rng = np.random.default_rng(11)
    source, times, changed = list[str](), list[float](), list[bool]()
    for k in range(n):
        mean = 1.0 / (0.02 + rng.gamma(1.5, 0.3))
        time = np.cumsum(rng.exponential(3.0, crawls))
        shape = {"poisson": 1.0, "regular": 400.0, "bursts": 0.2}[kind]
        gaps = rng.gamma(shape, mean / shape, int(9.0 * time[-1] / mean) + 200)
        passed = np.searchsorted(np.cumsum(gaps) - rng.random() * gaps[0], np.append(0.0, time))
        source += [f"s{k}"] * crawls
        times += time.tolist()
        changed += (np.diff(passed) > 0).tolist()
    return fo.CrawlLog(source, times, changed)


def at(shape: ChangeShape, ages: Array, shares: Array | None = None) -> Array:
    return np.interp(ages, shape.ages, shape.shares if shares is None else shares)


def test_bursts_and_regular_changes_are_told_from_poisson() -> None:
    found = {
        kind: learnt_changes(log_of(kind), default_estimate) for kind in ("poisson", "regular", "bursts")
    }
    assert found["poisson"].evidence < 3.0 < found["bursts"].evidence < found["regular"].evidence
    early, late = np.array([0.25]), np.array([2.0])
    assert at(found["bursts"], early) > 1.0 - np.exp(-early) > at(found["regular"], early)
    assert at(found["regular"], late) > 1.0 - np.exp(-late) > at(found["bursts"], late)
    for shape in found.values():
        assert shape.lower is not None
        assert shape.upper is not None
        assert np.all(shape.lower <= shape.upper)
        ages = np.array([0.5, 1.0])
        inside = (at(shape, ages, shape.lower) - 0.01, at(shape, ages, shape.upper) + 0.01)
        assert np.all(inside[0] <= at(shape, ages))
        assert np.all(at(shape, ages) <= inside[1])
    assert len(found["regular"].ages) == len(GAPS) + 1


def test_a_learnt_model_is_planned_for() -> None:
    log = log_of("regular", 80)
    plan = fo.plan(log, objective="binary", change_model="learnt", draws=0)
    objective = plan.problem.objective
    assert isinstance(objective, fo.problems.BinaryFreshness)
    assert objective.changes is not None
    assert plan.solution.certificate.relative_gap < 1e-9
    assert plan.summary()["settings"]["change_model"] == "learnt"
    # Shares of time are of the shape, too: of the plan, and of the crawls that it is compared with.
    told = plan.summary()
    assert told["findings"]["fresh"]["plan"] == pytest.approx(plan.solution.value / 80, rel=1e-12)
    crawled = 1.0 - np.mean(objective.kernel(plan.sources).cost(log.crawl_rate))
    assert told["today"]["fresh"] == pytest.approx(crawled, rel=1e-12)
    # Sources that are Poisson are planned for as such, and it is said.
    with pytest.warns(fo.SourceDataWarning, match="no strong evidence against a Poisson process"):
        kept = fo.plan(log_of("poisson", 60, 20), objective="age", change_model="learnt", draws=0)
    assert kept.request.objective == replace(fo.problems.Age(), changes=None)


def test_delay_is_the_same_under_any_process() -> None:
    log = log_of("regular", 30, 20)
    with pytest.warns(fo.SourceDataWarning, match="delay counts them"):
        learnt = fo.plan(log, objective="delay", change_model="learnt", draws=0)
    np.testing.assert_array_equal(learnt.rates, fo.plan(log, objective="delay", draws=0).rates)


def test_what_is_derived_for_poisson_changes_does_not_go_with_a_learnt_model() -> None:
    log = log_of("regular", 5, 10)
    signals = polars.DataFrame({"source": ["s1"], "time": [3.0]})
    learnt: dict[str, Any] = {"objective": "binary", "change_model": "learnt", "draws": 0}
    other: dict[str, Any]
    for other in ({"signals": signals}, {"changed_cost": 2.0}):
        refused("does not go with a learnt change model", fo.plan, log, **learnt, **other)

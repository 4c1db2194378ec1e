"""A planner in a simulated world: it comes to the plan that knows the truth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

import freshopt as fo
from freshopt.live.planner import Planner
from freshopt.simulation import SimulatedCrawler

N, DAYS, BANDWIDTH = 60, 40, 360.0


def staleness(change_rate: float, rate: float) -> float:
    """Return the mean harmonic staleness at equal gaps: the mean of Ein over the missed changes' mean."""

    def ein(x: float) -> float:
        return math.fsum((-1.0) ** (k + 1) * x**k / (k * math.factorial(k)) for k in range(1, 60))

    return float(quad(lambda t: ein(change_rate * t / rate), 0.0, 1.0)[0])


@pytest.mark.exhaustive
def test_rates_come_within_two_percent_of_those_that_know_the_truth(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    change_rate = np.clip(rng.gamma(0.8, 5.0, N), 0.05, 30.0)
    importance = 1.0 + rng.pareto(2.0, N)
    names = [f"s{k:03d}" for k in range(N)]
    sources = fo.Sources(change_rate, importance, names)
    crawler = SimulatedCrawler(fo.World.poisson(sources, seed=9))
    best = fo.solve(fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC), sources, BANDWIDTH))
    shortfall = []
    with Planner(tmp_path, bandwidth=BANDWIDTH, update="1d", replan="5d", burst="1h") as planner:
        planner.add_many(names, importance=importance)
        for step in range(DAYS * 24):
            now = step / 24
            visits = planner.due(now, limit=None)
            index = np.array([int(visit.source[1:]) for visit in visits], dtype=np.int64)
            changed = crawler.refresh(index, np.full(len(index), now))
            planner.observed_many([visit.source for visit in visits], now, changed)
            if step in (36, DAYS * 24 - 1):
                solution = planner.solution()
                assert solution.certificate is not None
                assert solution.certificate.relative_gap <= 0.01
                cost = [
                    w * staleness(d, r)
                    for w, d, r in zip(importance, change_rate, solution.rates, strict=True)
                ]
                shortfall.append(math.fsum(cost) / best.value - 1.0)
        observations = planner.status().observations
    assert 0.97 * BANDWIDTH * DAYS < observations <= BANDWIDTH * DAYS + 1
    assert shortfall[0] > 0.05
    assert 0.0 <= shortfall[1] < 0.02


@pytest.mark.parametrize("refresh", [fo.Refresh.PERIODIC, fo.Refresh.POISSON])
@pytest.mark.sampled(2)
def test_gaps_are_equal_or_exponential(tmp_path: Path, refresh: fo.Refresh) -> None:
    names = [f"s{k}" for k in range(40)]
    with Planner(
        tmp_path, bandwidth=40.0, objective=fo.problems.BinaryFreshness(refresh), update=1e6
    ) as planner:
        planner.add_many(names)
        for step in range(2000):
            for visit in planner.due(0.01 * step, limit=None):
                planner.observed(visit.source, 0.01 * step, changed=False)
        log = planner.log()
    gaps = log.interval[~np.isnan(log.interval)]
    spread = float(np.std(gaps) / np.mean(gaps))
    # 700 gaps: of an exponential law the relative spread is 1, off by some 5 %.
    assert spread < 0.05 if refresh is fo.Refresh.PERIODIC else 0.85 < spread < 1.15
    assert np.mean(gaps) == pytest.approx(1.0, abs=0.1)


def test_after_an_outage_the_bandwidth_of_a_burst_is_handed_out_at_once(tmp_path: Path) -> None:
    names = [f"s{k}" for k in range(100)]
    with Planner(tmp_path, bandwidth=50.0, burst=0.5, update=1e6) as planner:
        planner.add_many(names, importance=[1.0] * 50 + [9.0] * 50)
        rate = {}
        for step in range(400):
            for visit in planner.due(0.01 * step, limit=None):
                planner.observed(visit.source, 0.01 * step, changed=True)
        rate = dict(planner.to_frame().select("source", "rate").iter_rows())
        back = 20.0
        visits = planner.due(back, limit=None)
        assert len(visits) == 26
        # The largest shares by which gaps are exceeded come first.
        late = [(back - float(str(visit.due))) * rate[visit.source] for visit in visits]
        assert late == sorted(late, reverse=True)
        for visit in visits:
            planner.observed(visit.source, back, changed=True)
        assert planner.due(back, limit=None) == []
        found = 0
        for step in range(1, 101):
            for visit in planner.due(back + 0.01 * step, limit=None):
                planner.observed(visit.source, back + 0.01 * step, changed=True)
                found += 1
        assert 48 <= found <= 51

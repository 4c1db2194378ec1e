"""What measurements are made of, against brute force; what pages say of them beside their tables."""

from __future__ import annotations

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import freshopt as fo
from freshopt.planning import policies as policy_names
from freshopt.problems import BinaryFreshness
from freshopt.simulation import missed_costs
from tests.ground_truth.kkt import violations
from tests.ground_truth.tolerances import CONIC, SCALAR
from tests.ground_truth.truth import instance
from tests.pages.measured import ROOT, harness, module

cost_interval, hidden_changes, histories = (
    module(f"accuracy.{name}") for name in ("cost_interval", "hidden_changes", "histories")
)
last_modified, phases, policies = (
    module(f"accuracy.{name}") for name in ("last_modified", "phases", "policies")
)
real_histories, sqrt_baseline = (module(f"accuracy.{name}") for name in ("real_histories", "sqrt_baseline"))
speed_parts, speed_scaling = (module(f"speed.{name}") for name in ("speed_parts", "speed_scaling"))


def test_an_error_of_the_page_on_resets() -> None:
    """ "Documents", as the page has them."""
    rows = harness.saved("resets")["estimates"]
    row = next(row for row in rows if (row["shape"], row["reset"]) == (1.5, 1 / 150))
    assert row["rmse learnt"][0] == pytest.approx(0.045, abs=0.005)
    assert row["rmse lasting averaged"][0] == pytest.approx(0.065, abs=0.01)


def test_a_run_of_the_bundled_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of two crawls: changes are those of the history, and hindsight is the end of the way."""
    for name, value in {"MOST": 60, "TEST": 6, "OBJECTIVES": {"binary": BinaryFreshness()}}.items():
        monkeypatch.setattr(policies, name, value)
    history = histories.bundled("debian-uploads")
    rng = np.random.default_rng(0)
    made = policies.window_of(history, 800.0, 2, rng)
    assert made is not None
    window, weight = made
    assert len(weight) == len(window.past.sources_) <= policies.MOST
    assert window.past.time.max() == pytest.approx(800.0)
    assert np.bincount(window.past.source_index).tolist() == [3] * len(weight)
    assert (window.begin, window.end) == (800.0, 842.0)
    offsets, time = window.world.events(-np.inf, np.inf)
    for k in range(0, len(weight), 7):
        own, crawls = time[offsets[k] : offsets[k + 1]], window.past.time[3 * k : 3 * k + 3]
        found = [bool(np.any((own > a) & (own <= b))) for a, b in pairwise(crawls)]
        assert window.past.changed[3 * k + 1 : 3 * k + 3].tolist() == found
    cells = policies.run(window, weight, 0)["binary"]
    assert set(policies.SHOWN) <= set(cells)
    assert all(gap > 0.0 for gap in cells["gap"])
    assert max(cells[policy_names.UNIFORM]) < 100.0


def test_a_small_run_of_six_rhythms() -> None:
    """The ratio is 1 within its errors where the log's own is not, and a placebo is seldom claimed."""
    found = [row for rhythm in hidden_changes.RHYTHMS for row in hidden_changes.measured(rhythm, 2, 30)]
    assert [row["rhythm"] for row in found[::2]] == list(hidden_changes.RHYTHMS)
    ratio = [row["log"]["realised/predicted"] for row in found]
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.08)
    assert np.mean([row["as found"]["realised/predicted"] for row in found]) < 0.9
    assert np.mean([row["log"]["within two errors"] for row in found]) >= 0.9
    assert np.mean([row["log"]["placebos claimed"] for row in found]) <= 0.1


def test_the_replay_is_the_mean_over_phases() -> None:
    times = [np.array([1.0, 1.5, 4.0, 9.0]), np.array([]), np.array([2.0, 2.25])]
    window = last_modified.Window(times, 0.0, 10.0)
    for interval in (0.7, 3.0, 25.0):
        x = (np.arange(20_000) + 0.5) / 2000.0
        for k, changes in enumerate(times):
            expected = np.zeros(2)
            for phase in (np.arange(200) + 0.5) / 200.0:
                crawl = np.floor(x / interval + phase) * interval - phase * interval
                missed = np.searchsorted(changes, x, side="right") - np.searchsorted(
                    changes, crawl, side="right"
                )
                harmonic = np.cumsum(np.concatenate([[0.0], 1.0 / np.arange(1.0, 6.0)]))
                expected += [np.mean(missed > 0) / 200.0, np.mean(harmonic[missed]) / 200.0]
            for which in (0, 1):
                found = window.cost(np.full(3, interval), bool(which))[k]
                assert found == pytest.approx(expected[which], abs=2e-3)


def test_the_replay_is_that_of_refreshes_one_by_one() -> None:
    changes = [np.array([0.5, 1.0, 3.2, 8.1]), np.empty(0), np.array([2.0, 5.0, 5.5])]
    record = phases.Record(changes, np.zeros(3), np.full(3, 10.0))
    record.split = 4.0
    starts, found = phases.phases_of(7.0), phases.costs_of(record, np.arange(3), 7.0)
    x = 4.0 + (np.arange(6000) + 0.5) / 1000.0
    for at in (0, 40, 100, 167):
        refresh = np.floor((x - starts[at]) / 7.0) * 7.0 + starts[at]
        for k, own in enumerate(changes):
            stale = np.searchsorted(own, x) > np.searchsorted(own, refresh, side="right")
            assert found[at, k] == pytest.approx(stale.mean(), abs=2e-3)


def world(seed: int = 0) -> fo.World:
    """Return two sources with bursts of changes and one that never changes."""
    rng = np.random.default_rng(seed)
    times = np.sort(
        np.concatenate([rng.uniform(0, 100, 5), rng.uniform(40, 45, 20), rng.uniform(0, 100, 60)])
    )
    events = {"source": rng.integers(0, 2, len(times)), "time": times}
    return fo.World.from_events(events, names=[0, 1, 2], start=10.0, horizon=100.0)


@pytest.mark.parametrize("kind", ["poisson", "periodic"])
def test_expected_freshness_is_what_visits_measure(kind: str) -> None:
    recorded, rates = world(), np.array([0.3, 0.05, 0.2])
    rng, span, measured = np.random.default_rng(1), 90.0, []
    for _ in range(400):
        if kind == "poisson":
            count = rng.poisson(rates * span)
            source = np.repeat(np.arange(3), count)
            time = 10.0 + rng.uniform(0, span, len(source))
        else:
            visits = [np.arange(10.0 + rng.random() / rate, 100.0, 1.0 / rate) for rate in rates]
            source, time = np.repeat(np.arange(3), list(map(len, visits))), np.concatenate(visits)
        measured.append(1.0 - missed_costs(recorded, source, time, 100.0, begin=10.0).stale / span)
    stale = real_histories.stale_poisson if kind == "poisson" else real_histories.stale_periodic
    for k in range(3):
        weight = np.eye(3)[k]
        expected = real_histories.expected_freshness(recorded, weight, rates, stale)
        found = np.array(measured)[:, k]
        assert abs(found.mean() - expected) <= 4.0 * found.std() / 20.0 + SCALAR


@pytest.mark.parametrize("kind", ["poisson", "periodic"])
def test_no_static_rates_are_better_than_the_best(kind: str) -> None:
    recorded, weight = world(2), np.array([1.0, 3.0, 5.0])
    stale = real_histories.stale_poisson if kind == "poisson" else real_histories.stale_periodic
    best = real_histories.best_static(recorded, weight, 0.6, stale)
    assert best.sum() == pytest.approx(0.6)
    assert best[2] < 1e-6  # never changes
    top = real_histories.expected_freshness(recorded, weight, best, stale)
    tried = [
        real_histories.expected_freshness(recorded, weight, np.array([x, 0.6 - x, 0.0]), stale)
        for x in np.linspace(0.001, 0.599, 500)
    ]
    assert max(tried) <= top + 1e-9
    assert max(tried) == pytest.approx(top, abs=1e-5)


def test_a_point_of_the_map_is_computed_anew() -> None:
    panel = harness.saved("sqrt_baseline")["map"]["panels"]["stale share, equal importances"]
    row, column = 6, 9
    rates = np.exp(
        harness.saved("sqrt_baseline")["map"]["spreads"][row]
        * ndtri((np.arange(sqrt_baseline.N) + 0.5) / sqrt_baseline.N)
    )
    bandwidth = harness.saved("sqrt_baseline")["map"]["multiples"][column] * float(rates.sum())
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), fo.Sources(rates), bandwidth)
    assert sqrt_baseline.excess(problem) == pytest.approx(panel[row][column], rel=1e-6)
    # The rule itself, and Cho & Garcia-Molina's freshness at equal intervals, written out.
    u = rates * np.sqrt(rates).sum() / (bandwidth * np.sqrt(rates))
    stale = float(np.sum(1.0 + np.expm1(-u) / u))
    best = len(rates) - fo.solve(problem).value
    assert stale / best - 1.0 == pytest.approx(panel[row][column], rel=1e-6)


def test_rivals_find_the_optimum() -> None:
    rng = np.random.default_rng(5)
    d, w = rng.lognormal(0.0, 1.0, 40), rng.lognormal(0.0, 1.0, 40)
    bandwidth = 0.5 * float(np.sum(d))
    problem = instance("harmonic", "poisson", d, bandwidth, importance=w)
    rivals = speed_scaling.RIVALS
    least = None
    for name, solve in rivals.items():
        rates = solve(d, w, bandwidth)
        cost = float(np.sum(w * np.log1p(d / rates)))
        if "bisection" in name or "Python" in name:
            price = float(np.median(w * d / (rates * (rates + d))))
            assert violations(problem, rates, price).worst() <= SCALAR, name
            least = cost
        assert least is not None
        assert abs(cost - least) <= CONIC * least, name
        assert abs(float(np.sum(rates)) - bandwidth) <= CONIC * bandwidth, name
    assert len(rivals) == 5


def test_a_row_is_met_only_on_the_right_side_and_with_the_bandwidth_spent() -> None:
    row = speed_parts.row
    assert row("a", 1, 5.9, "ADD", 6.0)["met"] is True
    assert row("a", 1, 6.1, "ADD", 6.0)["met"] is False
    assert row("a", 1, 5.9, "ADD", 6.0, miss=2e-12)["met"] is False
    assert row("a", 1, 6.1, "ADD", 6.0, fresh=0.2)["met"] is True
    assert row("a", 1, 101.0, "x", 100.0)["met"] is True
    assert row("a", 1, 99.0, "x", 100.0)["met"] is False
    assert row("a", 1, 99.0, "x", None)["met"] is None


def test_a_method_is_dropped_when_its_next_size_would_take_too_long() -> None:
    assert list(speed_scaling.sizes(3000)) == [100, 316, 1000]
    assert speed_scaling._forecast([1.0]) == 0.0
    assert speed_scaling._forecast([1.0, 5.0]) == 25.0
    assert speed_scaling._forecast([1.0, 1.0]) == pytest.approx(10**0.5)


def test_the_page_names_all_that_is_outside_the_band() -> None:
    page = " ".join((ROOT / "docs" / "uncertainty.md").read_text(encoding="utf-8").split())
    begin = page.index("Outside the band, on seeds")
    told = page[begin : page.index(" Against an oracle", begin)]
    words = [text for row in harness.saved("cost_interval")["rows"] for text in cost_interval.outside(row)]
    assert words
    assert all(text in told for text in words), words
    assert told.count(";") == len(words) - 1


def test_what_the_page_says_of_bonus_and_threshold_keeps_to_the_rate() -> None:
    page = (ROOT / "docs" / "noisy-signals.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(page.split("```python\n")[1].split("```")[0], "noisy-signals.md", "exec"), names)
    (row,) = names["thresholds"].iter_rows(named=True)
    assert row["source"] == "page"
    # Signals come at the rate g, whenever: crawl once time + bonus * signals reaches the threshold.
    rng, g = np.random.default_rng(0), float(names["model"].recall_[0] * names["change_rate"][0])
    g /= float(names["precision"][0])
    gaps = []
    for _ in range(20_000):
        at, heard = 0.0, 0
        while True:
            due = row["threshold"] - row["bonus"] * heard
            at_next = at + rng.exponential(1.0 / g)
            if at_next >= due:
                gaps.append(max(at, due))
                break
            at, heard = at_next, heard + 1
    error = np.std(gaps) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps) - 1.0 / 0.5) < 4.0 * error


def test_the_example_of_the_live_planner_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(
        r"^```python\n(.*?)^```$",
        (ROOT / "docs" / "live-planner.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    exec(compile(code, "page", "exec"), {})
    said = capsys.readouterr().out
    assert "2; 1 never crawled" in said
    assert "certificate" in said


@pytest.mark.exhaustive
def test_the_example_of_beliefs_that_reset_prints_what_it_shows() -> None:
    section = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8").split("## Beliefs that reset")[1]
    block = re.search(r"```python\n(.*?)```\n```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(compile(block[1], "estimators.md", "exec"), {})
    assert shown.getvalue() == block[2]

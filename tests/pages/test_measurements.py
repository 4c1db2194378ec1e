"""Measurements: records, commands, what they are made of, and what pages say beside their tables."""

import doctest
import json
import subprocess
import sys
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
from freshopt.simulation.static_costs import ChangeWindow, static_costs
from tests.ground_truth.kkt import violations
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import CONIC, SCALAR
from tests.ground_truth.truth import instance
from tests.pages.measured import ROOT, harness, module

NAMES = list(harness.places())
KEPT = [name for name in NAMES if harness.path_of(name).exists()]
PAGES = {str(page.relative_to(ROOT)): page for page in harness.pages()}
# They need a device, data of a folder, a report of coverage, a cluster, or minutes.
ELSEWHERE = {"gpu", "bing", "real_histories", "coverage", "dask_scale", "interruption"}
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
    for page in tmp_path.rglob("docs/**/*.md"):
        text = page.read_text(encoding="utf-8")
        assert harness.written(text, {name: record}) == text
        if harness.measurement(name).quick:
            assert text != PAGES[str(page.relative_to(tmp_path))].read_text(encoding="utf-8")
    for picture in harness.measurement(name).pictures:
        assert (tmp_path / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_what_is_saved(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    name = min(harness.shows(text))
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
    with pytest.raises(SystemExit, match=r"nothing was measured of histories\. Is --data"):
        harness.main(["held_out_sources", "--save"])


@pytest.mark.parametrize("name", NAMES)
def test_options_are_the_parameters_of_the_parts(name: str) -> None:
    bench = harness.measurement(name)
    parser = harness.parser_of(name, bench, sys.modules[harness.places()[name]].__doc__)
    given = vars(parser.parse_args([]))
    assert {key: given[key] for key in bench.options()} == bench.options()
    assert set(bench.quick) <= set(bench.options())
    assert f"python -m benchmarks {name}" in parser.format_help()


cost_interval, hidden_changes, histories = (
    module(f"accuracy.{name}") for name in ("cost_interval", "hidden_changes", "histories")
)
phases, policies = (module(f"accuracy.{name}") for name in ("phases", "policies"))
objectives = module("objectives")
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
    for name, value in {
        "MOST": 60,
        "TEST": 6,
        "OBJECTIVES": {"binary": BinaryFreshness(fo.Refresh.POISSON)},
    }.items():
        monkeypatch.setattr(policies, name, value)
    history = histories.bundled("debian-uploads")
    rng = np.random.default_rng(0)
    made = present(policies.window_of(history, 800.0, 2, rng))
    window, weight = made
    assert len(weight) == len(window.past.names) <= policies.MOST
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


@pytest.mark.exhaustive
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
    window = ChangeWindow.of(histories.world_of(times, 0.0, 10.0), 0.0, 10.0)
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
            for which, objective in enumerate(objectives.AT_EQUAL_GAPS.values()):
                found = static_costs(window, np.full(3, 1.0 / interval), objective)[k] / 10.0
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
    page = " ".join((ROOT / "docs" / "evidence" / "benchmarks.md").read_text(encoding="utf-8").split())
    begin = page.index("Outside the band, on seeds")
    told = page[begin : page.index(" Against an oracle", begin)]
    words = [text for row in harness.saved("cost_interval")["rows"] for text in cost_interval.outside(row)]
    assert words
    assert all(text in told for text in words), words
    assert told.count(";") == len(words) - 1


def test_what_the_page_says_of_bonus_and_threshold_keeps_to_the_rate() -> None:
    names: dict[str, Any] = {}
    exec(doctest.script_from_examples(fo.noisy_signals.__doc__ or ""), names)
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

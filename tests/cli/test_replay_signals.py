"""`freshopt replay --signals`: rules that follow recorded signals, by hand and as they are written."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.noisy_signals import noisy_signals, replay_signals
from freshopt.noisy_signals.rule_table import read_rule
from freshopt.noisy_signals.with_signals import rule_of
from tests.ground_truth.command_lines import Run, fields
from tests.ground_truth.tolerances import EXACT, SCALAR

# After 3 days without a signal, 1 day with one, at once with two.
WAITS = "source,signals,wait,share\na,0,3,1\na,1,1,1\n"
THRESHOLDS = "source,threshold,bonus,signals,wait,crawl_probability\na,3,2,1,1,1\n"
HISTORY = "source,time,history\n" + "".join(f"{s},0,start\n{s},10,end\n" for s in "ab")
HISTORY += "a,1,change\na,4.2,change\na,8.15,change\nb,5,change\n"
SIGNALS = "source,time,kind\na,1,x\na,1,y\na,4.5,x\na,8.1,x\na,8.2,x\nc,2,x\n"
HOW = ("--history", "history.csv", "--signals", "signals.csv", "--horizon", "10d", "--out", "cost.csv")


def write() -> None:
    for name, text in (("history", HISTORY), ("signals", SIGNALS), ("waits", WAITS)):
        Path(f"{name}.csv").write_text(text)
    Path("thresholds.csv").write_text(THRESHOLDS)
    Path("times.csv").write_text("source,time\na,2\n")


@pytest.mark.parametrize("rule", ["waits.csv", "thresholds.csv"])
def test_a_rule_follows_recorded_signals_by_hand(rule: str, run: Run) -> None:
    """a is crawled at 1 and 8.2 at signals, at 4, 5 and 8 by the clock; b never."""
    write()
    shown = fields(run("replay", rule, *HOW).output)
    assert shown["schedule"].startswith("5 refreshes from 0 to 10 days; 2 of them at a signal")
    cost = {row["cost"]: row["value"] for row in pl.read_csv("cost.csv").iter_rows(named=True)}
    assert cost["binary"] == pytest.approx((10.0 - 0.8 - 0.05) / 10.0 + 0.5, rel=SCALAR)
    assert cost["age"] == pytest.approx((0.32 + 0.00125 + 12.5) / 10.0, rel=SCALAR)
    more = (*HOW, "--overwrite", "--origin", "0.5", "--skip", "4d", "--horizon", "9d")
    # The clock begins at .5: crawls at 1.5, a day after .5 with a signal, 4.5, 7.5, and 8.2 at the second.
    shown = fields(run("replay", rule, *more).output)
    assert shown["schedule"].startswith("3 refreshes from 4.5 to 9.5 days; 2 of them at a signal")
    cost = {row["cost"]: row["value"] for row in pl.read_csv("cost.csv").iter_rows(named=True)}
    assert cost["delay"] == pytest.approx((0.05 + 4.5) / 5.0, rel=SCALAR)


def test_what_is_no_rule_is_refused_in_a_line(run: Run) -> None:
    write()
    Path("twice.csv").write_text(WAITS + "a,0,3,1\n")
    Path("rising.csv").write_text("source,signals,wait,share\na,0,1,1\na,1,3,1\n")
    Path("many.csv").write_text("source,signals,wait,share\na,1e15,1,1\n")
    Path("blank.csv").write_text("source,signals,wait,share\na,,1,1\n")
    Path("other.csv").write_text("source,signals,wait,share\nz,0,1,1\n")
    Path("half.csv").write_text("source,signals,wait,crawl_probability\na,1,1,1\n")
    Path("sources.csv").write_text("source,change_rate\na,1\n")
    for rule, words in (
        ("twice.csv", "a row of one source twice"),
        ("rising.csv", "waits of source 0 rise"),
        ("many.csv", "too many"),
        ("blank.csv", "signals is empty in row 1"),
        ("other.csv", "crawls 'z', of which no changes are known"),
        ("half.csv", "has no column 'bonus'"),
        ("times.csv", "has the columns of the table waits, thresholds or ages"),
    ):
        output = run("replay", rule, *HOW, code=2).stderr
        assert words in " ".join(output.split()), output
        assert not Path("cost.csv").exists()
    without = run("replay", "waits.csv", "--history", "history.csv", code=2).stderr
    assert "Give these with --signals" in " ".join(without.split())
    drawn = run("replay", "waits.csv", "--sources", "sources.csv", "--signals", "signals.csv", code=2).stderr
    assert "recorded changes" in " ".join(drawn.split())


@pytest.mark.parametrize("objective", ["binary", "harmonic"])
def test_the_rule_of_a_plan_is_read_as_it_was_written(objective: str, run: Run) -> None:
    """Its replay on the command line is that in Python, of the log's own changes and of a history."""
    rng, n, days = np.random.default_rng(3), 20, 80.0
    names = np.array([f"s{k:02}" for k in range(n)])
    world = fo.World.poisson(fo.Sources(rng.gamma(1.0, 0.3, n) + 0.05), seed=4)
    time = np.sort(rng.uniform(0.0, days, n * 20))
    source = rng.integers(0, n, len(time))
    changed = fo.simulation.SimulatedCrawler(world).refresh(source, time)
    who, when = noisy_signals(world, 0.8, 0.7, days, seed=5)
    pl.DataFrame({"source": names[source], "time": time, "changed": changed}).write_csv("log.csv")
    pl.DataFrame({"source": names[who], "time": when}).write_csv("signals.csv")
    offsets, events = world.events(0.0, days)
    rows = pl.DataFrame({"source": names[np.repeat(np.arange(n), np.diff(offsets))], "time": events})
    rows.write_csv("history.csv")
    plan = fo.plan("log.csv", signals="signals.csv", objective=objective, load_limit=1.0, draws=0)
    plan.write("plan", csv=True)
    own = plan.problem.objective
    rule = rule_of(own, plan.rates, plan.sources)
    assert rule is not None
    path = Path(f"plan/{'thresholds' if objective == 'binary' else 'waits'}.csv")
    read = read_rule(path, plan.log.names)
    for signals in range(6):
        np.testing.assert_allclose(read.waiting(signals), rule.waiting(signals), rtol=EXACT)
    how = ("--signals", "signals.csv", "--horizon", "60d", "--origin", "10", "--out", "cost.csv")
    run("replay", str(path), "--history", "history.csv", *how)
    cost = {row["cost"]: row["value"] for row in pl.read_csv("cost.csv").iter_rows(named=True)}
    recorded = fo.World.from_events(rows, names=names, horizon=float(events.max()))
    found = replay_signals(rule, recorded, None, None, 60.0, signals=(who, when), origin=10.0)
    assert cost["binary"] == pytest.approx(found.costs["binary"].value, rel=SCALAR)
    assert found.on_signal > 0.2 * found.refreshes
    shown = fields(run("replay", str(path), "--log", "log.csv", *how, "--overwrite").output)
    assert "or where signals make it likely" in shown["changes"]


def test_a_table_of_ages_is_followed(run: Run) -> None:
    """a is crawled a day after the first signal, as all are true: at 2, 5.5 and 9.1; b never."""
    write()
    rule = fo.noisy_signals.AgeThresholds([1.0, np.inf], 0.0, 1.0, ["a", "b"])
    rule.to_frame().with_columns(precision=1.0).write_csv("ages.csv")
    shown = fields(run("replay", "ages.csv", *HOW).output)
    assert shown["schedule"].startswith("3 refreshes from 0 to 10 days")
    cost = {row["cost"]: row["value"] for row in pl.read_csv("cost.csv").iter_rows(named=True)}
    assert cost["binary"] == pytest.approx((10.0 - 1.0 - 1.3 - 0.95) / 10.0 + 0.5, rel=SCALAR)
    noisy = fo.noisy_signals.WithNoisySignals(fo.problems.Age(), [0.0, 0.6, 0.9], [1.0, 0.5, 0.8])
    own = noisy.rule([0.3, 0.0, 0.7], fo.Sources([1.0, 2.0, 0.5], names=["x", "y", "z"]))
    assert isinstance(own, fo.noisy_signals.AgeThresholds)
    own.to_frame().with_columns(precision=own.precision).write_csv("ages.csv", float_precision=17)
    read = read_rule(Path("ages.csv"), np.array(["z", "x", "y"]))
    assert isinstance(read, fo.noisy_signals.AgeThresholds)
    np.testing.assert_allclose(read.waiting()[[1, 2, 0]], own.waiting(), rtol=EXACT)
    heard = [[0.2, 0.4], [], [1.0]]
    np.testing.assert_allclose(
        read.waiting(heard)[[1, 2, 0]], own.waiting([heard[k] for k in (1, 2, 0)]), rtol=EXACT
    )
    Path("half.csv").write_text("source,age,unheard\na,1,1\n")
    assert "no column 'precision'" in " ".join(
        run("replay", "half.csv", *HOW, "--overwrite", code=2).stderr.split()
    )


def test_delays_recall_and_origin_of_drawn_signals() -> None:
    """The rule follows signals of a world as late as they come: by hand, and from an origin."""
    rule = fo.noisy_signals.SignalWaits([[np.inf]])
    events = {"source": [0] * 4, "time": [1.0, 3.0, 6.0, 8.0]}
    world = fo.World.from_events(events, horizon=10.0)
    for delay, stale in ((0.0, 0.0), (0.5, 2.0), (3.0, 4.0)):
        found = replay_signals(rule, world, 1.0, 1.0, 10.0, delay=delay)
        assert found.costs["binary"].mean == pytest.approx(1.0 - stale / 10.0, rel=SCALAR)
    later = replay_signals(rule, world, 1.0, 1.0, 6.0, delay=0.5, origin=2.0, end=7.0, importance=2.0)
    assert later.costs["binary"].value == pytest.approx(2.0 * (1.0 - 1.0 / 5.0), rel=SCALAR)
    assert (later.begin, later.end, later.refreshes) == (2.0, 7.0, 2.0)
    with pytest.raises(fo.SourceDataError, match="origin"):
        replay_signals(rule, fo.World.from_events(events, start=-1.0, horizon=10.0), 1.0, 1.0, 5.0)
    greedy = fo.noisy_signals.SignalGreedy(
        fo.Problem(fo.noisy_signals.NoisySignalFreshness(0.5, 0.5), fo.Sources([1.0]), bandwidth=1.0)
    )
    with pytest.raises(fo.SourceDataError, match="not for SignalGreedy"):
        replay_signals(greedy, world, 1.0, 1.0, 5.0, origin=2.0)

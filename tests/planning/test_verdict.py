"""What a verdict claims, with errors that count what crawls hid; best rates in hindsight."""

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.planning.held_out_window import held_out_windows
from freshopt.planning.known_changes import drawn_changes, known_changes
from freshopt.planning.policy_cost import Measurement
from freshopt.planning.static_rates import best_rates
from freshopt.planning.verdict import PHASES, supported, verdict
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.report.held_out import phases_supported
from freshopt.simulation.static_costs import ChangeWindow, static_costs
from tests.ground_truth.crawl_logs import log_at, poisson_events
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT, SCALAR


def measured(value: float, error: float, hidden: float = 0.0, n: int = 100) -> Measurement:
    """A measurement of n alike sources, of which crawls hid a part."""
    sign = np.where(np.arange(n) % 2, 1.0, -1.0)
    found = Measurement(value, sign, np.ones(n, dtype=bool))
    return Measurement(value, sign * error / found.error, found.there, hidden=hidden)


def test_the_error_is_that_of_a_weighted_mean_over_sources() -> None:
    """Against the spread of samples of sources with replacement."""
    rng = np.random.default_rng(7)
    n = 400
    weight, span = rng.uniform(0.5, 2.0, n), rng.choice([5.0, 10.0], n)
    cost, other = (rng.gamma(2.0, 1.0, n) * span for _ in range(2))
    everything = np.arange(n)
    one, two = (Measurement.of(weight, each, span, everything, n) for each in (cost, other))
    assert one.value == pytest.approx(weight.sum() * (weight @ cost) / (weight @ span), rel=EXACT)
    draws = []
    for _ in range(2000):
        k = rng.integers(n, size=n)
        each = [(weight[k] @ c[k]) / (weight[k] @ span[k]) * weight.sum() for c in (cost, other)]
        draws.append((each[0], (each[0] - each[1]) / one.value))
    spread = np.std(draws, axis=0)
    assert one.error == pytest.approx(spread[0], rel=0.08)
    saved = one.saved_by(two)
    assert saved.value == pytest.approx(1.0 - two.value / one.value, rel=EXACT)
    assert saved.error == pytest.approx(spread[1], rel=0.08)


def test_paired_errors_are_those_of_differences() -> None:
    weight = span = np.ones(50)
    cost = np.random.default_rng(1).exponential(5.0, 50)
    one, same, less = (
        Measurement.of(weight, each, span, np.arange(50), 50) for each in (cost, cost, cost - 0.1)
    )
    assert one.saved_by(same).error == 0.0
    saved = one.saved_by(less)
    assert saved.error < 1e-12 < 1e-3 < saved.value
    assert one.error / one.value > 0.1


def test_a_source_is_one_observation_in_however_many_windows() -> None:
    weight = span = np.ones(30)
    cost = np.random.default_rng(2).exponential(5.0, 30)
    one = Measurement.of(weight, cost, span, np.arange(30), 30)
    assert Measurement.mean([one] * 5).error == pytest.approx(one.error, rel=EXACT)


@pytest.mark.parametrize(
    ("savings", "words"),
    [
        ({"uniform": (-0.5, 0.04)}, "The plan saves 33 ± 3 % of the cost of equal rates."),
        (
            {"uniform": (0.2, 0.04), "proportional": (0.1, 0.04)},
            "Equal rates save 20 ± 4 % of the plan's cost.",
        ),
        (
            {"uniform": (-0.5, 0.04), "proportional": (0.1, 0.02)},
            "save 10 ± 2 % of the plan's cost; the plan saves 33 ± 3 % of the cost of equal rates.",
        ),
        ({"uniform": (0.07, 0.04)}, "equal rates this log does not decide (the plan costs 8 ± 4 % more)"),
        ({"re-planning every 7 days": (0.12, 0.04)}, "Re-planning every 7 days saves 12 ± 4 %."),
        ({"re-planning every 7 days": (-0.15, 0.04)}, "days costs 15 ± 4 % more."),
        ({"phases": (0.003, 0.011)}, "Phases: not supported (saves 0 ± 1 %)."),
        ({"phases": (-0.03, 0.02)}, "Phases: not supported (costs 3 ± 2 % more)."),
        ({"phases": (0.003, 0.005)}, "Phases: not supported (saves 0.3 ± 0.5 %)."),
        ({"∝ √(w·Δ)": (1e-6, 1e-9)}, "cost as much as the plan"),
        ({"uniform": (1.0, 0.9)}, "equal rates this log does not decide."),
        ({}, ""),
    ],
)
def test_claims_follow_paired_errors(savings: dict[str, tuple[float, float]], words: str) -> None:
    text = verdict({name: measured(*numbers) for name, numbers in savings.items()})
    assert words in text
    assert text.count(".") <= text.count("0.") + 1


def test_few_sources_need_more() -> None:
    assert supported(measured(0.25, 0.1))
    assert not supported(measured(0.19, 0.1))
    assert not supported(measured(0.25, 0.1), of=4)
    assert not supported(measured(0.25, 0.1, n=4))
    assert not supported(Measurement(0.5, np.zeros(1), np.ones(1, dtype=bool)))
    # One source has all the difference: its size tells nothing.
    cost, other = np.zeros(50), np.zeros(50)
    cost[0], other[0] = 9.0, 1.0
    one, two = (Measurement.of(np.ones(50), each, np.ones(50), np.arange(50), 50) for each in (cost, other))
    assert one.saved_by(two).value > 0.5
    assert not supported(one.saved_by(two))


def test_a_placebo_is_claimed_no_more_often_than_by_chance() -> None:
    """Two policies that differ by luck alone: rates dealt out at random, importances of Pareto(1.5)."""
    n, seeds = 80, 150
    claims, ratios = 0, []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        source, time = poisson_events(rng, rng.gamma(0.6, 1.0, n), 20.0)
        events = {"source": source, "time": time}
        world = fo.World.from_events(events, names=np.arange(n), start=0.0, horizon=20.0)
        window, weight = ChangeWindow.of(world, 5.0, 20.0), rng.pareto(1.5, n) + 1.0
        rates = np.geomspace(0.1, 2.0, n)
        costs = [
            Measurement.of(
                weight,
                static_costs(window, rng.permutation(rates), HarmonicStaleness(fo.Refresh.PERIODIC)),
                window.span,
                np.arange(n),
                n,
            )
            for _ in range(2)
        ]
        saved = costs[0].saved_by(costs[1])
        ratios.append(saved.value / saved.error)
        claims += supported(saved)
    assert claims <= 0.06 * seeds
    assert abs(np.mean(ratios)) < 4.0 / np.sqrt(seeds)


@pytest.mark.parametrize(("value", "yes"), [(0.2, True), (0.003, False), (-0.2, False)])
def test_phases_are_supported_where_they_are_said_to_save(value: float, yes: bool) -> None:
    saved = measured(value, 0.02)
    assert phases_supported(verdict({PHASES: saved})) is yes
    assert phases_supported(verdict({"uniform": measured(-0.5, 0.04), PHASES: saved})) is yes
    assert not phases_supported(verdict({"uniform": measured(0.5, 0.04)}))


Floats = npt.NDArray[np.float64]
PERIODIC = fo.Refresh.PERIODIC


def drawn(log: fo.CrawlLog, rate: float, seed: int = 1) -> tuple[npt.NDArray[np.int64], Floats]:
    """The interval of each change of a log of one source with crawls at 0, 1, ..., and its place there."""
    time = drawn_changes(log, np.array([rate]), seed).events(-np.inf, np.inf)[1]
    return np.floor(time).astype(np.int64), time % 1.0


@pytest.mark.parametrize("rate", [0.05, 0.7, 4.0])
def test_what_is_drawn_is_what_crawls_of_poisson_sources_hid(rate: float) -> None:
    """Against Poisson processes of which those without a change are thrown away."""
    days, rng = 6000, np.random.default_rng(3)
    found = np.arange(days + 1) % 2 == 1
    interval, place = drawn(fo.CrawlLog([0] * (days + 1), np.arange(days + 1.0), found), rate)
    assert np.all(interval % 2 == 0)  # the crawl at 1 found what happened from 0 on
    many = np.bincount(interval, minlength=days)[::2]
    assert many.min() >= 1
    true = rng.poisson(rate, 400_000)
    true = true[true > 0]
    assert np.mean(many) == pytest.approx(np.mean(true), abs=4.0 * np.std(true) / np.sqrt(len(many)))
    last = np.array([place[interval == k].max() for k in range(0, days, 2)])
    latest = rng.random((len(true), true.max()))
    latest[np.arange(true.max()) >= true[:, None]] = 0.0
    end = latest.max(axis=1)
    assert np.mean(last) == pytest.approx(np.mean(end), abs=4.0 * np.std(end) / np.sqrt(len(last)))
    assert np.mean(place) == pytest.approx(0.5, abs=4.0 * 0.3 / np.sqrt(len(many)))


def test_counts_and_dates_are_kept() -> None:
    days, rng = 4000, np.random.default_rng(5)
    counts = rng.poisson(1.5, days + 1)
    time = np.arange(days + 1.0)
    interval, place = drawn(fo.CrawlLog([0] * (days + 1), time, counts > 0, changes=counts), 9.0)
    np.testing.assert_array_equal(np.bincount(interval, minlength=days), counts[1:])
    assert np.mean(place) == pytest.approx(0.5, abs=0.02)
    back = rng.uniform(0.0, 1.0, days + 1)
    log = fo.CrawlLog([0] * (days + 1), time, np.ones(days + 1), last_modified=time - back)
    interval, place = drawn(log, 2.0)
    last = np.array([place[interval == k].max() for k in range(days)])
    np.testing.assert_allclose(last, 1.0 - back[1:], atol=1e-9)
    # Before the last change others come at the rate, whatever comes later.
    before = len(place) - days
    assert before == pytest.approx(2.0 * np.sum(1.0 - back[1:]), abs=4.0 * np.sqrt(before))


def test_extreme_rates_are_drawn_too() -> None:
    log = fo.CrawlLog([0] * 50, np.arange(50.0), np.ones(50))
    for rate in (0.0, 1e-300, 1e300):
        interval, _ = drawn(log, rate)
        assert np.bincount(interval).min() >= 1
        assert len(interval) < 50 * 200


def test_samples_differ_and_are_repeated_by_their_seed() -> None:
    log = fo.CrawlLog([0] * 50, np.arange(50.0), np.arange(50) % 3 == 0)
    windows = [held_out_windows(log, None, 0.5, 1, seed=seed)[0] for seed in (1, 1, 2)]
    one, same, other = (window.drawn[0].changes.time for window in windows)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, windows[0].drawn[1].changes.time)
    # The crawls find in each sample what they found.
    found = known_changes(log).events(-np.inf, np.inf)[1]
    for world in windows[0].worlds:
        time = world.world.events(-np.inf, np.inf)[1]
        np.testing.assert_array_equal(np.unique(np.ceil(time)), np.ceil(found))


def poisson(n: int, days: float, gap: float, seed: int) -> tuple[fo.CrawlLog, fo.ChangeHistory]:
    """Sources with gamma rates, crawled at equal gaps, and all their changes."""
    rng = np.random.default_rng([7, seed])
    events = [np.sort(rng.uniform(0.0, days, rng.poisson(days * rate))) for rate in rng.gamma(0.8, 1.0, n)]
    time = np.arange(0.0, days + 1e-9, gap)
    found = [np.diff(np.searchsorted(own, time), prepend=0) > 0 for own in events]
    log = log_at(time, found)
    who = np.repeat(np.arange(n), [len(own) for own in events])
    return log, fo.ChangeHistory(who, np.concatenate(events), 0.0, days, names=np.arange(n))


@pytest.mark.parametrize(
    "objective",
    [
        HarmonicStaleness(PERIODIC),
        BinaryFreshness(PERIODIC),
        AccumulatedDelay(fo.Refresh.POISSON),
        Age(PERIODIC),
    ],
)
@pytest.mark.sampled(4)
def test_a_log_tells_of_every_policy_what_its_true_changes_do(objective: fo.Objective) -> None:
    """A third of the changes are hidden: costs are those of the history, and what was predicted."""
    ratios, hidden = [], []
    for seed in range(2):
        log, history = poisson(60, 80.0, 1.0, seed)
        mine, true = (
            fo.backtest(log, 30.0, objective=objective, history=known, splits=1) for known in (None, history)
        )
        for one, other in zip(mine.means, true.means, strict=False):
            assert one.policy == other.policy
            if one.policy in ("best static in hindsight", "current", "plan at current"):
                continue
            assert one.realised == pytest.approx(other.realised, rel=0.08), one.policy
            assert one.predicted == pytest.approx(other.predicted, rel=SCALAR)
        plan = mine.means[0]
        assert plan.predicted is not None
        assert abs(plan.realised - plan.predicted) < 3.0 * plan.error
        ratios.append(plan.realised / plan.predicted)
        hidden.append(plan.hidden)
        assert true.means[0].hidden == 0.0
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.06)
    assert np.mean(hidden) > 0.02


def test_half_of_what_crawls_hid_is_a_standard_error() -> None:
    assert measured(10.0, 0.3, hidden=0.8).error == pytest.approx(0.5, rel=EXACT)
    mean = Measurement.mean([measured(10.0, 0.3, hidden=0.8), measured(10.0, 0.3, hidden=0.0)])
    assert mean.error == pytest.approx(np.hypot(0.3, 0.2), rel=EXACT)
    plan, other = measured(10.0, 0.0, hidden=2.0), measured(12.0, 1e-6, hidden=3.0)
    saved = plan.saved_by(other)
    assert (saved.value, saved.error) == pytest.approx((-0.2, 0.05), rel=EXACT)
    # Both found and hidden changes are in the claim: of none or twice as many hidden ones it would hold.
    assert "The plan saves 17 ± 4 % of the cost of equal rates." in verdict({"uniform": saved})
    most = plan.saved_by(measured(12.0, 1e-6, hidden=4.8))
    assert "does not decide (the plan saves 17 ± 12 %)" in verdict({"uniform": most})


def test_a_log_that_hid_most_decides_nothing() -> None:
    plan, other = measured(10.0, 0.01, hidden=6.0), measured(20.0, 0.01, hidden=12.0)
    saved = plan.saved_by(other)
    assert not supported(saved)
    assert verdict({"uniform": saved}) == "Between the plan and equal rates this log does not decide."
    assert verdict({PHASES: saved}) == "Crawling at good phases of the week: not supported."
    log, _ = poisson(12, 200.0, 10.0, 1)
    found = fo.backtest(log, 20.0, objective=HarmonicStaleness(PERIODIC), splits=1)
    plan_row, *others = found.means
    assert plan_row.hidden > 0.5
    assert all(row.saving_error is None for row in others if row.policy == "uniform")
    assert "saves" not in found.verdict


@pytest.mark.parametrize("objective", [HarmonicStaleness(PERIODIC), BinaryFreshness(fo.Refresh.POISSON)])
def test_the_optimum_of_a_formula(objective: fo.Objective) -> None:
    """On curves with a known optimum it is found, whatever the scale of rates and weights."""
    rng = np.random.default_rng(3)
    sources = fo.Sources(10.0 ** rng.uniform(-4, 3, 40), 10.0 ** rng.uniform(-3, 3, 40))
    for bandwidth in (1e-2, 3.0, 500.0):
        problem = fo.Problem(objective, sources, bandwidth)
        numerics = present(problem.numerics)
        rates = best_rates(numerics.cost, bandwidth, np.zeros(40), np.full(40, np.inf))
        assert rates.sum() <= bandwidth * (1.0 + SCALAR)
        best = float(np.sum(numerics.cost(fo.solve(problem).rates)))
        assert best * (1.0 - SCALAR) <= float(np.sum(numerics.cost(rates))) <= 1.001 * best


def test_no_other_rates_do_better_in_recorded_changes() -> None:
    rng = np.random.default_rng(5)
    n = 6
    source, time = poisson_events(rng, 20.0 / 90.0, 90.0, n)
    world = fo.World.from_events(
        {"source": source, "time": time}, names=np.arange(n), start=0.0, horizon=90.0
    )
    window, weight = ChangeWindow.of(world, 30.0, 90.0), rng.pareto(1.5, n) + 1.0
    lower, upper = np.full(n, 0.02), np.full(n, 0.9)

    def cost(rates: np.ndarray) -> np.ndarray:
        return weight * static_costs(window, rates, HarmonicStaleness(PERIODIC))

    found = best_rates(cost, 1.0, lower, upper)
    assert np.all((found >= lower - SCALAR) & (found <= upper + SCALAR))
    assert found.sum() == pytest.approx(1.0, rel=SCALAR)
    value = cost(found).sum()
    for _ in range(300):
        other = lower + rng.dirichlet(np.full(n, 1.0 + rng.exponential(3.0))) * (1.0 - lower.sum())
        if np.all(other <= upper):
            assert cost(other).sum() >= value * (1.0 - 1e-4)
    near = np.clip(found + rng.normal(0.0, 0.02, (200, n)), lower, upper)
    for each in near[near.sum(axis=1) <= 1.0]:
        assert cost(each).sum() >= value * (1.0 - 1e-4)


def test_one_source_takes_all() -> None:
    assert best_rates(lambda rate: 1.0 / (1.0 + rate), 2.0, np.zeros(1), np.full(1, np.inf)) == pytest.approx(
        [2.0]
    )

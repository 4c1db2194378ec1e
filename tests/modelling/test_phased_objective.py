"""What good phases save, against the cost of a changing rate integrated directly."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.phased_objective import GAPS, PhasedObjective, plain
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.weekly import WeeklyProfile
from tests.ground_truth.hull_truth import NAMES, Floats, Savings, mean_penalty, penalty
from tests.separable.test_lower_hull import OBJECTIVES

HOUR = np.arange(168)
OFFICE = np.where((HOUR // 24 < 5) & (HOUR % 24 >= 9) & (HOUR % 24 < 17), 4.0, 0.4)
WAVES = 1.0 + 0.5 * np.sin(2 * np.pi * HOUR / 168) + 0.3 * np.sin(2 * np.pi * HOUR / 24)


def phased_cost(name: str, g: Floats, gap: float, change: float) -> float:
    """Mean cost of refreshes at the better half of phases, from the changing rate itself."""
    fine, n = 10, 1680
    mean_changes = np.concatenate(([0.0], np.cumsum(np.repeat(g / np.mean(g), fine)))) * 7.0 / n
    parts = max(1, round(7.0 / gap))
    steps = round(gap / 7.0 * n)
    time = np.arange(steps + 1)
    costs, waits = [], []
    for phase in range(0, n // parts, 20):
        cost = wait = 0.0
        for part in range(parts):
            begin = phase + part * n // parts
            end = begin + time
            x = (end // n) * 7.0 + mean_changes[end % n] - mean_changes[begin % n] - (begin // n) * 7.0
            cost += float(np.trapezoid(penalty(name, change * x), time)) / steps / parts
            wait += float(np.trapezoid(x, time)) / steps / parts
        costs.append(cost)
        waits.append(wait)
    best = np.argsort(waits)[: len(waits) // 2]
    return float(np.mean(np.array(costs)[best]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [OFFICE, WAVES])
@pytest.mark.parametrize("gap", [14.0, 7.0, 1.0])
@pytest.mark.parametrize("u", [0.1, 1.0, 3.0])
@pytest.mark.sampled(3)
def test_promises_are_kept(name: str, shape: Floats, gap: float, u: float) -> None:
    change = u / gap
    objective = PhasedObjective(OBJECTIVES[name], WeeklyProfile(shape))
    rate, saving = objective.points(fo.Sources([change]))
    at = np.flatnonzero(np.isclose(rate, 1.0 / gap))
    random = float(mean_penalty(name, np.array([u]))[0])
    saved = random - phased_cost(name, shape, gap, change)
    promised = float(saving[at[0], 0]) if len(at) else 0.0
    assert promised <= saved + 0.002 * random
    if name == "delay":
        assert promised == pytest.approx(saved, abs=0.002 * random)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_that_saves_nothing_changes_no_bit(name: str) -> None:
    rng = np.random.default_rng(1)
    sources = fo.Sources(rng.lognormal(-2.0, 2.0, 300), rng.lognormal(0.0, 1.0, 300))
    without = fo.solve(fo.Problem(OBJECTIVES[name], sources, 40.0))
    for profile, load in (
        (WeeklyProfile(np.ones(168)), 2.0),
        (WeeklyProfile(OFFICE), 1.0),
        (Savings(0.0), 3.0),
    ):
        problem = fo.Problem(OBJECTIVES[name], sources, 40.0, profile=profile, load_limit=load)
        assert problem.objective is OBJECTIVES[name]
        assert np.array_equal(fo.solve(problem).rates, without.rates)


def test_units_of_sources_and_profile_do_not_matter() -> None:
    days = fo.Sources([0.1, 1.0], time_unit="day")
    hours = fo.Sources(np.array([0.1, 1.0]) / 24.0, time_unit="hour")
    found = [
        fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), sources, bandwidth, profile=profile)).value
        for sources, bandwidth in ((days, 0.4), (hours, 0.4 / 24.0))
        for profile in (Savings(), Savings(time_unit="hour"))
    ]
    np.testing.assert_allclose(found, found[0], rtol=1e-12)


def test_changed_problems_keep_the_profile() -> None:
    problem = fo.Problem(OBJECTIVES["delay"], fo.Sources([0.1, 1.0]), 0.4, profile=Savings(), load_limit=3.0)
    for other in (problem.with_bandwidth(0.6), problem.with_change_rate([0.2, 0.5])):
        assert isinstance(other.objective, PhasedObjective)
        assert other.objective.load_limit == 3.0
    again = fo.Problem(OBJECTIVES["delay"], fo.Sources([0.2, 0.5]), 0.4, profile=Savings(), load_limit=3.0)
    changed = problem.with_change_rate([0.2, 0.5])
    assert np.array_equal(fo.solve(changed).rates, fo.solve(again).rates)
    assert plain(problem.objective) is OBJECTIVES["delay"]
    assert plain(OBJECTIVES["delay"]) is OBJECTIVES["delay"]


def test_a_higher_load_limit_never_costs_more() -> None:
    sources = fo.Sources([0.02, 0.1, 0.5, 2.0])
    values = [
        fo.solve(
            fo.Problem(OBJECTIVES["harmonic"], sources, 1.0, profile=WeeklyProfile(OFFICE), load_limit=load)
        ).value
        for load in (1.0, 1.2, 1.5, 2.0, 4.0)
    ]
    assert np.all(np.diff(values) < 0.0)


@pytest.mark.parametrize(
    ("objective", "settings", "why"),
    [
        (BinaryFreshness(), {}, "have no phase"),
        (AccumulatedDelay(), {}, "have no phase"),
        (Age(fo.Refresh.PERIODIC), {}, "no function of the mean number"),
        (fo.Spend(), {}, "no function of the mean number"),
        (
            HarmonicStaleness(fo.Refresh.PERIODIC),
            {"constraints": [fo.Target(BinaryFreshness(), at_least=0.1)]},
            "constraints",
        ),
    ],
)
def test_what_has_no_phases_is_refused(
    objective: fo.Objective, settings: dict[str, object], why: str
) -> None:
    with pytest.raises(ObjectiveError, match=why) as refused:
        fo.Problem(objective, fo.Sources([1.0]), 1.0, profile=Savings(), **settings)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("settings", [{"profile": 3}, {"profile": Savings(), "load_limit": 0.5}])
def test_what_is_no_profile_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SourceDataError, match=r"profile|load_limit"):
        fo.Problem(OBJECTIVES["delay"], fo.Sources([1.0]), 1.0, **settings)  # type: ignore[arg-type]


def test_budgets_by_host_are_solved() -> None:
    sources = fo.Sources([0.1, 1.0, 0.2], host=["a", "a", "b"])
    short = fo.Problem(OBJECTIVES["binary"], sources, 0.5, {"a": 0.3}, profile=Savings())
    declared = [fo.Budget(0.5), fo.Budget({"a": 0.3}, by="host", name="host")]
    long = fo.Problem(OBJECTIVES["binary"], sources, constraints=declared, profile=Savings())
    assert np.array_equal(fo.solve(short).rates, fo.solve(long).rates)


def test_gaps_are_weeks_or_parts_of_one() -> None:
    assert np.all(WeeklyProfile([1.0]).cycles(7.0 * np.array(GAPS)) != 0)

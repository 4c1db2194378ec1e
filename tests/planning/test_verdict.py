"""What a verdict claims, and that it claims nothing by chance."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.planning.policy_cost import Measurement
from freshopt.planning.verdict import PHASES, phases_supported, supported, verdict
from freshopt.problems import HarmonicStaleness
from freshopt.simulation.static_costs import ChangeWindow, static_costs
from tests.ground_truth.tolerances import EXACT


def measured(value: float, error: float, n: int = 100) -> Measurement:
    """A measurement of n alike sources with this error."""
    sign = np.where(np.arange(n) % 2, 1.0, -1.0)
    found = Measurement(value, sign, np.ones(n, dtype=bool))
    return Measurement(value, sign * error / found.error, found.there)


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
        many = rng.poisson(rng.gamma(0.6, 1.0, n) * 20.0)
        world = fo.World.from_events(
            {"source": np.repeat(np.arange(n), many), "time": rng.uniform(0.0, 20.0, many.sum())},
            names=np.arange(n),
            start=0.0,
            horizon=20.0,
        )
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

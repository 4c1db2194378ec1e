"""Integrated costs: by hand on five events, by definition, and against expected costs in the long run."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.simulation import MissedCosts, SimulatedCrawler, missed_costs
from tests.ground_truth import cell_truth
from tests.ground_truth.tolerances import EXACT
from tests.simulation.test_world import polls, recorded, world

Floats = npt.NDArray[np.float64]
COSTS = ("stale", "harmonic", "count", "age")


def test_five_events_by_hand() -> None:
    # Source 0 changes at 1, 2, 5, 6, 6.5; refreshed at 4 and 6 (with the change at 6: after it). Until 10.
    # Gap 0..4: first missed at 1, second at 2. Gap 4..6: missed at 5. Gap 6..10: missed at 6.5.
    of = fo.World.from_events(
        {"source": [0] * 5, "time": [1.0, 2.0, 5.0, 6.0, 6.5]}, names=[0, 1], horizon=10.0
    )
    costs = missed_costs(of, [0, 1, 0], [6.0, 3.0, 4.0], end=10.0, penalty=lambda m: m**2)
    assert costs.stale.tolist() == [3.0 + 1.0 + 3.5, 0.0]
    assert costs.harmonic.tolist() == [1.0 + 2 * 1.5 + 1.0 + 3.5, 0.0]
    assert costs.count.tolist() == [1.0 + 2 * 2.0 + 1.0 + 3.5, 0.0]
    assert costs.age.tolist() == [4.5 + 0.5 + 3.5**2 / 2, 0.0]
    assert costs.penalty is not None
    assert costs.penalty.tolist() == [1.0 + 2 * 4.0 + 1.0 + 3.5, 0.0]
    assert costs.most.tolist() == [2, 0]
    assert costs.span.tolist() == [10.0, 10.0]
    assert repr(costs) == "MissedCosts(2 sources until 10, fresh 0.6250 of the time)"


def test_a_window_begins_with_fresh_copies() -> None:
    of = fo.World.from_events({"source": [0, 0, 1], "time": [1.0, 4.0, 4.0]}, start=[0.0, 3.5], horizon=10.0)
    costs = missed_costs(of, [0, 0], [1.5, 6.0], begin=2.0, end=8.0)
    assert costs.begin.tolist() == [2.0, 3.5]
    assert costs.stale.tolist() == [2.0, 4.0]
    assert costs.span.tolist() == [6.0, 4.5]


def by_definition(events: Floats, refreshes: Floats, end: float) -> list[float]:
    """The four integrals of one source, a gap at a time, from the changes in it."""
    edges = np.concatenate([[0.0], refreshes[refreshes <= end], [end]])
    sums = [0.0] * 4
    for a, b in pairwise(edges.tolist()):
        inside = events[(events > a) & (events <= b)]
        if len(inside):
            sums[0] += b - inside[0]
            sums[1] += math.fsum((b - t) / (j + 1) for j, t in enumerate(inside))
            sums[2] += math.fsum(b - t for t in inside)
            sums[3] += (b - inside[0]) ** 2 / 2
    return sums


@pytest.mark.parametrize("moving", [False, True])
def test_every_gap_by_its_changes(moving: bool) -> None:
    of = world(moving=moving)
    source, time, _ = polls(len(of), 30.0, m=900)
    order = np.random.default_rng(5).permutation(len(time))
    costs = missed_costs(of, source[order], time[order], end=25.0)
    offsets, events = of.events(0.0, 25.0)
    expected = np.array(
        [by_definition(events[offsets[k] : offsets[k + 1]], time[source == k], 25.0) for k in range(len(of))]
    ).T
    for name, integral in zip(COSTS, expected, strict=True):
        assert getattr(costs, name) == pytest.approx(integral, rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("kind", ["constant", "moving", "recorded"])
def test_compiled_and_numpy_have_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything() -> list[bytes]:
        of = world(moving=kind == "moving")
        of = recorded(of, 30.0) if kind == "recorded" else of
        source, time, _ = polls(len(of), 30.0)
        costs = missed_costs(of, source, time, 30.0, begin=2.0, penalty=np.sqrt)
        return [getattr(costs, name).tobytes() for name in (*COSTS, "penalty", "most")]

    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    compiled = everything()
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert everything() == compiled


def test_sources_taken_apart_or_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs() -> MissedCosts:
        source, time, _ = polls(50, 30.0)
        return missed_costs(world(), source, time, 30.0)

    whole = costs()
    monkeypatch.setattr("freshopt.simulation.staleness_integrals._TOGETHER", 100.0)
    parts = costs()
    for name in COSTS:
        assert getattr(whole, name).tobytes() == getattr(parts, name).tobytes()


def expected_rate(name: str, discipline: str, change_rate: float, rate: float) -> float:
    """J of DESIGN's table, in closed form or by quadrature, from `tests.ground_truth.cell_truth`."""
    if name == "age":
        if discipline == "poisson":
            return change_rate / (rate * (rate + change_rate))
        grid = (np.arange(20_000) + 0.5) / 20_000 / rate  # the mean of c(s) = s − (1−e^{−Δs})/Δ over a gap
        return float(np.mean(grid - -np.expm1(-change_rate * grid) / change_rate))
    curve = {"stale": "binary"}.get(name, name)
    return float(cell_truth.cost(curve, discipline, change_rate, rate))


@pytest.mark.parametrize("discipline", ["poisson", "periodic", "on signal"])
@pytest.mark.parametrize(("change_rate", "rate"), [(2.0, 0.5), (0.3, 0.25)])
def test_the_long_run_is_the_expected_cost(discipline: str, change_rate: float, rate: float) -> None:
    n, end = 1500, 200.0
    rng = np.random.default_rng(int(100 * rate))
    of = fo.World.poisson(fo.Sources(np.full(n, change_rate), signalled=True), seed=21)
    if discipline == "periodic":  # whole gaps only, so that no end effect is left
        time = np.tile(np.arange(1, int(end * rate) + 1) / rate, n)
        source = np.repeat(np.arange(n), int(end * rate))
    elif discipline == "poisson":
        counts = rng.poisson(rate * end, n)
        source, time = np.repeat(np.arange(n), counts), rng.uniform(0.0, end, counts.sum())
    else:
        source, time = SimulatedCrawler(of).signals(0.0, end)
        taken = rng.random(len(time)) < rate / change_rate
        source, time = source[taken], time[taken]
    begin = 0.0 if discipline == "periodic" else 60.0
    # From fresh copies on, a random discipline forgets its start within some mean gaps: let them pass.
    early, late = (missed_costs(of, source, time, t) for t in (max(begin, 0.0), end))
    names = ("stale", "harmonic", "count") if discipline == "on signal" else COSTS
    for name in names:
        per_source = (getattr(late, name) - (getattr(early, name) if begin else 0.0)) / (end - begin)
        error = per_source.std(ddof=1) / math.sqrt(n)
        expected = expected_rate(name, discipline, change_rate, rate)
        assert abs(per_source.mean() - expected) < 4.0 * error
        assert error < 0.02 * expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda of: missed_costs(of, [0], [1.0], end=99.0), r"from 0 to 99, but the world ends at 5\."),
        (lambda of: missed_costs(of, [0], [1.0], end=1.0, begin=2.0), r"from 2 to 1"),
        (
            lambda of: missed_costs(of, [0], [1.0, 2.0], end=4.0),
            r"sources of shape \(1,\) and times of shape",
        ),
        (lambda of: missed_costs(of, [0], [math.nan], end=4.0), r"a finite time"),
        (lambda of: missed_costs(of, [7, 1], [1.0, 2.0], end=4.0), r"range over 1\.\.7\. Use 0\.\.1\."),
    ],
)
def test_what_cannot_be_integrated(call: Callable[[fo.World], Any], message: str) -> None:
    of = fo.World.from_events({"source": [0, 1], "time": [1.0, 5.0]})
    with pytest.raises(fo.SourceDataError, match=message):
        call(of)

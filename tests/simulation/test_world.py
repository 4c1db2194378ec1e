"""Worlds: changes with the right law, the same whoever looks, compiled or not, recorded or drawn."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import freshopt as fo
from freshopt.numerics.random_streams import exponentials
from freshopt.simulation import SimulatedCrawler
from freshopt.simulation.change_processes import PoissonChanges
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT

WORD = 2**64 - 1
GOLDEN, OTHER = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


def mixed(word: int) -> int:
    """SplitMix64's finaliser in unbounded integers."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def uniform(seed: int, source: int, number: int) -> float:
    """The uniform number of one event, by Python's own arithmetic."""
    key = mixed((seed + mixed(((source + OTHER) * GOLDEN) & WORD)) & WORD)
    bits = mixed(mixed((key + number * GOLDEN) & WORD) ^ mixed(key ^ OTHER))
    return ((bits >> 12) + 0.5) / 2**52


def world(n: int = 50, seed: int = 3, *, moving: bool = False) -> fo.World:
    """A Poisson world of rates 0.2..4; moving, they jump twice and some sources stop."""
    rates = np.geomspace(0.2, 4.0, n)
    sources = fo.Sources(rates, signalled=np.arange(n) % 2 == 0)
    if not moving:
        return fo.World.poisson(sources, seed)
    later = np.stack([rates[::-1], np.where(np.arange(n) < 5, 0.0, rates)])
    return fo.World.poisson(sources, seed, times=[10.0, 17.5], change_rate=later)


def recorded(of: fo.World, horizon: float) -> fo.World:
    """The same changes, as records in no order."""
    offsets, time = of.events(0.0, horizon)
    source = np.repeat(np.arange(len(of)), np.diff(offsets))
    order = np.random.default_rng(0).permutation(len(time))
    events = {"source": source[order], "time": time[order]}
    return fo.World.from_events(events, names=np.arange(len(of)), horizon=horizon)


def polls(n: int, horizon: float, m: int = 4000, seed: int = 1) -> tuple[Any, ...]:
    """Random polls in time order: sources, times, and which are probes."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, n, m), np.sort(rng.uniform(0.0, horizon, m)), rng.random(m) < 0.3


def test_exponentials_are_the_hash_of_what_they_are_for() -> None:
    cases = [(0, 0, 0), (1, 2, 3), (WORD, 10**6, 10**9), (12345, 7, 0)]
    for seed, source, number in cases:
        drawn = exponentials(seed, np.array([source]), np.array([number]))[0]
        assert drawn == pytest.approx(-math.log(uniform(seed, source, number)), rel=EXACT)


def test_exponentials_are_exponential_and_independent() -> None:
    rows = exponentials(5, np.repeat(np.arange(200), 500), np.tile(np.arange(500), 200)).reshape(200, 500)
    # Kolmogorov and Smirnov: the distance exceeds 1.95/√m once in a thousand.
    ordered = np.sort(-np.expm1(-rows.ravel()))
    grid = np.arange(1, ordered.size + 1) / ordered.size
    assert np.max(np.maximum(grid - ordered, ordered - grid + 1 / ordered.size)) < 1.95 / np.sqrt(
        ordered.size
    )
    for one, other in ((rows[:, 1:], rows[:, :-1]), (rows[1:], rows[:-1])):  # along a source, and across
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 4.0 / np.sqrt(one.size)


def test_bits_have_the_probability_of_a_change_in_the_gap() -> None:
    n, rate = 400, 0.7
    crawler = SimulatedCrawler(fo.World.poisson(fo.Sources(np.full(n, rate)), seed=11))
    gaps = np.random.default_rng(2).uniform(0.0, 3.0, 300)
    times = np.cumsum(gaps)
    bits = crawler.refresh(np.tile(np.arange(n), 300), np.repeat(times, n)).reshape(300, n)
    expected = -np.expm1(-rate * gaps)
    # Each row is n independent trials; of 300 standardised sums none is beyond 5, and they have variance 1.
    z = (bits.sum(axis=1) - n * expected) / np.sqrt(n * expected * (1 - expected))
    assert np.max(np.abs(z)) < 5.0
    assert np.sum(z**2) == pytest.approx(300, abs=4 * np.sqrt(2 * 300))


def test_counts_are_poisson() -> None:
    n, mean = 100_000, 2.5
    crawler = SimulatedCrawler(fo.World.poisson(fo.Sources(np.full(n, 0.5)), seed=4))
    source, no = np.arange(n), np.zeros(n, dtype=bool)
    crawler.missed(source, np.full(n, 3.0), no)
    counts = crawler.missed(source, np.full(n, 8.0), no)
    expected = np.array([math.exp(-mean) * mean**k / math.factorial(k) for k in range(10)])
    found = np.bincount(np.minimum(counts, 10), minlength=11)[:10]
    z = (found - n * expected) / np.sqrt(n * expected * (1 - expected))
    assert np.max(np.abs(z)) < 4.0


@pytest.mark.parametrize("moving", [False, True])
def test_changes_do_not_depend_on_who_looks(moving: bool) -> None:
    of = world(moving=moving)
    source, time, keep = polls(len(of), 30.0)
    at_once = SimulatedCrawler(of).missed(source, time, keep)
    singly = SimulatedCrawler(of)
    one_by_one = [
        int(singly.missed(source[i : i + 1], time[i : i + 1], keep[i : i + 1])[0]) for i in range(len(time))
    ]
    assert at_once.tolist() == one_by_one
    half = source < len(of) // 2  # others' polls are of no consequence
    alone = SimulatedCrawler(of).missed(source[half], time[half], keep[half])
    assert alone.tolist() == at_once[half].tolist()


@pytest.mark.parametrize("kind", ["constant", "moving", "recorded"])
def test_compiled_and_numpy_have_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything() -> list[npt.NDArray[Any]]:
        of = world(moving=kind == "moving")
        of = recorded(of, 30.0) if kind == "recorded" else of
        crawler = SimulatedCrawler(of)
        answers = crawler.missed(*polls(len(of), 30.0))
        return [answers, *of.events(3.0, 30.0), *crawler.state().values()]

    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    compiled = everything()
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    for one, other in zip(compiled, everything(), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("moving", [False, True])
def test_events_are_what_polls_find(moving: bool) -> None:
    of = world(moving=moving)
    source, time, keep = polls(len(of), 30.0, seed=2)
    assert SimulatedCrawler(recorded(of, 30.0)).missed(source, time, keep).tolist() == (
        SimulatedCrawler(of).missed(source, time, keep).tolist()
    )
    offsets, events = of.events(0.0, 30.0)
    for k in (0, 20, 49):  # by counting
        own = events[offsets[k] : offsets[k + 1]]
        refreshes = time[(source == k) & ~keep]
        found = SimulatedCrawler(of).missed(
            np.full(len(refreshes), k), refreshes, np.zeros(len(refreshes), dtype=bool)
        )
        edges = np.concatenate([[0.0], refreshes])
        assert found.tolist() == [int(np.sum((own > a) & (own <= b))) for a, b in pairwise(edges.tolist())]


def test_moving_rates_move() -> None:
    n = 20_000
    sources = fo.Sources(np.full(n, 2.0))
    later = np.stack([np.full(n, 0.25), np.zeros(n)])
    of = fo.World.poisson(sources, 9, times=[4.0, 9.0], change_rate=later)
    assert [of.change_rate(t)[0] for t in (0.0, 3.9, 4.0, 8.0, 9.0, 100.0)] == [
        2.0,
        2.0,
        0.25,
        0.25,
        0.0,
        0.0,
    ]
    for begin, end, mean in ((0.0, 3.0, 6.0), (3.0, 5.0, 2.25), (5.0, 9.0, 1.0), (9.0, 50.0, 0.0)):
        counts = np.diff(of.events(begin, end)[0])
        assert abs(counts.mean() - mean) <= 4.0 * math.sqrt(mean / n)
        assert abs(counts.var() - mean) <= 4.0 * math.sqrt((mean + 2 * mean**2) / n)
    assert np.diff(of.events(0.0, 50.0)[0]).max() < 50


def test_worlds_of_one_seed_differ_by_their_rates_alone() -> None:
    slow, fast = (fo.World.poisson(fo.Sources(np.full(3, rate)), seed=8) for rate in (1.0, 4.0))
    assert slow.events(0.0, 40.0)[1] == pytest.approx(4.0 * fast.events(0.0, 10.0)[1], rel=EXACT)
    other = fo.World.poisson(fo.Sources(np.full(3, 1.0)), seed=9)
    assert not np.array_equal(slow.events(0.0, 40.0)[1], other.events(0.0, 40.0)[1])


def test_from_events_sorts_counts_and_cuts() -> None:
    events = {"source": ["b", "a", "b", "b", "c", "b"], "time": [5.0, 1.0, 2.0, 2.0, 4.0, 9.0]}
    of = fo.World.from_events(events, names=["c", "b", "a", "never"], start=[4.0, 0.0, 0.5, 3.0], horizon=8.0)
    assert repr(of) == "World(4 sources with 3 recorded changes in 0..8 days)"
    offsets, time = of.events(-math.inf, math.inf)
    assert offsets.tolist() == [0, 0, 2, 3, 3]
    assert time.tolist() == [2.0, 5.0, 1.0]
    by_frame = fo.World.from_events(pl.DataFrame(events))
    assert present(by_frame.names).tolist() == ["a", "b", "c"]
    assert by_frame.horizon == 9.0
    assert SimulatedCrawler(fo.World.from_events(events, start=2.0)).clock == 2.0
    early = fo.World.from_events({"source": [0], "time": [-3.0]})
    assert early.events(-math.inf, 0.0)[1].tolist() == [-3.0]


def test_representations() -> None:
    assert repr(world()) == "World(50 Poisson sources, seed 3, per day)"
    assert repr(world(moving=True)) == "World(50 Poisson sources with 2 jumps of the rates, seed 3, per day)"
    crawler = SimulatedCrawler(world())
    crawler.refresh([1, 2], [0.5, 1.0])
    crawler.probe([1], [1.5])
    assert repr(crawler) == "SimulatedCrawler(50 sources at day 1.5, 2 refreshes, 1 probes)"
    assert isinstance(crawler, SimulatedCrawler)
    assert isinstance(world().changes, PoissonChanges)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"seed is -1\. Pass an integer from 0"),
        ({"seed": True}, r"seed is True\."),
        ({"seed": 1, "times": [1.0]}, r"times has shape \(1,\) and change_rate \(0,\), for 2 sources\."),
        (
            {"seed": 1, "times": [2.0, 1.0], "change_rate": np.ones((2, 2))},
            r"times must be finite, > 0 and incr",
        ),
        (
            {"seed": 1, "times": [1.0], "change_rate": [[1.0, -1.0]]},
            r"change_rate is -1 for source 1 from 1 on",
        ),
    ],
)
def test_what_makes_no_poisson_world(arguments: dict[str, Any], message: str) -> None:
    refused(message, fo.World.poisson, fo.Sources([1.0, 2.0]), **arguments)


@pytest.mark.parametrize(
    ("events", "arguments", "message"),
    [
        ({"source": [1]}, {}, r"the events have no column 'time'\. Add it\."),
        ({"source": [1, 2], "time": [1.0]}, {}, r"source has shape \(2,\) and time \(1,\)"),
        ({"source": [1], "time": ["noon"]}, {}, r"time of the events holds <U4\. Pass numbers"),
        ({"source": [1], "time": [math.nan]}, {}, r"is not finite in some rows"),
        (
            {"source": ["x"], "time": [1.0]},
            {"names": ["y"]},
            r"events name sources that names does not: 'x'\.",
        ),
        ({"source": ["x"], "time": [1.0]}, {"names": ["x", "x"]}, r"has one name twice"),
        (
            {"source": ["x"], "time": [1.0]},
            {"start": 2.0},
            r"start ranges over 2\.\.2 and the horizon is 1\.",
        ),
    ],
)
def test_what_makes_no_recorded_world(events: Any, arguments: dict[str, Any], message: str) -> None:  # noqa: ANN401
    refused(message, fo.World.from_events, events, **arguments)


def test_a_recorded_world_has_no_rates() -> None:
    refused("Estimate them from a crawl log", recorded(world(), 5.0).change_rate)

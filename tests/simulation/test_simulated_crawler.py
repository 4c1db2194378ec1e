"""Crawlers: what they may be asked, announcements, states that resume, and costs in place of bits."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import PowerCost
from freshopt.simulation import AgeCosts, CountingCrawler, Crawler, SignallingCrawler, SimulatedCrawler
from freshopt.simulation.crawler import as_crawler, poll
from tests.ground_truth.recorder import Recorder
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT
from tests.simulation.test_world import polls, recorded, world


def test_a_crawler_is_what_refreshes_and_probes() -> None:
    of = world()
    plain = Recorder(SimulatedCrawler(of))
    assert isinstance(plain, Crawler)
    assert not isinstance(plain, SignallingCrawler)
    assert isinstance(SimulatedCrawler(of), SignallingCrawler)
    assert not isinstance(plain, CountingCrawler)
    assert isinstance(SimulatedCrawler(of), CountingCrawler)
    assert as_crawler(plain) is plain
    assert isinstance(as_crawler(of), SimulatedCrawler)
    source, time, keep = polls(len(of), 20.0)
    assert np.array_equal(poll(plain, source, time, keep), SimulatedCrawler(of).poll(source, time, keep))
    assert sum(len(each.source) for each in plain.asked) == len(time)
    assert min(len(each.source) for each in plain.asked) > 0
    assert len(poll(plain, source[:0], time[:0], keep[:0])) == 0
    refused("float is neither a World nor a crawler", as_crawler, 3.0)


def test_a_probe_keeps_the_copy_and_a_refresh_renews_it() -> None:
    of = fo.World.from_events({"source": [0, 0, 1], "time": [1.0, 3.0, 2.0]}, horizon=9.0)
    crawler = SimulatedCrawler(of)
    answers = crawler.poll([0, 1, 0, 0, 1, 1, 0], [0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0], [1, 0, 1, 0, 1, 0, 0])
    assert answers.tolist() == [False, False, True, True, True, True, True]
    assert (crawler.refreshes, crawler.probes, crawler.clock) == (4, 3, 4.0)
    assert crawler.refresh([0, 1], [9.0, 9.0]).tolist() == [False, False]
    assert SimulatedCrawler(of).count([0, 0, 1, 1], [0.5, 4.0, 4.0, 9.0]).tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize("kind", ["poisson", "moving", "recorded"])
def test_signals_announce_each_change(kind: str) -> None:
    of = world(moving=kind == "moving")
    of = recorded(of, 30.0) if kind == "recorded" else of
    if kind == "recorded":
        offsets, events = of.events(0.0, 30.0)
        again = {"source": np.repeat(np.arange(50), np.diff(offsets)), "time": events}
        of = fo.World.from_events(again, names=np.arange(50), horizon=30.0, signalled=np.arange(50) % 2 == 0)
    crawler = SimulatedCrawler(of)
    windows = [crawler.signals(a, b) for a, b in ((0.0, 7.0), (7.0, 7.0), (7.0, 19.0), (21.0, 30.0))]
    source, time = (np.concatenate([window[i] for window in windows]) for i in (0, 1))
    assert (np.diff(time) >= 0.0).all()
    offsets, events = of.events(0.0, 30.0)
    owner = np.repeat(np.arange(50), np.diff(offsets))
    told = (owner % 2 == 0) & ((events <= 19.0) | (events > 21.0))
    order = np.lexsort((owner[told], events[told]))
    assert source.tolist() == owner[told][order].tolist()
    assert time.tobytes() == events[told][order].tobytes()
    back = crawler.signals(0.0, 7.0)
    assert back[1].tobytes() == windows[0][1].tobytes()
    # Whoever refreshes at the very time of a signal finds that change, and no other.
    answers = SimulatedCrawler(of).missed(*windows[0], np.zeros(len(windows[0][0]), dtype=bool))
    assert (answers == 1).all()


@pytest.mark.parametrize("kind", ["poisson", "moving", "recorded"])
def test_a_restored_crawler_goes_on(kind: str) -> None:
    of = world(moving=kind == "moving")
    of = recorded(of, 30.0) if kind == "recorded" else of
    source, time, keep = polls(len(of), 30.0)
    first = SimulatedCrawler(of)
    first.missed(source[:2000], time[:2000], keep[:2000])
    saved = first.state()
    second = SimulatedCrawler(of)
    second.restore(saved)
    rest = source[2000:], time[2000:], keep[2000:]
    assert second.missed(*rest).tolist() == first.missed(*rest).tolist()
    assert repr(second) == repr(first)
    assert saved["clock"] == time[1999]  # what was saved does not move on
    refused("not one of a crawler of this world of 9 sources", SimulatedCrawler(world(9)).restore, saved)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.refresh([0, 9], [1.0, 2.0]), r"polled sources range over 0\.\.9\. Use 0\.\.1\."),
        (lambda c: c.probe([-1], [1.0]), r"polled sources range over -1\.\.-1"),
        (lambda c: c.probe([0, 1], [2.0, 1.0]), r"poll 1 is at 1, after one at 2\. Sort polls by time\."),
        (lambda c: c.probe([0], [-1.0]), r"poll 0 is at -1, after one at 0\."),
        (lambda c: c.probe([0], [math.nan]), r"poll 0 is at nan"),
        (lambda c: c.probe([0], [6.0]), r"a poll at 6 lies beyond the end of the recorded changes at 5\."),
        (lambda c: c.probe([0, 1], [6.0]), r"sources of shape \(2,\) are polled at times of shape \(1,\)"),
        (lambda c: c.signals(1.0, 6.0), r"signals are asked for from 1 to 6, but the world ends at 5"),
    ],
)
def test_what_a_crawler_refuses(ask: Callable[[SimulatedCrawler], Any], message: str) -> None:
    crawler = SimulatedCrawler(fo.World.from_events({"source": [0, 1], "time": [1.0, 5.0]}))
    refused(message, ask, crawler)


def costs(n: int = 30, noise: float = 0.4, seed: int = 5) -> AgeCosts:
    sources = fo.Sources(np.ones(n))
    return AgeCosts(PowerCost(np.linspace(1.0, 2.0, n), 0.5).curve(sources), n, noise=noise, seed=seed)


def test_costs_of_age_do_not_depend_on_batches() -> None:
    source, time, keep = polls(30, 20.0, m=600)
    whole = costs().poll(source, time, keep)
    single = costs()
    assert whole.tolist() == [
        float(single.poll(source[i : i + 1], time[i : i + 1], keep[i : i + 1])[0]) for i in range(600)
    ]
    plain = Recorder(costs())
    assert np.array_equal(poll(plain, source, time, keep), whole)
    first, second = costs(), costs()
    first.poll(source[:300], time[:300], keep[:300])
    second.restore(first.state())
    assert second.poll(source[300:], time[300:], keep[300:]).tolist() == whole[300:].tolist()
    refused("not one of costs of 9 sources", costs(9).restore, first.state())


def test_costs_of_age_are_the_curve_with_one_factor_per_copy() -> None:
    quiet = costs(noise=0.0)
    assert quiet.refresh([29, 0], [4.0, 9.0]) == pytest.approx([4.0, 3.0], rel=EXACT)
    assert quiet.probe([0], [9.0]).tolist() == [0.0]
    noisy = costs(n=20_000)
    everyone = np.arange(20_000)
    early, late = (noisy.probe(everyone, np.full(20_000, t)) for t in (1.0, 4.0))
    assert late == pytest.approx(2.0 * early, rel=EXACT)  # the same factor
    factor = early / np.linspace(1.0, 2.0, 20_000)
    assert abs(factor.mean() - 1.0) < 4.0 * 0.4 / math.sqrt(3 * 20_000)
    assert 0.6 < factor.min() < 0.601
    assert 1.399 < factor.max() < 1.4
    noisy.refresh(everyone, np.full(20_000, 5.0))
    again = noisy.probe(everyone, np.full(20_000, 6.0)) / np.linspace(1.0, 2.0, 20_000)
    assert abs(np.corrcoef(factor, again)[0, 1]) < 4.0 / math.sqrt(20_000)


def test_what_costs_of_age_refuse() -> None:
    refused(r"noise is 1\.5\. Pass a share", costs, noise=1.5)
    used = costs()
    used.refresh([3], [2.0])
    refused("source 3 is polled at 1, before its refresh at 2", used.probe, [3], [1.0])
    assert repr(used) == "AgeCosts(30 sources, noise 0.4, seed 5)"

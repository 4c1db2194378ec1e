"""`poisson_check` sees what is not Poisson, says how large it is, and computes what it says it computes."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest, norm

from freshopt.datasets.change_histories import example_events, load_example
from freshopt.errors import FreshoptError, SourceDataError
from freshopt.goodness_of_fit import draw, interpret, poisson_check
from freshopt.goodness_of_fit.poisson_check import TESTS, PoissonCheck
from freshopt.logs import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from tests.goodness_of_fit.poisson_data import history, poisson_history, renewals, seen, thinned
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

SPAN, N = 200.0, 40
Draw = Callable[[np.random.Generator], Array]


def bursts(rng: np.random.Generator) -> Array:
    """Clusters of four changes within an hour or so."""
    heads = rng.uniform(0.0, SPAN, rng.poisson(0.25 * SPAN))
    return np.sort(np.repeat(heads, 4) + rng.exponential(0.03, 4 * len(heads))).clip(1e-6, SPAN - 1e-6)


def clockwork(rng: np.random.Generator) -> Array:
    return renewals(lambda n: rng.gamma(16.0, 1.0 / 16.0, n), 1.0, SPAN)


def working_week(rng: np.random.Generator) -> Array:
    return thinned(rng, lambda t: np.where(t % 7.0 < 5.0, 1.4, 0.0), 1.4, SPAN)


def daytime(rng: np.random.Generator) -> Array:
    return thinned(rng, lambda t: 1.0 + 0.9 * np.cos(2 * np.pi * (t - 0.6)), 1.9, SPAN)


def slowing(rng: np.random.Generator) -> Array:
    return thinned(rng, lambda t: 2.0 * np.exp(-2.0 * t / SPAN), 2.0, SPAN)


def slow_bursts(rng: np.random.Generator) -> Array:
    """Clusters of six changes within some days."""
    heads = rng.uniform(0.0, SPAN, rng.poisson(0.08 * SPAN))
    return np.sort(np.repeat(heads, 6) + rng.exponential(2.0, 6 * len(heads))).clip(1e-6, SPAN - 1e-6)


NOT_POISSON: dict[str, tuple[Draw, str, float, float]] = {
    # drawn by; the test that must see it; between which limits the median effect lies
    "bursts": (bursts, "dispersion", 2.0, 5.0),
    "bursts, by gaps": (bursts, "gaps", 0.3, 1.0),
    "bursts over days": (slow_bursts, "dispersion", 2.0, 6.0),  # 6 = E K²/E K of clusters of 6, in long bins
    "clockwork": (clockwork, "dispersion", 0.0, 0.4),
    "clockwork, by gaps": (clockwork, "gaps", 0.3, 1.0),
    "working week": (working_week, "weekly", 0.5, 0.8),
    "daytime": (daytime, "daily", 0.7, 1.1),
    "slowing": (slowing, "drift", 0.25, 0.5),
}


def traces(draw: Draw, seed: int = 5) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [draw(rng) for _ in range(N)]


@pytest.mark.parametrize("name", NOT_POISSON)
def test_it_sees_in_a_history(name: str) -> None:
    draw, test, low, high = NOT_POISSON[name]
    check = poisson_check(history(traces(draw), SPAN))
    assert check.share_rejected(test) > 0.9
    assert check.share_rejected(test, false_discoveries=True) > 0.9
    assert low < np.median(check.effect[test]) < high
    assert check.share_rejected() > 0.8


def test_bursts_within_a_gap_are_no_bursts_to_a_crawler() -> None:
    """What is left of each is one change that was found, and these are Poisson."""
    rng = np.random.default_rng(6)
    times = np.cumsum(rng.uniform(0.4, 0.8, 390))
    check = poisson_check(seen(traces(bursts), times[times < SPAN]))
    assert check.share_rejected("dispersion") < 0.2


@pytest.mark.parametrize("name", ["bursts over days", "clockwork", "working week", "slowing"])
def test_it_sees_in_a_log_of_crawls_at_unequal_gaps(name: str) -> None:
    draw, test, _, _ = NOT_POISSON[name]
    rng = np.random.default_rng(6)
    times = np.cumsum(rng.uniform(0.2, 0.8, 390))
    check = poisson_check(seen(traces(draw), times[times < SPAN]))
    assert check.kind == "crawls"
    assert check.share_rejected(test) > 0.7


def test_cycle_and_drift_have_the_amplitude_that_was_put_in() -> None:
    rng = np.random.default_rng(7)
    made = [
        thinned(rng, lambda t: 20.0 * (1.0 + 0.3 * np.cos(2 * np.pi * t / 7.0)), 26.0, 70.0)
        for _ in range(30)
    ]
    check = poisson_check(history(made, 70.0))
    assert abs(check.pooled["weekly"] - 0.3) < 4 * math.sqrt(2 / sum(map(len, made)))
    assert check.pooled["daily"] < 4 * math.sqrt(2 / sum(map(len, made)))
    crawls = np.arange(0.0, 70.0, 0.05)  # often enough that gaps with two changes are few
    log = poisson_check(seen(made, crawls))
    assert abs(log.pooled["weekly"] - 0.3) < 4 * math.sqrt(2 / sum(map(len, made)))


def durbin(time: Array, start: float, end: float) -> Array:
    """Durbin's transform of one trace, term by term."""
    gaps = sorted(np.diff([start, *time, end]))
    n = len(gaps)
    total, points, before = 0.0, [], 0.0
    for j, gap in enumerate(gaps):
        total += (n - j) * (gap - before)
        before = gap
        points.append(total / (end - start))
    return np.array(points[:-1])


def test_each_statistic_is_the_textbook_one() -> None:
    rng = np.random.default_rng(8)
    start, end = 3.0, 3.0 + 56.0  # whole weeks: Rayleigh's test as printed
    time = np.sort(rng.uniform(start, end, 97))
    check = poisson_check(ChangeHistory(["a"] * 97, time, start, end))
    bins = 97 // 5
    counts, _ = np.histogram(time, bins=bins, range=(start, end))
    index = np.sum((counts - 97 / bins) ** 2) / (97 / bins) / (bins - 1)
    assert check.effect["dispersion"][0] == pytest.approx(index, rel=SCALAR)
    assert check.changes.tolist() == [97]
    kolmogorov = kstest(durbin(time, start, end), "uniform")
    assert check.effect["gaps"][0] == pytest.approx(kolmogorov.statistic, rel=SCALAR)
    assert check.p_value["gaps"][0] == pytest.approx(kolmogorov.pvalue, abs=2e-4)
    for test, period in (("weekly", 7.0), ("daily", 1.0)):
        resultant = abs(np.sum(np.exp(2j * np.pi * time / period)))
        assert check.p_value[test][0] == pytest.approx(math.exp(-(resultant**2) / 97), rel=1e-6)
        assert check.effect[test][0] == pytest.approx(2 * resultant / 97, rel=1e-6)
    laplace = (np.mean(time) - (start + end) / 2) * math.sqrt(12 * 97) / (end - start)
    assert check.p_value["drift"][0] == pytest.approx(2 * norm.sf(abs(laplace)), rel=1e-6)
    late = np.count_nonzero(time > (start + end) / 2)
    assert check.effect["drift"][0] == pytest.approx((late + 0.5) / (97 - late + 0.5), rel=EXACT)
    least = min(check.p_value[test][0] for test in TESTS)
    assert check.p_value["any"][0] == min(1.0, 5 * least)


def test_scores_of_a_log_are_those_of_the_likelihood() -> None:
    """The p-value of drift against a numerical score test, for crawls at unequal gaps."""
    rng = np.random.default_rng(9)
    gap = rng.exponential(2.0, 120)
    time, changed = np.cumsum(gap), rng.random(120) < 0.45
    check = poisson_check(CrawlLog(["a"] * 121, [0.0, *time], [False, *changed]))
    middle = time - gap / 2

    def minus_likelihood(log_rate: float, slope: float) -> float:
        x = gap * np.exp(log_rate + slope * middle / 100)  # the trend is taken as flat within a gap
        return float(-np.sum(np.where(changed, np.log(-np.expm1(-x)), -x)))

    h = 1e-4
    low, high = -5.0, 3.0
    for _ in range(60):
        half = (low + high) / 2
        rising = minus_likelihood(half + h, 0) > minus_likelihood(half - h, 0)
        low, high = (low, half) if rising else (half, high)
    x = gap * math.exp(low)
    chance = -np.expm1(-x)
    # Expected information of (log rate, slope), and the score of the slope at slope 0.
    weight = x**2 * (1 - chance) / chance
    away = middle / 100
    information = np.sum(weight * away**2) - np.sum(weight * away) ** 2 / np.sum(weight)
    slope_score = -(minus_likelihood(low, h) - minus_likelihood(low, -h)) / (2 * h)
    assert check.p_value["drift"][0] == pytest.approx(chi2.sf(slope_score**2 / information, 1), rel=1e-4)


def test_rounded_times_are_not_flagged_for_their_ties() -> None:
    rng = np.random.default_rng(10)
    exact = poisson_history(rng, 60, 2.0, 120.0)
    rounded = ChangeHistory(exact.source_index, np.floor(exact.time), 0.0, 120.0, names=np.arange(60))
    check = poisson_check(rounded)
    assert (check.resolution, check.one_each) == ("day", False)
    assert check.share_rejected(false_discoveries=True) == 0.0
    assert np.isnan(check.p_value["daily"]).all()
    assert "rounded to the day" in interpret(check)
    assert "daily cycle could not be seen" in interpret(check)
    # Three in four changes share their day with another: taken at their word, such times have gaps of 0.
    assert poisson_check(exact).resolution is None


def test_days_with_at_most_one_change_are_tested_as_crawls() -> None:
    rng = np.random.default_rng(11)
    days = [np.flatnonzero(rng.random(400) < 0.4).astype(float) for _ in range(200)]
    check = poisson_check(history(days, 400.0))
    assert (check.resolution, check.one_each) == ("day", True)
    assert check.share_rejected() < 0.1
    # As a history of points they would be far too regular: 1 − 0.4 of the variance.
    assert abs(check.pooled["dispersion"] - 1.0) < 4 * check.pooled["dispersion_error"]


def test_the_end_of_the_time_watched_may_be_a_change() -> None:
    """Given that the last change ended it, those before are uniform; counted, it would be one too many."""
    rng = np.random.default_rng(12)
    time = np.sort(rng.uniform(0.0, 50.0, 30))
    check = poisson_check(ChangeHistory([1] * 30, time))
    assert check.changes.tolist() == [28]


def test_a_source_with_too_few_changes_is_not_tested() -> None:
    rng = np.random.default_rng(13)
    names = ["few"] * 9 + ["enough"] * 12
    check = poisson_check(
        ChangeHistory(names, rng.uniform(1, 99, 21), 0.0, 100.0, names=["enough", "few", "none"])
    )
    assert check.tested.tolist() == [True, False, False]
    assert all(np.isnan(check.p_value[test][1:]).all() for test in (*TESTS, "any"))
    frame = check.to_frame()
    assert frame["changes"].to_list() == [12, 9, 0]
    assert frame["verdict"].to_list()[1:] == ["too few", "too few"]
    assert frame.filter(pl.col("p").is_null()).height == 2
    nothing = poisson_check(ChangeHistory(["a"], [1.0], 0.0, 2.0))
    assert "none with enough" in repr(nothing)
    assert "nothing can be said" in interpret(nothing)
    refused("nothing to draw", draw, nothing, "nothing.png", error=FreshoptError)


def test_logs_without_both_outcomes_are_not_tested() -> None:
    rows = {
        "never": [0] * 60,
        "always": [1] * 60,
        "nearly": [1] * 55 + [0] * 5,
        "fine": [0, 1, 1, 0, 0, 1] * 10,
    }
    log = CrawlLog(np.repeat(list(rows), 60), list(range(60)) * 4, np.concatenate(list(rows.values())))
    check = poisson_check(log)
    assert dict(zip(check.sources_.tolist(), check.tested.tolist(), strict=True)) == {
        "always": False,
        "fine": True,
        "nearly": False,
        "never": False,
    }


def test_any_dataframe_and_any_time_unit() -> None:
    rng = np.random.default_rng(14)
    days = np.sort(rng.uniform(0, 100, 80))
    begin = datetime(2024, 1, 1)  # a Monday
    frame = pl.DataFrame({"source": ["a"] * 80, "time": [begin + timedelta(days=day) for day in days]})
    checks = [
        poisson_check(ChangeHistory(["a"] * 80, days)),
        poisson_check(ChangeHistory(["a"] * 80, days * 24, time_unit="hour")),
        poisson_check(frame),
        poisson_check(frame.to_pandas()),
        poisson_check(frame.to_arrow()),
    ]
    for check in checks[1:]:
        for test in TESTS:
            assert check.p_value[test][0] == pytest.approx(checks[0].p_value[test][0], rel=1e-5)
    assert checks[2].dated
    log = pl.DataFrame({"source": ["a"] * 40, "time": range(40), "changed": [0, 1] * 20})
    assert poisson_check(log).kind == "crawls"


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(SourceDataError, match=r"level is .* between 0 and 1, such as 0.05"):
        poisson_check(ChangeHistory(["a"], [1.0], 0.0, 2.0), level=level)


def test_busiest_days_are_called_by_their_names() -> None:
    rng = np.random.default_rng(15)
    begin = datetime(2024, 1, 3)  # a Wednesday: the profile is turned to begin on Mondays
    times, names = [], []
    for k in range(30):
        days = thinned(rng, lambda t: np.where((t % 7.0).astype(int) == 1, 3.0, 0.5), 3.0, 140.0)  # Thursdays
        times += [begin + timedelta(days=day) for day in days]
        names += [f"s{k}"] * len(days)
    check = poisson_check(pl.DataFrame({"source": names, "time": times}))
    assert np.argmax(check.profile["weekly"]) == 3
    assert check.profile["weekly"][3] == pytest.approx(3.0 / (6.0 / 7.0), rel=0.1)
    assert "on Thursdays" in interpret(check)


def test_the_verdict_says_what_follows() -> None:
    for drawn, words in (
        (bursts, ("come in bursts", "too narrow by a factor", "more unequal", "stay fresh longer")),
        (clockwork, ("more regularly than at random", "too wide", "more equal", "go stale sooner")),
        (slowing, ("Rates drift", "down)", "recent data")),
    ):
        verdict = interpret(poisson_check(history(traces(drawn), SPAN)))
        assert all(word in verdict for word in words), verdict
        assert "\n" not in verdict
    calm = poisson_check(poisson_history(np.random.default_rng(16), 300, 0.5, 100.0))
    assert "Nothing larger than chance" in interpret(calm)


def test_the_bundled_history_and_its_log_agree() -> None:
    log, events = (
        poisson_check(load_example("debian-uploads")),
        poisson_check(example_events("debian-uploads")),
    )
    assert (events.resolution, events.one_each) == ("day", True)
    for check in (log, events):
        assert 130 <= np.count_nonzero(check.tested) <= 136
        assert 0.6 < 1.0 - check.share_rejected() < 0.8
    first = np.flatnonzero(log.tested & (log.changes == log.changes.max()))[0]
    assert log.changes[first] > 50


@pytest.mark.exhaustive
def test_the_picture_and_the_summary(tmp_path: Path) -> None:
    check: PoissonCheck = poisson_check(history(traces(bursts), SPAN))
    for ending in ("png", "svg"):
        draw(check, tmp_path / f"picture.{ending}")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    refused(r"picture.xyz is no picture", draw, check, tmp_path / "picture.xyz")
    refused("cannot be written", draw, check, tmp_path / "no" / "picture.png")
    summary = check.summary()
    assert summary["test"].to_list() == [*TESTS, "any"]
    assert summary["tested"].to_list() == [N] * 6
    assert summary["rejected"][0] == check.share_rejected("dispersion")
    assert len(repr(check)) < 200
    assert f"{N} of {N} sources tested" in repr(check)


TRACES = st.lists(
    st.lists(st.floats(0.0, 40.0) | st.integers(0, 40).map(float), max_size=60), min_size=1, max_size=3
)


@settings(max_examples=120, deadline=None)
@given(TRACES, st.booleans())
def test_any_history_and_its_log_have_p_values(made: list[list[float]], crawled: bool) -> None:
    changes = [np.array(trace) for trace in made]
    data = seen(changes, np.linspace(0.0, 40.0, 61)) if crawled else history(changes, 40.0)
    check = poisson_check(data)
    for test in (*TESTS, "any"):
        p_value = check.p_value[test]
        assert np.isnan(p_value[~check.tested]).all()
        assert np.all(np.isnan(p_value) | ((p_value >= 0.0) & (p_value <= 1.0)))
    assert not np.isnan(check.p_value["any"][check.tested]).any()
    assert check.to_frame().height == len(changes)
    assert interpret(check)

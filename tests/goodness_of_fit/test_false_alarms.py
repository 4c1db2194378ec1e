"""Against Poisson processes, `poisson_check` rejects as many as it says, and p-values are uniform."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, kstest, kstwo

from freshopt.goodness_of_fit.poisson_check import TESTS, PoissonCheck, poisson_check
from freshopt.goodness_of_fit.poisson_tests import FEWEST, bins_of, dispersion_test, kolmogorov_tail
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from tests.goodness_of_fit.poisson_data import crawled, poisson_history

SURE = 1e-3  # of a false alarm of each comparison, if the seeds were not fixed
N = 2000
HISTORIES: dict[str, Callable[[np.random.Generator], ChangeHistory]] = {
    "few changes": lambda rng: poisson_history(rng, N, 0.15, 100.0),
    "some, and no whole number of weeks": lambda rng: poisson_history(rng, N, 0.6, 100.3),
    "many": lambda rng: poisson_history(rng, N // 2, 5.0, 100.0),
    "rounded to days": lambda rng: poisson_history(rng, N, 0.3, 200.0, 1.0),
    "five a day, rounded to days": lambda rng: poisson_history(rng, N // 4, 5.0, 100.0, 1.0),
    "rounded to weeks": lambda rng: poisson_history(rng, N // 4, 0.1, 700.0, 7.0),
}
LOGS: dict[str, Callable[[np.random.Generator], CrawlLog]] = {
    "rare changes, daily crawls": lambda rng: crawled(rng, 0.05, np.ones((N, 400))),
    "half of the daily crawls": lambda rng: crawled(rng, 0.7, np.ones((N, 100))),
    "nearly all daily crawls": lambda rng: crawled(rng, 2.0, np.ones((N, 200))),
    "exponential gaps": lambda rng: crawled(rng, 0.3, rng.exponential(2.0, (N, 150))),
    "dense crawls": lambda rng: crawled(rng, 0.5, rng.exponential(0.2, (N // 2, 500))),
}


def require_level(check: PoissonCheck, uniform: tuple[str, ...]) -> set[str]:
    """Compare rejections with the binomial distribution, and continuous p-values with a uniform one."""
    asked = set()
    for test in (*TESTS, "any"):
        p_value = check.p_value[test]
        p_value = p_value[~np.isnan(p_value)]
        if len(p_value) == 0:
            continue
        asked.add(test)
        for level in (0.01, 0.05, 0.1):
            rejected = np.count_nonzero(p_value <= level)
            assert rejected <= binom.isf(SURE, len(p_value), level), (test, level, rejected / len(p_value))
        if test in uniform:
            assert kstest(p_value, "uniform").pvalue > SURE, test
    return asked


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HISTORIES)
def test_histories_of_poisson_processes(name: str) -> None:
    check = poisson_check(HISTORIES[name](np.random.default_rng(1)))
    assert np.count_nonzero(check.tested) > 400
    # Counts in bins are no continuous numbers; with many changes they are nearly so.
    uniform = ("gaps", "weekly", "daily", "drift", *(("dispersion",) if name.startswith("many") else ()))
    asked = require_level(check, uniform)
    unseen = {"rounded to days": {"daily"}, "rounded to weeks": {"weekly", "daily"}}
    hidden = next((tests for words, tests in unseen.items() if words in name), set())
    assert asked == {*TESTS, "any"} - hidden
    assert abs(check.pooled["dispersion"] - 1.0) < 3.3 * check.pooled["dispersion_error"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LOGS)
def test_logs_of_poisson_processes(name: str) -> None:
    check = poisson_check(LOGS[name](np.random.default_rng(2)))
    assert np.count_nonzero(check.tested) > 900
    asked = require_level(check, ("weekly", "drift", *(("gaps",) if "nearly" not in name else ())))
    assert ("daily" in asked) is (name == "dense crawls")  # gaps of a day show nothing of the day
    assert abs(check.pooled["dispersion"] - 1.0) < 3.3 * check.pooled["dispersion_error"]


def test_ten_changes_are_enough() -> None:
    """The fewest that are tested, all sources with exactly so many."""
    rng = np.random.default_rng(3)
    n = 4000
    source, time = np.repeat(np.arange(n), FEWEST), rng.uniform(0.0, 90.0, n * FEWEST)
    require_level(poisson_check(ChangeHistory(source, time, 0.0, 90.0)), ("weekly", "daily", "drift", "gaps"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("points", "error"), [(9, 3e-3), (20, 6e-4), (100, 2e-4)])
def test_the_tail_of_kolmogorovs_distance_is_nearly_the_exact_one(points: int, error: float) -> None:
    distance = kstwo.isf(np.geomspace(1e-6, 0.99, 60), points)
    tail, exact = kolmogorov_tail(distance, np.full(60, float(points))), kstwo.sf(distance, points)
    assert np.max(np.abs(tail - exact)) < error
    assert np.all(tail[exact < 1e-3] > exact[exact < 1e-3])


@pytest.mark.parametrize("count", [10, 13, 25, 60])
def test_counts_in_bins_keep_their_level_exactly(count: int) -> None:
    """Over all ways in which so many changes fall into the bins, by simulation of the counts alone."""
    rng = np.random.default_rng(4)
    bins = int(bins_of(np.array([float(count)]))[0])
    counts = rng.multinomial(count, np.full(bins, 1.0 / bins), size=50_000)
    chi_square = np.sum(counts**2, axis=1) * bins / count - count
    _, p_value = dispersion_test(chi_square, np.full(50_000, bins), np.full(50_000, float(count)))
    for level in (0.01, 0.05, 0.1):
        assert np.count_nonzero(p_value <= level) <= binom.isf(SURE, 50_000, level)
    # So few counts take few values: what is lost to that is at most two thirds of the level, and less later.
    assert np.count_nonzero(p_value <= 0.1) > (0.03 if count < 25 else 0.05) * 50_000

"""Compiled fits and intervals: against the scheme in NumPy, bisection, and integrals of densities."""

import math
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from freshopt.errors import FreshoptError
from freshopt.estimators import GammaPrior, LikelihoodRatio, MaximumLikelihood, crawl_likelihood, gamma_prior
from freshopt.estimators.crawl_formulas import Peaks
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.lane_math import lane_exp, lane_expm1, lane_log

# Its loops take long to compile.
pytestmark = pytest.mark.exhaustive

Floats = npt.NDArray[np.float64]
LEVELS = np.array([1e-3, 0.025, 0.3, 0.5, 0.9, 0.975, 0.999])
SOURCES = 150


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    """Run a function by compiled loops, then in NumPy."""

    def both(run: Any) -> tuple[Any, Any]:  # noqa: ANN401
        found = []
        for threshold in (0, 10**18):
            monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", threshold)
            found.append(run())
        return found[0], found[1]

    return both


def odd_log(*, counts: bool = False, dates: bool = False) -> CrawlLog:
    """Sources of 1 to 80 crawls on clocks from 1e-6 to 1e4 days, never, always and sometimes changed.

    Some have a baseline, some a baseline only.
    """
    rng = np.random.default_rng(61)
    sizes = rng.choice([1, 2, 5, 20, 80], SOURCES)
    clock = 10.0 ** rng.uniform(-6, 4, SOURCES)
    share = rng.choice([0.0, 0.02, 0.5, 0.9, 1.0], SOURCES)
    source = np.repeat(np.arange(SOURCES), sizes)
    gap = (rng.gamma(0.25, 4.0, len(source)) + 1e-6) * clock[source]
    first = np.cumsum(sizes) - sizes
    time = np.concatenate([np.cumsum(own) for own in np.split(gap, first[1:])])
    changed = rng.random(len(source)) < share[source]
    elapsed = gap.copy()
    elapsed[first[rng.random(SOURCES) < 0.3]] = np.nan
    columns: dict[str, Any] = {"source": source, "elapsed": elapsed, "changed": changed}
    if counts:
        number = np.where(changed, rng.integers(1, 5, len(source)), 0).astype(float)
        columns["changes"] = np.where(rng.random(len(source)) < 0.5, np.nan, number)
    if dates:
        told = np.where(changed, time - 0.9 * rng.random(len(source)) * gap, np.nan)
        told[first] = time[first] - rng.exponential(5.0, SOURCES) * clock
        columns |= {"time": time, "last_modified": np.where(rng.random(len(source)) < 0.4, np.nan, told)}
    elif not counts:
        columns["time"] = time
    return CrawlLog.from_columns(columns)


MODELS: dict[str, dict[str, Any]] = {
    "jeffreys": {},
    "smoothed": {"smoothing": 0.5},
    "prior": {"prior": GammaPrior(0.7, 0.3, "day", 0.01)},
    "diffuse": {"prior": GammaPrior(1e-3, 1e5)},
    "narrow": {"prior": GammaPrior(1e5, 1e5)},
}


@pytest.mark.parametrize("told", [{}, {"counts": True}, {"dates": True}, {"counts": True, "dates": True}])
def test_both_routes_have_the_same_rates_and_quantiles(routes: Any, told: dict[str, bool]) -> None:  # noqa: ANN401
    log = odd_log(**told)
    levels = np.repeat(LEVELS[:, None], SOURCES, axis=1)
    forgetful = {"jeffreys", "prior"} if log.timed else set()
    for name, setting in MODELS.items():
        for half_life in (None, 1e3) if name in forgetful else (None,):

            def run(setting: Any = setting, half_life: Any = half_life) -> list[Floats]:  # noqa: ANN401
                model = MaximumLikelihood(**setting, half_life=half_life).fit(log)
                return [model.change_rate_, model._distribution().quantiles(levels), *model.interval(0.95)]

            for one, other in zip(*routes(run), strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-10)


@pytest.mark.exhaustive
def test_priors_and_likelihood_ratios_are_the_same_on_both_routes(routes: Any) -> None:  # noqa: ANN401
    log = odd_log(dates=True)
    one, other = routes(lambda: GammaPrior.from_log(log))
    assert one.shape == pytest.approx(other.shape, rel=1e-5)
    assert one.exposure == pytest.approx(other.exposure, rel=1e-5)
    ends = routes(lambda: MaximumLikelihood(smoothing=0).fit(log).interval(0.9, LikelihoodRatio()))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-8)


def test_compiled_maxima_are_the_roots_of_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bisection of Σ a/(e^{aΔ}−1) − U, and the rates where there is no root."""
    monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", 0)
    log = odd_log()
    found = MaximumLikelihood(smoothing=0).fit(log).change_rate_
    for k in range(0, SOURCES, 5):
        rows = slice(int(log.offsets[k]), int(log.offsets[k + 1]))
        gap, changed = log.interval[rows], log.changed[rows]
        seen = ~np.isnan(gap)
        if not seen.any():
            assert math.isnan(found[k])
        elif not changed[seen].any():
            assert found[k] == 0.0
        elif changed[seen].all():
            assert found[k] == math.inf
        else:
            some, quiet = gap[seen & changed], float(gap[seen & ~changed].sum())
            low, high = -40.0, 40.0
            for _ in range(200):
                middle = 0.5 * (low + high)
                x = some * math.exp(middle)
                with np.errstate(over="ignore"):
                    above = float(np.sum(some / np.expm1(x))) > quiet
                low, high = (middle, high) if above else (low, middle)
            assert found[k] == pytest.approx(math.exp(low), rel=1e-11)


def test_compiled_quantiles_are_those_of_the_integrated_density(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", 0)
    log = odd_log()
    levels = np.repeat(LEVELS[:, None], SOURCES, axis=1)
    for prior in (None, (0.7, 0.3)):
        model = MaximumLikelihood(prior=None if prior is None else GammaPrior(*prior)).fit(log)
        rates = model._distribution().quantiles(levels)
        for k in range(0, SOURCES, 5):
            rows = slice(int(log.offsets[k]), int(log.offsets[k + 1]))
            gap, changed = log.interval[rows], log.changed[rows]
            gap, changed = gap[~np.isnan(gap)], changed[~np.isnan(gap)]
            if prior is None and len(gap) == 0:
                assert np.isnan(rates[:, k]).all()
                continue
            middle = math.log(rates[3, k])
            t = np.linspace(middle - 45.0, middle + 25.0, 14_001)
            x = gap[:, None] * np.exp(t)
            with np.errstate(over="ignore", divide="ignore"):
                g = np.sum(np.where(changed[:, None], np.log(-np.expm1(-x)), -x), axis=0)
                if prior is None:
                    g = g + 0.5 * np.log(np.maximum(np.sum(x * (x / np.expm1(x)), axis=0), 1e-300))
                else:
                    g = g + prior[0] * t - prior[1] * np.exp(t)
            mass = np.exp(g - g.max())
            below = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
            got = np.interp(np.log(rates[:, k]), t, below)
            np.testing.assert_allclose(got, LEVELS, rtol=3e-3, atol=1e-5)
            np.testing.assert_allclose(1.0 - got, 1.0 - LEVELS, rtol=3e-3, atol=1e-5)


@pytest.mark.exhaustive
def test_the_same_log_has_the_same_bits_and_python_takes_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", 0)
    log = odd_log()
    ends = [MaximumLikelihood().fit(log).interval(0.9) for _ in range(2)]
    np.testing.assert_array_equal(ends[0], ends[1])
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert not crawl_likelihood.worthwhile(10**9)


def test_samples_of_a_large_log_stay_with_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their crawl intervals alone would be too few; the prior learnt from them is that of NumPy."""
    log = odd_log()
    monkeypatch.setattr(gamma_prior, "ENOUGH", 40)
    monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", len(log))
    sample = gamma_prior._sampled(CrawlLikelihood.of(log))
    assert len(sample.rows.length) < len(log) / 2
    calls: list[int] = []
    real = CrawlLikelihood._maximise

    def counted(likelihood: CrawlLikelihood, *, described: bool) -> Peaks:
        calls.append(len(likelihood.counted))
        return real(likelihood, described=described)

    monkeypatch.setattr(CrawlLikelihood, "_maximise", counted)
    found = GammaPrior.from_log(log)
    assert len(calls) > 50
    assert max(calls) == 40
    monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", len(log) + 1)
    calls.clear()
    expected = GammaPrior.from_log(log)
    assert not calls
    assert found.shape == pytest.approx(expected.shape, rel=1e-6)
    assert found.exposure == pytest.approx(expected.exposure, rel=1e-6)


def test_what_does_not_settle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_likelihood, "WORTHWHILE", 0)
    monkeypatch.setattr(crawl_likelihood, "STEPS", 1)
    with pytest.raises(FreshoptError, match="did not settle in 1 steps"):
        MaximumLikelihood(smoothing=0).fit(odd_log())


def test_plain_exponentials_and_logarithms_are_exact_to_two_ulp() -> None:
    mpmath.mp.dps = 30
    for x in [*np.logspace(-300, 2.8, 200), 0.34657359, 0.3466, 699.9]:
        assert abs(lane_expm1(x) / mpmath.expm1(x) - 1) < 4.5e-16
        assert abs(lane_log(x) - mpmath.log(x)) < 4.5e-16 * max(1.0, abs(math.log(x)))
        for signed in (x, -x):
            assert abs(lane_exp(signed) / mpmath.exp(signed) - 1) < 4.5e-16
    assert lane_expm1(1e5) == lane_expm1(700.0)
    assert lane_exp(-1e5) == lane_exp(-700.0)

"""The printed mathematics: noisy signals and learning, evaluated as printed, against the library."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import gammainc
from scipy.stats import binom

import freshopt as fo
from freshopt.noisy_signals import NoisySignalFreshness, NoisySignals
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.pages.mathematics_page import shown

D, RECALL, PRECISION = 1.5, 0.6, 0.7
SIGNALS = RECALL * D / PRECISION  # g
FALSE, SILENT = SIGNALS - RECALL * D, (1 - RECALL) * D  # v, a
BONUS = math.log(SIGNALS / FALSE) / SILENT  # b


def beyond(k: int, z: float) -> float:
    """P(Poisson(z) > k), summed term by term."""
    return 1.0 - math.fsum(math.exp(-z) * z**j / math.factorial(j) for j in range(k + 1))


def cycle(threshold: float) -> tuple[float, float]:
    """Return ψ and φ as printed."""
    length = fresh = 0.0
    for k in range(math.ceil(threshold / BONUS)):
        left = threshold - k * BONUS
        length += beyond(k, SIGNALS * left) / SIGNALS
        fresh += FALSE**k / (D + FALSE) ** (k + 1) * beyond(k, (D + FALSE) * left)
    return length, fresh


def test_noisy_signals_are_one_number() -> None:
    shown(
        r"\psi(i)=\frac1g\sum_{k} R_k(g(i-kb))",
        r"\varphi(i)=\sum_k\frac{v^k}{(\Delta+v)^{k+1}}\,R_k((\Delta+v)(i-kb))",
        r"\frac{dF}{d\rho} = \varphi(i)-e^{-ai}\,\psi(i) = V(i), \qquad V'(i)=a\,e^{-ai}\,\psi(i)",
    )
    sources = fo.Sources(change_rate=[D])
    numerics = present(fo.Problem(NoisySignalFreshness(RECALL, PRECISION), sources, bandwidth=1.0).numerics)
    for threshold in (0.3, 1.0, 2.5, 4.0):
        length, fresh = cycle(threshold)
        index = fresh - math.exp(-SILENT * threshold) * length
        at = np.array([1.0 / length])
        assert math.isclose(numerics.cost(at)[0], 1.0 - fresh / length, rel_tol=SCALAR)
        assert math.isclose(numerics.marginal(at)[0], index, rel_tol=SCALAR)
        grown = mpmath.quad(
            lambda t: SILENT * mpmath.exp(-SILENT * t) * cycle(float(t))[0],
            [0, *[k * BONUS for k in range(1, math.ceil(threshold / BONUS))], threshold],
        )
        assert math.isclose(grown, index, rel_tol=SCALAR)


def test_a_cycle_by_simulation() -> None:
    shown(r"e^{-as}\left(\frac{v}{g}\right)^{n} = e^{-a(s+bn)}, \qquad b=\frac{\ln(g/v)}{a}")
    threshold, runs, rng = 2.5, 40_000, np.random.default_rng(11)
    lengths, fresh = np.empty(runs), np.empty(runs)
    for k in range(runs):
        now, effective, stale_from = 0.0, 0.0, math.inf
        unannounced = rng.exponential(1.0 / SILENT)
        while True:
            wait = rng.exponential(1.0 / SIGNALS)
            if effective + wait >= threshold:
                now += threshold - effective
                break
            now += wait
            effective += wait + BONUS
            if rng.random() < PRECISION:
                stale_from = min(stale_from, now)
            if effective >= threshold:
                break
        lengths[k] = now
        fresh[k] = min(now, stale_from, unannounced)
    for seen, told in zip((lengths, fresh), cycle(threshold), strict=True):
        assert abs(seen.mean() - told) <= 4 * seen.std(ddof=1) / math.sqrt(runs)


def test_without_signals_it_is_the_periodic_cell() -> None:
    shown(r"Without signals $\psi=i$ and $V=P(2,\Delta i)/\Delta$")
    silent = present(fo.Problem(NoisySignalFreshness(0.0, 1.0), fo.Sources([D]), bandwidth=1.0).numerics)
    for gap in (0.2, 1.0, 5.0):
        told = float(gammainc(2, D * gap)) / D
        assert math.isclose(silent.marginal(np.array([1 / gap]))[0], told, rel_tol=SCALAR)


def test_the_quality_of_signals_is_where_the_printed_likelihood_is_largest() -> None:
    shown(
        r"\sum_{\text{changed}}\ln\left(1-e^{-(as+\kappa n)}\right)-\sum_{\text{unchanged}}(as+\kappa n)",
        r"$p=1-e^{-\kappa}$, $\Delta=a+pg$, $l=pg/\Delta$",
    )
    s, n = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 2.0]), np.array([0, 1, 0, 1, 1, 0])
    changed = np.array([0, 1, 0, 0, 1, 1])
    log = {"source": ["a"] * 6, "elapsed": s, "signals": n, "changed": changed}
    model = NoisySignals().fit(log)
    g = n.sum() / s.sum()

    def likelihood(recall: float, precision: float, change_rate: float) -> float:
        a, kappa = (1 - recall) * change_rate, -math.log1p(-precision)
        assert math.isclose(change_rate, a + precision * g, rel_tol=SCALAR)
        z = a * s + kappa * n
        return float(np.sum(np.where(changed, np.log(-np.expm1(-z)), -z)))

    recall, precision = float(model.recall_[0]), float(model.precision_[0])
    best = likelihood(recall, precision, float(model.change_rate_[0]))
    for a_step, p_step in ((1e-3, 0.0), (-1e-3, 0.0), (0.0, 1e-3), (0.0, -1e-3)):
        a, p = float(model.silent_rate_[0]) + a_step, precision + p_step
        assert likelihood(p * g / (a + p * g), p, a + p * g) < best


GAPS = np.array([0.3, 1.0, 0.2, 2.5, 0.7, 0.4])
FOUND = np.array([0, 1, 0, 1, 1, 0])


def crawls(counts: np.ndarray | None = None) -> fo.CrawlLog:
    time = np.concatenate(([0.0], np.cumsum(GAPS)))
    changed = np.concatenate(([0], FOUND))
    changes = None if counts is None else np.concatenate(([0], counts))
    return fo.CrawlLog(["a"] * 7, time, changed, changes=changes)


def root(excess: object) -> float:
    return float(mpmath.findroot(excess, 1.0))


def test_maximum_likelihood_solves_the_printed_equation() -> None:
    shown(r"\ell'(\Delta)=0:\ \sum_{a\in\mathcal C}\frac{a}{e^{a\Delta}-1}=U", r"adds $A\ln\Delta-E\Delta$")
    changed, rest = [float(a) for a in GAPS[FOUND == 1]], float(GAPS[FOUND == 0].sum())

    def slope(x: mpmath.mpf, gaps: list[float]) -> mpmath.mpf:
        return mpmath.fsum(a / mpmath.expm1(a * x) for a in gaps)

    def fitted(**settings: object) -> float:
        return float(fo.estimators.MaximumLikelihood(**settings).fit(crawls()).change_rate_[0])  # type: ignore[arg-type]

    plain = root(lambda x: slope(x, changed) - rest)
    assert math.isclose(fitted(smoothing=0), plain, rel_tol=SCALAR)
    smooth = root(lambda x: slope(x, [*changed, 0.5]) - rest - 0.5)
    assert math.isclose(fitted(smoothing=0.5), smooth, rel_tol=SCALAR)
    shape, exposure = 1.4, 0.9
    mode = root(lambda x: slope(x, changed) + shape / x - rest - exposure)
    assert math.isclose(fitted(prior=fo.estimators.GammaPrior(shape, exposure)), mode, rel_tol=SCALAR)
    counts = np.array([0, 2, 0, 5, 1, 0])
    shown(
        r"$K$ counted changes over an interval add $K\ln\Delta$, and the interval to $U$",
        r"$(K+\tfrac{1}{2})/(S+\tfrac{1}{2})$",
    )
    known = fo.estimators.MaximumLikelihood(smoothing=0).fit(crawls(counts)).change_rate_[0]
    assert math.isclose(known, counts.sum() / GAPS.sum(), rel_tol=SCALAR)
    whole = fo.estimators.FullObservation(0.5).fit(crawls(counts)).change_rate_[0]
    assert math.isclose(whole, (counts.sum() + 0.5) / (GAPS.sum() + 0.5), rel_tol=EXACT)


def test_moments_and_known_crawl_rates_are_as_printed() -> None:
    shown(
        r"$\sum e^{-a\Delta}$ over all intervals equals the number of crawls",
        r"y = \frac{p\,K}{k+\alpha-K}",
    )
    moments = fo.estimators.MomentMatching().fit(crawls()).change_rate_[0]
    told = root(lambda x: mpmath.fsum(mpmath.exp(-float(a) * x) for a in GAPS) - 3)
    assert math.isclose(moments, told, rel_tol=SCALAR)
    mean = fo.estimators.LawOfLargeNumbers(alpha=1.0).fit(crawls(), crawl_rate=0.9).change_rate_[0]
    assert math.isclose(mean, 0.9 * 3 / (6 + 1 - 3), rel_tol=EXACT)
    assert math.isclose(fo.estimators.Naive().fit(crawls()).change_rate_[0], 3 / GAPS.sum(), rel_tol=EXACT)
    shown(r"correction $I(y+p)-y$", "shrinking steps")
    y, p, eta = 0.0, 0.9, 0.75
    for k, found in enumerate(FOUND, start=1):
        y += float(k) ** -eta * (found * (y + p) - y)
    steps = (
        fo.estimators.StochasticApproximation(step=eta, floor=0).fit(crawls(), crawl_rate=p).change_rate_[0]
    )
    assert math.isclose(steps, y, rel_tol=SCALAR)


def test_means_and_limits_are_as_printed() -> None:
    shown(
        r"E\,y = \Delta\,(1-\mu^k),\ \mu=\frac{\Delta}{\Delta+p}",
        r"the mean $p(\Delta-y)/(\Delta+p)$",
    )
    p, k = 0.9, 12
    mu = D / (D + p)
    finds = np.arange(k + 1)
    mean = float(np.sum(binom.pmf(finds, k, mu) * p * finds / (k + 1 - finds)))
    assert math.isclose(mean, D * (1 - mu**k), rel_tol=SCALAR)
    for y in (0.0, 1.0, D, 4.0):
        drift = mu * (y + p) - y
        assert math.isclose(drift, p * (D - y) / (D + p), rel_tol=EXACT, abs_tol=EXACT)
    shown(r"send the estimates to $p\,(e^{\Delta/p}-1)$", r"it tends to $p\Delta/(\Delta+p)$")
    share = -math.expm1(-D / p)  # of crawls at equal gaps 1/p that find a change
    assert math.isclose(p * share / (1 - share), p * math.expm1(D / p), rel_tol=EXACT)
    assert math.isclose(mu * p, p * D / (D + p), rel_tol=EXACT)


@pytest.mark.parametrize("gap", [0.1, 1.0, 5.0])
def test_the_score_has_mean_zero_at_the_true_rate(gap: float) -> None:
    shown(r"Each term of $\ell'$ has the mean 0 at the true rate whatever the intervals are")
    found = -math.expm1(-gap * D)
    assert abs(found * gap / math.expm1(gap * D) - (1 - found) * gap) <= EXACT

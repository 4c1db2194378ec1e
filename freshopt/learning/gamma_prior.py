"""`GammaPrior`: how change rates are spread over sources, learnt from a log of many of them.

A source that was crawled twice tells little; that most sources of the log change once a month tells more. A
Gamma distribution of the rates is worth as many changes as its shape, seen in as much time as its second
parameter, and so it enters the likelihood: as counted changes and exposure.

The most likely parameters maximise the likelihood of the log with the rates integrated out. The integral of a
source is taken as if its posterior were the Gamma with the same mode and curvature in ln Δ: exact for counted
changes and for a source without any, and close where crawls tell only whether there was a change.

Cost: some 150 maximisations of the likelihood, over 10 000 of the sources at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array
from freshopt.errors import SourceDataError, expect_settings
from freshopt.learning.crawl_likelihood import CrawlLikelihood
from freshopt.learning.crawl_log import CrawlLog
from freshopt.sources import LARGEST, SMALLEST
from freshopt.units import check_time_unit, convert_time

ENOUGH = 10_000  # sources: two parameters are then known to about 1 %
STEEPEST = 1e6  # largest shape: rates within 0.1 % of each other are all the same
SIMPLEX = np.array(
    [[0.0, 0.0], [1.0, 0.0], [0.0, 0.5]]
)  # left to itself, the search begins with steps of 1e-4
FLATTEST = 1e-3  # smallest shape: rates spread over 1000 decades
SPREADS = np.concatenate(([1e-3], np.linspace(0.05, 2.5, 50)))  # 1/√shape, where its evidence is looked at
NEARBY = 0.05  # nats, for differences of the evidence
SHARP = 4.0  # curvature of the evidence in ln(spread): a peak of half a nat's width


@dataclass(frozen=True, slots=True)
class GammaPrior:
    """The density b^a Δ^{a−1} e^{−bΔ}/Γ(a) of change rates, a the shape and b the exposure.

    Parameters
    ----------
    shape : float
        a > 0; the relative spread of the rates is 1/√a.
    exposure : float
        b > 0 in `time_unit`; the mean rate is a/b.
    time_unit : str

    Raises
    ------
    SourceDataError
        If a parameter is not a positive number or the time unit is not known.

    Examples
    --------
    Three sources changed 2, 9 and 0 times in 4 days each. The prior draws their rates together.

    >>> log = CrawlLog.from_columns({"source": [1, 2, 3], "elapsed": [4.0] * 3, "changed": [1, 1, 0],
    ...                              "changes": [2, 9, 0]})
    >>> prior = GammaPrior.of(log)
    >>> round(prior.shape, 3), round(prior.exposure, 3)
    (0.148, 0.106)
    """

    shape: float
    exposure: float
    time_unit: str = "day"

    def __post_init__(self) -> None:
        """Check the parameters."""
        expect_settings(self)
        check_time_unit(self.time_unit)
        for name in ("shape", "exposure"):
            value = getattr(self, name)
            if not SMALLEST <= value <= LARGEST:
                raise SourceDataError(f"{name} is {value}. A Gamma prior needs a positive number.")

    @classmethod
    def of(cls, log: CrawlLog) -> GammaPrior:
        """Return the prior that a log suggests: its most likely one, wider by what the log leaves open.

        Parameters
        ----------
        log : CrawlLog
            Of many sources, some of which changed and were crawled between changes.

        Raises
        ------
        SourceDataError
            If no source changed, or all had always changed: the rates could be as low or high as they like.

        Notes
        -----
        Few sources do not tell how their rates are spread, and a prior that is too sure pulls all of them
        together: with the most likely one, 95 % intervals of 30 sources of equal rates, crawled 20 times,
        covered a fifth of them. So the squared relative spread 1/shape is averaged over its evidence, under a
        flat prior of the spread, and the uncertainty of the mean is added. With hundreds of sources little is
        left of either.
        """
        observed = _sampled(log)
        shape, mean = _averaged(observed, *_most_likely(observed))
        return cls(shape, shape / mean, log.time_unit)

    @classmethod
    def most_likely(cls, log: CrawlLog) -> GammaPrior:
        """Return the prior under which a log is most likely, with no regard to how sure that is.

        Parameters
        ----------
        log : CrawlLog

        Raises
        ------
        SourceDataError
            As `of`.

        Notes
        -----
        If the log shows no more spread than chance makes, the shape stops at 10⁶.
        """
        shape, mean = _most_likely(_sampled(log))
        return cls(shape, shape / mean, log.time_unit)

    def parameters(self, log: CrawlLog) -> tuple[Array, Array]:
        """Return shape and exposure, in the log's time unit, for each of its sources."""
        n = len(log.sources_)
        return np.full(n, self.shape), np.full(n, convert_time(self.exposure, self.time_unit, log.time_unit))


def _sampled(log: CrawlLog) -> CrawlLikelihood:
    """Return the likelihood of the sources, of some of them where there are very many."""
    observed = CrawlLikelihood.of(log)
    if len(log.sources_) > ENOUGH:
        observed = observed.select(np.linspace(0, len(log.sources_) - 1, ENOUGH).astype(np.int64))
    return observed


def _most_likely(observed: CrawlLikelihood) -> tuple[float, float]:
    """Return shape and mean that maximise the likelihood."""
    changes = float(np.sum(observed.found + observed.counted))
    if changes == 0 or not np.any(observed.exposure):
        what = "no source changed" if changes == 0 else "all sources had always changed"
        raise SourceDataError(
            f"{what} in this log. It does not tell how change rates are spread. Pass a prior, or none."
        )
    pooled = changes / (np.sum(observed.exposure) + 0.5 * np.sum(observed.gaps))
    from scipy.optimize import minimize

    def loss(parameters: Array) -> float:
        shape, mean = np.exp(parameters)
        return -log_evidence(observed, shape, shape / mean)

    # In ln(shape) and ln(mean): nearly independent, and both of order 1 whatever the time unit.
    start = np.array([0.0, np.log(pooled)])
    best = minimize(
        loss,
        start,
        method="Nelder-Mead",
        bounds=[(np.log(FLATTEST), np.log(STEEPEST)), (None, None)],
        options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 1000, "initial_simplex": start + SIMPLEX},
    )
    shape, mean = map(float, np.exp(best.x))
    return shape, mean


def _averaged(observed: CrawlLikelihood, shape: float, mean: float) -> tuple[float, float]:
    """Return shape and mean with what is open of both averaged in, given their most likely values."""
    best = 1.0 / math.sqrt(shape)

    def evidence(spread: Array) -> Array:
        return np.array([log_evidence(observed, s**-2.0, s**-2.0 / mean) for s in spread.tolist()])

    spread = np.append(SPREADS, best * SPREADS[-1] / 2.0)
    sides = evidence(best * np.exp(np.array([-NEARBY, 0.0, NEARBY])))
    bend = (2.0 * sides[1] - sides[0] - sides[2]) / NEARBY**2
    if bend > SHARP:  # fine steps where the evidence has a peak that coarse ones would miss
        spread = np.concatenate((spread, best * np.exp(np.arange(-5.0, 5.5, 0.5) / math.sqrt(bend))))
    spread = np.unique(np.maximum(spread, SPREADS[0]))
    values = evidence(spread)
    weight = np.exp(values - np.max(values))
    step = np.diff(spread)  # by trapezoids
    area, second = (float(np.dot(step, f[1:] + f[:-1])) for f in (weight, weight * spread**2))
    shape = area / second
    around = [log_evidence(observed, shape, shape / (mean * f)) for f in np.exp([-NEARBY, 0.0, NEARBY])]
    curve = (2.0 * around[1] - around[0] - around[2]) / NEARBY**2
    variance = 1.0 / max(curve, 1.0)  # of ln mean; a factor of e, should the log tell nothing
    # A Gamma of mean m, ln m normal: the squared relative spread is (1 + 1/a)e^v − 1.
    return 1.0 / ((1.0 + 1.0 / shape) * math.exp(variance) - 1.0), mean * math.exp(0.5 * variance)


def log_evidence(observed: CrawlLikelihood, shape: float, exposure: float | Array) -> float:
    """Return the logarithm of the likelihood with all rates integrated out; one exposure, or one a source."""
    from scipy.special import gammaln

    posterior = observed.counting(shape, exposure)
    rate = posterior.maximum()
    alpha = rate * rate * posterior.slope(rate)[1]  # curvature in ln Δ, which is the shape of a Gamma
    each = posterior.value(rate) + gammaln(alpha) + alpha - alpha * np.log(alpha)
    return float(np.sum(each + shape * np.log(exposure)) - len(rate) * gammaln(shape))

"""`GammaPrior`: empirical Bayes gamma prior of change rates.

A few crawls of one source hold little information about its rate; the rates of the other sources of the log
hold more. The gamma prior is conjugate: it enters the likelihood as pseudo-observations, as many counted
changes as its shape, in as much time as its second parameter, the exposure.

The hyperparameters maximise the marginal likelihood of the log, in which the rates are integrated out
(`marginal_likelihood`). Where first crawls are dated the rate of births is one of them; few changes found
could then all be births, and the shape infinite. A crawl or two of each source hardly tell how rates are
spread. Both come with a weak hyperprior of the shape.

Cost: some 200 maximisations of the likelihood, over 10 000 of the sources at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError, expect_settings
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import GammaParameters, evenly, widened
from freshopt.estimators.marginal_likelihood import MarginalLikelihood
from freshopt.heavy import optimize
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, as_positive
from freshopt.units import check_time_unit, convert_time

# Sources in the sample: two parameters are then known to about 1 %.
ENOUGH = 10_000
# Largest shape: rates within 0.1 % of each other count as equal.
STEEPEST = 1e6
# Initial simplex of the search in ln(shape) and ln(mean): the default one has steps of 1e-4.
SIMPLEX = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.5]])
# ln(shape) from which it starts. With first dates the evidence may have two peaks: births explain these, or
# changes do.
SHAPES = (0.0, -2.0)
# Steps and nats within which peaks are compared; the highest is then climbed to 1e-6.
ROUGH = (0.03, 0.003)
# Typical shape and standard deviation of ln(shape) over ten real histories: the hyperprior that comes with
# first dates and few crawls, and the shape of a weak prior.
TYPICAL, VARIETY = 0.6, 0.5
# Smallest shape: rates are spread over 1000 decades.
FLATTEST = 1e-3
# Crawl intervals of a source, on average, below which changes found do not tell the shape well.
FEW = 3
# Nats from the pooled rate within which the mean is sought.
FAR = 30.0
# Values of the relative spread 1/√shape at which its evidence is evaluated.
SPREADS = np.concatenate(([1e-3], np.linspace(0.05, 2.5, 50)))
# Difference in nats at which differences of the evidence are taken.
NEARBY = 0.05
# Curvature of the evidence in ln(spread) above which its peak is less than half a nat wide.
SHARP = 4.0


@dataclass(frozen=True, slots=True)
class GammaPrior:
    """Gamma prior of change rates, b^a Δ^{a−1} e^{−bΔ}/Γ(a).

    a is the shape and b the exposure.

    Parameters
    ----------
    shape : float
        a > 0; the relative spread of the rates is 1/√a.
    exposure : float
        b > 0 in `time_unit`; the mean rate is a/b.
    time_unit : str
    birth_rate : float
        η ≥ 0 per `time_unit`: sources come into being at that rate, which the date of a first crawl may tell
        instead of a change. 0 takes every first date for a change.

    Raises
    ------
    SourceDataError
        If a parameter is not a positive number or the time unit is not known.

    Examples
    --------
    Three sources changed 2, 9 and 0 times in 4 days each. The prior shrinks their rates towards each other.

    >>> log = CrawlLog.from_columns({"source": [1, 2, 3], "elapsed": [4.0] * 3, "changed": [1, 1, 0],
    ...                              "changes": [2, 9, 0]})
    >>> prior = GammaPrior.from_log(log)
    >>> round(prior.shape, 3), round(prior.exposure, 3)
    (0.148, 0.106)
    """

    shape: float
    exposure: float
    time_unit: str = "day"
    birth_rate: float = 0.0

    def __repr__(self) -> str:
        births = f", birth_rate={self.birth_rate!r}" if self.birth_rate else ""
        settings = f"shape={self.shape!r}, exposure={self.exposure!r}, time_unit={self.time_unit!r}"
        return f"GammaPrior({settings}{births})"

    def __post_init__(self) -> None:
        expect_settings(self)
        check_time_unit(self.time_unit)
        for name in ("shape", "exposure"):
            as_positive(getattr(self, name), name, "A Gamma prior needs a positive number.")
        as_positive(self.birth_rate, "birth_rate", "Pass a number > 0, or 0 for no births.", zero=True)

    @classmethod
    def from_log(cls, log: CrawlLog) -> GammaPrior:
        """Return the empirical Bayes prior of a log.

        It is the most likely one, widened by the posterior uncertainty of its parameters.

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
        Few sources leave the spread of their rates uncertain, and a prior that is too narrow shrinks all of
        them towards each other: with the most likely one, 95 % intervals of 30 sources of equal rates,
        crawled 20 times, covered a fifth of them. So the squared relative spread 1/shape is averaged over its
        posterior, under a flat hyperprior of the spread, and the posterior variance of the mean is added.
        With hundreds of sources both are small. Where first crawls are dated, or sources that changed have
        fewer than three crawl intervals on average, ln(shape) has the hyperprior N(ln 0.6, 0.5²), whose
        parameters are those of ten real histories: one interval tells how many sources change, but not how
        rates are spread.
        """
        return cls.from_likelihood(CrawlLikelihood.of(log), log.time_unit, few=few_crawls(log))

    @classmethod
    def from_likelihood(cls, observed: CrawlLikelihood, time_unit: str, *, few: bool) -> GammaPrior:
        """Return the empirical Bayes prior of a log's likelihood.

        As `from_log`, in the log's time unit; of a log with `few_crawls`, or not.

        Raises
        ------
        SourceDataError
            As `from_log`.
        """
        evidence = _evidence(observed)
        typical = (few and evidence.grids is not None) or observed.dates is not None
        shape, mean, births = _most_likely(evidence, typical=typical)
        shape, mean = _averaged(evidence, shape, mean, births, typical=typical)
        return cls(shape, shape / mean, time_unit, births)

    @classmethod
    def from_marginal_likelihood(cls, log: CrawlLog) -> GammaPrior:
        """Return the prior of maximum marginal likelihood.

        The uncertainty of its parameters is not counted.

        Parameters
        ----------
        log : CrawlLog

        Raises
        ------
        SourceDataError
            As `from_log`.

        Notes
        -----
        If the log shows no more spread than sampling variance, the shape stops at 10⁶.
        """
        evidence = _evidence(CrawlLikelihood.of(log))
        shape, mean, births = _most_likely(evidence, typical=evidence.observed.dates is not None)
        return cls(shape, shape / mean, log.time_unit, births)

    @classmethod
    def weak(cls, log: CrawlLog) -> GammaPrior:
        """Return a weak prior in the log's own scale.

        For few sources, which do not tell how rates are spread.

        Parameters
        ----------
        log : CrawlLog

        Raises
        ------
        SourceDataError
            If the log has baselines only.

        Notes
        -----
        Its shape 0.6 is that of ten real histories, its mean the changes found, and half a change, per time
        observed. For 3 to 25 simulated sources with 2 to 20 crawls its plans lost 11 to 82 % less than those
        from posterior medians under Jeffreys' prior, beside plans that know the rates, and in 16 of 18
        settings less than those under `from_log` (``benchmarks/accuracy/few_sources.py``).

        Examples
        --------
        >>> GammaPrior.weak(CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 5.0], changed=[0, 0, 0]))
        GammaPrior(shape=0.6, exposure=6.0, time_unit='day')
        """
        observed = _sampled(CrawlLikelihood.of(log))
        changes, time = observed.pooled()
        changes += 0.5
        if observed.dates is not None and not time > 0.0:
            # First dates alone do not tell changes from births: half of them count as changes.
            time = float(np.sum(observed.dates.age))
            changes += 0.5 * float(np.sum(observed.dates.possible))
        if not time > 0.0:
            raise SourceDataError(
                "no source of this log was crawled twice. It does not tell how fast any changes."
            )
        exposure = TYPICAL * time / changes
        _, births = MarginalLikelihood.smoothly(observed).best(TYPICAL, exposure)
        return cls(TYPICAL, exposure, log.time_unit, births)

    def parameters(self, log: CrawlLog) -> GammaParameters:
        """Return the prior of each source.

        In the time unit of the log.
        """
        n = len(log.names)
        exposure = convert_time(self.exposure, self.time_unit, log.time_unit)
        births = self.birth_rate * convert_time(1.0, log.time_unit, self.time_unit)
        return GammaParameters(np.full(n, self.shape), np.full(n, exposure), np.full(n, births))


def few_crawls(log: CrawlLog) -> bool:
    """Return whether crawls are too few to tell how rates are spread."""
    crawls = log.known_intervals
    return bool(np.sum(crawls) < FEW * np.count_nonzero(crawls))


def _sampled(observed: CrawlLikelihood) -> CrawlLikelihood:
    """Return the likelihood of the sources, or of a sample of many."""
    return observed.select(evenly(len(observed.counted), ENOUGH))


def _evidence(observed: CrawlLikelihood) -> MarginalLikelihood:
    """Return the marginal likelihood of the sources, or of a sample."""
    observed = _sampled(observed)
    changes, time = observed.pooled()
    if changes == 0 or not np.any(observed.exposure):
        what = "no source changed" if changes == 0 else "all sources had always changed"
        raise SourceDataError(
            f"{what} in this log. It does not tell how change rates are spread. Pass a prior, or none."
        )
    return MarginalLikelihood.of(observed, changes / time, TYPICAL)


def _most_likely(evidence: MarginalLikelihood, *, typical: bool) -> tuple[float, float, float]:
    """Return shape, mean and birth rate of maximum marginal likelihood.

    With the hyperprior of the shape where that is `typical`.
    """
    observed = evidence.observed
    changes, time = observed.pooled()
    pooled = [changes / time]
    if observed.dates is not None:
        # As if every first date were a change, beside the mean as if none were.
        possible, age = map(float, map(np.sum, observed.dates))
        pooled.append((changes + possible) / (time + age))

    def loss(parameters: Array) -> float:
        shape, mean = np.exp(parameters)
        value, _ = evidence.best(shape, shape / mean)
        return -value - _hyperprior(shape, typical=typical)

    def climbed(start: Array, simplex: Array, step: float, value: float) -> optimize.OptimizeResult:
        return optimize.minimize(
            loss,
            start,
            method="Nelder-Mead",
            bounds=[(np.log(FLATTEST), np.log(STEEPEST)), (center - FAR, center + FAR)],
            options={"xatol": step, "fatol": value, "maxiter": 1000, "initial_simplex": start + simplex},
        )

    # In ln(shape) and ln(mean): nearly independent, and both of order 1 whatever the time unit.
    center = float(np.log(pooled[0]))
    starts = [np.array([at, np.log(mean)]) for at in SHAPES for mean in pooled]
    rough = [climbed(start, SIMPLEX, *ROUGH) for start in starts]
    near = min(rough, key=lambda answer: float(answer.fun)).x
    best = climbed(near, ROUGH[0] * SIMPLEX, 1e-6, 1e-9)
    shape, mean = map(float, np.exp(best.x))
    return shape, mean, evidence.best(shape, shape / mean)[1]


def _hyperprior(shape: float, *, typical: bool) -> float:
    """Return the log density of a typical ln(shape), or 0."""
    return 0.0 if not typical else -0.5 * (math.log(shape / TYPICAL) / VARIETY) ** 2


def _averaged(
    marginal: MarginalLikelihood, shape: float, mean: float, births: float, *, typical: bool
) -> tuple[float, float]:
    """Return shape and mean averaged over their posterior."""
    best = 1.0 / math.sqrt(shape)

    def evidence(spread: Array) -> Array:
        shapes = (spread**-2.0).tolist()
        return np.array([marginal.at(s, s / mean, births) + _hyperprior(s, typical=typical) for s in shapes])

    spread = np.append(SPREADS, best * SPREADS[-1] / 2.0)
    sides = evidence(best * np.exp(np.array([-NEARBY, 0.0, NEARBY])))
    bend = (2.0 * sides[1] - sides[0] - sides[2]) / NEARBY**2
    # Fine steps where the evidence has a peak that coarse ones would miss.
    if bend > SHARP:
        spread = np.concatenate((spread, best * np.exp(np.arange(-5.0, 5.5, 0.5) / math.sqrt(bend))))
    spread = np.unique(np.maximum(spread, SPREADS[0]))
    values = evidence(spread)
    weight = np.exp(values - np.max(values))
    if typical:
        weight /= spread  # the hyperprior is one of ln(shape), and not flat in the spread
    step = np.diff(spread)  # by trapezoids
    area, second = (float(np.dot(step, f[1:] + f[:-1])) for f in (weight, weight * spread**2))
    shape = area / second
    around = [marginal.at(shape, shape / (mean * f), births) for f in np.exp([-NEARBY, 0.0, NEARBY])]
    curve = (2.0 * around[1] - around[0] - around[2]) / NEARBY**2
    # Posterior variance of ln mean; a factor of e if the log holds no information.
    shape, mean = map(float, widened(shape, mean, 1.0 / max(curve, 1.0)))
    return shape, mean

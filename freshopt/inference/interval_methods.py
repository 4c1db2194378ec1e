"""Credible and confidence interval methods for change rates.

They are passed to an estimator's `interval` as instances.

`Posterior` is the default of all estimators and the one to use: it covers as often as it says, also after 20
crawls. The others are what statistics and the papers offer beside it: `LikelihoodRatio` is right for many
crawls only, `Exact` covers at least as often as it says and mostly more, `Hoeffding` and `Published` cover
nearly always and are several times as wide (`benchmarks/accuracy/interval_coverage.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import as_number


@dataclass(frozen=True, slots=True)
class Posterior:
    """Central credible interval of the posterior distribution.

    Under Jeffreys' prior unless the estimator has a prior.

    No smoothing enters. What never changed has an interval from 0, what had always changed one without end.
    """


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Likelihood-ratio confidence interval.

    The rates with 2(l(Δ̂)−l(Δ)) ≤ the χ²₁ quantile.

    Of `MaximumLikelihood`: l is what it maximised, with its pseudo-observation or its prior.
    """


@dataclass(frozen=True, slots=True)
class Exact:
    """Garwood's exact confidence interval for counted changes.

    The rates under which neither so few nor so many changes would be too rare.

    Of `FullObservation`. It covers with at least the confidence, for any number of crawls.
    """


@dataclass(frozen=True, slots=True)
class Hoeffding:
    """Confidence interval by Hoeffding's inequality.

    The rates at which the expected share of crawls without a change is near the observed one.

    Of `MomentMatching`: within √(ln(2/δ)/(2N)). Lemma 3 of Upadhyay et al., "Learning to Crawl", AAAI 2020,
    doi:10.1609/aaai.v34i04.6075, without its last step, in which the curve of expected shares is replaced by
    its smallest slope: never wider than `Published`.
    """


@dataclass(frozen=True, slots=True)
class Published:
    """Confidence interval by the published error bound.

    The estimate and the bound on its error to either side, clipped to bounds.

    Of `MomentMatching`, Lemma 3, and of `FullObservation`, Lemma 8 of Upadhyay et al., "Learning to Crawl",
    AAAI 2020, doi:10.1609/aaai.v34i04.6075; see their `error_bound`.

    Parameters
    ----------
    bounds : (float, float) or None
        Changes per time unit between which the rate is known to lie; None for those of `MomentMatching`.
    """

    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Raise unless the bounds are valid."""
        if self.bounds is not None:
            check_bounds(self.bounds)


IntervalMethod: TypeAlias = Posterior | LikelihoodRatio | Exact | Hoeffding | Published


def check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return bounds of change rates as two floats, or refuse them."""
    try:
        lowest, highest = (as_number(bound, "a bound", "Pass a number.") for bound in bounds)
    except (TypeError, ValueError):
        lowest = highest = math.nan
    if not 0 <= lowest < highest:
        raise SourceDataError(
            f"bounds are {bounds}. Pass the smallest and the largest change rate, 0 <= first < second."
        )
    return lowest, highest


def check_confidence(confidence: float) -> float:
    """Return a confidence in (0, 1), or raise."""
    return check_share(confidence, "confidence", 0.95)


def check_share(share: float, what: str, usual: float) -> float:
    """Return a number in (0, 1), or raise."""
    share = as_number(share, what, f"Pass a number between 0 and 1, such as {usual}.")
    if not 0 < share < 1:
        raise SourceDataError(f"{what} is {share}. Pass a number between 0 and 1, such as {usual}.")
    return share

"""What features tell of change rates, and of new sources."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshopt.estimators.estimator import Estimator
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.formatting import count, percent
from freshopt.heavy import special
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.units import duration


@frozen_value(repr=False)
class FeaturesBring:
    """What features tell.

    The `share` of the variance of ln Δ that they explain, each source held out, the number of `new` sources,
    and `between` which rates these are expected, per time unit.
    """

    priors: FeaturePriors
    share: float
    new: int
    between: tuple[float, float]
    time_unit: str

    def __repr__(self) -> str:
        return f"FeaturesBring({self.sentence})"

    @property
    def sentence(self) -> str:
        """What features tell, in words, a line or two."""
        told = sorted(self.priors.spread, key=lambda name: -self.priors.spread[name])
        if told:
            words = (
                f"they tell {percent(self.share, space=' ')} of how change rates differ, most by {told[0]!r}"
            )
        else:
            words = "they tell nothing of how change rates differ, and are left out"
        if not self.new:
            return words
        least, most = (duration(1.0 / rate, self.time_unit) for rate in reversed(self.between))
        when = least if least == most else f"{least} to {most}"
        return f"{words}\n{count(self.new, 'source')} not crawled yet: expected to change once in {when}"

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        told = sorted(self.priors.spread.items(), key=lambda each: -each[1])
        return {
            "share": self.share,
            "gain": self.priors.gain,
            "new": self.new,
            "columns": [{"feature": name, "factor": math.exp(spread)} for name, spread in told],
            "sentence": self.sentence,
        }


def explained(priors: FeaturePriors) -> float:
    """Return the share of the variance of ln Δ that features explain."""
    # The variance of the logarithm of a Gamma of this shape.
    left, before = (float(special.polygamma(1, shape)) for shape in (priors.within, priors.pooled.shape))
    return max(0.0, 1.0 - left / before)


def features_bring(estimate: Estimator) -> FeaturesBring | None:
    """Return what features brought to an estimate, or None without them."""
    priors = getattr(estimate, "prior", None)
    if not isinstance(priors, FeaturePriors):
        return None
    new = np.flatnonzero(estimate.flag_ == "never crawled")
    expected = estimate.change_rate_[new]
    between = (float(np.min(expected, initial=math.inf)), float(np.max(expected, initial=0.0)))
    return FeaturesBring(priors, explained(priors), len(new), between, estimate.time_unit_)

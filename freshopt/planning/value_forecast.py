"""`ValueForecast`: value of a plan under the posterior, with an interval.

The value that a solver certifies holds if the estimates are right. Change rates may be others, and so may be
how they are distributed, which moves all sources together. So rates are drawn with the prior that they share
(`shared_prior`), whatever prior the estimates have; the mean of the plan's costs under the draws is what is
expected, their quantiles are the interval. Rates of sources that changed at every crawl may be any: where
they are most of a cost without a largest value, there is no upper end. Where no crawl found a change costs
may be as small as any.

What draws do not show is how far the future departs from the model, all sources together. That is told by
back-tests inside the log (`realised_ratios`): k log ratios of realised to predicted cost with mean m and
variance s². Windows are short: of s², v would be there under the model too, and is known from samples. What
is left is drift. The next log ratio is m + T·√(d(1 + 1/k) + v/k), d = max(s² − v, 0), T of Student's law with
k − 1 degrees of freedom; with v = 0 that is Student's interval of a next observation. The interval of the
value has both reaches, added as those of independent normal variables are. Without back-tests it holds if the
model does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from freshopt.estimators.estimator import check_confidence
from freshopt.estimators.shared_prior import RateDraws
from freshopt.formatting import number
from freshopt.heavy import special
from freshopt.modelling.objective import Objective, value_at
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import SMALLEST, Array
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.realised_ratios import RealisedRatios
from freshopt.planning.uncertainty import limited, limits_of, quantiles, told
from freshopt.report.value_words import expected_text
from freshopt.separable.kernel import Numerics

CONFIDENCE = 0.9
# Logarithm of the largest factor of an interval.
FARTHEST = 100.0


@frozen_value(repr=False)
class ValueForecast:
    """Expected value of a plan, with an interval.

    Attributes
    ----------
    expected : float
        Mean of the value under the draws, in the declared sense.
    costs : ndarray, shape (draws,)
        Under draws of the change rates.
    limits : (float, float)
        Ends of the interval that no log gives, as `limits_of` has them; NaN where draws do.
    most : float
        The largest cost, which the interval does not exceed.
    offset, sign : float
        The value is offset + sign·cost.
    ratios : ndarray, shape (k,)
        Of realised to predicted cost in back-tests inside the log; empty where there are none.
    noise : float
        Standard deviation that their logarithms would have if the model held.
    """

    expected: float
    costs: Array
    limits: tuple[float, float]
    most: float
    offset: float
    sign: float
    ratios: Array
    noise: float = 0.0

    @property
    def spread(self) -> float:
        """The largest cost under the draws less the smallest."""
        return float(np.ptp(self.costs))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the interval of the value that the plan will have.

        Each end is passed with (1 − confidence)/2; an end that no log gives is that of any change rates.

        Examples
        --------
        >>> ratios = np.array([0.9, 1.0, 1.2, 1.1])
        >>> forecast = ValueForecast(10.0, np.full(9, 10.0), (np.nan, np.nan), np.inf, 0.0, 1.0, ratios)
        >>> [round(end, 2) for end in forecast.interval()]
        [7.54, 14.46]
        """
        check_confidence(confidence)
        if not np.max(self.costs) > 0.0:
            return self.expected, self.expected
        logs = np.log(np.maximum(self.costs, SMALLEST))
        middle, shift, drift = float(np.median(logs)), *self._drift(0.5 * (1.0 + confidence))
        low, high = (
            middle + shift + math.copysign(math.hypot(end - middle, drift), way)
            for end, way in zip(quantiles(logs, confidence), (-1.0, 1.0), strict=True)
        )
        ends = (min(math.exp(min(max(end, -FARTHEST), FARTHEST)), self.most) for end in (low, high))
        values = sorted(self.offset + self.sign * end for end in ends)
        return limited(tuple(values), self.limits)

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        return {
            "expected": self.expected,
            "value_90_percent": list(told(self.interval(), self.limits)),
            "realised_over_predicted": self.ratios.tolist(),
            "noise": self.noise,
        }

    @property
    def sentence(self) -> str:
        """The forecast in words."""
        low, high = told(self.interval(), self.limits)
        return expected_text(self.expected, low, high, self.ratios.tolist(), number)

    def __repr__(self) -> str:
        return f"ValueForecast({self.sentence})"

    def _drift(self, level: float) -> tuple[float, float]:
        """Return shift and reach of the logarithm of realised over predicted cost."""
        if not len(self.ratios):
            return 0.0, 0.0
        logs, k = np.log(self.ratios), len(self.ratios)
        noise = self.noise**2
        drift = max(float(np.var(logs, ddof=1)) - noise, 0.0)
        reach = float(special.stdtrit(k - 1, level)) * math.sqrt((1.0 + 1.0 / k) * drift + noise / k)
        return float(np.mean(logs)), reach


def value_forecast(
    objective: Objective,
    sources: Sources,
    rates: Array,
    drawn: RateDraws,
    back_tests: RealisedRatios | None = None,
    savings: Callable[[Sources], Array] | None = None,
) -> ValueForecast:
    """Return the expected value of rates under draws of the change rates.

    `savings` are by how much each source costs less than the objective says, as at good phases of the week.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.planning.uncertainty import rate_draws
    >>> changed = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    >>> log = fo.CrawlLog(["a"] * 9 + ["b"] * 9, [*range(9)] * 2, changed)
    >>> model = fo.estimators.MaximumLikelihood().fit(log)
    >>> sources = fo.Sources(1.0, names=["a", "b"])
    >>> drawn = rate_draws(sources, model, 100, seed=0)
    >>> value_forecast(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, np.array([1.0, 1.0]), drawn)
    ValueForecast(1.347 is expected; 90 % interval 1.052 to 1.619, if sources change at random)
    """
    sign = 1.0 if objective.sense == "minimise" else -1.0
    costs, values, by_source = np.empty(len(drawn.rates)), np.empty(len(drawn.rates)), np.zeros(len(rates))
    for k, change_rate in enumerate(drawn.rates):
        own = sources.with_change_rate(change_rate)
        numerics: Numerics | None = numerics_of(objective, own)[0]
        assert numerics is not None, "objectives without numerics have no certified plan"
        cost = numerics.cost(rates)
        less = 0.0 if savings is None else savings(own)
        by_source += cost - less
        costs[k] = float(np.sum(cost - less))
        values[k] = value_at(objective, numerics, own, rates, float(np.sum(cost))) - sign * float(
            np.sum(less)
        )
    nothing = objective.value_from_cost(0.0, sources)
    return ValueForecast(
        float(np.mean(values)),
        costs,
        limits_of(objective, sources, drawn, by_source),
        nothing if objective.sense == "maximise" and nothing > 0.0 else math.inf,
        nothing,
        sign,
        np.empty(0) if back_tests is None else back_tests.ratios,
        0.0 if back_tests is None else back_tests.noise,
    )

"""`ValueForecast`: value of a plan under the posterior, with an interval.

The value that a solver certifies holds if the estimates are right. Change rates may be others, and the mean
of a cost over them is not the cost at their mean: the expected value is the sum over the Gauss nodes of each
source's posterior. The variance over the same nodes is that of the value, since sources are independent in
the posterior; it shrinks with their number, and their sum is taken for lognormal.

What does not shrink is how far the future departs from the model, all sources together. That is told by
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
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.estimators.estimator import Estimator
from freshopt.formatting import number
from freshopt.inference.interval_methods import check_confidence
from freshopt.modelling.expected import Expected
from freshopt.modelling.matched_rates import match
from freshopt.modelling.objective import Objective, value_at
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.realised_ratios import RealisedRatios
from freshopt.separable.kernel import Numerics
from freshopt.separable.mixture import weighted_mean
from freshopt.units import convert_time

# Gauss nodes of each posterior; what eight are good for, `RateDistribution.nodes` says.
NODES = 8
CONFIDENCE = 0.9
# Logarithm of the largest factor of an interval.
FARTHEST = 100.0


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ValueForecast:
    """Expected value of a plan, with an interval.

    Attributes
    ----------
    expected : float
        The value under the posterior, in the declared sense.
    cost, spread : float
        Expected cost and its standard deviation under the posterior.
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
    cost: float
    spread: float
    most: float
    offset: float
    sign: float
    ratios: Array
    noise: float = 0.0

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the interval of the value that the plan will have.

        Examples
        --------
        >>> forecast = ValueForecast(10.0, 10.0, 1.0, np.inf, 0.0, 1.0, np.array([0.9, 1.0, 1.2, 1.1]))
        >>> [round(end, 2) for end in forecast.interval()]
        [7.21, 14.96]
        """
        check_confidence(confidence)
        if not self.cost > 0.0:
            return self.expected, self.expected
        centre, reach = self._logarithm(0.5 * (1.0 + confidence))
        ends = (math.exp(min(centre + end, FARTHEST)) * self.cost for end in (-reach, reach))
        values = sorted(self.offset + self.sign * min(end, self.most) for end in ends)
        return values[0], values[1]

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        return {
            "expected": self.expected,
            "value_90_percent": list(self.interval()),
            "realised_over_predicted": self.ratios.tolist(),
            "noise": self.noise,
        }

    @property
    def sentence(self) -> str:
        """The forecast in words."""
        return self.words(number)

    def words(self, shown: Callable[[float], str]) -> str:
        """Return the forecast in words, each value as `shown` writes it."""
        low, high = (shown(end) for end in self.interval())
        interval = f"{shown(self.expected)} under the posterior; 90 % interval {low}–{high}"
        if not len(self.ratios):
            return f"{interval} if the model holds"
        least, largest = (f"{float(end(self.ratios)):.2g}" for end in (np.min, np.max))
        tests = f"{len(self.ratios)} back-tests inside the log"
        return f"{interval}, from {tests} (cost realised {least}–{largest} of the predicted)"

    def __repr__(self) -> str:
        """Return the sentence."""
        return f"ValueForecast({self.sentence})"

    def _logarithm(self, level: float) -> tuple[float, float]:
        """Return centre and reach of the logarithm of realised over expected cost."""
        from scipy.special import ndtri, stdtrit

        own = math.log1p((self.spread / self.cost) ** 2)
        reach = float(ndtri(level)) * math.sqrt(own)
        if not len(self.ratios):
            return -0.5 * own, reach
        logs, k = np.log(self.ratios), len(self.ratios)
        noise = self.noise**2
        drift = max(float(np.var(logs, ddof=1)) - noise, 0.0)
        other = float(stdtrit(k - 1, level)) * math.sqrt((1.0 + 1.0 / k) * drift + noise / k)
        return float(np.mean(logs)) - 0.5 * own, math.hypot(reach, other)


def value_forecast(
    objective: Objective,
    sources: Sources,
    rates: Array,
    estimator: Estimator,
    back_tests: RealisedRatios | None = None,
    savings: Callable[[Sources], Array] | None = None,
) -> ValueForecast:
    """Return the expected value of rates under an estimator's posterior.

    Parameters
    ----------
    objective : Objective
        A sum over sources.
    sources : Sources
        Matched with the estimator's by name.
    rates : ndarray, shape (n,)
        Refreshes per time unit of the sources.
    estimator : Estimator
        Fitted to a log.
    back_tests : RealisedRatios, optional
        Of two windows or more, for the interval.
    savings : callable, optional
        By how much each source costs less than the objective says, given sources with their change rates:
        what good phases of the week save.

    Examples
    --------
    >>> import freshopt as fo
    >>> changed = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    >>> log = fo.CrawlLog(["a"] * 9 + ["b"] * 9, [*range(9)] * 2, changed)
    >>> model = fo.estimators.MaximumLikelihood().fit(log)
    >>> sources = fo.Sources(1.0, name=["a", "b"])
    >>> value_forecast(fo.problems.BinaryFreshness(), sources, np.array([1.0, 1.0]), model)
    ValueForecast(1.285 under the posterior; 90 % interval 1.031–1.492 if the model holds)
    """
    nodes, weights = posterior_nodes(sources, estimator)
    expected = Expected(objective, nodes, weights)
    numerics = numerics_of(expected, sources)[0]
    assert numerics is not None, "objectives without numerics have no certified plan"
    less = np.zeros(nodes.shape) if savings is None else _at_nodes(savings, sources, nodes)
    saved = float(np.sum(weights * less))
    cost = float(np.sum(numerics.cost(rates)))
    sign = 1.0 if objective.sense == "minimise" else -1.0
    value = value_at(expected, numerics, sources, rates, cost) - sign * saved
    nothing = objective.value_from_cost(0.0, sources)
    return ValueForecast(
        value,
        cost - saved,
        _spread(objective, sources, rates, nodes, weights, less),
        nothing if objective.sense == "maximise" and nothing > 0.0 else math.inf,
        nothing,
        sign,
        np.empty(0) if back_tests is None else back_tests.ratios,
        0.0 if back_tests is None else back_tests.noise,
    )


def posterior_nodes(sources: Sources, estimator: Estimator, number: int = NODES) -> tuple[Array, Array]:
    """Return Gauss nodes and weights of the sources' posteriors.

    Sources are matched with the estimator's by name, units converted. One of which nothing is known has the
    change rates of the others for its posterior, at even quantiles.

    Returns
    -------
    nodes, weights : ndarray of float, shape (n, number)
    """
    nodes, weights = estimator.nodes(number)
    blank = np.isnan(nodes[:, 0])
    if np.any(blank):
        others = estimator.change_rate_[~blank]
        if not len(others):
            others = estimator.change_rate_
        levels = (np.arange(number) + 0.5) / number
        nodes[blank], weights[blank] = np.quantile(others, levels), 1.0 / number
    at = match(sources, estimator)
    unit = convert_time(1.0, sources.time_unit, estimator.time_unit_)
    return np.clip(nodes[at] * unit, SMALLEST, LARGEST), weights[at]


def _spread(
    objective: Objective, sources: Sources, rates: Array, nodes: Array, weights: Array, less: Array
) -> float:
    """Return the standard deviation of the cost under the posterior."""

    def cost(own: Sources) -> Array:
        numerics: Numerics | None = numerics_of(objective, own)[0]
        assert numerics is not None
        return numerics.cost(rates)

    costs = _at_nodes(cost, sources, nodes) - less
    off = costs - weighted_mean(costs, weights)[:, None]
    return math.sqrt(float(np.sum(weights * off * off)))


def _at_nodes(of: Callable[[Sources], Array], sources: Sources, nodes: Array) -> Array:
    """Return what a function makes of the sources at each node."""
    return np.stack([of(sources.with_change_rate(node)) for node in nodes.T], axis=1)

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

For these ratios a plan is made from the crawls before a window, and its cost in the window is measured as a
back-test does: in samples of the changes given what the crawls of the whole log found. Predicted is the mean
cost of samples under the posterior before the window, with the same copies. Both are of all changes, so that
the ratio tells how far the future of these sources was from what their past let one expect; what crawls hid
rests on the model on both sides, and tells of no drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator, check_confidence
from freshopt.estimators.shared_prior import RateDraws
from freshopt.formatting import number
from freshopt.heavy import special
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.objective import Objective, value_at
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import SMALLEST, Array
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.held_out_window import SHARE, HeldOutWindow, held_out_windows
from freshopt.planning.measured import per_time
from freshopt.planning.plan_steps import TOLERANCE, estimated_sources, problem_of, require_static
from freshopt.planning.uncertainty import limited, limits_of, quantiles, told
from freshopt.planning.wishes import Wishes
from freshopt.report.value_words import expected_text
from freshopt.separable.kernel import Numerics
from freshopt.simulation.static_costs import ChangeWindow, has_static_cost, static_costs
from freshopt.simulation.world import World
from freshopt.solving import solve

# Samples of a window's changes under the posterior before it: their mean is as good as the cost of four times
# as many sources.
SAMPLES = 4
# Rates of samples, relative to the estimate: of a posterior without an upper end, some are beyond counting.
MOST = 100.0
# Changes that the crawls of a window are expected to show; fewer tell nothing.
FEW = 5.0
# Noise above which windows tell nothing of drift.
NOISY = 0.5


@frozen_value()
class RealisedRatios:
    """Realised over predicted costs in the windows of a log.

    - `ratios` (windows,): 1 where costs were as predicted; of a maximised objective too it is costs that are
      compared.
    - `noise`: Standard deviation of their logarithms if the model held: windows are short, and sources few.
    """

    ratios: Array
    noise: float


def realised_ratios(log: CrawlLog, request: Wishes, splits: int = 4, share: float = SHARE) -> RealisedRatios:
    """Return realised over predicted cost of plans in windows of a log.

    Windows before which nothing can be learnt, or whose crawls are expected to show less than five changes,
    are left out.
    """
    require_static(request)
    found, variance = [], []
    for k, window in enumerate(held_out_windows(log, None, share, splits, seed=request.seed)):
        estimate, sources = estimated_sources(window.past, request)
        if _expected_to_show(log, window, sources.change_rate) < FEW:
            continue
        seed = request.seed + SAMPLES * k
        realised, predicted, scattered = _costs(window, request, estimate, sources, seed)
        if realised > 0.0 and predicted > 0.0:
            found.append(realised / predicted)
            variance.append(scattered / predicted**2)
    noise = math.sqrt(math.log1p(float(np.mean(variance)))) if variance else 0.0
    return RealisedRatios(np.asarray(found, dtype=np.float64), noise)


def ratios_or_none(log: CrawlLog, request: Wishes, splits: int = 4) -> RealisedRatios | None:
    """Return the ratios of all windows, or None.

    None where the log is too short for them, or the objective's cost cannot be replayed exactly, as where
    fetches fail.
    """
    if request.success is not None or not has_static_cost(request.objective):
        return None
    try:
        found = realised_ratios(log, request, splits)
    except SourceDataError:
        return None
    return found if len(found.ratios) == splits and found.noise < NOISY else None


def _costs(
    window: HeldOutWindow, request: Wishes, estimate: Estimator, sources: Sources, seed: int
) -> tuple[float, float, float]:
    """Return realised and predicted cost, and variance if the model held."""
    problem = problem_of(request, sources, request.bandwidth)
    rates = solve(problem, tolerance=TOLERANCE).rates

    def cost(changes: ChangeWindow) -> float:
        each = sources.importance * static_costs(changes, rates, request.objective)
        return per_time(each, window.span, sources.importance)

    known = window.drawn or (window,)
    realised = [cost(one.changes) for one in known]
    drawn = estimate.draws(SAMPLES, request.seed)
    drawn = np.minimum(np.where(np.isnan(drawn), sources.change_rate, drawn), MOST * sources.change_rate)
    samples = [cost(_future(known[k % len(known)], each, seed + k)) for k, each in enumerate(drawn)]
    # Under the model a sample of the changes given the log is one given the past; what the mean of several
    # scatters less is what they differ by. What was predicted is a mean of samples, too.
    between = float(np.var(realised, ddof=1)) if len(realised) > 1 else 0.0
    scatter = (1.0 + 1.0 / SAMPLES) * float(np.var(samples, ddof=1)) - (1.0 - 1.0 / len(realised)) * between
    return float(np.mean(realised)), float(np.mean(samples)), max(scatter, 0.0)


def _future(window: HeldOutWindow, rate: Array, seed: int) -> ChangeWindow:
    """Return a window with the changes before it, then Poisson ones."""
    rng = np.random.default_rng(seed)
    known, n = window.changes, len(rate)
    before = known.time <= known.first[known.source]
    source = np.repeat(np.arange(n), rng.poisson(rate * known.span))
    time = known.first[source] + known.span[source] * rng.random(len(source))
    world = World.from_events(
        {
            "source": np.concatenate([known.source[before], source]),
            "time": np.concatenate([known.time[before], time]),
        },
        names=np.arange(n),
        start=window.world.start,
        horizon=window.end,
    )
    return ChangeWindow.of(world, window.begin, known.until)


def _expected_to_show(log: CrawlLog, window: HeldOutWindow, rates: Array) -> float:
    """Return how many crawls of a window are expected to find changes."""
    rows, source = window.crawls_of(log)
    time, gap = log.time[rows], log.interval[rows]
    inside = (time > window.begin) & (time - gap < window.end)  # not known of a first crawl
    return float(np.sum(-np.expm1(-rates[source[inside]] * gap[inside])))


CONFIDENCE = 0.9
# Logarithm of the largest factor of an interval.
FARTHEST = 100.0


@frozen_value(repr=False)
class ValueForecast:
    """Expected value of a plan, with an interval.

    - `expected`: Mean of the value under the draws, in the declared sense.
    - `costs` (draws,): Under draws of the change rates.
    - `limits` (float, float): Ends of the interval that no log gives, as `limits_of` has them; NaN where
      draws do.
    - `most`: The largest cost, which the interval does not exceed.
    - `offset`, `sign`: The value is offset + sign·cost.
    - `ratios` (k,): Of realised to predicted cost in back-tests inside the log; empty where there are none.
    - `noise`: Standard deviation that their logarithms would have if the model held.
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

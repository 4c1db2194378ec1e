"""Ratios of realised to predicted cost, in windows inside a log.

A plan is made from the crawls before a window, and its cost in the window is measured as a back-test does:
in samples of the changes given what the crawls of the whole log found. Predicted is the mean cost of samples
under the posterior before the window, with the same copies. Both are of all changes, so that the ratio tells
how far the future of these sources was from what their past let one expect; what crawls hid rests on the
model on both sides, and tells of no drift.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.held_out_window import SHARE, HeldOutWindow, held_out_windows
from freshopt.planning.measured import per_time
from freshopt.planning.plan_steps import TOLERANCE, estimated_sources, problem_of, require_static
from freshopt.planning.wishes import Wishes
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

    Attributes
    ----------
    ratios : ndarray, shape (windows,)
        1 where costs were as predicted; of a maximised objective too it is costs that are compared.
    noise : float
        Standard deviation of their logarithms if the model held: windows are short, and sources few.
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
    for number, window in enumerate(held_out_windows(log, None, share, splits, seed=request.seed)):
        estimate, sources = estimated_sources(window.past, request)
        if _expected_to_show(log, window, sources.change_rate) < FEW:
            continue
        seed = request.seed + SAMPLES * number
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

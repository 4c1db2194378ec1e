"""Ratios of realised to predicted cost, in windows inside a log.

A plan is made from the crawls before a window, and its cost in the window replayed exactly on the changes
that the log shows there. Predicted is the same cost, after the same past, on the changes that the crawls of
the window would show if the posterior were right: what a log does not show is missing from both, and the
ratio tells how far the future of these sources was from what their past let one expect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.held_out_window import SHARE, HeldOutWindow, held_out_windows
from freshopt.planning.known_changes import known_changes, shown_changes
from freshopt.planning.plan_steps import TOLERANCE, estimated_sources
from freshopt.planning.request import PlanRequest
from freshopt.planning.static_policies import problem_of, require_static
from freshopt.simulation.static_costs import ChangeWindow, has_static_cost, static_costs
from freshopt.simulation.world import World
from freshopt.solving import solve

# Samples of what crawls would show: their mean is as good as the cost of four times as many sources.
SAMPLES = 4
# Changes that the crawls of a window are expected to show; fewer tell nothing.
FEW = 5.0
# Noise above which windows tell nothing of drift.
NOISY = 0.5


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
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


def realised_ratios(
    log: CrawlLog, request: PlanRequest, splits: int = 4, share: float = SHARE
) -> RealisedRatios:
    """Return realised over predicted cost of plans in windows of a log.

    Parameters
    ----------
    log : CrawlLog
    request : PlanRequest
    splits : int
        Windows of equal length. Those before which nothing can be learnt, or whose crawls are expected to
        show less than five changes, are left out.
    share : float
        Of the log's time that is held out.

    Raises
    ------
    SourceDataError
        If the log is too short for a window, or the request declares constraints.
    ObjectiveError
        If the objective's cost is no function of missed changes.
    """
    require_static(request)
    found, variance = [], []
    for number, window in enumerate(held_out_windows(log, None, share, splits)):
        realised, samples, changes = _costs(log, window, request, request.seed + SAMPLES * number)
        predicted = float(np.mean(samples))
        if realised > 0.0 and predicted > 0.0 and changes >= FEW:
            found.append(realised / predicted)
            variance.append(float(np.var(samples, ddof=1)) / predicted**2 * (1.0 + 1.0 / SAMPLES))
    noise = math.sqrt(math.log1p(float(np.mean(variance)))) if variance else 0.0
    return RealisedRatios(np.asarray(found, dtype=np.float64), noise)


def ratios_or_none(log: CrawlLog, request: PlanRequest, splits: int = 4) -> RealisedRatios | None:
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
    log: CrawlLog, window: HeldOutWindow, request: PlanRequest, seed: int
) -> tuple[float, list[float], float]:
    """Return realised and predicted costs of a window.

    Predicted are samples under the posterior; last is the mean number of changes that they show.
    """
    estimate, sources = estimated_sources(window.past, request)
    rates = solve(problem_of(request, sources, request.bandwidth), tolerance=TOLERANCE).rates

    def cost(changes: ChangeWindow) -> float:
        return float(np.sum(sources.importance * static_costs(changes, rates, request.objective)))

    drawn = estimate.draws(SAMPLES, request.seed)
    drawn = np.where(np.isnan(drawn), estimate.change_rate_, drawn)
    offsets, known = known_changes(window.past).events(-np.inf, np.inf)
    past = np.repeat(np.arange(len(sources)), np.diff(offsets)), known
    place = np.full(len(log.sources_), -1)
    place[window.index] = np.arange(len(window.index))
    begun = log.time - log.interval < window.end  # not known of a first crawl, which is left out
    rows = np.flatnonzero((log.time > window.begin) & begun & (place[log.source_index] >= 0))
    samples, changes = [], 0
    for k, each in enumerate(drawn):
        rate = np.zeros(len(log.sources_))
        rate[window.index] = each
        source, time = shown_changes(log, rows, rate, seed + k)
        changes += len(source)
        world = World.from_events(
            {"source": np.append(past[0], place[source]), "time": np.append(past[1], time)},
            names=np.arange(len(sources)),
            start=window.world.start,
            horizon=log.end,
        )
        samples.append(cost(ChangeWindow.of(world, window.begin, window.changes.until)))
    return cost(window.changes), samples, changes / SAMPLES

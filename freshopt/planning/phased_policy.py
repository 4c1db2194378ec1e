"""Plan at good phases of the week, as a policy.

The weekly profile is learnt from the crawls before a window alone, with the plan's own change rates. Sources
whose gaps fit the week are replayed at their phases; the others keep a random phase, and cost what static
rates cost on average over all phases.
"""

from __future__ import annotations

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.estimators.estimator import Estimator
from freshopt.planning.good_phases import at_good_phases, good_phases, phased_method, phased_problem
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.plan_files import moment
from freshopt.planning.plan_steps import TOLERANCE
from freshopt.planning.policy_replay import PolicyReplay, predicted_cost, replay_partly
from freshopt.planning.request import PlanRequest
from freshopt.planning.static_policies import PHASED
from freshopt.scheduling.schedule import schedule
from freshopt.solving import solve


def phased_plan(
    window: HeldOutWindow, request: PlanRequest, without: Solution, estimate: Estimator, bandwidth: float
) -> PolicyReplay | None:
    """Measure the plan at good phases, or None without evidence.

    Parameters
    ----------
    window : HeldOutWindow
    request : PlanRequest
    without : Solution
        The plan at random phases.
    estimate : Estimator
        The one that it was made with.
    bandwidth : float
    """
    log = window.past
    phased = phased_problem(log, estimate, without.problem, request.load_limit)
    if phased is None:
        return None
    solution = solve(phased, tolerance=TOLERANCE)
    phases = good_phases(solution, without)
    if phases is None:
        return None
    placed = at_good_phases(phased, solution.rates)
    longest = float(np.max(1.0 / solution.rates[placed])) if np.any(placed) else 0.0
    origin = window.begin - 2.0 * longest
    start = moment(log, origin)
    times = schedule(
        solution, window.end - origin, phased_method(phases), start=origin if start is None else start
    )
    own = np.flatnonzero(placed[times.source])
    order = own[np.lexsort((times.time[own], times.source[own]))]
    crawls = (times.source[order], origin + times.time[order])
    predicted = predicted_cost(window, phased, solution.rates)
    return replay_partly(
        PHASED, window, without.problem, solution.rates, placed, crawls, bandwidth, predicted
    )

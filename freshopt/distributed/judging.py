"""The certificate of rates in partitions: the all terms added up, as `fo.certify` does in memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.arrays import Array, exact_sum
from freshopt.distributed.finish import Decision, Finished
from freshopt.distributed.piece import Terms
from freshopt.model import FEW_ULP
from freshopt.result import Status
from freshopt.vanishing import VANISHING

MOST = 0.5  # of the cost and of what bandwidth beyond least rates is worth
NEAR = 1e-9  # relative use of bandwidth by which rates may fall short of those that cost nothing


class Needed(NamedTuple):
    """What the least rates use: of the bandwidth, and of each host's limit, shape (H,)."""

    bandwidth: float
    hosts: Array


class Judged(NamedTuple):
    """What is proved about the rates of all partitions; as in `fo.Certificate`."""

    status: Status
    value: float
    bound: float
    gap: float
    relative_gap: float
    used: float
    note: str


def judge(
    found: list[Finished],
    decision: Decision,
    terms: Terms,
    limits: Array,
    use: Array,
    needed: Needed,
    infeasibility: float,
    tolerance: float,
) -> Judged:
    """Add up the certificate of all partitions.

    Parameters
    ----------
    found : list of Finished
        One per partition.
    decision : Decision
    terms : Terms
    limits : ndarray, shape (H,)
    use : ndarray, shape (1+H,)
        Σ cost·ρ of the sources without a limit, then of each limited host.
    needed : Needed
    infeasibility : float
        The largest relative violation of a limit, 0 for a few ulp.
    tolerance : float
    """
    objective = terms.objective
    used, cost = exact_sum(use), exact_sum(one.cost for one in found)
    slack = max(0.0, terms.bandwidth - used)
    unused = float(np.dot(decision.multipliers, np.maximum(0.0, limits - use[1:])))
    own = decision.price * slack if decision.price > 0.0 else 0.0
    gap = exact_sum([own, unused, *(one.terms for one in found)])
    scale = abs(cost) + decision.price * terms.bandwidth + float(np.dot(decision.multipliers, limits))
    proved = math.isfinite(gap) and math.isfinite(cost)
    gap = gap if proved else math.inf
    relative = math.inf if not proved else gap / scale if scale > 0.0 else 0.0 if gap == 0.0 else math.inf
    value = exact_sum(one.value for one in found)
    typical = exact_sum(one.typical for one in found)
    vanishing = proved and cost >= 0.0 >= cost - gap and gap <= VANISHING * typical
    # Rates that cost nothing must be feasible; what hosts allow of them is told by the rates found.
    room = used * (1.0 + NEAR) if len(limits) else terms.bandwidth * (1.0 + FEW_ULP)
    vanishing = vanishing and (gap == 0.0 or exact_sum(one.free for one in found) <= room)
    if proved and gap > 0.0 and not vanishing and (needed.bandwidth > 0.0):
        free = decision.price * max(0.0, terms.bandwidth - needed.bandwidth)
        free += float(np.dot(decision.multipliers, np.maximum(0.0, limits - needed.hosts)))
        share = gap / (abs(cost) + free)  # as in `fo.certify`: most of what is to be decided is not small
        relative = max(relative, share) if share > MOST else relative
    good = (relative <= tolerance or vanishing) and infeasibility <= tolerance
    note = "" if good else f"The certified gap {relative:.2g} exceeds the tolerance {tolerance:g}."
    if infeasibility > tolerance:
        note = f"Limits are exceeded by {infeasibility:.2g} of them."
    return Judged(
        Status.OPTIMAL if good else Status.INACCURATE,
        value,
        value - gap if objective.sense == "minimise" else value + gap,
        gap,
        relative,
        used,
        note,
    )

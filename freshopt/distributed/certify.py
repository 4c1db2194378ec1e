"""Duality-gap certificate of rates over partitioned data.

Terms are added up as in memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.certificates.solution import Status
from freshopt.certificates.zero_optimum import VANISHING
from freshopt.distributed.partition import PartitionedProblem
from freshopt.distributed.write_rates import Decision, Finished
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array, exact_sum

# Share of the cost and of the shadow price of all bandwidth beyond least rates.
MOST = 0.5
# Relative use of bandwidth by which rates may fall short of those that cost nothing.
NEAR = 1e-9


class Needed(NamedTuple):
    """Bandwidth that the lower bounds use: total, and per host.

    `hosts` has shape (H,), one entry per limited host.
    """

    bandwidth: float
    hosts: Array


class Judged(NamedTuple):
    """Certificate of all partitions' rates, as `fo.Certificate`."""

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
    terms: PartitionedProblem,
    limits: Array,
    use: Array,
    needed: Needed,
    infeasibility: float,
    tolerance: float,
) -> Judged:
    """Sum the certificate over all partitions.

    Parameters
    ----------
    found : list of Finished
        One per partition.
    decision : Decision
    terms : PartitionedProblem
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
    # Rates of cost 0 must be feasible; with host limits the use of the rates found decides.
    room = used * (1.0 + NEAR) if len(limits) else terms.bandwidth * (1.0 + FEW_ULP)
    vanishing = vanishing and (gap == 0.0 or exact_sum(one.free for one in found) <= room)
    if proved and gap > 0.0 and not vanishing and (needed.bandwidth > 0.0):
        free = decision.price * max(0.0, terms.bandwidth - needed.bandwidth)
        free += float(np.dot(decision.multipliers, np.maximum(0.0, limits - needed.hosts)))
        share = gap / (abs(cost) + free)  # as in `fo.certify`
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

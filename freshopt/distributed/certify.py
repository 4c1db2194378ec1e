"""Duality-gap certificate of rates over partitioned data.

Terms are added up as in memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.certificates.relative_gap import NOTHING, PricedLimits, resolved, scale_of
from freshopt.certificates.solution import Status
from freshopt.certificates.zero_optimum import VANISHING
from freshopt.distributed.partition import PartitionedProblem
from freshopt.distributed.write_rates import Decision, Finished
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array, exact_sum

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
    source_gaps: Array,
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
    source_gaps : ndarray, shape (1+H,)
        Σ max(0, (ρ̂−ρ)(f'(ρ)−ν)) of the same.
    needed : Needed
    infeasibility : float
        The largest relative violation of a limit, 0 for a few ulp.
    tolerance : float
    """
    better = -1.0 if terms.objective.sense == "minimise" else 1.0
    used, cost = exact_sum(use), exact_sum(one.cost for one in found)
    slack = max(0.0, terms.bandwidth - used)
    unused = decision.multipliers * np.maximum(0.0, limits - use[1:])
    own = decision.price * slack if decision.price > 0.0 else 0.0
    gap = exact_sum([own, *unused, *source_gaps])
    proved = math.isfinite(gap) and math.isfinite(cost)
    gap = gap if proved else math.inf
    amounts = np.append(terms.bandwidth, limits)
    priced = PricedLimits(
        terms.hosts,
        amounts,
        np.append(decision.price, decision.multipliers),
        np.maximum(0.0, amounts - np.append(needed.bandwidth, needed.hosts)),
    )
    lost = exact_sum(one.halving_loss for one in found)
    scale = scale_of(cost, gap, priced.at_stake, lambda: lost)
    relative = resolved(cost, gap, scale, priced, lambda: source_gaps[1:] + unused) if proved else NOTHING
    value = exact_sum(one.value for one in found)
    typical = exact_sum(one.typical for one in found)
    vanishing = proved and cost >= 0.0 >= cost - gap and gap <= VANISHING * typical
    # Rates of cost 0 must be feasible; with host limits the use of the rates found decides.
    room = used * (1.0 + NEAR) if len(limits) else terms.bandwidth * (1.0 + FEW_ULP)
    vanishing = vanishing and (gap == 0.0 or exact_sum(one.free for one in found) <= room)
    good = (relative.beyond_rounding <= tolerance or vanishing) and infeasibility <= tolerance
    shortfall = f"The certified gap {relative.relative:.2g} exceeds the tolerance {tolerance:g}."
    note = " ".join(part for part in ("" if good else shortfall, relative.reason) if part)
    if infeasibility > tolerance:
        note = f"Limits are exceeded by {infeasibility:.2g} of them."
    return Judged(
        Status.OPTIMAL if good else Status.INACCURATE,
        value,
        value + better * gap if proved else better * math.inf,
        gap,
        relative.relative,
        used,
        note,
    )

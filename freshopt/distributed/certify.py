"""Duality-gap certificate of rates over partitioned data.

Terms are added up as in memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.certificates.best_response import limit_term, limit_terms
from freshopt.certificates.relative_gap import NOTHING, PricedLimits, resolved, scale_of
from freshopt.certificates.solution import Status
from freshopt.distributed.partition import PartitionedProblem
from freshopt.distributed.write_rates import Decision, Finished
from freshopt.numerics.arrays import Array, exact_sum


class Needed(NamedTuple):
    """Bandwidth that the lower bounds use: total, and per limited host."""

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
    limits : ndarray, shape (H,)
    use : ndarray, shape (1+H,)
        Σ cost·ρ of the sources without a limit, then of each limited host.
    source_gaps : ndarray, shape (1+H,)
        Σ max(0, (ρ̂−ρ)(f'(ρ)−ν)) of the same.
    infeasibility : float
        The largest relative violation of a limit, 0 for a few ulp.
    """
    better = -1.0 if terms.objective.sense == "minimise" else 1.0
    used, cost = exact_sum(use), exact_sum(one.cost for one in found)
    slack = max(0.0, terms.bandwidth - used)
    unused = limit_terms(decision.multipliers, np.maximum(0.0, limits - use[1:]), limits)
    own = limit_term(decision.price, slack, terms.bandwidth)
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
    if proved:
        relative = relative.unless_nothing(cost, gap, lambda: exact_sum(one.unrefreshed for one in found))
    value = exact_sum(one.value for one in found)
    good = relative.beyond_rounding <= tolerance and infeasibility <= tolerance
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

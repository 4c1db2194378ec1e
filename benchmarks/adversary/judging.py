"""What must hold of a solution, checked in extended precision."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.adversary.case import Case
from benchmarks.adversary.oracle import Oracle
from benchmarks.adversary.special import Wide, wide

# Sums of float64 terms may be off by this share of the sum of their sizes.
ROUNDING = 1e-13
# Sums of rates may exceed a limit by this share of it.
FEASIBLE = 1e-14
TOLERANCE = 1e-6
# Costs below this are none.
NOTHING = 1e-290
# The nested search is trusted where its own bound and cost agree to this share.
PROVED = 1e-12
# Larger cases are judged by the dual bound at freshopt's own prices.
SEARCHED = 300


@dataclass(frozen=True)
class Finding:
    """One condition that a solution violates, and the numbers."""

    kind: str
    words: str


def judge(case: Case) -> tuple[str, list[Finding]]:
    """Solve a case; return what became of it, and what is wrong with that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            solution = case.solve()
    except fo.InfeasibleProblemError as error:
        return "infeasible", _feasible_after_all(case, str(error))
    except fo.FreshoptError as error:
        return "refused", [Finding("refused", str(error))]
    except Exception as error:
        return "crashed", [Finding("crashed", f"{type(error).__name__}: {error}")]
    return solution.status.value, examine(case, solution)


def examine(case: Case, solution: Any) -> list[Finding]:
    """Return what is wrong with a solution."""
    proof, status = solution.certificate, solution.status
    if proof is None:
        if status is fo.Status.INFEASIBLE:
            return _feasible_after_all(case, solution.note)
        good = status is fo.Status.REFUSED or case.solver != "None"
        return [] if good else [Finding("no answer", f"{status.value}: {solution.note}")]
    if not math.isfinite(proof.value) or not np.all(np.isfinite(solution.rates)):
        claimed = status is fo.Status.OPTIMAL or math.isfinite(proof.gap)
        wrong = claimed or case.solver == "None"
        return [Finding("not finite", f"{status.value}, value {proof.value}")] if wrong else []
    judged = case.per_bandwidth()
    rates = wide(solution.rates) if judged is case else case.used(wide(solution.rates))
    return [*_infeasible(judged, rates), *_dishonest(judged, rates, solution)]


def _infeasible(case: Case, rates: Wide) -> list[Finding]:
    oracle = Oracle(case)
    used, found = oracle.cost * rates, []
    outside = np.flatnonzero((rates < case["min_rate"]) | (rates > case.upper))
    if len(outside):
        found.append(Finding("bounds", f"rates outside their bounds: {outside[:5].tolist()}"))
    over = float(np.sum(used) / oracle.bandwidth - 1)
    if over > FEASIBLE:
        found.append(Finding("bandwidth", f"exceeded by {over:.3g} of it"))
    if len(oracle.hosts.limits):
        worst = float(np.max(oracle.hosts.totals(used) / oracle.hosts.limits)) - 1
        if worst > FEASIBLE:
            found.append(Finding("host limit", f"exceeded by {worst:.3g} of it"))
    return found


def _dishonest(case: Case, rates: Wide, solution: Any) -> list[Finding]:
    """Compare value, bound, gap and status with the adversary's own."""
    oracle, proof = Oracle(case), solution.certificate
    price = wide(solution.price)
    mu = wide([solution.host_prices[name] for name in case.limits])
    each = case.costs(rates)
    cost = np.sum(each)
    half = abs(case.costs(rates / 2))
    # Terms may cancel, or cost nothing here: what they are made of is larger.
    size = np.sum(abs(each)) + np.sum(half[np.isfinite(half)])
    paid = price * oracle.bandwidth + np.sum(mu * oracle.hosts.limits)
    noise = ROUNDING * (size + paid) + NOTHING
    found = []
    offset = abs(case.value(wide(0.0)))  # freshness is a difference of two sums
    off = abs(case.value(cost) - proof.value)
    if off > noise + ROUNDING * offset:
        found.append(Finding("value", f"{proof.value!r} instead of {float(case.value(cost))!r}"))
    if not (price >= 0 and np.all(mu >= 0)):
        return [*found, Finding("price", f"prices {float(price)}, {mu.astype(float).tolist()}")]
    gap = cost - oracle.dual(price, mu)
    if gap > proof.gap * (1 + 1e-9) + noise:
        found.append(Finding("gap", f"{proof.gap:.3g}, but {float(gap):.3g} at its own prices"))
    lost, scale = gap, abs(cost) + paid
    if len(case) <= SEARCHED:
        least, upper, _ = oracle.least_cost()
        if abs(upper - least) > PROVED * (abs(upper) + size + paid) + NOTHING:
            return [*found, Finding("oracle", f"bound {float(least)!r}, cost {float(upper)!r}")]
        lost = cost - least
        if lost < -noise - 1e-15 * float(np.sum(case["importance"])):  # a kink's rate is off by an ulp
            found.append(Finding("oracle", f"cost {float(cost)!r} below the least, {float(least)!r}"))
        if cost - proof.gap > least + noise + 1e-9 * proof.gap:
            found.append(Finding("bound", f"gap {proof.gap:.3g}, but {float(lost):.3g} from the least cost"))
    true = lost / scale if scale > 0 else lost
    weights = float(np.sum(case["importance"]))
    small = lost <= 1e-12 * (weights + float(size)) or lost <= noise
    if true > proof.relative_gap * (1 + 1e-6) + 1e-12 and not small:
        found.append(Finding("relative gap", f"{proof.relative_gap:.3g} instead of {float(true):.3g}"))
    if solution.status is fo.Status.OPTIMAL and true > TOLERANCE * (1 + 1e-6) and not small:
        found.append(Finding("status", f"optimal, but off by {float(true):.3g}"))
    if solution.status is not fo.Status.OPTIMAL and case.solver == "None":
        found.append(
            Finding(
                "not proved", f"{solution.status.value}: {proof.relative_gap:.3g}; truly {float(true):.3g}"
            )
        )
    return found


def _feasible_after_all(case: Case, words: str) -> list[Finding]:
    """Return a finding if rates of finite cost exist, by a margin."""
    case = case.per_bandwidth()
    lower, upper = case["min_rate"], case.upper
    oracle = Oracle(case)
    needed = oracle.cost * lower
    room = [float(np.sum(needed) / oracle.bandwidth)]
    room += (oracle.hosts.totals(needed) / oracle.hosts.limits).tolist()
    with np.errstate(all="ignore"):
        closed = np.any((upper == 0) & ~np.isfinite(case.costs(np.zeros_like(upper))))
    if max(room) < 1 - 1e-9 and np.all(lower <= upper) and not closed:
        return [Finding("infeasible", f"feasible with {1 - max(room):.3g} to spare, but: {words}")]
    return []


def same_answer(one: Any, other: Any, factor: float = 1.0) -> Finding | None:
    """Compare two certified solutions of one problem in other units or another order."""
    if one.status is not other.status:
        return Finding("other status", f"{one.status.value} and {other.status.value}")
    a, b = one.certificate, other.certificate
    if a is None or b is None or not (math.isfinite(a.value) and math.isfinite(b.value)):
        return None
    # A budget is filled to a few ulp, and those have their price.
    scale = abs(a.value) * factor + abs(b.value) + b.price * other.problem.bandwidth
    apart = abs(a.value * factor - b.value)
    if apart > (a.gap * factor + b.gap) * (1 + 1e-6) + 1e-11 * scale:
        return Finding("other value", f"{a.value * factor!r} and {b.value!r}")
    return None

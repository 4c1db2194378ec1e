"""Duality gap of many rates from one compiled read of them.

`freshopt.compiled.proof_functions` bounds the distance to a best response from the marginal value at the rate
alone, rounding included; so cost, bandwidth used, bounds and gap come from one pass. The bound is looser than
that of `freshopt.certificates.duality_gap` by a factor of about 2 for rates from anywhere, and as both are
squares of errors, that says nothing against rates that a price has made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.certificates.best_response import beside_terms, limit_term
from freshopt.certificates.duality_gap import Gap
from freshopt.compiled.proof_columns import INFLATION, Proof, ProofColumns, enabled
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, as_float64, chunks, exact_sum, read_only, sum_of_one_sign
from freshopt.separable.kernel import Kernel, Numerics, Quick
from freshopt.separable.kernel_columns import kernel_columns, kinds_of, tabled_columns

# Returns the sums of a solver's rates at a price.
Prover: TypeAlias = Callable[[float], Proof]


@dataclass(frozen=True, slots=True, eq=False)
class ProvedGap:
    """Duality gap of feasible rates at given prices.

    - `gap`: Cost, value and slacks of the rates.
    - `gap_bound`: The bound; inf where it has none.
    """

    gap: Gap
    gap_bound: float


def proof_columns(problem: Problem) -> ProofColumns | None:
    """Return the columns of a problem for compiled proofs, or None.

    None means that an objective has no cell for them, or that NumPy is faster.
    """
    numerics, own = problem.numerics, (problem.sources.refresh_cost, problem.lower, problem.upper)
    tabled = tabled_columns(ProofColumns, numerics, *own, enabled)
    columns = tabled or kernel_columns(ProofColumns, numerics, *own)
    return columns if columns is not None and enabled(columns.n, columns.silent, columns.announced) else None


def proved_gap(
    problem: Problem, rates: Array, price: float, host_prices: Array, prove: Prover | None = None
) -> ProvedGap | None:
    """Return the duality gap of rates, or None.

    None means that there is no compiled proof, or that the rates are not feasible: not numbers, outside their
    bounds, or beyond a limit by more than rounding.

    - `rates` (n,)
    - `price`: ≥ 0, finite.
    - `host_prices` (H,): ≥ 0, on top of `price`.
    - `prove`: Makes the same sums of the same rates elsewhere, where no host is limited.
    """
    numerics, hosts = problem.numerics, problem.hosts
    if numerics is None or len(host_prices) != len(hosts):
        return None
    if prove is not None:
        return gap_of_proof(problem, rates, price, host_prices, prove(price))
    if isinstance(numerics, Kernel) and numerics.quick is not None:
        return _quickly_proved(problem, numerics, numerics.quick, rates, price, host_prices)
    columns = proof_columns(problem)
    # Loops read where arrays say: of another length, or kind, nothing is read here.
    if columns is None or rates.shape != (columns.n,) or rates.dtype != np.float64:
        return None
    given = read_only(np.ascontiguousarray(rates))
    proof = (
        columns.prove_hosts(given, price, host_prices, hosts.codes)
        if len(hosts)
        else columns.prove(given, price)
    )

    def halved() -> float:
        fewer = np.where(problem.lower < problem.upper, 0.5 * rates, rates)
        return columns.prove(read_only(fewer), price).cost - proof.cost

    return gap_of_proof(problem, rates, price, host_prices, proof, halved)


def _quickly_proved(
    problem: Problem, kernel: Kernel, quick: Quick, rates: Array, price: float, host_prices: Array
) -> ProvedGap | None:
    """Return the gap of feasible rates by a kernel's own proof.

    Sources that it does not know are proved by one more marginal.
    """
    cost, lower, upper, hosts = problem.sources.refresh_cost, problem.lower, problem.upper, problem.hosts
    if rates.shape != cost.shape or not bool(np.all((rates >= lower) & (rates <= upper))):
        return None
    each = hosts.broadcast_to_sources(price + host_prices, price) if len(hosts) else price
    paid = cost * each
    found = quick.prove(rates, paid, lower, upper)
    rest = np.flatnonzero(np.isnan(found[0]))
    if len(rest):
        few, own, typical = kernel.take(rest), rates[rest], as_float64(kernel.parameters[0])[rest]
        slope = few.marginal(own)
        gaps = beside_terms(few, own, slope, paid[rest], lower[rest], upper[rest], typical)
        found[:, rest] = few.cost(own), gaps, 0.5 * slope * own
    total, gap, lost = (exact_sum(float(np.sum(one[part])) for part in chunks(len(rates))) for one in found)
    used = exact_sum(sum_of_one_sign(cost[part] * rates[part]) for part in chunks(len(rates)))
    by_host = hosts.totals(cost * rates) if len(hosts) else np.zeros(0)
    proof = Proof(total, 0.0, used, INFLATION * gap, 0.0, by_host)
    return gap_of_proof(problem, rates, price, host_prices, proof, lambda: lost)


def gap_of_proof(
    problem: Problem,
    rates: Array,
    price: float,
    host_prices: Array,
    proof: Proof,
    halved: Callable[[], float] | None = None,
) -> ProvedGap | None:
    """Return the duality gap of rates from their sums, or None."""
    numerics, hosts = problem.numerics, problem.hosts
    if numerics is None:
        return None
    most = 1.0 + FEW_ULP
    if proof.outside > 0.0 or not proof.used <= problem.bandwidth * most:
        return None
    slack, host_slack = max(0.0, problem.bandwidth - proof.used), proof.by_host
    if len(hosts):
        if not bool(np.all(proof.by_host <= hosts.limits * most)):
            return None
        host_slack = np.maximum(0.0, hosts.limits - proof.by_host)
    value = proved_value(problem, numerics, proof)
    gap = Gap(problem, rates, numerics, proof.cost, value, slack, host_slack, None, halved=halved)
    own = limit_term(price, slack, problem.bandwidth)
    gap_bound = (exact_sum(gap.limit_terms(price, host_prices)) if len(hosts) else own) + proof.gap
    gap_bound += problem.objective.interpolation_error(problem.sources, gap.cost)
    return ProvedGap(gap, gap_bound if math.isfinite(gap_bound) else math.inf)


def proved_value(problem: Problem, numerics: Numerics, proof: Proof) -> float:
    """Return the objective at a proof's rates, in the declared sense."""
    gains = problem.objective.sense == "maximise"
    gains = gains and all(getattr(each, "unit_gain", None) is not None for each in kinds_of(numerics))
    return proof.gain if gains else problem.objective.value_from_cost(proof.cost, problem.sources)

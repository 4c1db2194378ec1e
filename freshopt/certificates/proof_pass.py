"""Duality gap of many rates from one compiled read of them.

`freshopt.compiled.proof_functions` bounds the distance to a best response from the marginal value at the rate
alone, rounding included; so cost, bandwidth used, bounds and gap come from one pass. The bound is looser than
that of `freshopt.certificates.duality_gap` by a factor of about 2 for rates from anywhere, and as both are
squares of errors, that says nothing against rates that a price has made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.compiled.columns import column
from freshopt.compiled.proof_columns import ProofColumns, enabled
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, read_only
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics


@dataclass(frozen=True, slots=True, eq=False)
class ProvedGap:
    """Duality gap of feasible rates at given prices.

    Attributes
    ----------
    gap : Gap
        Cost, value and slacks of the rates.
    short : float
        The bound; inf where it has none.
    """

    gap: Gap
    short: float


def proof_columns(problem: Problem) -> ProofColumns | None:
    """Return the columns of a problem for compiled proofs, or None.

    None means that an objective has no cell for them, or that NumPy is faster.
    """
    numerics = problem.numerics
    mixed = isinstance(numerics, MixedNumerics)
    silent = numerics.silent_sources if isinstance(numerics, MixedNumerics) else numerics
    announced = numerics.signalled_sources if isinstance(numerics, MixedNumerics) else None
    if not isinstance(silent, Kernel) or silent.unit_proof is None:
        return None
    parameters, other = _parameters(silent), None
    if announced is not None:
        if not isinstance(announced, Kernel) or announced.unit_proof is None:
            return None
        theirs = _parameters(announced)
        if len(theirs) != len(parameters) or any(a is not b for a, b in zip(theirs, parameters, strict=True)):
            return None
        other = announced.unit_proof
    n = len(problem.sources)
    if not enabled(n, silent.unit_proof, other):
        return None
    return ProofColumns(
        n,
        silent.unit_proof,
        other,
        numerics.signalled if mixed and isinstance(numerics, MixedNumerics) else False,
        column(silent.importance),
        tuple(column(parameter) for parameter in parameters),
        column(problem.sources.refresh_cost),
        column(problem.lower),
        column(problem.upper),
    )


def proved_gap(problem: Problem, rates: Array, price: float, host_prices: Array) -> ProvedGap | None:
    """Return the duality gap of rates, or None.

    None means that there is no compiled proof, or that the rates are not feasible: not numbers, outside their
    bounds, or beyond a limit by more than rounding.

    Parameters
    ----------
    problem : Problem
    rates : ndarray, shape (n,)
    price : float
        ≥ 0, finite.
    host_prices : ndarray, shape (H,)
        ≥ 0, on top of `price`.
    """
    columns, numerics, hosts = proof_columns(problem), problem.numerics, problem.hosts
    if columns is None or numerics is None:
        return None
    # Loops read where arrays say: of another length, or kind, nothing is read here.
    if rates.shape != (columns.n,) or rates.dtype != np.float64 or len(host_prices) != len(hosts):
        return None
    given = read_only(np.ascontiguousarray(rates))
    proof = (
        columns.prove_hosts(given, price, host_prices, hosts.codes)
        if len(hosts)
        else columns.prove(given, price)
    )
    most = 1.0 + FEW_ULP
    within = proof.used <= problem.bandwidth * most and bool(np.all(proof.by_host <= hosts.limits * most))
    if proof.outside > 0.0 or not within:
        return None
    slack = max(0.0, problem.bandwidth - proof.used)
    host_slack = np.maximum(0.0, hosts.limits - proof.by_host)
    gains = problem.objective.sense == "maximise" and _gains(numerics)
    value = proof.gain if gains else problem.objective.value_from_cost(proof.cost, problem.sources)
    priced = (price * slack if price > 0.0 else 0.0) + float(np.dot(host_prices, host_slack))
    short = priced + proof.gap
    gap = Gap(problem, rates, numerics, proof.cost, value, slack, host_slack, None)
    return ProvedGap(gap, short if math.isfinite(short) else math.inf)


def _gains(numerics: Numerics) -> bool:
    """Return whether the numerics know what is gained."""
    if isinstance(numerics, MixedNumerics):
        return _gains(numerics.silent_sources) and _gains(numerics.signalled_sources)
    return isinstance(numerics, Kernel) and numerics.unit_gain is not None


def _parameters(kernel: Kernel) -> tuple[Array, ...]:
    return kernel.parameters if kernel.proof_parameters is None else kernel.proof_parameters

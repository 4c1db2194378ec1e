"""Water-filling on a device: price, rates and proof."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from freshopt.certificates.best_response import limit_term
from freshopt.certificates.certificate import Certificate
from freshopt.certificates.relative_gap import PricedLimits, RelativeGap, resolved, scale_of
from freshopt.certificates.solution import Status
from freshopt.certificates.solver_protocol import SolveOptions
from freshopt.compiled.proof_columns import Proof
from freshopt.cuda.bandwidth_correction import meet_bandwidth
from freshopt.cuda.device import DeviceArray, empty
from freshopt.cuda.device_columns import DeviceColumns
from freshopt.cuda.device_problem import DeviceProblem
from freshopt.cuda.device_solution import DeviceSolution
from freshopt.cuda.price_search import TINY_PRICE, find_prices
from freshopt.errors import InfeasibleProblemError
from freshopt.modelling.problem import FEW_ULP

NOTHING_FREE = "min_rate uses up the bandwidth {0:g}, and devices find no price then; use WaterFilling()"
INFINITE = "the cost or the bound is infinite at these rates."
OUTSIDE = "rates are outside their bounds or the bandwidth, as float32 may be; use dtype='float64'."


@dataclass(frozen=True, slots=True, eq=False)
class DeviceAnswer:
    """Rates on the device and their price, not yet proved.

    - `rates` device array (n,): None where the device has no answer; `note` says why.
    """

    rates: DeviceArray | None
    price: float
    passes: int
    note: str = ""


def fill_on_device(
    columns: DeviceColumns, bandwidth: float, dtype: str, start: float | None, unit: str
) -> DeviceAnswer:
    """Return the dual price of columns and their rates.

    - `dtype`: In which rates are kept.
    - `start`: A price to start from.
    - `unit`: The time unit, for messages.
    """
    least = columns.least()
    if least > bandwidth * (1.0 + FEW_ULP):
        raise InfeasibleProblemError(
            f"lower bounds need {least:.6g} refreshes/{unit} but bandwidth is {bandwidth:.6g} (short by "
            f"{least - bandwidth:.3g}). Raise it to >= {least:.6g} or lower min_rate."
        )
    if least >= bandwidth * (1.0 - FEW_ULP):
        return DeviceAnswer(None, math.nan, 1, NOTHING_FREE.format(bandwidth))
    prices = find_prices(columns, bandwidth, start)
    rates = empty(columns.n, dtype)
    if prices.high == 0.0:
        columns.fill(TINY_PRICE, rates)
        return DeviceAnswer(rates, 0.0, prices.passes + 2)
    if prices.low == prices.high:
        price, used = prices.low, columns.fill(prices.low, rates)[0]
        passes = prices.passes + 2
    else:
        generous, frugal, _ = columns.mix(prices.low, prices.high, 0.0, rates)
        share = (bandwidth - frugal) / (generous - frugal) if generous > frugal else 0.0
        share = min(1.0, max(0.0, share))
        used = columns.mix(prices.low, prices.high, share, rates)[2]
        price, passes = prices.high + share * (prices.low - prices.high), prices.passes + 3
    meet_bandwidth(columns, rates, bandwidth - used)
    return DeviceAnswer(rates, price, passes)


def solve_on_device(
    problem: DeviceProblem, solver: object, dtype: str, options: SolveOptions
) -> DeviceSolution:
    """Solve a problem on a device, and certify its rates there."""
    begun = time.perf_counter()
    columns = DeviceColumns.of(problem.columns, problem.proof, dtype)
    price, value, status, certificate, note = math.nan, math.nan, None, None, ""
    try:
        answer = fill_on_device(columns, problem.bandwidth, dtype, options.warm_start, problem.time_unit)
    except InfeasibleProblemError as error:
        answer, status = DeviceAnswer(None, math.nan, 1, str(error)), Status.INFEASIBLE
    seconds = time.perf_counter() - begun
    if answer.rates is None:
        status, note = status or Status.REFUSED, answer.note
    else:
        price = answer.price
        proof = columns.prove(answer.rates, price or TINY_PRICE)
        value = proof.gain if problem.objective.sense == "maximise" else proof.cost
        certificate = _certificate(problem, columns, answer, proof, value)
        status, note = _verdict(certificate, options)
        if not options.certify:
            status, certificate, note = Status.OPTIMAL, None, ""
    return DeviceSolution(
        problem, status, answer.rates, value, price, certificate, answer.passes, seconds, solver, note
    )


def _certificate(
    problem: DeviceProblem, columns: DeviceColumns, answer: DeviceAnswer, proof: Proof, value: float
) -> Certificate:
    """Return the certificate that the sums of a proof make."""
    price, bandwidth = answer.price, problem.bandwidth
    within = proof.outside == 0.0 and proof.used <= bandwidth * (1.0 + FEW_ULP)
    # No cost is below 0.
    lost = limit_term(price or TINY_PRICE, max(0.0, bandwidth - proof.used), bandwidth) + proof.gap
    gap_bound = lost if proof.cost != 0.0 else 0.0
    proved = within and math.isfinite(gap_bound) and math.isfinite(proof.cost)
    better = -1.0 if problem.objective.sense == "minimise" else 1.0
    found = RelativeGap(math.inf, math.inf, INFINITE if within else OUTSIDE)
    if proved:
        free = np.array([bandwidth - columns.least()])
        limits = PricedLimits((), np.array([bandwidth]), np.array([price]), free)

        def halving() -> float:
            return columns.prove(answer.rates, price or TINY_PRICE, 0.5).cost - proof.cost

        scale = scale_of(proof.cost, gap_bound, limits.at_stake, halving)
        found = resolved(proof.cost, gap_bound, scale, limits, lambda: np.zeros(0))
        found = found.unless_nothing(proof.cost, gap_bound, lambda: proof.cost + halving())
    return Certificate(
        value=value,
        bound=value + better * gap_bound if proved else better * math.inf,
        gap=gap_bound if proved else math.inf,
        relative_gap=found.relative,
        beyond_rounding=found.beyond_rounding,
        infeasibility=0.0 if within else max(0.0, proof.used / bandwidth - 1.0),
        price=price,
        host_prices={},
        rates=answer.rates,  # type: ignore[arg-type] # on the device
        reason=found.reason,
        vanishing=found.vanishing,
    )


def _verdict(certificate: Certificate, options: SolveOptions) -> tuple[Status, str]:
    """Return the status that a certificate supports, and a sentence."""
    if options.met_by(certificate):
        return Status.OPTIMAL, certificate.reason
    if not math.isfinite(certificate.gap):
        return Status.INACCURATE, f"Nothing is proved: {certificate.reason}"
    gap, most = certificate.relative_gap, options.tolerance
    return Status.INACCURATE, f"the certified relative gap {gap:.2g} exceeds the tolerance {most:g}."

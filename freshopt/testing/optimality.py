"""`assert_optimal`: certify rates from any solver.

A failure is explained in words: gap, infeasibility, and the sources that lose most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.certificates.certificate import Certificate, certify
from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.row_gap import RowGap
from freshopt.errors import ObjectiveError, SourceDataError, expect, list_offenders
from freshopt.modelling.constraints.usages import variables_of
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, as_number, as_vector, total
from freshopt.separable.program import Program

# Sources named in a message, those with the largest terms of the gap.
LISTED = 3
# Share of the gap below which a term is not named.
NAMED = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """Judgement of given rates by their certificate.

    - `certificate`: Of the repaired rates.
    - `feasible`, `optimal`: Whether infeasibility, and the certified relative gap, are within the tolerance.
    - `sentence`: The shortfall in words: gap, infeasibility, and the sources that lose most. Empty if there
      is none.
    """

    certificate: Certificate
    feasible: bool
    optimal: bool
    sentence: str


def assert_optimal(problem: Problem, rates: npt.ArrayLike, tolerance: float = 1e-6) -> None:
    """Raise unless rates are proved optimal and feasible.

    Parameters
    ----------
    problem : Problem
    rates : array_like, shape (n,)
        Refreshes per time unit, from any solver. Of a signalled source: p·Δ.
    tolerance : float
        Relative; for the certified gap and for the largest violation of a bound or limit. A negative rate
        violates its bound entirely, however small it is: clip what an interior-point method returns.

    Raises
    ------
    AssertionError
        With the certified gap, the infeasibility, and the sources that lose most; or with the reason why
        these are no rates.
    ObjectiveError
        If nothing can be proved, because the objective has an atom without derivative rules.

    Notes
    -----
    The gap is the certificate's bound F* − F(ρ) ≤ Σ_k max(0, (ρ̂_k−ρ_k)(f_k'(ρ_k)−ν_k)) + λ(B−Σ cost·ρ) +
    Σ_h μ_h(L_h−S_h) of the repaired rates, at the prices for which it is smallest, or the dual function's
    where that is less. A source loses its term.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([1.0, 4.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=3.0)
    >>> assert_optimal(problem, [1.0, 2.0])
    >>> assert_optimal(problem, [1.25, 1.75], tolerance=1e-3)  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    AssertionError: not proved optimal to 0.001: the certified gap is 0.086 (relative 0.014), the
    infeasibility 0. Most is lost at 'a' (rate 1.25 is too high, 58 % of the gap), 'b' (rate 1.75 is too low,
    42 % of the gap).
    """
    try:
        judgement = judge(problem, rates, tolerance)
    except SourceDataError as error:
        raise AssertionError(f"this cannot be judged: {error}") from error
    if judgement.sentence:
        raise AssertionError(judgement.sentence)


def judge(problem: Problem, rates: npt.ArrayLike, tolerance: float) -> Judgement:
    """Certify rates and describe any shortfall in words.

    - raises SourceDataError if the rates are not finite numbers, one per source.
    - raises ObjectiveError if nothing can be proved.
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    tolerance = as_number(tolerance, "tolerance", "Pass a relative gap >= 0, such as 1e-6.")
    rates = as_vector(rates, len(problem.sources), "rates")
    if problem.couplings:
        raise ObjectiveError(f"nothing can be proved about {problem!r}: {problem.couplings[0]}")
    solved = problem.per_bandwidth or problem
    if solved.numerics is None and not isinstance(problem.objective, Worst):
        raise ObjectiveError(f"nothing can be proved about {problem!r}: {problem.unknown_atom}")
    if not tolerance >= 0.0:
        raise SourceDataError(f"tolerance is {tolerance}. Pass a relative gap >= 0, such as 1e-6.")
    certificate = certify(problem, rates)
    feasible, optimal = certificate.infeasibility <= tolerance, certificate.confirms(tolerance)
    if feasible and optimal:
        return Judgement(certificate, feasible, optimal, "")
    what = (
        "not proved optimal"
        if feasible
        else "not feasible"
        if optimal
        else "neither feasible nor proved optimal"
    )
    numbers = (
        f"the certified gap is {certificate.gap:.2g} (relative {certificate.relative_gap:.2g}), "
        f"the infeasibility {certificate.infeasibility:.2g}"
    )
    parts = [f"{what} to {tolerance:g}: {numbers}."]
    if certificate.reason and np.isfinite(certificate.gap):
        parts.append(certificate.reason)
    if not feasible:
        parts.append(f"Violated: {violations(problem, rates, tolerance)}.")
    if not optimal:
        parts.append(losses(problem, certificate))
    return Judgement(certificate, feasible, optimal, " ".join(part for part in parts if part))


def violations(problem: Problem, rates: Array, tolerance: float) -> str:
    """Name the violated bounds and limits, worst first."""
    label = problem.sources.label
    used, hosts = problem.used_by_source(np.clip(rates, problem.lower, problem.upper)), problem.hosts
    found: list[tuple[float, str]] = []
    tiny = np.finfo(np.float64).tiny
    for word, bound, off in (
        ("below its lower bound", problem.lower, problem.lower - rates),
        ("above its upper bound", problem.upper, rates - problem.upper),
    ):
        for k in np.flatnonzero(off > 0.0):
            size = float(off[k] / max(abs(bound[k]), abs(rates[k]), tiny))
            found.append((size, f"{label(k)} has rate {rates[k]:.6g}, {word} {bound[k]:.6g}"))
    if problem.program is not None:
        found += violated_rows(problem, problem.program, rates)
    else:
        sums = zip(hosts.names, hosts.limits, hosts.totals(used), strict=True)
        totals = [(f"host {name!r} uses", limit, amount) for name, limit, amount in sums]
        totals.append(("the rates use", problem.bandwidth, total(used)))
        for who, limit, amount in totals:
            found.append((float(amount / limit - 1.0), f"{who} {amount:.6g} of {limit:.6g}"))
    worst = sorted((item for item in found if item[0] > max(tolerance, FEW_ULP)), key=lambda item: -item[0])
    return list_offenders(text for _, text in worst)


def losses(problem: Problem, certificate: Certificate) -> str:
    """Name the largest terms of the certified gap."""
    if problem.program is not None:
        return row_losses(problem, problem.program, certificate)
    solved, rates, label = problem, certificate.rates, problem.sources.label
    if problem.per_bandwidth is not None:
        solved, rates = problem.per_bandwidth, problem.used_by_source(rates)
    if solved.numerics is None or not certificate.gap < np.inf:
        costs = np.zeros(0) if solved.numerics is None else solved.numerics.cost(rates)
        endless = np.flatnonzero(~np.isfinite(costs))
        names = list_offenders(f"{label(k)} at rate {certificate.rates[k]:.4g}" for k in endless)
        what = "The cost, or the bound on it, is infinite at these rates"
        return f"{what}: {names or 'no price bounds it'}."
    gap = Gap.of(solved, rates, solved.numerics)
    hosts = problem.hosts
    extra = np.array([certificate.host_prices[name] for name in hosts.names])
    each = np.broadcast_to(certificate.price, certificate.rates.shape)
    each = hosts.broadcast_to_sources(certificate.price + extra, certificate.price) if len(hosts) else each
    terms, paid = gap.source_gaps(each), solved.sources.refresh_cost * each
    found: list[tuple[float, str]] = []
    for k in np.argsort(-terms)[:LISTED]:
        off = "low" if gap.slope[k] > paid[k] else "high"
        found.append((float(terms[k]), f"{label(k)} (rate {certificate.rates[k]:.4g} is too {off})"))
    found.append((certificate.price * gap.slack, f"{gap.slack:.3g} of the bandwidth (not used)"))
    for name, price, slack in zip(hosts.names, extra, gap.host_slack, strict=True):
        found.append((float(price * slack), f"{slack:.3g} of the limit of host {name!r} (not used)"))
    # The terms are those of the tangent bound, which may exceed the certified one: only shares are told.
    whole = float(np.sum(terms)) + certificate.price * gap.slack + float(np.sum(extra * gap.host_slack))
    return _largest(found, whole)


def _largest(found: list[tuple[float, str]], whole: float) -> str:
    """Name the largest of some terms of a gap, with their shares."""
    largest = [item for item in sorted(found, key=lambda item: -item[0])[:LISTED] if item[0] > NAMED * whole]
    named = [f"{text[:-1]}, {100.0 * term / whole:.0f} % of the gap)" for term, text in largest]
    return f"Most is lost at {', '.join(named)}." if named else ""


def violated_rows(problem: Problem, program: Program, rates: Array) -> list[tuple[float, str]]:
    """Return each row's relative violation, with a sentence; ties come first."""
    bundles, rows = problem.bundles, program.rows
    own = variables_of(problem, rates)
    found: list[tuple[float, str]] = []
    if bundles is not None:
        apart = np.abs(bundles.of_sources(own) - rates) / np.maximum(own.max(), np.finfo(float).tiny)
        worst = int(np.argmax(apart))
        found.append((float(apart[worst]), f"{problem.sources.label(worst)} is apart from its bundle"))
    if program.level is not None:
        rows = rows.only(program.level == 0.0)
    with np.errstate(all="ignore"):
        used = rows.used(np.clip(own, program.lower, program.upper))
        over = (used - rows.limits) / np.maximum(np.abs(rows.limits), np.finfo(float).tiny)
    shown, limits = rows.declared(used), rows.declared(rows.limits)
    found += [
        (float(over[j]), f"{label} is {shown[j]:.6g}, and its limit {limits[j]:.6g}")
        for j, label in enumerate(rows.labels)
    ]
    return found


def row_losses(problem: Problem, program: Program, certificate: Certificate) -> str:
    """Name the largest terms of a gap under declared rows."""
    multipliers, rows = certificate.multipliers, certificate.rows
    if multipliers is None or rows is None or not certificate.gap < np.inf:
        return f"Nothing is proved: {certificate.reason or 'the cost, or the bound on it, is infinite.'}"
    own = variables_of(problem, certificate.rates)
    gap = RowGap.of(program, own)
    terms = gap.source_terms(multipliers)
    found = [
        (float(terms[k]), f"{_variable(problem, k)} (rate {own[k]:.4g})")
        for k in np.argsort(-terms)[:LISTED].tolist()
    ]
    found += [(row.gap_share * certificate.gap, f"{row.label} ({row.slack:.3g} not used)") for row in rows]
    return _largest(found, certificate.gap)


def _variable(problem: Problem, k: int) -> str:
    """Return the label of a source, bundle's first one, or usage."""
    bundles = problem.bundles
    count = len(problem.sources) if bundles is None else len(bundles)
    if k >= count:  # the rows of usages are the last
        return problem.row_labels[k - count - sum(map(len, problem.usages))]
    return problem.sources.label(k if bundles is None else int(bundles.order[bundles.first[k]]))

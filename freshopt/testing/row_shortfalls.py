"""Declared rows that rates violate, and their gaps, in words."""

from __future__ import annotations

import numpy as np

from freshopt.certificates.certificate import Certificate
from freshopt.certificates.row_gap import RowGap
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

# Terms named in a message, the largest ones.
LISTED = 3
# Share of the gap below which a term is not named.
NAMED = 0.01


def violated_rows(problem: Problem, program: Program, rates: Array) -> list[tuple[float, str]]:
    """Return each row's relative violation, with a sentence; ties come first."""
    bundles, rows = problem.bundles, program.rows
    own = rates if bundles is None else bundles.common(rates)
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
    own = certificate.rates if problem.bundles is None else problem.bundles.common(certificate.rates)
    gap = RowGap.of(program, own)
    terms = gap.source_terms(multipliers)
    found = [
        (float(terms[k]), f"{_variable(problem, k)} (rate {own[k]:.4g})")
        for k in np.argsort(-terms)[:LISTED].tolist()
    ]
    found += [(row.gap_share * certificate.gap, f"{row.label} ({row.slack:.3g} not used)") for row in rows]
    largest = [
        item
        for item in sorted(found, key=lambda item: -item[0])[:LISTED]
        if item[0] > NAMED * certificate.gap
    ]
    named = [f"{text[:-1]}, {100.0 * term / certificate.gap:.0f} % of the gap)" for term, text in largest]
    return f"Most is lost at {', '.join(named)}." if named else ""


def _variable(problem: Problem, k: int) -> str:
    """Return the label of a source, or of a bundle's first one."""
    bundles = problem.bundles
    return problem.sources.label(k if bundles is None else int(bundles.order[bundles.first[k]]))

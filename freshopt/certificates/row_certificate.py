"""`certify_rows`: duality-gap certificates under declared constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.relative_gap import NOTHING, RelativeGap
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_multipliers import row_multipliers
from freshopt.certificates.row_repair import directions, excess, repair_rows
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.strict_interior import interior_points
from freshopt.certificates.vanishing_cost import cost_without_refreshes
from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, as_number, read_only
from freshopt.separable.program import Program


class RowProof(NamedTuple):
    """What a certificate says of rates under declared constraints.

    Attributes
    ----------
    rates : ndarray, shape (n,)
        Of sources, repaired.
    value : float
        In the declared sense.
    gap : float
        inf where nothing is proved.
    multipliers : ndarray, shape (m,)
    """

    rates: Array
    infeasibility: float
    value: float
    gap: float
    relative: RelativeGap
    multipliers: Array
    rows: RowTable | None


def prove_rows(
    problem: Problem,
    program: Program,
    given: Array,
    multipliers: Array | None = None,
    path: Sequence[Array] = (),
) -> RowProof:
    """Repair rates of sources and bound their duality gap.

    Parameters
    ----------
    program : Program
        The problem's.
    given : ndarray, shape (n,)
    multipliers : ndarray, shape (m,), optional
        Dual variables y ≥ 0; None searches for those with a small bound.
    path : sequence of ndarray
        Strictly feasible rates of the program's variables, for repairs.
    """
    bundles = problem.bundles
    own = given if bundles is None else bundles.common(given)
    untied = 0.0 if bundles is None else _relative_distance(given, bundles.of_sources(own))
    repaired = repair_rows(program, own, path)
    if repaired is None:
        return _unrepaired(problem, program, given)
    gap = RowGap.of(program, repaired.rates)
    y = row_multipliers(gap) if multipliers is None else multipliers
    short = gap.at(y)
    proved, nothing = math.isfinite(short) and math.isfinite(gap.cost), NOTHING
    wrong = gap.contradiction() if proved else None
    if wrong is not None:
        plain = len(program) == len(problem.sources)
        name = problem.sources.label(wrong.source) if plain else f"bundle {wrong.source}"
        proved, nothing = False, replace(NOTHING, reason=wrong.sentence(name))
    relative = relative_row_gap(gap, y, short, lambda: _central(program, repaired.rates))
    numerics = program.numerics
    if numerics is not None and program.level is None:
        relative = relative.unless_nothing(
            gap.cost, short, lambda: cost_without_refreshes(numerics, repaired.rates)
        )
    kept = repaired.infeasibility == 0.0 and untied == 0.0
    mended = repaired.rates if bundles is None else bundles.of_sources(repaired.rates)
    rates = given if kept else read_only(mended)
    return RowProof(
        rates,
        max(repaired.infeasibility, untied),
        _value(problem, rates, gap.cost),
        short if proved else math.inf,
        relative if proved else nothing,
        gap.admissible(y),
        RowTable.of(gap, y, short),
    )


def _central(program: Program, rates: Array) -> Array | None:
    """Return central rates where rows oppose each other, else None.

    Rows that nearly conflict have prices of any size, in whose scale a loss would not show.
    """
    if program.level is not None:
        return None
    rising, falling = directions(program, rates)
    if bool(np.all(rising)) or bool(np.all(falling)):
        return None
    inside = interior_points(program)
    return inside[-1] if inside else None


def _value(problem: Problem, rates: Array, cost: float) -> float:
    """Return the value in the declared sense."""
    if problem.numerics is None:
        return cost if problem.objective.sense == "minimise" else -cost
    return value_at(problem.objective, problem.numerics, problem.sources, rates, cost)


def _unrepaired(problem: Problem, program: Program, given: Array) -> RowProof:
    """Return a proof of nothing, for rates that stay infeasible."""
    over, size = excess(program, given if problem.bundles is None else problem.bundles.common(given))
    worst = int(np.argmax(over / np.abs(size)))
    share = float(over[worst] / abs(size[worst]))
    reason = (
        f"the rates exceed {program.rows.labels[worst]} by {share:.2g} of it, and no feasible rates near "
        "them were found."
    )
    nothing = np.full(len(program.rows), math.nan)
    none = RelativeGap(math.inf, math.inf, reason)
    return RowProof(given, share, math.nan, math.inf, none, nothing, None)


def _relative_distance(one: Array, other: Array) -> float:
    scale = np.maximum(np.maximum(np.abs(one), np.abs(other)), np.finfo(float).tiny)
    return float(np.max(np.abs(one - other) / scale, initial=0.0))


def multipliers_by_label(program: Program, prices: Mapping[str, float]) -> Array:
    """Return the multipliers of a program's rows from prices by label.

    Rows left out have none.

    Raises
    ------
    SourceDataError
        If a label is unknown or a price is no number ≥ 0.
    """
    place = {label: j for j, label in enumerate(program.rows.labels)}
    unknown = [repr(label) for label in prices if label not in place]
    if unknown:
        raise SourceDataError(
            f"prices name unknown constraints {list_offenders(unknown)}. Known: "
            f"{list_offenders(program.rows.labels)}."
        )
    multipliers = np.zeros(len(place))
    for label, price in prices.items():
        what = f"the price of {shortened(label)}"
        multipliers[place[label]] = as_number(price, what, "Pass a number >= 0.")
    bad = np.flatnonzero(~((multipliers >= 0.0) & np.isfinite(multipliers)))
    if len(bad):
        where = list_offenders(f"{program.rows.labels[j]}: {multipliers[j]:g}" for j in bad)
        raise SourceDataError(f"prices must be numbers >= 0, got {where}. Correct them.")
    return multipliers


def labelled_prices(
    problem: Problem, price: float | None, host_prices: Mapping[Any, float] | None
) -> dict[str, float]:
    """Return prices by label from those of bandwidth and hosts."""
    name, host = problem.labels
    found: dict[str, float] = {}
    if price is not None:
        if not math.isfinite(problem.bandwidth):
            raise SourceDataError("price is given, and there is no bandwidth. Pass prices= by label.")
        found[name] = price
    return found | {f"{host}[{key}]": value for key, value in (host_prices or {}).items()}


def short_prices(problem: Problem, prices: Mapping[str, float]) -> tuple[float, dict[Any, float]]:
    """Return the prices of bandwidth and hosts from prices by label."""
    name, host = problem.labels
    of_label = {f"{host}[{key}]": key for key in problem.hosts.names}
    unknown = [repr(label) for label in prices if label != name and label not in of_label]
    if unknown:
        known = list_offenders([name, *of_label])
        raise SourceDataError(f"prices name unknown constraints {list_offenders(unknown)}. Known: {known}.")
    remedy = "Pass a number >= 0."
    known_prices = {k: as_number(v, f"the price of {shortened(str(k))}", remedy) for k, v in prices.items()}
    price = known_prices.pop(name, 0.0)
    return price, {of_label[label]: own for label, own in known_prices.items()}

"""Declared constraints of a plan, with their prices.

Cost: a pass over the sources for the rows of a problem of bandwidth and host limits alone; else nothing is
computed that the certificate does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_table import RowStatus, RowTable
from freshopt.certificates.solution import Solution
from freshopt.errors import SourceDataError
from freshopt.formatting import finite, number, percent
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.declared_constraints import as_constraints
from freshopt.modelling.general_program import general_program
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.short_form import NAMES
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.noisy_signals.with_signals import called
from freshopt.numerics.arrays import BoolArray
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.later_than import LaterThan
from freshopt.report.value_words import goal_of
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE

# Constraints as a list, or as a function of the plan's sources.
Constraints: TypeAlias = Sequence[Any] | Callable[[Sources], Sequence[Any]]

# Sentences that a terminal has room for.
SENTENCES = 8
# Rows in summary.json; the table of constraints has all of them.
LISTED = 50
# By what share of itself a sentence loosens a limit: small enough that the price is nearly the whole truth.
LOOSER = 0.01
# Objectives whose means are shares of time or of requests, told in percent.
_SHARES = (BinaryFreshness, LaterThan)


class DeclaredRows(NamedTuple):
    """Rows of declared constraints, with what their sentences need.

    - `at_least` (m,): Which rows are bounded from below.
    - `constraints`: As they were declared.
    - `labels`: Of the bandwidth and of the host limits.
    """

    table: RowTable
    at_least: BoolArray
    constraints: tuple[Any, ...]
    labels: tuple[str, ...]
    objective: Objective
    time_unit: str

    @classmethod
    def of_solution(cls, solution: Solution) -> DeclaredRows | None:
        """Return the rows of a solution; None where none are declared."""
        table, problem = row_table(solution), solution.problem
        if table is None:
            return None
        least: BoolArray = _program(problem).rows.direction < 0.0
        unit = problem.sources.time_unit
        return cls(table, least, problem.constraints, problem.labels, problem.objective, unit)

    @classmethod
    def of_table(
        cls, table: RowTable, constraints: Sequence[Any], objective: Objective, time_unit: str
    ) -> DeclaredRows:
        """Return the rows of budgets, targets and nested limits."""
        rising = [f"{one.label} reserve" for one in constraints if isinstance(one, Nested)]
        rising += [
            one.label for one in constraints if isinstance(one, Target) and one.objective.sense == "maximise"
        ]
        least = np.array([_is_named(label, tuple(rising)) for label in table.labels], dtype=np.bool_)
        return cls(table, least, tuple(constraints), NAMES, objective, time_unit)

    @property
    def shares(self) -> tuple[str, ...]:
        """Names of targets whose means are shares."""
        targets = [one for one in self.constraints if isinstance(one, Target)]
        return tuple(one.label for one in targets if isinstance(one.objective, _SHARES))

    @property
    def per_time(self) -> tuple[str, ...]:
        """Names of limits on costs per time unit."""
        names = (one.label for one in self.constraints if isinstance(one, Budget | Nested))
        reserves = (f"{one.label} reserve" for one in self.constraints if isinstance(one, Budget | Nested))
        return (*self.labels, *names, *reserves)


def constraints_for(given: Constraints | None, sources: Sources) -> tuple[Any, ...]:
    """Return a request's constraints on these sources."""
    if given is None:
        return ()
    made = given(sources) if callable(given) else given
    if made is None or isinstance(made, str):
        raise SourceDataError(
            f"the function of the sources returned {made!r}. Return a list of constraints, such as "
            "[fo.Budget(...)]."
        )
    return as_constraints(made)


def limits_bandwidth(objective: Objective, constraints: Sequence[Any]) -> bool:
    """Return whether a plan needs no bandwidth besides."""
    return isinstance(objective, Spend) or any(isinstance(each, Budget | Nested) for each in constraints)


def discipline_of(problem: Problem) -> Refresh:
    """Return the discipline by which a problem's rates are carried out."""
    return discipline_under(problem.objective, problem.constraints)


def discipline_under(objective: Objective, constraints: Sequence[Any]) -> Refresh:
    """Return the discipline of an objective under constraints.

    Bandwidth itself has none; then it is that of the first target, or else equal intervals.
    """
    if not isinstance(objective, Spend):
        return objective.refresh
    targets = [one.objective.refresh for one in constraints if isinstance(one, Target)]
    return targets[0] if targets else Refresh.PERIODIC


def depends_on_change_rates(problem: Problem) -> bool:
    """Return whether other change rates may make feasible rates infeasible."""
    return problem.program is not None and bool(np.any(problem.program.rows.kind != RATE))


def row_table(solution: Solution) -> RowTable | None:
    """Return the rows of declared constraints; None where none are declared."""
    if not solution.problem.constraints:
        return None
    if solution.problem.program is not None:
        return None if solution.certificate is None else solution.certificate.rows
    gap = RowGap.of(_program(solution.problem), solution.rates)
    return RowTable.of(gap, np.array([solution.price, *solution.host_prices.values()]))


def constraint_facts(given: Solution | DeclaredRows) -> dict[str, Any] | None:
    """Return the rows in numbers, the highest priced first."""
    declared = _declared(given)
    if declared is None:
        return None
    table, at_least, shares = declared.table, declared.at_least, declared.shares
    listed = [
        {
            "label": row.label,
            "used": finite(row.used),
            "limit": finite(row.limit),
            "at_least": bool(at_least[k]),
            "share": _is_named(row.label, shares),
            "price": finite(row.price),
        }
        for k, row in _ordered(table)[:LISTED]
    ]
    names = [repr(one) if hasattr(one, "label") else "a function of the rate" for one in declared.constraints]
    curved = isinstance(given, Solution) and depends_on_change_rates(given.problem)
    return {
        "declared": names,
        "rows": len(table),
        "binding": int(np.count_nonzero(table.price > 0.0)),
        "depend_on_change_rates": curved or any(isinstance(one, Target) for one in declared.constraints),
        "listed": listed,
        "sentences": price_sentences(declared),
    }


def price_sentences(given: Solution | DeclaredRows, most: int = SENTENCES) -> list[str]:
    """Return a sentence on each price, the largest first.

    What a looser limit gains is at most its price times the difference, by weak duality.
    """
    declared = _declared(given)
    if declared is None:
        return []
    table, at_least, shares = declared.table, declared.at_least, declared.shares
    objective, unit, rates = declared.objective, declared.time_unit, declared.per_time
    costs = tuple(one.label for one in declared.constraints if isinstance(one, Priced))
    noun = goal_of(type(called(objective)).__name__).noun
    verb = "raise" if objective.sense == "maximise" else "lower"
    priced = [(k, row) for k, row in _ordered(table) if row.price > 0.0]
    binding = int(np.count_nonzero(table.price > 0.0))
    found = []
    for k, row in priced[:most]:
        share = _is_named(row.label, shares)
        if _is_named(row.label, costs):
            found.append(f"{row.label}: of {number(row.used)} per {unit}; one more costs {number(row.price)}")
            continue
        time = f" per {unit}" if _is_named(row.label, rates) else ""
        looser, gain = _loosened(row, least=bool(at_least[k]), share=share)
        found.append(f"{row.label}: {_state(row, time, least=bool(at_least[k]), share=share)}; ")
        found[-1] += (
            f"{looser} would {verb} the {noun} by at most {number(gain)} (price {number(row.price)})"
            if gain > 0.0
            else f"price {number(row.price)}"
        )
    if binding > most:
        found.append(f"and {binding - most:,} more that bind")
    slack = len(table) - binding
    if slack:
        which = (
            "none of them binds"
            if not binding
            else f"{slack:,} more {'does' if slack == 1 else 'do'} not bind"
        )
        found.append(which)
    return found


def _loosened(row: RowStatus, *, least: bool, share: bool) -> tuple[str, float]:
    """Return a looser limit in words, and what it gains at most."""
    step = LOOSER if share else LOOSER * abs(row.limit)
    # A share of more than 1 or less than 0 is none.
    step = min(step, 0.5 * row.limit if least else 0.5 * (1.0 - row.limit)) if share else step
    limit = row.limit - step if least else row.limit + step
    return f"{_amount(limit, share=share)} in its place", row.price * step


def _state(row: RowStatus, time: str, *, least: bool, share: bool) -> str:
    """Return what a row uses of its limit, in words."""
    limit, used = _amount(row.limit, share=share), _amount(row.used, share=share)
    side = "at least" if least else "at most"
    return f"{used}, {side} {limit}{time}" if used != limit else f"{side} {limit}{time}, which binds"


def _amount(value: float, *, share: bool) -> str:
    return percent(value, space=" ") if share else number(value)


def _ordered(table: RowTable) -> list[tuple[int, RowStatus]]:
    """Return the rows by what their limits are charged, the largest first."""
    order = np.argsort(-table.price * np.where(table.limit == 0.0, 1.0, np.abs(table.limit)), kind="stable")
    return [(int(k), table[int(k)]) for k in order[: max(LISTED, SENTENCES)]]


def _program(problem: Problem) -> Program:
    return problem.program or general_program(problem, (), None, once=False)


def _declared(given: Solution | DeclaredRows) -> DeclaredRows | None:
    return given if isinstance(given, DeclaredRows) else DeclaredRows.of_solution(given)


def _is_named(label: str, names: tuple[str, ...]) -> bool:
    return any(label == name or label.startswith(f"{name}[") for name in names)

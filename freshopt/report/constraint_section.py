"""Section of declared constraints: what they use, their limits, their shadow prices."""

from __future__ import annotations

from freshopt.formatting import count, number, percent
from freshopt.report.components import Column, Section, amount, name, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child
from freshopt.report.summary_facts import Facts


def constraints(told: Context) -> Section | None:
    """Return the section of declared constraints, or None."""
    found = told.facts.within("constraints")
    if found is None:
        return None
    rows = found.rows("listed")
    many, binding = found.whole("rows"), found.whole("binding")
    binds = "binds" if binding == 1 else "bind"
    head = f"{f'{binding:,}' if binding else 'None'} of {count(many, 'constraint')} {binds}."
    direction = "rises" if told.maximised else "falls"
    body: list[Child] = [
        paragraph(
            f"{head} The shadow price of a constraint is the rate at which the {told.goal.noun} {direction} "
            "as its limit is loosened, per unit of the limit: an upper bound on what a looser limit gains."
        )
    ]
    if rows:
        columns = [Column("constraint"), Column("used", "number"), Column("limit", "number")]
        columns.append(Column("shadow price", "number"))
        caption = "Constraints, the most costly limits first"
        caption += f": the first {len(rows):,} of {many:,}" if len(rows) < many else ""
        body.append(table(caption, columns, [_cells(row) for row in rows]))
    if found.values.get("depend_on_change_rates"):
        words = (
            "Targets are met if the change rates are as estimated; under others the same refresh rates may "
            "miss them, or meet more than was asked for."
        )
        body.append(paragraph(words, kind="small faint"))
    return Section.of("constraints", "Constraints", body)


def _cells(row: Facts) -> list[Child]:
    price = row.maybe("price")
    side = "at least" if row.values.get("at_least") else "at most"
    used, limit = (_amount(row, key) for key in ("used", "limit"))
    shown: Child = "does not bind" if price == 0.0 else "unknown" if price is None else amount(price)
    return [name(row.text("label")), used, [f"{side} ", limit], shown]


def _amount(row: Facts, key: str) -> Child:
    value = row.maybe(key)
    if value is None:
        return None
    return amount(value, percent(value) if row.values.get("share") else number(value))

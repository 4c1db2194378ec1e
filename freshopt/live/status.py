"""`PlannerStatus`: what a planner does now, in a few lines."""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import datetime

from freshopt.formatting import count, number, percent
from freshopt.units import SECONDS

# Relative duality gap below which rates are called optimal.
PROVED = 1e-9
# Rates from here on are said in a shorter unit.
MANY = 1e5


@dataclass(frozen=True, slots=True, repr=False)
class PlannerStatus:
    """State of a planner at one moment.

    Attributes
    ----------
    place : str
        Folder or address.
    time_unit : str
    sources : int
        Those that are planned for; removed ones are not counted.
    never_crawled, due, leased : int
        Of them those without any crawl, those that are due and not handed out, and those handed out.
    down : int
        Those that have not answered for long, and are tried ever less.
    observations, changes_found : int
    bandwidth : float
        Per time unit.
    used : float
        Bandwidth that the rates in force use.
    price : float or None
        Shadow price in force; None before the first plan.
    objective : str
    value, bound : float
        Of the rates in force under the estimates in force, and what no rates can exceed.
    relative_gap : float
        The certified bound on what they lose, relative; inf before the first plan.
    freshness : float
        Expected share of time that copies are fresh, weighted by importance; NaN before.
    planned, updated, next_update, next_replan : float, datetime or None
        The last full re-solve and the last update of the estimates, and when the next are due.
    solves : int
        Full re-solves so far.
    """

    place: str
    time_unit: str
    sources: int
    never_crawled: int
    due: int
    leased: int
    down: int
    observations: int
    changes_found: int
    bandwidth: float
    used: float
    price: float | None
    objective: str
    value: float
    bound: float
    relative_gap: float
    freshness: float
    planned: float | datetime | None
    updated: float | datetime | None
    next_update: float | datetime | None
    next_replan: float | datetime | None
    solves: int

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled rows, as the repr has them."""
        unit = self.time_unit
        rows = [
            ("planner", self.place),
            (
                "sources",
                f"{self.sources:,}; {self.never_crawled:,} never crawled, {self.due:,} due, "
                f"{self.leased:,} handed out{f', {self.down:,} down' if self.down else ''}",
            ),
            ("observations", f"{self.observations:,}, {self.changes_found:,} found a change"),
            ("objective", self.objective),
        ]
        if self.price is None:
            return [*rows, ("plan", "none yet: the first hand-out makes one")]
        per = f"per refresh/{unit}"
        name, shorter = _fitting(self.bandwidth, unit)
        return [
            *rows,
            (
                "bandwidth",
                f"{number(self.used / shorter)} of {number(self.bandwidth / shorter)} per {name} in force; "
                f"shadow price {self.price:.4g} {per}",
            ),
            ("freshness", f"{percent(self.freshness, space=' ')} of the time, expected"),
            (
                "certificate",
                f"rates in force {self._shortfall} for the estimates (value {self.value:.6g}, bound "
                f"{self.bound:.6g})",
            ),
            (
                "re-solved",
                f"{_said(self.planned)}, {count(self.solves, 'time')} so far; next {_said(self.next_replan)} "
                "or when the bound exceeds its limit",
            ),
            ("estimates", f"updated {_said(self.updated)}; next {_said(self.next_update)}"),
        ]

    @property
    def _shortfall(self) -> str:
        """How far the rates in force are from optimal, in words."""
        if self.relative_gap < PROVED:
            return f"are optimal to {PROVED:g}"
        return f"are at most {percent(self.relative_gap, space=' ')} from optimal"

    def __repr__(self) -> str:
        """Return labelled rows of text."""
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label.ljust(width)}  {text}" for label, text in rows)

    def _repr_html_(self) -> str:
        """Return the rows as a table."""
        rows = "".join(
            f"<tr><th>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>"
            for label, text in self.rows()
        )
        return f"<table>{rows}</table>"


def _fitting(rate: float, unit: str) -> tuple[str, float]:
    """Return the unit in which a rate is said, and its factor.

    Examples
    --------
    >>> _fitting(1_728_000.0, "day"), _fitting(200.0, "day")
    (('second', 86400.0), ('day', 1.0))
    """
    if rate >= MANY:
        for name, seconds in sorted(SECONDS.items(), key=lambda each: each[1]):
            shorter = SECONDS[unit] / seconds
            if rate / shorter >= 1.0:
                return name, shorter
    return unit, 1.0


def _said(moment: float | datetime | None) -> str:
    if moment is None:
        return "never"
    if isinstance(moment, datetime):
        return moment.strftime("%Y-%m-%d %H:%M UTC")
    return f"at {moment:g}"

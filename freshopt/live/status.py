"""`PlannerStatus`: what a planner does now, in a few lines."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from freshopt.formatting import count, number, percent
from freshopt.report.value_words import amount, goal_of, meaning, price_text
from freshopt.units import duration, per_unit, rate_unit

# Relative duality gap below which rates are called optimal.
PROVED = 1e-9
# Share of the bandwidth lost between hand-outs from which it is told.
TOLD = 0.05


@dataclass(frozen=True, slots=True, repr=False)
class PlannerStatus:
    """State of a planner at one moment.

    - `place`: Folder or address.
    - `sources`: Those that are planned for; removed ones are not counted.
    - `never_crawled`, `due`, `leased`: Of them those without any crawl, those that are due and not handed
      out, and those handed out.
    - `down`: Those that have not answered for long, and are tried ever less.
    - `bandwidth`: Per time unit.
    - `used`: Bandwidth that the rates in force use.
    - `unused`: Share of the bandwidth of the last day or so (of `replan`) that nobody asked for within a
      burst.
    - `burst`: As the settings have it.
    - `counted`: Whether every refresh uses 1 of the bandwidth.
    - `price`: Shadow price in force; None before the first plan.
    - `kind`: Class of the objective.
    - `refresh`: Refresh discipline.
    - `unplanned`: Sources that the next hand-out gives their first rates.
    - `value`, `bound`: Of the rates in force under the estimates in force, and what no rates can exceed; NaN
      where there is no certificate.
    - `relative_gap`: The certified bound on what they lose, relative; inf where there is no certificate.
    - `infeasibility`: By how much they exceed a limit, relative: then it is rates lowered to the limit that
      are certified.
    - `freshness`: Expected share of time that copies are fresh, weighted by importance; NaN before.
    - `simple`: The same of simple rules, "uniform", "proportional" and "square-root", at the bandwidth.
    - `next_due` float, datetime: When something can be handed out next.
    - `planned`, `updated`, `next_update`, `next_replan` float, datetime: The last full re-solve and the last
      update of the estimates, and when the next are due.
    - `solves`: Full re-solves so far.
    - `outdated`: Whether the rates in force were planned for earlier settings.
    - `slowed`: Hosts that are planned for with fewer crawls, as their answers or robots.txt ask for.
    - `signals`: What signals tell, in words; empty without any.
    - `features`: What features tell of change rates, in words; empty without any.
    - `promises`: What each promise needs and costs, as of the last full re-solve, and last how many sources
      get less.
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
    unused: float
    burst: float
    counted: bool
    price: float | None
    objective: str
    kind: str
    maximised: bool
    refresh: str
    unplanned: int
    value: float
    bound: float
    relative_gap: float
    infeasibility: float
    freshness: float
    simple: Mapping[str, float]
    next_due: float | datetime | None
    planned: float | datetime | None
    updated: float | datetime | None
    next_update: float | datetime | None
    next_replan: float | datetime | None
    solves: int
    outdated: bool
    slowed: int = 0
    signals: str = ""
    features: str = ""
    promises: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled rows, as the repr has them."""
        down = f", {self.down:,} down" if self.down else ""
        if self.slowed:
            down += (
                f", {count(self.slowed, 'host')} slowed at {'its' if self.slowed == 1 else 'their'} request"
            )
        later = "" if self.next_due is None else f"; next hand-out {_said(self.next_due, seconds=True)}"
        rows = [
            ("planner", self.place),
            (
                "sources",
                f"{self.sources:,}; {self.never_crawled:,} never crawled, {self.due:,} due, "
                f"{self.leased:,} handed out{down}{later}",
            ),
            ("observations", f"{self.observations:,}, {self.changes_found:,} found a change"),
            ("objective", self._objective),
        ]
        if self.price is None:
            return [*rows, ("plan", "none yet: the first hand-out makes one")]
        rules = [f"{rule} {percent(share, space=' ')}" for rule, share in self.simple.items()]
        beside = f"; {', '.join(rules).replace(' ', ' rates ', 1)}" if rules else ""
        proof = [
            ("shadow price", self._price(self.price)),
            ("certificate", self._certificate),
        ]
        if self.outdated:
            proof = [("certificate", "none: settings were changed, and the next hand-out plans anew")]
        if self.unplanned:
            new = count(self.unplanned, "new source")
            proof.append(("", f"without {new}, planned at the next hand-out"))
        return [
            *rows,
            ("bandwidth", self._bandwidth),
            (
                "time fresh",
                f"{percent(self.freshness, space=' ')} of the time, by importance, expected{beside}",
            ),
            *([("signals", self.signals)] if self.signals else []),
            *([("features", self.features)] if self.features else []),
            *(("" if k else "promised", words) for k, words in enumerate(self.promises)),
            *proof,
            (
                "re-solved",
                f"{_said(self.planned)}, {count(self.solves, 'time')} so far; next {_said(self.next_replan)} "
                "or when the bound exceeds its limit",
            ),
            ("estimates", f"updated {_said(self.updated)}; next {_said(self.next_update)}"),
        ]

    @property
    def _objective(self) -> str:
        """What is minimised or maximised, in words."""
        told = f": {meaning(self.kind)}" if meaning(self.kind) else ""
        sense = "higher is better" if self.maximised else "lower is better"
        return f"{self.kind} ({sense}){told}; {self.refresh} refreshes"

    @property
    def _bandwidth(self) -> str:
        """What the rates in force use, in the unit that fits."""
        unit = rate_unit(self.bandwidth, self.time_unit)
        used, whole = (per_unit(each, self.time_unit, unit) for each in (self.used, self.bandwidth))
        noun = "refreshes " if self.counted else ""
        told = f"{number(used)} of {number(whole)} {noun}per {unit} in force"
        if self.unused < TOLD:
            return told
        burst, lost = duration(self.burst, self.time_unit), percent(self.unused, space=" ")
        return (
            f"{told}; lately {lost} was not handed out, as hand-outs were further apart than a burst, "
            f"{burst}: a longer one hands out more at once"
        )

    def _price(self, price: float) -> str:
        """Return the shadow price and what it says of more bandwidth."""
        if price == 0.0:
            return "0: more bandwidth gains nothing within the bounds and limits"
        text = price_text(
            self.kind,
            price,
            self.bandwidth,
            self.bound,
            self.time_unit,
            maximised=self.maximised,
            fetch="refresh" if self.counted else "unit",
        )
        return text if self.relative_gap < PROVED else f"{text}, at optimal rates"

    @property
    def _certificate(self) -> str:
        """What is proved of the rates in force, in words."""
        if not math.isfinite(self.relative_gap):
            return "none: nothing bounds the rates in force"
        begin = "rates in force "
        if self.infeasibility > PROVED:
            over = percent(self.infeasibility, space=" ")
            begin += f"exceed a limit by {over} until the next update; lowered to it they "
        far = f"are at most {percent(self.relative_gap, space=' ')} from optimal"
        if self.relative_gap < PROVED:
            far = f"are optimal to {PROVED:g}"
        value, bound = (amount(self.kind, each, self.time_unit) for each in (self.value, self.bound))
        down = f" while {count(self.down, 'source')} {'is' if self.down == 1 else 'are'} down"
        return (
            f"{begin}{far} for the estimates: {goal_of(self.kind).noun} {value}; no rates do better than "
            f"{bound}{down if self.down else ''}"
        )

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


def _said(moment: float | datetime | None, *, seconds: bool = False) -> str:
    if moment is None:
        return "never"
    if isinstance(moment, datetime):
        return moment.strftime(f"%Y-%m-%d %H:%M{':%S' if seconds else ''} UTC")
    return f"at {moment:g}"

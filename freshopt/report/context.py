"""`Facts`: typed look-ups in ``summary.json``; `Context`: those that sections share.

The file may be of an earlier version, cut short, or edited by hand. A part that is not there leaves its
section of the page out; a part of another kind raises an error of one line that names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from freshopt.errors import SourceDataError
from freshopt.formatting import number
from freshopt.report.value_words import FetchWords, Goal, goal_of, measured
from freshopt.report.value_words import amount as value_text
from freshopt.units import check_time_unit

SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """An object of ``summary.json``; false, without values, where there is none."""

    file: Path
    values: Mapping[str, Any]
    path: str = ""
    there: bool = True

    def __bool__(self) -> bool:
        """Return whether it is there."""
        return self.there

    @classmethod
    def of(cls, folder: Path) -> Facts:
        """Read a folder's summary."""
        file = folder / SUMMARY
        if not folder.is_dir():
            raise SourceDataError(f"there is no folder {folder}. Name one that freshopt plan has written.")
        if not file.is_file():
            raise SourceDataError(f"{folder} holds no {SUMMARY}. Name a folder that freshopt plan wrote.")
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise SourceDataError(
                f"{file} cannot be read as JSON: {str(error).rstrip('.')}. Plan again, with --overwrite."
            ) from error
        if not isinstance(values, dict):
            raise SourceDataError(f"{file} is not a JSON object. Plan again, with --overwrite.")
        return cls(file, values)

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self.maybe(key)
        if value is None:
            raise self._refuse(key, "a number")
        return value

    def positive(self, key: str) -> float:
        """Return a finite number > 0."""
        value = self.maybe(key)
        if value is None or not value > 0.0:
            raise self._refuse(key, "a number > 0")
        return value

    def maybe(self, key: str) -> float | None:
        """Return a finite number, or None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._refuse(key, "a number")
        return float(value)

    def whole(self, key: str) -> int:
        """Return a whole number >= 0."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._refuse(key, "a whole number")
        return value

    def text(self, key: str) -> str:
        """Return a text."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._refuse(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        """Return the texts of a list, or an empty list."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._refuse(key, "a list of texts")
        return value

    def numbers(self, key: str, *, gaps: bool = False) -> list[float | None]:
        """Return the finite numbers of a list, with `gaps` None too."""
        values = self.values.get(key)
        listed = values if isinstance(values, list) else []
        inner = Facts(self.file, {str(k): each for k, each in enumerate(listed)}, self._path(key))
        return [inner.maybe(place) if gaps else inner.number(place) for place in inner.values]

    def ends(self, key: str) -> tuple[float | None, float | None]:
        """Return both ends of an interval, None where it has none."""
        found = self.numbers(key, gaps=True)
        if len(found) != 2:
            raise self._refuse(key, "a list of two numbers")
        return found[0], found[1]

    def name(self, key: str) -> str:
        """Return a name, written as a text or whole number."""
        value = self.values.get(key)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(key)

    def within(self, key: str) -> Facts:
        """Return the object there, which may be none."""
        value = self.values.get(key)
        if value is None:
            return Facts(self.file, {}, self._path(key), there=False)
        if not isinstance(value, dict):
            raise self._refuse(key, "an object")
        return Facts(self.file, value, self._path(key))

    def rows(self, key: str) -> list[Facts]:
        """Return the objects of a list, or an empty list."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._refuse(key, "a list of objects")
        return [Facts(self.file, each, f"{self._path(key)}[{k}]") for k, each in enumerate(value)]

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _refuse(self, key: str, kind: str) -> SourceDataError:
        found = repr(self.values[key])[:40] if key in self.values else "missing"
        return SourceDataError(
            f"{self.file}: {self._path(key)} is {found}, not {kind}. Plan again, with --overwrite."
        )


# Relative duality gap up to which the page calls a plan optimal; plans are made with a tenth of it.
PROVED = 1e-8
# Cost and gap as shares of Σ importance up to which the cost is 0; ten times what certificates allow there.
ZERO = 1e-11


@dataclass(frozen=True, slots=True)
class Context:
    """A plan's summary with the facts derived from it."""

    facts: Facts
    unit: str
    goal: Goal
    maximised: bool
    value: float
    sources: int
    findings: Facts
    counts: Facts

    @classmethod
    def of(cls, facts: Facts) -> Context:
        """Read the required facts."""
        counts = facts.within("counts")
        if not counts:
            raise SourceDataError(f"{facts.file} has no counts. Name a folder that freshopt plan wrote.")
        return cls(
            facts,
            check_time_unit(facts.text("time_unit")),
            goal_of(facts.text("objective")),
            facts.text("sense") == "maximise",
            facts.number("value"),
            counts.whole("sources"),
            facts.within("findings"),
            counts,
        )

    @property
    def words(self) -> FetchWords:
        """What rates and bandwidth count."""
        return FetchWords.of(self.facts.values)

    @property
    def shares(self) -> str:
        """What shares are of: time, or, on request, requests."""
        return "requests" if self.facts.values.get("discipline") == "on request" else "time"

    @property
    def today(self) -> Facts:
        """What the log's own crawls keep fresh, none where nobody crawled."""
        found = self.facts.within("today")
        return found if "sentence" in found.values else replace(found, there=False, values={})

    @property
    def flags(self) -> dict[str, int]:
        """How many sources have each flag but "ok"."""
        flags = self.counts.within("flags")
        return {key: flags.whole(key) for key in flags.values if key != "ok"}

    @property
    def proved(self) -> bool:
        """Whether the summary's numbers agree and prove the rates optimal."""
        bound, gap, relative = (self.facts.maybe(key) for key in ("bound", "gap", "relative_gap"))
        if self.facts.text("status") != "optimal" or bound is None or gap is None:
            return False
        if abs(bound - self.value) > 2.0 * abs(gap) + PROVED * (abs(bound) + abs(self.value)):
            return False
        if relative is not None and relative <= PROVED:
            return True
        weight = self.findings.maybe("importance") or float(self.sources)
        cost = weight - self.value if self.maximised else self.value
        return max(abs(cost), gap) <= ZERO * weight

    @property
    def supposed(self) -> str:
        """The change rates for which value and proof hold."""
        own = self.facts.text("objective") == "Expected"
        return "change rates of the objective" if own else "estimated change rates"

    def baseline(self, rule: str) -> float | None:
        """Return a baseline's value, or None."""
        return self.facts.within("baselines").maybe(rule)

    def fresh(self, rule: str) -> float | None:
        """Return a policy's fresh share of time, or None."""
        return self.findings.within("fresh").maybe(rule)

    @property
    def flat_value(self) -> float | None:
        """The value without the weekly cycle, None where the plan has none."""
        return self.facts.within("phases").maybe("value_without")

    @property
    def flat_fresh(self) -> float | None:
        """The fresh share of time without the weekly cycle, if any."""
        return self.facts.within("phases").maybe("fresh_without")

    def better(self, rule: str) -> float | None:
        """Return the plan's relative improvement over a baseline.

        It is negative where the plan is worse, None where the baseline's value is unknown or 0. Baselines
        know no weekly cycle: of a plan with one the value without it is compared.
        """
        other, flat = self.baseline(rule), self.flat_value
        own = self.value if flat is None else flat
        if other is None or other == 0.0:
            return None
        gain = own - other if self.maximised else other - own
        return gain / abs(other)

    def shown(self, value: float) -> str:
        """Return a value, or a difference of values, with its unit."""
        return value_text(self.facts.text("objective"), value, self.unit)

    @property
    def value_head(self) -> str:
        """The head of a column of values."""
        return f"{self.measure} ({self.better_is} is better)"

    @property
    def better_is(self) -> str:
        """Which values are better."""
        return "higher" if self.maximised else "lower"

    @property
    def measure(self) -> str:
        """What a value is of, with its unit."""
        return measured(self.facts.text("objective"), self.unit)

    @property
    def price_unit(self) -> str:
        """What a shadow price is per."""
        return f"per {self.words.bandwidth}/{self.unit}"

    def date(self, key: str) -> datetime | None:
        """Return the log's begin or end, None where it has no dates."""
        log = self.facts.within("log")
        if not isinstance(log.values.get(key), str):
            return None
        try:
            return datetime.fromisoformat(log.text(key))
        except ValueError:
            raise SourceDataError(
                f"{log.file}: log.{key} is no moment. Plan again, with --overwrite."
            ) from None

    def moment(self, key: str) -> str:
        """Return the log's begin or end in words."""
        log = self.facts.within("log")
        if key not in log.values:
            return "the end of the log"
        at = self.date(key)
        return (
            f"time {number(log.number(key))} on the log's clock" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"
        )


def tidy(value: float) -> float:
    """Return a number rounded to ten digits, an int if whole."""
    rounded = float(f"{value:.10g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded

"""`Context`: what every section asks of a plan's summary."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from freshopt.errors import SourceDataError
from freshopt.report.facts import Facts
from freshopt.report.goals import Goal, goal_of
from freshopt.units import check_time_unit
from freshopt.wording import number


@dataclass(frozen=True, slots=True)
class Context:
    """A plan's summary with what is derived from it at once.

    Attributes
    ----------
    facts : Facts
    unit : str
        The time unit.
    goal : Goal
    maximised : bool
    value : float
    sources : int
    findings, counts : Facts
        Empty findings where the summary has none.
    """

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
        """Read what must be there.

        Raises
        ------
        SourceDataError
            If it is not, or not as it should be.
        """
        counts = facts.within("counts")
        if counts is None:
            raise SourceDataError(f"{facts.file} has no counts. Name a folder that freshopt plan wrote.")
        return cls(
            facts,
            check_time_unit(facts.text("time_unit")),
            goal_of(facts.text("objective")),
            facts.text("sense") == "maximise",
            facts.number("value"),
            counts.whole("sources"),
            facts.within("findings") or Facts(facts.file, {}, "findings"),
            counts,
        )

    def baseline(self, rule: str) -> float | None:
        """Return the value of a simple rule, where it is known."""
        known = self.facts.within("baselines")
        return None if known is None else known.maybe(rule)

    def fresh(self, rule: str) -> float | None:
        """Return the share of time that copies are fresh under a rule, where it is known."""
        known = self.findings.within("fresh")
        return None if known is None else known.maybe(rule)

    def better(self, rule: str) -> float | None:
        """Return by which share of a rule's value the plan is better than the rule; below 0 where worse."""
        other = self.baseline(rule)
        if other is None or other == 0.0:
            return None
        gain = self.value - other if self.maximised else other - self.value
        return gain / abs(other)

    def moment(self, key: str) -> str:
        """Return when the log begins or ends, in words."""
        log = self.facts.within("log")
        if log is None or key not in log.values:
            return "the end of the log"
        if isinstance(log.values[key], str):
            try:
                at = datetime.fromisoformat(log.text(key))
            except ValueError:
                raise SourceDataError(
                    f"{log.file}: log.{key} is no moment. Plan again, with --overwrite."
                ) from None
            return f"{at:%Y-%m-%d %H:%M} UTC"
        return f"time {number(log.number(key))} on the log's clock"

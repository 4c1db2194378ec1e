"""Policies on held-out data: names, measured costs, notes.

A plan is optimal for estimated change rates; on the part of a log that was held out another policy may do
better. What is said of that follows from the paired differences in ``summary.json`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from freshopt.formatting import number, percent
from freshopt.report.summary_facts import Facts

POLICIES = {
    "plan": "planned rates",
    "plan, phased": "planned rates at good phases of the week",
    "re-planned": "planned again from its own crawls",
    "rates in force": "shares of the log's own crawls",
    "uniform": "equal rates",
    "proportional": "rates ∝ change rates",
    "∝ √(w·Δ)": "rates ∝ √(importance × change rate)",
    "best static in hindsight": "best static rates in hindsight",
    "current": "the log's own crawls",
    "plan at current": "planned rates at the log's crawl rate",
    "with signals": "planned, following signals",
    "plan at with signals": "planned rates at as many fetches as with signals",
}
# Words for the plan at good phases.
PHASES = "crawling at good phases of the week"
# Words for crawls that follow signals.
SIGNALS = "following signals"
# How plans at the crawl rates of other policies begin.
PLAN_AT = "plan at "
# Relative differences below this are equality: with four digits they would not show.
SAME = 5e-4
# What is measured where crawls do not show all changes.
HIDDEN = (
    "Costs are those of all changes. Crawls show whether a source changed since the one before, not how "
    "often, nor when, save for dates: that is drawn given what they found, from the posterior of its change "
    "rate. It is {share} of the plan's cost{and_so}."
)
UNSURE = "; half of it counts as a standard error"
TOO_MUCH = ", too much to decide between policies"
# Share of a plan's cost that crawls may hide where policies are compared: beyond it the rates of sources that
# changed at every crawl decide, which no log of such crawls tells.
MOST_HIDDEN = 0.5
SAVED = (
    '"Saved" compares each row with the plan at the same number of fetches; minus means worse. Errors are '
    "standard errors of the paired difference."
)
HINDSIGHT = '"Best in hindsight" is an unreachable bound: it knows the future.'


class PolicyRow(NamedTuple):
    """Measured cost of one policy, a key of `POLICIES`.

    Refreshes are per time unit; savings are of the cost of the plan at the same bandwidth; hidden is the
    share of the cost that crawls hid.
    """

    policy: str
    refreshes: float
    value: float
    error: float | None
    fresh: float
    predicted: float | None = None
    saving: float | None = None
    saving_error: float | None = None
    hidden: float | None = None


def is_plan(policy: str) -> bool:
    """Return whether a policy is a plan that others are compared with."""
    return policy == "plan" or policy.startswith(PLAN_AT)


def policy_words(policy: str) -> str:
    """Return what tables and charts call a policy.

    Examples
    --------
    >>> policy_words("uniform"), policy_words("plan at nutch")
    ('equal rates', 'planned rates at as many fetches as nutch')
    """
    other = policy.removeprefix(PLAN_AT)
    usual = policy if other == policy else f"planned rates at as many fetches as {other}"
    return POLICIES.get(policy, usual)


def saved(row: PolicyRow) -> str:
    """Return what a policy saves, in percent, with its error.

    Examples
    --------
    >>> saved(PolicyRow("uniform", 4.0, 6.0, 0.1, 0.9, 6.1, -0.125, 0.03))
    '-12.5 ± 3.0'
    """
    if row.saving is None or is_plan(row.policy):
        return ""
    error = "" if row.saving_error is None else f" ± {100.0 * row.saving_error:.1f}"
    return f"{round(100.0 * row.saving, 1) + 0.0:.1f}{error}"


def phases_supported(verdict: str) -> bool:
    """Return whether a verdict claims that good phases save."""
    return f"{PHASES} saves " in f"{verdict[:1].lower()}{verdict[1:]}"


def rule_words(rule: Facts) -> str:
    """Return what a reader should know of a rule of crawlers."""
    name, needed, settled = rule.text("rule"), rule.maybe("needed"), rule.maybe("settled")
    used, words = rule.number("used"), []
    if needed is not None and name == "with signals":
        saves = percent(abs(1.0 - used / needed), space=" ")
        words.append(
            f"Without signals the plan costs as much at a bandwidth of {number(needed)} in place of "
            f"{number(used)}: they save {saves} of the fetches."
            if used < needed
            else f"Without signals the plan costs as much at a bandwidth of {number(needed)}, no more than "
            f"{number(used)}: they save nothing."
        )
    elif needed is not None:
        share = percent(abs(1.0 - needed / used), space=" ")
        words.append(
            f"The plan costs as much as {name} at a bandwidth of {number(needed)} in place of "
            f"{number(used)}, {share} {'less' if needed < used else 'more'}."
        )
    if settled:
        words.append(
            f"Intervals of {name} settle after {round(settled):,} fetches of a source (median); "
            f"{round(rule.number('before')):,} came before what was held out."
        )
    return " ".join(words)


def notes(rows: Sequence[PolicyRow], *, failures: str = "") -> list[str]:
    """Return what a reader should know of the rows."""
    head = [SAVED] if any(row.saving is not None for row in rows) else []
    head += [failures] if failures else []
    head += [HINDSIGHT] if any(row.policy == "best static in hindsight" for row in rows) else []
    hidden = max((row.hidden or 0.0 for row in rows if is_plan(row.policy)), default=0.0)
    if hidden > 0.0:
        and_so = TOO_MUCH if hidden > MOST_HIDDEN else UNSURE
        head.append(HIDDEN.format(share=percent(hidden, space=" "), and_so=and_so))
    return head

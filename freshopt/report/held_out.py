"""Verdicts on the held-out data: which policy did best, by the numbers.

A plan is optimal for estimated change rates; on the part of a log that was held out another policy may do
better. Each sentence follows from the rows of the table beside it. Whether a lead is chance it does not say:
policies meet the same changes, and the errors of their values are not those of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from freshopt.formatting import number, percent

POLICIES = {
    "plan": "planned rates",
    "uniform": "equal rates",
    "proportional": "rates ∝ change rates",
    "current": "the log's own crawls",
    "plan at current": "planned rates at the log's crawl rate",
}
# Policies that may be compared, as they have the same bandwidth, with the words for it.
COMPARABLE = (
    ("At the bandwidth asked for", ("plan", "uniform", "proportional")),
    ("At the log's own crawl rate", ("plan at current", "current")),
)
# Relative differences below this are equality: with four digits they would not show.
SAME = 5e-4
# What a crawl log does not tell, wherever its own crawls are among the policies.
MIDDLE = "A change counts from the middle of the crawl interval in which the log's crawls found it."


class PolicyRow(NamedTuple):
    """Measured cost of one policy.

    Attributes
    ----------
    policy : str
        A key of `POLICIES`.
    refreshes : float
        Per time unit.
    value : float
        In the objective's sense.
    error : float or None
        Its standard error, where it is known.
    fresh : float
        Share of the time that copies were fresh.
    """

    policy: str
    refreshes: float
    value: float
    error: float | None
    fresh: float


def verdicts(rows: Sequence[PolicyRow], noun: str, *, maximised: bool) -> list[str]:
    r"""Return the verdict on each group of comparable policies.

    Parameters
    ----------
    rows : sequence of PolicyRow
    noun : str
        What the objective's value is, such as "staleness".
    maximised : bool

    Examples
    --------
    >>> plan, equal = PolicyRow("plan", 4.0, 8.0, None, 0.9), PolicyRow("uniform", 4.0, 6.0, 0.1, 0.9)
    >>> told = verdicts([plan, equal], "staleness", maximised=False)[0].replace("\xa0", " ")
    >>> told.partition(". ")[0]
    'At the bandwidth asked for, equal rates did best: staleness 6 ± 0.1, 25 % less than planned rates (8)'
    """
    found = []
    for where, policies in COMPARABLE:
        group = [row for row in rows if row.policy in policies]
        if len(group) > 1:
            found.append(f"{where}, {_verdict(group, noun, maximised=maximised)}")
    return found


def best_at_bandwidth(rows: Sequence[PolicyRow], *, maximised: bool) -> PolicyRow | None:
    """Return the best policy at the bandwidth asked for.

    None where no policy is better than all others.
    """
    group = [row for row in rows if row.policy in COMPARABLE[0][1]]
    if len(group) < 2:
        return None
    first, second = _ranked(group, maximised=maximised)[:2]
    return None if _same(first, second) else first


def _verdict(group: Sequence[PolicyRow], noun: str, *, maximised: bool) -> str:
    """Return the best policy and its lead.

    The plan is compared with the best of the others, any other policy with the plan.
    """
    ranked = _ranked(group, maximised=maximised)
    best = ranked[0]
    if _same(best, ranked[-1]):
        return f"no policy did better than another: {noun} {_measured(best)}."
    own = next((row for row in group if row.policy.startswith("plan")), ranked[1])
    other = ranked[1] if best is own else own
    name, rival = _name(best), _name(other)
    if _same(best, other):
        head = f"{name} and {rival} did best: {noun} {_measured(best)}"
    else:
        beside = _compared(best, other, maximised=maximised)
        head = f"{name} did best: {noun} {_measured(best)}, {beside} {rival} ({_measured(other)})"
    stale, left = percent(1.0 - best.fresh), percent(1.0 - other.fresh)
    return f"{head}. Copies were stale {stale} of the time, with {rival} {left}."


def _compared(best: PolicyRow, other: PolicyRow, *, maximised: bool) -> str:
    """Return the improvement over another policy, in percent of its value."""
    if other.value == 0.0:
        return "against"
    share = abs(best.value - other.value) / abs(other.value)
    return f"{percent(share)} {'more' if maximised else 'less'} than"


def _measured(row: PolicyRow) -> str:
    """Return a value with its standard error, if there is one."""
    return number(row.value) + (f" ± {number(row.error)}" if row.error else "")


def _name(row: PolicyRow) -> str:
    return POLICIES["plan"] if row.policy.startswith("plan") else POLICIES[row.policy]


def _ranked(group: Sequence[PolicyRow], *, maximised: bool) -> list[PolicyRow]:
    return sorted(group, key=lambda row: row.value, reverse=maximised)


def _same(one: PolicyRow, other: PolicyRow) -> bool:
    return abs(one.value - other.value) <= SAME * max(abs(one.value), abs(other.value))

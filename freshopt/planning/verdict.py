"""Verdict of a back-test: which policies a log supports, in one sentence.

A policy is said to save something only where its paired difference to the plan exceeds two standard errors,
or what Student's distribution asks for in their place where few sources decide; where the best of several
rules is judged, the level is divided by their number (Bonferroni), as the best of many is better by chance
alone. Errors hold what crawls hid (`Measurement.error`); where that is most of the plan's cost, the log
decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from freshopt.heavy import special
from freshopt.planning.policies import CURRENT, POLICIES, UNIFORM
from freshopt.planning.policy_cost import Measurement
from freshopt.report.held_out import PHASES as PHASES
from freshopt.report.held_out import SIGNALS as SIGNALS

# Two-sided probability of a normal variable beyond two standard deviations.
LEVEL = 0.0455
# Savings below this would not show in the table, and some are rounding.
SAME = 5e-4
RULES = {name: policy.words for name, policy in POLICIES.items() if policy.rule}
OTHERS = {name: policy.words for name, policy in POLICIES.items() if policy.words and not policy.rule}
OTHERS[CURRENT] = "the log's own crawls at as many crawls"
# Policies that are judged under their own names against the plan of the same bandwidth.
JUDGED = (*RULES, *OTHERS)


def verdict(savings: Mapping[str, Measurement], rules: Collection[str] = ()) -> str:
    """Return which policies a log supports.

    By the share of the plan's cost that each saves at the same bandwidth, under its name or the words for it.
    Of simple rules that need no plan those are the best and equal rates; `rules` are those of crawlers.

    Examples
    --------
    >>> many = np.ones(100, dtype=bool)
    >>> some = np.where(np.arange(100) < 50, -1.0, 1.0)
    >>> saved = {"uniform": -0.5, "phases": 0.01}
    >>> verdict({name: Measurement(value, 0.01 * some, many) for name, value in saved.items()})
    'The plan saves 33 ± 7 % of the cost of equal rates; phases: not supported (saves 1 ± 10 %).'
    """
    simple = {name: saved for name, saved in savings.items() if name in RULES}
    parts: list[str] = []
    if simple:
        best = max(simple, key=lambda key: simple[key].value)
        parts.append(_against(RULES[best], simple[best], len(simple)))
        if best != UNIFORM and UNIFORM in simple:
            # What everybody can do without a log is judged in any case, and no choice among several.
            parts.append(_against(RULES[UNIFORM], simple[UNIFORM], 1))
    for name, saved in savings.items():
        if name in OTHERS or name in rules:
            words = OTHERS.get(name, f"crawls by the rule {name} at as many crawls")
            parts.append(_against(words, saved, 1))
        elif name not in RULES:
            parts.append(_refinement(name, saved))
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def supported(saved: Measurement, of: int = 1) -> bool:
    """Return whether a saving, the best of so many, is beyond chance."""
    if saved.sources < 2 or not np.isfinite(saved.error):
        return False
    if saved.value <= SAME:
        return False
    freedom = max(min(saved.effective, saved.sources) - 1.0, 1.0)
    beyond = max(2.0, float(special.stdtrit(freedom, 1.0 - 0.5 * LEVEL / of)))
    return saved.value > beyond * saved.error


def _against(name: str, saved: Measurement, of: int) -> str:
    """Return how the plan compares with the best of some policies."""
    if abs(saved.value) <= SAME:
        return f"{name} cost as much as the plan"
    if supported(saved, of):
        return f"{name} save {_share(saved)} of the plan's cost"
    # The same difference as a share of that policy's own cost: 1 − 1/(1 − s).
    ratio = 1.0 - saved.value
    if not ratio > 0.0 or np.isinf(saved.hidden):
        return f"between the plan and {name} this log does not decide"
    plan = saved.scaled(1.0 - 1.0 / ratio, -1.0 / ratio)
    if supported(plan):
        return f"the plan saves {_share(plan)} of the cost of {name}"
    return f"between the plan and {name} this log does not decide (the plan {_effect(plan)})"


def _refinement(name: str, saved: Measurement) -> str:
    """Return whether a refinement of the plan pays."""
    loss = saved.scaled(-saved.value, -1.0)
    if supported(saved):
        return f"{name} saves {_share(saved)}"
    if supported(loss):
        return f"{name} costs {_share(loss)} more"
    return f"{name}: not supported" + ("" if np.isinf(saved.hidden) else f" ({_effect(saved)})")


def _effect(saved: Measurement) -> str:
    """Return what is saved, or costs more, where neither is beyond chance."""
    if saved.value < 0.0 and not _share(saved).startswith("0 "):
        return f"costs {_share(saved.scaled(-saved.value, -1.0))} more"
    return f"saves {_share(saved)}"


def _share(saved: Measurement) -> str:
    """Return a share with its error, in percent."""
    digits = 1 if abs(100.0 * saved.error) < 0.95 else 0
    value, error = (f"{100.0 * each:.{digits}f}" for each in (saved.value, saved.error))
    if not np.isfinite(saved.error):
        return f"{value} % on a single source"
    return f"{'0' if value in ('-0', '-0.0') else value} ± {error} %"

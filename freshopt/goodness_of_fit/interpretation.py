"""Plain-language interpretation of a `PoissonCheck`.

What its numbers mean for estimates and plans, in a paragraph.
"""

from __future__ import annotations

from math import isnan, log, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshopt.formatting import count

if TYPE_CHECKING:
    from freshopt.goodness_of_fit.poisson_check import PoissonCheck

WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
# Multiple of the level from which on rejections are reported.
MARKED = 2.0
# Standard errors: sources that change together make the true ones larger than those reported.
CLEAR = 3.0
# Dispersion beyond which, or below whose inverse, intervals are off by a tenth and more.
NOTABLE = 1.2


def interpret(check: PoissonCheck) -> str:
    """Interpret a Poisson check in plain language."""
    what = "changes" if check.kind == "changes" else "crawls that found a change, and that found none,"
    if not check.tested.any():
        return (
            f"No source has the 10 {what} that a test needs, so nothing can be said. With so few, the "
            "intervals "
            "of the change rates are wide whatever the process."
        )
    sentences = [verdict(check)]
    findings = [text for text in (_counts(check), _gaps(check), *_cycles(check), _drift(check)) if text]
    if not findings:
        findings = [
            "Nothing larger than chance speaks against the model: intervals may be taken as they stand."
        ]
    return " ".join([*sentences, *findings, *remarks(check)])


def verdict(check: PoissonCheck) -> str:
    """Return how many sources pass all tests, of how many."""
    n, tested = len(check.sources_), int(np.count_nonzero(check.tested))
    what = "changes" if check.kind == "changes" else "crawls that found a change, and that found none,"
    return (
        f"{tested:,} of {count(n, 'source')} {'has' if tested == 1 else 'have'} enough {what} to be tested; "
        f"{1.0 - check.share_rejected():.0%} of them pass all tests, as about {1.0 - check.level:.0%} of "
        "Poisson processes do."
    )


class Advice(NamedTuple):
    """A test's row: what it found, and what to do.

    Attributes
    ----------
    test : str
    rejected, at_rate : float
        Shares of the tested sources that it rejects, at the level and at a false-discovery rate of it.
    tested : int
    effect, advice : str
    """

    test: str
    rejected: float
    at_rate: float
    tested: int
    effect: str
    advice: str


def advice(check: PoissonCheck) -> list[Advice]:
    """Return what each test found, and what to do.

    Examples
    --------
    >>> from freshopt.goodness_of_fit import poisson_check
    >>> from freshopt.logs.change_history import ChangeHistory
    >>> rng = np.random.default_rng(0)
    >>> drawn = ChangeHistory(rng.integers(0, 3, 300), rng.uniform(0, 100, 300), 0.0, 100.0)
    >>> advice(poisson_check(drawn))[0].advice
    'none: no more than chance'
    """
    told = {
        "dispersion": _dispersion_advice(check),
        "gaps": _gaps_advice(check),
        **{test: _cycle_advice(check, test) for test in ("weekly", "daily")},
        "drift": _drift_advice(check),
    }
    rows = []
    for test, (effect, todo) in told.items():
        share = check.share_rejected(test)
        if isnan(share):
            continue
        if not todo:
            todo = "none: no more than chance" if not _marked(check, test) else "none"
        tested = int(np.count_nonzero(~np.isnan(check.p_value[test])))
        rows.append(
            Advice(test, share, check.share_rejected(test, false_discoveries=True), tested, effect, todo)
        )
    return rows


def _dispersion_advice(check: PoissonCheck) -> tuple[str, str]:
    index, error = check.pooled.get("dispersion", float("nan")), check.pooled.get("dispersion_error", 0.0)
    effect = f"variance {index:.2g} (Poisson: 1)"
    clear = abs(index - 1.0) > CLEAR * error
    if clear and index >= NOTABLE:
        return effect, f"widen change-rate intervals {sqrt(index):.1f}-fold"
    if clear and index <= 1.0 / NOTABLE:
        return effect, "none: change rates are surer than told"
    return effect, ""


def _gaps_advice(check: PoissonCheck) -> tuple[str, str]:
    if "gaps" not in check.profile:
        return "", ""
    bursts = float(np.median(check.profile["gaps"])) < log(2.0)
    effect = f"{'less' if bursts else 'more'} even than random"
    if not _marked(check, "gaps"):
        return effect, ""
    if bursts:
        return effect, "none: fresher than predicted"
    return effect, "expect staler copies than predicted"


def _cycle_advice(check: PoissonCheck, test: str) -> tuple[str, str]:
    amplitude = check.pooled.get(test, float("nan"))
    effect = f"{amplitude:.0%} swing"
    if check.dated and test in check.profile:
        at = int(np.argmax(check.profile[test]))
        effect += f", peak {WEEKDAYS[at][:3] if test == 'weekly' else f'{at}-{at + 1} UTC'}"
    return effect, "plan crawls after the peaks if it pays" if _marked(check, test) else ""


def _drift_advice(check: PoissonCheck) -> tuple[str, str]:
    faster = int(np.count_nonzero(check.rejected("drift") & (check.effect["drift"] > 1.0)))
    slower = int(np.count_nonzero(check.rejected("drift"))) - faster
    todo = "use --half-life 90d, plan --every 7d" if _marked(check, "drift") else ""
    return f"{faster:,} faster, {slower:,} slower", todo


def _marked(check: PoissonCheck, test: str) -> bool:
    """Return whether a test rejects more than chance would."""
    share = check.share_rejected(test)
    return (
        not isnan(share)
        and share > MARKED * check.level
        and bool(check.rejected(test, false_discoveries=True).any())
    )


def _counts(check: PoissonCheck) -> str:
    """Interpret the pooled dispersion for interval coverage."""
    index, error = check.pooled["dispersion"], check.pooled["dispersion_error"]
    share = f"significant for {check.share_rejected('dispersion'):.0%} of the sources"
    clear = abs(index - 1.0) > CLEAR * error
    if index >= NOTABLE and clear:
        return (
            f"Changes come in bursts: their numbers vary {index:.1f} times as much as those of Poisson "
            "processes "
            f"({share}), so that intervals of change rates are too narrow by a factor of about "
            f"{sqrt(index):.1f}, "
            "or more, as this is seen within the time of some five changes."
        )
    if index <= 1.0 / NOTABLE and clear:
        return (
            f"Changes come more regularly than at random: their numbers vary {index:.2f} times as much as "
            "those "
            f"of Poisson processes ({share}); intervals of change rates are too wide, which is safe."
        )
    if _marked(check, "dispersion"):
        return f"Numbers of changes vary more for some sources, less for others, than Poisson's ({share})."
    return ""


def _gaps(check: PoissonCheck) -> str:
    """Interpret the distribution of inter-change times for freshness.

    Their median over their mean is ln 2 for exponential ones.
    """
    if not _marked(check, "gaps"):
        return ""
    middle = float(np.median(check.profile["gaps"]))
    share = f"{check.share_rejected('gaps'):.0%}"
    if middle < log(2.0):
        return (
            f"Gaps between changes are more unequal than exponential ones (significant for {share}): one "
            "change is "
            "soon followed by another and then by none for long, so that at a given rate copies stay fresh "
            "longer "
            "than predicted."
        )
    return (
        f"Gaps between changes are more equal than exponential ones (significant for {share}): at a given "
        "rate "
        "copies go stale sooner than predicted, and refreshes timed to the rhythm would do better."
    )


def _cycles(check: PoissonCheck) -> list[str]:
    """Interpret the cycles for the times of refreshes."""
    texts = []
    for test in ("weekly", "daily"):
        if not _marked(check, test):
            continue
        amplitude = check.pooled[test]
        most = ""
        if check.dated and test in check.profile:
            at = int(np.argmax(check.profile[test]))
            when = f"on {WEEKDAYS[at]}" if test == "weekly" else f"from {at}:00 to {at + 1}:00 UTC"
            most = f", most of all {when}"
        texts.append(
            f"{check.share_rejected(test):.0%} of the sources that can show one have a {test} cycle, over "
            "all of "
            f"them a swing of {amplitude:.0%} about the mean{most}: a refresh is worth more after the busy "
            "time "
            "than before it."
        )
    return texts


def _drift(check: PoissonCheck) -> str:
    """Interpret drift for the choice of data to fit."""
    if not _marked(check, "drift"):
        return ""
    faster = int(np.count_nonzero(check.rejected("drift") & (check.effect["drift"] > 1.0)))
    slower = int(np.count_nonzero(check.rejected("drift"))) - faster
    return (
        f"Rates drift for {check.share_rejected('drift'):.0%} ({faster:,} up, {slower:,} down): an average "
        "over all "
        "of the time lags behind; learn from recent data, and anew from time to time."
    )


def remarks(check: PoissonCheck) -> list[str]:
    """Return which tests could not be made, and why."""
    texts = []
    if check.resolution is not None:
        how = (
            "at most one change is known of each, so that this was tested as a crawl in every "
            f"{check.resolution}"
            if check.one_each
            else "they were spread over it at random, so that repeated times count for nothing"
        )
        texts.append(f"Times are rounded to the {check.resolution}; {how}.")
    unseen = [test for test in ("weekly", "daily") if np.isnan(check.p_value[test]).all()]
    if unseen:
        texts.append(
            f"A {' or '.join(unseen)} cycle could not be seen at this spacing or length of the data."
        )
    few = int(np.count_nonzero(~check.tested))
    if few:
        texts.append(f"Of {count(few, 'source')} with too little data nothing can be said.")
    return texts

"""Interpretation of a `PoissonCheck` in words, and its plots on one page.

What its numbers mean for estimates and plans: a sentence and a row of advice for each test.
"""

from __future__ import annotations

import os
from math import isnan, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.formatting import count
from freshopt.moved import warn_renamed
from freshopt.plots import BLUE, GREY, new_figure, require_picture, save

if TYPE_CHECKING:
    from freshopt.goodness_of_fit.poisson_check import PoissonCheck


WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
# Multiple of the level from which on rejections are reported.
MARKED = 2.0
# Standard errors: sources that change together make the true ones larger than those reported.
CLEAR = 3.0
# Dispersion beyond which, or below whose inverse, intervals are off by a tenth and more.
NOTABLE = 1.2


class Told(NamedTuple):
    """What a test found, with what to do, and as a sentence."""

    effect: str = ""
    advice: str = ""
    sentence: str = ""


def interpret(check: PoissonCheck) -> str:
    """Interpret a Poisson check in plain language."""
    if not check.tested.any():
        return (
            f"No source has the 10 {_counted(check)} that a test needs, so nothing can be said. With so few, "
            "the intervals of the change rates are wide whatever the process."
        )
    findings = [told.sentence for told in _findings(check).values() if told.sentence]
    if not findings:
        findings = [
            "Nothing larger than chance speaks against the model: intervals may be taken as they stand."
        ]
    return " ".join([verdict(check), *findings, *remarks(check)])


def verdict(check: PoissonCheck) -> str:
    """Return how many sources pass all tests, of how many."""
    n, tested = len(check.sources_), int(np.count_nonzero(check.tested))
    return (
        f"{tested:,} of {count(n, 'source')} {'has' if tested == 1 else 'have'} enough {_counted(check)} to "
        f"be tested; {1.0 - check.share_rejected():.0%} of them pass all tests, as about "
        f"{1.0 - check.level:.0%} of Poisson processes do."
    )


def _counted(check: PoissonCheck) -> str:
    """Return what a source needs enough of to be tested."""
    return "changes" if check.kind == "changes" else "crawls that found a change, and that found none,"


class Advice(NamedTuple):
    """A test's row: what it found, and what to do.

    - `rejected`, `at_rate`: Shares of the tested sources that it rejects, at the level and at a
      false-discovery rate of it.
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
    rows = []
    for test, (effect, todo, _) in _findings(check).items():
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


def _findings(check: PoissonCheck) -> dict[str, Told]:
    """Return what each test found."""
    return {
        "dispersion": _dispersion(check),
        "gaps": _gaps(check),
        **{test: _cycle(check, test) for test in ("weekly", "daily")},
        "drift": _drift(check),
    }


def _dispersion(check: PoissonCheck) -> Told:
    """Interpret the pooled dispersion for interval coverage."""
    index, error = check.pooled.get("dispersion", float("nan")), check.pooled.get("dispersion_error", 0.0)
    effect = f"variance {index:.2g} (Poisson: 1)"
    share = f"significant for {check.share_rejected('dispersion'):.0%} of the sources"
    clear = abs(index - 1.0) > CLEAR * error
    if clear and index >= NOTABLE:
        return Told(
            effect,
            f"widen change-rate intervals {sqrt(index):.1f}-fold",
            f"Changes come in bursts: their numbers vary {index:.1f} times as much as those of Poisson "
            f"processes ({share}), so that intervals of change rates are too narrow by a factor of about "
            f"{sqrt(index):.1f}, or more, as this is seen within the time of some five changes.",
        )
    if clear and index <= 1.0 / NOTABLE:
        return Told(
            effect,
            "none: change rates are surer than told",
            f"Changes come more regularly than at random: their numbers vary {index:.2f} times as much as "
            f"those of Poisson processes ({share}); intervals of change rates are too wide, which is safe.",
        )
    if _marked(check, "dispersion"):
        text = f"Numbers of changes vary more for some sources, less for others, than Poisson's ({share})."
        return Told(effect, sentence=text)
    return Told(effect)


def _gaps(check: PoissonCheck) -> Told:
    """Interpret the distribution of inter-change times for freshness.

    Their median over their mean is ln 2 for exponential ones.
    """
    if "gaps" not in check.profile:
        return Told()
    bursts = float(np.median(check.profile["gaps"])) < log(2.0)
    effect = f"{'less' if bursts else 'more'} even than random"
    if not _marked(check, "gaps"):
        return Told(effect)
    share = f"(significant for {check.share_rejected('gaps'):.0%})"
    if bursts:
        return Told(
            effect,
            "none: fresher than predicted",
            f"Gaps between changes are more unequal than exponential ones {share}: one change is soon "
            "followed by another and then by none for long, so that at a given rate copies stay fresh longer "
            "than predicted.",
        )
    return Told(
        effect,
        "expect staler copies than predicted",
        f"Gaps between changes are more equal than exponential ones {share}: at a given rate copies go stale "
        "sooner than predicted, and refreshes timed to the rhythm would do better.",
    )


def _cycle(check: PoissonCheck, test: str) -> Told:
    """Interpret a cycle for the times of refreshes."""
    swing = f"{check.pooled.get(test, float('nan')):.0%}"
    peak = most = ""
    if check.dated and test in check.profile:
        at = int(np.argmax(check.profile[test]))
        weekly = test == "weekly"
        peak = f", peak {WEEKDAYS[at][:3] if weekly else f'{at}-{at + 1} UTC'}"
        most = f", most of all {f'on {WEEKDAYS[at]}' if weekly else f'from {at}:00 to {at + 1}:00 UTC'}"
    effect = f"{swing} swing{peak}"
    if not _marked(check, test):
        return Told(effect)
    return Told(
        effect,
        "plan crawls after the peaks if it pays",
        f"{check.share_rejected(test):.0%} of the sources that can show one have a {test} cycle, over all of "
        f"them a swing of {swing} about the mean{most}: a refresh is worth more after the busy time than "
        "before it.",
    )


def _drift(check: PoissonCheck) -> Told:
    """Interpret drift for the choice of data to fit."""
    faster = int(np.count_nonzero(check.rejected("drift") & (check.effect["drift"] > 1.0)))
    slower = int(np.count_nonzero(check.rejected("drift"))) - faster
    effect = f"{faster:,} faster, {slower:,} slower"
    if not _marked(check, "drift"):
        return Told(effect)
    return Told(
        effect,
        "use --half-life 90d, plan --every 7d",
        f"Rates drift for {check.share_rejected('drift'):.0%} ({faster:,} up, {slower:,} down): an average "
        "over all of the time lags behind; learn from recent data, and anew from time to time.",
    )


def _marked(check: PoissonCheck, test: str) -> bool:
    """Return whether a test rejects more than chance would."""
    share = check.share_rejected(test)
    return (
        not isnan(share)
        and share > MARKED * check.level
        and bool(check.rejected(test, false_discoveries=True).any())
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


RED = "#cc0000"
DAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")


def draw(check: PoissonCheck, path: str | os.PathLike[str]) -> None:
    """Draw a check into an image file.

    Raises
    ------
    FreshoptError
        If no source could be tested, or Matplotlib is not installed.
    SourceDataError
        If the name is no picture's (.png, .svg, .pdf), or the file cannot be written.
    """
    if not check.tested.any():
        raise FreshoptError("no source could be tested, so there is nothing to draw. Pass more data.")
    require_picture(Path(path))
    figure = new_figure(11.0, 6.4)
    axes = figure.subplots(2, 3)
    _p_values(axes[0, 0], check)
    _indices(axes[0, 1], check)
    _gap_quantiles(axes[0, 2], check)
    _phases(axes[1, 0], check, "weekly", "day of the week" if check.dated else "day of seven, from time 0")
    _phases(axes[1, 1], check, "daily", "hour of the day (UTC)" if check.dated else "hour of 24, from time 0")
    _rejected(axes[1, 2], check)
    tested = int(np.count_nonzero(check.tested))
    passed = 1.0 - check.share_rejected()
    figure.suptitle(f"How far from Poisson: {passed:.0%} of {tested:,} sources pass", fontsize=13)
    save(figure, path)


def plot(check: PoissonCheck, path: str | os.PathLike[str]) -> None:
    """Draw a check, by an earlier name of `draw`."""
    warn_renamed("goodness_of_fit.plot", "goodness_of_fit.draw")
    draw(check, path)


def _p_values(axis: Any, check: PoissonCheck) -> None:  # noqa: ANN401 - matplotlib has no types
    """Plot each test's empirical distribution of p-values.

    It is the diagonal if all sources were Poisson.
    """
    for test in ("dispersion", "gaps", "weekly", "daily", "drift"):
        p = np.sort(check.p_value[test][~np.isnan(check.p_value[test])])
        if len(p):
            axis.step(
                np.append(p, 1.0), np.append(np.arange(1, len(p) + 1) / len(p), 1.0), where="post", label=test
            )
    axis.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="if Poisson")
    axis.set(title="p-values", xlabel="p", ylabel="share of sources below", xlim=(0, 1), ylim=(0, 1.02))
    axis.legend(fontsize=8, loc="lower right")


def _indices(axis: Any, check: PoissonCheck) -> None:  # noqa: ANN401
    """Draw the indices of dispersion, on a logarithmic axis."""
    index = np.clip(check.effect["dispersion"][check.tested], 1e-2, None)
    axis.hist(index, bins=np.geomspace(index.min() * 0.9, index.max() * 1.1, 31), color=BLUE)
    axis.axvline(1.0, color=RED, linewidth=1.2, label="Poisson")
    axis.axvline(check.pooled["dispersion"], color=GREY, linestyle="--", label="over all changes")
    axis.set_xscale("log")
    axis.set(title="dispersion of counts", xlabel="variance over Poisson variance", ylabel="sources")
    axis.legend(fontsize=8)


def _gap_quantiles(axis: Any, check: PoissonCheck) -> None:  # noqa: ANN401
    """Plot inter-change times, over their mean, against exponential quantiles."""
    share = np.linspace(0.005, 0.995, len(check.profile["gaps"]))
    axis.plot(
        -np.log1p(-share), check.profile["gaps"], ".", color=BLUE, markersize=4, label="gaps, all sources"
    )
    axis.plot([5e-3, 5.4], [5e-3, 5.4], color=RED, linewidth=1.2, label="Poisson")
    axis.set(xscale="log", yscale="log", ylim=(1e-3, None))
    axis.set(title="gaps between changes", xlabel="exponential quantile", ylabel="gap over its mean")
    axis.legend(fontsize=8)


def _phases(axis: Any, check: PoissonCheck, test: str, label: str) -> None:  # noqa: ANN401
    """Plot observed over expected changes by phase of a cycle."""
    axis.set(title=f"{test} cycle", xlabel=label)
    if test not in check.profile:
        axis.text(0.5, 0.5, "cannot be seen at this spacing\nor length of the data", ha="center", va="center")
        axis.set_axis_off()
        return
    parts = check.profile[test]
    axis.bar(np.arange(len(parts)), parts, color=BLUE, width=0.85)
    axis.axhline(1.0, color=RED, linewidth=1.2)
    axis.set_ylabel("changes over those due")
    if test == "weekly" and check.dated:
        axis.set_xticks(range(7), DAYS)


def _rejected(axis: Any, check: PoissonCheck) -> None:  # noqa: ANN401
    """Plot rejections of each test, at its level and false-discovery rate."""
    names = ("dispersion", "gaps", "weekly", "daily", "drift", "any")
    tests = [test for test in names if not np.isnan(check.share_rejected(test))]
    at = np.arange(len(tests))
    axis.bar(
        at - 0.2, [check.share_rejected(test) for test in tests], 0.4, color=BLUE, label="each at the level"
    )
    many = [check.share_rejected(test, false_discoveries=True) for test in tests]
    axis.bar(at + 0.2, many, 0.4, color=GREY, label="at a false-discovery rate")
    axis.axhline(check.level, color=RED, linewidth=1.2, label=f"level {check.level:g}")
    axis.set_xticks(at, tests, rotation=30)
    axis.set(title="sources that are not Poisson", ylabel="share of those tested", ylim=(0, 1.4))
    axis.legend(fontsize=8)

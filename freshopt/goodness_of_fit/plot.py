"""Diagnostic plots of a `PoissonCheck` on one page.

p-values, dispersion, inter-change times, and the two cycles.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.errors import FreshoptError, SourceDataError

if TYPE_CHECKING:
    from freshopt.goodness_of_fit.poisson_check import PoissonCheck

BLUE, GREY, RED = "#3465a4", "#888a85", "#cc0000"
ENDINGS = (".png", ".svg", ".pdf")
DAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")


def plot(check: PoissonCheck, path: str | os.PathLike[str]) -> None:
    """Plot a check into an image file.

    `PoissonCheck.plot` documents what is raised.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise FreshoptError("a picture needs matplotlib. Install freshopt[report].") from None
    if not check.tested.any():
        raise FreshoptError("no source could be tested, so there is nothing to draw. Pass more data.")
    path = Path(path)
    require_picture(path)
    figure = Figure(figsize=(11.0, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3)
    _p_values(axes[0, 0], check)
    _dispersion(axes[0, 1], check)
    _gaps(axes[0, 2], check)
    _cycle(axes[1, 0], check, "weekly", "day of the week" if check.dated else "day of seven, from time 0")
    _cycle(axes[1, 1], check, "daily", "hour of the day (UTC)" if check.dated else "hour of 24, from time 0")
    _rejected(axes[1, 2], check)
    tested = int(np.count_nonzero(check.tested))
    passed = 1.0 - check.share_rejected()
    figure.suptitle(f"How far from Poisson: {passed:.0%} of {tested:,} sources pass", fontsize=13)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise SourceDataError(
            f"{path} cannot be written: {error.strerror or error}. Choose another place, or mend its "
            "permissions."
        ) from error


def require_picture(path: Path) -> None:
    """Raise if a name has no image suffix.

    Examples
    --------
    >>> require_picture(Path("check.docx"))
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: check.docx is no picture. Names end in .png, .svg or .pdf. Rename it.
    """
    if path.suffix.lower() not in ENDINGS:
        raise SourceDataError(f"{path} is no picture. Names end in .png, .svg or .pdf. Rename it.")


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


def _dispersion(axis: Any, check: PoissonCheck) -> None:  # noqa: ANN401
    """Draw the indices of dispersion, on a logarithmic axis."""
    index = np.clip(check.effect["dispersion"][check.tested], 1e-2, None)
    axis.hist(index, bins=np.geomspace(index.min() * 0.9, index.max() * 1.1, 31), color=BLUE)
    axis.axvline(1.0, color=RED, linewidth=1.2, label="Poisson")
    axis.axvline(check.pooled["dispersion"], color=GREY, linestyle="--", label="over all changes")
    axis.set_xscale("log")
    axis.set(title="dispersion of counts", xlabel="variance over Poisson variance", ylabel="sources")
    axis.legend(fontsize=8)


def _gaps(axis: Any, check: PoissonCheck) -> None:  # noqa: ANN401
    """Plot inter-change times against exponential quantiles.

    Over the mean of their source.
    """
    share = np.linspace(0.005, 0.995, len(check.profile["gaps"]))
    axis.plot(
        -np.log1p(-share), check.profile["gaps"], ".", color=BLUE, markersize=4, label="gaps, all sources"
    )
    axis.plot([5e-3, 5.4], [5e-3, 5.4], color=RED, linewidth=1.2, label="Poisson")
    axis.set(xscale="log", yscale="log", ylim=(1e-3, None))
    axis.set(title="gaps between changes", xlabel="exponential quantile", ylabel="gap over its mean")
    axis.legend(fontsize=8)


def _cycle(axis: Any, check: PoissonCheck, test: str, label: str) -> None:  # noqa: ANN401
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
    """Plot the share of rejections of each test.

    At its level and at a false-discovery rate.
    """
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

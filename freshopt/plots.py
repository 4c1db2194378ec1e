"""Plots of results with Matplotlib: axes, colours and shared marks.

Results have a method ``plot(ax=None)``. It draws on the axes given, or on new ones of `matplotlib.pyplot`,
and returns them, as pandas does: notebooks show them, scripts save them by ``axes.figure.savefig(...)``, and
whatever Matplotlib can do to axes can be done to them. Nothing is shown here. Matplotlib is an extra, and is
imported when something is drawn.

The colours are of the palette of Okabe and Ito, which readers with any kind of colour vision tell apart.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from freshopt.planning.plan import Plan

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#666666"
# Size of new axes in inches.
WIDTH, HEIGHT = 6.0, 4.2
# Kinds of image files.
ENDINGS = (".png", ".svg", ".pdf")
# Sources above which dots become points, and are drawn as one image within a PDF or SVG.
MANY = 2000
# Beyond so many times the largest bandwidth that was solved, the axis of bandwidths is logarithmic.
FAR = 2.0


def new_figure(width: float, height: float) -> Figure:
    """Return a figure for a file, which no window shows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise _missing() from None
    return Figure(figsize=(width, height), layout="constrained")


class Plotted:
    """A result that is drawn on one pair of axes."""

    __slots__ = ()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the result: its class says what is shown.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default new ones of `matplotlib.pyplot`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        FreshoptError
            If Matplotlib is not installed, or there is nothing to draw.
        """
        axes = axes_for(ax)
        try:
            self._draw(axes)
        except FreshoptError:
            if ax is None:
                from matplotlib import pyplot

                pyplot.close(pyplot.gcf())
            raise
        return axes

    def _draw(self, axes: Axes) -> None:
        raise NotImplementedError


def axes_for(ax: Any) -> Axes:  # noqa: ANN401 - axes or None
    """Return the axes given, or new ones."""
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError:
        raise _missing() from None
    if ax is None:
        return pyplot.figure(figsize=(WIDTH, HEIGHT), layout="constrained").subplots()
    if not isinstance(ax, Axes):
        raise SourceDataError(
            f"ax is {type(ax).__name__}, where Matplotlib axes are drawn on. Pass Matplotlib axes, or "
            "nothing."
        )
    return ax


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


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure into an image file."""
    path = Path(path)
    require_picture(path)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise SourceDataError(
            f"{path} cannot be written: {error.strerror or error}. Choose another place, or mend its "
            "permissions."
        ) from error
    return path


def scatter(ax: Axes, x: Array, y: Array, none: str) -> None:
    """Draw a dot for each source, both axes logarithmic."""
    there = (x > 0.0) & np.isfinite(x) & (y > 0.0) & np.isfinite(y)
    ax.set(xscale="log", yscale="log")
    size = 4.0 if len(x) <= MANY else 1.5
    ax.plot(x[there], y[there], "o", color=BLUE, alpha=0.55, markersize=size, markeredgewidth=0.0)
    ax.lines[-1].set_rasterized(len(x) > MANY)
    rest = x[~there & (x > 0.0)]
    if len(rest):
        edge = ax.get_xaxis_transform()
        label = f"{count(len(rest), 'source')} {none}"
        # In the picture's own height, for a logarithmic axis has no 0.
        ax.plot(rest, np.full(len(rest), 0.025), "x", color=ORANGE, transform=edge, label=label)
    ax.grid(visible=True, which="major", color="#e3e3e3", linewidth=0.8)
    ax.set_axisbelow(True)
    for axis in (ax.xaxis, ax.yaxis):
        plain_ticks(axis)


def plain_ticks(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import LogLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 500.0 * low else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def curve(ax: Axes, x: Array, y: Array, label: str) -> None:
    """Draw a curve through solved points, on a plain grid."""
    ax.plot(x, y, ".-", color=BLUE, markersize=4, label=label)
    ax.grid(visible=True, color="#e3e3e3", linewidth=0.8)
    ax.set_axisbelow(True)


def mark(ax: Axes, x: float, y: float, label: str, *, kind: str = "o", color: str = ORANGE) -> None:
    """Mark a point, which the legend names."""
    ax.plot([x], [y], kind, color=color, markersize=8, label=label)


def measured_rows(
    ax: Axes,
    names: Sequence[str],
    values: Array,
    errors: Array,
    predicted: Array,
    own: Sequence[bool],
) -> None:
    """Draw a row for each policy: measured with error, and predicted."""
    place = np.arange(len(names))
    for chosen, color, label in ((True, BLUE, "plan"), (False, GREY, "other policies")):
        some = np.asarray(own) == chosen
        if np.any(some):
            ax.errorbar(
                values[some], place[some], xerr=errors[some], fmt="o", color=color, label=label, capsize=3
            )
    known = np.isfinite(predicted)
    if np.any(known):
        (ring,) = ax.plot(predicted[known], place[known], "o", color=ORANGE, label="predicted", markersize=9)
        ring.set_markerfacecolor("none")
    ax.set_yticks(place, names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=True, axis="x", color="#e3e3e3", linewidth=0.8)
    ax.set_axisbelow(True)


def draw_intervals(intervals: Axes, made: Plan) -> None:
    """Draw a plan's intervals against change rates, and those of its log."""
    sources, unit = made.sources, made.log.time_unit
    with np.errstate(divide="ignore"):
        scatter(intervals, sources.change_rate, 1.0 / made.solution.rates, "never refreshed")
        if made.crawled:
            own = 1.0 / made.log.crawl_rate
            intervals.plot(sources.change_rate, own, "_", color=GREY, label="the log's own crawls", zorder=1)
    intervals.set(xlabel=f"changes per {unit}", ylabel=f"{unit}s between refreshes")
    intervals.set_title(f"Intervals of {count(len(sources), 'source')}", fontsize="medium")
    if intervals.get_legend_handles_labels()[0]:
        intervals.legend(frameon=False)


def draw_achieved(axes: Axes, made: Plan) -> None:
    """Draw the certified frontier, with the plan and its comparisons."""
    problem, fresh = made.problem, made.findings["fresh"]
    points = [point for point in made.findings["frontier"] if point["value"] is not None]
    shares = fresh is not None and all(point["fresh"] is not None for point in points)
    at = np.array([point["bandwidth"] for point in points])
    scale, key = (100.0, "fresh") if shares else (1.0, "value")
    curve(axes, at, scale * np.array([point[key] for point in points]), "optimal rates")
    used = made.solution.bandwidth_used
    known = fresh if shares else {"plan": made.solution.value, **made.baselines}
    marked = [
        ("this plan", used, known["plan"], "o", ORANGE),
        ("equal rates", used, known["uniform"], "s", GREEN),
    ]
    if shares and made.today is not None:
        marked.append(("the log's own crawls", made.today.bandwidth, made.today.fresh, "D", GREY))
    for name, many, share, kind, color in marked:
        told = f"{name}: {percent(share) if shares else number(share)} at {number(many)}"
        mark(axes, many, scale * share, told, kind=kind, color=color)
    if marked[-1][1] > FAR * at[-1]:
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
    noun = f"{type(problem.objective).__name__} ({problem.objective.sense}d)"
    axes.set(xlabel=f"refreshes per {made.log.time_unit}")
    axes.set(ylabel="% of the time up to date" if shares else noun)
    axes.set_title(f"{number(used)} refreshes per {made.log.time_unit}", fontsize="medium")
    axes.legend(frameon=False)


def _missing() -> FreshoptError:
    """Return what is said where Matplotlib is not installed."""
    return FreshoptError('Matplotlib is not installed. Install it: pip install "freshopt[report]".')

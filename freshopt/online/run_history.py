"""`RunHistory`: rates, value and regret of a policy, by round.

All policies return one. The cost of a round is that of its rates under the true parameters where the world
knows them (`exact`), so that a regret curve has no sampling noise; with a real crawler it is an estimate.
Rates of many rounds and sources are thinned, costs never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from freshopt.errors import SourceDataError, one_of
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.moved import warn_renamed
from freshopt.numerics.arrays import Array, IntArray, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.plots import Plotted, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Sense = Literal["minimise", "maximise"]


@frozen_value(repr=False)
class RunHistory(Plotted):
    """Rounds of a run of an online policy.

    Attributes
    ----------
    learner : str
        How it prints.
    time : ndarray, shape (R,)
        End of each round, in time units.
    duration : ndarray, shape (R,)
        Length of each round.
    value : ndarray, shape (R,)
        Value of the rates of each round, in the sense of the objective.
    best : ndarray, shape (R,), or None
        The value of the best rates at the same bandwidth.
    spent, allowed : ndarray, shape (R,)
        Bandwidth used (refreshes and probes, times cost) and what the bandwidth allowed, per round.
    kept : ndarray of int, shape (r,)
        The rounds whose rates are kept, counted from 0; the last round always is.
    rates : ndarray, shape (r, n)
        Rates of those rounds.
    final : ndarray, shape (n,)
        Rates of the next round: those that the run has learnt.
    sense : "minimise" or "maximise"
    exact : bool
        Whether values are under the true parameters; otherwise they are estimates.
    time_unit : str
    extra : mapping of str to ndarray, each of shape (R,)
        Further columns of a learner.
    """

    learner: str
    time: Array
    duration: Array
    value: Array
    best: Array | None
    spent: Array
    allowed: Array
    kept: IntArray
    rates: Array
    final: Array
    sense: Sense = "minimise"
    exact: bool = True
    time_unit: str = "day"
    extra: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sense", one_of(self.sense, get_args(Sense), "sense"))
        columns = {key: getattr(self, key) for key in ("time", "duration", "value", "spent", "allowed")}
        columns |= dict(self.extra) | ({} if self.best is None else {"best": self.best})
        wrong = [key for key, column in columns.items() if np.shape(column) != np.shape(self.time)]
        if wrong or len(self.kept) != len(self.rates):
            raise SourceDataError(
                f"a history of {len(self.time)} rounds has other lengths in {', '.join(wrong) or 'rates'}. "
                "Give every column one entry per round."
            )
        for key in ("time", "duration", "value", "best", "spent", "allowed", "kept", "rates", "final"):
            column = getattr(self, key)
            object.__setattr__(self, key, None if column is None else read_only(np.asarray(column)))

    def __len__(self) -> int:
        """Return the number of rounds."""
        return len(self.time)

    def __repr__(self) -> str:
        rounds = count(len(self), "round", "d")
        if not len(self):
            return f"RunHistory({self.learner}: no rounds)"
        now = f"{'value' if self.exact else 'estimated value'} {self.value[-1]:.6g}"
        if self.best is not None:
            now += f", best {self.best[-1]:.6g}, regret {self.regret[-1]:.4g}"
        share = float(np.sum(self.spent) / np.sum(self.allowed))
        span = f"{self.time[-1]:.6g} {self.time_unit}s"
        return f"RunHistory({self.learner}: {rounds} in {span}, {now}, {share:.1%} of the bandwidth spent)"

    @property
    def shortfall(self) -> Array:
        """Instantaneous regret of each round, ≥ 0, shape (R,).

        ≥ 0 up to rounding.
        """
        if self.best is None:
            raise SourceDataError(
                "the best value is not known, so there is no regret. Pass the true parameters: run in a "
                "Poisson world."
            )
        short: Array = self.value - self.best if self.sense == "minimise" else self.best - self.value
        return short

    @property
    def regret(self) -> Array:
        """Shortfall times duration, added up over the rounds, shape (R,)."""
        lost: Array = np.cumsum(self.shortfall * self.duration)
        return lost

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table with one row per round.

        Its columns are round, time, value, best, regret, spent, allowed and further ones.
        """
        columns = {"round": np.arange(len(self)), "time": self.time, "value": self.value}
        if self.best is not None:
            columns |= {"best": self.best, "regret": self.regret}
        columns |= {"spent": self.spent, "allowed": self.allowed, **self.extra}
        return polars.DataFrame({key: np.ascontiguousarray(column) for key, column in columns.items()})

    def _draw(self, axes: Axes) -> None:
        """Draw value and best value over time."""
        axes.plot(self.time, self.value, label="learner" if self.exact else "learner (estimated)")
        if self.best is not None:
            axes.plot(self.time, self.best, color="black", linestyle="--", label="best rates")
        axes.set(xlabel=f"{self.time_unit}s", ylabel="cost" if self.sense == "minimise" else "value")
        axes.set_title(self.learner, fontsize="medium", wrap=True)
        axes.legend(frameon=False)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot value and best value over time; see `draw`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default new ones of `matplotlib.pyplot`.

        Raises
        ------
        FreshoptError
            If Matplotlib is not installed.
        """
        if isinstance(ax, str | Path):
            warn_renamed("RunHistory.plot(path)", "RunHistory.draw(path)")
            return self.draw(ax)
        return Plotted.plot(self, ax)

    def draw(self, path: str | Path) -> Path:
        """Draw value, best value and bandwidth used over time into an image.

        Needs Matplotlib.

        Parameters
        ----------
        path : str or Path
            Where to, with an ending that Matplotlib knows (.png, .svg, .pdf).

        Raises
        ------
        FreshoptError
            If Matplotlib is not installed.
        """
        figure = new_figure(7.0, 5.0)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        self._draw(above)
        above.set_xlabel("")
        below.plot(self.time, 100.0 * self.spent / self.allowed)
        below.axhline(100.0, color="black", linewidth=0.8)
        below.set_ylabel("% spent")
        below.set_ylim(bottom=0.0)
        below.set_xlabel(f"{self.time_unit}s")
        return save(figure, path)

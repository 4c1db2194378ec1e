"""`Beliefs`: posteriors of resetting change rates, carried on crawl by crawl.

What a live planner keeps between two plans in place of a log: of each source the belief on its grid of rates,
and when its last crawl was. After each batch of crawls it is what filtering all of them at once gives
(`reset_filter`), at the cost of the batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.inference.dated_crawls import GammaParameters, first_dates
from freshopt.inference.forgetting import moment_of
from freshopt.inference.gamma_prior import GammaPrior
from freshopt.inference.host_prior import HostPriors
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.inference.rate_grid import RateGrid, Span
from freshopt.inference.reset_filter import aged, crawl_rows, dated, filtered, most_changes
from freshopt.logs.crawl_log import CrawlLog, require_log
from freshopt.numerics.arrays import LARGEST, Array, IntArray, are_text, as_number
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.units import convert_time

# How much longer than the first log beliefs are carried on, unless told.
LONGER = 4.0


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Beliefs:
    """Beliefs about the change rates of n sources.

    Attributes
    ----------
    sources_ : ndarray, shape (n,)
        Sorted names or integers.
    grid : RateGrid
        Nodes and prior, shape (n, m).
    belief : ndarray of float, shape (n, m)
        Mass on the nodes after each source's last crawl.
    last_crawl : ndarray of float, shape (n,)
        When that was: in time units, since 1970 if logs have dates.
    now : float
        The last crawl of all.
    prior : GammaPrior or HostPriors
        What rates are drawn from, and new sources begin with.
    reset : float
        Resets per `time_unit`.
    time_unit : str
    time, changes : float
        What the grid is for: sources observed so long, that change so often.
    nodes : int
        Their number m.

    Examples
    --------
    >>> prior = GammaPrior(shape=1.0, exposure=2.0)
    >>> monday = CrawlLog(source=["a", "a", "b"], time=[0.0, 1.0, 1.0], changed=[0, 1, 0])
    >>> beliefs = Beliefs.from_log(monday, prior, reset=0.02)
    >>> beliefs.expected_rate().round(3)
    array([0.833, 0.5  ])
    >>> tuesday = CrawlLog(["a", "b"], [3.0, 3.0], [0, 0], start=beliefs.last_crawl)
    >>> beliefs.after(tuesday).expected_rate().round(3)
    array([0.437, 0.25 ])
    """

    sources_: npt.NDArray[Any]
    grid: RateGrid
    belief: Array
    last_crawl: Array
    now: float
    prior: GammaPrior | HostPriors
    reset: float
    time_unit: str
    time: float
    changes: float
    nodes: int

    @classmethod
    def from_log(
        cls,
        log: CrawlLog,
        prior: GammaPrior | HostPriors,
        reset: float,
        *,
        time: float | None = None,
        changes: float | None = None,
    ) -> Beliefs:
        """Return the beliefs after a log.

        Parameters
        ----------
        log : CrawlLog
            With times.
        prior : GammaPrior or HostPriors
        reset : float
            Resets per time unit of the log, such as `reset_` of a fitted `MaximumLikelihood`.
        time, changes : float, optional
            How long, in time units, a source may be observed in all, and how many of its changes found. They
            set the grid; by default four times those of the log.

        Raises
        ------
        SourceDataError
            If the log has gaps between crawls only, or the reset is no rate.
        """
        _require_times(log)
        expect(prior, (GammaPrior, HostPriors), "prior", "Pass a GammaPrior or HostPriors")
        reset = _size(0.0, reset, "reset", "Pass resets per time unit of the log, 0 or more.")
        found, observed = most_changes(log, crawl_rows(log))
        _, age = first_dates(log)
        observed = observed if age is None else observed + age
        longest, most = (LONGER * float(np.max(each, initial=0.0)) for each in (observed, found))
        longest = _size(longest, time, "time", "Pass a length in time units, 0 or more.")
        most = _size(most, changes, "changes", "Pass a number of changes, 0 or more.")
        begun = cls(
            sources_=log.sources_[:0],
            grid=RateGrid(np.empty((0, 0)), np.empty((0, 0)), np.empty(0)),
            belief=np.empty((0, 0)),
            last_crawl=np.empty(0),
            now=-np.inf,
            prior=prior,
            reset=reset,
            time_unit=log.time_unit,
            time=longest,
            changes=most,
            nodes=_nodes(prior, log.time_unit, most, longest),
        )
        return begun.after(log)

    def __repr__(self) -> str:
        """Return the number of sources and resets."""
        return (
            f"Beliefs({len(self.sources_)} sources, {self.reset:.4g} resets per {self.time_unit}, "
            f"prior={self.prior})"
        )

    def after(self, batch: CrawlLog) -> Beliefs:
        """Return the beliefs after some more crawls.

        Parameters
        ----------
        batch : CrawlLog
            Later crawls than those before, of any sources. The first one of a source tells something if the
            batch has its crawl interval (``elapsed``, or ``start=beliefs.last_crawl``).

        Raises
        ------
        SourceDataError
            If a source's crawl is not later than its last one, or the batch has another time unit, or names
            of another kind, or no times.
        """
        _require_times(batch)
        if batch.time_unit != self.time_unit:
            raise SourceDataError(
                f"the batch counts {batch.time_unit}s but the beliefs {self.time_unit}s. Give both one unit."
            )
        known = self._with(batch)
        at = np.searchsorted(known.sources_, batch.sources_)
        first = batch.offsets[:-1]
        moments = moment_of(batch, 0.0)
        since = moments + batch.time[first] - known.last_crawl[at]
        late = np.flatnonzero(since <= 0.0)
        if len(late):
            who = list_offenders(f"'{batch.sources_[k]}'" for k in late.tolist())
            raise SourceDataError(
                f"the batch has crawls of {who} that are not later than the last one of the beliefs. Pass "
                "crawls once, in their order."
            )
        rows = crawl_rows(batch)
        rows.gap[first] = np.where(np.isnan(since), rows.gap[first], since)
        some = RateGrid(known.grid.nodes[at], known.grid.mass[at], known.grid.shape[at])
        here = np.arange(len(at))
        after, _ = filtered(some, known.belief[at], batch.offsets, here, rows, np.array([self.reset]))
        belief, last = known.belief.copy(), known.last_crawl.copy()
        belief[at], last[at] = after[0], moments + batch.last_crawl
        return replace(known, belief=belief, last_crawl=last, now=max(self.now, moments + batch.end))

    def expected_rate(self, ahead: float = 0.0) -> Array:
        """Return E[Δ] of each source, shape (n,), per time unit.

        Some time units after `now`.
        """
        return self.grid.mean(self._ahead(ahead))

    def distribution(self, ahead: float = 0.0) -> RateDistribution:
        """Return the distribution of each rate, after some time."""
        belief, never = self._ahead(ahead), np.zeros(len(self.sources_), dtype=np.bool_)
        return RateDistribution(lambda levels: self.grid.quantiles(belief, levels), never, never)

    def _ahead(self, ahead: float) -> Array:
        ahead = _size(0.0, ahead, "ahead", "Pass a length in time units, 0 or more.")
        return aged(self.belief, self.grid.mass, self.now + ahead - self.last_crawl, self.reset)

    def _with(self, batch: CrawlLog) -> Beliefs:
        """Return the beliefs with those about new sources, before their crawls."""
        if len(self.sources_) and are_text(self.sources_) is not are_text(batch.sources_):
            raise SourceDataError("sources are integers here and text there. Name them alike in all batches.")
        new = ~np.isin(batch.sources_, self.sources_)
        if not new.any():
            return self
        own = self.prior.parameters(batch).of(new)
        grid = self._grid(own)
        begin = grid.mass
        possible, age = first_dates(batch)
        if possible is not None and age is not None:
            begin = dated(grid, possible[new], age[new], own.birth_rate)
        names = np.concatenate([self.sources_, batch.sources_[new]])
        order = np.argsort(names, kind="stable")
        last = np.concatenate([self.last_crawl, np.full(np.count_nonzero(new), np.nan)])
        return replace(
            self,
            sources_=names[order],
            grid=RateGrid(
                _joined(self.grid.nodes, grid.nodes, order),
                _joined(self.grid.mass, grid.mass, order),
                np.concatenate([self.grid.shape, grid.shape])[order],
            ),
            belief=_joined(self.belief, begin, order),
            last_crawl=last[order],
        )

    def _grid(self, own: GammaParameters) -> RateGrid:
        changes, time = (np.full(len(own.shape), each) for each in (self.changes, self.time))
        return RateGrid.of(own, changes, time, self.nodes)


def _size(usual: float, given: float | None, what: str, remedy: str) -> float:
    size = usual if given is None else as_number(given, what, remedy)
    if not 0.0 <= size <= LARGEST:
        raise SourceDataError(f"{what} is {size}. {remedy}")
    return size


def _nodes(prior: GammaPrior | HostPriors, time_unit: str, changes: float, time: float) -> int:
    """Return how many nodes serve the prior of every host."""
    unit = convert_time(1.0, time_unit, prior.time_unit)
    if isinstance(prior, GammaPrior):
        shape, exposure = np.array([prior.shape]), np.array([prior.exposure / unit])
    else:
        shape, exposure = prior.shape, prior.shape / (prior.mean * unit)
    n = len(shape)
    span = Span.of(GammaParameters(shape, exposure, np.zeros(n)), np.full(n, changes), np.full(n, time))
    return int(np.max(span.counts()))


def _joined(old: Array, new: Array, order: IntArray) -> Array:
    return np.concatenate([old.reshape(-1, new.shape[1]), new])[order]


def _require_times(log: CrawlLog) -> None:
    require_log(log)
    if not log.timed:
        raise SourceDataError(
            "beliefs need to know when crawls were, and the log has the gaps between them only (elapsed). "
            "Add the column time."
        )

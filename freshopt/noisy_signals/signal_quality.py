"""`NoisySignals`: recall and precision of change signals.

From a log that counts signals.

A crawler that hears announcements (a sitemap, a feed, a webhook) knows at each crawl how much time passed and
how many signals came since the crawl before, and finds whether the source has changed. The time holds the
information about changes that were not announced, the signals that about announced changes and false signals
(`signal_likelihood`). How often signals come is counted, whatever made the crawler crawl: so the log may be
one of a crawler that already follows signals.

Cost: that of the likelihood; 10⁴ sources with 10⁶ crawls take half a second.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators.estimator import check_confidence
from freshopt.formatting import count
from freshopt.heavy import special
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.log_columns import LogRows, position_name
from freshopt.logs.tables import frame_columns
from freshopt.noisy_signals.signal_likelihood import SignalLikelihood, counted_crawls
from freshopt.numerics.arrays import Array, as_vector
from freshopt.numerics.frozen_arrays import freeze, frozen_arrays
from freshopt.numerics.segments import segment_sums
from freshopt.units import check_time_unit

QUANTITIES = ("change_rate", "recall", "precision", "silent_rate", "signal_rate")


@frozen_arrays
class NoisySignals:
    """Maximum likelihood estimator of signal quality.

    Change rate, recall and precision, for all sources of a log at once.

    Parameters
    ----------
    time_unit : str
        The log's time unit.

    Attributes
    ----------
    silent_rate_ : ndarray of float, shape (n,)
        a = (1−l)Δ: changes without a signal, per time unit.
    evidence_ : ndarray of float, shape (n,)
        k = −ln(1−p): decrease of the log-probability of being fresh by a signal.
    signal_rate_ : ndarray of float, shape (n,)
        g: signals per time unit.
    precision_ : ndarray of float, shape (n,)
        p = 1−e^{−k}; NaN where no signal came.
    change_rate_ : ndarray of float, shape (n,)
        Δ = a + pg.
    recall_ : ndarray of float, shape (n,)
        l = pg/Δ; NaN for a source that never changed.
    standard_errors_ : dict of str to ndarray, shape (n,)
        Of ``change_rate``, ``recall``, ``precision``, ``silent_rate`` and ``signal_rate``; NaN where an
        estimate is on the boundary of its range.
    flag_ : ndarray of str, shape (n,)
        "ok"; "no signals", "never changed", "always changed" or "baseline only"; "signals always true" (every
        crawl after a signal found a change), "signals never true" (crawls tell no more after signals than
        without), "all announced" (no sign of a change without a signal).
    sources_ : ndarray, shape (n,)
        Sorted.
    time_unit_ : str

    Notes
    -----
    The likelihood is concave; estimates on an edge (a = 0, p = 0 or p = 1) are found exactly. Signals come at
    the rate g whatever is done with them, so that Σn/Σs is its maximum likelihood estimate. Standard errors
    are from the observed information, those of Δ and l by the delta method, and need enough crawls: after 300
    crawls of a source intervals of 95 % cover 92 % or more (a test); on an edge there are none.

    Where crawls come after a fixed number of signals each, at crawl intervals that hardly vary, time and
    signals are collinear and only as + kn is identified: standard errors are large then. Some crawls at other
    moments identify both.

    Examples
    --------
    >>> log = {"source": ["a"] * 6, "elapsed": [1.0, 2.0, 1.0, 3.0, 1.0, 2.0],
    ...        "signals": [0, 1, 0, 1, 1, 0], "changed": [0, 1, 0, 0, 1, 1]}
    >>> model = NoisySignals().fit(log)
    >>> model
    NoisySignals(1 source, ok)
    >>> float(model.precision_[0].round(3)), float(model.recall_[0].round(3))
    (0.541, 0.422)
    """

    silent_rate_: Array
    evidence_: Array
    signal_rate_: Array
    precision_: Array
    change_rate_: Array
    recall_: Array
    standard_errors_: dict[str, Array]
    flag_: npt.NDArray[np.str_]
    _time: Array
    _crawls: Array
    sources_: npt.NDArray[Any]
    time_unit_: str

    def __init__(self, time_unit: str = "day") -> None:
        self.time_unit = check_time_unit(time_unit)

    def __repr__(self) -> str:
        if not hasattr(self, "flag_"):
            return "NoisySignals()"
        kinds, counts = np.unique(self.flag_, return_counts=True)
        n = len(self.flag_)
        if len(kinds) == 1:
            return f"NoisySignals({count(n, 'source', 'd')}, {kinds[0]})"
        told = ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True))
        return f"NoisySignals({n} sources: {told})"

    def fit(self, log: Any) -> Self:  # noqa: ANN401 - any dataframe library's frame
        """Learn from a log.

        Parameters
        ----------
        log : dataframe or mapping
            One row per crawl: ``source``, ``changed`` (0 or 1), ``signals`` (how many came since the crawl
            before), and ``elapsed`` (time since then) or ``time``. Without ``elapsed`` a source's first row
            is its baseline, and its signals are ignored. ``last_modified``, optional with ``time``, as in
            `CrawlLog`: used where a change was found and no signal had come, which tells when it was.

        Raises
        ------
        SourceDataError
            If a column is missing or a value cannot be used; names the row and the source.
        """
        if isinstance(log, dict):
            columns = log
            if "signals" not in columns:
                raise SourceDataError(
                    "the log has no column 'signals'. Add how many came since the last crawl."
                )
        else:
            columns = frame_columns(
                log, "the log", ("source", "changed", "signals"), ("time", "elapsed", "last_modified")
            )
        crawls = CrawlLog.from_columns(columns, time_unit=self.time_unit)
        undated = {key: column for key, column in columns.items() if key != "last_modified"}
        rows = LogRows.read(undated, self.time_unit, position_name).in_order()
        signals = as_vector(columns["signals"], len(crawls), "signals")
        signals = signals if rows.order is None else signals[rows.order]
        wrong = np.flatnonzero(~((signals >= 0.0) & (signals < np.inf) & (signals == np.floor(signals))))
        known = ~np.isnan(crawls.interval)
        # A date may tell since when a source is unchanged, but not how many signals came.
        first = crawls.offsets[:-1]
        known[first] = False if rows.elapsed is None else ~np.isnan(rows.elapsed[first])
        wrong = wrong[known[wrong]]
        if len(wrong):
            raise SourceDataError(
                f"signals of {rows.label(int(wrong[0]))} are {signals[wrong[0]]:g}. It counts signals, "
                "such as 0, 1 or 2. Correct it."
            )
        interval, count = np.where(known, crawls.interval, 0.0), np.where(known, signals, 0.0)
        likelihood = counted_crawls(crawls, known, signals)
        self.sources_, self.time_unit_ = crawls.names, crawls.time_unit
        self._time, self._crawls = (
            segment_sums(x, crawls.offsets) for x in (interval, known.astype(np.float64))
        )
        self._publish(likelihood, segment_sums(interval, crawls.offsets), segment_sums(count, crawls.offsets))
        freeze(self, vars(self))
        return self

    def for_planning(self) -> tuple[Array, Array, Array]:
        """Return change rates, recalls and precisions for a plan.

        Such that `Sources` and `NoisySignalFreshness` accept them.

        Returns
        -------
        change_rate, recall, precision : ndarray of float, shape (n,)
            The estimates, where they are numbers > 0. A source that never changed gets half a change in the
            time that it was watched, one that had always changed as many as leave the crawls as likely as
            not; signals that were never heard, or never true, count as none (recall 0).

        Examples
        --------
        >>> log = {"source": ["a", "a"], "elapsed": [1.0, 3.0], "signals": [0, 2], "changed": [0, 0]}
        >>> [float(part[0]) for part in NoisySignals().fit(log).for_planning()]
        [0.125, 0.0, 1.0]
        """
        if not hasattr(self, "flag_"):
            raise FreshoptError("NoisySignals has not seen a log yet. Call fit(log) first.")
        lowest = 0.5 / np.where(self._time > 0.0, self._time, np.inf)
        # (1 − e^{−Δs})^m = ½ after m crawls of mean crawl interval s.
        with np.errstate(divide="ignore", invalid="ignore"):
            highest = -np.log(-np.expm1(-math.log(2.0) / self._crawls)) * self._crawls / self._time
        change = np.where(np.isinf(self.change_rate_), highest, np.maximum(self.change_rate_, lowest))
        unwatched = ~(change > 0.0)
        change[unwatched] = np.median(change[~unwatched]) if not unwatched.all() else 1.0
        useful = (self.precision_ > 0.0) & (self.recall_ > 0.0) & np.isfinite(self.change_rate_)
        return change, np.where(useful, self.recall_, 0.0), np.where(useful, self.precision_, 1.0)

    def interval(self, quantity: str, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return intervals of one quantity, one source at a time.

        Parameters
        ----------
        quantity : str
            "change_rate", "recall", "precision", "silent_rate" or "signal_rate".
        confidence : float
            In (0, 1).

        Returns
        -------
        lower, upper : ndarray of float, shape (n,)
            The estimate ∓ so many standard errors, cut to where the quantity can be; all of that where there
            is no standard error.
        """
        check_confidence(confidence)
        if quantity not in QUANTITIES:
            raise SourceDataError(f"quantity is {quantity!r}. Pass one of {', '.join(QUANTITIES)}.")
        if not hasattr(self, "flag_"):
            raise FreshoptError("NoisySignals has not seen a log yet. Call fit(log) first.")
        most = 1.0 if quantity in ("recall", "precision") else np.inf
        estimate, error = getattr(self, f"{quantity}_"), self.standard_errors_[quantity]
        reach = float(special.ndtri(0.5 + 0.5 * confidence)) * error
        lower, upper = np.maximum(estimate - reach, 0.0), np.minimum(estimate + reach, most)
        return np.where(np.isnan(reach), 0.0, lower), np.where(np.isnan(reach), most, upper)

    def _publish(self, likelihood: SignalLikelihood, time: Array, heard: Array) -> None:
        a, k = likelihood.maximum()
        with np.errstate(divide="ignore", invalid="ignore"):
            g = heard / time
            p = -np.expm1(-k)
            told = np.where(np.isnan(k), 0.0, p * g)
            change = a + told
            recall = np.where(change > 0.0, told / change, np.nan)
        self.silent_rate_, self.evidence_, self.signal_rate_ = a, k, g
        self.precision_, self.change_rate_, self.recall_ = p, change, recall
        self.standard_errors_ = _errors(likelihood, a, k, g, time)
        never, always = ~likelihood.changed, np.isinf(a)
        conditions = [time == 0.0, never, always, heard == 0.0, np.isinf(k), k == 0.0, a == 0.0]
        words = [
            "baseline only",
            "never changed",
            "always changed",
            "no signals",
            "signals always true",
            "signals never true",
            "all announced",
        ]
        self.flag_ = np.select(conditions, words, default="ok")


def _errors(likelihood: SignalLikelihood, a: Array, k: Array, g: Array, time: Array) -> dict[str, Array]:
    """Return standard errors by the delta method.

    By the curvature at the maximum.
    """
    n = len(a)
    inner = np.flatnonzero(np.isfinite(a) & np.isfinite(k) & (a > 0.0) & (k > 0.0))
    alone = np.flatnonzero(np.isfinite(a) & (a > 0.0) & ~np.isfinite(k) & (g == 0.0))  # no signals
    with np.errstate(divide="ignore", invalid="ignore"):
        of_g = np.sqrt(np.where(g > 0.0, g / time, np.nan))
        part = likelihood.select(inner)
        first, mixed, second = part.information(a[inner], k[inner])
        rest = first * second - mixed * mixed
        rest = np.where(rest > 1e-12 * first * second, rest, np.nan)  # time and signals say the same
        var_a, var_k, both = second / rest, first / rest, -mixed / rest
        left = np.exp(-k[inner])  # dp/dk
        p, rate, change = 1.0 - left, g[inner], a[inner] + (1.0 - left) * g[inner]
        var_g = rate / time[inner]
        # Δ = a + pg and l = 1 − a/Δ.
        dk, dg = left * rate, p
        var_change = var_a + dk * dk * var_k + 2.0 * dk * both + dg * dg * var_g
        ra, rk, rg = -p * rate / change**2, a[inner] * dk / change**2, a[inner] * dg / change**2
        var_recall = ra * ra * var_a + rk * rk * var_k + 2.0 * ra * rk * both + rg * rg * var_g
    own = {
        "change_rate": var_change,
        "recall": var_recall,
        "precision": left * left * var_k,
        "silent_rate": var_a,
    }
    errors = {key: np.full(n, np.nan) for key in QUANTITIES}
    for key, variance in own.items():
        errors[key][inner] = np.sqrt(variance)
    errors["signal_rate"] = of_g
    part = likelihood.select(alone)
    single = 1.0 / np.sqrt(part.information(a[alone], np.zeros(len(alone)))[0])
    errors["silent_rate"][alone] = errors["change_rate"][alone] = single
    return errors

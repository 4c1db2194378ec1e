"""`poisson_check`: goodness-of-fit tests of the Poisson process.

Per source and over all of them.

Every cost curve and every interval of a change rate assumes that a source changes at random at a constant
rate. Real sources change in bursts, on working days, and less as they age. Five tests show which of these
deviations are significant, and their effect sizes; none needs the rate to be known.
`freshopt.goodness_of_fit.poisson_tests` has the mathematics.

Cost: a sort of the changes, or some passes over a crawl log.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import check_seed
from freshopt.estimators.estimator import check_share
from freshopt.goodness_of_fit.poisson_tests import (
    FEWEST,
    bins_of,
    cycle_test,
    cycle_weight,
    false_discovery,
    gaps_test,
)
from freshopt.goodness_of_fit.traces import Reading, read_changes, read_crawls
from freshopt.heavy import polars
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.units import SECONDS

TESTS = ("dispersion", "gaps", "weekly", "daily", "drift")
# Period in days and number of parts of the profile of each cycle.
CYCLES = MappingProxyType({"weekly": (7.0, 7), "daily": (1.0, 24)})
# Periods that must have been watched: within one, a cycle and a drift cannot be distinguished.
WINDOWS = 2.0
# Share of a period: times rounded to more hold no information about it.
FINE = 0.25
QUANTILES = np.linspace(0.005, 0.995, 100)


@frozen_value(repr=False)
class PoissonCheck:
    """Results of the goodness-of-fit tests of `poisson_check`.

    Attributes
    ----------
    sources_ : ndarray, shape (n,)
    changes : ndarray of int, shape (n,)
        Changes of each source in the time watched, or crawls that found one.
    tested : ndarray of bool, shape (n,)
        Whether there were enough: at least 10 changes, and of a log at least 10 crawls that found none.
    effect : mapping of str to ndarray, shape (n,)
        Effect size of each test; NaN for a source that it does not apply to.

        * ``dispersion``: the variance of counts over that of Poisson counts, 1 for a Poisson process;
        * ``gaps``: the Kolmogorov-Smirnov distance after Durbin's transform, 0 at best;
        * ``weekly``, ``daily``: the amplitude of a sine wave in the rate, relative to its mean. That of a few
          changes is large by chance;
        * ``drift``: the rate of the second half of the time over that of the first.
    p_value : mapping of str to ndarray, shape (n,)
        Of each test, uniform for a Poisson process. ``any`` is five times the least of a source's five
        p-values (as many times as there are), at most 1.
    pooled : mapping of str to float
        Dispersion and amplitudes over all tested sources together, weighted by changes; ``dispersion_error``
        is its standard error if all were Poisson and changed independently. Where sources change together a
        cycle is no less real, but a p-value of it would be wrong: there is none.
    profile : mapping of str to ndarray
        For the picture: ``weekly``, ``daily`` (changes in each part of a cycle over those due, weekdays from
        Monday where the data has dates) and ``gaps`` (100 quantiles of gaps over their mean).
    kind : str
        "changes" or "crawls": what was read.
    resolution : str or None
        The unit to which the times of a history are rounded.
    one_each : bool
        Whether the history has at most one change in each such unit, and was tested as the crawl log of it.
    dated : bool
    level : float
    """

    sources_: npt.NDArray[Any]
    changes: IntArray
    tested: BoolArray
    effect: Mapping[str, Array]
    p_value: Mapping[str, Array]
    pooled: Mapping[str, float]
    profile: Mapping[str, Array]
    kind: str
    resolution: str | None
    one_each: bool
    dated: bool
    level: float

    def rejected(self, test: str = "any", *, false_discoveries: bool = False) -> BoolArray:
        """Return which sources the tests reject, shape (n,).

        By one test or by any of them.

        Parameters
        ----------
        test : str
            One of `TESTS`, or "any".
        false_discoveries : bool
            Choose them such that, in expectation, `level` of those rejected are Poisson all the same
            (Benjamini and Hochberg), rather than that `level` of those that are Poisson are rejected.
        """
        p_value = self.p_value[test]
        with np.errstate(invalid="ignore"):
            return false_discovery(p_value, self.level) if false_discoveries else p_value <= self.level

    def share_rejected(self, test: str = "any", *, false_discoveries: bool = False) -> float:
        """Return the share of tested sources that are rejected.

        NaN if the test applies to none.
        """
        asked = int(np.count_nonzero(~np.isnan(self.p_value[test])))
        found = int(np.count_nonzero(self.rejected(test, false_discoveries=false_discoveries)))
        return found / asked if asked else float("nan")

    def summary(self) -> polars.DataFrame:
        """Return a table with one row per test.

        Sources tested, median effect, pooled effect, shares rejected.
        """
        rows = []
        for test in (*TESTS, "any"):
            p_value = self.p_value[test]
            asked = ~np.isnan(p_value)
            effect = self.effect[test][asked] if test in self.effect else np.empty(0)
            rows.append(
                {
                    "test": test,
                    "tested": int(np.count_nonzero(asked)),
                    "median_effect": float(np.median(effect)) if len(effect) else None,
                    "pooled_effect": self.pooled.get(test),
                    "rejected": self.share_rejected(test) if asked.any() else None,
                    "rejected_fdr": self.share_rejected(test, false_discoveries=True)
                    if asked.any()
                    else None,
                }
            )
        return polars.DataFrame(rows)

    def to_frame(self) -> polars.DataFrame:
        """Return a table with one row per source.

        Changes, effect and p-value of each test, null where it does not apply.
        """
        columns: dict[str, Any] = {"source": self.sources_.tolist(), "changes": self.changes}
        for test in TESTS:
            columns[test] = self.effect[test]
            columns[f"{test}_p"] = self.p_value[test]
        columns["p"] = self.p_value["any"]
        frame = polars.DataFrame(columns).with_columns(polars.col(polars.Float64).fill_nan(None))
        states = np.where(self.tested, np.where(self.rejected(), "not Poisson", "ok"), "too few")
        return frame.with_columns(polars.Series("verdict", states.tolist()))

    def __repr__(self) -> str:
        """Return sizes and the rejected share of each test.

        Never the arrays.
        """
        tested = int(np.count_nonzero(self.tested))
        if tested == 0:
            return f"PoissonCheck({len(self.sources_)} sources, none with enough {self.kind} to be tested)"
        shares = [
            f"{test} {self.share_rejected(test):.0%}"
            for test in TESTS
            if not np.isnan(self.share_rejected(test))
        ]
        return (
            f"PoissonCheck({tested} of {len(self.sources_)} sources tested, "
            f"{1 - self.share_rejected():.0%} pass; rejected: {', '.join(shares)})"
        )


def poisson_check(
    log_or_events: Any,  # noqa: ANN401 - a log, a history, or any dataframe library's frame
    *,
    level: float = 0.05,
    seed: int = 0,
) -> PoissonCheck:
    """Test whether sources change as Poisson processes of constant rates.

    Parameters
    ----------
    log_or_events : CrawlLog, ChangeHistory or dataframe
        A dataframe with a column ``changed`` is read as a crawl log, one with ``source`` and ``time`` alone
        as a history of all changes, all sources being watched from the first to the last of them; pass a
        `ChangeHistory` where they were not.
    level : float
        Of the tests, in (0, 1).
    seed : int
        Of the random places that rounded times, and first changes within the gaps of a log, are given; only
        the test of gaps uses the latter.

    Returns
    -------
    PoissonCheck

    Raises
    ------
    SourceDataError
        If the data cannot be read, or `level` is out of range.

    Notes
    -----
    The tests are asked of sources with at least 10 changes (of a log: 10 crawls with and 10 without a change,
    which together tell as much as 10 changes whose times are known), those of a cycle where at least two
    periods were watched, finely enough. Of a log the counts in ``changes`` are not used. Against a Poisson
    process each test rejects `level` of the sources; against all five together a source is rejected by
    Bonferroni's bound, slightly less often. Large samples are rejected for departures that do not matter:
    compare the effects.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> times = rng.uniform(0, 100, 300)
    >>> check = poisson_check(ChangeHistory(rng.integers(0, 3, 300), times, 0.0, 100.0))
    >>> check.tested.tolist(), check.share_rejected()
    ([True, True, True], 0.0)
    """
    check_share(level, "level", 0.05)
    data = log_or_events
    if not isinstance(data, CrawlLog | ChangeHistory):
        columns = getattr(data, "column_names", getattr(data, "columns", ()))
        data = CrawlLog.from_frame(data) if "changed" in list(columns) else ChangeHistory.from_frame(data)
    random = np.random.default_rng(check_seed(seed))
    reading = read_crawls(data, random) if isinstance(data, CrawlLog) else read_changes(data, random)
    weekday = 0 if data.origin is None else data.origin.weekday()
    effect, p_value, pooled = _ask(reading)
    counted = np.sum(~np.isnan([p_value[test] for test in TESTS]), axis=0)
    least = np.fmin.reduce([p_value[test] for test in TESTS])
    p_value["any"] = np.where(counted > 0, np.minimum(1.0, counted * least), np.nan)
    return PoissonCheck(
        sources_=data.names,
        changes=reading.changes,
        tested=reading.tested,
        effect=MappingProxyType(effect),
        p_value=MappingProxyType(p_value),
        pooled=MappingProxyType(pooled),
        profile=MappingProxyType(_profiles(reading, p_value, weekday)),
        kind="crawls" if isinstance(data, CrawlLog) else "changes",
        resolution=reading.resolution,
        one_each=reading.one_each,
        dated=data.origin is not None,
        level=level,
    )


def _ask(reading: Reading) -> tuple[dict[str, Array], dict[str, Array], dict[str, float]]:
    """Run the tests on the testable sources, NaN for others."""
    effect = {test: np.full(len(reading.tested), np.nan) for test in TESTS}
    p_value = {test: np.full(len(reading.tested), np.nan) for test in TESTS}
    pooled: dict[str, float] = {}
    if not reading.tested.any():
        return effect, p_value, pooled
    trace, at = reading.trace, reading.tested
    for test, result in (
        ("dispersion", trace.dispersion()),
        ("gaps", gaps_test(*trace.spacings())),
        ("drift", trace.drift()),
    ):
        effect[test][at], p_value[test][at] = result
    weight = trace.count
    pooled["dispersion"] = float(np.average(effect["dispersion"][at], weights=weight))
    pooled["dispersion_error"] = float(
        np.sqrt(np.sum(2.0 * weight**2 / (bins_of(weight) - 1))) / np.sum(weight)
    )
    for test, (period, _) in CYCLES.items():
        rounded_to = 0.0 if reading.resolution is None else SECONDS[reading.resolution]
        if rounded_to > FINE * period * SECONDS["day"]:
            continue
        score, information = trace.cycle(period)
        information[trace.watched < WINDOWS * period] = 0.0
        effect[test][at], p_value[test][at] = cycle_test(score, information)
        known = cycle_weight(information) >= FEWEST
        if known.any():
            move = np.linalg.solve(information[known].sum(axis=0), score[known].sum(axis=0))
            pooled[test] = float(np.hypot(*move))
    return effect, p_value, pooled


def _profiles(reading: Reading, p_value: Mapping[str, Array], weekday: int) -> dict[str, Array]:
    """Return the profiles that the plots show beside effects and p-values."""
    if not reading.tested.any():
        return {}
    trace = reading.trace
    gaps, offsets = trace.spacings()
    sizes = np.diff(offsets)
    means = np.add.reduceat(gaps, offsets[:-1][sizes > 0]) / sizes[sizes > 0]
    profile = {"gaps": np.quantile(gaps / np.repeat(means, sizes[sizes > 0]), QUANTILES)}
    for test, (period, parts) in CYCLES.items():
        if not np.isnan(p_value[test]).all():
            found, due = trace.profile(period, parts)
            turned = weekday if test == "weekly" else 0
            profile[test] = np.roll(np.divide(found, due, out=np.ones(parts), where=due > 0), turned)
    return profile

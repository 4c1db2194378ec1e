"""Back-test: policies side by side on held-out parts of a log.

The last part of a log is cut into windows. Before each of them change rates are learnt from the crawls before
it and refresh rates are solved for, as `make_plan` does; what they cost is then measured in the changes of
the window, beside simple rules, the rates in force, a policy that is planned again from its own crawls, and
the best static rates in hindsight (`freshopt.planning.policies`). All is measured in one table
(`freshopt.planning.measured`); policies meet the same changes, and are compared source by source.
The log's own crawls may use more or less than the bandwidth; so that they can be compared with a plan of as
many refreshes, there is a row for that too.

Each source counts until its last crawl in the log. Where all changes are known (`history`), they are what is
replayed. A log alone shows whether a source changed between two crawls: what it hid is drawn given what the
crawls found (`known_changes`), and costs are the mean over the samples. Both sides are then the true cost, as
expected before the window and given the whole log: if the model holds, their ratio is 1 within its errors.
Cost: an estimate a window, a solve a window and bandwidth, some seventy passes over the samples for
hindsight; with `every` an estimate and a solve a period and sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect
from freshopt.estimators.estimator import Estimator
from freshopt.formatting import count, finite, number
from freshopt.frames import POLARS, framed
from freshopt.heavy import polars
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.spend import Spend
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.with_signals import require_signals
from freshopt.planning.failing_window import Statuses, failure_words
from freshopt.planning.held_out_window import SHARE, SPLITS, held_out_windows
from freshopt.planning.measured import PARTS, Measured, MeasuredTable, RuleFacts
from freshopt.planning.plan_steps import estimated_sources, require_static
from freshopt.planning.policies import (
    CURRENT,
    PHASED,
    PLAN,
    REPLANNED,
    REPLANNED_WITH,
    WITH_SIGNALS,
    has_phases,
    policies_in,
)
from freshopt.planning.policy_cost import Measurement, PolicyCost, mean_row, saving
from freshopt.planning.request import Log, as_crawl_log, default_estimate
from freshopt.planning.static_rates import nodes_of
from freshopt.planning.verdict import JUDGED, PHASES, SIGNALS, verdict
from freshopt.planning.wishes import BackTestWishes, Wishes, taking
from freshopt.plots import Plotted, measured_rows
from freshopt.questions.todays_crawls import own_bandwidth
from freshopt.report.held_out import PLAN_AT, is_plan, policy_words
from freshopt.simulation.staleness_integrals import is_measured
from freshopt.units import Time, duration_of, rate_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Said of objectives whose costs no change shows.
EXPECTED = " Costs are those expected under the change rates that the whole log gives."
UNTESTED = " They do not show what good phases of the week save: that is not tested."


@dataclass(frozen=True, slots=True)
class BackTest(Plotted):
    """Policies held against the last part of their log.

    Attributes
    ----------
    rows : tuple of PolicyCost
        One for each policy, window and bandwidth.
    means : tuple of PolicyCost
        One for each policy and bandwidth, on average over the windows.
    verdict : str
        Which of the policies this log supports, by the paired differences to the plan.
    begin, end : float
        The part that was held out, on the log's clock.
    splits : int
        Windows that it was cut into.
    sources, left_out : int
        Those that were replayed, and those that were not crawled both before and in a window.
    time_unit : str
    details : MeasuredTable
        What each source cost; over time and by source at the first bandwidth.
    dated : bool
        Whether the log dates changes, and what is replayed counts them from there.
    failures : str
        How fetches fail, in words; empty where none does.
    library : str
        Of the dataframe that the log was made of, and so of `to_frame`.
    rules : dict
        Of each rule that was compared (`compare_rule`): `settled`, the fetches of a source after which its
        intervals settle, `before`, those before the windows, and `needed`, the bandwidth at which the plan
        costs as much; NaN where it is not known. Of crawls that follow signals the last alone.

    Examples
    --------
    >>> import freshopt as fo
    >>> days = list(range(60))
    >>> log = fo.CrawlLog(["a"] * 60 + ["b"] * 60, days * 2, [0, 1] * 30 + [0, 0, 0, 1] * 15)
    >>> found = fo.backtest(log, splits=1)
    >>> found.to_frame()["policy"].to_list()[:3]
    ['plan', 'rates in force', 'uniform']
    >>> str(found)[:30]
    'BackTest(2 sources, 1 window: '
    """

    rows: tuple[PolicyCost, ...]
    means: tuple[PolicyCost, ...]
    verdict: str
    begin: float
    end: float
    splits: int
    sources: int
    left_out: int
    time_unit: str
    details: MeasuredTable
    dated: bool = False
    failures: str = ""
    library: str = POLARS
    rules: Mapping[str, RuleFacts] = field(default_factory=dict, hash=False)

    def __repr__(self) -> str:
        held = f"{count(self.sources, 'source')}, {count(self.splits, 'window')}"
        return f"BackTest({held}: {self.verdict.rstrip('.')})"

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe, a row for each policy, window and bandwidth.

        Columns policy, begin, end, bandwidth, predicted, realised, error, refreshes, fresh, saving,
        saving_error and hidden.
        """
        return polars.DataFrame([row.facts() for row in self.rows], infer_schema_length=None)

    def _draw(self, axes: Axes) -> None:
        """Draw each policy's cost with its error, and the prediction."""
        several = len({row.bandwidth for row in self.means if row.policy == PLAN}) > 1
        rows = [
            f"{policy_words(row.policy)}{f', {number(row.bandwidth)}' if several else ''}"
            for row in self.means
        ]
        values, errors, predicted = (
            np.array([getattr(row, key) for row in self.means], dtype=np.float64)
            for key in ("realised", "error", "predicted")
        )
        measured_rows(axes, rows, values, errors, predicted, [is_plan(row.policy) for row in self.means])
        maximised = self.details is not None and self.details.maximised
        axes.set(xlabel=f"measured objective ({'higher' if maximised else 'lower'} is better)")
        axes.set_title(f"{count(self.sources, 'source')}, {count(self.splits, 'window')}", fontsize="medium")
        axes.legend(frameon=False)

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        keys = ("begin", "end", "splits", "sources", "left_out", "dated", "failures", "verdict")
        told: dict[str, Any] = {key: getattr(self, key) for key in keys}
        told["policies"] = [row.facts() for row in self.means]
        told["windows"] = [row.facts() for row in self.rows]
        told["over_time"] = self.details.facts()
        used = {row.policy: row.bandwidth for row in reversed(self.means)}
        told["rules"] = [
            {"rule": name, "used": used[name]} | {key: finite(value) for key, value in rule._asdict().items()}
            for name, rule in self.rules.items()
        ]
        return {"held_out": told}


@taking(BackTestWishes)
def backtest(
    log: Log,
    bandwidth: float | str | Sequence[float | str] | None = None,
    *,
    history: ChangeHistory | None = None,
    every: Time | None = None,
    splits: int = SPLITS,
    share: float = SHARE,
    statuses: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike] | None = None,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    **wishes: Unpack[BackTestWishes],
) -> BackTest:
    """Evaluate policies on the held-out last part of their log.

    Parameters
    ----------
    log : CrawlLog, ChangeHistory, path or dataframe
        As `plan` takes it. Of a `ChangeHistory` all changes are known; otherwise how often a source changed
        in a crawl interval in which a change was found, and when, is drawn from the posterior of its rate,
        given counts and dates (`last_modified`) where the log has them.
    bandwidth : float, str or sequence of them, optional
        Refreshes per time unit, or with its unit; of several each has its rows. By default as many as the
        log's own crawls.
    objective, importance, hosts, host_limits, estimator, columns, time_unit
        As in `plan`. Changes do not show what an objective of your own costs: it is what is expected of each
        policy under the posterior of the change rates given the whole log. Crawls at other times than those
        of a rate are left out where no cost of age is known.
    min_interval, max_interval, limits, min_rate, max_rate
        As in `plan`.
    history : ChangeHistory, optional
        All changes of the log's sources, where they are known: they are what is replayed.
    every : float, str or timedelta, optional
        Period after which a policy is planned again from its own crawls, such as "7d"; it is then one more.
    splits : int
        Windows that the held-out part is cut into; the plan of each sees all crawls before it.
    share : float
        Of the log's time that is held out, in (0, 1).
    seed : int
        Of the changes that crawls hid, and of the phases of the re-planned policy.
    signals : path or dataframe, optional
        As in `plan`. Crawls that follow them are then one more policy: the rule is of what was learnt before
        a window, and follows the signals in it. Beside it stands the plan without signals that makes as many
        crawls. What crawls hid is drawn given the signals, too.
    promise, features : optional
        As in `plan`.
    change_model : str
        As in `plan`; a shape is learnt before each window.
    load_limit : float
        As in `plan`; 1 leaves out the plan at good phases of the week.
    compare_rule : str, sequence of str, or mapping, optional
        Rules that crawlers run, to be compared (`freshopt.simulation.rules`): "nutch", "stormcrawler",
        "stormcrawler-news", "news-crawl", "miniflux", "changedetection", "backoff", an interval such as "6h",
        or a mapping from names to rules with other settings. Each begins with the log and makes as many
        fetches as it does; beside it stands the plan that makes as many.
    source_columns, success, retry_at_once, changed_cost
        As in `plan`. With `success` fetches fail at random by these chances, those of one moment alike for
        all policies; no rates are best in hindsight then, nor with `changed_cost`.
    statuses : (source, status, time), optional
        In place of `success`: every fetch behind the log, failed ones too, with its HTTP status (0 without an
        answer, NaN where nothing is known) and its time on the log's clock. Chances are learnt from those
        before a window, and in it a fetch ends as the recorded one of its source that is nearest in time.

    Returns
    -------
    BackTest
        A row for each policy, window and bandwidth with what was predicted and what it cost; ``to_frame()``.

    Raises
    ------
    SourceDataError
        If a setting cannot be used, or no source has crawls before and time in a window.

    Examples
    --------
    >>> import freshopt as fo
    >>> rng = np.random.default_rng(1)
    >>> rows = [(k, day, rng.random() < p) for k, p in ((0, 0.1), (1, 0.7)) for day in range(200)]
    >>> source, time, changed = zip(*rows, strict=True)
    >>> found = fo.backtest(fo.CrawlLog(source, time, changed))
    >>> [row.policy for row in found.means][:4]
    ['plan', 'rates in force', 'uniform', 'proportional']
    """
    crawls, known = as_crawl_log(log, time_unit, columns)
    expect(history, (ChangeHistory, NoneType), "history", "Pass a freshopt.ChangeHistory")
    several: list[Any] = (
        [bandwidth]
        if bandwidth is None or isinstance(bandwidth, str) or not isinstance(bandwidth, Sequence | np.ndarray)
        else list(bandwidth)
    )
    if not several:
        raise SourceDataError("there is no bandwidth. Pass one or more rates.")
    asked = {"bandwidth": several[0], **({} if statuses is None else {"statuses": statuses}), **wishes}
    request = Wishes.of(crawls, asked, BackTestWishes)
    if bandwidth is None:
        with request.bounded():
            _, sources = estimated_sources(crawls, replace(request, signals=None))
        mine = None if known is not None else crawls
        several = [own_bandwidth(request.objective, sources, request.host_limits, mine)]
        request = replace(request, bandwidth=several[0])
    rates = [rate_of("bandwidth", each, crawls.time_unit) for each in several]
    with request.bounded():
        return hold_out(
            crawls,
            request,
            known if history is None else history,
            share,
            splits,
            bandwidths=rates,
            every=None if every is None else _period(every, crawls.time_unit),
            crawled=known is None,
            statuses=None if statuses is None else Statuses.of(*statuses),
        )


def hold_out(
    log: CrawlLog,
    request: Wishes,
    history: ChangeHistory | None = None,
    share: float = SHARE,
    splits: int = SPLITS,
    *,
    bandwidths: Sequence[float] = (),
    every: float | None = None,
    crawled: bool | None = None,
    statuses: Statuses | None = None,
) -> BackTest:
    """Evaluate the policies of a request on held-out parts.

    `crawled` says whether the log's crawls are a policy of their own, and not made of a history; by default
    they are without one.
    """
    require_static(request)
    heard: Estimator | None = None
    if request.signals is not None:
        require_signals(request.objective)
        heard = estimated_sources(log, request)[0] if history is None else None
    given = heard if isinstance(heard, PooledSignals) else None
    windows = held_out_windows(log, history, share, splits, PARTS, request.seed, given)
    mine = history is None if crawled is None else crawled
    asked, own = bandwidths or [request.bandwidth], log if mine else None
    measured_by_changes = is_measured(request.objective) or isinstance(request.objective, Spend)
    learnt = None if measured_by_changes else nodes_of(default_estimate(log))
    measured = tuple(
        tuple(policies_in(window, request, asked, every, own, statuses, learnt)) for window in windows
    )
    expected = "" if learnt is None else EXPECTED + (UNTESTED if has_phases(log, request, asked[0]) else "")
    # A window in which nobody crawled has no plan of as many crawls.
    everywhere = set.intersection(*({one.policy for one in each} for each in measured))
    known = [[one for one in each if one.policy in everywhere] for each in measured]
    groups = [list(group) for group in zip(*known, strict=True)]
    plans = _plans(groups)
    table = MeasuredTable(log.names, measured, request.objective.sense == "maximise")
    rows = [
        mean_row([one], None if plan is None else [plan[k]], maximised=table.maximised)
        for group, plan in zip(groups, plans, strict=True)
        for k, one in enumerate(group)
    ]
    means = [mean_row(*pair, maximised=table.maximised) for pair in zip(groups, plans, strict=True)]
    ruled = [group for group in groups if group[0].rule is not None]
    # Of several bandwidths the first is told.
    first = {group[0].policy: group for group in reversed(ruled)}
    rules = {name: _rule(first[name]) for name in dict.fromkeys(group[0].policy for group in ruled)}
    there = len(np.unique(np.concatenate([one.source[one.span > 0.0] for one in groups[0]])))
    return BackTest(
        tuple(rows),
        tuple(means),
        verdict(_savings(groups, plans, every, log.time_unit, rules), rules) + expected,
        windows[0].begin,
        windows[-1].end,
        len(windows),
        there,
        len(log.names) - there,
        log.time_unit,
        table,
        history is None and log.last_modified is not None,
        failure_words(request, statuses),
        log.library,
        rules,
    )


def _rule(group: Sequence[Measured]) -> RuleFacts:
    """Return what is known of a rule, on average over windows."""
    return RuleFacts(*np.mean([one.rule for one in group if one.rule is not None], axis=0).tolist())


def _savings(
    groups: Sequence[Sequence[Measured]],
    plans: Sequence[Sequence[Measured] | None],
    every: float | None,
    time_unit: str,
    rules: Collection[str],
) -> dict[str, Measurement]:
    """Return what share of the plan's cost policies save, over bandwidths."""
    words = {PHASED: PHASES, WITH_SIGNALS: SIGNALS}
    if every is not None:
        words[REPLANNED] = f"re-planning every {count(every, time_unit)}"
        words[REPLANNED_WITH] = f"{SIGNALS} and {words[REPLANNED]}"
    found: dict[str, list[Measurement]] = {}
    for group, plan in zip(groups, plans, strict=True):
        name = group[0].policy
        if plan is not None and (name in words or name in JUDGED or name in rules):
            found.setdefault(words.get(name, name), []).append(saving(group, plan))
    many = sum(group[0].policy == PLAN for group in groups)
    return {
        name: Measurement.mean(saved)
        for name, saved in found.items()
        if len(saved) == (1 if name == CURRENT or name in rules else many)
        and np.isfinite([one.value for one in saved]).all()
    }


def _plans(groups: Sequence[Sequence[Measured]]) -> list[Sequence[Measured] | None]:
    """Return for each policy the plan of its bandwidth, if any."""
    found: list[Sequence[Measured] | None] = []
    plan: Sequence[Measured] | None = None
    # Where none makes as many crawls as those that follow signals, the one of their bandwidth is beside them.
    alike = {
        key: iter([each for each in groups if each[0].policy == PLAN])
        for key in (WITH_SIGNALS, REPLANNED_WITH)
    }
    for group, after in zip(groups, [*groups[1:], None], strict=True):
        name = group[0].policy
        if name == PLAN:
            plan = group
        elif name == CURRENT or group[0].rule is not None:
            other = next(alike[name], None) if name in alike else None
            plan = after if after is not None and after[0].policy == PLAN_AT + name else other
        found.append(plan)
    return found


def _period(every: Time, time_unit: str) -> float:
    """Return the period of re-planning on the log's clock."""
    found = duration_of("every", every, time_unit)
    if not found > 0.0:
        raise SourceDataError(f'every is {every!r}. Pass a duration > 0, such as "7d".')
    return found

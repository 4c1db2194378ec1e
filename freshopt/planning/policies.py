"""Policies of a back-test: what they do in a held-out window.

A policy is a function from what is known before a window to what it does there. `POLICIES` lists those of a
bandwidth, the plan first; a new one is a function and its row there. Each uses the same bandwidth, under the
same bounds and host limits, and knows the same estimates. The log's own crawls have the bandwidth that they
used, and beside them stands a plan that uses as much; so do crawls that follow signals, as more or fewer of
these come than before the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.errors import ObjectiveError
from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.fetches.conditional_fetches import changed_costs
from freshopt.modelling.phased_objective import why_no_phases
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.noisy_signals.wait_rule import WaitRule
from freshopt.noisy_signals.with_signals import rule_of, with_signals
from freshopt.numerics.arrays import Array, IntArray
from freshopt.planning.failing_window import Statuses, recorded_attempts, with_failures
from freshopt.planning.good_phases import at_good_phases, good_phases, phased_method, phased_problem
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.measured import Conduct, Measured, RuleFacts, measure, per_time
from freshopt.planning.plan_steps import TOLERANCE, estimated_sources, problem_of, with_change_model
from freshopt.planning.replanning import FAR, check_size, following_replanned, replanned_crawls
from freshopt.planning.static_rates import (
    Nodes,
    at_rates,
    beginnings,
    hindsight_rates,
    nodes_of,
    predicted_cost,
)
from freshopt.planning.wishes import Wishes
from freshopt.report.held_out import PLAN_AT
from freshopt.scheduling.schedule import schedule
from freshopt.simulation.rules import Rule, rule_crawls, settling
from freshopt.simulation.staleness_integrals import Refreshes
from freshopt.simulation.static_costs import ExpectedCosts, has_static_cost
from freshopt.solvers.proportional import shared_rates
from freshopt.solvers.square_root import square_root_shape
from freshopt.solving import solve

PLAN, PHASED, REPLANNED, IN_FORCE = "plan", "plan, phased", "re-planned", "rates in force"
UNIFORM, PROPORTIONAL, SQUARE_ROOT = "uniform", "proportional", "∝ √(w·Δ)"
HINDSIGHT, CURRENT, PLAN_AT_CURRENT = "best static in hindsight", "current", f"{PLAN_AT}current"
# Plans whose crawls follow signals.
WITH_SIGNALS, REPLANNED_WITH = "with signals", "re-planned with signals"
# Passes that match a plan's refreshes to those of the log's crawls, and how closely.
PASSES, MATCHED = 5, 1e-6
# Where a plan is sought that costs as much as a rule, relative to the rule's bandwidth; how near, and in how
# many steps; the flattest line of log cost over log bandwidth.
LEAST_NEEDED, MOST_NEEDED, NEAR, SECANTS, FLATTEST = 1e-3, 10.0, 1e-3, 12, -0.05


class Ground(NamedTuple):
    """What is known before a window, at any bandwidth.

    Sources have the change rates of an estimate, of whose posteriors the nodes are; the log is there where
    its crawls are a policy.
    """

    window: HeldOutWindow
    request: Wishes
    sources: Sources
    nodes: Nodes
    log: CrawlLog | None
    statuses: Statuses | None

    def planned(self, bandwidth: float, *, certify: bool = True) -> Solution:
        """Return the plan of a bandwidth."""
        problem = problem_of(self.request, self.sources, bandwidth)
        return solve(problem, tolerance=TOLERANCE, certify=certify)

    def at(self, plan: Solution, bandwidth: float, nodes: Nodes | None = None) -> Conduct:
        """Return what a plan's rates do, predicted by nodes."""
        return at_rates(self.window, self.request, plan.problem, plan.rates, bandwidth, nodes)

    def measured(self, policy: str, conduct: Conduct) -> Measured:
        """Return what a policy costs."""
        return measure(policy, self.window, self.request.objective, self.sources.importance, conduct)


class Known(NamedTuple):
    """What policies know before a window, at a bandwidth.

    The solution is the plan, made with the estimate; `every` is the period of the re-planned policy.
    """

    ground: Ground
    solution: Solution
    bandwidth: float
    estimate: Estimator
    every: float | None

    @property
    def window(self) -> HeldOutWindow:
        """The window."""
        return self.ground.window

    @property
    def request(self) -> Wishes:
        """What is asked of the plan."""
        return self.ground.request

    @property
    def problem(self) -> Problem:
        """The problem of the plan."""
        return self.solution.problem

    def at(self, rates: Array | None, *, predicted: bool = True) -> Conduct | None:
        """Return what static rates do, if there are any."""
        if rates is None:
            return None
        nodes = self.ground.nodes if predicted else None
        return at_rates(self.window, self.request, self.problem, rates, self.bandwidth, nodes)

    def shared(self, shape: Array) -> Conduct | None:
        """Return what rates in proportion to a shape do, within limits."""
        return self.at(shared_rates(self.problem, shape))


class Policy(NamedTuple):
    """A policy of a back-test.

    - `act`: What it does; None where there is no such policy.
    - `words`: How a verdict names it, if it is judged under its own name.
    - `rule`: Whether it needs no plan: of all rules the best is judged.
    """

    act: Callable[[Known], Conduct | None]
    words: str = ""
    rule: bool = False


def policies_in(
    window: HeldOutWindow,
    request: Wishes,
    bandwidths: Sequence[float],
    every: float | None = None,
    log: CrawlLog | None = None,
    statuses: Statuses | None = None,
    learnt: Nodes | None = None,
) -> list[Measured]:
    """Measure the policies of each bandwidth, then those with their own.

    `learnt` are change rates of the whole log, by which costs are expected that changes do not show.
    """
    request = replace(request, objective=request.objective.take(window.index))
    window, request = with_failures(window, request, statuses)
    heard, request = request, replace(request, signals=None)
    estimate, sources = estimated_sources(window.past, request)
    request = with_change_model(window.past, request)
    if learnt is not None:
        each = learnt[0][window.index].T
        own = tuple(sources.with_change_rate(rate) for rate in each)
        expected = ExpectedCosts(request.objective, own, learnt[1][window.index])
        window = replace(window, expected=expected)
    # Where rates have costs and crawls have none, only rates are policies.
    alone = None if window.expected is None else window.expected.refuses_crawls()
    if alone is not None and (every is not None or heard.signals is not None or request.compare_rule):
        raise ObjectiveError(f"crawls at other times than those of a rate cannot be priced: {alone}")
    ground = Ground(window, request, sources, nodes_of(estimate), log, statuses)
    found: list[Measured] = []
    for number, bandwidth in enumerate(bandwidths):
        known = Known(ground, ground.planned(bandwidth), bandwidth, estimate, every)
        for name, policy in POLICIES.items():
            conduct = policy.act(known)
            if conduct is None:
                continue
            if number:
                # Costs over time are told of the first bandwidth.
                conduct = conduct._replace(in_parts=False)
            found.append(ground.measured(name, conduct))
    if alone is not None:
        return found
    following = [] if heard.signals is None else _with_signals(window, heard, sources, bandwidths, every)
    return found + _at_own_bandwidth(ground, following)


def has_phases(log: CrawlLog, request: Wishes, bandwidth: float) -> bool:
    """Return whether a plan may have good phases of the week."""
    if request.load_limit <= 1.0 or why_no_phases(request.objective):
        return False
    estimate, sources = estimated_sources(log, request)
    problem = problem_of(request, sources, bandwidth)
    return phased_problem(log, estimate, problem, request.load_limit) is not None


def _phased(known: Known) -> Conduct | None:
    """Return what the plan at good phases does, or None without evidence.

    The weekly profile is learnt from the crawls before a window alone, with the plan's own change rates.
    Sources whose gaps fit the week are replayed at their phases; the others keep a random phase, and cost
    what static rates cost on average over all phases.
    """
    window, request = known.window, known.request
    if not has_static_cost(request.objective):
        return None
    phased = phased_problem(window.past, known.estimate, known.problem, request.load_limit)
    if phased is None:
        return None
    solution = solve(phased, tolerance=TOLERANCE)
    phases = good_phases(solution, known.solution)
    if phases is None:
        return None
    rates, placed = solution.rates, at_good_phases(phased, solution.rates)
    longest = float(np.max(1.0 / rates[placed])) if np.any(placed) else 0.0
    origin = window.begin - 2.0 * longest
    start = window.past.clock.date(origin)
    method = phased_method(phases)
    times = schedule(solution, window.end - origin, method, start=origin if start is None else start)
    own = np.flatnonzero(placed[times.source])
    order = own[np.lexsort((times.time[own], times.source[own]))]
    crawls = (times.source[order], origin + times.time[order])
    predicted = predicted_cost(window, phased, rates, known.ground.nodes)
    runs = [[crawls]] * len(window.worlds)
    return Conduct(known.bandwidth, rates * window.span, rates, runs, placed, predicted)


def _replanned(known: Known) -> Conduct | None:
    """Return what a policy does that is planned again each period."""
    window, every = known.window, known.every
    if every is None:
        return None
    worlds = window.drawn or (window,)
    own = [replanned_crawls(one, known.request, known.solution, known.estimate, every) for one in worlds]
    return crawls_that(window, own, known.bandwidth)


def crawls_that(window: HeldOutWindow, crawls: Sequence[Refreshes], bandwidth: float) -> Conduct:
    """Return what crawls, or attempts where they fail, do in drawn worlds."""
    used, runs = [], []
    for source, time in crawls:
        used.append(_counts(window, source, time))
        answered = np.ones(len(source), dtype=np.bool_)
        if window.outcomes is not None:
            answered = window.outcomes.of(source, time)
        runs.append([(source[answered], time[answered])])
    # What is hidden of their cost is that of the same crawls: those of the first sample.
    return Conduct(bandwidth, np.mean(used, axis=0), runs=[*runs[: len(window.drawn[:1])], *runs])


def _counts(window: HeldOutWindow, source: IntArray, time: Array, weights: Array | None = None) -> Array:
    """Return how many crawls of each source are in its window."""
    inside = (time >= window.changes.first[source]) & (time <= window.changes.until[source])
    counted = None if weights is None else weights[inside]
    return np.bincount(source[inside], counted, len(window.span)).astype(np.float64)


def _in_force(known: Known) -> Conduct | None:
    """Return what the crawl rates of the log do, at the bandwidth."""
    if known.ground.log is None:
        return None
    rate = known.window.past.crawl_rate
    if known.problem.sources.success is not None:
        # Crawls in a log are those that were answered.
        rate = rate / known.problem.sources.success
    there = np.isfinite(rate) & (rate > 0.0)
    if not np.any(there):
        return None
    return known.shared(np.where(there, rate, np.mean(rate[there])))


def _in_hindsight(known: Known) -> Conduct | None:
    """Return what the best static rates in hindsight do."""
    window, problem = known.window, known.problem
    # Refreshes are all that uses bandwidth, one like another.
    alike = problem.per_bandwidth is None and bool(np.all(problem.sources.refresh_cost == 1.0))
    spent = per_time(known.solution.rates * window.span, window.span)
    if not (has_static_cost(known.request.objective) and window.outcomes is None and alike and spent > 0.0):
        return None
    return known.at(hindsight_rates(window, known.request.objective, problem, spent), predicted=False)


POLICIES: Mapping[str, Policy] = {
    PLAN: Policy(lambda known: known.at(known.solution.rates)),
    PHASED: Policy(_phased),
    REPLANNED: Policy(_replanned),
    IN_FORCE: Policy(_in_force, "the rates in force", rule=True),
    UNIFORM: Policy(
        lambda known: known.shared(np.ones(len(known.problem.sources))), "equal rates", rule=True
    ),
    PROPORTIONAL: Policy(
        lambda known: known.shared(known.problem.sources.change_rate), "rates ∝ change rates", rule=True
    ),
    SQUARE_ROOT: Policy(
        lambda known: known.shared(square_root_shape(known.problem.sources)),
        "rates ∝ √(importance × change rate)",
    ),
    HINDSIGHT: Policy(_in_hindsight),
}


def _at_own_bandwidth(ground: Ground, following: Sequence[tuple[str, Conduct]]) -> list[Measured]:
    """Measure policies of their own bandwidth, each beside a plan of it.

    These are crawls that follow signals, the log's own, and rules.
    """
    found = list(following)
    if ground.log is not None:
        found.append((CURRENT, own_crawls(ground, ground.log)))
    rules = ground.request.compare_rule or {}
    found += [(name, _of_rule(ground, rule)) for name, rule in rules.items()]
    rows: list[Measured] = []
    for name, conduct in found:
        rows.append(ground.measured(name, conduct))
        used = conduct.bandwidth
        if used > 0.0 and not np.any(ground.sources.min_rate > 0.0):
            own = ground.at(_of_as_many(ground, used), used, ground.nodes)
            rows.append(ground.measured(PLAN_AT + name, own))
            if conduct.rule is not None:
                needed = _needed(ground, *rows[-2:])
                rows[-2] = replace(rows[-2], rule=conduct.rule._replace(needed=needed))
    return rows


def _with_signals(
    window: HeldOutWindow,
    request: Wishes,
    sources: Sources,
    bandwidths: Sequence[float],
    every: float | None,
) -> list[tuple[str, Conduct]]:
    """Return what plans do whose crawls follow signals, of each bandwidth.

    Recall, precision and change rates are learnt before the window. Where no signal told anything by then,
    they are those without.
    """
    assert request.signals is not None, "asked before"
    request = replace(request, signals=request.signals.among(window.index))
    learnt, own = estimated_sources(window.past, request)
    assert isinstance(learnt, PooledSignals)
    objective = with_signals(request.objective, learnt.recall_, learnt.precision_)
    several: list[tuple[str, Conduct]] = []
    facts = RuleFacts(float("nan"), float("nan"))
    for bandwidth in bandwidths:
        problem = problem_of(replace(request, objective=objective), own, bandwidth)
        known = problem_of(request, sources, bandwidth) if objective is request.objective else problem
        rates = solve(known, tolerance=TOLERANCE).rates
        rule = rule_of(objective, rates, own)
        if rule is None:
            conduct = at_rates(window, request, known, rates, bandwidth)
        else:
            conduct = _following(window, rule, learnt.signals_, rates, request.seed)
            nodes = own.change_rate[:, None], np.ones((len(rates), 1))
            conduct = conduct._replace(predicted=predicted_cost(window, problem, rates, nodes))
        several.append((WITH_SIGNALS, conduct._replace(in_parts=not several, rule=facts)))
    if every is None or window.outcomes is not None:
        return several
    for bandwidth in bandwidths:
        worlds = window.drawn or (window,)
        runs = [following_replanned(one, request, bandwidth, every) for one in worlds]
        conduct = crawls_that(window, runs, bandwidth)
        spent = per_time(conduct.used, window.span)
        several.append((REPLANNED_WITH, conduct._replace(bandwidth=spent, rule=facts)))
    return several


def _following(
    window: HeldOutWindow, rule: WaitRule, signals: SignalTable, rates: Array, seed: int
) -> Conduct:
    """Return what crawls by a rule do since the record began."""
    rng, begin, end = np.random.default_rng([seed, 43]), window.world.start, window.end
    runs = beginnings(window)
    check_size(runs * (end - float(np.min(begin))), float(np.sum(rates)), window.past.time_unit)
    heard = np.flatnonzero((signals.time > begin[signals.source]) & (signals.time <= end))
    heard = heard[np.argsort(signals.time[heard], kind="stable")]
    source, time = signals.source[heard], signals.time[heard]
    wait, horizon = rule.waiting(0.0), float(np.nextafter(end, np.inf))
    wait = np.where(wait < FAR * (end - begin), wait, 0.0)
    found = []
    for _ in range(runs):
        # The gap in which a record begins has begun before; signals then are not known.
        last = begin - wait * rng.random(len(begin))
        who, moment = rule.crawls(source, time, horizon, rng.random(len(time)), last)
        order = np.lexsort((moment, who))
        found.append((who[order], moment[order]))
    used = np.mean([_counts(window, *each) for each in found], axis=0)
    return Conduct(per_time(used, window.span), used, runs=[found] * len(window.worlds))


def _of_rule(ground: Ground, rule: Rule) -> Conduct:
    """Return what a rule of crawlers does, which began with the record."""
    window, request = ground.window, ground.request
    answered = None if window.outcomes is None else window.outcomes.of
    worlds = window.drawn or (window,)
    until, seed = window.changes.until, request.seed
    own = [rule_crawls(rule, one.world, until, answered, seed) for one in worlds]
    conduct = crawls_that(window, [(each.source, each.time) for each in own], 0.0)
    changes = [_counts(window, each.source, each.time, each.changed.astype(np.float64)) for each in own]
    asked = conduct.used
    if request.success is not None and request.retry_at_once:
        asked = asked / request.success(window.past.names)
    spent = per_time(asked + changed_costs(ground.sources) * np.mean(changes, axis=0), window.span)
    settled, before = np.median([settling(each, len(window.span), window.begin) for each in own], axis=0)
    return conduct._replace(bandwidth=spent, rule=RuleFacts(float(settled), float(before)))


def _needed(ground: Ground, rule: Measured, plan: Measured) -> float:
    """Return the bandwidth at which plans cost as much as a rule.

    By secants in logarithms, where costs are nearly straight, from a plan of as many fetches; NaN where they
    do not get there.
    """
    size, slope, weight = np.log(plan.bandwidth), -1.0, plan.weight
    least, most = size + np.log(LEAST_NEEDED), size + np.log(MOST_NEEDED)
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.log((weight @ plan.cost) / (weight @ rule.cost))
        for _ in range(SECANTS):
            if not np.isfinite(more) or abs(more) <= NEAR:
                break
            other = float(np.clip(size - more / slope, least, most))
            tried = ground.planned(float(np.exp(other)), certify=False)
            found = ground.at(tried, rule.bandwidth)._replace(in_parts=False)
            cost = ground.measured(PLAN, found).cost
            before, more = more, np.log((weight @ cost) / (weight @ rule.cost))
            slope = min((more - before) / (other - size), FLATTEST) if other != size else slope
            size = other
    return float(np.exp(size)) if abs(more) <= NEAR else float("nan")


def own_crawls(ground: Ground, log: CrawlLog) -> Conduct:
    """Return what a log's own crawls do, at their own bandwidth."""
    window, request = ground.window, ground.request
    rows, source = window.crawls_of(log)
    time = log.time[rows]
    found = _counts(window, source, time, log.changed[rows].astype(np.float64))
    failures = np.zeros(len(window.span))
    if log.other_fetches is not None:
        others = log.other_fetches.among(log.names, window.past.names)
        failures = _counts(window, others.source[~others.answered], others.time[~others.answered])
        # One that tells nothing of a change brings a new copy all the same.
        source = np.concatenate([source, others.source[others.answered]])
        time = np.concatenate([time, others.time[others.answered]])
        order = np.lexsort((time, source))
        source, time = source[order], time[order]
    answered = _counts(window, source, time)
    asked = answered + failures
    if ground.statuses is not None:
        asked = recorded_attempts(window, ground.statuses).astype(np.float64)
    elif request.success is not None and log.other_fetches is None:
        asked = answered / request.success(window.past.names)
    # Counts are over the time that a source was there, with that after its last crawl.
    whole, there = window.span + _unseen(log, window), window.there
    scale = float(np.sum(window.span[there]) / np.sum(whole[there]))
    used = scale * (answered if request.retry_at_once else asked)
    spent = per_time(scale * (asked + changed_costs(ground.sources) * found), window.span)
    return Conduct(spent, used, runs=[[(source, time)]] * len(window.worlds))


def _unseen(log: CrawlLog, window: HeldOutWindow) -> Array:
    """Return the time that a source was there after its last crawl.

    Where its window ends with its last crawl, crawls over its length are too many: a record that is cut at
    random ends Σ gap²/2Σ gap after a crawl on average.
    """
    gap = np.nan_to_num(log.interval)
    whole, squares = (np.bincount(log.source_index, each, len(log.names)) for each in (gap, gap**2))
    rest = np.divide(squares, 2.0 * whole, out=np.zeros(len(whole)), where=whole > 0.0)
    return np.where(window.changes.until == log.last_crawl[window.index], rest[window.index], 0.0)


def _of_as_many(ground: Ground, needed: float) -> Solution:
    """Return the plan that uses as much as a log's crawls did.

    Where some sources leave early, the bandwidth is chosen so that what is used while they are there is as
    much.
    """
    bandwidth, span = needed, ground.window.span
    for _ in range(PASSES):
        plan = ground.planned(bandwidth)
        used = per_time(plan.problem.used_by_source(plan.rates) * span, span)
        if not used > 0.0 or abs(used / needed - 1.0) <= MATCHED:
            break
        bandwidth *= needed / used
    return plan

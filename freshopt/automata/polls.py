"""Polls of simulated sources, and what each of them tells the automata.

Plain arithmetic, as `freshopt.automata.transitions` is.

Costs of a copy as a poll or a probe sees them. A poll compares the copy with the source: it sees whether the
copy is stale, how many changes it has missed, for how long the oldest of them has been missed, or only how
old it is. Each is one sample c of a cost of age, drawn twice in one interval for the difference that
`freshopt.automata.settings` derives: at the probe, and at the poll that ends it. A cost that is a known
function of age takes its parameters from a table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from freshopt.automata.random_numbers import exponential, poisson, uniform
from freshopt.automata.transitions import DEADLINE, RANDOM, Tree, choose, learn, share
from freshopt.numerics.arrays import Array, IntArray

STALE, HARMONIC, MISSED, AGE, POWER, PIECES = 0, 1, 2, 3, 4, 5
# Terms of H(b) − H(a) below this b are added one by one; above, the expansion below is off by 1e-12.
FEW = 32.0


def growth(cost: int, curve: Array, hazard: float, first: float, then: float, noise: IntArray) -> float:
    """Return by how much the cost has grown since the probe.

    It is c(T) − c(t) ≥ 0 of a probe at age t, ``first``, and a poll at age T, ``then`` slots later. Changes
    are drawn anew.
    """
    if cost == POWER:
        return power(curve, first + then) - power(curve, first)
    if cost == PIECES:
        return slope(curve, first + then) - slope(curve, first)
    if hazard <= 0.0:
        return 0.0
    if cost == AGE:
        change = exponential(noise) / hazard
        return max(first + then - change, 0.0) - max(first - change, 0.0)
    before = poisson(noise, hazard * first)
    after = poisson(noise, hazard * then)
    if cost == MISSED:
        return after
    if cost == HARMONIC:
        return harmonic_sum(before, before + after)
    return 1.0 if before == 0.0 and after > 0.0 else 0.0


def power(curve: Array, age: float) -> float:
    """Return min(s, t)^e of age s."""
    reached: float = min(age, curve[1]) ** curve[0]
    return reached


def slope(curve: Array, age: float) -> float:
    """Return the slope of the highest piece at an age."""
    pieces = len(curve) // 2
    top, found = -math.inf, 0.0
    for j in range(pieces):
        height = curve[j] * age + curve[pieces + j]
        if height > top:
            top, found = height, curve[j]
    return found


def harmonic_sum(a: float, b: float) -> float:
    """Return H(b) − H(a) of whole numbers 0 ≤ a ≤ b."""
    total = 0.0
    if a < FEW:
        end = min(b, FEW)
        while a < end:
            a += 1.0
            total += 1.0 / a
    if b > a:
        total += math.log(b / a) + tail(b) - tail(a)
    return total


def tail(m: float) -> float:
    """Return H(m) − log m − γ, by its expansion."""
    square = m * m
    return 0.5 / m - 1.0 / (12.0 * square) + 1.0 / (120.0 * square * square)


# Codes of the feedback: `freshopt.automata.settings.Feedback`.
NEWS, NEWS_TWICE, NEWS_THEN_NONE, PROBE, COST = 0, 1, 2, 3, 4
# Mean intervals within which a probe is planned: periodic intervals are shorter (see `settings`).
REACH = 2.0
# Power of a uniform or exponential number that is the moment of a cost's probe, over the reach. Where a copy
# is stale for most of an interval, its cost grows early: probes at even moments would see that rarely and
# count it for much, and sources that had lost their share did not get it back in a million polls.
EARLY = 4.0
# Polls per source over which the mean feedback is taken that a cost is measured by. Before there are so many,
# nothing is learnt from costs.
SCALED_BY = 8
# A cost moves no automaton so far that its other side loses more than this part of its share: costs have no
# bound, and a share that one poll could take away is not polled again for long.
LARGEST_MOVE = 1.0 / 8.0


class Rule(NamedTuple):
    """How sources are polled and learnt from, in numbers."""

    scheduler: int
    feedback: int
    reward: bool
    penalty: bool
    gain: float
    probing: float


class Slots(NamedTuple):
    """Sources that change while poll slots go by.

    ``hazard`` per slot (the expected number of changes), ``pending`` hazard since the last poll and up to
    ``since``. ``weight`` in the feedback. ``before``: whether the last poll found news, or -1. ``plan``
    and ``reach``: when the next probe is planned, and one over the density of that moment. ``polls`` and
    ``news`` of each source, and ``totals``: news, probes. ``now``: when the last poll was. ``cost``: the code
    of what a poll sees, ``curve`` its parameters for each source, and ``scale`` the running mean of the
    feedback and the polls that it was taken over.
    """

    hazard: Array
    pending: Array
    since: Array
    weight: Array
    before: IntArray
    plan: Array
    reach: Array
    polls: IntArray
    news: IntArray
    totals: Array
    now: Array
    cost: IntArray
    curve: Array
    scale: Array


def poll(tree: Tree, slots: Slots, leaf: int, rule: Rule, gain: float) -> float:
    """Poll a source in the next slot; return its feedback.

    Slots are of length 1; under random polling of exponential length, so that each source's poll intervals
    are.
    """
    slots.now[0] += exponential(tree.noise) if rule.scheduler == RANDOM else 1.0
    # Costs are seen when a poll is released: where in its slot it is made is no part of periodic refreshes.
    now = tree.begun[leaf] if rule.feedback == COST and rule.scheduler == DEADLINE else slots.now[0]
    weight, since = slots.weight[leaf], slots.since[leaf]
    value = 0.0
    fresh = True
    if rule.feedback == COST and slots.plan[leaf] < now:
        # The probe was planned at the last poll, and hazards have not changed since.
        slots.totals[1] += 1.0
        grown = growth(
            slots.cost[0],
            slots.curve[leaf],
            slots.hazard[leaf],
            slots.plan[leaf] - since,
            now - slots.plan[leaf],
            tree.noise,
        )
        value = gain * weight * slots.reach[leaf] * grown
    if rule.feedback == PROBE and slots.plan[leaf] < now:
        slots.totals[1] += 1.0
        passed = slots.pending[leaf] + slots.hazard[leaf] * (slots.plan[leaf] - since)
        fresh = uniform(tree.noise) < math.exp(-passed)
        slots.pending[leaf], since = 0.0, slots.plan[leaf]  # from here on what happens is independent
    passed = slots.pending[leaf] + slots.hazard[leaf] * (now - since)
    changed = uniform(tree.noise) >= math.exp(-passed)
    news = changed or not fresh
    if rule.feedback == NEWS:
        value = 1.0 if news else 0.0
    elif rule.feedback == NEWS_TWICE:
        value = 1.0 if news and slots.before[leaf] == 1 else 0.0
    elif rule.feedback == NEWS_THEN_NONE:
        if slots.before[leaf] == 1 and not news:
            value = gain * weight / share(tree, leaf)
    elif rule.feedback == PROBE and changed and fresh and slots.plan[leaf] < now:
        value = gain * weight * slots.reach[leaf]
    if rule.feedback <= NEWS_TWICE and value > 0.0:
        if not rule.penalty:
            value = gain * weight
        elif weight < 1.0 and uniform(tree.noise) >= weight:
            value = 0.0
    if rule.feedback >= PROBE:
        slots.plan[leaf] = math.inf
        if rule.probing >= 1.0 or uniform(tree.noise) < rule.probing:
            slots.reach[leaf] = REACH / share(tree, leaf)
            if rule.feedback == COST:
                late = exponential(tree.noise) if rule.scheduler == RANDOM else uniform(tree.noise)
                slots.plan[leaf] = now + slots.reach[leaf] * late**EARLY
                slots.reach[leaf] *= EARLY * late ** (EARLY - 1.0)
                if rule.scheduler == RANDOM:
                    slots.reach[leaf] *= math.exp(late)
            else:
                slots.plan[leaf] = now + slots.reach[leaf] * uniform(tree.noise)
    slots.pending[leaf], slots.since[leaf] = 0.0, now
    slots.before[leaf] = 1 if news else 0
    slots.polls[leaf] += 1
    if news:
        slots.news[leaf] += 1
        slots.totals[0] += 1.0
    return value


def simulate(tree: Tree, slots: Slots, polls: int, rule: Rule) -> None:
    """Poll `polls` times and learn from each."""
    of_cost = rule.feedback == COST
    most = LARGEST_MOVE if of_cost else math.inf
    for _ in range(polls):
        leaf = choose(tree, rule.scheduler)
        value = poll(tree, slots, leaf, rule, 1.0 if of_cost else rule.gain)
        if of_cost:
            value = rule.gain * scaled(slots, value)
        learn(tree, leaf, value, rule.reward, rule.penalty, most)


def scaled(slots: Slots, value: float) -> float:
    """Return feedback over its running mean, 0 while that is being taken.

    The mean is that of the polls before, so that it does not depend on the value.
    """
    mean, seen = slots.scale[0], slots.scale[1]
    most = float(SCALED_BY * len(slots.hazard))
    slots.scale[1] = seen + 1.0
    slots.scale[0] = mean + (value - mean) / min(seen + 1.0, most)
    if seen < most or mean <= 0.0:
        return 0.0
    relative: float = value / mean
    return relative


def observe(tree: Tree, slots: Slots, leaves: IntArray, values: Array, rule: Rule) -> None:
    """Poll as `simulate` does, without learning; write sources and feedback."""
    for i in range(len(leaves)):
        leaves[i] = choose(tree, rule.scheduler)
        values[i] = poll(tree, slots, leaves[i], rule, rule.gain)

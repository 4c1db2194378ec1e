"""Compiled steps of a tree of automata.

This module imports numba and is imported when first needed.

The machine code is cached on disk. Mathematics is not relaxed: the same bits as in Python are asked for.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from numba.extending import register_jitable

from freshopt.automata import heaps, observed_costs, polls, random_numbers, transitions
from freshopt.automata.polls import Slots
from freshopt.automata.transitions import Tree
from freshopt.compiled.kept_code import compile_loop
from freshopt.numerics.arrays import Array, IntArray

STEPS = (random_numbers, heaps, transitions, observed_costs, polls)
for _module in STEPS:
    for _name, _function in inspect.getmembers(_module, inspect.isfunction):
        if _function.__module__ == _module.__name__:
            register_jitable(_function)

EDITION = hashlib.sha256("".join(map(inspect.getsource, STEPS)).encode()).hexdigest()


def build() -> dict[str, Callable[..., None]]:
    """Return the loops `simulate`, `observe`, `choose_many` and `learn_many` of `steps`."""
    edition = EDITION  # a variable of the closures below, hence part of what their cache is looked up by
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

    @compile_loop(**options)
    def simulate(
        tree: Tree,
        slots: Slots,
        count: int,
        scheduler: int,
        rule: int,
        reward: bool,
        penalty: bool,
        gain: float,
        probing: float,
    ) -> None:
        _ = edition
        polls.simulate(tree, slots, count, scheduler, rule, reward, penalty, gain, probing)

    @compile_loop(**options)
    def observe(
        tree: Tree,
        slots: Slots,
        leaves: IntArray,
        values: Array,
        scheduler: int,
        rule: int,
        penalty: bool,
        gain: float,
        probing: float,
    ) -> None:
        _ = edition
        polls.observe(tree, slots, leaves, values, scheduler, rule, penalty, gain, probing)

    @compile_loop(**options)
    def choose_many(tree: Tree, scheduler: int, out: IntArray) -> None:
        _ = edition
        transitions.choose_many(tree, scheduler, out)

    @compile_loop(**options)
    def learn_many(tree: Tree, leaves: IntArray, values: Array, reward: bool, penalty: bool) -> None:
        _ = edition
        transitions.learn_many(tree, leaves, values, reward, penalty)

    return {
        "simulate": simulate,
        "observe": observe,
        "choose_many": choose_many,
        "learn_many": learn_many,
    }

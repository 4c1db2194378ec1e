"""Passes of `threshold_search` over the sources begin..end, for threads; compiled by `loops`."""

from __future__ import annotations

import numpy as np

from freshopt.noisy_signals.cycle_terms import cycle_moments, marginal_value
from freshopt.noisy_signals.signal_rates import MOST_ROOTS, signal_rates
from freshopt.noisy_signals.threshold_search import (
    length_of_value,
    log_loss_at,
    stale_and_value,
    threshold_of_length,
    value_at,
)
from freshopt.numerics.arrays import Array

# The least marginal value: its square root, a threshold, has a square.
TINY_VALUE = 1e-250


def inverse(begin: int, end: int, value: Array, recall: Array, precision: Array, rate: Array) -> None:
    """Write the rates per change of given marginal values V.

    They are 0 from V = 1 on.
    """
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        if not value[k] < 1.0:
            rate[k] = 0.0
            continue
        q = signal_rates(recall[k], precision[k], roots)
        rate[k] = 1.0 / length_of_value(max(value[k], TINY_VALUE), q)


def evaluate(
    begin: int, end: int, rate: Array, recall: Array, precision: Array, stale: Array, value: Array
) -> None:
    """Write stale fractions and marginal values at given rates.

    Rates are per change; the stale fraction is a share of time.
    """
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        stale[k], value[k] = stale_and_value(rate[k], signal_rates(recall[k], precision[k], roots))


def thresholds(
    begin: int, end: int, length: Array, recall: Array, precision: Array, number: Array, wait: Array
) -> None:
    """Write the (n, x) of cycles of given lengths."""
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        found = threshold_of_length(length[k], signal_rates(recall[k], precision[k], roots))
        number[k], wait[k] = found.signals, found.wait


def cycles(
    begin: int,
    end: int,
    number: Array,
    wait: Array,
    recall: Array,
    precision: Array,
    length: Array,
    stale: Array,
    value: Array,
    survival: Array,
) -> None:
    """Write ψ, the stale time, V and ψ' at thresholds (n, x)."""
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        q = signal_rates(recall[k], precision[k], roots)
        u = log_loss_at(number[k], wait[k], q)
        cycle = cycle_moments(number[k], wait[k], u, q)
        length[k], stale[k], survival[k] = cycle.length, cycle.stale, cycle.survival
        value[k] = marginal_value(cycle, u)


def indices(
    begin: int, end: int, number: Array, wait: Array, recall: Array, precision: Array, value: Array
) -> None:
    """Write the marginal values V at effective times.

    An effective time is so many signals and so much time since the last crawl.
    """
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        value[k] = value_at(number[k], wait[k], signal_rates(recall[k], precision[k], roots))

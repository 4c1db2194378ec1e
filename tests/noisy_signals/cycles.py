"""Cycles at given thresholds, by the library's scalar formulas as they stand."""

import numpy as np

from freshopt.noisy_signals.cycle_terms import cycle_moments, marginal_value
from freshopt.noisy_signals.signal_rates import MOST_ROOTS, signal_rates
from freshopt.noisy_signals.threshold_search import log_loss_at, threshold_at


def cycle_at(number: float, wait: float, recall: float, precision: float) -> tuple[float, float, float]:
    """Return length, stale time and marginal value at a threshold."""
    q = signal_rates(recall, precision, np.zeros(MOST_ROOTS, dtype=np.complex128))
    u = log_loss_at(number, wait, q)
    found = cycle_moments(number, wait, u, q)
    return found.length, found.stale, marginal_value(found, u)


def split(threshold: float, recall: float, precision: float) -> tuple[float, float]:
    """Return a threshold in effective time as signals and a wait."""
    q = signal_rates(recall, precision, np.zeros(MOST_ROOTS, dtype=np.complex128))
    found = threshold_at(q.unannounced * threshold, q)
    return float(found.signals), found.wait

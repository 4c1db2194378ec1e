"""Classes of recall and precision, whose rates tables find.

Learnt qualities differ from source to source, and are right to no more than their posterior's spread: after a
few signals 90 % of it is half of all shares. Halving the set with the largest sum of squares again and again,
on the scale on which a share's spread is everywhere alike (asin √x), gives classes that are narrow beside
that. Each has the mean of its members, so that errors cancel in its sums. What this costs in rates is of
second order in a class's width; what it costs a plan, `freshopt.questions.cost_of_classes` bounds.

Cost: a pass over a set for each class.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.noisy_signals.quality_tables import SHARED
from freshopt.numerics.arrays import Array, total

# Sources with noisy signals below which each keeps its own quality: their kernels take as long as tables do.
FEW = 2048
# Classes at most, and sources of each on average: 6 classes of shares from 0 to 1 cost up to .3 % (a test).
MOST, MEMBERS = 32, 512
# Nodes of a curve along the logarithm of rates: 1e-3 of a share of time at worst, 1e-5 in the mean (a test).
NODES = 256


def classes_of(recall: Array, precision: Array) -> tuple[Array, Array] | None:
    """Return each source's class, None where its own quality is to stay."""
    noisy = np.flatnonzero((recall > 0.0) & ~((recall == 1.0) & (precision == 1.0)))
    if len(noisy) < FEW:
        return None
    scaled = np.arcsin(np.sqrt(np.stack([recall[noisy], precision[noisy]])))
    cells, spreads = [np.arange(len(noisy))], [_spread(scaled)]
    while len(cells) < min(MOST, len(noisy) // MEMBERS):
        k = int(np.argmax([float(np.max(own)) for own in spreads]))
        cell, own = cells[k], scaled[int(np.argmax(spreads[k])), cells[k]]
        if not np.max(spreads[k]) > 0.0:
            break
        # At the mean, but for the least number that a table pays for.
        order = np.argsort(own, kind="stable")
        below = int(np.count_nonzero(own <= total(own) / len(own)))
        at = min(max(below, SHARED), len(cell) - SHARED)
        halves = cell[order[:at]], cell[order[at:]]
        cells[k : k + 1] = halves
        spreads[k : k + 1] = [_spread(scaled[:, half]) for half in halves]
    found = recall.copy(), precision.copy()
    for cell in cells:
        for own, given in zip(found, (recall, precision), strict=True):
            members = given[noisy[cell]]
            own[noisy[cell]] = np.clip(total(members) / len(cell), np.min(members), np.max(members))
    return found if np.any(found[0] != recall) or np.any(found[1] != precision) else None


def _spread(scaled: Array) -> Array:
    """Return the sums of squares along each axis, 0 of small sets."""
    size = scaled.shape[1]
    return np.var(scaled, axis=1) * size if size >= 2 * SHARED else np.zeros(2)


def by_class(
    curve: Callable[[Array, Array, Array], Array], recall: Array, precision: Array, rate: Array
) -> Array:
    """Return a curve of rates per change.

    Between nodes where many sources share recall and precision.
    """
    code, many = np.unique(np.stack([recall, precision]), axis=1, return_inverse=True, return_counts=True)[1:]
    code = np.where((rate > 0.0) & (many[code] > 2 * NODES), code, -1)
    shared = [np.flatnonzero(code == k) for k in np.unique(code[code >= 0])]
    rest, ends = np.flatnonzero(code < 0), [np.log([np.min(rate[own]), np.max(rate[own])]) for own in shared]
    at = [np.linspace(low, high if high > low else low + 1.0, NODES) for low, high in ends]
    first = np.array([own[0] for own in shared], dtype=np.int64).repeat(NODES)
    asked = np.append(rest, first), np.concatenate([rate[rest], *map(np.exp, at)])
    given = curve(recall[asked[0]], precision[asked[0]], asked[1])
    found = np.empty(len(rate))
    found[rest] = given[: len(rest)]
    for k, own in enumerate(shared):
        values = given[len(rest) + k * NODES :][:NODES]
        found[own] = np.interp(np.log(rate[own]), at[k], values)
    return found

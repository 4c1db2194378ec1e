"""`label_codes`: distinct labels in order, and places among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import IntArray

# Integers that span up to so many times their number are counted, not sorted.
_SPARSE = 4
# Half the largest of 64 bits.
_WHOLE = 2**62


def label_codes(labels: npt.NDArray[Any]) -> tuple[list[Any], IntArray]:
    """Return the distinct labels in order, and each label's place.

    That of None is −1. Many are hashed or counted, and only the distinct ones sorted, or TypeError raised.
    """
    if labels.dtype.kind in "OU":
        given = labels.tolist()
        distinct = dict.fromkeys(given)
        distinct.pop(None, None)
        known = sorted(distinct)
        place = {label: k for k, label in enumerate(known)}
        return known, np.fromiter(map({None: -1, **place}.__getitem__, given), np.int64, len(given))
    if labels.dtype.kind in "iu" and len(labels):
        low, high = int(labels.min()), int(labels.max())
        if high - low <= _SPARSE * len(labels) and max(-low, high) < _WHOLE:
            shifted = labels.astype(np.int64) - low
            there = np.zeros(high - low + 1, dtype=np.bool_)
            there[shifted] = True
            known = (np.flatnonzero(there) + low).tolist()
            return known, (np.cumsum(there) - 1)[shifted]
    distinct_labels, codes = np.unique(labels, return_inverse=True)
    return distinct_labels.tolist(), codes

"""Sums over spans of a cycle against tables of spans and bins."""

from __future__ import annotations

import numpy as np
import pytest

from freshopt.weekly.spans import CycleSpans


@pytest.mark.parametrize("bins", [1, 2, 7, 56])
def test_sums_are_those_of_a_table(bins: int) -> None:
    rng = np.random.default_rng(bins)
    begin = np.concatenate((rng.uniform(-3.0, 9.0, 60), [0.0, 0.999999999, 1.0, 0.5, 0.25]))
    length = np.concatenate((rng.gamma(0.5, 2.0, 60), [1.0, 2.0, 1e-9, 0.5, 3.75]))
    g, weight = rng.gamma(1.0, 1.0, bins), rng.gamma(1.0, 1.0, len(begin))
    g /= g.mean()
    table = np.zeros((len(begin), bins))
    for row, (first, long) in enumerate(zip(begin.tolist(), length.tolist(), strict=True)):
        for cycle in range(int(np.floor(first)), int(np.floor(first + long)) + 1):
            left = cycle + np.arange(bins) / bins
            inside = np.minimum(left + 1.0 / bins, first + long) - np.maximum(left, first)
            table[row] += np.maximum(inside, 0.0)
    spans = CycleSpans.of(begin, length, bins)
    np.testing.assert_allclose(spans.integral(g), table @ g, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(spans.spread(weight), weight @ table, rtol=1e-9, atol=1e-9)
    assert spans.spread(weight).sum() == pytest.approx(float(weight @ length), rel=1e-12)

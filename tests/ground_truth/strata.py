"""Stratified samples of test matrices: some cells in every run, all of them under the marker `exhaustive`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

exhaustive = pytest.mark.exhaustive


def stratified(*axes: Iterable[Any], every: int) -> list[Any]:
    """Return the product of the axes, of which every run has the cells whose positions add up to a multiple.

    So each value of an axis is met as often as any other, and with each value of the others where the rest of
    the axes have at least ``every`` values.
    """
    numbered: list[Sequence[tuple[int, Any]]] = [list(enumerate(axis)) for axis in axes]
    cells = []
    for cell in itertools.product(*numbered):
        rare = sum(position for position, _ in cell) % every > 0
        cells.append(pytest.param(*(value for _, value in cell), marks=[exhaustive] if rare else []))
    return cells

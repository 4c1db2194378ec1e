"""Stratified samples of test matrices: some cells in every run, all of them under the marker `exhaustive`."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

exhaustive = pytest.mark.exhaustive
Test = TypeVar("Test", bound=Callable[..., None])


def matrix(*, every: int = 1, **axes: Iterable[Any]) -> Callable[[Test], Test]:
    """Try a test with all combinations of values of its parameters; the usual run has one in ``every``."""

    def declared(test: Test) -> Test:
        for name, values in reversed(axes.items()):
            test = pytest.mark.parametrize(name, values)(test)
        return test if every == 1 else pytest.mark.sampled(every)(test)

    return declared


def rare(*values: Any) -> list[Any]:  # noqa: ANN401
    """Return values of a test's parameter that not every run has."""
    return [pytest.param(value, marks=exhaustive) for value in values]


def stratified(*axes: Iterable[Any], every: int, of: int = 1) -> list[Any]:
    """Return the product of the axes, of which every run has the cells whose positions add up to a multiple.

    Of a product too large for any run only the multiples of ``of``, a divisor of ``every``, are cells.

    So each value of an axis is met as often as any other, and with each value of the others where the rest of
    the axes have at least ``every`` values.
    """
    numbered: list[Sequence[tuple[int, Any]]] = [list(enumerate(axis)) for axis in axes]
    cells = []
    for cell in itertools.product(*numbered):
        place = sum(position for position, _ in cell)
        if place % of:
            continue
        rare = place % every > 0
        cells.append(pytest.param(*(value for _, value in cell), marks=[exhaustive] if rare else []))
    return cells

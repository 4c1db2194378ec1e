"""Prices of nested groups by compiled loops, height by height.

Groups of one height are disjoint and share the threads; the groups inside them are done before. Blocks of
groups of a fixed size begin their searches anew, so that all is the same on any number of threads.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.columns import Columns, run_chunks_in_threads
from freshopt.compiled.kept_code import built
from freshopt.compiled.rows.nested_records import BLOCK, NestedGroups
from freshopt.compiled.source_columns import record_of
from freshopt.numerics.arrays import Array, IntArray


def settle_groups(
    columns: Columns, groups: NestedGroups, heights: list[IntArray], typical: float
) -> tuple[Array, float]:
    """Return the groups' own prices, shape (2, G), and the sources evaluated.

    A price is −inf where a bound is never exceeded, inf where lower bounds use it up, and NaN where none was
    found. The lower and upper bounds in `columns` are narrowed in place to the rates at these prices.

    - `columns`: In the order of the tree, with writable `lower` and `upper`.
    - `heights` list of ndarray of int: The groups to settle, those inside others first.
    - `typical`: Logarithm of a likely price.
    """
    loop = built("rows.nested_loops", columns.formula, columns.announced)
    count, record = len(groups.begin), record_of(columns)
    prices, evaluated = np.empty((2, count)), np.zeros(count)
    prices[0], prices[1] = -np.inf, np.inf
    for which in heights:
        largest = int(np.max(groups.end[which] - groups.begin[which], initial=0))

        def part(begin: int, end: int, which: IntArray = which, largest: int = largest) -> None:
            loop(begin, end, which, largest, groups, record, typical, prices, evaluated)

        run_chunks_in_threads(part, -(-len(which) // BLOCK), 1)
    return prices, float(np.sum(evaluated))

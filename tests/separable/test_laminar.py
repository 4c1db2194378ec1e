"""Trees recognised from rows, against every pair of supports."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import HarmonicStaleness
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.nesting import nest
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.nested_truth import Bools, Floats, tree_of


def rows_of(member: Bools, cost: Floats, scale: Floats) -> Rows:
    row, source = np.nonzero(member)
    keys = range(len(member))
    return Rows.gather(
        [
            RowBlock.linear(
                "g", keys, source, row, scale[row] * cost[source], scale * np.arange(1.0, len(member) + 1)
            )
        ],
        member.shape[1],
    )


def laminar(member: Bools) -> bool:
    sets = [frozenset(np.flatnonzero(row)) for row in member]
    return all(not a & b or a <= b or b <= a for a in sets for b in sets)


@pytest.mark.parametrize("seed", range(200))
def test_trees_are_recognised(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    if seed % 2:
        member = tree_of(rng, n, int(rng.integers(1, 10)), 4)
        member = member[rng.permutation(len(member))[: int(rng.integers(1, len(member) + 1))]]
        member = np.concatenate([member, member[:1]])  # the same set twice
    else:
        member = rng.random((int(rng.integers(1, 4)), n)) < 0.4
        member[np.arange(len(member)), rng.integers(n, size=len(member))] = True
    cost, scale = rng.lognormal(size=n), rng.lognormal(size=len(member))
    tree = LaminarTree.from_rows(rows_of(member, cost, scale))
    assert (tree is not None) == laminar(member)
    if tree is None:
        return
    shape = tree.nesting
    assert sorted(shape.order.tolist()) == list(range(n))
    for row, group in enumerate(shape.group):
        inside = set(shape.order[shape.begin[group] : shape.end[group]].tolist())
        assert inside == set(np.flatnonzero(member[row]).tolist())
        same = [k for k in range(len(member)) if np.array_equal(member[k], member[row])]
        assert tree.limit_row[group] in same
        # Costs are those of the largest row around a source; a limit is in their unit.
        unit = tree.scale[row] * tree.cost[member[row]] / (scale[row] * cost[member[row]])
        assert np.allclose(unit, 1.0, rtol=1e-14)
        assert tree.limit[group] * tree.scale[tree.limit_row[group]] == pytest.approx(
            scale[tree.limit_row[group]] * (min(same) + 1.0)
        )
    parents = shape.parent[:-1]
    assert shape.parent[-1] == -1
    assert np.all(parents > np.arange(len(parents)))
    assert np.all(shape.depth[:-1] == shape.depth[parents] + 1)
    smallest = np.array(
        [
            min(
                (g for g in range(len(tree)) if k in shape.order[shape.begin[g] : shape.end[g]]),
                key=lambda g: (shape.end[g] - shape.begin[g], g),
            )
            for k in range(n)
        ]
    )
    assert np.array_equal(shape.leaf, smallest)


def test_rows_that_are_no_tree() -> None:
    member, ones = np.array([[1, 1, 0], [1, 1, 1]], dtype=bool), np.ones(3)
    plain = rows_of(member, ones, np.ones(2))
    assert LaminarTree.from_rows(plain) is not None
    skew = rows_of(member, ones, np.ones(2))
    bent = np.array(skew.coefficient)
    bent[0] = 2.0
    blocks = [RowBlock.linear("g", "ab", skew.source, skew.row.astype(np.int64), bent, skew.limits)]
    assert LaminarTree.from_rows(Rows.gather(blocks, 3)) is None
    bent[0] = -1.0
    blocks = [RowBlock.linear("g", "ab", skew.source, skew.row.astype(np.int64), bent, skew.limits)]
    assert LaminarTree.from_rows(Rows.gather(blocks, 3)) is None
    curve = HarmonicStaleness().kernel(fo.Sources(ones))
    target = RowBlock(
        "t",
        (None,),
        np.arange(3),
        np.zeros(3, dtype=np.int64),
        np.ones(3, dtype=np.int64),
        ones,
        (curve,),
        ones[:1],
        ones[:1],
        0 * ones[:1],
    )
    assert LaminarTree.from_rows(Rows.gather([target], 3)) is not None
    linear = RowBlock.linear("all", [None], np.arange(3), np.zeros(3, dtype=np.int64), ones, ones[:1])
    assert LaminarTree.from_rows(Rows.gather([target, linear], 3)) is None
    assert (
        LaminarTree.from_rows(
            Rows.gather(
                [
                    linear,
                    RowBlock.linear(
                        "none",
                        [None],
                        np.zeros(0, dtype=np.int64),
                        np.zeros(0, dtype=np.int64),
                        np.zeros(0),
                        ones[:1],
                    ),
                ],
                3,
            )
        )
        is None
    )


def test_a_deep_chain() -> None:
    n = 400
    source, row = np.nonzero(np.tri(n, dtype=bool).T)
    tree = nest(source, row, n, n)
    assert tree is not None
    assert np.max(tree.depth) == n - 1

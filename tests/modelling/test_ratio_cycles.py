from __future__ import annotations

import itertools

import numpy as np
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError
from freshopt.modelling.ratio_cycles import closed_cycle
from freshopt.problems import AccumulatedDelay
from freshopt.separable.rows import RowBlock, Rows

Ints = np.typing.NDArray[np.int64]
Floats = np.typing.NDArray[np.float64]


def rows_of(child: Ints, parent: Ints, ratio: Floats, n: int) -> Rows:
    m, every = len(child), np.arange(len(child))
    block = RowBlock.linear(
        "ratio",
        tuple(range(m)),
        np.concatenate((child, parent)),
        np.concatenate((every, every)),
        # Rows may have any scale.
        np.concatenate((np.full(m, 3.0), -3.0 * ratio)),
        np.zeros(m),
    )
    return Rows.gather([block], n)


def least_product(child: Ints, parent: Ints, ratio: Floats, n: int) -> float:
    """Return the least product of ratios around a simple cycle, by trying all; inf without a cycle."""
    length = np.full((n, n), np.inf)
    for i, j, c in zip(child, parent, ratio, strict=True):
        length[i, j] = min(length[i, j], c)
    least = np.inf
    for size in range(2, n + 1):
        for path in itertools.permutations(range(n), size):
            if path[0] == min(path):
                least = min(
                    least, float(np.prod([length[path[k], path[(k + 1) % size]] for k in range(size)]))
                )
    return least


@pytest.mark.parametrize("seed", range(40))
def test_cycles_without_room_are_found_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    child = rng.integers(0, n, int(rng.integers(2, 14)))
    parent = (child + rng.integers(1, n, len(child))) % n
    # Potentials leave cycles of product 1 or more, of which a factor takes some below.
    x = rng.lognormal(0.0, 3.0, n)
    ratio = x[child] / x[parent] * rng.choice([1.0, 1.0, 2.0, 5.0], len(child))
    if seed % 2:
        ratio[rng.integers(0, len(child))] *= 0.8
    found, least = closed_cycle(rows_of(child, parent, ratio, n)), least_product(child, parent, ratio, n)
    if least > 1.0 + 1e-9:
        assert found is None
    elif least > 1.0 - 1e-9:
        assert found is not None
        assert found[1] == 0.0
    else:
        assert found is not None
        around = [
            ratio[(child == a) & (parent == b)].min()
            for a, b in zip(found[0], np.roll(found[0], -1), strict=True)
        ]
        assert np.log(around).sum() == pytest.approx(found[1], rel=1e-9)
        assert found[1] < -1e-9


def test_a_long_ring_is_seen() -> None:
    n = 1000
    every, ratio = np.arange(n), np.exp(np.random.default_rng(1).normal(0.0, 3.0, n))
    ratio[0] /= np.prod(ratio ** (1.0 / n)) ** n
    found = closed_cycle(rows_of(every, np.roll(every, -1), ratio, n))
    assert found is not None
    assert found[1] == 0.0
    assert sorted(found[0]) == list(every)


def test_cycles_of_product_one_are_refused_in_one_line() -> None:
    sources = fo.Sources([1.0, 4.0, 9.0], name=["a", "b", "c"])
    for constraints in (
        [fo.Ratio(of=[1, 0, -1], at_most=[0.5, 2.0, 1.0])],
        [fo.Ratio(of=[1, -1, -1], at_most=0.5), fo.Ratio(of=[-1, 0, -1], at_most=2.0, name="back")],
        [lambda rate: [rate[0] <= 0.5 * rate[1], rate[1] <= 2.0 * rate[0]]],
    ):
        with pytest.raises(
            SourceDataError, match=r"^ratios around the cycle 'a', 'b' multiply to 1, .* fo.Tied"
        ):
            fo.Problem(AccumulatedDelay(), sources, 6.0, constraints=constraints)


def test_a_cycle_with_a_little_room_is_solved() -> None:
    """Of 1 + 1e-6 times round: ρ_1 = 2·ρ_0 but for rounding of the proportions."""
    sources = fo.Sources([1.0, 100.0, 9.0])
    around = fo.Ratio(of=[1, 0, -1], at_most=[0.5 * (1.0 + 1e-6), 2.0, 1.0])
    solution = fo.solve(fo.Problem(AccumulatedDelay(), sources, 6.0, constraints=[around]))
    x, z = np.sqrt((1.0 + 50.0) / 3.0), 3.0
    assert solution.rates == pytest.approx(np.array([x, 2.0 * x, z]) * 6.0 / (3.0 * x + z), rel=1e-5)

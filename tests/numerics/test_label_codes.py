"""Labels get the places that sorting gives them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from freshopt.numerics.label_codes import label_codes

RNG = np.random.default_rng(0)
DENSE = RNG.integers(-40, 40, 500)
LABELS: dict[str, npt.NDArray[Any]] = {
    "dense integers": DENSE,
    "bytes of integers": DENSE.astype(np.int8),
    "far integers": DENSE * 10**15,
    "largest integers": np.array([2**64 - 1, 0, 2**64 - 1], dtype=np.uint64),
    "large and dense": np.array([2**64 - 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64),
    "texts": DENSE.astype(str),
    "objects": DENSE.astype(str).astype(object),
    "numbers": DENSE / 7.0,
    "truths": DENSE > 0,
    "none": np.zeros(0, dtype=np.int64),
}


@pytest.mark.parametrize("name", LABELS)
def test_places_are_those_of_sorting(name: str) -> None:
    labels = LABELS[name]
    known, codes = label_codes(labels)
    expected, inverse = np.unique(labels, return_inverse=True)
    assert known == expected.tolist()
    np.testing.assert_array_equal(codes, inverse)


def test_none_has_no_place() -> None:
    known, codes = label_codes(np.array(["b", None, "a", "b"], dtype=object))
    assert known == ["a", "b"]
    np.testing.assert_array_equal(codes, [1, -1, 0, 1])


def test_mixed_kinds_have_no_order() -> None:
    with pytest.raises(TypeError):
        label_codes(np.array(["a", 1], dtype=object))

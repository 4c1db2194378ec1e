"""The values of partitions come back from pickles and copies, as all others do, and errors with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import freshopt as fo
from freshopt.distributed import DistributedPlan
from tests.contracts.test_copies import WAYS, difference, writable
from tests.ground_truth.partitioned import solved
from tests.ground_truth.strategies import sample


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """A solution with its sources, an error with it, and a plan."""
    folder = tmp_path_factory.mktemp("in")
    found = solved(sample(7, "harmonic", "poisson", "hosts", 8, budget=1.0), folder, 2)
    return [found, fo.CertificateError("It is so. Because.", found), DistributedPlan(Path("out"), {"n": 8})]


def test_values_of_partitions_come_back_equal_and_read_only(values: list[Any]) -> None:
    for value in values:
        assert writable(value, "it") == []
        for way, copied in WAYS.items():
            again = copied(value)
            assert difference(value, again) == "", way
            assert writable(again, "it") == [], way

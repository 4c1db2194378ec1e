"""Sources: what is accepted, what is refused and how, and that nothing is copied or can be changed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.numerics.arrays import as_vector, chunks, exact_sum, total


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        ({"change_rate": [1.0, 0.0]}, ("change_rate out of range for source 1: 0", "> 0", "Correct or drop")),
        ({"change_rate": [1.0, -2.0]}, ("source 1: -2",)),
        ({"change_rate": [np.nan]}, ("change_rate out of range for source 0: nan",)),
        ({"change_rate": [np.inf]}, ("source 0: inf",)),
        ({"change_rate": [1e-101]}, ("source 0: 1e-101", "1e-100..1e+100")),
        ({"change_rate": [1e101]}, ("source 0: 1e+101",)),
        ({"change_rate": 0.0}, ("change_rate out of range for source 0: 0",)),
        (
            {"change_rate": [1.0, 2.0], "importance": [1.0, -1.0]},
            ("importance out of range for source 1: -1",),
        ),
        ({"change_rate": [1.0], "importance": [1e-120]}, ("importance out of range", "It must be 0 or more")),
        ({"change_rate": [1.0], "refresh_cost": [0.0]}, ("refresh_cost out of range for source 0: 0", "> 0")),
        ({"change_rate": [1.0], "min_rate": -1.0}, ("min_rate out of range",)),
        ({"change_rate": [1.0], "min_rate": np.inf}, ("min_rate out of range for source 0: inf",)),
        ({"change_rate": [1.0], "max_rate": np.nan}, ("max_rate out of range for source 0: nan",)),
        (
            {"change_rate": [1.0, 1.0], "min_rate": [0.0, 3.0], "max_rate": 2.0, "name": ["a", "b"]},
            ("min_rate exceeds max_rate for 'b': 3 > 2", "Swap or widen"),
        ),
        ({"change_rate": [1.0, 2.0], "importance": [1.0]}, ("importance has length 1", "change_rate has 2")),
        ({"change_rate": [1.0, 2.0], "signalled": [0, 2]}, ("signalled must be true or false",)),
        ({"change_rate": ["x", "y"]}, ("change_rate must be numbers", "Pass floats")),
        ({"change_rate": []}, ("no sources", "at least one")),
        ({"change_rate": [[1.0, 2.0]]}, ("shape (1, 2)",)),
        ({"change_rate": [1.0, 2.0], "name": ["a", "a"]}, ("name occurs more than once: 'a'", "unique")),
        ({"change_rate": [1.0, 2.0], "name": ["a", "b", "c"]}, ("length",)),
        ({"change_rate": [1.0], "time_unit": "fortnight"}, ("'fortnight' is not known", "week")),
    ],
)
def test_refused_by_name_with_a_remedy(arguments: dict[str, Any], phrases: tuple[str, ...]) -> None:
    with pytest.raises(fo.SourceDataError) as caught:
        fo.Sources(**arguments)
    assert all(phrase in str(caught.value) for phrase in phrases), caught.value
    assert isinstance(caught.value, ValueError)


def test_at_most_five_offenders_are_listed() -> None:
    with pytest.raises(fo.SourceDataError, match=r"source 4: 0 and 12 more. It") as caught:
        fo.Sources(np.zeros(17))
    assert "source 5" not in str(caught.value)


@pytest.mark.parametrize("edge", [1e-100, 1e100])
def test_edges_of_the_accepted_range(edge: float) -> None:
    sources = fo.Sources([edge], importance=[0.0], refresh_cost=[edge], min_rate=0.0, max_rate=[edge])
    assert sources.change_rate[0] == edge


def test_arrays_are_viewed_and_read_only_while_the_callers_stay_writable() -> None:
    mine = np.array([1.0, 2.0])
    sources = fo.Sources(mine)
    assert np.shares_memory(sources.change_rate, mine)
    with pytest.raises(ValueError, match="read-only"):
        sources.change_rate[0] = 5.0
    mine[0] = 3.0
    with pytest.raises(AttributeError):
        sources.time_unit = "week"  # type: ignore[misc]


def test_scalars_take_no_memory_and_are_not_tied_to_the_caller() -> None:
    scalar = np.array(2.0)
    sources = fo.Sources(np.ones(1000), importance=scalar)
    assert sources.importance.strides == (0,)
    scalar[...] = 7.0
    assert np.all(sources.importance == 2.0)
    assert len(sources.importance) == len(sources) == 1000


def test_one_scalar_source() -> None:
    assert len(fo.Sources(2.0)) == 1


def test_labels_are_names_or_positions() -> None:
    assert fo.Sources([1.0, 2.0]).label(1) == "source 1"
    assert fo.Sources([1.0, 2.0], name=["a", "b"]).label(1) == "'b'"


def test_repr_is_one_line_without_arrays() -> None:
    text = repr(fo.Sources(np.linspace(0.5, 2.0, 1000), time_unit="hour"))
    assert text == "Sources(n=1000, change_rate=0.5..2 per hour, importance=1)"


def test_take_selects_every_column() -> None:
    sources = fo.Sources(
        [1.0, 2.0, 3.0],
        importance=[4.0, 5.0, 6.0],
        name=list("abc"),
        host=["x", "y", "x"],
        signalled=[1, 0, 1],
    )
    part = sources.take(np.array([2, 0]))
    assert part.change_rate.tolist() == [3.0, 1.0]
    assert part.importance.tolist() == [6.0, 4.0]
    assert part.name is not None
    assert part.host is not None
    assert part.name.tolist() == ["c", "a"]
    assert part.host.tolist() == ["x", "x"]
    assert part.signalled.tolist() == [True, True]
    assert sources.take(slice(1, 2)).label(0) == "'b'"


@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame])
def test_frames_of_any_library(library: Any) -> None:  # noqa: ANN401
    frame = library(
        {"source": ["a", "b"], "change_rate": [1.0, 2.0], "importance": [3.0, 4.0], "junk": [0, 0]}
    )
    sources = fo.Sources.from_frame(frame, time_unit="week")
    assert sources.label(1) == "'b'"
    assert sources.importance.tolist() == [3.0, 4.0]
    assert sources.time_unit == "week"


def test_to_frame_and_back() -> None:
    sources = fo.Sources(
        [1.0, 2.0],
        importance=[1.0, 0.0],
        name=["a", "b"],
        host=["x", "y"],
        signalled=[True, False],
        max_rate=[1.0, np.inf],
    )
    again = fo.Sources.from_frame(sources.to_frame())
    for key in ("change_rate", "importance", "signalled", "min_rate", "max_rate", "refresh_cost"):
        assert np.array_equal(getattr(again, key), getattr(sources, key)), key
    assert again.label(0) == "'a'"
    assert again.host is not None
    assert again.host.tolist() == ["x", "y"]


def test_frames_that_are_refused() -> None:
    with pytest.raises(fo.SourceDataError, match=r"no column 'change_rate', it has rate. Add it"):
        fo.Sources.from_frame(pl.DataFrame({"rate": [1.0]}))
    with pytest.raises(fo.SourceDataError, match="column 'importance' has 1 empty cell\\."):
        fo.Sources.from_frame(pl.DataFrame({"change_rate": [1.0, 2.0], "importance": [None, 1.0]}))


def test_vectors_are_checked_once_and_chunks_cover_them() -> None:
    with pytest.raises(fo.SourceDataError, match=r"weights has shape \(2,\) but there are 3 sources"):
        as_vector([1.0, 2.0], 3, "weights")
    parts = list(chunks(200_001))
    assert parts[0].start == 0
    assert parts[-1].stop == 200_001
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))


def test_sums_do_not_lose_small_terms() -> None:
    assert exact_sum([1e16, 1.0, -1e16]) == 1.0
    assert exact_sum([np.inf, 1.0]) == np.inf
    values = np.full(200_001, 0.1)
    assert abs(total(values) - 20_000.1) <= 1e-15 * 20_000.1

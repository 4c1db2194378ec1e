"""Changes told by what crawls saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError
from freshopt.estimators import MaximumLikelihood
from freshopt.tools.live_planner import read_planner


@pytest.fixture
def planner(tmp_path: Path) -> fo.Planner:
    found = fo.Planner(tmp_path / "state", bandwidth="2/day")
    found.add_many(["a", "b"])
    return found


def test_another_content_is_a_change(planner: fo.Planner) -> None:
    for time, seen in ((1.0, "x"), (2.0, "x"), (3.0, "y"), (4.0, "x")):
        assert planner.observed("a", time, content=seen)
    assert planner.log().changed.tolist() == [False, False, True, True]


def test_a_repeated_report_changes_nothing(planner: fo.Planner) -> None:
    planner.observed("a", 1.0, content="x")
    planner.observed("a", 2.0, content="y")
    assert not planner.observed("a", 2.0, content="y")
    assert planner.log().changed.tolist() == [False, True]
    planner.observed("a", 3.0, content="y")
    assert planner.log().changed.tolist() == [False, True, False]


def test_another_process_goes_on_with_what_was_seen(planner: fo.Planner, tmp_path: Path) -> None:
    planner.observed("a", 1.0, content="x")
    planner.close()
    with fo.Planner(tmp_path / "state") as again:
        visits = {visit.source: visit for visit in again.due(100.0, None)}
        assert visits["a"].content == "x"
        again.observed("a", 101.0, content="z")
        assert again.log().changed.tolist() == [False, True]


def test_what_cannot_be_compared_is_refused_and_nothing_kept(planner: fo.Planner) -> None:
    planner.observed("a", 4.0, content="x")
    with pytest.raises(
        SourceDataError, match=r"the crawl of 'a' at 2.5 came before one that is recorded, at 4"
    ):
        planner.observed("a", 2.5, content="y")
    with pytest.raises(SourceDataError, match=r"there is no source 'q'"):
        planner.observed("q", 5.0, content="y")
    with pytest.raises(SourceDataError, match=r"changed and content of 'a' are both given"):
        planner.observed("a", 5.0, True, content="y")
    with pytest.raises(SourceDataError, match=r"content of 'a' is ''"):
        planner.observed("a", 5.0, content="")
    with pytest.raises(SourceDataError, match=r"changed of 'a' is None"):
        planner.observed("a", 5.0)
    planner.observed("a", 5.0, content="x")
    assert planner.log().changed.tolist() == [False, False]


def test_a_first_content_after_other_reports_is_no_evidence(planner: fo.Planner, tmp_path: Path) -> None:
    """Nobody knows whether it is what the crawl before saw: the gap between them is not unchanged."""
    planner.observed_many(["a"] * 3, [0.0, 1.0, 2.0], [False, True, True])
    assert planner.observed("a", 30.0, content="x")
    assert not planner.observed("a", 30.0, content="x")
    planner.observed("a", 31.0, content="x")
    planner.observed("a", 33.0, content="y")
    assert planner.status().changes_found == 3
    expected = [float("nan"), 1.0, 1.0, float("nan"), 1.0, 2.0]
    for log in (planner.log(), read_planner(tmp_path / "state")[0]):
        np.testing.assert_array_equal(log.interval, expected)
        assert log.changed.tolist() == [False, True, True, False, False, True]
        assert MaximumLikelihood().fit(log).change_rate_[0] > 0.5
    with pytest.raises(SourceDataError, match="not known to be changed or not"):
        planner.observed("a", 30.0, True)


def test_a_change_reported_without_content_forgets_what_was_seen(planner: fo.Planner) -> None:
    planner.observed("a", 1.0, content="x")
    planner.observed("a", 2.0, False)  # a 304, say: what was seen is still there
    planner.observed("a", 3.0, content="y")
    planner.observed("a", 4.0, True)
    planner.observed("a", 5.0, content="z")
    log = planner.log()
    assert log.changed.tolist() == [False, False, True, True, False]
    assert np.isnan(log.interval).tolist() == [True, False, False, False, True]

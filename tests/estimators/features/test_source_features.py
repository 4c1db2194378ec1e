"""Tables of features: what is read, what is refused, and the design that they make."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from freshopt.errors import SourceDataError
from freshopt.estimators.features.feature_priors import Effects
from freshopt.estimators.features.source_features import SourceFeatures, with_new_sources
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.refusals import refused

LOG = CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 3.0], [0, 1, 0, 0])


def table(**columns: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"source": ["a", "b", "c"], **columns})


def test_numbers_and_words_are_read_from_files_and_frames(tmp_path: Path) -> None:
    path = tmp_path / "features.csv"
    path.write_text("url,size,kind,code\na,1e3,html,x1\nb,20,pdf,7\nc,3,html,7\n")
    found = SourceFeatures.of(LOG.names, path)
    assert found.columns["size"].tolist() == [1000.0, 20.0, 3.0]
    assert found.columns["kind"].tolist() == ["html", "pdf", "html"]
    assert found.columns["code"].tolist() == ["x1", "7", "7"]
    assert found.new.tolist() == ["c"]
    frame = table(size=[1000, 20, 3], kind=["html", "pdf", "html"], flag=[True, False, True])
    own = SourceFeatures.of(LOG.names, frame.to_pandas())
    assert own.columns["size"].tolist() == [1000.0, 20.0, 3.0]
    assert own.columns["flag"].tolist() == ["true", "false", "true"]
    assert SourceFeatures.of(LOG.names, own) is own


def test_urls_tell_host_folder_depth_and_ending() -> None:
    names = ["https://x.org/news/a.HTML?q=1.pdf", "https://y.org/news/b/c.pdf", "www.z.org/d", "plain"]
    log = CrawlLog(names * 2, [0.0] * 4 + [1.0] * 4, [0] * 8)
    found = SourceFeatures.of(log.names, "url")
    at = found.rows_of(np.array(names))
    told = {name: column[at].tolist() for name, column in found.columns.items()}
    assert told == {
        "host": ["x.org", "y.org", "www.z.org", ""],
        "folder": ["news", "news", "", ""],
        "depth": [1.0, 2.0, 0.0, 0.0],
        "ending": ["html", "pdf", "", ""],
    }


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"size": [1.0, 1.0, 1.0]}, "column 'size' of the table of features is the same for all sources"),
        (
            {"size": [1.0, np.nan, 2.0]},
            "column 'size' of the table of features has not a finite number for 'b'",
        ),
        ({"size": [1.0, np.inf, 2.0]}, "has not a finite number for 'b'"),
        ({"size": [1, None, 2]}, "has not a finite number for 'b'"),
        ({"kind": ["x", "", "y"]}, "column 'kind' of the table of features has not a word for 'b'"),
        (
            {"title": ["x", "y", "z"]},
            "column 'title' of the table of features has a word of its own for each",
        ),
        ({"tags": [["x"], ["y"], []]}, "column 'tags' of the table of features is of List"),
        ({}, "the table of features tells no source from another"),
    ],
)
def test_columns_that_tell_nothing_are_refused(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceDataError) as error:
        SourceFeatures.of(LOG.names, table(**columns))
    assert words in str(error.value)


def test_sources_without_a_row_or_of_another_kind_are_refused() -> None:
    with pytest.raises(SourceDataError, match="has no row of 'b', which the log has"):
        SourceFeatures.of(LOG.names, pl.DataFrame({"source": ["a", "c"], "size": [1.0, 2.0]}))
    numbered = CrawlLog([1, 1, 2, 2], [0.0, 1.0] * 2, [0] * 4)
    frame = pl.DataFrame({"source": ["1", "2", "c"], "size": [1.0, 2.0, 3.0]})
    refused(r"integers in the log and text in .*, such as 'c'", SourceFeatures.of, numbered.names, frame)
    twice = pl.DataFrame({"source": ["a", "a", "b"], "size": [1.0, 2.0, 3.0]})
    refused("names 'a' more than once", SourceFeatures.of, LOG.names, twice)


def test_a_design_is_bounded_and_knows_what_it_has_not_seen() -> None:
    size, kind = [1.0, 2.0, 3.0, 4.0, 1e9, -1e9], ["x", "x", "y", "y", "z", "x"]
    log = CrawlLog(np.arange(6), np.zeros(6), np.zeros(6))
    found = SourceFeatures.of(log.names, pl.DataFrame({"source": np.arange(6), "size": size, "kind": kind}))
    learners = np.arange(4)
    design = found.design(learners)
    matrix = design.matrix(found, np.arange(6)).toarray()
    parts = design.parts()
    assert [*parts] == ["size", "kind"]
    assert matrix.shape[1] == parts["kind"].stop
    hats = matrix[:, parts["size"]][:, 1:]
    np.testing.assert_allclose(hats.sum(axis=1), 1.0)
    np.testing.assert_array_equal(matrix[4:, 0], [1.0, -1.0])  # no further than the outermost knots
    assert matrix[:, parts["kind"]].tolist() == [[1, 0], [1, 0], [0, 1], [0, 1], [0, 0], [1, 0]]
    effects = np.zeros(matrix.shape[1])
    effects[parts["kind"]] = [1.0, -1.0]
    learnt = Effects(design, 0.5, effects, {"kind": 1.0}, GammaPrior(2.0, 4.0))
    level, variance = learnt.levels(found)
    assert level.tolist() == [1.5, 1.5, -0.5, -0.5, 0.5, 1.5]
    assert variance.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    # Of a gamma times a lognormal variable, drawn.
    rng = np.random.default_rng(2)
    drawn = rng.gamma(2.0, 0.25, 10**6) * np.exp(0.5 + rng.standard_normal(10**6))
    mean, shape, _ = learnt.priors(level, variance)
    assert mean[4] == pytest.approx(np.mean(drawn), rel=0.01)
    assert shape[4] == pytest.approx(np.mean(drawn) ** 2 / np.var(drawn), rel=0.05)


def test_new_sources_are_fetched_first_when_the_log_ends() -> None:
    dated = CrawlLog(["a", "a", "b"], ["2026-01-01", "2026-01-05", "2026-01-03"], [0, 1, 0])
    longer = with_new_sources(dated, np.array(["c", "aa"]))
    assert longer.names.tolist() == ["a", "aa", "b", "c"]
    assert longer.origin == dated.origin
    assert longer.age.tolist() == [0.0, 0.0, 2.0, 0.0]
    assert longer.known_intervals.tolist() == [1, 0, 0, 0]
    assert with_new_sources(dated, np.array([], dtype=str)) is dated
    untimed = CrawlLog.from_columns({"source": ["a", "a"], "elapsed": [1.0, 2.0], "changed": [0, 1]})
    refused("the log has no times", with_new_sources, untimed, np.array(["c"]))

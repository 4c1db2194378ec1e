"""`SourceFeatures`: tables of features, and their design matrices.

A table of features has a row for each source, columns of numbers and columns of words. What a URL tells is
added where it tells sources apart: host, first folder, depth and ending of the path. Sources that the log has
not are new: `with_new_sources` adds them as if each were fetched for the first time when the log ends.

A number enters the design by its place among the quantiles of its column, and by a hat about each of them: a
column and its logarithm tell the same, and no value, however large, leads beyond the outermost quantile. A
word has an effect of its own where at least two sources have it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars, sparse
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.logs.file_kinds import Frame
from freshopt.logs.schema import Schema, Table
from freshopt.logs.source_index import joined_names, known_hosts
from freshopt.numerics.arrays import Array, IntArray, are_text
from freshopt.numerics.frozen_arrays import frozen_value

FEATURES = Schema("A table of features", ("source",), rows="Add a row a source.")
# Says that there are no other features than those of URLs.
FROM_URL = "url"
# Columns of a table; words of a column that have an effect of their own, those of most sources.
MOST_COLUMNS, MOST_WORDS = 100, 1000
# Shares of the sources below the knots of a column of numbers.
KNOTS = (0.02, 0.25, 0.5, 0.75, 0.98)
# The path of a URL, or of what looks like one, and the ending of its last part.
_PATH = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?/?([^?#]*)"
_ENDING = r"\.([A-Za-z0-9]{1,8})$"


@frozen_value(repr=False)
class SourceFeatures:
    """Features of sources, checked.

    - `names` (n,)
    - `columns` dict of str to ndarray (n,): Numbers, or words.
    - `new`: Names of the sources that are not in the log.
    """

    names: npt.NDArray[np.str_]
    columns: Mapping[str, npt.NDArray[Any]]
    new: npt.NDArray[Any]

    @classmethod
    def of(
        cls,
        own: npt.NDArray[Any],
        given: Any,  # noqa: ANN401 - a path, a dataframe or "url"
        learnt: SourceFeatures | None = None,
    ) -> SourceFeatures:
        """Read the features of sources of a log, and of new ones.

        Columns are those of features that were `learnt` from others, if given.
        """
        if isinstance(given, cls):
            return given
        columns: dict[str, npt.NDArray[Any]] = {}
        names, where = own, "url as features"
        path: Path = (
            Path(given) if isinstance(given, str | os.PathLike) else Frame.of(given, "the table of features")
        )
        # In a file of settings it has a folder before it.
        if path.name != FROM_URL or path.exists():
            table, where = Table.read(path, FEATURES).frame, str(path)
            names, columns = table["source"].to_numpy(), _columns(table, where, learnt)
        text, known = names.astype(np.str_), own.astype(np.str_)
        missing = np.setdiff1d(known, text).tolist()
        if missing:
            few = list_offenders(map(repr, missing))
            raise SourceDataError(f"{where} has no row of {few}, which the log has. Add a row for each.")
        new = names[~np.isin(text, known)]
        if len(new) == len(text) - len(known) > 0 and are_text(own) != are_text(names):
            kinds = ["integers", "text"][:: -1 if are_text(own) else 1]
            raise SourceDataError(
                f"sources are {kinds[0]} in the log and {kinds[1]} in {where}, such as {new[0]!r}. Write "
                "them alike in both."
            )
        told = {name: column for name, column in _of_urls(text).items() if name not in columns}
        if learnt is not None:
            return cls(text, _alike(learnt, columns | told, where), new)
        columns |= {name: column for name, column in told.items() if len(np.unique(column)) > 1}
        if not columns:
            raise SourceDataError(
                f"{where} tells no source from another: names are no URLs that differ in host, folder, depth "
                "or ending. Give a table with a row a source and columns besides source."
            )
        return cls(text, columns, new)

    def __repr__(self) -> str:
        return f"SourceFeatures({len(self.names)} sources, {len(self.new)} new: {', '.join(self.columns)})"

    def rows_of(self, names: npt.NDArray[Any]) -> IntArray:
        """Return the positions of sources."""
        place = {name: k for k, name in enumerate(self.names.tolist())}
        text = names.astype(np.str_).tolist()
        missing = [repr(name) for name in text if name not in place]
        if missing:
            raise SourceDataError(f"there are no features of {list_offenders(missing)}. Add a row for each.")
        return np.array([place[name] for name in text], dtype=np.int64)

    def design(self, rows: IntArray) -> Design:
        """Return the design that is learnt from some sources."""
        knots, words = {}, {}
        for name, column in self.columns.items():
            own = column[rows]
            if column.dtype.kind == "f":
                at = np.unique(np.quantile(own, KNOTS))
                knots[name] = at if len(at) > 1 else np.unique([np.min(own), np.max(own)])
            else:
                kinds, many = np.unique(own, return_counts=True)
                first = np.argsort(-many, kind="stable")[: min(MOST_WORDS, np.count_nonzero(many > 1))]
                words[name] = np.sort(kinds[first])
        return Design({name: at for name, at in knots.items() if len(at) > 1}, words)


@frozen_value(repr=False)
class Design:
    """Knots of the columns of numbers, and words with effects."""

    knots: Mapping[str, Array]
    words: Mapping[str, npt.NDArray[Any]]

    def matrix(self, table: SourceFeatures, rows: IntArray) -> sparse.csc_array:
        """Return the design matrix of some sources of a table."""
        parts = [sparse.csc_array((len(rows), 0))]
        for name, knots in self.knots.items():
            last = len(knots) - 1
            place = np.interp(table.columns[name][rows], knots, np.arange(last + 1.0))
            hats = np.maximum(1.0 - np.abs(place[:, None] - np.arange(last + 1.0)), 0.0)
            parts.append(
                sparse.csc_array(
                    np.column_stack([2.0 * place / last - 1.0, hats if last > 1 else hats[:, :0]])
                )
            )
        for name, words in self.words.items():
            code = self.codes(name, table.columns[name][rows])
            there = np.flatnonzero(code >= 0)
            cells = np.ones(len(there)), (there, code[there])
            parts.append(sparse.csc_array(cells, shape=(len(rows), len(words))))
        return sparse.csc_array(sparse.hstack(parts, format="csc"))

    def parts(self) -> dict[str, slice]:
        """Return where each column's part of the matrix is."""
        widths = {name: len(knots) + 1 if len(knots) > 2 else 1 for name, knots in self.knots.items()}
        widths |= {name: len(words) for name, words in self.words.items()}
        ends = np.cumsum([0, *widths.values()]).tolist()
        return {name: slice(*each) for name, each in zip(widths, pairwise(ends), strict=True)}

    def codes(self, name: str, own: npt.NDArray[Any]) -> IntArray:
        """Return the positions of words of a column, -1 for others."""
        words = self.words[name]
        if not len(words):
            return np.full(len(own), -1)
        code = np.minimum(np.searchsorted(words, own), len(words) - 1)
        return np.where(words[code] == own, code, -1)


def with_new_sources(log: CrawlLog, new: npt.NDArray[Any]) -> CrawlLog:
    """Return a log with sources whose first fetch is at its end."""
    if not len(new):
        return log
    if not log.timed:
        raise SourceDataError(
            f"the log has no times, and so no end at which {list_offenders(map(repr, new.tolist()))} could "
            "begin. Give it a column time, or leave new sources out of the features."
        )
    own = np.arange(len(new))
    every, code = joined_names([log.names, np.sort(new)], [log.source_index, own])
    blank = np.full(len(new), np.nan)
    columns = {
        "source": code,
        "time": np.append(log.time, np.full(len(new), log.end)),
        "elapsed": np.append(log.interval, blank),
        "changed": np.append(log.changed.astype(np.float64), blank),
    }
    columns |= {key: np.append(told, blank) for key in OPTIONAL if (told := getattr(log, key)) is not None}
    longer = derived_log(columns, every, log.clock)
    others = log.other_fetches
    kept = {"library": log.library, "warnings": log.warnings}
    for key, value in {**kept, "other_fetches": others and others.among(log.names, every)}.items():
        object.__setattr__(longer, key, value)
    return longer


def _alike(
    learnt: SourceFeatures, columns: Mapping[str, npt.NDArray[Any]], where: str
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns that others taught, of the same kinds."""
    for name, column in learnt.columns.items():
        if name not in columns or columns[name].dtype.kind != column.dtype.kind:
            kind = "numbers" if column.dtype.kind == "f" else "words"
            has = "has no column" if name not in columns else f"has not {kind} in column"
            raise SourceDataError(f"{where} {has} {name!r}, which other tables of features have. Write it.")
    return {name: columns[name] for name in learnt.columns}


def _columns(
    table: polars.DataFrame, where: str, learnt: SourceFeatures | None
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a table of features, checked."""
    found: dict[str, npt.NDArray[Any]] = {}
    names = table["source"].cast(polars.String).to_list()
    if len(table.columns) > MOST_COLUMNS:
        raise SourceDataError(
            f"{where} has {len(table.columns)} columns. Keep at most {MOST_COLUMNS} of them."
        )
    for column in table.iter_columns():
        name, kind = column.name, column.dtype
        if name == "source" or (kind == polars.String and column.to_list() == names):
            continue
        if learnt is not None and name not in learnt.columns:
            continue
        if kind.is_nested() or kind.is_temporal() or kind in (polars.Binary, polars.Object):
            raise SourceDataError(
                f"column {name!r} of {where} is of {kind}. Give numbers, such as an age in days, or words."
            )
        if kind == polars.String:
            number = column.str.strip_chars().cast(polars.Float64, strict=False)
            told = column.is_not_null() & (column != "")
            column = (
                number if told.any() and number.is_null().sum() == (~told).sum() else column.replace("", None)
            )
        numeric = column.dtype.is_numeric()
        values = column.cast(polars.Float64 if numeric else polars.String)
        wrong = (~values.is_finite().fill_null(value=False) if numeric else values.is_null()).arg_true()
        if len(wrong):
            which = list_offenders(repr(names[k]) for k in wrong.to_list())
            need = "a finite number" if numeric else "a word"
            raise SourceDataError(
                f"column {name!r} of {where} has not {need} for {which}. Fill these in, or drop the column."
            )
        many = values.n_unique()
        if learnt is None and (many == 1 or (many == len(values) > 2 and not numeric)):
            alike = "is the same for all sources" if many == 1 else "has a word of its own for each source"
            raise SourceDataError(f"column {name!r} of {where} {alike}, which tells nothing. Drop it.")
        found[name] = values.to_numpy() if numeric else values.to_numpy().astype(np.str_)
    return found


def _of_urls(names: npt.NDArray[np.str_]) -> dict[str, npt.NDArray[Any]]:
    """Return host, folder, depth and ending of names like URLs."""
    path = polars.Series(names.tolist(), dtype=polars.String).str.extract(_PATH).fill_null("")
    hosts = known_hosts(names).astype(np.str_)
    bare = path.str.strip_prefix("/")
    # Of names like www.example.org/a the first part is the host.
    inside = polars.select(
        polars.when(polars.Series((hosts != "") & (np.char.find(names, "//") < 0)))
        .then(bare.str.extract("/(.*)$").fill_null(""))
        .otherwise(bare)
    ).to_series()
    return {
        "host": hosts,
        "folder": inside.str.extract("^([^/]*)/").fill_null("").to_numpy().astype(np.str_),
        "depth": inside.str.count_matches("/", literal=True).cast(polars.Float64).to_numpy(),
        "ending": inside.str.extract(_ENDING).fill_null("").str.to_lowercase().to_numpy().astype(np.str_),
    }

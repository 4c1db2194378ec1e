"""Predictions that were set down before a run, and whether they held."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.harness import Record, Row


class Statement(NamedTuple):
    """A prediction: of which rows' number, in words, and the band that it allows."""

    words: str
    part: str
    number: str
    rows: Mapping[str, tuple[Any, ...]]
    low: float
    high: float


def judged(statements: Iterable[Statement], record: Record) -> Iterator[Row]:
    """Yield each statement with the least and the largest number of its rows, and whether it held."""
    for one in statements:
        found = [
            row[one.number]
            for row in record[one.part]
            if all(row[key] in allowed for key, allowed in one.rows.items())
        ]
        low, high = min(found), max(found)
        yield {
            "words": one.words,
            "band": f"{one.low:g} to {one.high:g}",
            "rows": len(found),
            "least": low,
            "largest": high,
            "held": bool(low >= one.low and high <= one.high),
        }

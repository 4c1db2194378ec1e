"""Bounds of intervals by tag, written as times: ``news=10min..6h``.

A source with several tags keeps to the bounds of all. ``*`` is every source.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from freshopt.errors import SourceDataError, list_offenders, suggestion
from freshopt.units import duration_of

EVERY = "*"


class Bounds(NamedTuple):
    """Shortest and longest interval, in seconds."""

    least: float = 0.0
    most: float = math.inf


TagBounds: TypeAlias = Mapping[str, Bounds]


def read_tag_bounds(given: Iterable[str], what: str) -> TagBounds:
    """Return the bounds of tags, as options tell them.

    Examples
    --------
    >>> read_tag_bounds(["news=10min..6h", "*=..7d"], "--tag-interval")
    {'news': Bounds(least=600.0, most=21600.0), '*': Bounds(least=0.0, most=604800.0)}
    """
    found: dict[str, Bounds] = {}
    for text in given:
        tag, equals, times = text.rpartition("=")
        least, dots, most = (part.strip() for part in times.partition(".."))
        tag = tag.strip()
        if not (equals and tag and dots and (least or most)):
            raise SourceDataError(f"{what} {text!r} has no TAG=TIME..TIME. Write it such as news=10min..6h.")
        if tag in found:
            raise SourceDataError(f"{what} has {tag!r} twice. Leave one of them out.")
        bounds = Bounds(
            duration_of(f"{what} {tag!r}", least, "second") if least else 0.0,
            duration_of(f"{what} {tag!r}", most, "second") if most else math.inf,
        )
        if bounds.least > bounds.most:
            raise SourceDataError(f"{what} {text!r}: {least} is longer than {most}. Swap them.")
        found[tag] = bounds
    return found


def require_tags(bounds: TagBounds, known: Collection[str], what: str) -> None:
    """Raise if bounds are of a tag that no source has."""
    for tag in bounds:
        if tag != EVERY and tag not in known:
            few = list_offenders(map(repr, sorted(known))) or "none"
            raise SourceDataError(
                f"{what}: no source has the tag {tag!r}.{suggestion(tag, known)} There are {few}. Correct it."
            )


def bounds_of(source: str, tags: Iterable[str], bounds: TagBounds, around: Bounds, what: str) -> Bounds:
    """Return a source's bounds, by its tags and those around all."""
    own = [around, *(bounds[tag] for tag in (EVERY, *tags) if tag in bounds)]
    found = Bounds(max(each.least for each in own), min(each.most for each in own))
    if found.least > found.most:
        raise SourceDataError(
            f"{source!r}, with the tags {list_offenders(map(repr, tags))}, has no interval: {what} leave "
            f"none between {found.least:g} s and {found.most:g} s. Widen one of them."
        )
    return found

"""Columns of names: URLs against the standard library's, folded lines letter by letter, files in parts."""

from __future__ import annotations

import hashlib
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import polars
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools import (
    ChangeDetection,
    ExternalSecrets,
    Nutch,
    StormCrawler,
    icalendar,
    text_lines,
    write_icalendar,
)
from freshopt.tools.text_lines import hosts_of, urls_of
from freshopt.tools.whole_intervals import IntervalFormat

PIECES = (
    *("http", "HTTPS", "ftp", "://", ":", "//", "/", "?", "#", "@", "[", "]", "[::1]", "%", "%41", "\\"),
    *("'", '"', "a", "B", "ex.org", "-", "_", "~", ".", ":80", ":99999", ":0", ":x", "ü", "名", "\u0378"),
    *("\u00ad", "\u200b", " ", "\t", "\n", "\x00", "\x7f", "\u2028", "\ud800", "😀", "{", "}", "{{", "&"),
    *("=", "\u0661"),
)


def is_url(name: str) -> bool:
    """Return whether a name is a URL to fetch, by the standard library alone."""
    try:
        parts = urlsplit(name)
        _ = parts.port
    except ValueError:
        return False
    plain = all(letter.isprintable() and not letter.isspace() for letter in name)
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


@pytest.mark.exhaustive
def test_urls_are_those_of_the_standard_library() -> None:
    draw = random.Random(1)
    names = ["".join(draw.choices(PIECES, k=draw.randint(0, 4))) for _ in range(2000)]
    names += ["https://" + "".join(draw.choices(PIECES, k=draw.randint(0, 6))) for _ in range(4000)]
    right = [name for name in names if is_url(name)]
    wrong = [name for name in names if not is_url(name)]
    assert min(len(right), len(wrong)) > 500
    assert hosts_of(urls_of(right, "a tool")).to_list() == [urlsplit(name).hostname for name in right]
    for name in wrong:
        with pytest.raises(SourceDataError, match="is no URL"):
            urls_of([name], "a tool")


@pytest.mark.exhaustive
def test_plain_urls_have_no_letter_that_cannot_be_printed() -> None:
    letters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    plain = polars.Series([f"https://a.org/{letter}" for letter in letters]).str.contains(
        text_lines._PLAIN_URL
    )
    taken = [letter for letter, yes in zip(letters, plain.to_list(), strict=True) if yes]
    assert len(taken) > 20_000
    assert all(letter.isprintable() and not letter.isspace() for letter in taken)


def folded(line: str) -> bytes:
    """Fold a content line letter by letter."""
    pieces = [b""]
    for letter in line:
        if len(pieces[-1]) + len(letter.encode()) > 75:
            pieces.append(b" ")
        pieces[-1] += letter.encode()
    return b"".join(piece + b"\r\n" for piece in pieces)


def test_lines_are_folded_between_letters() -> None:
    draw = random.Random(2)
    lines = ["".join(draw.choices("aü名😀", k=draw.randint(1, 300))) for _ in range(300)]
    lines += ["x" * many for many in range(60, 240)]
    found = polars.Series("line", lines).to_frame().select(icalendar._folded(polars.col("line"))).to_series()
    assert [line.encode() for line in found.to_list()] == [folded(line) for line in lines]


@pytest.mark.parametrize("target", [Nutch(), StormCrawler(), ChangeDetection(), ExternalSecrets()], ids=repr)
def test_files_in_parts_are_those_in_one(
    target: IntervalFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "" if isinstance(target, ExternalSecrets) else "https://a.org/"
    names = np.array([f"{prefix}{k}" for k in range(10)])
    table = RateTable(np.where(np.arange(10) % 4 == 1, 0.0, 0.3 + np.arange(10)), names, "day", None, None)
    found = []
    for together in (1, 3, 10, 1000):
        monkeypatch.setattr(text_lines, "TOGETHER", together)
        path = tmp_path / str(together)
        if target.files:
            path.mkdir()
        target.write(table, path)
        found.append([(path / name).read_bytes() for name in target.files] or [path.read_bytes()])
    assert all(one == found[0] for one in found)


def test_events_bear_the_digest_of_their_source(tmp_path: Path) -> None:
    """Also where other sources have no events; by the standard library, name by name."""
    rates = {"a": 2.0, "never": 0.0, "ü/漢": 1.0, "x" * 200: 3.0}
    write_icalendar(fo.schedule(rates, 2.0), datetime(2026, 1, 1, tzinfo=UTC), tmp_path / "some.ics")
    text = (tmp_path / "some.ics").read_text(encoding="utf-8")
    marks = {line[4:20] for line in text.splitlines() if line.startswith("UID:")}
    assert marks == {hashlib.sha256(name.encode()).hexdigest()[:16] for name in rates if name != "never"}


def test_calendars_in_parts_are_those_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    plan = fo.Schedule(random.integers(0, 5, 40), np.sort(random.random(40)), 1.0, np.ones(5), list("abcde"))
    found = []
    for together in (1, 7, 40, 1000):
        monkeypatch.setattr(icalendar, "TOGETHER", together)
        path = tmp_path / str(together)
        assert write_icalendar(plan, datetime(2026, 1, 1, tzinfo=UTC), path) == 40
        found.append(path.read_bytes())
    assert all(one == found[0] for one in found)

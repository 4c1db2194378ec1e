"""Columns of names: URLs against the standard library's, folded lines letter by letter, files in parts."""

from __future__ import annotations

import random
import sys
from urllib.parse import urlsplit

import polars
import pytest

from freshopt.errors import SourceDataError
from freshopt.tools import (
    text_lines,
)
from freshopt.tools.text_lines import hosts_of, urls_of

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

"""Damage to files: bytes, cells, encodings, line ends, names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

NONSENSE = (
    "", " ", "nan", "-inf", "inf", "1e999", "-1", "0", "1e-320", "1e300", "99999999999999999999", "\x00",
    "\ufeff", "é", '"', "'", ",", ";", "\n", "\r", "\t", "true", "null", "None", "[]", "{}", "2024-02-30",
    "0000-01-01", "1970-01-01", "9999-12-31T23:59:59.999999999+00:00", "9" * 5000, "x" * 20_000, "[" * 3000,
    "=1+1", "../..", "\x1b[31mred", "<script>alert(1)</script>", "a\u202eb", "😀", "%s%n{}", "$(id)", "-rf",
    "page/1", "h1", "1_000", "0x10", "１", "1,5", "1.7976931348623157e308", "5e-324", "-0.0", "1e100",
    "2262-04-12", "1677-01-01", "12:00", "1e18", "1711756800000000000",
)  # fmt: skip
NAMES = (
    "a b{}", "-rf{}", "ü{}", "a'b\"c{}", "a\nb{}", "*?[a]{}", "%s{{}}{}", "😀{}", "x" * 200 + "{}",
    "\x1b[31m{}", "~{}", "a;b|c&d{}", "$HOME{}", "{}", "a,b{}",
)  # fmt: skip
Rng = np.random.Generator


def bytes_of(rng: Rng, whole: bytes, tail: int) -> bytes:
    """Return bytes with one to four places damaged; half of them among the last `tail`, if any."""
    content = bytearray(whole)
    for _ in range(int(rng.integers(1, 5))):
        if not content:
            break
        begin = max(len(content) - tail, 0) if tail and rng.random() < 0.5 else 0
        at, end = sorted(int(x) for x in rng.integers(begin, len(content) + 1, 2))
        kind = int(rng.integers(7))
        if kind <= 1:
            content[min(at, len(content) - 1)] = int(rng.integers(256))
        elif kind == 2:
            del content[at:]
        elif kind == 3:
            del content[at:end]
        elif kind == 4:
            content[at:at] = content[at : min(end, at + 2000)]
        elif kind == 5:
            content[at:at] = pick(rng).encode()
        else:
            content[at : at + 8] = bytes(min(8, len(content) - at))
    return bytes(content)


def pick(rng: Rng) -> str:
    """Return nonsense."""
    return NONSENSE[int(rng.integers(len(NONSENSE)))]


def cells_of(rng: Rng, text: str) -> str:
    """Return a table with cells or whole columns replaced, moved or left out, or rows repeated."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(int(rng.integers(1, 4))):
        row = rows[int(rng.integers(len(rows)))]
        if not row:
            continue
        k, kind = int(rng.integers(len(row))), int(rng.integers(8))
        if kind <= 3:
            row[k] = pick(rng)
        elif kind == 4:
            del row[k]
        elif kind == 5:
            row[k] = row[int(rng.integers(len(row)))]
        elif kind == 6:
            rows += [list(each) for each in rows[1 : 1 + int(rng.integers(1, 9))]]
        else:
            value = pick(rng)
            for each in rows[1:]:
                each[k:] = [value, *each[k + 1 :]]
    return "\n".join(",".join(row) for row in rows)


def values_of(rng: Rng, document: Any) -> Any:
    """Return JSON with a value replaced by another of any type, or left out."""
    made = json.loads(json.dumps(document))
    node, parent, key = made, None, None
    while isinstance(node, dict | list) and len(node) and (parent is None or rng.random() < 0.75):
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        parent, key = node, keys[int(rng.integers(len(keys)))]
        node = node[key]
    others = (None, True, -1, 0, 1e308, 10**30, pick(rng), [], {}, [[1]], {"a": None}, float("nan"))
    if parent is None:
        return others[int(rng.integers(len(others)))]
    if rng.random() < 0.25:
        del parent[key]
    else:
        parent[key] = others[int(rng.integers(len(others)))]
    return made


TEXT: tuple[Callable[[str], bytes], ...] = (
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: text.replace("\n", "\r").encode(),
    lambda text: b"\xef\xbb\xbf" + text.encode(),
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.replace("a", "é").encode("latin-1"),
    lambda text: text.encode() + b"\x00",
    lambda text: text.encode() + b"\n\n\n",
    lambda text: text.rstrip("\n").encode(),
    lambda text: ("\n" + text).encode(),
    lambda text: text.replace(",", ";").encode(),
    lambda text: text.replace(",", ", ").encode(),
    lambda text: text.replace(",", "\t").encode(),
    lambda text: text.upper().encode(),
    lambda text: text.partition("\n")[0].encode(),
    lambda text: text.encode() * 40,
    lambda _: b"",
)


def damaged(rng: Rng, name: str, whole: bytes) -> bytes:
    """Return a file's content, damaged in a way that suits its format, a fifth of them in another way too."""
    if name.endswith((".parquet", ".zip", ".gz")):
        return bytes_of(rng, whole, 400)
    text, kind = whole.decode(), rng.random()
    if kind < 0.3:
        return bytes_of(rng, whole, 0)
    if kind < 0.45:
        content = TEXT[int(rng.integers(len(TEXT)))](text)
    elif name.endswith(".json"):
        document = json.loads(text)
        for _ in range(int(rng.integers(1, 4))):
            document = values_of(rng, document)
        content = json.dumps(document).encode()
    else:
        content = cells_of(rng, text).encode()
    return bytes_of(rng, content, 0) if rng.random() < 0.2 else content

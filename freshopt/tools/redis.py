r"""Redis: an ``EXPIRE`` line for each key, for ``redis-cli``.

``redis-cli < FILE`` sets how long each key lives. Redis deletes a key that has expired, and the next reader
fetches it: who writes it then sets it to expire again, by the same number (``SET key value EX seconds``).
``EXPIRE key 0`` would delete the key at once: a lifetime is at least one second. Keys that are never fetched
again have no line, and so do not expire.

Keys stand in double quotes as ``redis-cli`` reads them, every octet that is not printable ASCII as ``\xHH``:
any name can be written.

References
----------
.. [1] https://redis.io/docs/latest/commands/expire/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.heavy import polars
from freshopt.tools.whole_seconds import LifetimeFormat

_ESCAPED = {34: '\\"', 92: "\\\\"}
_PRINTABLE = range(32, 127)
_PLAIN = "^[ -~]*$"


@dataclass(frozen=True, slots=True)
class Redis(LifetimeFormat):
    """File of EXPIRE lines."""

    tool: ClassVar[str] = "Redis"
    file: ClassVar[str] = "expire.redis"
    refusal: ClassVar[str] = "has a lone surrogate. Keys are written in UTF-8. Rename it."
    shortest: ClassVar[int] = 1

    def holds(self, names: polars.Series) -> polars.Series:
        """Return whether names have octets in UTF-8, as all text has."""
        return names.is_not_null()

    def line(self) -> polars.Expr:
        """Return the commands for keys."""
        return polars.format("EXPIRE {} {}\n", _quoted(polars.col("name")), "seconds")


def _quoted(name: polars.Expr) -> polars.Expr:
    """Return keys as redis-cli reads them."""
    plain = name.str.replace_all("\\", r"\\", literal=True).str.replace_all('"', r"\"", literal=True)
    other = polars.when(~name.str.contains(_PLAIN)).then(name)
    return other.map_elements(_by_octets, return_dtype=polars.String).fill_null(polars.format('"{}"', plain))


def _by_octets(name: str) -> str:
    r"""Return a key as redis-cli reads it, octet by octet.

    Examples
    --------
    >>> print(_by_octets('page:"ü"\n'))
    "page:\"\xc3\xbc\"\x0a"
    """
    octets = [
        _ESCAPED.get(octet, chr(octet) if octet in _PRINTABLE else f"\\x{octet:02x}")
        for octet in name.encode()
    ]
    return f'"{"".join(octets)}"'

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

from freshopt.exporters.text_lines import has_surrogate
from freshopt.exporters.whole_lifetimes import LifetimeFormat

_ESCAPED = {34: '\\"', 92: "\\\\"}
_PRINTABLE = range(32, 127)


@dataclass(frozen=True, slots=True)
class Redis(LifetimeFormat):
    """File of EXPIRE lines."""

    tool: ClassVar[str] = "Redis"
    file: ClassVar[str] = "expire.redis"
    refusal: ClassVar[str] = "has a lone surrogate. Keys are written in UTF-8. Rename it."
    shortest: ClassVar[int] = 1

    def holds(self, name: str) -> bool:
        """Return whether a name has octets in UTF-8."""
        return not has_surrogate(name)

    def line(self, name: str, seconds: int, window: int) -> str:  # noqa: ARG002
        """Return the command for a key."""
        return f"EXPIRE {quoted(name)} {seconds}\n"


def quoted(name: str) -> str:
    r"""Return a key as redis-cli reads it.

    Examples
    --------
    >>> print(quoted('page:"ü"\n'))
    "page:\"\xc3\xbc\"\x0a"
    """
    if name.isascii() and name.isprintable():
        return '"{}"'.format(name.replace("\\", "\\\\").replace('"', '\\"'))
    octets = [
        _ESCAPED.get(octet, chr(octet) if octet in _PRINTABLE else f"\\x{octet:02x}")
        for octet in name.encode()
    ]
    return f'"{"".join(octets)}"'

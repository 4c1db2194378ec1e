"""DNS: records of a zone file with their TTLs.

A source is called as its record stands in a zone file, without TTL and class: owner, type and data, such as
``www.example.org. A 192.0.2.1`` (RFC 1035 [1]_). The TTL is set between owner and type, in whole seconds up
to 2³¹ − 1 (RFC 2181 [2]_); 0 has every query asked anew.

References
----------
.. [1] https://www.rfc-editor.org/rfc/rfc1035#section-5.1
.. [2] https://www.rfc-editor.org/rfc/rfc2181#section-8
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.heavy import polars
from freshopt.tools.whole_seconds import LifetimeFormat

_LABEL = r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)"
# A character-string in quotes, or a word without any letter that a zone file reads otherwise.
_DATA = r'(?:"(?:[^"\\\x00-\x1f\x7f-\x{10ffff}]|\\[ -~])*"|[^\s"();\\\x00-\x1f\x7f-\x{10ffff}]+)'
_RECORD = rf"^(?:@|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?) +[A-Z][A-Z0-9-]*(?: +{_DATA})+$"
_LONGEST_OWNER = 254


@dataclass(frozen=True, slots=True)
class Dns(LifetimeFormat):
    """File of records with TTLs, for a zone file's ``$INCLUDE``."""

    tool: ClassVar[str] = "DNS"
    file: ClassVar[str] = "records.zone"
    refusal: ClassVar[str] = (
        "is no record of a zone file without TTL and class. Name it by owner, type and data in ASCII, such "
        "as 'www.example.org. A 192.0.2.1'."
    )

    def holds(self, names: polars.Series) -> polars.Series:
        """Return whether names are records."""
        long = f"^[^ ]{{{_LONGEST_OWNER + 1}}}"
        return names.str.contains(_RECORD) & ~names.str.contains(f"{long}|^[^ ]+ +IN ")

    def line(self) -> polars.Expr:
        """Return records with their TTLs."""
        owner, rest = (polars.col("name").str.extract("^([^ ]+) +(.*)$", group) for group in (1, 2))
        return polars.format("{} {} IN {}\n", owner, "seconds", rest)

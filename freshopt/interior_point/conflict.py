"""`Conflict`: declared rows that cannot hold together, and a remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from freshopt.errors import list_offenders, shortened

# Significant digits of a number in a message, unless more are needed to see by what a row is short.
_DIGITS = 3
# float64 has no more.
_ALL_DIGITS = 17
# A number in a message exceeds what is needed by no more than this share of what the row is short by,
# and never falls short of it.
_FINE = 0.05
# Rows that a message lists with their remedies; a longer list hides the remedy.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Conflict:
    """Irreducible set of rows that conflict.

    Without any one of them the others can hold.

    - `limits`: As declared.
    - `at_least`: Whether a row was declared with ≥.
    - `weights`: Multipliers y > 0 that prove the conflict, with Σ y|b| = 1.
    - `excess`: D(y) > 0: by what share the rows miss each other.
    - `sufficient`: The limit of each row, as declared, under which the set can hold if it alone gives; inf,
      or −inf of a row with ≥, if no value suffices.
    - `min_rates`, `max_rates`: Sources whose bounds the proof rests on, the weightiest first.

    Examples
    --------
    >>> print(Conflict(("bytes", "eu"), (9.0, 0.3), (False, True), (0.4, 0.6), 0.1, (9.5, 0.2449)))
    bytes <= 9 and eu >= 0.3 cannot both hold. Raise bytes to at least 9.5, or lower eu to at most 0.244.
    """

    labels: tuple[str, ...]
    limits: tuple[float, ...]
    at_least: tuple[bool, ...]
    weights: tuple[float, ...]
    excess: float
    sufficient: tuple[float, ...]
    min_rates: tuple[int, ...] = ()
    max_rates: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return what conflicts and what would mend it, in two sentences."""
        rows = list(zip(self.labels, self.limits, self.at_least, strict=True))
        named = [f"{shortened(label)} {'>=' if least else '<='} {limit:.6g}" for label, limit, least in rows]
        return f"{self._sentence(named)} {self._remedy()}"

    def _sentence(self, named: list[str]) -> str:
        if len(named) == 1:
            bounds = [
                f"{what} of {list_offenders(f'source {k}' for k in sources)}"
                for what, sources in (("min_rate", self.min_rates), ("max_rate", self.max_rates))
                if sources
            ]
            return f"{named[0]} cannot hold{' with ' if bounds else ''}{' and '.join(bounds)}."
        if len(named) > _SHOWN:
            return f"{', '.join(named[:_SHOWN])} and {len(named) - _SHOWN} more cannot all hold."
        how = "both" if len(named) == 2 else "all"
        return f"{', '.join(named[:-1])} and {named[-1]} cannot {how} hold."

    def _remedy(self) -> str:
        rows = list(zip(self.labels, self.limits, self.at_least, self.sufficient, strict=True))
        ways = []
        for label, limit, least, enough in rows[:_SHOWN]:
            verb, bound = ("lower", "at most") if least else ("raise", "at least")
            if math.isfinite(enough):
                number = outward(enough, abs(enough - limit), up=not least)
                ways.append(f"{verb} {shortened(label)} to {bound} {number}")
        if len(rows) == 1:
            ways += ["lower min_rate"] if self.min_rates else []
            ways += ["raise max_rate"] if self.max_rates else []
        if not ways:
            return "No other limit of one row suffices; drop one of them."
        text = ", or ".join(ways)
        return f"{text[0].upper()}{text[1:]}."


def outward(number: float, short: float, *, up: bool) -> str:
    """Return a number rounded away from what conflicts.

    Examples
    --------
    >>> outward(2.6123e9, 6e8, up=True), outward(0.99991, 1e-5, up=False)
    ('2.62e+09', '0.99991')
    """
    for digits in range(_DIGITS, _ALL_DIGITS):
        unit = 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1) if number else 0.0
        for shift in (0.0, unit if up else -unit):
            text = f"{number + shift:.{digits}g}"
            off = (float(text) - number) * (1.0 if up else -1.0)
            if 0.0 <= off <= _FINE * short:
                return text
    return repr(number)

"""`FetchWords`: what a plan's rates count, and what its bandwidth counts.

Where fetches may fail, rates are of attempts; of a crawler that repeats what failed at once they are of
successes, and the bandwidth is of attempts. Where fetches cost what they bring, the bandwidth is in units of
what asking uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from freshopt.formatting import count


class FetchWords(NamedTuple):
    """Nouns of a plan's rates and of its bandwidth.

    Attributes
    ----------
    rate, bandwidth : str
        "refresh", "attempt", and of a bandwidth "unit" too.
    """

    rate: str = "refresh"
    bandwidth: str = "refresh"

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> FetchWords:
        """Return the words of a plan's summary.

        Examples
        --------
        >>> FetchWords.of({}), FetchWords.of({"success": {"retry_at_once": True}}).bandwidth
        (FetchWords(rate='refresh', bandwidth='refresh'), 'attempt')
        """
        success = facts.get("success")
        fails = isinstance(success, Mapping)
        rate = "attempt" if isinstance(success, Mapping) and not success.get("retry_at_once") else "refresh"
        return cls(rate, "unit" if facts.get("changed_cost") else "attempt" if fails else "refresh")

    @property
    def alike(self) -> bool:
        """Whether a rate and what it uses of the bandwidth are one number."""
        return self.rate == self.bandwidth

    @property
    def rates(self) -> str:
        """The noun of the rates in the plural."""
        return plural(self.rate)

    @property
    def uses(self) -> str:
        """The noun of the bandwidth in the plural."""
        return plural(self.bandwidth)

    @property
    def done(self) -> str:
        """What happens to a source at its rate."""
        return "refreshed" if self.rate == "refresh" else "attempted"


def plural(noun: str) -> str:
    """Return the plural of a noun.

    Examples
    --------
    >>> plural("refresh"), plural("attempt")
    ('refreshes', 'attempts')
    """
    return count(2, noun).partition(" ")[2]

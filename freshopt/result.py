"""`Status` and `Solution`: what a solver hands back, and how sure we are of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freshopt.arrays import Array

if TYPE_CHECKING:
    from freshopt.certificate import Certificate
    from freshopt.model import Problem


class Status(enum.Enum):
    """How a solve ended. The value is the word; `sentence` explains it."""

    OPTIMAL = "optimal"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    ITERATION_LIMIT = "iteration limit"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def sentence(self) -> str:
        """The status in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.OPTIMAL: "The certificate shows that no rates are better by more than the tolerance.",
    Status.INACCURATE: "The rates are feasible, but the certificate does not show them to be optimal.",
    Status.INFEASIBLE: "No rates meet the constraints.",
    Status.UNBOUNDED: "The objective improves without limit.",
    Status.ITERATION_LIMIT: "The solver stopped at its iteration limit.",
    Status.FAILED: "The solver ended without an answer.",
    Status.REFUSED: "The solver does not apply to this problem.",
}

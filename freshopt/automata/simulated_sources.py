"""`SimulatedSources`: sources with Bernoulli changes in poll slots.

They change while poll slots go by, as an environment for trees of automata.

A source changes at random with a hazard a per slot, an expected number of changes: a poll after T slots finds
news with probability 1 − e^{−aT}. Where a source has an update in a slot with probability u, a = −log(1 − u),
and only whether it has changed counts. Hazards may change on the way (`swap`): what had accumulated before
stays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.automata.polls import Slots
from freshopt.automata.settings import Cost, Feedback, Update, weights_of
from freshopt.errors import SourceDataError, one_of
from freshopt.numerics.arrays import Array, IntArray, as_numbers, as_vector, read_only
from freshopt.numerics.frozen_arrays import frozen_arrays


@frozen_arrays
class SimulatedSources:
    """Simulated sources with their changes and poll counts.

    Parameters
    ----------
    hazard : array_like, shape (n,)
        a ≥ 0, expected changes per slot; a slot is the time between two polls.
    importance : array_like, scalar or shape (n,)
        w ≥ 0: the value of news of the source, of its freshness, or of its cost.
    cost : Cost
        What a poll sees of a copy, for ``Feedback.COST``.
    curve : array_like, shape (n, k), optional
        Parameters of that cost, if it has any.

    Attributes
    ----------
    hazard, importance : ndarray, shape (n,)
        Read-only views.

    Raises
    ------
    SourceDataError

    Examples
    --------
    >>> from freshopt.automata import AutomataTree, Polling, SimulatedSources
    >>> sources = SimulatedSources(hazard=[0.1, 0.3])
    >>> tree = AutomataTree.from_shares([0.25, 0.75], polling=Polling.EARLIEST_DEADLINE)
    >>> tree.simulate(sources, 10_000, None)
    >>> sources.polls, round(sources.found / 10_000, 2)  # 1 − e^{−0.4} = 0.33
    (array([2500, 7500]), 0.33)
    """

    def __init__(
        self,
        hazard: npt.ArrayLike,
        importance: npt.ArrayLike = 1.0,
        *,
        cost: Cost = Cost.STALE,
        curve: npt.ArrayLike | None = None,
    ) -> None:
        rates = np.atleast_1d(as_numbers(hazard, "hazard").copy())
        n = len(rates)
        if rates.ndim != 1 or not n or not bool(np.all((rates >= 0.0) & (rates < np.inf))):
            raise SourceDataError("hazard must be a column of finite numbers >= 0. Mend it.")
        self.importance = as_vector(importance, n, "importance")
        if not bool(np.all((self.importance >= 0.0) & (self.importance < np.inf))):
            raise SourceDataError("importance must be finite and 0 or more. Mend it.")
        one_of(cost, tuple(Cost), "cost")
        table = np.zeros((n, 1)) if curve is None else as_numbers(curve, "curve").copy()
        if table.ndim != 2 or len(table) != n or (curve is None) == (cost in (Cost.POWER, Cost.PIECES)):
            raise SourceDataError(f"the curve of {cost!r} does not fit {n} sources. Pass its row for each.")
        check_curve(cost, table)
        self._slots = Slots(
            hazard=rates,
            pending=np.zeros(n),
            since=np.zeros(n),
            weight=np.ones(n),
            before=np.full(n, -1, dtype=np.int64),
            plan=np.full(n, np.inf),
            reach=np.zeros(n),
            polls=np.zeros(n, dtype=np.int64),
            news=np.zeros(n, dtype=np.int64),
            totals=np.zeros(2),
            now=np.zeros(1),
            cost=np.array([cost.code]),
            curve=table,
            scale=np.zeros(2),
        )
        self._weighted: tuple[Feedback, Update] | None = None

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self._slots.hazard)

    @property
    def hazard(self) -> Array:
        """Expected changes per slot, as they are now."""
        return read_only(self._slots.hazard)

    @property
    def polls(self) -> IntArray:
        """Polls of each source so far."""
        return self._slots.polls.copy()

    @property
    def news(self) -> IntArray:
        """Polls of each source that found news."""
        return self._slots.news.copy()

    @property
    def found(self) -> int:
        """Polls that found news."""
        return int(self._slots.totals[0])

    @property
    def probes(self) -> int:
        """Probes so far, which are not counted among the polls."""
        return int(self._slots.totals[1])

    def expected(self, shares: Array) -> float:
        """Return the weighted news per slot, Σ w·x·d(x).

        It is that of periodic polls at the given shares.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(shares > 0.0, -np.expm1(-self._slots.hazard / shares), 0.0)
        return float(np.sum(self.importance * shares * found))

    def swap(self, one: int, other: int) -> None:
        """Exchange the hazards of two sources.

        Changes that came before stay where they are.
        """
        slots, both = self._slots, np.array([one, other])
        now = slots.now[0]
        slots.pending[both] += slots.hazard[both] * np.maximum(now - slots.since[both], 0.0)
        slots.since[both] = now
        slots.plan[both] = np.inf  # a probe that was planned before belongs to the hazard of before
        slots.hazard[both] = slots.hazard[both[::-1]]

    def slots(self, feedback: Feedback, update: Update) -> Slots:
        """Return the arrays for the loops.

        Weights are as feedback and update need them.
        """
        one_of(feedback, tuple(Feedback), "feedback")
        one_of(update, tuple(Update), "update")
        if self._weighted != (feedback, update):
            self._slots.weight[:] = weights_of(self.importance, feedback, update)
            self._weighted = feedback, update
        return self._slots


def check_curve(cost: Cost, table: Array) -> None:
    """Raise if a column of a cost's parameters is none."""
    columns = table.shape[1]
    if cost is Cost.POWER:
        if columns != 2:
            raise SourceDataError(f"the curve of {cost!r} has {columns} columns. Pass exponents and ages.")
        if not bool(np.all((table[:, 0] > 0.0) & np.isfinite(table[:, 0]))):
            raise SourceDataError(f"an exponent in the curve of {cost!r} is not finite and > 0. Mend it.")
        if not bool(np.all(table[:, 1] > 0.0)):
            raise SourceDataError(f"an age in the curve of {cost!r} is not > 0. Mend it; inf is no limit.")
    if cost is Cost.PIECES:
        if columns < 2 or columns % 2:
            raise SourceDataError(
                f"the curve of {cost!r} has {columns} columns. Pass all slopes, then as many intercepts."
            )
        if not bool(np.all(np.isfinite(table))):
            raise SourceDataError(f"a slope or intercept in the curve of {cost!r} is not finite. Mend it.")

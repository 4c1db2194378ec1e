"""`ExpectedCosts`: costs of an objective that changes alone do not show.

An objective that is declared by rates says what a rate costs a source of some change rate, and not what each
missed change does. Held out, it is therefore expected: under the posterior of the change rates given the
whole log, of whatever rates or crawls a policy has. Under the model no policy is favoured by that, however
its rates were found: the posterior has all that the log tells. A drift within the log is averaged.

Cost: for each Gauss node of the posteriors one evaluation, of rates or of all gaps; then one for each end of
a window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from freshopt.errors import FreshoptError, ObjectiveError
from freshopt.modelling.cost_curve import Curve
from freshopt.modelling.fetches.gap_costs import GapCosts
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.segments import first_beyond
from freshopt.scheduling.expected_cost import priced_gaps
from freshopt.separable.kernel import Numerics
from freshopt.simulation.staleness_integrals import Refreshes


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedCosts:
    """Expected costs of n sources, by importance.

    Attributes
    ----------
    sources : sequence of Sources
        The same with the change rates of each node.
    shares : ndarray, shape (n, nodes)
        Probabilities of the nodes.
    """

    objective: Objective
    sources: tuple[Sources, ...]
    shares: Array
    _numerics: list[Numerics] = field(default_factory=list)
    _gaps: list[tuple[Curve | GapCosts, Array]] = field(default_factory=list)
    _elapsed: list[tuple[Refreshes, Array, Array]] = field(default_factory=list)

    def of_rates(self, rates: Array) -> Array:
        """Return the cost per time unit of each source at its rate."""
        if not self._numerics:
            found = [numerics_of(self.objective, own)[0] for own in self.sources]
            self._numerics.extend(one for one in found if one is not None)
            if len(self._numerics) < len(found):
                raise ObjectiveError(
                    f"{self.objective!r} has an atom without derivatives, and no numerics to price rates by. "
                    "Register the atom."
                )
        with np.errstate(all="ignore"):
            each = [numerics.cost(rates) for numerics in self._numerics]
        return self._mean(each)

    def refuses_crawls(self) -> str | None:
        """Return why crawls have no cost, or None."""
        try:
            priced_gaps(self.objective, self.sources[0])
        except FreshoptError as error:
            return str(error)
        return None

    def of_crawls(self, start: Array, refreshes: Refreshes, first: Array, until: Array) -> Array:
        """Return the cost of each source from `first` to `until`.

        Its copy is fresh at the start. Crawls are given source by source, in order of time.
        """
        known = next((one for one in self._elapsed if one[0] is refreshes), None)
        if known is None:
            known = (refreshes, *self._until_each(start, refreshes))
            self._elapsed.append(known)
        source, time = refreshes
        _, last, spent = known
        ends = np.searchsorted(source, np.arange(len(start) + 1))

        def spent_until(moment: Array) -> Array:
            # The start comes before all crawls of a source.
            at = first_beyond(time, ends[:-1], ends[1:], moment) + np.arange(len(start))
            gap = np.maximum(moment - last[at], 0.0)
            return np.asarray(spent[at] + self._of_gaps(np.arange(len(start)), gap))

        return spent_until(until) - spent_until(first)

    def _until_each(self, start: Array, refreshes: Refreshes) -> tuple[Array, Array]:
        """Return start and crawls of each source, and costs until then."""
        source, time = refreshes
        n = len(start)
        own = np.concatenate([np.arange(n), source])
        order = np.argsort(own, kind="stable")
        own, moment = own[order], np.concatenate([start, np.maximum(time, start[source])])[order]
        gap = np.zeros(len(own))
        gap[1:] = np.where(own[1:] == own[:-1], moment[1:] - moment[:-1], 0.0)
        begins = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
        cost = self._of_gaps(own, gap)
        cost[begins] = 0.0
        total = np.cumsum(cost)
        return moment, total - total[begins][own]

    def _of_gaps(self, source: IntArray, gap: Array) -> Array:
        """Return what gaps of these sources cost."""
        if not self._gaps:
            self._gaps.extend(priced_gaps(self.objective, own) for own in self.sources)
        each = [weight[source] * curve.take(source).gap_cost(gap) for curve, weight in self._gaps]
        return self._mean(each, self.shares[source])

    def _mean(self, each: list[Array], shares: Array | None = None) -> Array:
        known = self.shares if shares is None else shares
        return np.asarray(sum(share * cost for share, cost in zip(known.T, each, strict=True)))

"""`PerBandwidth`: an objective as a function of bandwidth used.

Fetches that cost what they bring use b = c₀ρ + c₁Δ·F(ρ), no linear function of the rate. A problem with such
fetches is solved in b: the same costs, at the rates that use so much, under refresh costs of 1. Bandwidth and
host limits bound sums of b, bounds on rates are bounds on b, and J(g^{-1}(b)) is convex
(`freshopt.separable.conditional_kernel`). So prices, certificates and solvers are those of any problem. Where
it is not, the bound is that of its lower convex hull (`freshopt.separable.conditional_hull`).

With Poisson refreshes and f = F(ρ), b = c₀Δf/(1 − f) + c₁Δf is convex in f, and so are the costs of the named
objectives: that is what is declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.objective import ConeForm, Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, Index, as_float64, read_only
from freshopt.separable.conditional_hull import hull_per_bandwidth
from freshopt.separable.conditional_kernel import BandwidthUsed, per_bandwidth
from freshopt.separable.kernel import Kernel, Numerics

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem

UNKNOWN = (
    "fetches cost more where the source has changed, and rates are found per bandwidth used, by fo.solve"
)


def require_fixed_costs(sources: Sources, what: str) -> None:
    """Raise SourceDataError if fetches cost more where the source has changed.

    `what` is what knows none of that, in words.
    """
    if sources.changed_cost is not None:
        raise SourceDataError(
            f"{what} knows fetches of a fixed cost only, and these cost more where the source has changed. "
            "Drop changed_cost, or use fo.solve."
        )


def bandwidth_used(objective: Objective) -> BandwidthUsed:
    """Return the bandwidth that rates use under an objective's discipline."""
    return BandwidthUsed(objective.refresh is Refresh.PERIODIC)


def changed_costs(sources: Sources) -> Array:
    """Return c₁ of the sources, which must be given."""
    return np.zeros(len(sources)) if sources.changed_cost is None else sources.changed_cost


def own_sources(problem: Problem) -> Sources:
    """Return the sources with the costs of their fetches."""
    objective = problem.objective
    return objective.sources if isinstance(objective, PerBandwidth) else problem.sources


def with_numerics(problem: Problem, rates: Array) -> tuple[Problem, Array]:
    """Return the problem with numerics, and its variable at some rates."""
    twin = problem.per_bandwidth
    return (problem, rates) if twin is None else (twin, problem.used_by_source(rates))


def used_by_source(objective: Objective, sources: Sources, rates: Array) -> Array:
    """Return the bandwidth that each source uses, c₀ρ + c₁Δ·F(ρ)."""
    if sources.changed_cost is None:
        return sources.refresh_cost * rates
    fetches = bandwidth_used(objective)
    return fetches.used(rates, sources.change_rate, sources.refresh_cost, sources.changed_cost)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PerBandwidth(Objective):
    """An objective per bandwidth used.

    - `objective`: A function of rates.
    - `sources`: With their costs; those that methods are given hold bounds in bandwidth.
    """

    objective: Objective
    sources: Sources
    disciplines: ClassVar[tuple[Refresh, ...]] = (Refresh.PERIODIC, Refresh.POISSON)

    def __repr__(self) -> str:
        return f"PerBandwidth({self.objective!r})"

    @property
    def sense(self) -> Literal["minimise", "maximise"]:  # type: ignore[override]
        """Whether the sum over sources is to be small or large."""
        return self.objective.sense

    @property
    def refresh(self) -> Refresh:  # type: ignore[override]
        """The discipline of the fetches."""
        return self.objective.refresh

    def hull(self, kernel: Kernel, sources: Sources) -> Numerics:
        """Return the numerics of the hull between bounds in bandwidth.

        `kernel` is the objective's, over rates. They are those of bandwidth where the costs are convex.
        """
        own, fetches = self.sources, bandwidth_used(self.objective)
        costs = own.column("change_rate"), own.refresh_cost, changed_costs(own)
        concave = self.objective.concave_per_bandwidth(own)
        return hull_per_bandwidth(
            per_bandwidth(kernel, fetches, *costs), concave, sources.min_rate, sources.max_rate
        )

    def without_cone(self) -> str | None:
        """Return why there is no cone form, or None."""
        if self.refresh is Refresh.PERIODIC:
            return "periodic refreshes whose fetches cost what they bring have no cone; use fo.solve"
        if type(self.objective).cost_of_freshness is Objective.cost_of_freshness:
            name = type(self.objective).__name__
            return f"{name} of fetches that cost what they bring has no cone; use fo.solve"
        return None

    def of_freshness(self, fresh: Expression) -> tuple[Expression, Expression]:
        """Return cost and bandwidth used of a Poisson fresh share.

        The bandwidth is c₀Δ(f + f²/(1 − f)) + c₁Δf, which does not cancel where f is small.
        """
        refused = self.without_cone()
        if refused is not None:
            raise ObjectiveError(f"{refused[0].upper()}{refused[1:]}.")
        own = self.sources
        declared = self.objective.cost_of_freshness(fresh, own)
        fetch, change = own.refresh_cost * own.change_rate, changed_costs(own) * own.change_rate
        used = cp.multiply(fetch, cp.inv_pos(1.0 - fresh) - 1.0) + cp.multiply(change, fresh)
        return declared, used

    def fresh(self, rate: Array) -> Array:
        """Return the fresh share at each source's rate."""
        return bandwidth_used(self.objective).fresh(rate, self.sources.change_rate)

    def per_source(self, rate: Expression, sources: Sources) -> ConeForm:  # noqa: ARG002
        """Declare w·J by the fresh share that the bandwidth, `rate`, buys."""
        fresh = cp.Variable(len(self.sources), nonneg=True, name="fresh")
        declared, used = self.of_freshness(fresh)
        return declared, [used <= rate]

    def take(self, index: Index) -> PerBandwidth:
        """Return the objective for some of the sources."""
        return PerBandwidth(self.objective.take(index), self.sources.take(index))

    def value_from_cost(self, cost: float, sources: Sources) -> float:  # noqa: ARG002
        """Return the value in the declared sense from the cost."""
        return self.objective.value_from_cost(cost, self.sources)


def sources_per_bandwidth(
    objective: Objective, sources: Sources, lower: Array, upper: Array
) -> tuple[PerBandwidth, Sources]:
    """Return objective and sources of a problem over bandwidth used.

    - raises ObjectiveError if nothing tells where the cost is convex in it, or a source is signalled.
    """
    refused = objective.convex_per_bandwidth(sources)
    if refused is not None and objective.concave_per_bandwidth(sources) is not None:
        refused = None
    if objective.refresh is Refresh.ON_REQUEST:
        refused = "copies that are refreshed on request have no such cell"
    if sources.failing is not None:
        raise ObjectiveError(
            f"{objective!r} has no answer for fetches that fail and cost what they bring: success is below "
            "1, and no cell of attempts knows both. Have failures retried at once "
            "(freshopt.scheduling.retried_at_once, --retry-at-once), or drop one of success and changed_cost."
        )
    if bool(np.any(sources.signalled)):
        first = sources.label(int(np.flatnonzero(sources.signalled)[0]))
        refused = f"{first} is signalled, so that every fetch finds a change"
    if refused is not None:
        raise ObjectiveError(
            f"{objective!r} has no answer for fetches that cost what they bring: {refused}. Drop "
            "changed_cost; to be safe, add it to refresh_cost."
        )
    fetches, own = bandwidth_used(objective), as_float64(sources.column("change_rate"))
    ends = [
        np.where(
            np.isinf(bound),
            np.inf,
            fetches.used(bound, own, sources.refresh_cost, changed_costs(sources)),
        )
        for bound in (lower, upper)
    ]
    low, high = ends
    twin = within(sources, low, np.where(high > LARGEST, np.inf, high))
    object.__setattr__(twin, "refresh_cost", read_only(np.broadcast_to(1.0, low.shape)))
    object.__setattr__(twin, "changed_cost", None)
    return PerBandwidth(objective, sources), twin


def within(sources: Sources, lower: Array, upper: Array) -> Sources:
    """Return sources with other bounds, not validated."""
    twin = sources.take(slice(None))
    object.__setattr__(twin, "min_rate", read_only(lower))
    object.__setattr__(twin, "max_rate", read_only(upper))
    return twin


def rates_of_bandwidth(problem: Problem, used: Array) -> Array:
    """Return the rates that use so much, within their bounds."""
    sources, twin = problem.sources, problem.per_bandwidth
    fetches = bandwidth_used(problem.objective)
    rates = fetches.rate(used, sources.change_rate, sources.refresh_cost, changed_costs(sources))
    rates = np.clip(rates, problem.lower, problem.upper)
    if twin is not None:
        rates = np.where(used <= twin.lower, problem.lower, rates)
        rates = np.where(used >= twin.upper, problem.upper, rates)
    return rates

"""Synchronization cost: J(r) = Σ w·r·C̄(1/r) of caches.

C̄(τ) is what a copy costs between two refreshes τ apart.
The objective of [1]_ is for caches whose cost of age is known only from samples; here the cost is given: a
power of the age (`PowerCost`), the chance of being stale (`BinaryCost`), or a convex piecewise linear C̄
(`PiecewiseLinearCost`). Each is a cost curve c = C̄', and the periodic cell of it is the paper's objective.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from freshopt.compiled.demand_functions import capped_power, power_law
from freshopt.compiled.proof_functions import CAPPED_POWER, POWER
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError
from freshopt.modelling.cone_forms import decayed_time, within_lifetime
from freshopt.modelling.cost_curve import Curve, CurveObjective
from freshopt.modelling.objective import Command, ConeForm, Objective, Refresh, require_discipline
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Index
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.problems.binary_freshness import BinaryFreshness, binary_curve
from freshopt.problems.piecewise_linear_cost import PiecewiseLinearCost
from freshopt.problems.power_cost import PowerCost
from freshopt.separable.kernel import Kernel


class AgeCost(Protocol):
    """Protocol of cost curves of age."""

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve."""

    def declare(
        self, rate: Expression, sources: Sources, refresh: Refresh
    ) -> tuple[Expression, list[Expression]]:
        """Declare J(ρ) per source of importance 1, with its constraints."""

    def cone_form(self, y: Expression, sources: Sources, typical: Array, refresh: Refresh) -> ConeForm | None:
        """Return a well-conditioned cone form of Σ w·J(typical·y), or None."""

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[AgeCost, Sources] | None:
        """Return the costs of attempts as those of other fetches, or None."""

    def take(self, index: Index) -> AgeCost:
        """Return the cost of some of the sources."""


@frozen_arrays
@dataclass(frozen=True, slots=True)
class BinaryCost:
    """Cost 1 while a copy is stale: C̄(τ) = τ − (1−e^{−Δτ})/Δ."""

    commands: ClassVar[tuple[Command, ...]] = (Command("binary-cost", "share of time that copies are stale"),)

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c(s) = 1 − e^{−Δs}."""
        return binary_curve(sources.column("change_rate"))

    def declare(
        self, rate: Expression, sources: Sources, refresh: Refresh
    ) -> tuple[Expression, list[Expression]]:
        """Declare the stale share."""
        share = cp.multiply(1.0 / sources.change_rate, rate)
        if refresh is Refresh.POISSON:
            return cp.inv_pos(1.0 + share), []
        if refresh is Refresh.ON_REQUEST:
            within = within_lifetime(rate, sources)
            lost, cone = decayed_time(share, within)
            return within - share + lost, [cone]
        lost, cone = decayed_time(share)
        return 1.0 - (share - lost), [cone]

    def cone_form(self, y: Expression, sources: Sources, typical: Array, refresh: Refresh) -> ConeForm | None:
        """Return the cone form of binary freshness, negated."""
        form = BinaryFreshness(refresh).cone_form(y, sources, typical)
        return -form[0], form[1]

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[BinaryCost, Sources] | None:
        """Return itself, of sources that change 1/s times as fast.

        Periodic attempts have no such form.
        """
        if refresh is Refresh.PERIODIC:
            return None
        return self, sources.with_change_rate(sources.change_rate / success)

    def take(self, index: Index) -> BinaryCost:  # noqa: ARG002
        """Return itself: all it needs comes with the sources."""
        return self


@frozen_arrays
@dataclass(frozen=True, slots=True)
class SynchronizationCost(CurveObjective):
    """Minimise Σ w·ρ·C̄(1/ρ).

    Parameters
    ----------
    cost : PowerCost, BinaryCost or PiecewiseLinearCost
    refresh : Refresh
        ``PERIODIC`` (default), as in the paper, ``ON_REQUEST``, or ``POISSON`` where the curve has that cell.

    Notes
    -----
    [1]_ Eq 7 averages over the K sources; that is ``importance=1/K``. Values here are sums.

    References
    ----------
    .. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), fo.Sources([0.5, 5.0]), bandwidth=1.0)
    >>> fo.solve(problem).rates.round(6)
    array([0.940183, 0.059817])
    """

    cost: AgeCost
    refresh: Refresh = Refresh.PERIODIC
    on_request: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.cost, type) or not hasattr(self.cost, "curve"):
            kind = type(self.cost).__name__
            raise TypeError(f"cost is of type {kind}. Pass a PowerCost, BinaryCost or PiecewiseLinearCost.")
        require_discipline(self)
        known = getattr(self.cost, "disciplines", self.disciplines)
        if self.refresh not in (*known, Refresh.ON_REQUEST):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self.cost).__name__).lower()
            raise ObjectiveError(
                f"a {words} is defined for {known[0].value} refreshes only. Use {known[0].name}."
            )

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·ρ·C̄(1/ρ)."""
        expression, constraints = self.cost.declare(rate, sources, self.refresh)
        weighted = cp.multiply(sources.importance, expression)
        return (weighted, constraints) if constraints else weighted

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return the cost's own well-conditioned cone form, or None."""
        return self.cost.cone_form(y, sources, typical, self.refresh)

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c = C̄'."""
        return self.cost.curve(sources)

    def convex_per_bandwidth(self, sources: Sources) -> str | None:
        """Return why nothing tells that the cost is convex, or None."""
        if isinstance(self.cost, BinaryCost):
            return None
        if isinstance(self.cost, PowerCost):
            return self.cost.convex_per_bandwidth(sources, self.refresh)
        return super(SynchronizationCost, self).convex_per_bandwidth(sources)

    def concave_per_bandwidth(self, sources: Sources) -> tuple[Array, Array] | None:
        """Return rates between which a power is concave, or None."""
        return (
            self.cost.concave_per_bandwidth(sources, self.refresh)
            if isinstance(self.cost, PowerCost)
            else None
        )

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[Objective, Sources] | None:
        """Return the same of another cost of age, or None."""
        stated = self.cost.never_failing(sources, success, refresh)
        return None if stated is None else (replace(self, cost=stated[0]), stated[1])

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics."""
        if isinstance(self.cost, PiecewiseLinearCost) and self.refresh is Refresh.PERIODIC:
            return self.cost.kernel(sources)
        kernel = super(SynchronizationCost, self).kernel(sources)
        if not isinstance(self.cost, PowerCost) or self.refresh is Refresh.ON_REQUEST:
            return kernel
        law = self.cost.power_law(sources, self.refresh)
        forms: tuple[Any, ...] | None = None  # demand and proof, with the parameters of each
        if law is not None:
            forms = power_law, law, POWER, (law[0], kernel.parameters[1])
        elif self.refresh is Refresh.PERIODIC and (capped := self.cost.capped_power(sources)) is not None:
            forms = capped_power, capped, CAPPED_POWER, capped
        if forms is None:
            return kernel
        names = "unit_demand", "demand_parameters", "unit_proof", "proof_parameters"
        return replace(kernel, **dict(zip(names, forms, strict=True)))

    def take(self, index: Index) -> SynchronizationCost:
        """Return the objective for some of the sources."""
        return replace(self, cost=self.cost.take(index))

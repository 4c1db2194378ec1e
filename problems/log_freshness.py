"""Log freshness: minus the logarithm of a copy's share of time fresh.

Its sum is least where the weighted geometric mean of the freshness is largest: the proportionally fair rates.
Where freshness multiplies, as along a pipeline of copies (`freshopt.pipelines`), it is the cost whose sum is
that of the whole. Every source of positive importance is refreshed sometimes. Per source of change rate Δ at
refresh rate ρ, with u = Δ/ρ, cost and marginal value:

===========  ==============================  ==============================
discipline   J(ρ) = −log(freshness)          −dJ/dρ
===========  ==============================  ==============================
Poisson      log(1 + u)                      Δ/(ρ(ρ + Δ))
periodic     log(u/(1 − e^{−u}))             (u − u²/(e^u − 1))/Δ
on signal    −log(ρ/Δ), ρ ≤ Δ                1/ρ
===========  ==============================  ==============================

Poisson and on signal it is harmonic staleness, cell by cell. Periodic it is not: there the mean of a
logarithm is no longer the logarithm of a mean.

**Convexity.** The freshness F = (1 − e^{−u})/u is concave in ρ, as F' = P(2, u)/Δ with P(2, u) =
1 − (1 + u)e^{−u} falls, and −log is convex and decreasing. Numerically J = log(1 + u) − log(1 + P(2, u)/u)
and −ΔJ' = u·P(2, u)/(1 − e^{−u}), of which nothing cancels. Per bandwidth of conditional fetches −J'/F' =
1/F, which falls too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.compiled import demand_functions, proof_functions
from freshopt.cvx import Expression, cp
from freshopt.modelling.cone_forms import LONG, SHORT, by_size, decayed_time
from freshopt.modelling.cost_curve import Cell
from freshopt.modelling.objective import Command, ConeForm, Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.problems.harmonic_staleness import ON_SIGNAL, POISSON, HarmonicStaleness
from freshopt.separable.kernel import Kernel

# Has the same Poisson and on-signal cells.
HARMONIC = HarmonicStaleness(Refresh.POISSON)


@dataclass(frozen=True, slots=True)
class LogFreshness(Objective):
    """Minimise Σ −w·log(share of time that the copy is fresh).

    Parameters
    ----------
    refresh : Refresh
        ``PERIODIC`` (default), or ``POISSON``, which is `HarmonicStaleness`.

    Notes
    -----
    Rates are proportionally fair [1]_: no other rates change the freshness of the sources by relative amounts
    whose weighted sum is positive. Of a pipeline's sources the sum is the weighted −log freshness of its
    nodes; ``PERIODIC`` then stands for independent phases. All cells are declared exactly. Periodic attempts
    that may fail have none.

    References
    ----------
    .. [1] Kelly, Maulloo & Tan, "Rate control for communication networks: shadow prices, proportional
       fairness and stability", Journal of the Operational Research Society 49(3), 1998,
       doi:10.1057/palgrave.jors.2600523.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 100.0], importance=[1.0, 1.0])
    >>> objective = LogFreshness(fo.Refresh.PERIODIC)
    >>> fo.solve(fo.Problem(objective, sources, bandwidth=10.0)).rates.round(6)
    array([1.921135, 8.078865])
    """

    refresh: Refresh = Refresh.PERIODIC
    commands: ClassVar[tuple[Command, ...]] = (
        Command("log-freshness", "minus the logarithm of the share of time that copies are fresh"),
    )

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare −w·log F(ρ); periodic refreshes take a cone per source for F."""
        if self.refresh is Refresh.POISSON:
            return HARMONIC.per_source(rate, sources)
        share = cp.multiply(1.0 / sources.change_rate, rate)
        lost, cone = decayed_time(share)
        return -cp.multiply(sources.importance, cp.log(share - lost)), [cone]

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare −w·log(ρ/Δ)."""
        return HARMONIC.signalled_per_source(rate, sources)

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return the cone form that suits each source's typical u = Δ/ρ."""
        if self.refresh is Refresh.POISSON:
            return HARMONIC.cone_form(y, sources, typical)
        w, u = sources.importance, sources.change_rate / typical
        cones: list[Expression] = []

        def middle(k: IntArray) -> Expression:
            lost, cone = decayed_time(y[k], u[k])
            cones.append(cone)
            return -w[k] @ cp.log(cp.multiply(-1.0 / np.expm1(-u[k]), y[k] - lost))

        cost = by_size(
            u,
            # With t = u/y, log(t/(1 − e^{−t})) = t/(2 + t/6) is off by t²/144 of it.
            (SHORT, lambda k: (w[k] * u[k] / 2.0) @ cp.inv_pos(y[k] + u[k] / 12.0)),
            (LONG, middle),
            (np.inf, lambda k: -w[k] @ cp.log(y[k])),
        )
        return cost, cones

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form −Σ w·log y, with its constant."""
        return HARMONIC.signalled_cone_form(y, sources, typical)

    def convex_per_bandwidth(self, sources: Sources) -> str | None:  # noqa: ARG002
        """Return None: −J'/F' = 1/F falls."""
        return None

    def cost_of_freshness(self, fresh: Expression, sources: Sources) -> Expression:
        """Return −w·log F."""
        return HARMONIC.cost_of_freshness(fresh, sources)

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[Objective, Sources] | None:
        """Return the costs of attempts by faster sources; None for periodic ones."""
        if refresh is Refresh.PERIODIC:
            return None
        return self, sources.with_change_rate(sources.change_rate / success)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics under the discipline."""
        cell = PERIODIC if self.refresh is Refresh.PERIODIC else POISSON
        return cell.kernel(sources.column("importance"), (sources.column("change_rate"),))

    def signalled_kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of announced changes."""
        return ON_SIGNAL.kernel(sources.column("importance"), (sources.column("change_rate"),))


PERIODIC = Cell.compiled(demand_functions.log_periodic, proof_functions.LOG_PERIODIC)

"""Accumulated delay: expected number of missed changes of each copy.

The fluid limit of "how far behind are we"; the optimum has a closed form, the square-root rule ρ ∝ √(wΔ). Per
source of change rate Δ at refresh rate ρ, cost and marginal value:

===========  ==================  ==========
discipline   J(ρ)                −dJ/dρ
===========  ==================  ==========
Poisson      Δ/ρ                 Δ/ρ²
periodic     Δ/(2ρ)              Δ/(2ρ²)
on signal    Δ/ρ − 1, ρ ≤ Δ      Δ/ρ²
===========  ==================  ==========
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.compiled import cost_functions, demand_functions, proof_functions
from freshopt.compiled.cells.counted_signals import DELAY_COUNTED, delay_counted
from freshopt.compiled.cells.request_functions import request_delay
from freshopt.compiled.cells.request_proofs import REQUEST_DELAY
from freshopt.compiled.cells.window_functions import window_delay
from freshopt.compiled.cells.window_proofs import WINDOW_DELAY
from freshopt.cvx import Expression, cp
from freshopt.modelling.cone_forms import relative_to_lifetime, square_over
from freshopt.modelling.cost_curve import Cell, Curve, CurveObjective
from freshopt.modelling.objective import Command, ConeForm, Objective, Refresh
from freshopt.modelling.request_cell import RequestForms
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.numerics.request_windows import delay_rise, discounted, first_moment


@dataclass(frozen=True, slots=True)
class AccumulatedDelay(CurveObjective):
    """Minimise Σ w·E[number of missed changes].

    Parameters
    ----------
    refresh : Refresh
        ``PERIODIC`` (default), which halves the cost of every rate; ``POISSON``; or ``ON_REQUEST`` of caches,
        whose `Sources` have request rates.

    Notes
    -----
    Poisson: J(ρ) = Δ/ρ [1]_ Eq 25; periodic: Δ/(2ρ); on signal: 1/p − 1 with p = ρ/Δ.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> fo.solve(fo.Problem(AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=3.0)).rates.round(9)
    array([1., 2.])
    """

    refresh: Refresh = Refresh.PERIODIC
    counts_signals: ClassVar[bool] = True
    on_request: ClassVar[bool] = True
    window_cones: ClassVar[bool] = True
    commands: ClassVar[tuple[Command, ...]] = (Command("delay", "number of missed changes"),)

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·Δ/ρ, halved under periodic refreshes, and w·Δ(ζ − ρ)²/(2ζ²ρ) on request."""
        if self.refresh is Refresh.ON_REQUEST:
            asked = sources.asked
            rest = cp.multiply(asked**-2.0, rate) - 2.0 / asked
            cost = cp.multiply(0.5 * sources.importance * sources.change_rate, cp.inv_pos(rate) + rest)
            return cost + self._late(rate, sources)
        return cp.multiply(
            self._factor() * sources.importance, cp.inv_pos(cp.multiply(1.0 / sources.change_rate, rate))
        )

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·(Δ/ρ − 1)."""
        self.require_share_of_signals()
        return cp.multiply(sources.importance, cp.inv_pos(cp.multiply(1.0 / sources.change_rate, rate)) - 1.0)

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form Σ (cost at the typical rate)/y."""
        if self.refresh is Refresh.ON_REQUEST:
            within, longer, one = relative_to_lifetime(y, sources, typical, windows=True)
            ratio, cone = square_over(one, y)
            kept = (0.5 * sources.importance * within * sources.change_rate / longer) @ ratio
            return kept + cp.sum(self._late(cp.multiply(typical, y), sources)), [cone]
        return (self._factor() * sources.importance * sources.change_rate / typical) @ cp.inv_pos(y), []

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form Σ (cost at the typical rate)/y.

        It is equal up to a constant.
        """
        return (sources.importance * sources.change_rate / typical) @ cp.inv_pos(y), []

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c(s) = Δs."""
        return Curve.compiled(
            sources.column("change_rate"),
            _at,
            PERIODIC,
            POISSON,
            ON_SIGNAL,
            on_request=RequestForms(ON_REQUEST, IN_WINDOW, delay_rise),
            counted=COUNTED,
        )

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[Objective, Sources] | None:
        """Return the costs of attempts by faster sources.

        Δ/s takes the place of Δ, and Δ(2 − s)/s under periodic attempts.
        """
        slower = (2.0 - success) / success if refresh is Refresh.PERIODIC else 1.0 / success
        return self, sources.with_change_rate(sources.change_rate * slower)

    def change_slope(self, changes: Array) -> Array:
        """Return f' = 1 of f(x) = x."""
        return np.ones_like(changes)

    def convex_per_bandwidth(self, sources: Sources) -> str | None:  # noqa: ARG002
        """Return None: penalties of missed changes are convex in it."""
        return None

    def cost_of_freshness(self, fresh: Expression, sources: Sources) -> Expression:
        """Return w·(1/F − 1)."""
        return cp.multiply(sources.importance, cp.inv_pos(fresh) - 1.0)

    def _late(self, rate: Expression, sources: Sources) -> Expression:
        """Return what stale-while-revalidate windows add, which is affine in the rate."""
        window, asked = sources.stale_while_revalidate, sources.asked
        if window is None:
            return 0.0
        served = discounted(asked, window)
        slope = first_moment(asked, window) - served / asked
        return cp.multiply(sources.importance * sources.change_rate, cp.multiply(slope, rate) + served)

    def _factor(self) -> float:
        return 0.5 if self.refresh is Refresh.PERIODIC else 1.0


def _at(age: Array, d: Array) -> Array:
    return d * age


PERIODIC = Cell.compiled(
    demand_functions.delay_periodic, proof_functions.DELAY_PERIODIC, cost_functions.delay_periodic_cost
)
POISSON = Cell.compiled(demand_functions.delay, proof_functions.DELAY, cost_functions.delay_cost)
ON_SIGNAL = Cell.compiled(
    demand_functions.delay, proof_functions.DELAY_SIGNAL, cost_functions.delay_signal_cost
)
COUNTED = Cell.compiled(delay_counted, DELAY_COUNTED)
ON_REQUEST = Cell.compiled(request_delay, REQUEST_DELAY, cost_functions.delay_request_cost)
IN_WINDOW = Cell.compiled(window_delay, WINDOW_DELAY)

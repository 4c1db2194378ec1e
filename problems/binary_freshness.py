"""Binary freshness: share of time that a copy is fresh, maximised.

A copy is fresh until the first change after its refresh, then stale: the objective of a crawler whose users
either see the current version or do not. Sources that change much faster than they can be refreshed get no
bandwidth: at price λ, its dual variable, the best response of a source with w ≤ λΔ is 0. Per source of change
rate Δ at refresh rate ρ, with u = Δ/ρ, the stale share and its marginal value:

===========  ==========================  ==============================
discipline   J(ρ) = 1 − freshness        −dJ/dρ
===========  ==========================  ==============================
Poisson      Δ/(Δ + ρ)                   Δ/(Δ + ρ)²
periodic     1 − (1 − e^{−u})/u          (1 − (1 + u)e^{−u})/Δ
on signal    1 − ρ/Δ, ρ ≤ Δ              1/Δ
===========  ==========================  ==============================

Periodic attempts that succeed with chance s = 1 − q are a sum of these. With x = 1 − e^{−u} and D = s + qx,

    freshness = s·x/(uD),    J = (s·(1 − x/u) + q·x)/D,    −dJ/dρ = s(s(1 − (1 + u)e^{−u}) + q·x²)/(D²Δ).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from freshopt.compiled import cost_functions, demand_functions, proof_functions
from freshopt.compiled.cells.attempt_functions import attempt_binary
from freshopt.compiled.cells.attempt_proofs import ATTEMPT_BINARY
from freshopt.compiled.cells.request_functions import request_binary
from freshopt.compiled.cells.request_proofs import REQUEST_BINARY
from freshopt.compiled.cells.window_functions import window_binary
from freshopt.compiled.cells.window_proofs import WINDOW_BINARY
from freshopt.cvx import Expression, cp
from freshopt.modelling.cone_forms import (
    by_size,
    decayed_time,
    relative_to_lifetime,
    square_over,
    stale_total,
    within_lifetime,
)
from freshopt.modelling.cost_curve import NOT_POISSON, Cell, Curve, CurveObjective
from freshopt.modelling.curves.change_shape import ChangeShape, require_changes
from freshopt.modelling.objective import Command, ConeForm, Objective, Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.request_cell import RequestForms
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.numerics.request_windows import binary_kept, binary_rise, discounted


@dataclass(frozen=True, slots=True)
class BinaryFreshness(CurveObjective):
    """Maximise Σ w·(share of time that the copy is fresh).

    Parameters
    ----------
    refresh : Refresh
        ``PERIODIC`` (default), ``POISSON``, or ``ON_REQUEST`` of caches, whose `Sources` have request rates.
    changes : ChangeShape, optional
        How sources change where that is no Poisson process, as `freshopt.plan` learns it. There is then no
        cone program, and signals are perfect.

    Notes
    -----
    Poisson: F(ρ) = ρ/(Δ+ρ) [1]_ Eq 5. Periodic: F(ρ) = (1−e^{−u})/u with u = Δ/ρ [2]_ section 4.
    On signal: F(ρ) = ρ/Δ, a linear cell. The certificate's duality gap is computed on the stale part Σ
    w·(1−F), so that it means something when nearly everything is fresh.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067.
    .. [2] Cho & Garcia-Molina, "Effective Page Refresh Policies for Web Crawlers", ACM TODS 28(4), 2003,
       doi:10.1145/958942.958945.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 100.0])
    >>> fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=1.0)).rates.round(6)
    array([0.404531, 0.595469, 0.      ])
    """

    refresh: Refresh = Refresh.PERIODIC
    changes: ChangeShape | None = field(default=None, repr=False)
    sense: ClassVar[Literal["minimise", "maximise"]] = "maximise"
    signals_of_any_process: ClassVar[bool] = True
    on_request: ClassVar[bool] = True
    window_cones: ClassVar[bool] = True
    commands: ClassVar[tuple[Command, ...]] = (Command("binary", "share of time that copies are fresh"),)

    def __post_init__(self) -> None:
        CurveObjective.__post_init__(self)
        require_changes(self.changes)

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·F(ρ).

        The cells of periodic refreshes and of those on request have one exponential cone per source.
        """
        share = cp.multiply(1.0 / sources.change_rate, rate)
        if self.refresh is Refresh.ON_REQUEST:
            within = within_lifetime(rate, sources, windows=True)
            lost, cone = decayed_time(share, within)
            bent, served = _late(sources)
            fresh = 1.0 - within - cp.multiply(served, rate) + share - cp.multiply(bent, lost)
            return cp.multiply(sources.importance, fresh), [cone]
        if self.refresh is Refresh.PERIODIC:
            lost, cone = decayed_time(share)
            return cp.multiply(sources.importance, share - lost), [cone]
        return cp.multiply(sources.importance, 1.0 - cp.inv_pos(1.0 + share))

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form of the freshness, up to a constant.

        Its form suits each source's typical u = Δ/ρ.
        """
        if self.refresh is Refresh.ON_REQUEST:
            within, longer, one = relative_to_lifetime(y, sources, typical, windows=True)
            w, (bent, served) = sources.importance * within, _late(sources)
            stale, cones = stale_total(w * bent, sources.change_rate / longer, y, one)
            straight = served - (1.0 - bent) / sources.change_rate
            return -stale - w @ one - (sources.importance * typical * straight) @ y, cones
        w, u = sources.importance, sources.change_rate / typical
        if self.refresh is Refresh.PERIODIC:
            stale, cones = stale_total(w, u, y)
            return -stale, cones
        squares: list[Expression] = []

        def rare(k: IntArray) -> Expression:
            # The freshness is (y − y²/(u + y))/u.
            lost, cone = square_over(y[k], 1.0 + cp.multiply(1.0 / u[k], y[k]))
            squares.append(cone)
            return (w[k] / u[k]) @ (y[k] - cp.multiply(1.0 / u[k], lost))

        often = (1.0, lambda k: -(w[k] * u[k]) @ cp.inv_pos(y[k] + u[k]))
        return by_size(u, often, (np.inf, rare)), squares

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the linear total."""
        return (sources.importance * typical / sources.change_rate) @ y, []

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·ρ/Δ."""
        return cp.multiply(sources.importance / sources.change_rate, rate)

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c(s) = 1 − e^{−Δs}, the stale part."""
        if self.changes is not None:
            # Of changes that are announced ρ/Δ are followed, and as much of the time is fresh.
            return replace(self.changes.curve(sources.column("change_rate"), 0), on_signal=ON_SIGNAL)
        return binary_curve(sources.column("change_rate"))

    def change_slope(self, changes: Array) -> Array:
        """Return f' = e^{−x} of f(x) = 1 − e^{−x}."""
        return np.exp(-changes) if self.changes is None else self.changes.slope(changes)

    def convex_per_bandwidth(self, sources: Sources) -> str | None:  # noqa: ARG002
        """Return None: penalties of missed changes are convex in it."""
        return None if self.changes is None else NOT_POISSON

    def cost_of_freshness(self, fresh: Expression, sources: Sources) -> Expression:
        """Return w·F."""
        return cp.multiply(sources.importance, fresh)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the freshness Σw − (stale part)."""
        return total(sources.column("importance")) - cost


def freshness_like(objective: Objective, refresh: Refresh | None = None) -> BinaryFreshness:
    """Return freshness under an objective's discipline and change model.

    Examples
    --------
    >>> from freshopt.problems import Age
    >>> freshness_like(Age(Refresh.POISSON))
    BinaryFreshness(refresh=Refresh.POISSON)
    """
    return BinaryFreshness(refresh or objective.refresh, getattr(objective, "changes", None))


def mean_freshness(
    sources: Sources, rates: Array, refresh: Refresh, changes: ChangeShape | None = None
) -> float:
    """Return the share of time that copies are fresh, by importance.

    - `sources`: Not all of importance 0.
    - `rates` (n,)
    - `refresh`: How the rates are carried out.
    - `changes`: When sources change, other than as a Poisson process.

    Examples
    --------
    >>> from freshopt.modelling.sources import Sources
    >>> round(mean_freshness(Sources([1.0, 3.0]), np.array([1.0, 1.0]), Refresh.POISSON), 3)
    0.375
    """
    numerics = numerics_of(BinaryFreshness(refresh, changes), sources)[0]
    assert numerics is not None, "every cell has a kernel"
    return 1.0 - total(numerics.cost(rates)) / total(sources.column("importance"))


def binary_curve(change_rate: Array) -> Curve:
    """Return the cost curve of a copy that costs 1 while stale."""
    return Curve.compiled(
        change_rate,
        _at,
        PERIODIC,
        POISSON,
        ON_SIGNAL,
        attempts=ATTEMPTS,
        on_request=RequestForms(ON_REQUEST, IN_WINDOW, binary_rise, binary_kept),
    )


def _late(sources: Sources) -> tuple[Array, Array]:
    """Return what stale-while-revalidate windows make of the cell on request.

    The fresh share is ρ/Δ − bent·(ρ/Δ)e^{−ΔT} + ρ·(1/ζ − served), with 1 and 0 where there are none.
    """
    window, asked, d = sources.stale_while_revalidate, sources.asked, sources.change_rate
    if window is None:
        return np.ones(len(sources)), np.zeros(len(sources))
    # 1 − Δ·(1 − e^{−(ζ+Δ)σ})/(ζ + Δ), without cancellation.
    bent = (asked + d * np.exp(-(asked + d) * window)) / (asked + d)
    return bent, discounted(asked, window)


def _at(age: Array, d: Array) -> Array:
    return -np.expm1(-d * age)


PERIODIC = Cell.compiled(demand_functions.binary_periodic, proof_functions.BINARY_PERIODIC, gained=True)
POISSON = Cell.compiled(
    demand_functions.binary_poisson, proof_functions.BINARY, cost_functions.binary_poisson_cost, gained=True
)
ON_SIGNAL = Cell.compiled(demand_functions.all_or_nothing, proof_functions.BINARY_SIGNAL, gained=True)
ON_REQUEST = Cell.compiled(request_binary, REQUEST_BINARY, gained=True)
IN_WINDOW = Cell.compiled(window_binary, WINDOW_BINARY, gained=True)
ATTEMPTS = Cell.compiled(attempt_binary, ATTEMPT_BINARY, gained=True, whole=PERIODIC)

"""`PhasedObjective`: refreshes at the good phases of a weekly cycle.

Where the changes of all sources follow a common cycle, a source that is refreshed at a gap I of whole weeks,
or of a whole fraction of one, can be refreshed at good phases: after most changes instead of before them. Its
changes then wait less by δ(I), in time units, and its cost is less by

    w·Δ·δ(I)·f'(ΔI/2),   f(x) = E C(N), N Poisson of mean x

(f' = 1 for accumulated delay, e^{−x} for binary freshness: the copy may be stale already; a declared penalty
of changes has w·Δ·f'(Δs) = ρ³J''(ρ) at ρ = 1/s). A source at any
other gap drifts through the week and costs J(ρ) as ever. What is minimised is the lower convex hull of J and
these points, so that nothing else changes: one price, best responses, certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, cast

import numpy as np

from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.cost_curve import Curve, CurveObjective
from freshopt.modelling.declared_hull import declared_hull, hull_cone_form
from freshopt.modelling.objective import ConeForm, Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Index, as_float64, as_number
from freshopt.numerics.even_tables import interpolated
from freshopt.separable.hull_numerics import HullNumerics
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics
from freshopt.separable.lower_hull import Ends, lower_hull, tangent_ends
from freshopt.units import convert_time

# Gaps in weeks, the longest first. With thirds to fifths and half days beside 1/2 and 1/7, plans of a few
# crawls a week save up to twice as much, with 6 and 8 plans of a crawl in six weeks a fifth more; other gaps,
# sixths and thirds of days among them, add less than a tenth.
GAPS = (8.0, 6.0, 4.0, 3.0, 2.0, 1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 7, 1 / 14)
# From so many sources on, tangents are taken from a table of so many change rates: cubic polynomials between
# knots are right to 1e-9, and solving is left to the few where they are not.
MANY, KNOTS = 10_000, 1_000


class Profile(Protocol):
    """Protocol of a weekly cycle of changes, such as `WeeklyProfile`."""

    @property
    def time_unit(self) -> str:
        """Unit of gaps and savings."""

    def saving(self, gaps: Array, load_limit: float) -> Array:
        """Return what each gap saves in mean waiting time."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PhasedObjective(CurveObjective):
    """Objective of periodic refreshes, some of them at good phases.

    `Problem` makes it of ``profile=``.

    - `objective`: Of periodic refreshes, with a `change_slope` or declared as a penalty of changes.
    - `profile`: Of the changes of all sources.
    - `load_limit`: Largest load at any time of the week over the mean load, ≥ 1.
    - `sense` {"minimise", "maximise"}: That of the objective.
    - raises ObjectiveError: for Poisson refreshes, which have no phase, and for costs that are no function of
      the mean number of changes.
    - raises SourceDataError if the profile or the load limit is none.
    """

    objective: Objective
    profile: Profile
    load_limit: float = 2.0
    _shorter: Array = field(init=False)
    refresh: ClassVar[Refresh] = Refresh.PERIODIC  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not callable(getattr(self.profile, "saving", None)):
            kind = type(self.profile).__name__
            raise SourceDataError(f"profile is of type {kind}. Pass a fo.WeeklyProfile.")
        remedy = "Pass a number >= 1, the largest load over the mean load."
        if not as_number(self.load_limit, "load_limit", remedy) >= 1.0:
            raise SourceDataError(f"load_limit is {self.load_limit:g}. {remedy}")
        refused = why_no_phases(self.objective)
        if refused is not None:
            raise ObjectiveError(refused)
        unit = self.profile.time_unit
        shorter = self.profile.saving(np.array(GAPS) * convert_time(1.0, "week", unit), self.load_limit)
        object.__setattr__(self, "_shorter", shorter * convert_time(1.0, unit, "week"))

    def __repr__(self) -> str:
        return f"PhasedObjective({self.objective!r}, load_limit={self.load_limit:g})"

    @property
    def sense(self) -> Literal["minimise", "maximise"]:  # type: ignore[override]
        """Whether the sum over sources is to be small or large."""
        return self.objective.sense

    @property
    def saves(self) -> bool:
        """Whether good phases save anything at some gap."""
        return bool(np.any(self._shorter > 0.0))

    def points(self, sources: Sources, numerics: Numerics | None = None) -> tuple[Array, Array]:
        """Return rates of commensurate gaps, and what good phases save there.

        `numerics` are those of an objective that has no curve.

        - returns `rate` (K,): Increasing, per time unit of the sources.
        - returns `saving` (K, n): Weighted, of the cost at that rate; ≥ 0.
        """
        some, week = np.flatnonzero(self._shorter > 0.0), convert_time(1.0, "week", sources.time_unit)
        gap, delta = np.array(GAPS)[some] * week, self._shorter[some] * week
        change, weight = as_float64(sources.column("change_rate")), as_float64(sources.column("importance"))
        saving = np.empty((len(some), len(sources)))
        for k, (one, less) in enumerate(zip(gap, delta, strict=True)):
            if isinstance(self.objective, CurveObjective):
                slope = weight * change * cast("Array", self.objective.change_slope(change * (0.5 * one)))
            else:
                assert numerics is not None, "a declared cost has no curve"
                slope = (2.0 / one) ** 3 * numerics.curvature(np.full(len(sources), 2.0 / one))
            saving[k] = less * slope
        return 1.0 / gap, saving

    def hull(self, numerics: Numerics, sources: Sources) -> Numerics:
        """Return the hull's numerics, or the objective's where nothing is saved."""
        if isinstance(numerics, MixedNumerics):
            silent = self.hull(numerics.silent_sources, sources)
            if silent is numerics.silent_sources:
                return numerics
            return MixedNumerics(numerics.signalled, silent, numerics.signalled_sources)
        rate, saving = self.points(sources, numerics)
        if not len(rate):
            return numerics
        curved = isinstance(self.objective, CurveObjective)
        ends = self._table(sources) if curved and len(sources) >= MANY else None
        return lower_hull(numerics, rate, saving, sources.min_rate, sources.max_rate, ends)

    def _table(self, sources: Sources) -> Ends:
        """Return where tangents touch the curve, from a table over change rates.

        Importance is a factor of costs, so that rates depend on the change rate alone.
        """
        logs = np.log(as_float64(sources.column("change_rate")))
        knots = np.linspace(float(np.min(logs)) - 1e-9, float(np.max(logs)) + 1e-9, KNOTS)
        typical = Sources(np.exp(knots), time_unit=sources.time_unit)
        rate, saving = self.points(typical)
        ends = tangent_ends(self.kernel(typical), rate, saving)
        with np.errstate(all="ignore"):
            return Ends(*(np.exp(interpolated(logs, knots, np.log(one))) for one in ends))

    def per_source(self, rate: Expression, sources: Sources) -> tuple[Expression, list[Expression]]:
        """Declare the hull, in parts that are its arcs and segments."""
        found = self.hull(self.kernel(sources), sources)
        if not isinstance(found, HullNumerics):
            declared = self.objective.per_source(rate, sources)
            return declared if isinstance(declared, tuple) else (declared, [])
        return declared_hull(self._curved(), found, rate, sources)

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return a well-conditioned cone form of the total, up to a constant."""
        found = self.hull(self.kernel(sources), sources)
        if not isinstance(found, HullNumerics):
            return self.objective.cone_form(y, sources, typical)
        return hull_cone_form(self._curved(), found, y, sources, typical)

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return the objective's own: signalled sources have no phase."""
        return self.objective.signalled_cone_form(y, sources, typical)

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare the objective of signalled sources, which have no phase."""
        return self.objective.signalled_per_source(rate, sources)

    def curve(self, sources: Sources) -> Curve:
        """Return the objective's own cost curve, at random phases."""
        return self._curved().curve(sources)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the numerics at random phases."""
        return self._curved().kernel(sources)

    def signalled_kernel(self, sources: Sources) -> Kernel | None:
        """Return the numerics of announced changes."""
        return self.objective.signalled_kernel(sources)

    def refuses_signals(self) -> str | None:
        """Return why the objective has no signalled sources, or None."""
        return self.objective.refuses_signals()

    def take(self, index: Index) -> PhasedObjective:
        """Return the objective for some of the sources."""
        return PhasedObjective(self.objective.take(index), self.profile, self.load_limit)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the value in the declared sense from the cost."""
        return self.objective.value_from_cost(cost, sources)

    def _curved(self) -> CurveObjective:
        """Return the objective, which must have a curve."""
        if not isinstance(self.objective, CurveObjective):
            raise ObjectiveError(
                f"good phases of {self.objective!r} have numerics and no declared form. Use fo.solve, or no "
                "profile."
            )
        return self.objective


def why_no_phases(objective: Objective) -> str | None:
    """Return why good phases do not matter to an objective, or None."""
    name = type(objective).__name__
    if not isinstance(objective, CurveObjective):
        if objective.penalty_of != "changes":
            return (
                f"the cost of {name} is declared as no function of the mean number of changes, which tells "
                'what good phases save. Set penalty_of = "changes" if it is one, or pass no profile.'
            )
    elif objective.change_slope(np.ones(1)) is None:
        return (
            f"the cost of {name} is no function of the mean number of changes, so that nothing tells what "
            "good phases save. Pass BinaryFreshness, HarmonicStaleness or AccumulatedDelay, or no profile."
        )
    if objective.refresh is not Refresh.PERIODIC:
        return (
            f"{name} has {objective.refresh.value} refreshes, which have no phase in the week. Pass "
            "refresh=Refresh.PERIODIC, or no profile."
        )
    return None


def phased(objective: Objective, profile: Profile, load_limit: float) -> Objective:
    """Return an objective with good phases, itself where these save nothing.

    - raises ObjectiveError, SourceDataError: as `PhasedObjective` does.
    """
    made = PhasedObjective(plain(objective), profile, load_limit)
    return made if made.saves else plain(objective)


def plain(objective: Objective) -> Objective:
    """Return the objective passed to `Problem`, without phases."""
    return objective.objective if isinstance(objective, PhasedObjective) else objective

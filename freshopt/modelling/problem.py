"""`Problem`: a separable convex program over refresh rates.

minimise Σ w_k J_k(ρ_k)   subject to   Σ cost_k ρ_k ≤ bandwidth,  lo_k ≤ ρ_k ≤ hi_k,  Σ_{k∈host} cost_k ρ_k ≤
L_host

Feasibility is checked by arithmetic; nothing is solved here. The dual variables of bandwidth and host limits
are the prices of a `Solution`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.autodiff.compiler import UnknownAtomError, compile_expression
from freshopt.cvx import Expression, cp
from freshopt.errors import InfeasibleProblemError, ObjectiveError, SourceDataError, list_offenders
from freshopt.formatting import count
from freshopt.modelling.declaration import declare, declare_total, name_of
from freshopt.modelling.derived_kernel import DerivedNumerics
from freshopt.modelling.domain_check import require_defined
from freshopt.modelling.host_limits import HostLimits
from freshopt.modelling.kernel import Kernel, MixedNumerics, Numerics
from freshopt.modelling.matched_rates import Estimates, matched_rates
from freshopt.modelling.objective import Objective, require_discipline
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, is_scalar, read_only, total
from freshopt.numerics.frozen_arrays import frozen_arrays

# Sums of any length here are correct to a few ulp; so are constraints.
FEW_ULP = 8 * np.finfo(np.float64).eps


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Problem:
    """Separable convex program under bandwidth, bounds and host limits.

    It is frozen; `fo.solve` solves it.

    Parameters
    ----------
    objective : Objective
    sources : Sources
    bandwidth : float
        Total refreshes (more exactly, refresh cost) per time unit, > 0.
    host_limits : mapping of host to float, optional
        Bandwidth each host may take; hosts left out have no limit.

    Attributes
    ----------
    lower, upper : ndarray, shape (n,)
        Bounds on the rates; a signalled source cannot be refreshed more often than it changes.
    numerics : Numerics or None
        Cost, marginal and inverse marginal per source; None if an atom of the declared objective is unknown.
    unknown_atom : str
        Why `numerics` is None, else empty.

    Raises
    ------
    InfeasibleProblemError
        If the bounds need more than the bandwidth or a host limit, or allow no finite cost.
    ObjectiveError
        If the declared objective is refused, or does not cover signalled sources.

    Notes
    -----
    The problem of [1]_ Problem 1 and its relatives; with signalled sources [1]_ Problem 3, under one price.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.

    Examples
    --------
    >>> import freshopt as fo
    >>> fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    Problem(AccumulatedDelay(refresh=Refresh.POISSON), n=2, bandwidth=3 per day)
    """

    objective: Objective
    sources: Sources
    bandwidth: float
    hosts: HostLimits
    lower: Array
    upper: Array
    numerics: Numerics | None
    unknown_atom: str

    def __init__(
        self,
        objective: Objective,
        sources: Sources,
        bandwidth: float,
        host_limits: Mapping[Any, float] | None = None,
    ) -> None:
        if not isinstance(objective, Objective):
            raise ObjectiveError(
                f"{objective!r} is not an Objective instance. Pass one, such as HarmonicStaleness()."
            )
        if not isinstance(sources, Sources):
            raise SourceDataError(
                f"{type(sources).__name__} is not Sources. Build fo.Sources(change_rate=...)."
            )
        require_discipline(objective)
        numerics, unknown_atom = _numerics(objective, sources)
        upper = sources.max_rate
        if bool(np.any(sources.signalled)):
            capped = np.where(sources.signalled, np.minimum(upper, sources.change_rate), upper)
            upper = read_only(capped)
        fields = {
            "objective": objective,
            "sources": sources,
            "bandwidth": _bandwidth(bandwidth),
            "hosts": HostLimits.of(sources, host_limits),
            "lower": sources.min_rate,
            "upper": upper,
            "numerics": numerics,
            "unknown_atom": unknown_atom,
        }
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        self._require_room()
        self._require_domain()

    def __repr__(self) -> str:
        """Return one line: objective, size and bandwidth."""
        limited = len(self.hosts)
        hosts = f", {count(limited, 'host limit', 'd')}" if limited else ""
        unit = self.sources.time_unit
        bandwidth = f"bandwidth={self.bandwidth:g} per {unit}"
        return f"Problem({self.objective!r}, n={len(self.sources)}, {bandwidth}{hosts})"

    @property
    def host_limits(self) -> dict[Any, float]:
        """Limits per host, as given."""
        return dict(zip(self.hosts.names, self.hosts.limits.tolist(), strict=True))

    def with_bandwidth(self, bandwidth: float) -> Problem:
        """Return the same problem with another bandwidth.

        What was prepared is shared.

        Raises
        ------
        InfeasibleProblemError
            If the lower bounds need more.
        """
        other = object.__new__(Problem)
        for key in Problem.__slots__:
            object.__setattr__(other, key, getattr(self, key))
        object.__setattr__(other, "bandwidth", _bandwidth(bandwidth))
        other._require_room()
        other._require_domain()
        return other

    def with_estimates(self, estimates: Estimates) -> Problem:
        """Return the same problem with estimated change rates.

        Parameters
        ----------
        estimates : Estimates
            A fitted estimator of `freshopt.estimators`, or anything with ``sources_``, ``change_rate_`` and
            ``time_unit_``. Sources are matched by name, units converted; others in the log do not matter.

        Raises
        ------
        SourceDataError
            If a source has no estimate, or one that is 0, infinite or not a number; names the source.
        InfeasibleProblemError
            If the bounds of signalled sources do not fit their new change rates.

        Examples
        --------
        >>> import freshopt as fo
        >>> log = fo.CrawlLog(source=["a"] * 4, time=[0, 1, 2, 4], changed=[0, 1, 0, 1])
        >>> guess = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources(1.0, name=["a"]), bandwidth=2.0)
        >>> guess.with_estimates(fo.estimators.MaximumLikelihood(smoothing=0).fit(log)).sources
        Sources(n=1, change_rate=0.9406 per day, importance=1)
        """
        return self.with_change_rate(matched_rates(self.sources, estimates))

    def with_change_rate(self, change_rate: npt.ArrayLike) -> Problem:
        """Return the same problem with other change rates.

        They are per time unit, and everything is checked anew.
        """
        sources = self.sources.with_change_rate(change_rate)
        return Problem(self.objective, sources, self.bandwidth, self.host_limits or None)

    def to_cvxpy(self) -> Expression:
        """Return the declared problem as a `cvxpy.Problem`.

        It has the variable "rate" and labelled constraints.

        It is for inspection, and for solving where the data are well scaled and the cell needs few cones
        (periodic harmonic and age do not); `solvers.Conic` rescales it
        first.

        Examples
        --------
        >>> import freshopt as fo
        >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
        >>> program = problem.to_cvxpy()
        >>> [variable.name() for variable in program.variables()], round(float(program.solve()), 5)
        (['rate'], 3.0)
        """
        rate = cp.Variable(len(self.sources), nonneg=True, name="rate")
        total_value, cones = declare_total(self.objective, rate, self.sources)
        goal = cp.Minimize(total_value) if self.objective.sense == "minimise" else cp.Maximize(total_value)
        return cp.Problem(goal, [*cones, *self.constraints_on(rate)])

    def constraints_on(self, rate: Expression) -> list[Expression]:
        """Return the constraints on an affine `rate` as CVXPY constraints.

        Bandwidth, bounds and host limits, labelled.
        """
        cost = self.sources.refresh_cost
        constraints: list[Expression] = [(cost @ rate <= self.bandwidth).set_label("bandwidth")]
        if bool(np.any(self.lower > 0.0)):
            constraints.append((rate >= np.array(self.lower)).set_label("min_rate"))
        capped = np.flatnonzero(np.isfinite(self.upper))
        if len(capped):
            constraints.append((rate[capped] <= self.upper[capped]).set_label("max_rate"))
        for code, (name, limit) in enumerate(self.host_limits.items()):
            members = np.flatnonzero(self.hosts.codes == code)
            constraints.append((cost[members] @ rate[members] <= limit).set_label(f"host {name}"))
        return constraints

    def _require_domain(self) -> None:
        """Raise ObjectiveError where the objective is undefined.

        It must have a value at rates within the bounds and the bandwidth.
        """
        n, signalled, numerics = len(self.sources), self.sources.signalled, self.numerics
        silent = numerics.silent_sources if isinstance(numerics, MixedNumerics) else numerics
        announced = numerics.signalled_sources if isinstance(numerics, MixedNumerics) else numerics
        for method, chosen, own in (
            (self.objective.per_source, ~signalled, silent),
            (self.objective.signalled_per_source, signalled, announced),
        ):
            if bool(np.any(chosen)) and (own is None or isinstance(own, DerivedNumerics)):
                rate = cp.Variable(n, nonneg=True, name="rate")
                declaration = declare(self.objective, method, rate, self.sources)
                where = name_of(self.objective, method)
                highest = np.minimum(self.upper, self.bandwidth / self.sources.refresh_cost)
                typical = np.clip(self.bandwidth / total(self.sources.refresh_cost), self.lower, highest)
                points = {"min_rate": self.lower, "max_rate": highest, "bounds": typical}
                require_defined(declaration, rate, own, chosen, points, self.sources, where)

    def _require_room(self) -> None:
        """Raise InfeasibleProblemError if no rates are feasible, by arithmetic."""
        unit, lower = self.sources.time_unit, self.lower
        self._require_open()
        if is_scalar(lower) and lower[0] == 0.0:
            return
        crossed = np.flatnonzero(lower > self.upper)
        if len(crossed):
            where = list_offenders(
                f"{self.sources.label(k)}: {lower[k]:g} > {self.upper[k]:g}" for k in crossed
            )
            raise InfeasibleProblemError(
                f"min_rate exceeds the change rate of signalled sources {where}. Lower min_rate: a "
                f"signalled source is refreshed at most once per change."
            )
        needs = [
            ("bandwidth", self.bandwidth, total(self.sources.refresh_cost * lower), int(np.argmax(lower)))
        ]
        host_needs = self.hosts.totals(self.sources.refresh_cost * lower)
        for k in np.flatnonzero(host_needs > self.hosts.limits * (1 + FEW_ULP)):
            members = np.flatnonzero(self.hosts.codes == k)
            largest = int(members[np.argmax(lower[members])])
            needs.append(
                (f"the limit of host {self.hosts.names[k]!r}", self.hosts.limits[k], host_needs[k], largest)
            )
        for what, available, needed, largest in needs:
            if needed > available * (1 + FEW_ULP):
                named = f"{self.sources.label(largest)} {lower[largest]:g}"
                raise InfeasibleProblemError(
                    f"lower bounds need {needed:.6g} refreshes/{unit} but {what} is {available:.6g} (short "
                    f"by {needed - available:.3g}). Raise it to >= {needed:.6g} or lower min_rate "
                    f"(largest: {named})."
                )

    def _require_open(self) -> None:
        """Raise InfeasibleProblemError where max_rate 0 costs infinitely much."""
        if is_scalar(self.upper) and self.upper[0] > 0.0:
            return
        closed = np.flatnonzero(self.upper == 0.0)
        if len(closed) and self.numerics is not None:
            costs = self.numerics.take(closed).cost(np.zeros(len(closed)))
            unbounded = closed[~np.isfinite(costs)]
            if len(unbounded):
                raise InfeasibleProblemError(
                    f"max_rate is 0 for {list_offenders(map(self.sources.label, unbounded))}, whose cost is "
                    f"infinite when never refreshed. Drop these sources or set their importance to 0."
                )


def _bandwidth(value: float) -> float:
    try:
        bandwidth = float(value)
    except (TypeError, ValueError, OverflowError):
        raise SourceDataError(f"bandwidth {value!r} is not a number. Pass refreshes per time unit.") from None
    if not SMALLEST <= bandwidth <= LARGEST:
        raise SourceDataError(f"bandwidth is {bandwidth:g}. It must be > 0 (at most {LARGEST:g}).")
    return bandwidth


def _numerics(objective: Objective, sources: Sources) -> tuple[Numerics | None, str]:
    """Return the numerics of the problem's sources.

    They come from kernels where there are any, else they are derived.
    """
    signalled = sources.signalled
    any_signalled = bool(signalled[0]) if is_scalar(signalled) else bool(np.any(signalled))
    refusal = objective.refuses_signals() if any_signalled else None
    if refusal is not None:
        first = sources.label(int(np.flatnonzero(signalled)[0]))
        raise ObjectiveError(f"{first} is signalled, but {refusal}. Pass signalled=False for these sources.")
    try:
        silent = None if bool(np.all(signalled)) else _kind(objective, sources, signalled=False)
        announced = _kind(objective, sources, signalled=True) if any_signalled else None
    except UnknownAtomError as error:
        return None, str(error)
    if silent is None or announced is None:
        return silent or announced, ""
    return MixedNumerics(signalled, silent, announced), ""


def _trusted(objective: Objective, *, signalled: bool) -> bool:
    """Return whether a declaration beside a kernel needs no check.

    Tests checked it, or there is none.
    """
    name = "signalled_per_source" if signalled else "per_source"
    named = type(objective).__module__.startswith("freshopt.problems.")
    return named or getattr(Objective, name) is getattr(type(objective), name)


def _kind(objective: Objective, sources: Sources, *, signalled: bool) -> Kernel | DerivedNumerics:
    """Return the numerics of one kind of source.

    They are of full length n: the kernel, or derived from the declaration.
    """
    kernel = (objective.signalled_kernel if signalled else objective.kernel)(sources)
    method = objective.signalled_per_source if signalled else objective.per_source
    if kernel is not None and _trusted(objective, signalled=signalled):
        return kernel
    rate = cp.Variable(len(sources), nonneg=True, name="rate")
    declaration = declare(objective, method, rate, sources)
    if kernel is not None:
        return kernel
    if declaration.constraints:
        raise ObjectiveError(
            f"{name_of(objective, method)} returns auxiliary constraints but there is no kernel. Write "
            f"{'signalled_' if signalled else ''}kernel(sources): value, marginal and inverse marginal."
        )
    sign = 1.0 if objective.sense == "minimise" else -1.0
    node = compile_expression(declaration.expression, rate)
    return DerivedNumerics(node, sign, sources.change_rate)

"""`Problem`: a separable convex program over refresh rates.

minimise Σ w_k J_k(ρ_k)   subject to   Σ cost_k ρ_k ≤ bandwidth,  lo_k ≤ ρ_k ≤ hi_k,  Σ_{k∈host} cost_k ρ_k ≤
L_host

Feasibility is checked by arithmetic; nothing is solved here. The dual variables of bandwidth and host limits
are the prices of a `Solution`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.cvx import Expression, cp
from freshopt.errors import (
    ObjectiveError,
    SourceDataError,
    expect,
    shortened,
)
from freshopt.formatting import count
from freshopt.modelling.bounds_check import FEW_ULP as FEW_ULP
from freshopt.modelling.bounds_check import require_room
from freshopt.modelling.changed_problem import changed_problem
from freshopt.modelling.constraints.charged_once import as_charged, charged_once, expression_of
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.limit_changes import constraint_with_limit, unknown_limit
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.usages import Usage
from freshopt.modelling.declaration import declare_total
from freshopt.modelling.declared_constraints import Written, as_constraints, declared, labelled
from freshopt.modelling.domain_check import require_domain
from freshopt.modelling.fetches.conditional_fetches import (
    UNKNOWN,
    PerBandwidth,
    sources_per_bandwidth,
    used_by_source,
)
from freshopt.modelling.general_program import general_program
from freshopt.modelling.host_limits import HostLimits
from freshopt.modelling.matched_rates import Estimates, matched_rates
from freshopt.modelling.objective import (
    Objective,
    Refresh,
    as_objective,
    require_discipline,
    require_requests,
)
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import PhasedObjective, Profile, phased
from freshopt.modelling.short_form import NAMES, ShortForm, short_form
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, as_number, extremes, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.renamed import keywords
from freshopt.separable.bundles import Bundles
from freshopt.separable.kernel import Numerics
from freshopt.separable.program import Program
from freshopt.units import bandwidth_of

_MINIMAX = "the worst of several groups is no sum over sources."


@keywords()
@frozen_value(init=False, repr=False)
class Problem:
    """Separable convex program under bandwidth, bounds and host limits.

    It is frozen; `fo.solve` solves it.

    Parameters
    ----------
    objective : Objective or str
        By name, such as "binary", "age" or "deadline:2d", it is of periodic refreshes where it has a choice.
    sources : Sources
    bandwidth : float or str, optional
        Total refreshes (more exactly, refresh cost) per time unit, > 0; or with its unit, such as "200/day".
        Optional where constraints are declared; the short way to say ``fo.Budget(bandwidth)``.
    host_limits : mapping of host to float or str, optional
        Bandwidth each host may take; hosts left out have no limit. The short way to say
        ``fo.Budget(host_limits, by="host", name="host")``.
    profile : WeeklyProfile, optional
        When in the week the sources change. Sources may then be refreshed at good phases, at gaps of whole
        weeks or whole fractions of one: where that pays, the cost of such a rate is less
        (`freshopt.modelling.phased_objective`).
    load_limit : float
        Largest load at any time of the week over the mean load, of good phases; at 1 nothing is saved.
    constraints : list of constraints, or callable, optional
        `Budget`, `Nested`, `Target`, `Tied` and `Ratio`; or functions of the rate, a CVXPY variable of shape
        (n,), that return CVXPY inequalities.

    Attributes
    ----------
    lower, upper : ndarray, shape (n,)
        Bounds on the rates; a signalled source cannot be refreshed more often than it changes, one that is
        refreshed on request not more often than it is requested.
    numerics : Numerics or None
        Cost, marginal and inverse marginal per source; None if an atom of the declared objective is unknown.
    unknown_atom : str
        Why `numerics` is None, else empty.
    constraints : tuple
        As they were declared.
    labels : tuple of str
        Of the bandwidth and of the host limits, in prices and messages.
    short : tuple of bool
        Whether the bandwidth, and host limits, were given the short way and not among the constraints.
    bundles : Bundles or None
        Tied sources.
    couplings : tuple of str
        Why constraints have no rows, one sentence each; such a problem is solved by `Conic` and not proved.
    usages : tuple of Usage
        Sums that have a cost (`Priced`), each a further variable of the program.
    program : Program or None
        The general form; None where bandwidth, bounds and host limits are all.
    per_bandwidth : Problem or None
        Of fetches that cost what they bring (``Sources(changed_cost=...)``), the problem over the bandwidth
        that each source uses; it has the numerics, and `numerics` is None.

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
    >>> fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), fo.Sources([1.0, 4.0]), bandwidth=3.0)
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
    constraints: tuple[Constraint | Written, ...]
    labels: tuple[str, str]
    short: tuple[bool, bool]
    bundles: Bundles | None
    couplings: tuple[str, ...]
    usages: tuple[Usage, ...]
    program: Program | None
    per_bandwidth: Problem | None

    def __init__(
        self,
        objective: Objective | str,
        sources: Sources,
        bandwidth: float | str | None = None,
        host_limits: Mapping[Any, float | str] | None = None,
        constraints: object = (),
        *,
        profile: Profile | None = None,
        load_limit: float = 2.0,
    ) -> None:
        if not isinstance(sources, Sources):
            raise SourceDataError(
                f"{type(sources).__name__} is not Sources. Build fo.Sources(change_rate=...)."
            )
        objective = as_objective(objective, sources.time_unit)
        require_discipline(objective)
        require_requests(objective, sources)
        if profile is not None:
            objective = phased(objective, profile, load_limit)
        given = as_constraints(constraints)
        found = declared(given, sources) if given else None
        hosts = HostLimits.of(sources, host_limits)
        most = None if bandwidth is None else bandwidth_of(bandwidth, sources.time_unit)
        short = ShortForm(most, hosts, (), NAMES)
        if found is not None:
            short = short_form(found, sources, short.bandwidth, hosts)
        worst = objective if isinstance(objective, Worst) else None
        if sources.changed_cost is not None:
            if given or profile is not None:
                raise ObjectiveError(
                    "fetches that cost what they bring have no answer under a profile or constraints beside "
                    "bandwidth, bounds and host limits. Drop changed_cost, or these."
                )
            numerics, unknown_atom = None, UNKNOWN
        else:
            numerics, unknown_atom = (None, _MINIMAX) if worst else numerics_of(objective, sources)
        lower, upper = sources.min_rate, sources.max_rate
        if extremes(sources.signalled)[1]:
            capped = np.where(sources.signalled, np.minimum(upper, sources.change_rate), upper)
            upper = read_only(capped)
        if objective.refresh is Refresh.ON_REQUEST and sources.request_rate is not None:
            upper = read_only(np.minimum(upper, sources.request_rate))
        if found is not None and found.bounded:
            lower, upper = np.maximum(lower, found.lower), np.minimum(upper, found.upper)
            # Bounds that touch may cross by rounding of a row's limit over its coefficient.
            upper = np.where((upper < lower) & (upper >= lower * (1.0 - FEW_ULP)), lower, upper)
        fields = {
            "objective": objective,
            "sources": sources,
            "bandwidth": math.inf if short.bandwidth is None else short.bandwidth,
            "hosts": short.hosts,
            "lower": lower,
            "upper": upper,
            "numerics": numerics,
            "unknown_atom": unknown_atom,
            "constraints": given,
            "labels": short.labels,
            "short": (bandwidth is not None, bool(host_limits)),
            "bundles": None if found is None else found.bundles,
            "couplings": () if found is None else found.couplings,
            "usages": () if found is None else found.usages,
            "program": None,
            "per_bandwidth": None,
        }
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        if sources.changed_cost is not None:
            own, twin = sources_per_bandwidth(objective, sources, lower, upper)
            object.__setattr__(self, "per_bandwidth", Problem(own, twin, most, host_limits))
            return
        require_room(self)
        if worst is not None and found is not None and found.usages:
            raise ObjectiveError(f"Worst has no cost to add {found.usages[0].name} to. Bound it by a Budget.")
        general = found is not None and (short.rest or found.bundles or found.couplings or found.usages)
        if isinstance(objective, PhasedObjective) and (general or (found is not None and found.bounded)):
            raise ObjectiveError(
                "constraints beside bandwidth, bounds and host limits are not solved with a profile. Drop "
                "profile= or constraints=."
            )
        linear = isinstance(objective, Spend)
        if worst is not None or linear or general or short.bandwidth is None:
            program = general_program(self, short.rest, worst, once=found is not None and found.once)
            object.__setattr__(self, "program", program)
        if worst is None and not linear:
            require_domain(self)

    def __repr__(self) -> str:
        limited = len(self.hosts)
        parts = [repr(self.objective), f"n={len(self.sources)}"]
        if math.isfinite(self.bandwidth):
            parts.append(f"bandwidth={self.bandwidth:g} per {self.sources.time_unit}")
        if limited:
            parts.append(count(limited, "host limit", "d"))
        if self.constraints and self.program is not None:
            parts.append(count(len(self.constraints), "constraint", "d"))
        return f"Problem({', '.join(parts)})"

    @property
    def host_limits(self) -> dict[Any, float]:
        """Limits per host, as given."""
        return dict(zip(self.hosts.names, self.hosts.limits.tolist(), strict=True))

    def used_by_source(self, rates: Array) -> Array:
        """Return the bandwidth that each source uses at its rate, shape (n,).

        It is c₀ρ; of fetches that cost what they bring c₀ρ + c₁Δ·F(ρ), F the share of time that the copy is
        fresh.

        Examples
        --------
        >>> import freshopt as fo
        >>> sources = fo.Sources(change_rate=[1.0, 4.0], refresh_cost=1.0, changed_cost=10.0)
        >>> problem = fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth=12.0)
        >>> problem.used_by_source(np.array([1.0, 4.0]))
        array([ 6., 24.])
        """
        return used_by_source(self.objective, self.sources, rates)

    def with_bandwidth(self, bandwidth: float | str) -> Problem:
        """Return the same problem with another bandwidth.

        What was prepared is shared.

        Raises
        ------
        InfeasibleProblemError
            If the lower bounds need more.
        """
        number = bandwidth_of(bandwidth, self.sources.time_unit)
        if self.constraints:
            if self.short[0] or math.isinf(self.bandwidth):
                return self.restated(bandwidth=number)
            return self.with_limit(self.labels[0], number)
        own = None if self.per_bandwidth is None else self.per_bandwidth.with_bandwidth(number)
        return changed_problem(self, bandwidth=number, per_bandwidth=own)

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
        >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
        >>> guess = fo.Problem(objective, fo.Sources(1.0, names=["a"]), bandwidth=2.0)
        >>> guess.with_estimates(fo.estimators.MaximumLikelihood(smoothing=0).fit(log)).sources
        Sources(n=1, change_rate=0.9406 per day, importance=1)
        """
        return self.with_change_rate(matched_rates(self.sources, estimates))

    def with_change_rate(self, change_rate: npt.ArrayLike) -> Problem:
        """Return the same problem with other change rates.

        They are per time unit, and everything is checked anew.
        """
        sources = self.sources.with_change_rate(change_rate)
        return self.restated(sources)

    def with_limit(self, label: str, value: float) -> Problem:
        """Return the same problem with another limit of one constraint.

        Parameters
        ----------
        label : str
            As in ``solution.prices``: "name", or "name[group]" of a constraint by group. A number that holds
            for each group on its own is changed for all of them by "name".
        value : float
            In the unit in which it was declared.

        Raises
        ------
        SourceDataError
            If no constraint is so labelled, or it has no limit that is declared: a function of the rate holds
            its own numbers, and a ratio or a tie is no limit.
        InfeasibleProblemError
            If bounds alone exclude the new limit.

        Examples
        --------
        >>> import freshopt as fo
        >>> fresh = fo.Target(fo.problems.BinaryFreshness(fo.Refresh.POISSON), at_least=0.5, name="fresh")
        >>> problem = fo.Problem(fo.Spend(), fo.Sources([1.0, 4.0]), constraints=[fresh])
        >>> round(fo.solve(problem.with_limit("fresh", 0.75)).value, 6)
        13.0
        """
        expect(label, str, "label", "Pass the label of a constraint, as in solution.prices")
        number = as_number(value, f"the limit of {shortened(label)}", "Pass a number.")
        name, hosts = self.labels
        if label == name and self.short[0]:
            return self.with_bandwidth(number)
        own = next((host for host in self.hosts.names if f"{hosts}[{host}]" == label), None)
        if own is not None and self.short[1]:
            limits = {**self.host_limits, own: number}
            short = self.bandwidth if self.short[0] else None
            return Problem(self.objective, self.sources, short, limits, self.constraints)
        for place, one in enumerate(self.constraints):
            if isinstance(one, Constraint):
                changed = constraint_with_limit(one, label, number, self.sources)
                if changed is not None:
                    others = (*self.constraints[:place], changed, *self.constraints[place + 1 :])
                    return self.restated(constraints=others)
        known = self.row_labels
        if label in known:
            raise SourceDataError(
                f"the limit of {shortened(label)} is a number of the function that declares it. Change it "
                "there, and declare the problem anew."
            )
        raise unknown_limit(label, known)

    @property
    def row_labels(self) -> tuple[str, ...]:
        """Label of every limit, in the order of ``solution.prices``."""
        if self.program is not None:
            return self.program.rows.labels
        name, hosts = self.labels
        return (name, *(f"{hosts}[{host}]" for host in self.hosts.names))

    def restated(
        self,
        sources: Sources | None = None,
        bandwidth: float | None = None,
        constraints: tuple[Constraint | Written, ...] | None = None,
        objective: Objective | None = None,
    ) -> Problem:
        """Return the same declaration with other parts, checked anew.

        Limits that were given the short way stay so, and all others are among the constraints.
        """
        short = self.bandwidth if bandwidth is None and self.short[0] else bandwidth
        limits = self.host_limits if self.short[1] else None
        given = self.constraints if constraints is None else constraints
        own = self.objective if objective is None else objective
        return Problem(own, self.sources if sources is None else sources, short, limits, given)

    def to_cvxpy(self) -> Expression:
        """Return the declared problem as a `cvxpy.Problem`.

        It has the variable "rate" and labelled constraints.

        It is for inspection, and for solving where the data are well scaled and the cell needs few cones:
        of periodic harmonic staleness and age CLARABEL's rates were 4 % off at 30 sources.
        `solvers.Conic` rescales it first, and `solvers.Conic().to_cvxpy(problem)` is what it then solves.

        Examples
        --------
        >>> import freshopt as fo
        >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
        >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
        >>> program = problem.to_cvxpy()
        >>> [variable.name() for variable in program.variables()], round(float(program.solve()), 5)
        (['rate'], 3.0)

        Of fetches that cost what they bring the variable is the fresh share f, "fresh", at the rate
        Δf/(1 − f) of Poisson refreshes; what has no such cone is refused.
        """
        if self.per_bandwidth is not None:
            return self._in_freshness(self.per_bandwidth)
        rate = cp.Variable(len(self.sources), nonneg=True, name="rate")
        constraints = self.constraints_on(rate)
        if isinstance(self.objective, Worst):
            total_value, cones = self.objective.declared_level(rate, self.sources)
        else:
            total_value, cones = declare_total(self.objective, rate, self.sources)
        total_value += expression_of(self, rate)
        goal = cp.Minimize(total_value) if self.objective.sense == "minimise" else cp.Maximize(total_value)
        return cp.Problem(goal, [*cones, *constraints])

    def _in_freshness(self, twin: Problem) -> Expression:
        """Return the problem over fresh shares under Poisson refreshes."""
        own, n = twin.objective, len(self.sources)
        if not isinstance(own, PerBandwidth):
            raise ObjectiveError(f"{own!r} is no function of the bandwidth used. Declare the problem anew.")
        fresh = cp.Variable(n, nonneg=True, name="fresh")
        declared, used = own.of_freshness(fresh)
        bounds = [own.fresh(bound) for bound in (self.lower, self.upper)]
        constraints = [c for c in twin.constraints_on(used) if c.label not in ("min_rate", "max_rate")]
        for label, one in (("min_rate", fresh >= bounds[0]), ("max_rate", fresh <= bounds[1])):
            constraints.append(one.set_label(label))
        goal = cp.Minimize if self.objective.sense == "minimise" else cp.Maximize
        return cp.Problem(goal(cp.sum(declared)), constraints)

    def constraints_on(self, rate: Expression) -> list[Expression]:
        """Return the constraints on an affine `rate` as CVXPY constraints.

        Bandwidth, bounds, host limits and declared constraints, labelled.
        """
        cost = self.sources.refresh_cost
        constraints: list[Expression] = []
        if self.short[0]:
            constraints.append((cost @ rate <= self.bandwidth).set_label(self.labels[0]))
        if bool(np.any(self.lower > 0.0)):
            constraints.append((rate >= np.array(self.lower)).set_label("min_rate"))
        capped = np.flatnonzero(np.isfinite(self.upper))
        if len(capped):
            constraints.append((rate[capped] <= self.upper[capped]).set_label("max_rate"))
        if self.short[1]:
            for code, (name, limit) in enumerate(self.host_limits.items()):
                members = np.flatnonzero(self.hosts.codes == code)
                label = f"{self.labels[1]}[{name}]"
                constraints.append((cost[members] @ rate[members] <= limit).set_label(label))
        written = 0
        priced: list[Expression] = []
        for one in as_charged(self.constraints, self.sources):
            if isinstance(one, Constraint):
                own = priced if isinstance(one, Priced) else constraints
                own += one.constraints_on(rate, self.sources)
            else:
                made = labelled(one, rate, written)
                written += len(made)
                constraints += made
        return [*charged_once(self, constraints, rate), *priced]

"""Conic: solve the declared CVXPY problem with a scaled cone solver.

Cone solvers stop at absolute tolerances near 1e-8 in the units they are given, so a declared problem whose
rates span decades is solved to few digits, whatever their status says. The remedy is to hand them a problem
whose solution is near one: a crude dual variable λ̂ (the bandwidth's price, to a factor of two) gives crude
best responses ρ̂; the variable is y = ρ/ρ̂, the bandwidth row is divided by B and the objective by λ̂B,
sources whose slope at a bound is ten times on the wrong side of the price are fixed there, and caps beyond 20
ρ̂ are left out (repairing restores them). Sources that pay less than a solver can see stay at their crude
rates, and what the solver leaves of a limit, or overruns, is settled by the sources inside their bounds.

The answer's own status is not evidence either way: rates are repaired and certified like every other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.cvx import Expression, cp, quiet
from freshopt.errors import ObjectiveError, SolverRefusedError, expect_settings, shortened
from freshopt.heavy import sparse
from freshopt.modelling.constraints.charged_once import expression_of
from freshopt.modelling.cost_curve import NOT_POISSON
from freshopt.modelling.declaration import declare_part, declare_total
from freshopt.modelling.failing_fetches import in_attempts, refused_attempts
from freshopt.modelling.fetches.conditional_fetches import PerBandwidth
from freshopt.modelling.objective import ConeForm, Objective, Refresh, counts_signals
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, BoolArray, IntArray, total
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.rows import RATE
from freshopt.solvers.water_filling import fill

# Those that come with freshopt or an extra of it. Any other that CVXPY has installed will do.
Offered: TypeAlias = Literal["CLARABEL", "ECOS", "SCS", "HIGHS"]
OFFERED: tuple[str, ...] = get_args(Offered)

# Caps beyond this many ρ̂ do not bind at a price within a factor of 2 of λ̂.
FAR = 20.0
# A solver may leave up to CLOSE of a limit that binds; rates may rise by up to FULL to use it up.
CLOSE, FULL = 1e-4, 0.01
# Sources stay at crude rates while their share of all that is paid, times the price's width, is below this.
NEGLIGIBLE = 1e-7
# A rate that rises more than this at a price 2.4 times lower jumps; powers rise by 2.4 at most.
JUMP = 4.0
# SCS at its settings leaves gaps of 2e-8 where 1e-6 in place of 1e-7 leaves 1e-6 (n = 1000).
SETTINGS: dict[str, dict[str, float]] = {"SCS": {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iters": 100_000}}
# Solvers of linear programs only.
LINEAR = {"HIGHS", "SCIPY", "GLOP", "PDLP", "CBC", "GLPK", "GLPK_MI"}


class Rung(NamedTuple):
    """One attempt of the ladder: backend and scaling.

    ``width`` is the relative accuracy of the crude price λ̂ (within a factor of 2 the scaling works);
    ``sure`` how many times a slope must be on the wrong side of λ̂ for its source to stay at a bound
    (complementary slackness with a margin).
    """

    backend: str
    width: float
    sure: float


class ScaledProgram(NamedTuple):
    """A problem as a well-scaled cone program.

    For a solver of one's own.

    - `program` cvxpy.Problem: Over the relative rates ρ/ρ̂ of the sources that the price leaves to it.
    - `rate` cvxpy.Expression (n,): The rates of all sources.
    - `unit`: What one unit of the program's objective is in the problem's. Sources that are held at a bound,
      and constants of the cost, are not in it.
    """

    program: Expression
    rate: Expression
    unit: float


@dataclass(frozen=True, slots=True)
class Conic:
    """Conic solver: CVXPY with a cone solver behind it.

    Parameters
    ----------
    backend : str
        A solver that CVXPY has installed: "CLARABEL", "SCS", "HIGHS", "MOSEK", "COPT", ... ECOS needs
        ``pip install "freshopt[ecos]"``; HIGHS solves linear programs only (piecewise linear costs).
    ladder : bool
        Whether to try again, with a sharper scaling and then with another solver, when an attempt ends
        without rates or its certified relative gap exceeds the tolerance. The note tells how many attempts
        it took and who answered.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([0.1, 1.0, 10.0]), bandwidth=2.0)
    >>> fo.solve(problem, Conic("CLARABEL")).certificate.relative_gap < 1e-6
    True
    """

    backend: Offered | str = "CLARABEL"
    ladder: bool = True
    named_by: ClassVar[str] = "backend"
    declared_constraints: ClassVar[bool] = True
    conditional_fetches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        expect_settings(self)
        # Offered ones are known without CVXPY, which takes a second to load.
        known = isinstance(self.backend, str) and (
            self.backend in OFFERED or self.backend in cp.installed_solvers()
        )
        if not known:
            names = ", ".join(dict.fromkeys([*OFFERED, *cp.installed_solvers()]))
            raise SolverRefusedError(
                f"backend {shortened(repr(self.backend))} is unknown, use one of {names}, or install it for "
                "CVXPY."
            )

    def supports(self, problem: Problem) -> str | None:
        """Return why the backend or the problem is unsupported, or None.

        Backends may be unknown, not installed, or too special for the problem.
        """
        declared = problem.objective.objective if isinstance(problem.objective, Worst) else problem.objective
        if type(declared).per_source is Objective.per_source:
            return f"{type(problem.objective).__name__} has numerics only, and declares no expression"
        if getattr(declared, "changes", None) is not None:
            return NOT_POISSON
        if isinstance(declared, PerBandwidth) and (refused := declared.without_cone()):
            return refused
        if counts_signals(declared) and bool(np.any(problem.sources.signalled)):
            return "the cost of its rule for signals is not declared, use the default solver"
        refused = refused_attempts(declared, problem.sources)
        if refused is not None:
            return refused
        windows = problem.sources.stale_while_revalidate is not None and not declared.window_cones
        if windows and declared.refresh is Refresh.ON_REQUEST:
            return "its cone form knows no stale-while-revalidate windows, use the default solver"
        if self.backend not in cp.installed_solvers():
            return f"{self.backend} is not installed, pip install 'freshopt[{self.backend.lower()}]'"
        try:
            program = problem.to_cvxpy()
        except ObjectiveError as error:  # the cost of a target, say, is not declared
            return str(error)
        if self.backend in LINEAR and not program.is_lp():
            return f"{self.backend} solves linear programs only, use CLARABEL"
        return _without_cone(program)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Scale, solve, repair and certify."""
        return certified_solution(
            self, problem, options, lambda problem, start: self._climb(problem, start, options)
        )

    def to_cvxpy(self, problem: Problem) -> ScaledProgram:
        """Return the scaled program that the first attempt hands to the solver.

        `Problem.to_cvxpy` is the problem as it is declared, in its own units; cone solvers lose digits or all
        of it where those span decades or a cell needs many cones.

        Raises
        ------
        SolverRefusedError
            If the problem is not supported, or if the bandwidth's price holds every source at a bound.

        Examples
        --------
        >>> import freshopt as fo
        >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC)
        >>> problem = fo.Problem(objective, fo.Sources([0.1, 1.0, 10.0]), bandwidth=2.0)
        >>> scaled = Conic().to_cvxpy(problem)
        >>> _ = scaled.program.solve(solver="CLARABEL")
        >>> fo.certify(problem, scaled.rate.value).relative_gap < 1e-6
        True
        """
        if (refused := self.supports(problem)) is not None:
            raise SolverRefusedError(f"{refused}.")
        scaling = _scaling(problem, self.rungs()[0], None)
        if not len(scaling.active):
            raise SolverRefusedError(
                "every source is held at a bound by the price, nothing is left to a cone program. Use the "
                "default solver."
            )
        y, program, scaling = _posed(problem, scaling)
        active = scaling.active
        spread = sparse.csr_matrix(
            (scaling.rates, (active, np.arange(len(active)))), (len(problem.sources), len(active))
        )
        return ScaledProgram(program, scaling.fixed + spread @ y, scaling.unit)

    def rungs(self) -> list[Rung]:
        """Return the attempts in their order."""
        first = Rung(self.backend, 0.7, 10.0)
        if not self.ladder:
            return [first]
        other = "ECOS" if self.backend == "CLARABEL" and "ECOS" in cp.installed_solvers() else "CLARABEL"
        others = [] if other == self.backend else [Rung(other, 0.7, 10.0), Rung(other, 0.05, 3.0)]
        return [first, Rung(self.backend, 0.05, 3.0), *others]

    def _climb(self, problem: Problem, start: float | None, options: SolveOptions) -> Answer:
        """Return the first certified answer, or the best one seen."""
        best, smallest, steps = Answer(None, status=Status.FAILED), np.inf, 0
        for attempt, rung in enumerate(self.rungs(), start=1):
            answer = _attempt(problem, rung, start)
            steps += answer.iterations
            told = f"{answer.note}" if attempt == 1 else f"{answer.note} (attempt {attempt})"
            if answer.rates is None:
                best = replace(best, note=told) if best.rates is None else best
                continue
            proof = certify(problem, answer.rates)
            if best.rates is None or proof.beyond_rounding < smallest:
                best, smallest = replace(answer, note=told), proof.beyond_rounding
            if options.met_by(proof) or problem.numerics is None:
                break
        return replace(best, iterations=steps)


class _Scaling(NamedTuple):
    """Scaling of the cone program's variable to the rates."""

    active: IntArray  # sources that take part
    rates: Array  # ρ̂ of those, > 0
    fixed: Array  # rate of every source that does not take part, 0 for the others
    unit: float  # λ̂B + Σ μ̂_h L_h, the dual value of the limits: the unit of the objective


def _attempt(problem: Problem, rung: Rung, start: float | None) -> Answer:
    scaling = _scaling(problem, rung, start)
    if not len(scaling.active):
        note = "Every source is held at a bound by the price; no cone program was needed."
        return Answer(scaling.fixed, note=note)
    y, program, scaling = _posed(problem, scaling)
    failure = _run(program, rung.backend)
    steps = int(program.solver_stats.num_iters or 0) if program.solver_stats is not None else 0
    if y.value is None or not bool(np.all(np.isfinite(y.value))):
        note = f"{rung.backend} ended {failure or program.status} without rates."
        return Answer(None, iterations=steps, status=Status.FAILED, note=note)
    rates = scaling.fixed.copy()
    rates[scaling.active] = np.maximum(y.value, 0.0) * scaling.rates
    restored = rates if problem.program is not None else _restore(problem, rates)
    return Answer(restored, iterations=steps, note=f"{rung.backend} said {program.status}.")


def _posed(problem: Problem, scaling: _Scaling) -> tuple[Expression, Expression, _Scaling]:
    """Return variable, program and the scaling that both have."""
    y = _relative_rates(scaling)
    try:
        return y, _program(problem, scaling, y), scaling
    except ValueError:
        # Of an objective with arrays of length n and a cone form, some of the sources cannot be declared.
        scaling = _whole(problem, scaling)
        y = _relative_rates(scaling)
        return y, _program(problem, scaling, y), scaling


def _scaling(problem: Problem, rung: Rung, start: float | None) -> _Scaling:
    """Return crude best responses, the active sources and the objective's unit."""
    n, numerics, cost = len(problem.sources), problem.numerics, problem.sources.refresh_cost
    everyone = np.arange(n)
    if problem.program is not None:
        even = _even_rates(problem)
        usual = problem.bundles is None and not problem.usages
        unit = abs(total(problem.program.cost(even))) if usual else 1.0
        return _Scaling(everyone, even, np.zeros(n), unit if 0.0 < unit < np.inf else 1.0)
    if numerics is None:
        equal = np.full(n, problem.bandwidth / total(cost))
        return _Scaling(everyone, equal, np.zeros(n), 1.0)
    crude = fill(problem, numerics, start, rung.width)
    price, rates, extra = crude.price or 0.0, crude.rates, np.array([*(crude.host_prices or {}).values()])
    unit = price * problem.bandwidth + float(np.dot(extra, problem.hosts.limits))
    if rates is None or not unit > 0.0:
        return _Scaling(everyone[:0], np.empty(0), np.array(problem.lower) if rates is None else rates, 1.0)
    paid = cost * (price + (problem.hosts.broadcast_to_sources(extra) if len(extra) else 0.0))
    stuck_low = numerics.marginal(np.array(problem.lower)) * rung.sure < paid
    stuck_high = numerics.marginal(np.array(problem.upper)) > rung.sure * paid
    if isinstance(numerics, DerivedNumerics):  # a user's objective may hold arrays of length n
        stuck_low = stuck_high = np.zeros(n, dtype=np.bool_)
    active = np.flatnonzero(~(stuck_low | stuck_high))
    fixed = np.where(stuck_low, problem.lower, np.where(stuck_high, problem.upper, 0.0))
    scale = rates[active]
    # Where the marginal is flat the rate jumps near λ̂, and a crude mixture of both sides is no scale: such
    # sources are seen from the upper side, those at 0 that may yet enter from the rate at a much lower price.
    above = np.minimum(
        numerics.inverse_marginal(paid / (1.0 + 2.0 * rung.width))[active], problem.upper[active]
    )
    scale = np.where(above > JUMP * scale, above, scale)
    entering = np.minimum(numerics.inverse_marginal(paid / rung.sure)[active], problem.upper[active])
    scale = np.where(scale > 0.0, scale, entering)
    scale = np.where((scale > 0.0) & np.isfinite(scale), scale, problem.bandwidth / total(cost))
    # Sources that together hardly count stay at their crude rates: below a solver's tolerance they are noise.
    weight = paid[active] * scale / unit
    order = np.argsort(weight)
    small = order[np.cumsum(weight[order]) <= NEGLIGIBLE / rung.width]
    fixed[active[small]] = rates[active[small]]
    kept = np.ones(len(active), dtype=np.bool_)
    kept[small] = False
    return _Scaling(active[kept], scale[kept], fixed, unit)


def _whole(problem: Problem, scaling: _Scaling) -> _Scaling:
    """Return the scaling with every source in the program."""
    n, even = len(problem.sources), problem.bandwidth / total(problem.sources.refresh_cost)
    rates = np.where(scaling.fixed > 0.0, scaling.fixed, even)
    rates[scaling.active] = scaling.rates
    return _Scaling(np.arange(n), rates, np.zeros(n), scaling.unit)


def _relative_rates(scaling: _Scaling) -> Expression:
    return cp.Variable(len(scaling.active), nonneg=True, name="relative_rate")


def _program(problem: Problem, scaling: _Scaling, y: Expression) -> Expression:
    """Return the scaled cone program over y = ρ/ρ̂."""
    active = scaling.active
    sources, cost = problem.sources.take(active), problem.sources.refresh_cost
    sense = cp.Minimize if problem.objective.sense == "minimise" else cp.Maximize
    if problem.program is not None:
        return _declared(problem, scaling, y, sense)
    value, constraints = _total(problem, scaling, y)
    room = problem.bandwidth - total(cost * scaling.fixed)
    used = sources.refresh_cost * scaling.rates
    constraints.append(used / problem.bandwidth @ y <= room / problem.bandwidth)
    low = np.flatnonzero(problem.lower[active] > 0.0)
    if len(low):
        constraints.append(y[low] >= problem.lower[active][low] / scaling.rates[low])
    near = np.flatnonzero(problem.upper[active] < FAR * scaling.rates)
    if len(near):
        constraints.append(y[near] <= problem.upper[active][near] / scaling.rates[near])
    taken = problem.hosts.totals(cost * scaling.fixed)
    for code, limit in enumerate(problem.hosts.limits):
        members = np.flatnonzero(problem.hosts.codes[active] == code)
        if len(members):
            constraints.append(used[members] / limit @ y[members] <= (limit - taken[code]) / limit)
    return cp.Problem(sense(value / scaling.unit), constraints)


def _declared(
    problem: Problem, scaling: _Scaling, y: Expression, sense: Callable[[Expression], Expression]
) -> Expression:
    """Return the scaled program of a problem with declared constraints."""
    rate = cp.multiply(scaling.rates, y)
    if isinstance(problem.objective, Worst):
        value, constraints = problem.objective.declared_level(rate, problem.sources)
    else:
        value, constraints = _total(problem, scaling, y)
    value = (value + expression_of(problem, rate)) / scaling.unit
    return cp.Problem(sense(value), [*constraints, *problem.constraints_on(rate)])


def _even_rates(problem: Problem) -> Array:
    """Return rates ∝ change rates that meet the limits on rates."""
    program = problem.program
    rates = np.array(problem.sources.scale)
    if program is None or problem.bundles is not None or problem.usages:
        return rates
    rows = program.rows
    linear = (
        np.bincount(rows.row, weights=(rows.kind != RATE) | (rows.coefficient < 0.0), minlength=len(rows))
        == 0.0
    )
    limited = linear & (rows.limits > 0.0)
    share = rows.used(rates)[limited] / rows.limits[limited]
    return rates / max(1.0, float(np.max(share, initial=0.0)))


def _total(problem: Problem, scaling: _Scaling, y: Expression) -> ConeForm:
    """Return the objective's total over the sources that take part."""
    objective, active = problem.objective, scaling.active
    kind = type(objective)
    if len(active) == len(problem.sources):
        return _value(objective, problem.sources, scaling.rates, y)
    if kind.take is Objective.take and kind.cone_form is Objective.cone_form:
        declared = declare_part(objective, cp.multiply(scaling.rates, y), problem.sources, active)
        if declared is not None:
            return declared, []
    return _value(objective.take(active), problem.sources.take(active), scaling.rates, y)


def _value(objective: Objective, sources: Sources, typical: Array, y: Expression) -> ConeForm:
    """Return the objective's total, as declared or in conditioned cone forms."""
    parts: list[Expression] = []
    constraints: list[Expression] = []
    for mask in (~sources.signalled, sources.signalled):
        k = np.flatnonzero(mask)
        if len(k):
            everyone = len(k) == len(mask)
            own = objective if everyone else objective.take(k)
            signalled = bool(sources.signalled[k[0]])
            own, some, share = in_attempts(own, sources if everyone else sources.take(k), signalled=signalled)
            form = own.signalled_cone_form if signalled else own.cone_form
            at = typical[k] if share is None else share * typical[k]
            made = form(y if everyone else y[k], some, at)
            if made is None:
                return declare_total(objective, cp.multiply(typical, y), sources)
            parts.append(made[0])
            constraints.extend(made[1])
    return sum(parts[1:], parts[0]), constraints


def _without_cone(program: Expression) -> str | None:
    """Return which own atom has no cone form, or None."""
    from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS

    own = (atom for atom in program.atoms() if atom.__module__.split(".")[0] != "cvxpy")
    name = next((atom.__name__ for atom in own if atom not in CANON_METHODS), None)
    return None if name is None else f"CVXPY knows no cone form of atom '{name}', use the default solver"


def _run(program: Expression, backend: str) -> str:
    """Solve the program; return the reason of an exception, or ""."""
    with quiet:
        try:
            program.solve(solver=backend, **SETTINGS.get(backend, {}))
        except cp.SolverError as error:
            return f"with an error ({error})"
    return ""


def _restore(problem: Problem, rates: Array) -> Array:
    """Make rates feasible and use up limits within solver accuracy.

    Only sources inside their bounds move. Repairing would scale all alike, and a source that its bound holds
    at 1e18 times the price, moved by 1e-16, would cost more than everything that the others gain.
    """
    hosts = problem.hosts
    rates = np.clip(rates, problem.lower, problem.upper)
    inner = (rates > problem.lower) & (rates < problem.upper)
    one = np.array([problem.bandwidth])
    if len(hosts):
        rates = _fitted(problem, rates, inner, hosts.limits, hosts.totals, hosts.broadcast_to_sources)
        slack = hosts.limits - hosts.totals(problem.sources.refresh_cost * rates)
        full = hosts.broadcast_to_sources((slack <= FULL * hosts.limits).astype(float)) > 0.0
        over = total(problem.sources.refresh_cost * rates) > problem.bandwidth
        inner = inner if over else inner & ~full
    return _fitted(
        problem, rates, inner, one, lambda a: np.array([total(a)]), lambda v: np.full(len(rates), v[0])
    )


def _fitted(
    problem: Problem,
    rates: Array,
    inner: BoolArray,
    limits: Array,
    totals: Callable[[Array], Array],
    spread: Callable[[Array], Array],
) -> Array:
    """Return rates that use up their groups' limits.

    Only sources inside their bounds move, and a group far below its limit stays.
    """
    cost = problem.sources.refresh_cost
    missing = limits - totals(cost * rates)
    missing = np.where(missing > CLOSE * limits, 0.0, missing)
    movable = np.where(inner, np.where(spread(missing) < 0.0, rates - problem.lower, rates), 0.0)
    room = totals(cost * movable)
    step = np.where(room > 0.0, missing / np.where(room > 0.0, room, 1.0), 0.0)
    return np.clip(rates + spread(np.clip(step, -1.0, FULL)) * movable, problem.lower, problem.upper)

"""`Sensitivity`: derivatives of an optimum with respect to its parameters.

Optimal rates ρ, multipliers λ and optimal value F* are functions of importances, change rates and limits.
Where no source just touches a bound and no row binds without being paid for, they are differentiable, and the
implicit function theorem gives their derivatives from the KKT conditions: one matrix in as many unknowns as
rows bind, and O(n) work for the rest, in both directions. `Sensitivity.jvp` pushes changes of parameters
forward, `Sensitivity.vjp` pulls weights on the answer back, as automatic differentiation does.

The value needs no matrix: by the envelope theorem dF*/db_j is minus the price of row j, and dF*/dw_k the cost
J_k(ρ_k) at the optimal rate.

`in_refresh_cost`: what the sources' refresh costs change in the KKT conditions.

They are coefficients of the bandwidth, of host limits and nested limits, of budgets without a cost of their
own, and of an objective that is the bandwidth itself.

References
----------
A. Agrawal, B. Amos, S. Barratt, S. Boyd, S. Diamond, J. Z. Kolter, "Differentiable convex optimization
layers", NeurIPS 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from freshopt.certificates.active_set import ActiveSet
from freshopt.certificates.kkt_system import KktSystem
from freshopt.certificates.parameter_derivatives import (
    Mean,
    ParameterDerivatives,
    in_change_rate,
    in_importance,
    means_of,
    moving_kinks,
)
from freshopt.errors import ObjectiveError, SourceDataError, list_offenders
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.charged_once import is_once
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.usages import variables_of
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.general_program import general_program
from freshopt.modelling.problem import Problem
from freshopt.modelling.spend import Spend
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_vector
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import weighted
from freshopt.separable.program import Program


def cost_rows(problem: Problem, program: Program) -> Mean:
    """Return the program's rows that add up the sources' own refresh costs."""
    place = {label: j for j, label in enumerate(program.rows.labels)}
    sources, (name, host_name) = problem.sources, problem.labels
    entries: list[tuple[IntArray, IntArray]] = []
    if name in place:
        every = np.arange(len(sources))
        entries.append((every, np.full(len(sources), place[name])))
    if len(problem.hosts):
        members = np.flatnonzero(problem.hosts.codes < len(problem.hosts))
        rows = np.array([place[f"{host_name}[{host}]"] for host in problem.hosts.names])
        entries.append((members, rows[problem.hosts.codes[members]]))
    for one in problem.constraints:
        if isinstance(one, Nested) or (isinstance(one, Budget) and one.cost is None):
            for block in one.blocks(sources):
                if block.name not in problem.labels:
                    rows = np.array([place[label] for label in block.labels])
                    entries.append((block.source, rows[block.row]))
    sign = np.array(program.rows.direction)
    for own in problem.usages:
        rows = np.array([place[label] for label in own.block.labels])
        sign[rows] = own.sign
        if any(
            isinstance(one, Priced) and one.label == own.name and one.budget.cost is None
            for one in problem.constraints
        ):
            entries.append((own.source, rows[own.row]))
    none = np.zeros(0, dtype=np.int64)
    source, row = (np.concatenate([none, *part]) for part in zip((none, none), *entries, strict=True))
    if problem.bundles is not None and is_once(problem.constraints):
        # Of a bundle's sources in a row the dearest is what it costs.
        key = row * np.int64(len(problem.bundles)) + problem.bundles.codes[source]
        order = np.lexsort((-sources.refresh_cost[source], key))
        kept = order[np.unique(key[order], return_index=True)[1]]
        source, row = source[kept], row[kept]
    return Mean(problem.objective, source, row, sign[row])


def in_refresh_cost(
    problem: Problem, program: Program, rates: Array, multipliers: Array
) -> ParameterDerivatives:
    """Return derivatives with respect to refresh costs."""
    rows, n = cost_rows(problem, program), len(rates)
    paid = np.bincount(rows.source, weights=multipliers[rows.row] * rows.share, minlength=n)
    own = float(isinstance(problem.objective, Spend))
    slope = (paid + own).astype(np.float64)
    used = np.where(multipliers[rows.row] > 0.0, rows.share * rates[rows.source], 0.0)
    return ParameterDerivatives(slope, own * rates, (rows,), (used,), (np.zeros(len(used)),))


@frozen_value()
class Change:
    """Change of an optimum, to first order.

    - `rates` (n,)
    - `prices`: Of every row, by its label.
    - `value`: Of F*, in the declared sense.
    """

    rates: Array
    prices: dict[str, float]
    value: float


@frozen_value()
class Gradient:
    """Gradient of a scalar function of an optimum.

    - `importance`, `change_rate`, `refresh_cost` (n,)
    - `limits`: Of every row, by its label: with respect to its limit as declared.
    """

    importance: Array
    change_rate: Array
    refresh_cost: Array
    limits: dict[str, float]


@frozen_value(repr=False)
class Sensitivity:
    """Derivatives of rates, prices and value at an optimum.

    `Solution.sensitivity` returns it.

    - `labels`: Of the rows.
    - `free` (n,): Sources whose rates move; the others stay at a bound or a kink.
    - `binding`: Labels of the rows that bind.
    - `degenerate`: Sources that just touch a bound, rows that bind without a price or repeat others: where
      there are any, derivatives are one-sided, for changes that leave these where they are.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=3.0)
    >>> at = fo.solve(problem).sensitivity()
    >>> at.jvp(limits={"bandwidth": 1.0}).rates.round(9)
    array([0.33333333, 0.66666667])
    >>> at.vjp(rates=[1.0, 0.0]).importance.round(9)
    array([ 0.33333333, -0.33333333])
    """

    labels: tuple[str, ...]
    free: BoolArray
    binding: tuple[str, ...]
    degenerate: int
    _system: KktSystem
    _importance: ParameterDerivatives
    _change_rate: ParameterDerivatives
    _refresh_cost: ParameterDerivatives
    _prices: Array
    _direction: Array
    _codes: IntArray | None
    _carried: Array
    _sign: float

    @classmethod
    def at(cls, problem: Problem, rates: npt.ArrayLike, prices: Mapping[str, float]) -> Sensitivity:
        """Return the derivatives at optimal rates and prices.

        - `rates` (n,): Optimal: nothing is checked here, a certificate does that.
        - `prices`: Dual variables ≥ 0 of the rows; those left out are 0.
        - raises ObjectiveError if the problem has no derivatives in this form, as with an unknown atom.
        - raises SourceDataError if a price is of no row.
        """
        program = _program(problem)
        labels, bundles = program.rows.labels, problem.bundles
        own = as_vector(rates, len(problem.sources), "rates")
        multipliers = _by_label(prices, labels, "prices")
        common = variables_of(problem, own)
        lower, upper = problem.lower, problem.upper
        if bundles is not None:
            lower, upper = bundles.largest(lower), -bundles.largest(-upper)
        if problem.usages:
            lower = np.concatenate((lower, *(one.lower for one in problem.usages)))
            upper = np.concatenate((upper, *(one.upper for one in problem.usages)))
        roles = ActiveSet.of(program, common, multipliers, (lower, upper))
        system = KktSystem.of(program, common, roles)
        # Variables of usages follow those of sources, or of bundles.
        codes = np.arange(len(own)) if problem.usages else None
        codes = codes if bundles is None else bundles.codes
        means = means_of(problem, program)
        held, kinked = (of if codes is None else of[codes] for of in (roles.at_upper, roles.kinked))
        moving = moving_kinks(problem, means, own, multipliers, kinked)
        capped = _capped(problem, held, codes) | _one_each(moving, codes)
        carried = np.where(capped, own / problem.sources.scale, 0.0)
        inside = (roles.response > 0.0) | np.isin(np.arange(len(common)), system.linear)
        beyond = len(roles.linear) - len(system.linear)
        return cls(
            labels,
            inside if codes is None else inside[codes],
            tuple(labels[j] for j in roles.rows.tolist()),
            roles.touching_sources + roles.touching_rows + system.singular + beyond,
            system,
            in_importance(problem, means, own, multipliers),
            in_change_rate(problem, means, own, multipliers, carried),
            in_refresh_cost(problem, program, own, multipliers),
            multipliers,
            program.rows.direction,
            codes,
            carried,
            1.0 if problem.objective.sense == "minimise" else -1.0,
        )

    def __repr__(self) -> str:
        moving = f"{int(np.sum(self.free))} of {len(self.free)} rates move"
        return (
            f"Sensitivity({moving}, {len(self.binding)} of {len(self.labels)} rows bind, "
            f"{self.degenerate} degenerate)"
        )

    def jvp(
        self,
        *,
        importance: npt.ArrayLike = 0.0,
        change_rate: npt.ArrayLike = 0.0,
        refresh_cost: npt.ArrayLike = 0.0,
        limits: Mapping[str, float] | None = None,
    ) -> Change:
        """Return how the optimum changes with its parameters (Jacobian-vector product).

        - `importance`, `change_rate`, `refresh_cost` scalar or (n,): Changes of the sources' parameters.
          Costs that a `Budget` was given as an array of its own are not the sources'.
        - `limits`: Changes of the rows' limits, as they are declared.
        """
        n, rows = len(self.free), len(self.labels)
        weight = as_vector(importance, n, "importance")
        speed = as_vector(change_rate, n, "change_rate")
        dear = as_vector(refresh_cost, n, "refresh_cost")
        slope, used, value = self._importance.forward(weight, rows)
        for more in (self._change_rate.forward(speed, rows), self._refresh_cost.forward(dear, rows)):
            slope, used, value = slope + more[0], used + more[1], value + more[2]
        used = used - self._direction * _by_label(limits or {}, self.labels, "limits")
        moved = self._carried * speed
        slope, moved = self._together(slope), self._together(moved)
        rates, multipliers = self._system.forward(slope, used, moved)
        value += float(self._prices @ used + self._bound_prices() @ moved)
        return Change(self._apart(rates), self._labelled(multipliers), self._sign * value)

    def vjp(
        self,
        *,
        rates: npt.ArrayLike = 0.0,
        prices: Mapping[str, float] | None = None,
        value: float = 0.0,
    ) -> Gradient:
        """Return the gradient of a function of the optimum (vector-Jacobian product).

        - `rates` scalar or (n,): The function's derivatives with respect to the rates.
        - `prices`: Those with respect to the prices.
        - `value`: That with respect to the value, in the declared sense.
        """
        weights = as_vector(rates, len(self.free), "rates")
        multipliers = _by_label(prices or {}, self.labels, "prices")
        slope, used, moved = self._system.backward(self._together(weights), multipliers)
        level = self._sign * float(value)
        used = used + level * self._prices
        moved = self._apart(moved + level * self._bound_prices())
        slope = self._apart(slope)
        change_rate = self._change_rate.backward(slope, used, level)
        return Gradient(
            self._importance.backward(slope, used, level),
            change_rate + weighted(self._carried, moved),
            self._refresh_cost.backward(slope, used, level),
            self._labelled(-self._direction * used),
        )

    def _bound_prices(self) -> Array:
        """Return φ' of sources that a bound or a moving kink holds."""
        return np.where(self._together(self._carried) > 0.0, self._system.roles.slope, 0.0)

    def _together(self, values: Array) -> Array:
        """Return sums over tied sources, or the values themselves."""
        if self._codes is None:
            return values
        count = len(self._system.roles.slope)
        return np.bincount(self._codes, weights=values, minlength=count).astype(np.float64)

    def _apart(self, values: Array) -> Array:
        """Return each source's value of its bundle, or the values themselves."""
        return values if self._codes is None else values[self._codes]

    def _labelled(self, values: Array) -> dict[str, float]:
        return dict(zip(self.labels, values.tolist(), strict=True))


def _program(problem: Problem) -> Program:
    """Return the general form of a problem, or raise ObjectiveError."""
    if problem.couplings:
        raise ObjectiveError(f"{problem.couplings[0]} Derivatives need constraints that are rows.")
    objective = problem.objective
    if isinstance(objective, Worst) and objective.then == "next":
        raise ObjectiveError(
            "derivatives of a leximin solution are not available: it solves several problems. Use "
            "Worst(..., then='stop')."
        )
    require_fixed_costs(problem.sources, "sensitivity()")
    if problem.numerics is None and not isinstance(objective, Worst):
        raise ObjectiveError(f"derivatives need a cost that is known. {problem.unknown_atom}")
    return problem.program or general_program(problem, (), None, once=False)


def _by_label(given: Mapping[str, float], labels: tuple[str, ...], what: str) -> Array:
    """Return numbers by label as a vector; raise SourceDataError for unknown labels."""
    unknown = sorted(set(given) - set(labels))
    if unknown:
        known = list_offenders(map(repr, labels))
        raise SourceDataError(
            f"{what} name {list_offenders(map(repr, unknown))}, but the rows are {known}. Correct the labels."
        )
    return np.array([float(given.get(label, 0.0)) for label in labels], dtype=np.float64)


def _capped(problem: Problem, held: BoolArray, codes: IntArray | None) -> BoolArray:
    """Return the signalled sources that their change rates hold."""
    sources = problem.sources
    capped: BoolArray = held & sources.signalled & (problem.upper == sources.scale)
    if codes is None or not bool(np.any(capped)):
        return capped
    # Of tied sources the one with the least bound holds all.
    least = np.full(int(codes.max()) + 1, np.inf)
    np.minimum.at(least, codes, problem.upper)
    return _one_each(capped & (problem.upper == least[codes]), codes)


def _one_each(chosen: BoolArray, codes: IntArray | None) -> BoolArray:
    """Return each bundle's first chosen source; of untied ones all."""
    if codes is None:
        return chosen
    place = np.flatnonzero(chosen)
    first = np.zeros(len(chosen), dtype=np.bool_)
    first[place[np.unique(codes[place], return_index=True)[1]]] = True
    return first

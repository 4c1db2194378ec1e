"""`Priced`: a convex cost of what sources use together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.cvx import Expression, cp
from freshopt.errors import InfeasibleProblemError, ObjectiveError, SourceDataError, shown
from freshopt.heavy import sparse
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.declared_settings import checked_name
from freshopt.modelling.constraints.usages import Usage
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray, as_number
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.rows import RowBlock

_REMEDY = "Pass a price, a tariff such as {0: 0.1, 100: 0.3}, or a function of what is used."
# A slope that rises by this factor over the last share of the uses is infinite at their end, which then is
# out of reach by another share.
_STEEPER, _NEAR, _CLEAR = 1e3, 1e-8, 1e-14


@dataclass(frozen=True, eq=False)
class CostOfUse(Objective):
    """Cost of use, groups standing for sources."""

    formula: Callable[[Expression], Expression]
    called: str

    def per_source(self, rate: Expression, sources: Sources) -> Expression:  # noqa: ARG002
        """Declare the cost of what each group uses."""
        return self.formula(rate)


@frozen_value(repr=False)
class Priced:
    """Convex cost φ(Σ cost·ρ) of what sources use, beside the objective.

    Of a maximised objective it is taken off. The optimal price p of the use u has p ∈ ∂φ(u): prices by steps,
    congestion, take-or-pay, soft limits, and (where φ falls) the utility of what a group gets.

    Parameters
    ----------
    budget : Budget
        Whose use has a price; ``fo.Budget()`` has no limit. Limits hold besides; with `by`, each group pays
        for itself.
    cost : float, mapping of float to float, or callable
        A price per unit; a tariff {from which use on: price per unit}, which may only rise; or a function of
        the use, a CVXPY variable with an entry per group, that returns a convex elementwise expression.
    name : str, optional
        Label in prices and messages; "cost of" the budget by default. Its price is φ' at the use.

    Raises
    ------
    ObjectiveError
        If the cost is not convex (a discount for more is not).

    Notes
    -----
    A row's part of the duality gap is φ(u) + φ*(p) − p·u ≥ 0 [1]_.

    References
    ----------
    .. [1] Boyd & Vandenberghe, "Convex Optimization", 2004, eq. (5.11) and section 3.3.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> delay = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> tariff = fo.Priced(fo.Budget(), {0: 0.5, 4: 2.0})
    >>> solution = fo.solve(fo.Problem(delay, sources, constraints=[tariff]))
    >>> solution.rates.round(6), round(solution.prices["cost of bandwidth"], 6)
    (array([1.333333, 2.666667]), 0.5625)
    """

    budget: Budget
    cost: float | Mapping[float, float] | Callable[[Expression], Expression]
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise TypeError(f"the budget of Priced is {shown(self.budget)}. Pass fo.Budget(...).")
        if self.name is not None:
            checked_name(self.name, "a Priced")
        if self.budget.exactly is not None:
            raise SourceDataError(
                f"Priced {self.label!r} prices a use that is fixed. Pass the Budget alone, with exactly=."
            )
        if isinstance(self.cost, type):
            raise TypeError(f"the cost of Priced is the class {self.cost.__name__}. {_REMEDY}")
        if not callable(self.cost):
            tariff = self.cost if isinstance(self.cost, Mapping) else {0.0: self.cost}
            object.__setattr__(self, "cost", _checked_tariff(tariff, f"the cost of Priced {self.label!r}"))

    def __repr__(self) -> str:
        return f"Priced({self.budget!r}, name={self.label!r})"

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""
        return self.name or f"cost of {self.budget.label}"

    def charged_once(self, bundles: IntArray, sources: Sources) -> Priced:
        """Return the same of each bundle's dearest source in a group."""
        used = self.budget.used(sources)
        order = np.lexsort((-used.coefficient, used.row, bundles[used.source]))
        source, row = used.source[order], used.row[order]
        again = (np.diff(bundles[source]) == 0) & (np.diff(row) == 0)
        cost = np.zeros(len(sources))
        cost[used.source] = used.coefficient
        cost[source[1:][again]] = 0.0
        return replace(self, budget=replace(self.budget, cost=cost, name=self.budget.label))

    def blocks(self, sources: Sources) -> list[RowBlock]:  # noqa: ARG002
        """Return none: its rows have variables of their own (`usage`)."""
        return []

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the budget's limits on an affine `rate` as labelled CVXPY constraints."""
        return self.budget.constraints_on(rate, sources) if self.budget.bounded else []

    def expression(self, rate: Expression, sources: Sources) -> Expression:
        """Return the cost at an affine `rate` as a CVXPY expression."""
        used = self.budget.used(sources)
        shape = len(used), len(sources)
        return cp.sum(
            self._formula(sparse.csr_array((used.coefficient, (used.row, used.source)), shape) @ rate)
        )

    def usage(self, sources: Sources) -> Usage:
        """Return the cost with the variables of its rows."""
        used = self.budget.used(sources)
        count = len(used)
        rates = sources.scale[used.source]
        typical = np.bincount(used.row, weights=used.coefficient * rates, minlength=count)
        typical = np.where(typical > 0.0, typical, 1.0)
        least, most = self.budget.bounds(used.keys)
        cost = CostOfUse(self._formula, f"the cost of Priced {self.label!r}")
        numerics, unknown = numerics_of(cost, Sources(np.clip(typical, least, most)))
        if not isinstance(numerics, DerivedNumerics):
            raise ObjectiveError(f"Priced {self.label!r}: {unknown}")
        first, last = _domain(numerics)
        first, last = np.maximum(first, least), np.minimum(last, most)
        none = np.flatnonzero(first > last)
        if len(none):
            what, k = used.take(none).labels[0], int(none[0])
            room = f"{last[k]:.6g}" if last[k] >= 0.0 else "nothing, not even 0"
            raise InfeasibleProblemError(
                f"Priced {self.label!r}: {what} must use {first[k]:.6g} or more, and its limit and the "
                f"domain of the cost allow {room}. Lower at_least, raise the limit or change the cost."
            )
        with np.errstate(all="ignore"):
            cheapest = numerics.inverse_marginal(np.zeros(count))
            # Where nothing is paid at first, all that costs nothing is as cheap.
            rising = ~(numerics.marginal(least) > 0.0)
            falling = numerics.marginal(np.minimum(most, LARGEST)) >= 0.0
        middle = np.clip(np.where(rising, least, np.where(falling, most, cheapest)), least, most)
        # A bound holds on its side, whether or not the cost pulls there; where all is free there is no row.
        up = np.flatnonzero(~falling | np.isfinite(most))
        down = np.flatnonzero(~rising | (least > 0.0))
        chosen = np.concatenate((up, down))
        place = np.full((2, count), -1, dtype=np.int64)
        place[0, up], place[1, down] = np.arange(len(up)), len(up) + np.arange(len(down))
        entries = [np.flatnonzero(own[used.row] >= 0) for own in place]
        both = np.flatnonzero(np.all(place >= 0, axis=0))
        offset = float(np.sum(numerics.take(both).cost(middle[both])))
        row = np.concatenate([place[side, used.row[own]] for side, own in enumerate(entries)])
        every = np.concatenate(entries)
        keys = [*(used.keys[k] for k in up), *(_below(used.keys[k], place[0, k] >= 0) for k in down)]
        lower = np.concatenate((middle[up], least[down]))
        upper = np.concatenate((most[up], middle[down]))
        return Usage(
            self.label,
            tuple(keys),
            used.source[every],
            row,
            used.coefficient[every],
            np.repeat((1.0, -1.0), (len(up), len(down))),
            numerics.take(chosen),
            lower,
            upper,
            np.clip(typical[chosen], lower, upper),
            np.concatenate((last[up], first[down])),
            offset,
        )

    @property
    def _formula(self) -> Callable[[Expression], Expression]:
        cost = self.cost
        if callable(cost):
            return cost
        assert isinstance(cost, Mapping)
        return lambda used: _tariff(cost, used)


def _domain(numerics: DerivedNumerics) -> tuple[Array, Array]:
    """Return the least and the most use of finite cost."""
    first, last = _edge(numerics, LARGEST, 0.0), _edge(numerics, 0.0, LARGEST)
    return np.where(first > SMALLEST, first, 0.0), np.where(last < LARGEST, last, np.inf)


def _edge(numerics: DerivedNumerics, inside: float, outside: float) -> Array:
    """Return the last uses of finite cost, −inf for none.

    Where the slope is infinite there, they are a few ulp further inside: sums are not exact.
    """
    # Before its domain a convex cost falls infinitely fast, and beyond it rises so.
    side = RIGHT if outside < inside else LEFT

    def within(bits: IntArray) -> BoolArray:
        with np.errstate(all="ignore"):
            found = numerics.jet(bits.view(np.float64), 1)
        finite: BoolArray = (found.cost < np.inf) | (found.marginal != side * np.inf)
        return finite

    # Floats that are not negative are in the order of their bits.
    near, far = (np.full(len(numerics.scale), end).view(np.int64) for end in (inside, outside))
    none = ~within(near)
    near = np.where(within(far), far, near)
    while bool(np.any(np.abs(far - near) > 1)):
        middle = near + (far - near) // 2
        reached = within(middle)
        near, far = np.where(reached, middle, near), np.where(reached, far, middle)
    end = near.view(np.float64)
    with np.errstate(all="ignore"):
        slope, before = (np.abs(numerics.marginal(at, side)) for at in (end, end * (1.0 + side * _NEAR)))
        end = np.where(slope > _STEEPER * before, end * (1.0 + side * _CLEAR), end)
    return np.where(none, -np.inf, end)


def _tariff(steps: Mapping[float, float], used: Expression) -> Expression:
    """Return the cost of use whose price rises by steps."""
    (_, price), *rest = steps.items()
    total, before = price * used, price
    for begin, price in rest:
        total, before = total + (price - before) * cp.pos(used - begin), price
    return total


def _checked_tariff(tariff: Mapping[Any, Any], what: str) -> dict[float, float]:
    """Return a tariff from 0 on, with rising prices."""
    steps = sorted(
        (as_number(key, what, _REMEDY), as_number(value, what, _REMEDY)) for key, value in tariff.items()
    )
    if not steps:
        raise SourceDataError(f"{what} has no price. {_REMEDY}")
    steps = steps if steps[0][0] == 0.0 else [(0.0, 0.0), *steps]
    bad = [number for step in steps for number in step if not 0.0 <= number <= LARGEST]
    if bad:
        raise SourceDataError(f"{what} has the number {bad[0]:g}. Pass numbers >= 0.")
    for (_, price), (begin, dearer) in pairwise(steps):
        if dearer < price:
            raise ObjectiveError(
                f"{what} falls from {price:g} to {dearer:g} per unit at {begin:g}: a discount for more is "
                "not convex. Pass prices that rise."
            )
    return dict(steps)


def _below(key: object, both: bool) -> object:
    """Return the key of the row below the cheapest use."""
    return key if not both else "less" if key is None else f"{key}, less"

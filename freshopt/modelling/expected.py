"""`Expected`: an objective under uncertain change rates.

The estimate of a change rate is one number, its posterior is a distribution. The Gauss quadrature of that has
K nodes with probabilities p_j, and the expectation of what an objective makes of a rate is Σ p_j of what it
makes of it at the nodes: cost and marginal, cone program and declared form. The sum is convex where the terms
are, so that one price and the certificate stay.

Rates that are optimal for the expectation differ little from those of the estimates. What differs is the
value, and the expected one is what a plan can promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, SourceDataError, shown
from freshopt.modelling.cost_curve import Cell, Curve, CurveObjective
from freshopt.modelling.fetches.derived_penalties import signals_follow_from
from freshopt.modelling.objective import ConeForm, Objective, Refresh, as_objective, require_sense
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, Index, shape_of
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel
from freshopt.separable.mixture import checked_nodes


@frozen_value(repr=False)
class Expected(CurveObjective):
    """Expectation of an objective over uncertain change rates.

    Parameters
    ----------
    objective : Objective or str
        Any but `Spend` and `Worst`.
    nodes : array_like, shape (n, K)
        Change rates that each source may have, > 0, per time unit of the sources.
    weights : array_like, shape (n, K) or (K,)
        Their probabilities, 1 in each row.

    Raises
    ------
    ObjectiveError
        If the objective is none, or has no expectation by source.
    SourceDataError
        If the shapes do not fit, a node is no positive number, or weights are no probabilities.

    Notes
    -----
    The sources' own change rates are not used, but as a bound on those that announce their changes: such a
    source is refreshed no more often than it changes, and at a node below its rate the rest is not used.

    Examples
    --------
    Three changes in a time of 10 and no prior knowledge: a gamma posterior of shape 3.5.

    >>> import freshopt as fo
    >>> import numpy as np
    >>> from scipy.special import gammaincinv
    >>> nodes = gammaincinv(3.5, (np.arange(8) + 0.5) / 8) / 10.0
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> objective = fo.Expected(objective, [nodes, nodes], np.full(8, 1 / 8))
    >>> sources = fo.Sources(change_rate=0.35, importance=[1.0, 3.0])
    >>> fo.solve(fo.Problem(objective, sources, bandwidth=1.0)).rates.round(4)
    array([0.2785, 0.7215])
    """

    objective: Objective
    nodes: npt.ArrayLike
    weights: npt.ArrayLike

    if TYPE_CHECKING:
        # The objective is given by name, too.
        def __init__(
            self, objective: Objective | str, nodes: npt.ArrayLike, weights: npt.ArrayLike
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", as_objective(self.objective))
        if isinstance(self.objective, Spend | Worst | Expected):
            raise ObjectiveError(
                f"the objective of Expected is {shown(self.objective)}, which has no expectation by source. "
                "Pass another instance, such as BinaryFreshness()."
            )
        require_sense(self.objective)
        shape = shape_of(self.nodes, "nodes")
        nodes, weights = checked_nodes(self.nodes, self.weights, shape[0] if shape else 0)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "weights", weights)

    def __repr__(self) -> str:
        return f"Expected({self.objective!r}, {np.shape(self.nodes)[1]} nodes)"

    @property
    def sense(self) -> Literal["minimise", "maximise"]:  # type: ignore[override]
        """Whether the sum over sources is to be small or large."""
        return self.objective.sense

    @property
    def refresh(self) -> Refresh:  # type: ignore[override]
        """Refresh discipline of the objective."""
        return self.objective.refresh

    @property
    def disciplines(self) -> tuple[Refresh, ...]:  # type: ignore[override]
        """Disciplines in which the objective exists."""
        return self.objective.disciplines

    def per_source(self, rate: Expression, sources: Sources) -> Any:  # noqa: ANN401 - as Objective has it
        """Declare Σ p_j of the objective at the nodes."""
        return self._declared(self.objective.per_source, rate, sources)

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Any:  # noqa: ANN401
        """Declare Σ p_j of the objective at the rates that are used."""
        nodes, _ = self._mixture(sources)
        used = [cp.minimum(rate, nodes[:, j]) for j in range(nodes.shape[1])]
        return self._declared(self.objective.signalled_per_source, used, sources)

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return Σ p_j of the objective's cone forms, or None."""
        nodes, _ = self._mixture(sources)
        return self._total(self.objective.cone_form, [(y, typical)] * nodes.shape[1], sources)

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return Σ p_j of the signalled cone forms, or None."""
        nodes, _ = self._mixture(sources)
        at: list[tuple[Expression, Array]] = []
        bounds: list[Expression] = []
        for node in nodes.T:
            own = np.minimum(typical, node)
            used = cp.Variable(len(sources), nonneg=True)
            bounds.extend([used <= cp.multiply(typical / own, y), used <= node / own])
            at.append((used, own))
        made = self._total(self.objective.signalled_cone_form, at, sources)
        return None if made is None else (made[0], [*made[1], *bounds])

    def curve(self, sources: Sources) -> Curve:
        """Return the expected cost curve.

        Raises
        ------
        ObjectiveError
            If the objective has no cost of age.
        """
        if not isinstance(self.objective, CurveObjective):
            raise ObjectiveError(
                f"{self.objective!r} has no cost of age. Use an objective with a curve(sources)."
            )
        return self.objective.curve(sources).expected(*self._mixture(sources))

    def kernel(self, sources: Sources) -> Kernel | None:  # type: ignore[override] # that of any objective
        """Return the mixture of the objective's kernels, or None."""
        return self._kernel(self.objective, sources, signalled=False)

    def signalled_kernel(self, sources: Sources) -> Kernel | None:
        """Return the mixture of its kernels of announced changes, or None."""
        return self._kernel(self.objective, sources, signalled=True)

    def refuses_signals(self) -> str | None:
        """Return why signalled sources are unsupported, or None."""
        if signals_follow_from(self.objective) is not None:
            return f"{self.objective!r} declares no signalled_per_source(rate, sources) to expect"
        return self.objective.refuses_signals()

    def take(self, index: Index) -> Expected:
        """Return the objective for some of the sources."""
        nodes, weights = np.asarray(self.nodes)[index], np.asarray(self.weights)[index]
        return replace(self, objective=self.objective.take(index), nodes=nodes, weights=weights)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the value in the declared sense from the cost."""
        return self.objective.value_from_cost(cost, sources)

    def _mixture(self, sources: Sources) -> tuple[Array, Array]:
        """Return nodes and weights, one row for each source."""
        nodes, weights = np.asarray(self.nodes), np.asarray(self.weights)
        if len(nodes) != len(sources):
            raise SourceDataError(
                f"Expected has {len(nodes)} rows of nodes but there are {len(sources)} sources. Match them."
            )
        return nodes, weights

    def _total(
        self,
        form: Callable[[Expression, Sources, Array], ConeForm | None],
        at: list[tuple[Expression, Array]],
        sources: Sources,
    ) -> ConeForm | None:
        """Return Σ p_j of cone forms at relative and typical rates."""
        total: Expression = 0.0
        cones: list[Expression] = []
        for (y, typical), node, weight in zip(at, *(each.T for each in self._mixture(sources)), strict=True):
            own = sources.with_change_rate(node).with_importance(sources.importance * weight)
            made = form(y, own, typical)
            if made is None:
                return None
            total, cones = total + made[0], [*cones, *made[1]]
        return total, cones

    def _declared(
        self,
        method: Callable[[Expression, Sources], Any],
        rate: Expression | list[Expression],
        sources: Sources,
    ) -> Any:  # noqa: ANN401 - as Objective has it
        nodes, weights = self._mixture(sources)
        total: Expression = 0.0
        cones: list[Expression] = []
        for j in range(nodes.shape[1]):
            at = rate[j] if isinstance(rate, list) else rate
            found = method(at, sources.with_change_rate(nodes[:, j]))
            term, own = found if isinstance(found, tuple) else (found, [])
            total, cones = total + cp.multiply(weights[:, j], term), [*cones, *own]
        return (total, cones) if cones else total

    def _kernel(self, objective: Objective, sources: Sources, *, signalled: bool) -> Kernel | None:
        nodes, weights = self._mixture(sources)
        n, many = nodes.shape
        every = np.repeat(np.arange(n), many)
        flat = sources.take(every).with_change_rate(nodes.ravel())
        each = objective.take(every)
        kernel = each.signalled_kernel(flat) if signalled else each.kernel(flat)
        if kernel is None:
            return None
        cell = Cell.of(kernel)
        if signalled:
            if not kernel.parameters or not np.array_equal(kernel.parameters[0], flat.change_rate):
                raise ObjectiveError(
                    f"the signalled kernel of {objective!r} does not have the change rates as its first "
                    "parameter. Put them there, or pass signalled=False."
                )
            cell = cell.up_to(0)
        own = (np.reshape(one, (n, many, *one.shape[1:])) for one in kernel.parameters)
        return cell.expected().kernel(sources.column("importance"), (*own, weights))

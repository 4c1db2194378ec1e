"""Polling knapsack: maximise the updates that polls find.

There are x_i polls per slot on source i, each of which finds an update with probability d_i(x_i).

If a source has an update in a slot with probability u = 1 − q, a poll that comes 1/x slots after the last one
finds news with probability d(x) = 1 − q^{1/x} = 1 − e^{−a/x}, a = −log q. Maximising the expected number of
news Σ w·x·d(x) is periodic binary freshness in other words (x·d = a·freshness). The automata of [1]_ equalise
d(x) instead, which is the optimum of Σ w·∫₀^x d: the "materials" form, a continuous knapsack. Without weights
both optima are x ∝ a; with weights they differ.

===========  ======================  ===========================
form         gain of rate x          its derivative
===========  ======================  ===========================
polls        x(1 − e^{−a/x})         1 − (1 + a/x)e^{−a/x}
materials    x(1 − E₂(a/x))          1 − e^{−a/x}
===========  ======================  ===========================

.. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
   twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010, doi:10.1109/TC.2009.189.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from freshopt.compiled import demand_functions, poll_proofs
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, one_of
from freshopt.modelling.cone_forms import by_size, decayed_time, stale_total
from freshopt.modelling.cost_curve import Cell
from freshopt.modelling.objective import Command, ConeForm, Objective, Refresh, require_nodes
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.numerics.gauss_quadrature import squared_legendre
from freshopt.separable.kernel import Kernel

Form = Literal["polls", "materials"]
# Below this a/x the materials form has a simpler total.
OFTEN = 0.05


@dataclass(frozen=True, slots=True)
class PollingKnapsack(Objective):
    """Maximise Σ w·x·d(x), the updates found by polling.

    The automata's form is Σ w·∫₀^x d.

    Parameters
    ----------
    form : {"polls", "materials"}
    nodes : int
        Quadrature nodes of the *declared* materials form; see Notes. The numerics are exact in any case.

    Notes
    -----
    ``sources.change_rate`` is a = −log(1 − update probability) per poll slot, ``bandwidth`` the polls per
    slot. The polls form is declared exactly, with one exponential cone per source. The materials form needs
    E₂(z) = ∫₀¹ e^{−z/τ} dτ, declared by Gauss-Legendre nodes in v, τ = v². The value's relative error with 16
    nodes is below 6e-6 for a/x ≥ 0.1 and 4e-3 for a/x ≥ 0.001.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 0.3], importance=1.0)
    >>> for form in ("polls", "materials"):
    ...     fo.solve(fo.Problem(PollingKnapsack(form), sources, bandwidth=1.0)).rates.round(9)
    array([0.25, 0.75])
    array([0.25, 0.75])
    """

    form: Form = "polls"
    nodes: int = 16
    sense: ClassVar[Literal["minimise", "maximise"]] = "maximise"
    disciplines: ClassVar[tuple[Refresh, ...]] = (Refresh.PERIODIC,)
    commands: ClassVar[tuple[Command, ...]] = (
        Command("polls", "updates found by polling once per slot or less", {"form": "polls"}),
        Command("materials", "the polling automata's variant of it", {"form": "materials"}),
    )
    refresh: Refresh = field(default=Refresh.PERIODIC, init=False, repr=False)

    def __post_init__(self) -> None:
        require_nodes(self)
        one_of(self.form, get_args(Form), "form of PollingKnapsack", ObjectiveError)

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare the weighted gain."""
        w, a = sources.importance, sources.change_rate
        share = cp.multiply(1.0 / a, rate)
        if self.form == "polls":
            lost, cone = decayed_time(share)
            return cp.multiply(w * a, share - lost), [cone]
        gain, cones = share, []
        for tau, weight in zip(*squared_legendre(self.nodes), strict=True):
            lost, cone = decayed_time(share, 1.0 / tau)
            gain = gain - float(weight) * lost
            cones.append(cone)
        return cp.multiply(w * a, gain), cones

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form of the gain, up to a constant.

        Its form suits each source's typical t = a/x.
        """
        w, t = sources.importance * sources.change_rate, sources.change_rate / typical
        if self.form == "polls":
            stale, cone = stale_total(w, t, y)
            return -stale, cone
        tau, weight = squared_legendre(self.nodes)
        cones: list[Expression] = []

        def quadrature(k: IntArray) -> Expression:
            # x·(1 − e^{−t/x}) of each node is t times the share that is not stale.
            source, node = np.repeat(k, len(tau)), np.tile(np.arange(len(tau)), len(k))
            stale, own = stale_total(w[source] * weight[node] / tau[node], t[source] / tau[node], y[source])
            cones.extend(own)
            return -stale

        # For small t the derivative 1 − e^{−t/y} is t/(y + t/2), off by t²/12 of it.
        gain = by_size(t, (OFTEN, lambda k: w[k] @ cp.log(y[k] + t[k] / 2.0)), (np.inf, quadrature))
        return gain, cones

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of the loss."""
        cell = POLLS if self.form == "polls" else MATERIALS
        return cell.kernel(sources.column("importance"), (sources.column("change_rate"),))

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the gain from the loss.

        For polls the loss is what finding every update would add.
        """
        if self.form == "polls":
            return total(sources.importance * sources.change_rate) - cost
        return -cost


POLLS = Cell.compiled(demand_functions.polls, poll_proofs.POLLS, gained=True)
MATERIALS = Cell.compiled(demand_functions.materials, poll_proofs.MATERIALS)

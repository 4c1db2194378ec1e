"""`Curve`: cost of age, under every refresh discipline.

One curve c(s), the cost of a copy of age s, is one family. With C(s) = ∫₀ˢ c its mean over a period is C(s)/s
and its index is V(s) = s·c(s) − C(s), so that V' = s·c'. Under periodic refreshes at rate ρ = 1/s the cost is
the mean, J(ρ) = C(s)/s, and the marginal value is the index, −J'(ρ) = V(s): one more refresh gains what
waiting longer would cost. The inverse marginal is 1/V^{-1}. A curve therefore states its mean, index and
inverse index once, in forms that are stable from short to long periods, and its Poisson and on-signal cells,
which need integrals of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from freshopt.compiled.cells.array_edition import COST, GAIN, MARGINAL, OfPrice, OfRate
from freshopt.compiled.cost_functions import Value
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import ProofCell
from freshopt.errors import ObjectiveError
from freshopt.modelling.fetches.attempt_cell import Slowed, attempt_kernel
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.request_cell import (
    RequestCost,
    RequestForms,
    RequestGain,
    RequestInverse,
    RequestMarginal,
)
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Formula, Index, as_float64
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel
from freshopt.separable.mixture import Mixed, MixedInverse, UpTo, checked_nodes

# Why what is derived for Poisson changes is refused.
NOT_POISSON = "it is derived for Poisson changes, and the change model is learnt"
# What a curve without compiled forms and windows says about refreshes on request.
NO_FORMS = RequestForms()


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Cost, marginal and inverse marginal under one discipline.

    For unit importance. Each takes ``(rate, *parameters)``, the inverse ``(price, *parameters)`` with 0 <
    price < inf. The gain is 1 − cost, of a cost that is a share. The demand is the inverse for one source,
    ``(1/price, *parameters)``, if `freshopt.compiled.demand_functions` has it, and the value is the cost of
    one source, if `freshopt.compiled.cost_functions` has it. The proof is that of
    `freshopt.compiled.proof_functions`, if there is one.
    """

    cost: Formula
    marginal: Formula
    inverse: Formula
    demand: Demand | None = None
    gain: Formula | None = None
    value: Value | None = None
    proof: ProofCell | None = None

    @classmethod
    def compiled(
        cls,
        demand: Demand,
        proof: ProofCell,
        value: Value | None = None,
        *,
        gained: bool = False,
        whole: Cell | None = None,
    ) -> Cell:
        """Return the cell of formulas of one source.

        `gained` says that the proof's gains count; `whole` is the cell of attempts that all succeed.
        """
        cost, gain, marginal = (OfRate(proof.values, part) for part in (COST, GAIN, MARGINAL))
        own = cls(cost, marginal, OfPrice(demand), demand, gain if gained else None, value, proof)
        if whole is None:
            return own
        return replace(
            own,
            cost=UnlessWhole(own.cost, whole.cost),
            marginal=UnlessWhole(own.marginal, whole.marginal),
            inverse=UnlessWhole(own.inverse, whole.inverse),
            gain=None if own.gain is None or whole.gain is None else UnlessWhole(own.gain, whole.gain),
        )

    @classmethod
    def of(cls, kernel: Kernel) -> Cell:
        """Return what a kernel's sources have in common, but for compiled forms."""
        return cls(kernel.unit_cost, kernel.unit_marginal, kernel.unit_inverse, gain=kernel.unit_gain)

    def kernel(self, importance: Array, parameters: tuple[Array, ...]) -> Kernel:
        """Return the numerics of weighted sources."""
        return Kernel(
            importance,
            parameters,
            self.cost,
            self.marginal,
            self.inverse,
            self.demand,
            unit_gain=self.gain,
            unit_value=self.value,
            unit_proof=self.proof,
        )

    def expected(self) -> Cell:
        """Return the cell of a mixture, of parameters (n, K) and probabilities."""
        return Cell(
            Mixed(self.cost),
            Mixed(self.marginal),
            MixedInverse(self.marginal, self.inverse, rising=False),
            gain=None if self.gain is None else Mixed(self.gain),
        )

    def slowed(self) -> Cell:
        """Return the cell of rates of which a share counts.

        The share is its last parameter.
        """
        return Cell(
            Slowed(self.cost),
            Slowed(self.marginal, "marginal"),
            Slowed(self.inverse, "inverse"),
            gain=None if self.gain is None else Slowed(self.gain),
        )

    def up_to(self, cap: int) -> Cell:
        """Return the cell of rates used up to parameter number `cap`."""
        return Cell(
            UpTo(self.cost, cap),
            UpTo(self.marginal, cap, "marginal"),
            UpTo(self.inverse, cap, "inverse"),
            gain=None if self.gain is None else UpTo(self.gain, cap),
        )


def slowed_kernel(kernel: Kernel, share: Array) -> Kernel:
    """Return the kernel of rates of which a share counts."""
    return Cell.of(kernel).slowed().kernel(kernel.importance, (*kernel.parameters, share))


@dataclass(frozen=True, slots=True)
class UnlessWhole:
    """Formula of attempts; where all succeed, that of refreshes, in NumPy."""

    attempts: Formula
    refreshes: Formula

    def __call__(self, at: Array, *parameters: Array) -> Array:
        """Return its value; the last parameter is the chance of success."""
        *others, success = parameters
        found, whole = self.attempts(at, *parameters), success == 1.0
        return np.where(whole, self.refreshes(at, *others), found) if bool(np.any(whole)) else found


@dataclass(frozen=True, slots=True)
class OfPeriod:
    """Formula of a rate as one of the period, or its inverse."""

    formula: Formula
    inverse: bool = False

    def __call__(self, at: Array, *parameters: Array) -> Array:
        """Return its value at a period, or the period at a price."""
        with np.errstate(all="ignore"):
            return (
                1.0 / self.formula(at, *parameters) if self.inverse else self.formula(1.0 / at, *parameters)
            )


@frozen_value()
class Curve:
    """Cost curve of age, with its parameters filled in.

    - `parameters` tuple of ndarray, each of (n,): What the formulas take besides their first argument, often
      ``(change_rate,)``.
    - `at`: c(s), the expected cost rate at age s.
    - `mean`: C(s)/s, the mean cost over a period of length s.
    - `index`: V(s) = s·c(s) − C(s), non-decreasing.
    - `inverse_index`: The s with V(s) = v, for 0 < v < inf; inf if V stays below v.
    - `poisson`, `on_signal`: The other disciplines, where they are defined.
    - `mean_gain`: 1 − C(s)/s, where c is a share and an objective maximises what is left of it.
    - `periodic`: That of periodic refreshes, where it is more than mean, index and inverse index at 1/ρ.
    - `counted`: That of signalled sources under periodic refreshes, which are crawled at every N-th signal
      (`freshopt.compiled.cells.counted_signals`), where it differs from `on_signal`.
    - `on_request`: What refreshes on request need besides: compiled forms, and those of
      stale-while-revalidate windows.
    - `rate_at`: Position of the change rate among the parameters; None if the cost of age does not depend on
      it.
    - `smooth`: Whether the curve is analytic at every age > 0: sums over numbers of failed attempts are short
      then.
    - `attempts`: Of periodic attempts that may fail, where there is a closed form; it takes the chance of
      success as one more parameter.
    """

    parameters: tuple[Array, ...]
    at: Formula
    mean: Formula
    index: Formula
    inverse_index: Formula
    poisson: Cell | None = None
    on_signal: Cell | None = None
    mean_gain: Formula | None = None
    periodic: Cell | None = None
    on_request: RequestForms = NO_FORMS
    rate_at: int | None = 0
    smooth: bool = False
    attempts: Cell | None = None
    counted: Cell | None = None

    @classmethod
    def compiled(
        cls,
        change_rate: Array,
        at: Formula,
        periodic: Cell,
        poisson: Cell,
        on_signal: Cell,
        attempts: Cell | None = None,
        on_request: RequestForms = NO_FORMS,
        counted: Cell | None = None,
    ) -> Curve:
        """Return the smooth curve of change rates whose periodic cell is known.

        Mean, index and inverse index are that cell's at ρ = 1/s.
        """
        gain = periodic.gain
        return cls(
            (change_rate,),
            at,
            OfPeriod(periodic.cost),
            OfPeriod(periodic.marginal),
            OfPeriod(periodic.inverse, inverse=True),
            poisson,
            on_signal,
            None if gain is None else OfPeriod(gain),
            periodic,
            on_request,
            smooth=True,
            attempts=attempts,
            counted=counted,
        )

    def cell(self, refresh: Refresh, *, windowed: bool = False) -> Cell:
        """Return the cell of a refresh discipline.

        That of refreshes on request takes the request rates as one more parameter, and windows after them.

        - raises ObjectiveError if the curve has none.
        """
        if refresh is Refresh.PERIODIC:
            return self.periodic or Cell(
                OfPeriod(self.mean),
                OfPeriod(self.index),
                OfPeriod(self.inverse_index, inverse=True),
                gain=None if self.mean_gain is None else OfPeriod(self.mean_gain),
            )
        if refresh is Refresh.ON_REQUEST:
            return self._request_cell(windowed)
        cell = {Refresh.POISSON: self.poisson, Refresh.ON_SIGNAL: self.on_signal}.get(refresh)
        if cell is None:
            named = getattr(refresh, "value", refresh)
            raise ObjectiveError(
                f"this cost curve has no cell for {named} refreshes. Use another discipline."
            )
        return cell

    def kernel(
        self,
        importance: Array,
        refresh: Refresh,
        request_rate: Array | None = None,
        window: Array | None = None,
        success: Array | None = None,
    ) -> Kernel:
        """Return the numerics of weighted sources under a discipline.

        Refreshes on request take the request rates as a parameter of their cell, and the windows of
        stale-while-revalidate as the last one, where there are any. Chances of success are those of periodic
        attempts.
        """
        windowed = window is not None and refresh is Refresh.ON_REQUEST
        cell = self.cell(refresh, windowed=windowed)
        if success is not None and refresh is Refresh.PERIODIC:
            return attempt_kernel(importance, self, cell, success)
        asked: tuple[Array, ...] = ()
        if request_rate is not None and refresh is Refresh.ON_REQUEST:
            asked = (request_rate,) if window is None else (request_rate, window)
        return cell.kernel(importance, (*self.parameters, *asked))

    def gap_cost(self, gap: Array) -> Array:
        """Return the integrated cost C(τ) = ∫₀^τ c of crawl intervals."""
        return self._integrated(self.mean, gap)

    def gap_gain(self, gap: Array) -> Array:
        """Return the integrated gain τ − C(τ), NaN without `mean_gain`."""
        if self.mean_gain is None:
            return np.where(gap > 0.0, np.nan, 0.0)
        return self._integrated(self.mean_gain, gap)

    def expected(self, nodes: npt.ArrayLike, weights: npt.ArrayLike) -> Curve:
        """Return the curve under uncertain change rates.

        All of it are sums Σ p_j over the nodes: cost, mean and index of age, and the cells of the other
        disciplines. The inverse index lies between those of the nodes.

        - `nodes` (n, K): Change rates that each source may have, > 0.
        - `weights` (n, K) or (K,): Their probabilities p, 1 in each row.
        - raises SourceDataError if the shapes do not fit, a node is no positive number, or weights are no
          probabilities.

        Notes
        -----
        For a posterior the nodes are those of a Gauss quadrature, ``estimator.nodes()``, for a
        process with hyperexponential gaps its phases. A signalled source is refreshed no more often than it
        changes: at a node below its rate all signals are followed, and the rest of the rate is not used.

        Examples
        --------
        >>> import freshopt as fo
        >>> curve = fo.problems.BinaryFreshness(fo.Refresh.POISSON).curve(fo.Sources([1.0]))
        >>> either = curve.expected([[0.5, 2.0]], [0.5, 0.5])
        >>> at = either.at(np.array([1.0]), *either.parameters)  # (1 − e^{−1/2})/2 + (1 − e^{−2})/2
        >>> at.round(6)
        array([0.629067])
        """
        n = len(self.parameters[0])
        rates, shares = checked_nodes(nodes, weights, n)
        if self.rate_at is None:
            return self
        every = tuple(
            rates if k == self.rate_at else np.repeat(as_float64(own)[:, None], rates.shape[1], axis=1)
            for k, own in enumerate(self.parameters)
        )
        announced = None if self.on_signal is None else self.on_signal.up_to(self.rate_at).expected()
        return Curve(
            (*every, shares),
            Mixed(self.at),
            Mixed(self.mean),
            Mixed(self.index),
            MixedInverse(self.index, self.inverse_index, rising=True),
            None if self.poisson is None else self.poisson.expected(),
            announced,
            mean_gain=None if self.mean_gain is None else Mixed(self.mean_gain),
            on_request=self._mixed_request(),
            rate_at=None,
            smooth=self.smooth,
        )

    def take(self, index: Index) -> Curve:
        """Return the curve of some of the sources."""
        taken = tuple(parameter[index] for parameter in self.parameters)
        return replace(self, parameters=taken)

    def _integrated(self, mean: Formula, gap: Array) -> Array:
        """Return each gap times its mean."""
        own = map(as_float64, self.parameters)
        with np.errstate(all="ignore"):
            return np.where(gap > 0.0, gap * mean(np.where(gap > 0.0, gap, 1.0), *own), 0.0)

    def _request_cell(self, windowed: bool) -> Cell:
        own = self.on_request
        if windowed and own.rise is None:
            raise ObjectiveError(
                "this cost curve has no cell for stale-while-revalidate windows. Leave "
                "stale_while_revalidate out, or use another objective."
            )
        known = own.windowed if windowed else own.cell
        if known is not None:
            return known
        rise, kept = (own.rise, own.kept) if windowed else (None, None)
        marginal = RequestMarginal(self.at, self.index, rise)
        return Cell(
            RequestCost(self.mean, self.at, rise),
            marginal,
            RequestInverse(marginal, self.inverse_index),
            gain=None if self.mean_gain is None else RequestGain(self.mean_gain, kept),
        )

    def _mixed_request(self) -> RequestForms:
        rise, kept = self.on_request.rise, self.on_request.kept
        return RequestForms(
            rise=None if rise is None else Mixed(rise, 2),
            kept=None if kept is None else Mixed(kept, 2),
        )


class CurveObjective(Objective):
    """Objective given by a cost curve under a discipline.

    Its numerics follow from the curve. Subclasses write `curve` besides `per_source`.

    Attributes
    ----------
    counts_signals : bool
        Whether signalled sources are crawled by the best rule under periodic refreshes: at every N-th signal,
        or a time after the first one missed.
    signals_of_any_process : bool
        Whether announced changes cost the same under any stationary process of changes.
    """

    __slots__ = ()
    counts_signals: ClassVar[bool] = False
    signals_of_any_process: ClassVar[bool] = False
    changes: Any = None

    def curve(self, sources: Sources) -> Curve:  # noqa: ARG002
        """Return the cost curve of the sources."""
        raise ObjectiveError(f"{type(self).__name__} has no curve(sources). Write that method.")

    def change_slope(self, changes: Array) -> Array | None:  # noqa: ARG002
        """Return f'(x) of a cost c(s) = f(Δs), or None.

        None where the mean number of changes does not decide the cost, such as the age of a copy.

        Parameters
        ----------
        changes : ndarray
            x = Δs ≥ 0.
        """
        return None

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[Objective, Sources] | None:
        """Return the costs of attempts by faster sources, or None.

        What depends on changes alone costs at sρ what it costs at ρ where changes are 1/s times as fast.
        """
        if refresh is Refresh.PERIODIC or self.change_slope(np.ones(1)) is None:
            return None
        return self, sources.with_change_rate(sources.change_rate / success)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics under the objective's discipline."""
        window = sources.stale_while_revalidate
        return self.curve(sources).kernel(
            sources.column("importance"), self.refresh, sources.request_rate, window
        )

    def attempt_kernel(self, sources: Sources, success: Array) -> Kernel:
        """Return the exact numerics of periodic attempts."""
        return self.curve(sources).kernel(sources.column("importance"), Refresh.PERIODIC, success=success)

    def time_average_kernel(self, sources: Sources) -> Kernel:
        """Return the numerics of averages over time, not over requests.

        They differ for copies that are refreshed on request (`freshopt.modelling.request_cell`).
        """
        always = np.broadcast_to(np.inf, (len(sources),))
        return self.curve(sources).kernel(
            sources.column("importance"), self.refresh, sources.request_rate, always
        )

    def signalled_kernel(self, sources: Sources) -> Kernel | None:
        """Return the exact numerics of announced changes, or None.

        None means that the curve has no such cell.
        """
        curve = self.curve(sources)
        if self.refresh is Refresh.PERIODIC and curve.counted is not None:
            return curve.counted.kernel(sources.column("importance"), curve.parameters)
        return curve.kernel(sources.column("importance"), Refresh.ON_SIGNAL) if curve.on_signal else None

    def refuses_signals(self) -> str | None:
        """Return why signalled sources are unsupported here, or None.

        It depends on the objective and its discipline.
        """
        if self.refresh is Refresh.ON_REQUEST:
            return "a copy that is refreshed on request waits for requests, not for signals"
        if self.changes is not None and not self.signals_of_any_process:
            return NOT_POISSON
        return super().refuses_signals()

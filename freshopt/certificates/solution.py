"""`Status` and `Solution`: solver status and certified solution."""

from __future__ import annotations

import enum
import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.certificates.certificate import Certificate
from freshopt.certificates.row_table import RowPrices
from freshopt.certificates.sensitivity import Sensitivity
from freshopt.errors import CertificateError, ObjectiveError
from freshopt.formatting import count, number
from freshopt.frames import framed
from freshopt.heavy import polars
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective import Refresh, value_at
from freshopt.modelling.problem import Problem
from freshopt.modelling.request_cell import lifetimes as request_lifetimes
from freshopt.numerics.arrays import Array, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.plots import Plotted, scatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Prices in a line of the repr.
_SHOWN = 4


# Certificate of a solution that nobody has proved, for its type.
UNPROVED: Any = None


class Status(enum.Enum):
    """Solver status.

    The value is the word; `sentence` explains it.

    Examples
    --------
    >>> import freshopt as fo
    >>> fo.Status.OPTIMAL.sentence
    'The certificate shows that no rates are better by more than the tolerance.'
    """

    OPTIMAL = "optimal"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    ITERATION_LIMIT = "iteration limit"
    TIME_LIMIT = "time limit"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def sentence(self) -> str:
        """Solver status in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.OPTIMAL: "The certificate shows that no rates are better by more than the tolerance.",
    Status.INACCURATE: "The rates are feasible, but the certificate does not show them to be optimal.",
    Status.INFEASIBLE: "No rates meet the constraints.",
    Status.UNBOUNDED: "The objective improves without limit.",
    Status.ITERATION_LIMIT: "The solver stopped at its iteration limit.",
    Status.TIME_LIMIT: "The solver was ended at its time limit.",
    Status.FAILED: "The solver ended without an answer.",
    Status.REFUSED: "The solver does not apply to this problem.",
}


@frozen_value(repr=False)
class Answer:
    """Raw primal-dual answer of a solver.

    Solvers hand it to `freshopt.certificates.solver_protocol.certified_solution`: rates and prices, not yet
    certified.

    - `rates` (n,): None if the solver ended without any.
    - `price`: Dual variable (shadow price) of the bandwidth; None has the certificate search for one.
    - `host_prices`: Dual variables of the limited hosts, on top of `price`.
    - `status`: Set only where the solver knows better than a certificate: FAILED, REFUSED, INFEASIBLE,
      ITERATION_LIMIT.
    - `note`: A sentence on how the answer came about.
    - `multipliers` (m,): Dual variables of the rows of declared constraints (``problem.program.rows``).
    - `path` tuple of ndarray, each of (n,): Strictly feasible rates met on the way, for repairs.
    - `conflict`: The rows that cannot hold together, where these are known.
    """

    rates: Array | None
    price: float | None = None
    host_prices: Mapping[Any, float] | None = None
    iterations: int = 0
    status: Status | None = None
    note: str = ""
    multipliers: Array | None = None
    path: tuple[Array, ...] = ()
    conflict: object = None


@frozen_value(late=("problem",), repr=False)
class Solution(Plotted):
    """Primal rates, dual prices and their certificate.

    Attributes
    ----------
    problem : Problem
    status : Status
    rates : ndarray, shape (n,)
        Refreshes per time unit; NaN where the solver ended without an answer. Of a signalled source: p·Δ.
    value : float
        The objective in the declared sense, Σ w_k(·).
    price : float
        Dual variable λ of the bandwidth, its shadow price: the marginal value of one more refresh per time
        unit. Where several prices are optimal, because demand is the bandwidth at all of them, exact solvers
        return the least.
    host_prices : mapping
        Dual variables μ_h ≥ 0 of the limited hosts, on top of `price`.
    certificate : Certificate
        None, which its type does not say, only if ``certify=False``.
    iterations : int
        Evaluations of all sources, or steps of a foreign solver.
    seconds : float
        Time in the solver, without the certificate.
    solver : object
        The solver's settings.
    note : str
        Why the status is not optimal, or how the answer came about.
    multipliers : ndarray, shape (m,), or None
        Dual variables of the rows of declared constraints; None where there are none.
    conflict : object
        Of an infeasible problem, the rows that cannot hold together, if they are known.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.5, 2.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=3.0)
    >>> solution = fo.solve(problem)
    >>> solution.status.value, solution.rates.round(3).tolist()
    ('optimal', [1.135, 1.865])
    >>> solution.to_frame().columns
    ['source', 'rate', 'interval']
    """

    problem: Problem
    status: Status
    rates: Array
    value: float
    price: float
    host_prices: Mapping[Any, float]
    certificate: Certificate
    iterations: int
    seconds: float
    solver: object
    note: str = ""
    multipliers: Array | None = None
    conflict: object = None

    @property
    def prices(self) -> Mapping[str, float]:
        """Dual variable of every constraint by its label.

        The value improves by the price for each unit by which the limit is relaxed.
        """
        if self.problem.program is not None:
            rows = self.problem.program.rows
            known = np.full(len(rows), np.nan) if self.multipliers is None else self.multipliers
            return RowPrices(rows.labels, known)
        name, host = self.problem.labels
        return {name: self.price, **{f"{host}[{key}]": price for key, price in self.host_prices.items()}}

    @property
    def bandwidth_used(self) -> float:
        """Bandwidth that the rates use.

        Σ c₀ρ, and c₁Δ·F(ρ) besides of fetches that cost what they bring.
        """
        return total(self.problem.used_by_source(self.rates))

    @property
    def lifetimes(self) -> Array:
        """Lifetimes of copies that are refreshed on request, shape (n,).

        T = 1/ρ − 1/ζ, in time units; infinite at rate 0, and 0 where every request is a refresh.

        Raises
        ------
        ObjectiveError
            If the copies are not refreshed on request.

        Examples
        --------
        >>> import freshopt as fo
        >>> fresh = fo.problems.BinaryFreshness(refresh=fo.Refresh.ON_REQUEST)
        >>> sources = fo.Sources(change_rate=[1.0, 1.0], request_rate=[0.5, 4.0])
        >>> fo.solve(fo.Problem(fresh, sources, bandwidth=1.0)).lifetimes.round(4)
        array([6.027 , 0.8923])
        """
        asked, objective = self.problem.sources.request_rate, self.problem.objective
        if asked is None or objective.refresh is not Refresh.ON_REQUEST:
            raise ObjectiveError(
                f"{objective!r} refreshes no copies on request, so that there are no lifetimes. Intervals "
                "are 1/solution.rates."
            )
        return request_lifetimes(self.rates, asked)

    @property
    def time_average(self) -> float:
        """Value of copies that are refreshed on request, averaged over time.

        `value` is what requests see, where those that wait for a fetch see a fresh copy. Over time an expired
        copy goes on ageing until it is asked for; this is that average, in the declared sense and with the
        same importances, whatever the windows of stale-while-revalidate.

        Raises
        ------
        ObjectiveError
            If the copies are not refreshed on request, or the curve has no such average.

        Examples
        --------
        >>> import freshopt as fo
        >>> fresh = fo.problems.BinaryFreshness(refresh=fo.Refresh.ON_REQUEST)
        >>> sources = fo.Sources(change_rate=1.0, importance=1.0, request_rate=0.5)
        >>> solution = fo.solve(fo.Problem(fresh, sources, bandwidth=0.2))  # a lifetime of 3
        >>> round(solution.value, 3), round(solution.time_average, 3)
        (0.59, 0.197)
        """
        sources, objective = self.problem.sources, self.problem.objective
        if objective.refresh is not Refresh.ON_REQUEST or not isinstance(objective, CurveObjective):
            raise ObjectiveError(
                f"{objective!r} refreshes no copies on request: its value is the average over time."
            )
        numerics = objective.time_average_kernel(sources)
        cost = total(numerics.cost(self.rates))
        return value_at(objective, numerics, sources, self.rates, cost)

    @property
    def library(self) -> str:
        """The library of dataframes made from it, that of its sources."""
        return self.problem.sources.library

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe of rates and intervals.

        Columns are source, rate and interval; the interval is null at rate 0. Of copies that are refreshed on
        request the column lifetime follows, null at rate 0, and their windows stale_while_revalidate if there
        are any.
        If some sources are signalled, ``signalled`` and ``change_rate`` follow: a signalled source is
        refreshed on its signals, with probability rate/change_rate, and not at intervals. Where fetches fail
        the column success says that rates are attempts.
        """
        names = self.problem.sources.names
        frame = polars.DataFrame(
            {"source": np.arange(len(self.rates)) if names is None else names, "rate": self.rates}
        )
        frame = frame.with_columns(
            interval=polars.when(polars.col("rate") > 0).then(1.0 / polars.col("rate"))
        )
        sources = self.problem.sources
        if sources.failing is not None:
            frame = frame.with_columns(success=np.ascontiguousarray(sources.failing))
        if self.problem.objective.refresh is Refresh.ON_REQUEST:
            life = self.lifetimes
            frame = frame.with_columns(lifetime=polars.Series(life, dtype=polars.Float64)).with_columns(
                lifetime=polars.when(polars.col("rate") > 0).then(polars.col("lifetime"))
            )
            windows = sources.stale_while_revalidate
            if windows is None:
                return frame
            return frame.with_columns(stale_while_revalidate=np.ascontiguousarray(windows))
        if not bool(np.any(sources.signalled)):
            return frame
        columns = {"signalled": sources.signalled, "change_rate": sources.change_rate}
        return frame.with_columns(**{key: np.ascontiguousarray(column) for key, column in columns.items()})

    def _draw(self, axes: Axes) -> None:
        """Draw refresh rates against change rates; a cross is never refreshed."""
        unit, changes = self.problem.sources.time_unit, self.problem.sources.scale
        scatter(axes, changes, self.rates, "never refreshed")
        price = "" if math.isnan(self.price) else f", shadow price {number(self.price)} per refresh/{unit}"
        axes.set(
            xlabel=f"changes per {unit}" if self.problem.sources.rated else "change rates are not known",
            ylabel=f"refreshes per {unit}",
        )
        axes.set_title(f"Refresh rates of {count(len(changes), 'source')}{price}", fontsize="medium")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)

    def sensitivity(self) -> Sensitivity:
        """Return the derivatives with respect to importances, change rates and limits.

        Raises
        ------
        CertificateError
            If the solver ended without rates or prices.
        ObjectiveError
            If the problem has no derivatives in this form, as with an atom whose curvature is unknown.

        Examples
        --------
        >>> import freshopt as fo
        >>> sources = fo.Sources(change_rate=[1.0, 4.0])
        >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
        >>> solution = fo.solve(fo.Problem(objective, sources, bandwidth=3.0))
        >>> solution.sensitivity().jvp(limits={"bandwidth": 1.0}).rates.round(9)
        array([0.33333333, 0.66666667])
        """
        if not bool(np.all(np.isfinite(self.rates))):
            raise CertificateError(
                f"the solution has no rates to differentiate. {self.status.sentence} Solve it first.", self
            )
        prices = dict(self.prices)
        if any(math.isnan(price) for price in prices.values()):
            raise CertificateError(
                "the solution has no prices to differentiate. Solve with a solver that finds them.", self
            )
        return Sensitivity.at(self.problem, self.rates, prices)

    def _price_line(self, unit: str) -> str:
        """Return the bandwidth's price, or the largest of declared constraints."""
        if self.problem.per_bandwidth is not None:
            return f"{self.price:.6g} per unit of bandwidth/{unit}"
        if self.problem.program is None:
            return f"{self.price:.6g} per refresh/{unit}"
        priced = [(label, price) for label, price in self.prices.items() if price > 0.0]
        shown = ", ".join(f"{label} {price:.4g}" for label, price in priced[:_SHOWN])
        rest = len(priced) - _SHOWN
        return (shown or "0 throughout") + (f" and {rest} more" if rest > 0 else "")

    def _lines(self) -> list[tuple[str, str]]:
        """Return the rows of the text and HTML reprs."""
        problem, unit = self.problem, self.problem.sources.time_unit
        lower, upper = problem.lower, problem.upper
        zero = int(np.sum(self.rates == 0.0))
        low = int(np.sum((self.rates <= lower) & (lower > 0.0)))
        high = int(np.sum((self.rates >= upper) & (upper > 0.0)))
        rows = [
            ("solution", f"{self.status.value}, by {self.solver}"),
            ("problem", repr(problem)),
            ("value", f"{self.value:.9g} ({problem.objective.sense}d)"),
            ("price", self._price_line(unit)),
            ("sources", f"{len(self.rates)}: {zero} never refreshed, {low} at min_rate, {high} at max_rate"),
        ]
        return rows + closing_lines(self.status, self.certificate, self.note, self.iterations, self.seconds)

    def __repr__(self) -> str:
        return "\n".join(f"{key:>8}: {value}" for key, value in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(key)}</th><td>{html.escape(value)}</td></tr>"
            for key, value in self._lines()
        )
        return f"<table>{rows}</table>"


def closing_lines(
    status: Status, proof: Certificate | None, note: str, iterations: int, seconds: float
) -> list[tuple[str, str]]:
    """Return the lines that end a solution's repr: bound, verdict, note, effort."""
    rows = []
    if proof is not None:
        rows.append(("bound", f"{proof.bound:.9g}, gap {proof.gap:.3g} (relative {proof.relative_gap:.2g})"))
    claimed = status is Status.OPTIMAL and proof is None
    rows.append(("verdict", "Not certified: nothing is proved." if claimed else status.sentence))
    if note:
        rows.append(("note", note))
    return [*rows, ("effort", f"{iterations} iterations, {seconds:.3g} s")]

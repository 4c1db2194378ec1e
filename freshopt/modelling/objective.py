"""`Objective`: declared objective. `Refresh`: discipline that turns rates into times.

`Command`: the name under which the command line offers an objective; a class may state its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError, one_of, shortened, shown
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Index, chunks, exact_sum
from freshopt.separable.kernel import Kernel, Numerics

MOST_NODES = 1000  # a quadrature with more is no more accurate, and takes seconds to set up
Sense: TypeAlias = Literal["minimise", "maximise"]
SENSES: tuple[Sense, ...] = get_args(Sense)
Penalty: TypeAlias = Literal["changes", "age"]
PENALTIES: tuple[Penalty, ...] = get_args(Penalty)
ConeForm: TypeAlias = tuple[Expression, list[Expression]]
NAME_OR_INSTANCE = 'Pass a name such as "binary", or an instance such as freshopt.problems.BinaryFreshness()'


class Refresh(enum.Enum):
    """Refresh discipline: how a rate ρ becomes refresh times.

    ``POISSON``: independent exponential gaps of mean 1/ρ. ``PERIODIC``: equal gaps 1/ρ. ``ON_SIGNAL``:
    announced changes are followed by a refresh, beside ``POISSON`` each with probability ρ/Δ, beside
    ``PERIODIC`` every (Δ/ρ)-th. ``ON_REQUEST``: the first request after a
    lifetime T = 1/ρ − 1/ζ is a refresh; requests are a Poisson process of rate ζ, `Sources(request_rate=)`,
    and what counts is what requests see, not the average over time (`Solution.time_average`).

    Examples
    --------
    >>> import freshopt as fo
    >>> fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
    BinaryFreshness(refresh=Refresh.PERIODIC)
    """

    POISSON = "poisson"
    PERIODIC = "periodic"
    ON_SIGNAL = "on signal"
    ON_REQUEST = "on request"

    def __repr__(self) -> str:
        return f"Refresh.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """Name of an objective on the command line.

    It may also be the name of a cost of age.

    - `name`: As in ``freshopt solve --objective NAME``.
    - `words`: What it measures, for the help.
    - `settings`: Arguments of the class under this name; the discipline is passed besides where the class has
      one.
    - `uses`: The parameters that options and columns may give, as more arguments.
    - `needs`: Those of them without which there is no such objective.
    - `make`: Takes these arguments, instead of the class.
    """

    name: str
    words: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    make: Callable[..., Any] | None = None


def as_objective(given: object, time_unit: str | None = None) -> Objective:
    """Return an objective that is given by name or as an instance.

    Times after a name, as in "deadline:2d", need the clock of the rates.

    Examples
    --------
    >>> import freshopt as fo
    >>> fo.Problem("binary", fo.Sources([1.0]), bandwidth=1.0)
    Problem(BinaryFreshness(refresh=Refresh.PERIODIC), n=1, bandwidth=1 per day)
    """
    if isinstance(given, str) and Objective._of_name is not None:
        return Objective._of_name(given, time_unit)
    if not isinstance(given, Objective):
        raise ObjectiveError(f"{shown(given)} is not an Objective instance. {NAME_OR_INSTANCE}.")
    return given


def require_sense(objective: Objective) -> None:
    """Raise ObjectiveError unless an objective is minimised or maximised.

    A sense of its own that an instance has, spelled "minimize", is written as everything here reads it.
    """
    given = objective.sense
    if not isinstance(given, str) or given not in SENSES:
        object.__setattr__(objective, "sense", _sense(given, type(objective)))


def _sense(value: object, owner: type) -> Sense:
    return one_of(value, SENSES, f"sense of {owner.__name__}", ObjectiveError)


def require_discipline(objective: Objective) -> None:
    """Raise ObjectiveError unless an objective's `refresh` is one of its disciplines."""
    refresh, known = objective.refresh, objective.disciplines
    require_sense(objective)
    if not isinstance(refresh, Refresh):
        offered = (*known, Refresh.ON_REQUEST) if objective.on_request else known
        one_of(refresh, offered, "refresh", ObjectiveError)
    if refresh is Refresh.ON_SIGNAL:
        raise ObjectiveError(
            f"{objective!r}: refreshing on signals is a property of sources. Pass Refresh.POISSON or "
            "Refresh.PERIODIC here, and Sources(signalled=...)."
        )
    if refresh is Refresh.ON_REQUEST and not objective.on_request:
        raise ObjectiveError(
            f"{type(objective).__name__} has no cell for refreshes on request. Use refresh={known[0]!r}, or "
            "another objective."
        )
    if refresh not in (*known, Refresh.ON_REQUEST):
        raise ObjectiveError(
            f"{type(objective).__name__} has no {refresh.value} cell of its own. Use refresh={known[0]!r}."
        )


def require_requests(objective: Objective, sources: Sources) -> None:
    """Raise ObjectiveError if refreshes on request lack their request rates."""
    if objective.refresh is Refresh.ON_REQUEST and sources.request_rate is None:
        raise ObjectiveError(
            f"{objective!r} needs request rates. Pass fo.Sources(..., request_rate=...), requests per time "
            "unit; in a table they are the column request_rate, as freshopt estimate --requests writes it."
        )


def counts_signals(objective: Objective) -> bool:
    """Return whether signals are followed by their number, not by a share."""
    return objective.counts_signals and objective.refresh is Refresh.PERIODIC


def require_nodes(objective: Any) -> None:  # noqa: ANN401 - any frozen record with nodes
    """Raise ObjectiveError unless `nodes` is a whole number of quadrature nodes."""
    nodes = objective.nodes
    if isinstance(nodes, bool) or not isinstance(nodes, int | np.integer) or not 1 <= nodes <= MOST_NODES:
        raise ObjectiveError(
            f"nodes of {type(objective).__name__} is {shortened(repr(nodes))}. "
            f"Pass a whole number from 1 to {MOST_NODES}."
        )


def value_at(objective: Objective, numerics: Numerics, sources: Sources, rates: Array, cost: float) -> float:
    """Return the value of rates in the declared sense, given their cost.

    A maximised objective's gains are added up where its numerics know them: importance minus cost has lost
    the digits of a small gain.
    """
    if objective.sense == "maximise":
        gains = [numerics.take(part).gain(rates[part]) for part in chunks(len(rates))]
        sums = [float(np.sum(gain)) for gain in gains if gain is not None]
        if len(sums) == len(gains):
            return exact_sum(sums)
    return objective.value_from_cost(cost, sources)


class Objective:
    """Base class of convex objectives, declared per source in CVXPY.

    Subclass it, write `per_source`, and hand an instance to `Problem`.

    Attributes
    ----------
    sense : {"minimise", "maximise"}
        Whether the sum over sources is to be small or large; "minimize" and "maximize" are the same.
    refresh : Refresh
        The discipline under which `per_source` is the cost of a rate.
    disciplines : tuple of Refresh
        Those in which the objective exists; a dataclass refuses another at construction.
    on_request : bool
        Whether it exists for copies that are refreshed on request, too.
    attempts : bool
        Whether it takes rates of attempts and reads `Sources.success` itself. By default it is written for
        fetches that never fail, and is handed what succeeds of a rate.
    window_cones : bool
        Whether its declaration knows stale-while-revalidate windows.
    penalty_of : {"changes", "age"} or None
        What the cost is the expected penalty of: the number of changes that a copy lacks, or the time since
        the first of them. The penalty is 0 without any and grows with it. From this follow costs of
        announced changes (of Poisson refreshes), of fetches that cost what they bring, and of "changes" at
        good phases of the week (of periodic ones).
    columns : tuple of str
        Columns of your own that it reads of sources in partitions, whose other columns stay in their files.
    commands : tuple of Command
        Names of an objective of `freshopt.problems` on the command line; the class's own if there are none.

    Notes
    -----
    From `per_source` alone freshopt derives the CVXPY problem, value, slope and curvature of every source,
    and hence solvers for any number of sources and the certificate of any answer. All convex and concave
    elementwise atoms of CVXPY are known, kinks included; `freshopt.autodiff.compiler.register` adds others.
    `kernel` may add hand-written numerics; it is obligatory when `per_source` returns auxiliary constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.cvx import cp
    >>> class SquaredDelay(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2))
    >>> problem = fo.Problem(SquaredDelay(), fo.Sources(change_rate=[1.0, 8.0]), bandwidth=3.0)
    >>> fo.solve(problem).rates.round(9)
    array([1., 2.])

    What the cost is the penalty of says what it is where changes are announced: J = E m² of m missed changes.

    >>> class SquaredChanges(fo.Objective):
    ...     penalty_of = "changes"
    ...     def per_source(self, rate, sources):
    ...         missed = cp.multiply(sources.change_rate, cp.inv_pos(rate))  # their mean
    ...         return cp.multiply(sources.importance, missed + 2.0 * cp.square(missed))
    >>> announced = fo.Sources([1.0, 8.0], signalled=True)
    >>> fo.solve(fo.Problem(SquaredChanges(), announced, bandwidth=3.0)).rates.round(4)
    array([0.5565, 2.4435])

    A cone form with a variable of its own, t ≥ 1/ρ, and the kernel that it asks for: cost, marginal and
    inverse marginal for unit importance.

    >>> import numpy as np
    >>> from freshopt.separable.kernel import Kernel, Numerics
    >>> class Delay(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         t = cp.Variable(len(sources))
    ...         return cp.multiply(sources.importance * sources.change_rate, t), [cp.inv_pos(rate) <= t]
    ...     def kernel(self, sources):
    ...         return Kernel(
    ...             sources.importance,
    ...             (sources.change_rate,),
    ...             lambda rate, d: d / rate,
    ...             lambda rate, d: d / rate**2,
    ...             lambda price, d: np.sqrt(d / price),
    ...         )
    >>> problem = fo.Problem(Delay(), fo.Sources(change_rate=[1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem).rates.round(9), fo.solve(problem, fo.solvers.Conic()).rates.round(3)
    (array([1., 2.]), array([1., 2.]))
    """

    sense: ClassVar[Sense] = "minimise"
    refresh: Refresh = Refresh.POISSON
    disciplines: ClassVar[tuple[Refresh, ...]] = (Refresh.PERIODIC, Refresh.POISSON)
    on_request: ClassVar[bool] = False
    attempts: ClassVar[bool] = False
    window_cones: ClassVar[bool] = False
    counts_signals: ClassVar[bool] = False
    waits_after_signals: ClassVar[bool] = False
    penalty_of: ClassVar[Penalty | None] = None
    columns: ClassVar[tuple[str, ...]] = ()
    commands: ClassVar[tuple[Command, ...]] = ()
    # The objective of a name, on a clock: `freshopt.naming`, which knows all names, tells it.
    _of_name: ClassVar[Callable[[str, str | None], Objective] | None] = None

    def __init_subclass__(cls, **settings: Any) -> None:  # noqa: ANN401 - a class's own
        """Raise ObjectiveError for a class whose sense or penalty is none."""
        super().__init_subclass__(**settings)
        own, penalty = cls.__dict__.get("sense"), cls.__dict__.get("penalty_of")
        if penalty is not None and not hasattr(penalty, "__get__"):
            cls.penalty_of = one_of(penalty, PENALTIES, f"penalty_of of {cls.__name__}", ObjectiveError)
        if isinstance(own, property):
            cls.sense = property(lambda self: _sense(own.__get__(self), cls))  # type: ignore[assignment]
        elif own is not None and not hasattr(own, "__get__"):
            cls.sense = _sense(own, cls)

    def __post_init__(self) -> None:
        """Raise ObjectiveError unless `refresh` is a discipline; called by dataclasses."""
        require_discipline(self)

    def __repr__(self) -> str:
        """Return the name; dataclasses write their own, with fields."""
        return f"{type(self).__name__}()"

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare the objective of each source in CVXPY.

        Parameters
        ----------
        rate : cvxpy expression, affine, shape (n,)
            The refresh rates, ≥ 0. Not necessarily a `cvxpy.Variable`.
        sources : Sources
            Their n change rates and importances.

        Returns
        -------
        cvxpy expression of shape (n,), or (expression, list of constraints)
            Convex if minimised, concave if maximised; entry k uses entry k of `rate` only.
        """
        raise ObjectiveError(
            f"{type(self).__name__} declares no per_source(rate, sources). Write that method."
        )

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare the objective of signalled sources, or None.

        They announce their changes; None means that there is no such cell.
        """
        return None

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return a well-conditioned cone form of the total, or None.

        The total is that at ρ = typical·y; None means the sum of `per_source`.

        Parameters
        ----------
        y : cvxpy expression, affine, shape (n,)
            Relative rates; near 1 at the optimum, to a factor of about two.
        sources : Sources
        typical : ndarray, shape (n,)
            Rates > 0.

        Returns
        -------
        (scalar expression, list of constraints), or None
            Equal to the sum of `per_source` up to a constant and to an error that does not matter near y = 1.
        """
        return None

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return the cone form of signalled sources, or None."""
        return None

    def convex_per_bandwidth(self, sources: Sources) -> str | None:
        """Return None if J is convex in bandwidth used.

        It is that of conditional fetches. Otherwise why not, or that nothing is
        known; `freshopt.separable.conditional_kernel` has the proofs.
        """
        if self.penalty_of is not None:
            return None
        name = type(self).__name__
        return (
            f"nothing tells whether {name} is convex in the bandwidth that they use, such as its penalty_of"
        )

    def concave_per_bandwidth(self, sources: Sources) -> tuple[Array, Array] | None:
        """Return rates between which J is concave in bandwidth used, or None.

        NaN for sources of convex costs. Outside these rates J is convex and decreasing. None where nothing
        tells.
        """
        return None

    def cost_of_freshness(self, fresh: Expression, sources: Sources) -> Expression | None:
        """Return w·J as a convex function of freshness, or None.

        Under Poisson refreshes. What is maximised is returned as the concave gain.
        """
        return None

    def never_failing(
        self,
        sources: Sources,
        success: Array,
        refresh: Refresh,
    ) -> tuple[Objective, Sources] | None:
        """Return the costs of attempts, stated in fetches that never fail.

        None where they are no such costs; under Poisson refreshes sρ then takes the place of ρ.

        Parameters
        ----------
        sources : Sources
            Without chances of success.
        success : ndarray, shape (n,)
            s in (0, 1].
        refresh : Refresh
            ``POISSON``, ``PERIODIC`` or, for signalled sources, ``ON_SIGNAL``.
        """
        return None

    def interpolation_error(self, sources: Sources, cost: float) -> float:
        """Return by how much numerics may miss the total cost.

        It is part of every certified gap; 0 of formulas.
        """
        return 0.0

    def take(self, index: Index) -> Objective:
        """Return the objective for some of the sources.

        Override it if it holds arrays of length n.
        """
        return self

    def kernel(self, sources: Sources) -> Kernel | None:
        """Return hand-written numerics equal to `per_source`, or None.

        None has them derived from it.
        """
        return None

    def attempt_kernel(self, sources: Sources, success: Array) -> Kernel | None:
        """Return the numerics of periodic attempts, or None.

        Of those of which each succeeds with a chance, where `never_failing` has no answer.

        Parameters
        ----------
        sources : Sources
            Without chances of success.
        success : ndarray, shape (n,)
            s in (0, 1].
        """
        return None

    def signalled_kernel(self, sources: Sources) -> Kernel | None:
        """Return hand-written numerics equal to `signalled_per_source`, or None."""
        return None

    def require_share_of_signals(self) -> None:
        """Raise ObjectiveError where signals are followed by a rule, not a share.

        That is so under periodic refreshes of a class with `counts_signals`; CVXPY declares shares alone.
        """
        if counts_signals(self):
            raise ObjectiveError(
                f"{self!r} follows every N-th signal, or waits after one, a cost that is known for fetches "
                "that succeed and not declared in CVXPY. Use the default solver, or Refresh.POISSON."
            )

    def refuses_signals(self) -> str | None:
        """Return why signalled sources are unsupported, or None."""
        name, kind = type(self).__name__, type(self)
        if kind.signalled_per_source is not Objective.signalled_per_source:
            return None
        if self.penalty_of is None:
            return f"{name} declares no signalled_per_source(rate, sources), nor penalty_of"
        if self.refresh is Refresh.ON_REQUEST or self.attempts:
            return f"{name} declares no signalled_per_source(rate, sources)"
        if self.poisson_twin() is None:
            return (
                f"{name} is a cost of equal gaps, which does not tell that of random ones: declare "
                "signalled_per_source(rate, sources), or make it a dataclass with a field refresh and write "
                "per_source under either"
            )
        return None

    def poisson_twin(self) -> Objective | None:
        """Return the objective under Poisson refreshes, or None.

        It is itself, or a dataclass with another `refresh`.
        """
        if self.refresh is Refresh.POISSON:
            return self
        if not is_dataclass(self) or Refresh.POISSON not in self.disciplines:
            return None
        return replace(self, refresh=Refresh.POISSON) if "refresh" in {f.name for f in fields(self)} else None

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the value in the declared sense from the cost.

        The cost is the total that the numerics minimise; `value_at` asks for it where these know no gains.
        """
        return cost if self.sense == "minimise" else -cost

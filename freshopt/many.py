"""`solve_many`: many small problems at once, each with its certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
import numpy.typing as npt

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solutions import BatchSums, Solutions, verdicts
from freshopt.certificates.solver_protocol import (
    SolveOptions,
    Solver,
    check_solver,
    options_from,
    raise_unless_good,
    run_solver,
)
from freshopt.compiled.batch.batch_columns import BatchCell
from freshopt.compiled.batch.batch_records import UNSOLVED
from freshopt.dual_search.batch_water_filling import (
    SMALL,
    Batch,
    batch_cell,
    batch_of,
    enabled,
    numerics_cell,
)
from freshopt.errors import InfeasibleProblemError, SourceDataError, expect, list_offenders, shown
from freshopt.modelling.changed_problem import problem_of_some
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    IntArray,
    as_vector,
    read_only,
    shape_of,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import segment_rows
from freshopt.renamed import keywords
from freshopt.solvers.auto import Auto
from freshopt.solvers.water_filling import WaterFilling
from freshopt.units import rate_of


@frozen_value()
class SourceGroups(Sequence[Problem]):
    """Problems over consecutive groups of sources, declared when asked for.

    - `offsets` (m+1,)
    - `bandwidths` (m,)
    - `whole`: The problem of all sources, once its bounds were checked.
    """

    objective: Objective
    sources: Sources
    offsets: IntArray
    bandwidths: Array
    whole: Problem | None = None

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.bandwidths)

    @overload
    def __getitem__(self, k: int) -> Problem: ...

    @overload
    def __getitem__(self, k: slice) -> list[Problem]: ...

    def __getitem__(self, k: int | slice) -> Problem | list[Problem]:
        """Return the problem of one group, or a list of them."""
        if isinstance(k, slice):
            return [self[one] for one in range(len(self))[k]]
        k = range(len(self))[k]
        own = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
        bandwidth = float(self.bandwidths[k])
        if self.whole is not None:
            return problem_of_some(self.whole, own, bandwidth)
        return Problem(self.objective.take(own), self.sources.take(own), bandwidth)


@overload
def solve_many(
    problems: Iterable[Problem],
    *,
    solver: Solver | None = None,
    tolerance: float = 1e-6,
    throw: bool = True,
) -> Solutions: ...


@overload
def solve_many(
    problems: Objective,
    sources: Sources,
    *,
    offsets: npt.ArrayLike,
    bandwidths: npt.ArrayLike,
    solver: Solver | None = None,
    tolerance: float = 1e-6,
    throw: bool = True,
) -> Solutions: ...


@keywords()
def solve_many(
    problems: Iterable[Problem] | Objective,
    sources: Sources | None = None,
    *,
    offsets: npt.ArrayLike | None = None,
    bandwidths: npt.ArrayLike | None = None,
    solver: Solver | None = None,
    tolerance: float = 1e-6,
    throw: bool = True,
) -> Solutions:
    """Solve many problems at once, and certify each.

    Problems of bandwidth and bounds, with objectives that have compiled formulas, are solved and proved in
    one compiled call, some microseconds each. All others are solved one by one, as by `solve`.

    Parameters
    ----------
    problems : iterable of Problem, or Objective
        Problems of any kind and size; or one objective, for groups of sources.
    sources : Sources, optional
        Of all groups, those of a group one after the other.
    offsets : array_like of int, shape (m+1,), optional
        Where groups begin, and the number of sources at the end: group k has the sources
        ``offsets[k]:offsets[k + 1]``.
    bandwidths : array_like, shape (m,) or a number, optional
        Of the groups, per time unit, or each with its unit such as "200/day".
    solver : Solver, optional
        An instance, for all problems, one by one; None means ``solvers.Auto()``.
    tolerance : float
        Relative duality gap above which a status is inaccurate.
    throw : bool
        Raise on the first refusal, failure or inaccuracy, with the problem's number; False returns them as
        statuses.

    Returns
    -------
    Solutions
        A sequence of `Solution`, with arrays of rates, prices, values and gaps.

    Raises
    ------
    SourceDataError
        If offsets or bandwidths are no such; names the groups.
    InfeasibleProblemError
        If a problem has no feasible rates of finite cost.
    CertificateError
        If an answer is not proved optimal to the tolerance; carries ``.solution``.

    Notes
    -----
    A search starts from the price of the problem before it. Which problems are in a batch may therefore
    change the last digits of an answer, values to about 1e-14, prices to 1e-11 and rates to 1e-9, and nothing
    else. The same call returns the same bits, on any number of threads, unless `freshopt.warm` or the work
    done before has loaded other loops meanwhile.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0, 1.0, 9.0, 4.0])
    >>> delay = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> solutions = fo.solve_many(delay, sources, offsets=[0, 2, 5], bandwidths=[3.0, 12.0])
    >>> solutions.rates.round(9), solutions.values.round(9)
    (array([1., 2., 2., 6., 4.]), array([3., 3.]))
    >>> solutions[1].certificate.relative_gap < 1e-12
    True
    """
    begun = time.perf_counter()
    check_solver(solver)
    expect(throw, (int, np.bool_), "throw", "Pass True or False")
    options = SolveOptions(tolerance)
    if isinstance(problems, Objective):
        groups = _groups(problems, sources, offsets, bandwidths)
        groups, parts = (groups, []) if solver is not None else _grouped(groups)
        return _solved(groups, parts, np.diff(groups.offsets), solver, options, throw, begun)
    if sources is not None or offsets is not None or bandwidths is not None:
        raise TypeError(
            "sources, offsets and bandwidths go with an objective. Pass it first, or problems alone."
        )
    if isinstance(problems, str | Problem) or not isinstance(problems, Iterable):
        raise TypeError(f"problems are {shown(problems)}. Pass a list of freshopt.Problem, or an objective.")
    given = tuple(problems)
    for problem in given:
        expect(problem, Problem, "a problem", "Pass a list of freshopt.Problem")
    if not given:
        raise SourceDataError("there are no problems. Pass at least one.")
    parts = [] if solver is not None else _alike(given)
    sizes = np.array([len(problem.sources) for problem in given])
    return _solved(given, parts, sizes, solver, options, throw, begun)


def _solved(
    problems: Sequence[Problem],
    parts: Sequence[tuple[IntArray, Batch]],
    sizes: IntArray,
    solver: Solver | None,
    options: SolveOptions,
    throw: bool,
    begun: float,
) -> Solutions:
    """Return solutions: parts at once, all others one by one.

    - `parts` sequence of (ndarray of int, Batch): Which problems are a batch.
    - `sizes` (m,): Their numbers of sources.
    - `begun`: When the call began.
    """
    m = len(problems)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    values, gaps, relative, prices = np.full((4, m), np.nan)
    sums, proved = np.zeros((m, 5)), np.zeros(m, dtype=np.bool_)
    iterations, batches = np.zeros((2, m), dtype=np.int64)
    rates: Array | None = None
    for number, (which, batch) in enumerate(parts):
        found = batch.solve()
        own = BatchSums(found.prices, found.sums)
        verdict = verdicts(own, batch.bandwidth, batch.free, batch.gains, options.tolerance)
        prices[which], sums[which], iterations[which] = found.prices, found.sums, found.evaluations
        values[which], gaps[which], relative[which] = verdict.values, verdict.gaps, verdict.relative_gaps
        batches[which], proved[which] = number, verdict.proved & (found.states != UNSOLVED)
        if len(which) == m:
            rates = found.rates
            continue
        rates = np.empty(offsets[-1]) if rates is None else rates
        rates[segment_rows(offsets, which)] = found.rates
    rates = np.empty(offsets[-1]) if rates is None else rates
    statuses = [Status.OPTIMAL] * m
    alone: dict[int, Solution] = {}
    before: Solution | None = None
    for k in np.flatnonzero(~proved).tolist():
        one = _solved_alone(problems, k, before, solver, options, throw)
        own_rates = rates[offsets[k] : offsets[k + 1]]
        if one is None:
            statuses[k], own_rates[...] = Status.INFEASIBLE, math.nan
            prices[k], values[k], gaps[k], relative[k] = math.nan, math.nan, math.inf, math.inf
            continue
        if one.price > 0.0 or one.multipliers is not None:
            before = one
        proof, own_rates[...] = one.certificate, one.rates
        alone[k], statuses[k], prices[k], values[k] = one, one.status, one.price, one.value
        gaps[k], relative[k] = (proof.gap, proof.relative_gap) if proof else (math.inf, math.inf)
        iterations[k] = one.iterations
    return Solutions(
        problems,
        rates,
        offsets,
        prices,
        values,
        gaps,
        relative,
        tuple(statuses),
        WaterFilling() if solver is None else solver,
        time.perf_counter() - begun,
        BatchSums(read_only(prices), read_only(sums)),
        iterations,
        batches,
        alone,
    )


def _solved_alone(
    problems: Sequence[Problem],
    k: int,
    before: Solution | None,
    solver: Solver | None,
    options: SolveOptions,
    throw: bool,
) -> Solution | None:
    """Return one problem's solution; None where it cannot be declared."""
    try:
        problem = problems[k]
    except InfeasibleProblemError as error:
        if throw:
            raise InfeasibleProblemError(f"problem {k}: {error}", error.conflict) from None
        return None
    # Along one limit, and over draws of the same sources, a price is the start of the next search.
    along = before is not None and before.problem.objective is problem.objective
    along = along and before is not None and len(before.rates) == len(problem.sources)
    chosen: Solver = Auto() if solver is None else solver
    found = run_solver(chosen, problem, options_from(problem, before if along else None, options.tolerance))
    if throw:
        raise_unless_good(found, f"problem {k}: ")
    return found


def _alike(problems: Sequence[Problem]) -> list[tuple[IntArray, Batch]]:
    """Return the batches of problems that have a batch route."""
    cells: dict[tuple[BatchCell, str], list[int]] = {}
    for k, problem in enumerate(problems):
        cell = batch_cell(problem)
        if cell is not None:
            cells.setdefault((cell, problem.objective.sense), []).append(k)
    parts = []
    for (cell, _), which in cells.items():
        if enabled(cell, sum(len(problems[k].sources) for k in which), len(which)):
            batch = batch_of(cell, [problems[k] for k in which])
            if batch is not None:
                parts.append((np.array(which), batch))
    return parts


def _grouped(groups: SourceGroups) -> tuple[SourceGroups, list[tuple[IntArray, Batch]]]:
    """Return groups with what was prepared, and their batches, if any."""
    if groups.sources.changed_cost is not None:
        return groups, []
    first = slice(0, 1)
    one, _ = numerics_of(groups.objective.take(first), groups.sources.take(first))
    which = np.flatnonzero(np.diff(groups.offsets) <= SMALL)
    if numerics_cell(groups.objective, one) is None or not len(which):
        return groups, []
    # Bounds are checked here, bandwidths group by group.
    try:
        whole = Problem(groups.objective, groups.sources, LARGEST)
    except InfeasibleProblemError:
        # Which groups have no rates of finite cost is told one by one.
        return groups, []
    sizes = np.diff(groups.offsets)[which]
    cell = batch_cell(whole, most=len(groups.sources))
    if cell is None or not enabled(cell, int(sizes.sum()), len(which)):
        return groups, []
    batch = batch_of(cell, [whole])
    if batch is None:
        return groups, []
    own = replace(batch, first=groups.offsets[which], size=sizes, bandwidth=groups.bandwidths[which])
    return replace(groups, whole=whole), [(which, own)]


def _groups(
    objective: Objective,
    sources: Sources | None,
    offsets: npt.ArrayLike | None,
    bandwidths: npt.ArrayLike | None,
) -> SourceGroups:
    """Return validated groups of sources."""
    expect(sources, Sources, "sources", "Pass freshopt.Sources after the objective")
    if sources is None or offsets is None or bandwidths is None:
        raise SourceDataError("groups have no offsets or bandwidths. Pass offsets= and bandwidths=.")
    shape_of(offsets, "offsets")
    given = np.asarray(offsets)
    if given.ndim != 1 or len(given) < 2 or given.dtype.kind not in "iu":
        raise SourceDataError(
            f"offsets are {shown(offsets)}. Pass whole numbers: where each group begins, and where the last "
            "ends."
        )
    places = given.astype(np.int64)
    if places[0] != 0 or places[-1] != len(sources):
        raise SourceDataError(
            f"offsets go from {places[0]} to {places[-1]} but there are {len(sources)} sources. Begin at 0 "
            f"and end at {len(sources)}."
        )
    empty = np.flatnonzero(np.diff(places) <= 0)
    if len(empty):
        raise SourceDataError(
            f"there are no sources in group {list_offenders(map(str, empty))}. Let offsets rise, and leave "
            "empty groups out."
        )
    m = len(places) - 1
    shape = shape_of(bandwidths, "bandwidths")
    if shape not in {(), (m,)}:
        raise SourceDataError(
            f"bandwidths have shape {shape} but offsets tell of {m} groups. Pass a number or one each."
        )
    if np.asarray(bandwidths).dtype.kind == "U":
        texts = np.asarray(bandwidths).ravel().tolist()
        bandwidths = [rate_of("bandwidths", text, sources.time_unit) for text in texts * (m // len(texts))]
    limits = as_vector(bandwidths, m, "bandwidths")
    usable: BoolArray = (limits >= SMALLEST) & (limits <= LARGEST)
    if not bool(np.all(usable)):
        where = list_offenders(f"group {k}: {limits[k]:g}" for k in np.flatnonzero(~usable))
        raise SourceDataError(f"bandwidths out of range for {where}. Each must be > 0 (at most {LARGEST:g}).")
    return SourceGroups(objective, sources, places, np.ascontiguousarray(limits))

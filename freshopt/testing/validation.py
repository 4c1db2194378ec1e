"""`validate`: test a foreign solver on families of problems.

Every shortfall is reported with its certified gap and infeasibility, and for each kind of failure the
smallest problem that shows it is searched for. Judging an answer takes about twenty milliseconds, finding the
smallest problem some dozens to hundreds of runs.

`shrink`: greedy simplification of a failing problem. Fewer sources first, in halves and then one by one, the
bandwidth cut along with them; then fewer features, each first for all sources at once; then rounder numbers.
Every step keeps the failure, and no step undoes another, so that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from freshopt.errors import FreshoptError, SourceDataError, expect
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray, as_number
from freshopt.testing.foreign_runs import Outcome, Verdict, as_function, attempt
from freshopt.testing.problem_families import SCALES, SIZES, Instance, Scale, instances, standard_objectives
from freshopt.testing.recipe import COLUMNS, DEFAULTS, Recipe, column_of
from freshopt.testing.validation_report import Report, Reproduction, Run

Edit: TypeAlias = Callable[[Recipe], Recipe]
# Solver runs at most; with ten sources a kind of failure takes 5 to 30.
RUNS = 200
DIGITS = (1, 2, 3)


def shrink(recipe: Recipe, fails: Callable[[Recipe], bool], runs: int = RUNS) -> Recipe:
    """Return a simpler recipe that still fails.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([0.123, 1.0, 4.56]), bandwidth=2.718)
    >>> small = shrink(Recipe.from_problem(problem), lambda recipe: bool(recipe.change_rate.max() > 1.5))
    >>> small.change_rate, small.bandwidth
    (array([5.]), 1.0)
    """
    left = runs

    def keeps(candidate: Recipe) -> bool:
        nonlocal left
        try:
            candidate.problem()
        except (FreshoptError, ValueError):  # ValueError: a user's objective with arrays of another length
            return False
        left -= 1
        return left >= 0 and fails(candidate)

    before = None
    while before is not recipe and left > 0:
        before = recipe
        recipe = _fewer_sources(recipe, keeps)
        for edit in _edits(recipe):
            candidate = edit(recipe)
            if candidate is not recipe and keeps(candidate):
                recipe = candidate
    return recipe


def _fewer_sources(recipe: Recipe, keeps: Callable[[Recipe], bool]) -> Recipe:
    """Drop chunks of sources while the failure persists."""
    chunk = max(1, len(recipe) // 2)
    while chunk >= 1:
        start = 0
        while start < len(recipe) and len(recipe) > 1:
            kept = np.delete(np.arange(len(recipe)), np.s_[start : start + chunk])
            smaller = next((c for c in _cut(recipe, kept) if keeps(c)), None) if len(kept) else None
            if smaller is None:
                start += chunk
            else:
                recipe = smaller
        chunk //= 2
    return recipe


def _cut(recipe: Recipe, kept: IntArray) -> Iterator[Recipe]:
    """Yield recipes of some sources, bandwidth and limits scaled first."""
    try:
        part = recipe.take(kept)
    except (FreshoptError, ValueError):  # a constraint that needs all sources
        return
    share = len(part) / len(recipe)
    limits = {host: limit * share for host, limit in part.host_limits.items()}
    if recipe.bandwidth is not None:
        yield replace(part, bandwidth=recipe.bandwidth * share, host_limits=limits)
    yield part


def _edits(recipe: Recipe) -> Iterator[Edit]:
    """Yield simplifications: fewer features, then rounder numbers."""
    n = len(recipe)
    scopes = [np.arange(n), *([np.array([k]) for k in range(n)] if n > 1 else [])]
    yield lambda one: one if one.names is None else replace(one, names=None)
    yield lambda one: one if one.host is None else replace(one, host=None, host_limits={})
    for one in recipe.constraints:
        yield partial(_without_constraint, constraint=one)
    for host in recipe.host_limits:
        yield partial(_without_limit, host=host)
    for key, default in (*DEFAULTS.items(), ("change_rate", 1.0)):
        for scope in scopes:
            yield partial(_set, key=key, scope=scope, value=partial(np.full_like, fill_value=default))
    yield lambda one: one if one.bandwidth in (1.0, None) else replace(one, bandwidth=1.0)
    for digits in DIGITS:
        for key in (key for key in COLUMNS if key != "signalled"):
            for scope in scopes:
                yield partial(_set, key=key, scope=scope, value=partial(_round, digits=digits))
        yield partial(_round_totals, digits=digits)


def _without_constraint(recipe: Recipe, constraint: object) -> Recipe:
    """Remove a constraint; return the same recipe if it is gone."""
    kept = tuple(one for one in recipe.constraints if one is not constraint)
    return recipe if len(kept) == len(recipe.constraints) else replace(recipe, constraints=kept)


def _without_limit(recipe: Recipe, host: object) -> Recipe:
    """Remove a host's limit; return the same recipe without one."""
    if host not in recipe.host_limits:
        return recipe
    return replace(recipe, host_limits={h: limit for h, limit in recipe.host_limits.items() if h != host})


def _set(recipe: Recipe, key: str, scope: IntArray, value: Callable[[Array], Array]) -> Recipe:
    """Set part of a column, if that changes it."""
    column: Array = getattr(recipe, key)
    changed = column.copy()
    changed[scope] = value(column[scope])
    if np.array_equal(changed, column):
        return recipe
    changes: dict[str, Any] = {key: changed}
    return replace(recipe, **changes)


def _round_totals(recipe: Recipe, digits: int) -> Recipe:
    """Round the bandwidth and the limits."""
    bandwidth = None if recipe.bandwidth is None else _round([recipe.bandwidth], digits).item()
    limits = {host: _round([limit], digits).item() for host, limit in recipe.host_limits.items()}
    if bandwidth == recipe.bandwidth and limits == recipe.host_limits:
        return recipe
    return replace(recipe, bandwidth=bandwidth, host_limits=limits)


def _round(numbers: Iterable[float], digits: int) -> Array:
    """Round to significant digits.

    Examples
    --------
    >>> _round([123.4, 0.05678, np.inf], 2)
    array([1.2e+02, 5.7e-02,     inf])
    """
    return np.array([float(f"{number:.{digits - 1}e}") for number in numbers])


OneRun: TypeAlias = Callable[[Recipe, float], Outcome]
# Share of the relative gap that a smaller problem must keep: with much less it may have another cause.
KEPT = 0.1


def validate(
    solver: object,
    objectives: Iterable[Objective] | None = None,
    *,
    n: int | Sequence[int] = SIZES,
    seed: int = 0,
    scales: Sequence[Scale] = SCALES,
    tolerance: float = 1e-6,
    smallest: bool = True,
    announce: Callable[[str], None] = lambda _: None,
    run: OneRun | None = None,
) -> Report:
    """Validate a foreign solver on the families of problems.

    Parameters
    ----------
    solver : callable, Solver, or class of either
        ``solve(problem) -> rates``, array_like of shape (n,), refreshes per time unit. It declines a problem
        that it is not for by raising `SolverRefusedError`, which is no shortfall.
    objectives : iterable of Objective, optional
        Default: the named ones, each under each discipline in which it exists.
    n : int or sequence of int
        Numbers of sources, each ≥ 1, of which there are families. One number, their length, for objectives
        that hold arrays.
    seed, scales
        See `instances`.
    tolerance : float
        Relative gap, and relative violation of a bound or limit, up to which an answer is good.
    smallest : bool
        Whether to search the smallest problem that shows each kind of failure.
    announce : callable, optional
        Called with the objective, scale and n before each family, and the kind of failure before each search.
    run : callable, optional
        ``run(recipe, tolerance)`` runs the solver on one problem in place of `attempt`: in a process of its
        own, for instance.

    Returns
    -------
    Report
        ``.passed``, ``.shortfalls``, ``.smallest``, ``.to_frame()``, and the tables in words by ``repr``.

    Raises
    ------
    SolverRefusedError
        If `solver` is no solver.

    Notes
    -----
    The solver's rates alone count: neither its status nor a gap that it reports. What it raises is reported,
    except interrupts; each problem is built for it alone and compared afterwards with what it was.

    Examples
    --------
    >>> import freshopt as fo
    >>> def even(problem):
    ...     n = len(problem.sources)
    ...     return [problem.bandwidth / n] * n
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> report = validate(even, [objective], n=3, scales=["benign"], smallest=False)
    >>> report.passed, len(report.runs)
    (False, 60)
    """
    runs: list[Run] = []
    run = run or partial(attempt, as_function(solver))
    sizes = tuple(n) if isinstance(n, Sequence) and not isinstance(n, str) else (n,)
    if not sizes:
        raise SourceDataError("n is empty. Pass numbers of sources >= 1, such as 10 or (1, 10, 300).")
    for objective in standard_objectives() if objectives is None else objectives:
        for scale, size in product(scales, sizes):
            announce(f"{objective!r}, {scale}, n={size}")
            for instance in instances(objective, size, seed, scale):
                runs.append(_run(run, scale, instance, tolerance))
    return _report(solver, run, runs, tolerance, announce, smallest=smallest)


def validate_on(
    solver: object,
    problems: Iterable[tuple[str, Problem]],
    *,
    tolerance: float = 1e-6,
    smallest: bool = True,
    announce: Callable[[str], None] = lambda _: None,
    run: OneRun | None = None,
) -> Report:
    """Validate a foreign solver on named problems of your own.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> print(validate_on(fo.solvers.WaterFilling(), [("mine", problem)]).sentence)
    No shortfall: 1 answers are proved optimal.
    """
    tolerance = as_number(tolerance, "tolerance", "Pass a relative gap >= 0, such as 1e-6.")
    expect(smallest, bool, "smallest", "Pass True or False")
    runs: list[Run] = []
    run = run or partial(attempt, as_function(solver))
    for pair in problems:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise TypeError(f"problems holds {type(pair).__name__}. Pass pairs of a name and a problem.")
        name, problem = pair
        expect(problem, Problem, f"the problem {name!r}", "Pass a freshopt.Problem")
        announce(name)
        runs.append(_run(run, "given", Instance(name, problem), tolerance))
    return _report(solver, run, runs, tolerance, announce, smallest=smallest)


def _run(run: OneRun, scale: str, instance: Instance, tolerance: float) -> Run:
    return Run(scale, instance, run(Recipe.from_problem(instance.problem), tolerance))


def _report(
    solver: object,
    run: OneRun,
    runs: list[Run],
    tolerance: float,
    announce: Callable[[str], None],
    *,
    smallest: bool,
) -> Report:
    """Search the smallest failures and assemble the report."""
    found = []
    kinds = dict.fromkeys(each.outcome.kind for each in runs if each.outcome.verdict.is_shortfall)
    for kind in kinds if smallest else ():
        announce(f"the smallest problem that is {kind}")
        failing = [each for each in runs if each.outcome.kind == kind]
        found.append(_smallest(run, min(failing, key=_size), tolerance))
    return Report(_name(solver), tolerance, tuple(runs), tuple(found))


def _smallest(one_run: OneRun, run: Run, tolerance: float) -> Reproduction:
    """Shrink a failing problem while its failure persists."""
    least = KEPT * min(1.0, _relative_gap(run.outcome))
    recipe = Recipe.from_problem(run.instance.problem)

    def fails(candidate: Recipe) -> bool:
        outcome = one_run(candidate, tolerance)
        return outcome.kind == run.outcome.kind and (
            outcome.verdict is not Verdict.NOT_OPTIMAL or _relative_gap(outcome) >= least
        )

    origin = f"{run.objective}, {run.scale}, {run.instance.name}"
    if run.outcome.verdict is Verdict.NO_ANSWER:  # each smaller problem could take as long
        return Reproduction(origin, recipe, run.outcome)
    small = shrink(recipe, fails)
    outcome = one_run(small, tolerance)
    if outcome.kind != run.outcome.kind:  # it does not do the same twice: what was seen is reported
        return Reproduction(f"{origin} (it did not fail again)", recipe, run.outcome)
    return Reproduction(origin, small, outcome)


def _relative_gap(outcome: Outcome) -> float:
    return outcome.certificate.relative_gap if outcome.certificate else 0.0


def _size(run: Run) -> tuple[int, int]:
    """Return a problem's size: sources, then features in use."""
    sources, hosts = run.instance.problem.sources, run.instance.problem.hosts
    features = [bool(np.any(column_of(sources, key) != default)) for key, default in DEFAULTS.items()]
    return len(sources), sum(features) + len(hosts)


def _name(solver: object) -> str:
    """Return a solver's import path, or its repr."""
    module, name = getattr(solver, "__module__", None), getattr(solver, "__qualname__", None)
    return f"{module}:{name}" if module and name else repr(solver)

"""`solve` for partitioned sources, through Dask.

The same mathematics as `fo.solve` with `solvers.WaterFilling`: the price of bandwidth, and those of hosts and
groups in a tree below it (`freshopt.dual_search.nested_prices`), determine every rate. A first pass over the
partitions validates them, adds up their bounds and draws a sample; one or two passes evaluate the demand at
several prices each, or gather sources that fit on one worker; a last one writes the rates and adds up their
certificate. So ten million or a billion sources need four or five passes over the files, few more where many
hosts have limits, and the client holds a few numbers per partition and group.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.certificates.solution import Status
from freshopt.distributed.column_rows import ColumnRows, column_rows, require_objective
from freshopt.distributed.driver import DistributedSolve, file_name
from freshopt.distributed.partitioned_sources import PartitionedSources
from freshopt.distributed.solution import DistributedSolution
from freshopt.errors import (
    CertificateError,
    SourceDataError,
    list_offenders,
)
from freshopt.logs.atomic_output import complete_folder
from freshopt.modelling.declared_constraints import as_constraints
from freshopt.modelling.host_limits import require_usable
from freshopt.modelling.objective import Objective, as_objective
from freshopt.numerics.arrays import LARGEST, SMALLEST
from freshopt.units import check_time_unit

MARKER = "summary.json"


def solve(
    objective: Objective | str,
    sources: object,
    bandwidth: float | None = None,
    host_limits: Mapping[Any, float] | None = None,
    *,
    constraints: object = (),
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    tolerance: float = 1e-6,
    throw: bool = True,
    time_unit: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> DistributedSolution:
    """Solve for partitioned sources on the active Dask client.

    Minimise Σ w_k J_k(ρ_k) subject to Σ cost_k ρ_k ≤ bandwidth, min_rate ≤ ρ ≤ max_rate and
    Σ_{k∈host} cost_k ρ_k ≤ L_host, for n sources of which no machine need hold more than a partition.

    Parameters
    ----------
    objective : Objective or str
        One that holds arrays of length n must have `take`; each partition then gets its own part of them.
    sources : PartitionedSources, path, list of paths, or Dask DataFrame
        With the column change_rate, and where they are wanted source (a name), importance, host, signalled,
        min_rate, max_rate, refresh_cost, in float64 or float32, and time_unit.
    bandwidth : float, optional
        Total refresh cost per time unit, > 0; without it there must be constraints.
    host_limits : mapping of host to float, optional
        Bandwidth each host may take, wherever its sources are.
    constraints : sequence of Budget, Target and Nested, optional
        Limits and reserves of bandwidth as in memory, but that groups are names of columns: ``Budget({"eu":
        8e5}, by="region")``, ``Nested(["host", "domain"], at_most={"example.org": 50.0})``. A group may be
        empty (null). Any number of them, over groups that are nested or disjoint; other constraints are
        refused.
    out : path, optional
        Folder for the rates, which every worker must be able to write: ``part-00000.parquet`` and so on
        (source, rate, interval; and signalled, change_rate if there are signals), one per partition and in
        its order, and ``summary.json``. It is written atomically. None leaves the rates unevaluated;
        `DistributedSolution.rates` works them out.
    overwrite : bool
        Whether an earlier result in `out` may be replaced.
    tolerance : float
        Relative gap above which the status is inaccurate.
    throw : bool
        Raise if the rates are not proved optimal to the tolerance; nothing is written then.
    time_unit : str, optional
        Of all rates; by default what a column time_unit says, else day.
    on_progress : callable, optional
        Called with a word before each pass.

    Returns
    -------
    DistributedSolution

    Raises
    ------
    SourceDataError
        If a value is missing or out of range (naming file and row), files disagree, a host is unknown, or
        `out` cannot be written.
    ObjectiveError
        If the objective is refused.
    SolverRefusedError
        If a constraint or objective is of a kind that is not solved for over partitions, groups overlap, or
        a constraint holds an array.
    InfeasibleProblemError
        If the bounds need more than the bandwidth or a limit, or limits and reserves exclude each other.
    CertificateError
        If the answer is not proved optimal to the tolerance; carries ``.solution``.

    Notes
    -----
    That a source is not in two partitions is not checked; within a partition it is.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import freshopt as fo
    >>> folder = Path(tempfile.mkdtemp())
    >>> for k, rates in enumerate(([0.1, 1.0], [100.0])):
    ...     pl.DataFrame({"change_rate": rates}).write_parquet(folder / f"{k}.parquet")
    >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    >>> solution = solve(objective, folder, bandwidth=2.0, out=folder / "rates")
    >>> solution.status.value, solution.relative_gap < 1e-12, solution.passes <= 6
    ('optimal', True, True)
    >>> solution.rates().compute()["rate"].round(3).tolist()
    [0.282, 0.652, 1.066]

    Limits by group, by the name of their column:

    >>> for k, tiers in enumerate((["news", "blog"], ["news"])):
    ...     frame = pl.DataFrame({"change_rate": [1.0] * len(tiers), "tier": tiers})
    ...     frame.write_parquet(folder / f"{k}.parquet")
    >>> limit = fo.Budget({"news": 1.0}, by="tier", name="tier")
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> solution = solve(objective, folder, 3.0, constraints=[limit])
    >>> solution.rates().compute()["rate"].round(3).tolist()
    [0.5, 2.0, 0.5]
    >>> {label: round(price, 3) for label, price in solution.prices.items()}
    {'bandwidth': 0.25, 'tier[news]': 3.75}
    """
    objective = as_objective(objective)
    declared = as_constraints(constraints)
    require_objective(objective)
    if bandwidth is None and not declared:
        raise SourceDataError("there is no bandwidth. Pass bandwidth=, or constraints=[...].")
    most = None if bandwidth is None else _bandwidth(bandwidth)
    limits = dict(host_limits or {})
    require_usable(limits)
    rows = column_rows(declared, most, {host: float(limit) for host, limit in limits.items()})
    partitions = PartitionedSources.from_sources(
        sources,
        None if time_unit is None else check_time_unit(time_unit),
        [one.by for one in rows if one.by is not None],
    )
    _require_columns(rows, partitions)
    work = DistributedSolve.scan(objective, partitions, rows, on_progress or (lambda _: None))
    place = nullcontext(None) if out is None else _folder(out, overwrite, len(work.calls))
    with place as staging:
        folder = None if out is None else Path(out)
        solution = work.finish(staging, folder, tolerance, most, declared=bool(declared))
        if throw and solution.status is not Status.OPTIMAL:
            raise CertificateError(
                f"{solution.note} Pass throw=False to have the solution as it is.", solution
            )
        if staging is not None:
            _tidy(staging, solution)
    return solution


def summary(solution: DistributedSolution) -> dict[str, Any]:
    """Return what ``summary.json`` says of a solution."""
    numbers = (
        "bandwidth",
        "n",
        "value",
        "bound",
        "gap",
        "relative_gap",
        "infeasibility",
        "price",
        "used",
        "passes",
    )
    limited = {str(host): price for host, price in solution.host_prices.items()}
    return {
        "status": solution.status.value,
        "objective": repr(solution.objective),
        "sense": solution.objective.sense,
        "time_unit": solution.terms.time_unit,
        **{key: _finite(getattr(solution, key)) for key in numbers},
        **({} if solution.rows is None else {"prices": dict(solution.prices)}),
        "never_refreshed": solution.never,
        "partitions": len(solution.calls),
        "seconds": list(solution.seconds),
        "host_prices": limited,
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _folder(out: str | os.PathLike[str], overwrite: bool, partitions: int) -> AbstractContextManager[Path]:
    """Return the context that writes the rates' folder atomically."""
    files = {file_name(k) for k in range(partitions)} | part_names(Path(out))
    return complete_folder(out, overwrite, marker=MARKER, files=files)


def part_names(folder: Path) -> set[str]:
    """Return the names of a folder's parts, if it exists."""
    if not folder.is_dir():
        return set()
    return {one.name for one in folder.iterdir() if re.fullmatch(r"part-\d{5,}\.parquet", one.name)}


def _tidy(staging: Path, solution: DistributedSolution) -> None:
    """Add the summary."""
    require_parts(staging, len(solution.calls))
    with (staging / MARKER).open("w", encoding="utf-8", newline="\n") as file:
        json.dump(summary(solution), file, indent=2, allow_nan=False)  # as text it may have a line per host
        file.write("\n")


def require_parts(staging: Path, partitions: int) -> None:
    """Remove half-written files; raise if a part is missing.

    Workers that were lost leave half-written files behind.

    - raises SourceDataError if it does.
    """
    expected = {file_name(k) for k in range(partitions)}
    for one in staging.iterdir():
        if one.name not in expected:
            one.unlink()
    missing = sorted(name for name in expected if not (staging / name).exists())
    if missing:
        raise SourceDataError(
            f"the workers wrote {list_offenders(missing)} where this process does not see them. "
            "Name a folder that all of them share."
        )


def _require_columns(rows: tuple[ColumnRows, ...], partitions: PartitionedSources) -> None:
    """Raise SourceDataError if constraints name columns that there are not."""
    present = {*partitions.columns, *partitions.others}
    for one in rows:
        if one.of_hosts and "host" not in present:
            raise SourceDataError("host_limits are given but the sources have no column 'host'. Add it.")
        if one.by is not None and one.by not in present:
            raise SourceDataError(
                f"constraint {one.name!r} names the column {one.by!r}, which not all "
                "partitions have. Correct the name, or pass it in others= of from_dask."
            )


def _bandwidth(value: float) -> float:
    if not isinstance(value, int | float | np.integer | np.floating) or not SMALLEST <= value <= LARGEST:
        raise SourceDataError(f"bandwidth is {value!r}. It must be a number > 0 (at most {LARGEST:g}).")
    return float(value)

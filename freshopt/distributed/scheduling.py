"""Schedule of one partition, and its expected value.

Each partition's schedule is sorted by time; the times of two partitions run side by side. The phases of
periodic refreshes are spread within a partition, so the load of a partition is level, and that of all is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.driver import file_name
from freshopt.distributed.estimation import SOURCES
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.tables import read_table, write_table
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.planning.plan import method_of
from freshopt.planning.wishes import Wishes
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.schedule import schedule
from freshopt.solvers.square_root import square_root_shape


class Calendar(NamedTuple):
    """Scheduling settings that all partitions share.

    - `request`: Without importances and hosts.
    - `end`: When the log ends and the schedule begins, in time units since the log's origin.
    - `origin`: The moment at which the schedule begins, if the log has dates.
    - `baselines`: The number of all sources, the sum of their change rates and that of their shapes by the
      square-root rule, where baselines are wanted.
    """

    request: Wishes
    time_unit: str
    folder: str
    end: float
    origin: datetime | None
    baselines: tuple[int, float, float] | None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Totals of a partition's schedule, kept by the client.

    - `value`: The objective's expected value over the horizon.
    - `baselines`: The values in the long run of the partition's share of the baselines; none where these are
      not wanted.
    """

    refreshes: int
    value: float
    baselines: dict[str, float]


def schedule_part(k: int, share: bytes | None, shift: float, calendar: Calendar) -> Scheduled:
    """Schedule the k-th partition and write the schedule.

    - `share`: The partition's part of an objective that holds arrays.
    - `shift`: Time 0 of the partition's file, in time units since the log's origin.
    """
    folder, name = Path(calendar.folder), file_name(k)
    request = calendar.request
    objective = request.objective if share is None else unpack(share)
    table = read_table(folder / SOURCES / name)
    sources = Sources.from_frame(table, calendar.time_unit, objective.columns)
    age = calendar.end - (table["last_crawl"].to_numpy() + shift)
    rates = read_table(folder / "rates" / name, columns=["source", "rate"])
    # One seed for all would give the sources at the same place of two partitions the same times.
    own = int(np.random.SeedSequence([request.seed, k]).generate_state(1)[0])
    times = schedule(
        rates, request.horizon, method_of(replace(request, seed=own)), time_unit=calendar.time_unit
    )
    with complete_file(folder / "schedule" / name, overwrite=True) as part:
        write_table(times.to_frame(calendar.origin), part)
    baselines = {}
    if calendar.baselines is not None:
        n, changes, roots = calendar.baselines
        problem = Problem(objective, sources, request.bandwidth)
        shares = {
            "uniform": np.full(len(sources), 1.0 / n),
            "proportional": sources.change_rate / changes,
            "square-root": square_root_shape(sources) / (roots or 1.0),
        }
        baselines = {rule: _value(problem, request.bandwidth * own) for rule, own in shares.items()}
    return Scheduled(len(times), expected_value(times, objective, sources, age), baselines)


def _value(problem: Problem, rates: Array) -> float:
    """Return the objective's value in the long run."""
    if problem.numerics is None:
        return np.nan
    return Gap.of(problem, rates, problem.numerics).value

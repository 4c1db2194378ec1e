"""Each partition's share of an objective that holds an entry per source."""

from __future__ import annotations

import pickle

import numpy as np

from freshopt.distributed.dask_passes import Passes, pack
from freshopt.distributed.partitioned_sources import PartitionedSources
from freshopt.distributed.worker_passes import count
from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import Objective


def rows_of(objective: Objective, partitions: PartitionedSources, passes: Passes) -> tuple[int, ...] | None:
    """Return the rows of each partition, where they matter.

    They do if the objective may hold something for each source.
    """
    if objective.take(slice(0, 1)) is objective:
        return None
    if partitions.rows is not None:
        return partitions.rows
    return tuple(passes.run("counting the sources", count, [(part,) for part in partitions.parts], None))


def whole_shares(objective: Objective, rows: tuple[int, ...] | None, parts: int) -> list[bytes | None]:
    """Return each partition's share of an objective's arrays, None without any."""
    if rows is None:
        return [None] * parts
    n, ends = sum(rows), np.cumsum(rows).tolist()
    if n and pickle.dumps(objective.take(slice(n - 1, None))) != pickle.dumps(
        objective.take(slice(n - 1, n))
    ):
        raise ObjectiveError(
            f"{type(objective).__name__} holds more entries than there are sources ({n}). Give one each."
        )
    return [pack(objective.take(slice(end - number, end))) for number, end in zip(rows, ends, strict=True)]

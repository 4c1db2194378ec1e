"""Solve and plan over partitioned data with Dask.

Sources are in Parquet files or in a Dask DataFrame, and are solved in few passes over them; so are plans for
crawl logs.

``pip install 'freshopt[dask]'`` brings what it needs.

No machine holds all sources, so groups of constraints are named as columns of the partitions::

    solution = fo.distributed.solve(
        HarmonicStaleness(),
        "sources/",
        bandwidth=5e6,
        constraints=[
            fo.Budget({"eu": 8e5, "us": 2e6}, by="region", name="region"),  # a row per region
            fo.Nested(["host", "domain", "org"], at_most=limits, at_least=reserves),
        ],
    )
    solution.prices["region[eu]"]  # dual variable of each row, by label
    solution.rows  # used, limit, slack, price and share of the duality gap, row by row

These are limits and reserves of bandwidth over groups that are nested or disjoint, in any number, on which
the number of passes does not depend. Budgets in another unit (`cost=`),
targets, `Spend`, `Tied`, `Ratio`, `Worst` and constraints written in CVXPY are refused: `fo.solve` takes
them, in memory. Groups that conflict are named with a proof.
"""

from freshopt.distributed.partitioned_sources import PartitionedSources as PartitionedSources
from freshopt.distributed.planning import DistributedPlan as DistributedPlan
from freshopt.distributed.planning import plan as plan
from freshopt.distributed.solution import DistributedSolution as DistributedSolution
from freshopt.distributed.solving import solve as solve

__all__ = ["DistributedPlan", "DistributedSolution", "PartitionedSources", "plan", "solve"]

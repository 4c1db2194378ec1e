"""Solve and plan over partitioned data with Dask.

Sources are in Parquet files or in a Dask DataFrame, and are solved in few passes over them; so are plans for
crawl logs.

``pip install 'freshopt[dask]'`` brings what it needs.

No machine holds all sources, so costs and groups of constraints are named as columns of the partitions::

    solution = fo.distributed.solve(
        HarmonicStaleness(),
        "sources/",
        bandwidth=5e6,
        constraints=[
            fo.Budget(2e12, cost="page_bytes", name="bytes"),  # a second unit
            fo.Budget({"eu": 8e5, "us": 2e6}, by="region", name="region"),  # a row per region
            fo.Target(BinaryFreshness(), at_least=0.9, by="tier"),  # every tier's weighted mean
        ],
    )
    solution.prices["bytes"]  # dual variable of each row, by label
    solution.rows  # used, limit, slack, price and share of the duality gap, row by row

Up to a few thousand rows; one constraint by group may have many more if the others are few. Limits and
reserves of hosts in domains in organisations, in any number, are ``fo.Nested(["host", "domain", "org"],
at_most=limits, at_least=reserves)``: the number of passes then depends on the number of levels and not on
that of groups. `Tied`, `Ratio`, `Worst` and constraints written in CVXPY are refused. Constraints that
conflict are named with a proof. Where demand jumps (signalled sources under binary freshness), rows other
than bandwidth and host limits may end inaccurate, and then say so.
"""

from freshopt.distributed.partitioned_sources import PartitionedSources as PartitionedSources
from freshopt.distributed.planning import DistributedPlan as DistributedPlan
from freshopt.distributed.planning import plan as plan
from freshopt.distributed.solution import DistributedSolution as DistributedSolution
from freshopt.distributed.solving import solve as solve

__all__ = ["DistributedPlan", "DistributedSolution", "PartitionedSources", "plan", "solve"]

"""Solve and plan over partitioned data with Dask.

Sources are in Parquet files or in a Dask DataFrame, and are solved in few passes over them; so are plans for
crawl logs.

``pip install 'freshopt[dask]'`` brings what it needs.
"""

from freshopt.distributed.partitioned_sources import PartitionedSources as PartitionedSources
from freshopt.distributed.planning import DistributedPlan as DistributedPlan
from freshopt.distributed.planning import plan as plan
from freshopt.distributed.solution import DistributedSolution as DistributedSolution
from freshopt.distributed.solving import solve as solve

__all__ = ["DistributedPlan", "DistributedSolution", "PartitionedSources", "plan", "solve"]

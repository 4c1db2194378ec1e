"""Web scale: sources in Parquet files or in a Dask DataFrame, solved in few passes over them; plans for logs.

``pip install 'freshopt[dask]'`` brings what it needs.
"""

from freshopt.distributed.partitions import PartitionedSources as PartitionedSources
from freshopt.distributed.planning import DistributedPlan as DistributedPlan
from freshopt.distributed.planning import plan as plan
from freshopt.distributed.solution import DistributedSolution as DistributedSolution
from freshopt.distributed.solving import solve as solve

__all__ = ["DistributedPlan", "DistributedSolution", "PartitionedSources", "plan", "solve"]

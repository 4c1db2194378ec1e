"""Web scale: sources in Parquet files or in a Dask DataFrame, solved in few passes over them.

``pip install 'freshopt[dask]'`` brings what it needs.
"""

from freshopt.distributed.partitions import PartitionedSources as PartitionedSources
from freshopt.distributed.solution import DistributedSolution as DistributedSolution
from freshopt.distributed.solving import solve as solve

__all__ = ["DistributedSolution", "PartitionedSources", "solve"]

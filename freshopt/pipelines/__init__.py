"""Pipelines of copies that are made of copies."""

from freshopt.pipelines.after_parents import AfterParents as AfterParents
from freshopt.pipelines.after_parents import IndependentPhases as IndependentPhases
from freshopt.pipelines.after_parents import aligned_freshness as aligned_freshness
from freshopt.pipelines.after_parents import aligned_problem as aligned_problem
from freshopt.pipelines.node_table import NodeFreshness as NodeFreshness
from freshopt.pipelines.node_table import node_freshness as node_freshness
from freshopt.pipelines.pipeline import Pipeline as Pipeline
from freshopt.pipelines.pipeline import pipeline as pipeline
from freshopt.pipelines.replaying import PipelineReplay as PipelineReplay
from freshopt.pipelines.replaying import replay_pipeline as replay_pipeline
from freshopt.renamed import exports

__all__ = exports(globals())

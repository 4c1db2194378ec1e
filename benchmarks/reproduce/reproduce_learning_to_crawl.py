"""Upadhyay et al., Learning to Crawl, AAAI 2020: the runs of its claims, in the order of the paper."""

from benchmarks.reproduce import learning_to_crawl_lemmas  # noqa: F401, I001 - the order is that in which groups are measured
from benchmarks.reproduce import learning_to_crawl_estimation  # noqa: F401
from benchmarks.reproduce import learning_to_crawl_regret  # noqa: F401
from benchmarks.reproduce import learning_to_crawl_phases  # noqa: F401
from benchmarks.reproduce.learning_to_crawl_instances import measure as measure

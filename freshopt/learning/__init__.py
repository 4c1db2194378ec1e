"""Change rates from crawl logs."""

from freshopt.learning.maximum_likelihood import MaximumLikelihood as MaximumLikelihood

__all__ = ["MaximumLikelihood"]

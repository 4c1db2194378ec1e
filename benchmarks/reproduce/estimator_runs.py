"""Simulated crawls of Poisson sources, at gaps of four kinds, and what each estimator makes of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.estimators import (
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    StochasticApproximation,
)
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

Array = npt.NDArray[np.float64]
BLOCK = 2_000_000  # rows of a log that is simulated at once: some 100 MB
# Gaps of mean 1, and E e^{−xa}: the share of crawls that find nothing at x = Δ/p.
GAPS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Array], Callable[[float], float]]] = {
    "exponential": (lambda rng, shape: rng.exponential(1.0, shape), lambda x: 1 / (1 + x)),
    "fixed": (lambda _, shape: np.ones(shape), lambda x: float(np.exp(-x))),
    "uniform": (
        lambda rng, shape: rng.uniform(0.0, 2.0, shape),
        lambda x: float(-np.expm1(-2 * x) / (2 * x)),
    ),
    "Gamma": (lambda rng, shape: rng.gamma(0.25, 4.0, shape), lambda x: float((1 + 4 * x) ** -0.25)),
}


def models(step: float, momentum: tuple[float, float]) -> dict[str, Any]:
    """Return the estimators at the exponents of SA and of SAM, without floors."""
    return {
        "Naive": Naive(floor=0),
        "LLN": LawOfLargeNumbers(alpha=1.0, floor=0),
        "SA": StochasticApproximation(step, floor=0),
        "SAM": MomentumStochasticApproximation(*momentum, floor=0),
        "MLE": MaximumLikelihood(smoothing=0),
        "MM": MomentMatching((1e-3, 1e4)),
    }


def fitted(model: Any, log: CrawlLog, crawl_rate: float) -> Array:
    """Return a model's estimates; those that look at the gaps need no crawl rate."""
    known = () if isinstance(model, MaximumLikelihood | MomentMatching) else (crawl_rate,)
    return np.asarray(model.fit(log, *known).change_rate_)


def sampled(
    rng: np.random.Generator,
    runs: int,
    crawls: int,
    rates: tuple[float, float],
    estimators: dict[str, Any],
    kind: str = "exponential",
) -> dict[str, Array]:
    """Return each estimator's estimates of independent sources, shape (runs,), all from the same crawls.

    `rates` are the change rate and the crawl rate.
    """
    change_rate, crawl_rate = rates
    found: dict[str, list[Array]] = {name: [] for name in estimators}
    block = max(1, BLOCK // crawls)
    for start in range(0, runs, block):
        shape = (min(runs - start, block), crawls)
        gaps = GAPS[kind][0](rng, shape) / crawl_rate
        log = log_of_gaps(gaps, found_changes(rng, change_rate, gaps))
        for name, model in estimators.items():
            found[name].append(fitted(model, log, crawl_rate))
    return {name: np.concatenate(parts) for name, parts in found.items()}

"""The estimators once more, crawl by crawl as the papers print them, and their exact moments. No freshopt.

An estimator reads the outcomes I_1, I_2, ... of crawls, 1 where a change was found. When crawls are a Poisson
process of rate p these are independent with mean μ = Δ/(Δ+p), so that all moments of an estimate follow from
recursions over k or sums over the number of changes found: `law_moments`, `heavy_ball_moments`.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Moments = tuple[float, float]  # mean, mean of the square


def all_outcomes(crawls: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=crawls))


def probability(outcome: Sequence[int], change_rate: float, crawl_rate: float) -> float:
    mean = change_rate / (change_rate + crawl_rate)
    return math.prod(mean if found else 1 - mean for found in outcome)


def law_of_large_numbers(
    outcome: Sequence[int], crawl_rates: Sequence[float], alpha: Callable[[int], float]
) -> float:
    k, found = len(outcome), sum(outcome)
    return sum(p for i, p in zip(outcome, crawl_rates, strict=True) if i) / (k + alpha(k) - found)


def steps(k: int, step: float, beta: float | None, omega: float) -> tuple[float, float]:
    """η_k and ζ_k; no momentum without a beta."""
    eta = (k + 1) ** -step
    if beta is None or k == 0:
        return eta, 0.0
    return eta, ((k + 1) ** -beta - omega * eta) / k**-beta


def heavy_ball(
    outcome: Sequence[int],
    crawl_rates: Sequence[float],
    step: float,
    beta: float | None = None,
    omega: float = 1.0,
) -> float:
    z = before = 0.0
    for k, (found, p) in enumerate(zip(outcome, crawl_rates, strict=True)):
        eta, zeta = steps(k, step, beta, omega)
        z, before = z + eta * (found * (z + p) - z) + zeta * (z - before), z
    return z


def law_moments(
    crawls: int, change_rate: float, crawl_rate: float, estimate: Callable[[int], float]
) -> Moments:
    """Of an estimate that depends on the number of changes found alone."""
    mean = change_rate / (change_rate + crawl_rate)
    weights = [math.comb(crawls, s) * mean**s * (1 - mean) ** (crawls - s) for s in range(crawls + 1)]
    values = [estimate(s) for s in range(crawls + 1)]
    first = math.fsum(w * x for w, x in zip(weights, values, strict=True))
    return first, math.fsum(w * x * x for w, x in zip(weights, values, strict=True))


def heavy_ball_moments(
    crawls: int,
    change_rate: float,
    crawl_rate: float,
    step: float,
    beta: float | None = None,
    omega: float = 1.0,
) -> Moments:
    """Of z_k: v = (z_k, z_{k−1}, 1) is multiplied by one of two matrices, its second moments by both."""
    mean = change_rate / (change_rate + crawl_rate)
    second = np.zeros((3, 3))
    second[2, 2] = 1.0
    for k in range(crawls):
        eta, zeta = steps(k, step, beta, omega)
        after = np.zeros((3, 3))
        for found, weight in ((0, 1 - mean), (1, mean)):
            matrix = np.array(
                [
                    [1 + eta * (found - 1) + zeta, -zeta, eta * found * crawl_rate],
                    [1, 0, 0],
                    [0, 0, 1],
                ]
            )
            after += weight * matrix @ second @ matrix.T
        second = after
    return float(second[0, 2]), float(second[0, 0])


def gaps_of(kind: str, rng: np.random.Generator, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Gaps of mean 1."""
    return {
        "exponential": rng.exponential(1.0, shape),
        "fixed": np.ones(shape),
        "uniform": rng.uniform(0.0, 2.0, shape),
        "gamma": rng.gamma(0.25, 4.0, shape),
    }[kind]


def unchanged_share(kind: str, x: float) -> float:
    """E e^{−xa} of such gaps a: the Laplace transforms."""
    transforms: dict[str, float] = {
        "exponential": 1 / (1 + x),
        "fixed": math.exp(-x),
        "uniform": -math.expm1(-2 * x) / (2 * x),
        "gamma": (1 + 4 * x) ** -0.25,
    }
    return transforms[kind]

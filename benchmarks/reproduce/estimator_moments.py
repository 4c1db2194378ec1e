"""Exact moments of the estimators that read the outcomes of crawls alone, independent of freshopt.

Crawls form a Poisson process of rate p, so that outcomes are independent, a change with probability
μ = Δ/(Δ+p). The number of changes found is binomial, which gives the moments of every estimate that depends
on it alone. The recursion z' = (1+ζ−η(1−I))z − ζz₀ + ηpI is linear in (z, z₀), so that the means and second
moments of the pair follow from those of the crawl before: five numbers a crawl.
"""

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.integrate import quad
from scipy.stats import binom

Array = npt.NDArray[np.float64]
Moments = tuple[float, float]  # mean, and mean of the square


def counted(
    crawls: int, change_rate: float, crawl_rate: float, estimate: Callable[[Array], Array]
) -> Moments:
    """Return the moments of an estimate that is a function of the number of changes found."""
    found = np.arange(crawls + 1.0)
    weights = binom.pmf(found, crawls, change_rate / (change_rate + crawl_rate))
    values = estimate(found)
    return float(weights @ values), float(weights @ values**2)


def naive(crawls: int, change_rate: float, crawl_rate: float) -> Moments:
    """Return the moments of pÎ/k."""
    return counted(crawls, change_rate, crawl_rate, lambda found: crawl_rate * found / crawls)


def law(crawls: int, change_rate: float, crawl_rate: float, alpha: float = 1.0) -> Moments:
    """Return the moments of pÎ/(k+α−Î)."""
    return counted(
        crawls, change_rate, crawl_rate, lambda found: crawl_rate * found / (crawls + alpha - found)
    )


def recursion(
    crawls: int,
    change_rate: float,
    crawl_rate: float,
    step: float,
    beta: float | None = None,
    omega: float = 1.0,
) -> npt.NDArray[np.float64]:
    """Return mean and second moment after each crawl of SA (no beta) or SAM, shape (crawls, 2)."""
    mu, p = change_rate / (change_rate + crawl_rate), crawl_rate
    one = zero = square = cross = before = 0.0  # E z, E z₀, E z², E z z₀, E z₀²
    moments = np.empty((crawls, 2))
    for k in range(crawls):
        eta, zeta = (k + 1.0) ** -step, 0.0
        if beta is not None and k > 0:
            zeta = ((k + 1.0) ** -beta - omega * eta) / k**-beta
        a, c, ac = 1 + zeta - eta * (1 - mu), eta * p * mu, eta * p * mu * (1 + zeta)
        aa = mu * (1 + zeta) ** 2 + (1 - mu) * (1 + zeta - eta) ** 2
        after = aa * square + zeta**2 * before + eta * p * c
        after += 2 * (ac * one - zeta * (a * cross + c * zero))
        cross = a * square - zeta * cross + c * one
        one, zero = a * one - zeta * zero + c, one
        square, before = after, square
        moments[k] = one, square
    return moments


def heavy_ball(
    crawls: int,
    change_rate: float,
    crawl_rate: float,
    step: float,
    beta: float | None = None,
    omega: float = 1.0,
) -> Moments:
    """Return the moments of SA or SAM after the last crawl."""
    mean, square = recursion(crawls, change_rate, crawl_rate, step, beta, omega)[-1]
    return float(mean), float(square)


def information(change_rate: float, crawl_rate: float) -> float:
    """Return Fisher's information of a crawl: E a² e^{−Δa}/(1−e^{−Δa}) over exponential gaps a."""

    def share(gap: float) -> float:
        told = gap**2 * np.exp(-change_rate * gap) / -np.expm1(-change_rate * gap)
        return float(told * crawl_rate * np.exp(-crawl_rate * gap))

    near, far = 1e-12 / change_rate, 60 / crawl_rate
    return float(quad(share, near, far, points=[1 / change_rate], limit=500)[0])


def error(moments: Moments, change_rate: float) -> float:
    """Return the root mean square error that belongs to two moments."""
    mean, square = moments
    return float(np.sqrt(max(0.0, square - 2 * change_rate * mean + change_rate**2)))


def errors(crawls: int, rates: tuple[float, float], *exponents: float) -> Array:
    """Return the root mean square error of SA or SAM after each crawl."""
    curve = recursion(crawls, *rates, *exponents)
    return np.sqrt(np.maximum(curve[:, 1] - 2 * rates[0] * curve[:, 0] + rates[0] ** 2, 0.0))


def bias_and_spread(crawls: int, rates: tuple[float, float], *exponents: float) -> tuple[Array, Array]:
    """Return bias and standard deviation of SA or SAM after each crawl."""
    mean, square = recursion(crawls, *rates, *exponents).T
    return mean - rates[0], np.sqrt(np.maximum(square - mean**2, 0.0))


def law_error(crawls: int, rates: tuple[float, float], alpha: float = 1.0) -> float:
    """Return the root mean square error of LLN."""
    return error(law(crawls, *rates, alpha), rates[0])


def law_distance(crawls: int, rates: tuple[float, float], alpha: float) -> float:
    """Return E|x − Δ| of LLN, from the numbers of changes within 12 standard deviations of their mean."""
    change_rate, crawl_rate = rates
    mu = change_rate / (change_rate + crawl_rate)
    reach = 12.0 * np.sqrt(crawls * mu * (1 - mu))
    found = np.arange(max(0.0, np.floor(crawls * mu - reach)), min(crawls, np.ceil(crawls * mu + reach)) + 1)
    values = crawl_rate * found / (crawls + alpha - found)
    return float(binom.pmf(found, crawls, mu) @ np.abs(values - change_rate))


def every_outcome(crawls: int, change_rate: float, crawl_rate: float) -> tuple[npt.NDArray[np.bool_], Array]:
    """Return all 2^k outcomes of k crawls, shape (2^k, k), and their probabilities."""
    outcomes = np.array(list(itertools.product((False, True), repeat=crawls)))
    mu = change_rate / (change_rate + crawl_rate)
    return outcomes, np.prod(np.where(outcomes, mu, 1 - mu), axis=1)

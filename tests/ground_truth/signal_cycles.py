"""What rules that wait for time and signals cost, by the definition; nothing of the library is used."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

Array = npt.NDArray[np.float64]
# Gauss nodes of the integral over y: harmonic numbers to 1e-12 up to some 300 changes a cycle.
NODES, WEIGHTS = (values for values in np.polynomial.legendre.leggauss(128))
Y, DY = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


class Cycles(NamedTuple):
    """From crawl to crawl, by source: length, time fresh, integrals of M and of its harmonic number.

    M is how many changes a copy misses.
    """

    length: Array
    fresh: Array
    missed: Array
    harmonic: Array


def cycles(waits: Any, d: Any, recall: Any, precision: Any) -> Cycles:  # noqa: ANN401 - arrays
    """Return the cycles of copies that are crawled after waits[k, n], once n signals came, where these fall.

    With more signals than there are columns they are crawled at once. Signals come at the rate g = lΔ/p, and
    the copy with n of them at the time t misses Poisson((1-l)Δt) + Binomial(n, p) changes.
    """
    waits = np.atleast_2d(np.asarray(waits, dtype=np.float64))
    given = (np.broadcast_to(own, len(waits)).tolist() for own in (d, recall, precision))
    each = [one_cycle(*own) for own in zip(waits, *given, strict=True)]
    return Cycles(*np.array(each).T)


def one_cycle(waits: Array, d: float, recall: float, precision: float) -> tuple[float, ...]:
    """Return length, time fresh, and integrals of M and its harmonic number.

    The time with n signals and no crawl is that with t < waits[n], and ∫₀^τ (gt)^n/n! e^(-(g+c)t) dt is
    g^n/(g+c)^(n+1) times a gamma distribution's share; the harmonic number of M is ∫₀¹ (1-(1-y)^M)/y dy.
    """
    a, g = (1.0 - recall) * d, recall * d / precision
    if g == 0.0:
        tau = float(waits[0])
        no_change = -np.expm1(-a * Y * tau) / (a * Y)
        return tau, float(-np.expm1(-a * tau) / a), a * tau * tau / 2.0, float(DY @ ((tau - no_change) / Y))
    some = waits[waits > 0.0]
    n = np.arange(len(some))
    time = gammainc(n + 1.0, g * some) / g
    moment = (n + 1.0) * gammainc(n + 2.0, g * some) / g**2
    missed = a * moment + n * precision * time

    def unseen(y: Array | float) -> Array:
        rate = g + a * np.atleast_1d(y)
        left = (g * (1.0 - precision * np.atleast_1d(y)) / rate)[:, None] ** n
        return np.asarray(np.sum(left * gammainc(n + 1.0, rate[:, None] * some) / rate[:, None], axis=1))

    length = float(np.sum(time))
    harmonic = float(DY @ ((length - unseen(Y)) / Y))
    return length, float(unseen(1.0)[0]), float(np.sum(missed)), harmonic


def age_cycles(rule: Any, d: Any, recall: Any, precision: Any, drawn: int, seed: int) -> tuple[Array, Array]:  # noqa: ANN401 - columns
    """Return mean length of cycles by age, and mean integral of the true expected age, of drawn signals.

    `rule` is threshold, unheard and precision as a crawler believes them; d, recall and precision are true,
    the recall below 1. A copy that was surely fresh, and is with the chance f, ages by
    t - f(1 - e^(-ut))/u in a time t without a signal.
    """
    rng, shape = np.random.default_rng(seed), (len(rule[0]), drawn)
    eta, u, p = (np.asarray(own, dtype=np.float64)[:, None] for own in rule)
    told, true = np.asarray(recall)[:, None], np.asarray(precision)[:, None]
    a, g = (1.0 - told) * np.asarray(d)[:, None], told * np.asarray(d)[:, None] / true
    left, fresh, length, total = (
        np.broadcast_to(eta, shape).copy(),
        np.ones(shape),
        np.zeros(shape),
        np.zeros(shape),
    )
    age, really, on = np.zeros(shape), np.ones(shape), np.ones(shape, dtype=bool)
    while on.any():
        gap, due = rng.exponential(1.0, shape) / g, left + fresh / u
        for _ in range(50):
            due -= (due + fresh * np.expm1(-u * due) / u - left) / np.maximum(
                1.0 - fresh * np.exp(-u * due), 1e-300
            )
        t = np.where(on, np.minimum(gap, due), 0.0)
        gone = -np.expm1(-a * t)
        total += age * t + t * t / 2.0 - really * (t - gone / a) / a
        age += t - really * gone / a
        length += t
        left -= t + fresh * np.expm1(-u * t) / u
        fresh, really = fresh * np.exp(-u * t) * (1.0 - p), really * (1.0 - gone) * (1.0 - true)
        on &= gap < due
    return np.asarray(length.mean(axis=1)), np.asarray(total.mean(axis=1))

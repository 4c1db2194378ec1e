"""Requests that are made at their times, of sources that change, and the share that is served fresh."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.integrate import quad


@dataclass(eq=False)
class Play:
    """Sources that change and are requested in seconds of real time.

    Attributes
    ----------
    lifetime, change_rate : ndarray, shape (n,)
        In seconds, and per second.
    request_rate : float
        Of every source, per second.
    length, skip : float
        Seconds that are played, and of those the first that do not count.
    """

    lifetime: np.ndarray
    change_rate: np.ndarray
    request_rate: float
    length: float
    skip: float
    seed: int
    start: float = field(default=0.0, init=False)
    changes: list[np.ndarray] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.changes = [
            np.sort(self.rng.uniform(0.0, self.length, self.rng.poisson(rate * self.length)))
            for rate in self.change_rate
        ]

    def version(self, k: int) -> int:
        """Return how often a source has changed by now."""
        return int(np.searchsorted(self.changes[k], time.monotonic() - self.start, side="right"))

    def z(self, ask: Callable[[int], int], rounding: float) -> float:
        """Make the requests; return by how many standard errors more of them are fresh than predicted.

        `ask` returns the version that a request of a source is served. Lifetimes are longer by up to
        `rounding`, the step of the cache's clock.
        """
        n = len(self.lifetime)
        many = self.rng.poisson(self.request_rate * self.length * n)
        times = np.sort(self.rng.uniform(0.0, self.length, many))
        which = self.rng.integers(0, n, many)
        fresh, asked = np.zeros(n), np.zeros(n)
        self.start = time.monotonic()
        for due, k in zip(times.tolist(), which.tolist(), strict=True):
            time.sleep(max(due - (time.monotonic() - self.start), 0.0))
            served = ask(k)
            if due > self.skip:
                fresh[k] += served == self.version(k)
                asked[k] += 1.0
        shares = [
            share(change, self.request_rate, life, rounding)
            for change, life in zip(self.change_rate, self.lifetime, strict=True)
        ]
        off = fresh - np.array(shares) * asked
        return float(np.sum(off) / np.sqrt(np.sum(off**2)))


def share(change_rate: float, request_rate: float, lifetime: float, rounding: float) -> float:
    """Return the fresh share of requests at lifetimes uniform in T..T + rounding, by quadrature.

    In a cycle the request that fetches is fresh, and so are those that come before a change.
    """

    def fresh(life: float) -> float:
        return 1.0 + request_rate * quad(lambda age: math.exp(-change_rate * age), 0.0, life)[0]

    if rounding == 0.0:
        return fresh(lifetime) / (1.0 + request_rate * lifetime)
    mean = quad(fresh, lifetime, lifetime + rounding)[0] / rounding
    return float(mean / (1.0 + request_rate * (lifetime + 0.5 * rounding)))

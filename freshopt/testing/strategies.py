"""Hypothesis strategies: small corner-case problems for property tests.

Ties, zero importances, change rates apart by ten decades, bounds that meet, hosts with negligible limits,
one source; drawn so that Hypothesis can shrink them. Importing this module needs Hypothesis, a package for
tests that freshopt itself does without.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.testing.planted_optima import CELLS, KnownOptimum, plant
from freshopt.testing.problem_families import standard_objectives

# Bandwidths in units of the sum of the change rates; at 1 every signal can be followed.
BUDGETS = (1e-3, 0.03, 0.5, 1.0, 20.0)
HOSTS = ("a", "b", "free")
_T = TypeVar("_T")


def objectives() -> st.SearchStrategy[Objective]:
    """Return a strategy for the named objectives and their disciplines.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(objectives(), lambda objective: objective.sense == "maximise").sense
    'maximise'
    """
    return st.sampled_from(standard_objectives())


def magnitudes(low: int = -6, high: int = 4) -> st.SearchStrategy[float]:
    """Return a strategy for positive numbers with frequent ties."""
    exponents = st.integers(low, high).map(lambda k: 10.0**k)
    return st.one_of(
        st.just(1.0), exponents, st.builds(_digits, st.integers(1, 99), st.integers(low, high - 1))
    )


def _digits(leading: int, exponent: int) -> float:
    """Return 0.1 to 9.9 times a power of ten."""
    return leading / 10.0 * 10.0**exponent


@st.composite
def problems(
    draw: st.DrawFn,
    objectives: st.SearchStrategy[Objective] | None = None,
    *,
    largest: int = 6,
    constrained: bool = True,
) -> Problem:
    """Draw a feasible problem with a finite optimum.

    - `objectives` strategy of Objective: Default: `objectives()`. ``st.just(MyObjective())`` for one of your
      own.
    - `largest`: Sources at most.
    - `constrained`: Whether to draw bounds, hosts, costs and, where the objective admits them, signals.

    Examples
    --------
    >>> import freshopt as fo
    >>> from hypothesis import find
    >>> find(problems(), lambda problem: bool(np.any(problem.lower > 0.0))).objective.sense
    'minimise'
    """
    objective = draw(objectives if objectives is not None else st.sampled_from(standard_objectives()))
    n = draw(st.integers(1, largest))

    def each(values: st.SearchStrategy[_T]) -> list[_T]:
        return draw(st.lists(values, min_size=n, max_size=n))

    d = np.array(each(magnitudes()))
    w = np.array(each(st.one_of(magnitudes(-6, 6), st.just(0.0))))
    asked = np.array(each(magnitudes())) if objective.refresh is Refresh.ON_REQUEST else None
    bandwidth = math.fsum(d if asked is None else asked) * draw(st.sampled_from(BUDGETS))
    if not constrained:
        return Problem(objective, Sources(d, w, request_rate=asked), bandwidth)
    signalled = np.zeros(n, dtype=np.bool_)
    if objective.refuses_signals() is None:
        signalled = np.array(each(st.booleans()))
    cost = np.array(each(st.sampled_from((1.0, 0.2, 5.0))))
    share = bandwidth / n / cost
    lower = share * np.array(each(st.sampled_from((0.0, 0.01, 0.3, 0.9))))
    lower = np.where(signalled, np.minimum(lower, d / 2.0), lower)
    lower = lower if asked is None else np.minimum(lower, asked / 2.0)
    upper = np.maximum(lower, share * np.array(each(st.sampled_from((np.inf, 0.01, 0.9, 3.0)))))
    host = np.array(each(st.sampled_from(HOSTS)))
    limits = draw(st.lists(st.sampled_from((math.inf, 0.01, 0.5, 2.0)), min_size=2, max_size=2))
    return Problem(
        objective,
        Sources(
            d,
            w,
            host=host,
            signalled=signalled,
            min_rate=lower,
            max_rate=upper,
            refresh_cost=cost,
            request_rate=asked,
        ),
        bandwidth,
        _host_limits(host, cost * share, cost * lower, limits),
    )


def _host_limits(host: Array, even: Array, least: Array, factors: list[float]) -> dict[str, float]:
    """Return host limits, multiples of even shares, feasible for min_rate."""
    limits = {}
    for name, factor in zip(HOSTS, factors, strict=False):
        members = host == name
        if bool(np.any(members)) and factor < math.inf:
            limits[name] = max(factor * math.fsum(even[members]), 1.01 * math.fsum(least[members]))
    return limits


def known_optima(largest: int = 8) -> st.SearchStrategy[KnownOptimum]:
    """Return a strategy for problems with planted optima.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(known_optima(), lambda known: known.problem.objective.sense == "maximise").name
    'binary freshness, Poisson, inside bounds'
    """
    return st.builds(
        plant,
        st.sampled_from(CELLS),
        st.integers(0, 2**16),
        st.integers(1, largest),
        constrained=st.booleans(),
    )

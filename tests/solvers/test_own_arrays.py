"""A user's objective that holds arrays of length n, without a `take`: every solver answers with a status."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.separable.kernel import Kernel
from freshopt.solvers import Conic, SeparableNewton
from tests.contracts import discovery
from tests.ground_truth.cost_truth import Floats
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import CONIC, EXACT

N = 12


class Delay(fo.Objective):
    """Σ a·Δ/ρ, with one a for each source."""

    def __init__(self, own: Floats) -> None:
        self.own = own

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(self.own * sources.change_rate, cp.inv_pos(rate))


class Reshaped(Delay):
    """The same with shapes that are changed on the way, and a constant in a column."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        column = cp.reshape(cp.inv_pos(rate), (len(sources), 1), order="F")
        weight = (self.own * sources.change_rate)[:, np.newaxis]
        return cp.reshape(cp.multiply(weight, column), (len(sources),), order="F")


class Signalled(Delay):
    """The same, and for signalled sources too."""

    def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return self.per_source(rate, sources)


class Kernelled(Delay):
    """The same with a kernel."""

    def kernel(self, sources: fo.Sources) -> Kernel:
        return Kernel(
            self.own * sources.importance,
            (sources.change_rate,),
            lambda rate, d: d / rate,
            lambda rate, d: d / rate**2,
            lambda price, d: np.sqrt(d / price),
        )


class Auxiliary(Kernelled):
    """The same with a variable of its own."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        t = cp.Variable(len(sources))
        return cp.multiply(self.own * sources.change_rate, t), [cp.inv_pos(rate) <= t]


class Coned(Auxiliary):
    """The same with a cone form."""

    def cone_form(self, y: Any, sources: fo.Sources, typical: Floats) -> Any:  # noqa: ANN401
        return (self.own * sources.change_rate / typical) @ cp.inv_pos(y), []


KINDS = (Delay, Reshaped, Signalled, Kernelled, Auxiliary, Coned)


def problem(kind: type[Delay], *, limited: bool = False) -> fo.Problem:
    """Return a problem with sources that hardly count, which cone solvers leave out."""
    rng = np.random.default_rng(4)
    own = 10.0 ** rng.uniform(-1.0, 1.0, N)
    own[::4] = 1e-15
    more: dict[str, Any] = {"signalled": np.arange(N) % 2 == 1} if kind is Signalled else {}
    if limited:
        more |= {"host": ["x", "y"] * (N // 2), "min_rate": 0.01, "max_rate": 0.5}
    # Signalled sources are refreshed at most once per change; the best rates are below that here.
    sources = fo.Sources(10.0 ** rng.uniform(0.5, 1.0, N), **more)
    return fo.Problem(kind(own), sources, 3.0, {"x": 1.0} if limited else None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS[:4])
def test_conic_solves_it(kind: type[Delay]) -> None:
    """By Cauchy-Schwarz the best rates are proportional to √(aΔ)."""
    given = problem(kind)
    solution = fo.solve(given, Conic(), throw=False)
    root = np.sqrt(given.objective.own * given.sources.change_rate)  # type: ignore[attr-defined]
    assert solution.status is fo.Status.OPTIMAL, solution.note
    assert solution.value == pytest.approx(np.sum(root) ** 2 / given.bandwidth, rel=CONIC)


def test_the_newton_solver_compares_kernel_and_declaration_of_many_sources() -> None:
    own = np.linspace(1.0, 2.0, 100)
    given = fo.Problem(Kernelled(own), fo.Sources(own[::-1]), 50.0)
    root = np.sqrt(own * own[::-1])
    assert fo.solve(given, SeparableNewton()).value == pytest.approx(np.sum(root) ** 2 / 50.0, rel=EXACT)


@pytest.mark.parametrize(
    ("name", "kind", "limited"), stratified(discovery.solvers(), KINDS, (False, True), every=10)
)
@pytest.mark.sampled(3)
def test_every_solver_answers_with_a_status(name: str, kind: type[Delay], limited: bool) -> None:
    solver: Any = discovery.solvers()[name]
    if hasattr(solver, "limit"):
        solver = dataclasses.replace(solver, limit=100)
    solution = fo.solve(problem(kind, limited=limited), solver, throw=False)
    assert solution.status is fo.Status.OPTIMAL or solution.note

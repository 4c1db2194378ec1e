"""Compiled passes over local models, against the same models in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.tapes import atom_functions, marginal_search, tape_passes
from freshopt.cvx import cp
from freshopt.numerics import vector_math
from freshopt.solvers import SeparableNewton
from tests.ground_truth.tolerances import EXACT

N = 300


class Binary(fo.Objective):
    """The stale share, whose marginal at rate 0 is finite: sources may starve."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        share = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, cp.inv_pos(1.0 + share))


class Harmonic(fo.Objective):
    """Harmonic staleness, whose marginal at rate 0 is infinite."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, cp.logistic(np.log(sources.change_rate) - cp.log(rate)))


class Turning(fo.Objective):
    """A delay that more refreshes than 2Δ make worse."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        d = sources.change_rate
        return cp.multiply(sources.importance * d, cp.inv_pos(rate)) + cp.multiply(
            sources.importance / (4.0 * d), rate
        )


def columns(kind: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    d, w = rng.lognormal(0, 1, N), rng.lognormal(0, 1, N)
    given: dict[str, dict[str, Any]] = {
        "plain": {"change_rate": d, "importance": w},
        "ill": {"change_rate": 10 ** rng.uniform(-6, 4, N), "importance": 10 ** rng.uniform(-6, 6, N)},
        "alike": {"change_rate": np.full(N, 1.5)},
        "bounded": {"change_rate": d, "importance": w, "min_rate": 0.02 * d, "max_rate": 0.6 * d},
        "unequal": {"change_rate": d, "importance": w * (d > 0.5), "refresh_cost": rng.uniform(0.2, 5.0, N)},
    }
    return given[kind]


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [1e-3, 0.3, 5.0])
@pytest.mark.parametrize("kind", ["plain", "ill", "alike", "bounded", "unequal"])
@pytest.mark.parametrize(
    "objective", [Binary(), Harmonic(), Turning()], ids=["binary", "harmonic", "turning"]
)
def test_compiled_models_find_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, kind: str, share: float
) -> None:
    sources = fo.Sources(**columns(kind))
    least = float(np.sum(sources.refresh_cost * sources.min_rate))
    bandwidth = least + share * float(np.sum(sources.refresh_cost * sources.change_rate))
    plain = fo.solve(fo.Problem(objective, sources, bandwidth), SeparableNewton())
    monkeypatch.setattr(tape_passes, "COMPILED_FROM", 0)
    monkeypatch.setattr(tape_passes, "EVALUATED_FROM", 0)
    fast = fo.solve(fo.Problem(objective, sources, bandwidth), SeparableNewton())
    assert fast.certificate is not None
    assert plain.certificate is not None
    assert fast.certificate.relative_gap <= max(10 * EXACT, 1.1 * plain.certificate.relative_gap)
    assert fast.certificate.infeasibility <= EXACT
    assert fast.value == pytest.approx(plain.value, rel=2.0 * EXACT)


def test_names_that_share_a_generated_module_have_one_value() -> None:
    seen: dict[str, Any] = {}
    for module in (vector_math, atom_functions, marginal_search):
        for name, value in vars(module).items():
            if name.isupper():
                assert seen.setdefault(name, value) == value, name

"""Numbers written by hand, beside a declaration that says otherwise: refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cvxpy.atoms.elementwise.elementwise import Elementwise

import freshopt as fo
from freshopt.autodiff import compiler
from freshopt.autodiff.compiler import register
from freshopt.cvx import cp
from freshopt.separable.kernel import Kernel
from tests.ground_truth.tolerances import EXACT
from tests.ground_truth.unknown_atom import stranger

SOURCES = fo.Sources([1.0, 4.0, 2.0], importance=[1.0, 0.5, 3.0], name=["a", "b", "c"])
RIGHT: dict[str, Any] = {
    "unit_cost": lambda r, d: d / r,
    "unit_marginal": lambda r, d: d / r**2,
    "unit_inverse": lambda p, d: np.sqrt(d / p),
}


def delay(**wrong: Any) -> fo.Objective:  # noqa: ANN401 - formulas
    """Return the delay Δ/ρ with a kernel of which some formulas are others."""

    class Delay(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate))

        def kernel(self, sources: fo.Sources) -> Kernel:
            return Kernel(sources.importance, (sources.change_rate,), **(RIGHT | wrong))

    return Delay()


def fresh(**more: Any) -> fo.Objective:  # noqa: ANN401
    """Return the share of time fresh, maximised, with its loss as kernel."""

    class Fresh(fo.Objective):
        sense = "maximise"

        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            d = sources.change_rate
            return cp.multiply(sources.importance, 1 - cp.multiply(d, cp.inv_pos(d + rate)))

        def kernel(self, sources: fo.Sources) -> Kernel:
            return Kernel(
                sources.importance,
                (sources.change_rate,),
                lambda r, d: d / (d + r),
                lambda r, d: d / (d + r) ** 2,
                lambda p, d: np.maximum(0.0, np.sqrt(d / p) - d),
                **more,
            )

    return Fresh()


def test_a_kernel_that_is_the_declaration_is_taken() -> None:
    found = fo.solve(fo.Problem(delay(), SOURCES, bandwidth=3.0))
    root = np.sqrt(SOURCES.importance * SOURCES.change_rate)
    assert np.allclose(found.rates, 3.0 * root / root.sum(), rtol=EXACT, atol=0.0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (
            {name: lambda x, d: d / x**2 for name in RIGHT},
            "the value 16 of 'a' at the rate 0.25; declared is 4",
        ),
        ({"unit_cost": lambda r, d: d / r + 1e-3}, "the value .* declared is"),
        ({"unit_marginal": lambda r, d: 1.001 * d / r**2}, "the marginal .* declared is"),
        ({"unit_marginal": lambda r, _: 0.0 * r}, "the marginal 0 of 'a'"),
        ({"unit_cost": lambda r, _: np.nan * r}, "the value nan"),
        ({"unit_inverse": lambda p, d: d / p}, "the inverse marginal .* Correct unit_inverse"),
        ({"unit_inverse": lambda p, _: np.nan * p}, "the inverse marginal nan"),
    ],
)
def test_a_kernel_that_is_not_is_refused(wrong: dict[str, Callable[..., Any]], named: str) -> None:
    with pytest.raises(
        fo.ObjectiveError, match=rf"^the kernel beside Delay\.per_source has {named}"
    ) as caught:
        fo.Problem(delay(**wrong), SOURCES, bandwidth=3.0)
    assert "\n" not in str(caught.value)


def test_the_loss_of_what_is_maximised_needs_its_gain() -> None:
    """Rates would be right, and the value minus the stale share."""
    with pytest.raises(fo.ObjectiveError, match=r"kernel's cost is minus that, unless unit_gain"):
        fo.Problem(fresh(), SOURCES, bandwidth=3.0)
    found = fo.solve(fo.Problem(fresh(unit_gain=lambda r, d: r / (r + d)), SOURCES, bandwidth=3.0))
    fresh_share = found.rates / (found.rates + SOURCES.change_rate)
    assert found.value == pytest.approx(float(SOURCES.importance @ fresh_share), rel=EXACT)


def test_only_the_chosen_kind_of_source_is_looked_at() -> None:
    """A kernel of silent sources is not asked about signalled ones, nor about sources of no importance."""

    class Both(type(fresh(unit_gain=lambda r, d: r / (r + d)))):  # type: ignore[misc]
        def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return cp.multiply(sources.importance / sources.change_rate, rate)

    mixed = fo.Sources([1.0, 4.0, 2.0], importance=[0.0, 1.0, 1.0], signalled=[False, False, True])
    assert fo.Problem(Both(), mixed, bandwidth=3.0).numerics is not None
    nothing = fo.Sources([1.0, 4.0], importance=0.0)
    assert fo.Problem(delay(unit_cost=lambda r, d: d + r), nothing, bandwidth=3.0).numerics is not None


@pytest.mark.parametrize("wrong", [{}, {"unit_marginal": lambda r, d: 2.0 * d / r**2}])
def test_a_cone_form_has_its_kernel_compared_with_itself(wrong: dict[str, Callable[..., Any]]) -> None:
    plain = delay(**wrong)

    class Epigraph(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            t = cp.Variable(len(sources))
            return cp.multiply(sources.importance * sources.change_rate, t), [cp.inv_pos(rate) <= t]

        def kernel(self, sources: fo.Sources) -> Any:  # noqa: ANN401
            return plain.kernel(sources)

    if not wrong:
        assert fo.Problem(Epigraph(), SOURCES, bandwidth=3.0).numerics is not None
        return
    with pytest.raises(fo.ObjectiveError, match=r"below its tangent|inverse marginal"):
        fo.Problem(Epigraph(), SOURCES, bandwidth=3.0)


def test_a_kernel_beside_an_atom_without_derivatives_is_compared_by_value() -> None:
    def strange(factor: float) -> fo.Objective:
        class Strange(fo.Objective):
            def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
                return cp.multiply(sources.importance, stranger(rate))

            def kernel(self, sources: fo.Sources) -> Kernel:
                return Kernel(
                    factor * sources.importance,
                    (sources.change_rate,),
                    lambda r, _: stranger(cp.Constant(r)).value,
                    lambda r, _: (
                        -(stranger(cp.Constant(r + 1e-6)).value - stranger(cp.Constant(r - 1e-6)).value)
                        / 2e-6
                    ),
                    lambda p, d: p * d,
                )

        return Strange()

    with pytest.raises(fo.ObjectiveError, match=r"the value .* declared is"):
        fo.Problem(strange(2.0), SOURCES, bandwidth=3.0)


class inverse(Elementwise):  # type: ignore[misc]  # noqa: N801 - as in CVXPY
    """1/x, an atom of a user's own."""

    def numeric(self, values: Any) -> Any:  # noqa: ANN401
        return 1.0 / np.asarray(values[0])

    def sign_from_args(self) -> tuple[bool, bool]:
        return True, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:  # noqa: ARG002
        return False

    def is_decr(self, idx: int) -> bool:  # noqa: ARG002
        return True

    def _grad(self, values: Any) -> list[None]:  # noqa: ANN401, ARG002
        return [None]


class Registered(fo.Objective):
    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance * sources.change_rate, inverse(rate))


@pytest.mark.parametrize(
    ("derivatives", "named"),
    [
        (lambda x: (1 / x, -1 / x**2, 2 / x**3), ""),
        (lambda x: (1 / x, -(1 + x) / x**2, 2 / x**3), "below its tangent"),
        (lambda x: (1 / x, 0.0 * x, 2 / x**3), "below its tangent"),
        (lambda x: (1 / x, -1.001 / x**2, 2 / x**3), "below its tangent"),
        (lambda x: (1 / x + 0.001, -1 / x**2, 2 / x**3), "the value .*; the atom's own is"),
    ],
)
def test_registered_derivatives_are_the_atoms(
    derivatives: Callable[..., Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_REGISTERED", dict(compiler._REGISTERED))
    register(inverse, derivatives)
    if not named:
        assert fo.Problem(Registered(), SOURCES, bandwidth=3.0).numerics is not None
        return
    with pytest.raises(fo.ObjectiveError, match=rf"what is registered for an atom in .*inverse.*{named}"):
        fo.Problem(Registered(), SOURCES, bandwidth=3.0)

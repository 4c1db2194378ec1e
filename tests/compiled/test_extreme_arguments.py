"""Every atom where its arguments differ by 10^±30: tape and compiled source against mpmath.

Solutions meet such arguments: a reference of 1e-20 beside a rate of 1, a weight of 1e30. Each slope must
keep its digits there, for a certificate is made of slopes. Constants and rates go through all powers of 10^15
up to 10^±30, every one with every other. Values are right to rounding of the terms that they add up.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression, known_atoms
from freshopt.compiled.tapes import tape_passes
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array
from freshopt.separable.derived_kernel import DerivedNumerics
from tests.compiled.test_tapes import jet_of
from tests.ground_truth.tolerances import EXACT

mp = mpmath.MPContext()
mp.dps = 280  # 50 digits are left of a rate of 1e-30 beside a constant of 1e30, differentiated twice

POWERS = (-30, -15, 0, 15, 30)
# Every rate with every constant; their digits keep them off kinks and off slopes that are 0.
PAIRS = [(1.37 * 10.0**a, 0.83 * 10.0**b) for a, b in itertools.product(POWERS, POWERS)]
# Arguments that are nearly, and exactly, equal.
PAIRS += [
    (c * ratio, c) for ratio in (0.7, 0.88, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.3) for c in (1e-30, 1.0, 1e30)
]
RATES, D = np.array(PAIRS).T


def rel(x: Any, y: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return x * mp.log(x / y)


def share(d: Any) -> Any:  # noqa: ANN401 - floats, or one of mpmath's
    """Return an exponent between 0 and 1, the same for both."""
    d = np.float64(d)
    return d / (1.0 + d)


# Returns the terms that a value adds up.
Exact = Callable[[Any, Any], tuple[Any, ...]]
EXPRESSIONS: dict[str, tuple[Callable[[Any], Any], Exact]] = {
    "log": (lambda x: cp.log(x + D), lambda r, d: (mp.log(r + d),)),
    "log, scaled": (lambda x: cp.log(cp.multiply(D, x)), lambda r, d: (mp.log(r * d),)),
    "log1p": (lambda x: cp.log1p(cp.multiply(D, x)), lambda r, d: (mp.log1p(r * d),)),
    "exp": (lambda x: cp.exp(-cp.multiply(D, x)), lambda r, d: (mp.exp(-d * r),)),
    "exp, rising": (lambda x: cp.exp(x - D), lambda r, d: (mp.exp(r - d),)),
    "logistic": (lambda x: cp.logistic(x - D), lambda r, d: (mp.log1p(mp.exp(r - d)),)),
    "logistic, falling": (lambda x: cp.logistic(D - x), lambda r, d: (mp.log1p(mp.exp(d - r)),)),
    "entr": (lambda x: cp.entr(x + D), lambda r, d: (-(r + d) * mp.log(r + d),)),
    "xexp": (lambda x: cp.xexp(cp.multiply(D, x)), lambda r, d: (d * r * mp.exp(d * r),)),
    "huber": (lambda x: cp.huber(x, 8), lambda r, _: (r * r,) if r <= 8 else (16 * r, -64)),
    "kl_div": (lambda x: cp.kl_div(x, D), lambda r, d: (rel(r, d), -r, d)),
    "kl_div, constant first": (lambda x: cp.kl_div(D, x), lambda r, d: (rel(d, r), -d, r)),
    "kl_div, beside": (lambda x: cp.kl_div(x, x + D), lambda r, d: (rel(r, r + d), d)),
    "kl_div, mixed": (
        lambda x: cp.kl_div(2 * x, 3 * x + D),
        lambda r, d: (rel(2 * r, 3 * r + d), -2 * r, 3 * r + d),
    ),
    "rel_entr": (lambda x: cp.rel_entr(x, D), lambda r, d: (rel(r, d),)),
    "rel_entr, constant first": (lambda x: cp.rel_entr(D, x), lambda r, d: (rel(d, r),)),
    "rel_entr, beside": (lambda x: cp.rel_entr(x + D, x), lambda r, d: (rel(r + d, r),)),
    "rel_entr, mixed": (
        lambda x: cp.rel_entr(2 * x + D, 3 * x),
        lambda r, d: (rel(2 * r + d, 3 * r),),
    ),
    "abs": (lambda x: cp.abs(3 * x - D), lambda r, d: (3 * r, -d) if 3 * r > d else (-3 * r, d)),
    "maximum": (
        lambda x: cp.maximum(cp.inv_pos(x), cp.multiply(1.7 * D, x)),
        lambda r, d: (max(1 / r, mp.mpf(float(np.float64(1.7) * np.float64(d))) * r),),
    ),
    "minimum": (
        lambda x: cp.minimum(cp.sqrt(x), cp.multiply(1.7 * D, x)),
        lambda r, d: (min(mp.sqrt(r), mp.mpf(float(np.float64(1.7) * np.float64(d))) * r),),
    ),
    "powers": (lambda x: fo.power(x, -share(D)), lambda r, d: (r ** -mp.mpf(share(d)),)),
    "powers, rising": (lambda x: fo.power(x, 1.0 + share(D)), lambda r, d: (r ** mp.mpf(1.0 + share(d)),)),
    "powers, concave": (lambda x: fo.power(x, share(D)), lambda r, d: (r ** mp.mpf(share(d)),)),
    **{
        f"power: {p:g}": (
            functools.partial(lambda p, x: cp.power(x + D, p), p),
            functools.partial(lambda p, r, d: ((r + d) ** mp.mpf(p),), p),
        )
        for p in (-2.5, -2.0, -1.0, 0.3, 0.5, 1.7, 2.0, 2.5, 3.0)
    },
}


def within(found: float, expected: Any, added: float) -> bool:  # noqa: ANN401
    """Return whether a number is the expected one, or beyond floats as that is."""
    near = float(expected)
    if not np.isfinite(near):
        return found == near
    return abs(found - near) <= EXACT * (abs(near) + added) + 1e-300


def exact_jet(exact: Exact, r: float, d: float) -> tuple[list[Any], float]:
    """Return value, slope and curvature, and what the value's terms add up to without their signs."""
    rate, constant = mp.mpf(r), mp.mpf(d)

    def of_share(u: Any) -> Any:  # noqa: ANN401 - a step in r·u is never too long
        return mp.fsum(exact(rate * u, constant))

    jet = [of_share(mp.mpf(1)), *(mp.diff(of_share, 1, k) / rate**k for k in (1, 2))]
    return jet, float(mp.fsum(map(abs, exact(rate, constant))))


def test_every_rule_is_tried() -> None:
    tried = {name.split(",")[0].split(":")[0] for name in EXPRESSIONS}
    assert {atom for atom in known_atoms() if hasattr(cp, atom)} <= tried


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_slopes_and_curvatures_keep_their_digits_at_any_ratio(name: str) -> None:
    written, exact = EXPRESSIONS[name]
    rate = cp.Variable(len(RATES), nonneg=True)
    tape = compile_expression(written(rate), rate)
    with np.errstate(all="ignore"):
        roads: dict[str, Any] = {"tape": tape.evaluate(RATES), "source": jet_of(tape, RATES, 1)}
    for k, (r, d) in enumerate(PAIRS):
        expected, added = exact_jet(exact, r, d)
        for (road, jet), order in itertools.product(roads.items(), range(3)):
            allowed = added if order == 0 else 0.0
            assert within(float(jet[order][k]), expected[order], allowed), (road, order, r, d)


@pytest.mark.parametrize("name", ["kl_div", "rel_entr"])
def test_compiled_passes_keep_them_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_passes, "COMPILED_FROM", 0)
    monkeypatch.setattr(tape_passes, "EVALUATED_FROM", 0)
    rate = cp.Variable(len(RATES), nonneg=True)
    numerics = DerivedNumerics(compile_expression(getattr(cp, name)(rate, D), rate), 1.0, D)
    assert numerics.passes is not None
    jet = numerics.jet(RATES)
    logarithm: Array = np.log(RATES / D)
    slope = logarithm if name == "kl_div" else 1.0 + logarithm
    apart = np.abs(logarithm) > 0.1
    assert np.allclose(-jet.marginal[apart], slope[apart], rtol=EXACT, atol=0.0)
    assert np.allclose(jet.curvature, 1.0 / RATES, rtol=EXACT, atol=0.0)


def test_ratios_beyond_floats_have_slopes() -> None:
    """Of 1e-200 and 1e200, and of the smallest float: what no float holds is only their ratio."""
    rates, constants = np.array([1e200, 1e-200, 1.0, 1e10]), np.array([1e-200, 1e200, 5e-324, 5e-324])
    rate = cp.Variable(4, nonneg=True)
    exact = np.array([float(mp.log(mp.mpf(r) / mp.mpf(c))) for r, c in zip(rates, constants, strict=True)])
    for atom, offset in ((cp.kl_div, 0.0), (cp.rel_entr, 1.0)):
        tape = compile_expression(atom(rate, constants), rate)
        with np.errstate(all="ignore"):
            roads = tape.evaluate(rates).slope, jet_of(tape, rates, 1)[1]
        for found in roads:
            assert np.allclose(found, exact + offset, rtol=EXACT, atol=0.0)

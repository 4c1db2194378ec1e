"""Every atom's value, slope and curvature against derivatives in 50 digits, alone and nested at random."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt.autodiff.compiler import UnknownAtomError, compile_expression, known_atoms
from freshopt.cvx import cp
from tests.ground_truth.tolerances import EXACT
from tests.ground_truth.unknown_atom import stranger

mp = mpmath.MPContext()
mp.dps = 50

RATES = np.logspace(-6.0, 6.0, 25)
D = np.linspace(0.5, 4.0, 25)
Written = Callable[[Any], Any]
Exact = Callable[[Any, Any], Any]


def kl(x: Any, y: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return rel(x, y) - x + y


def rel(x: Any, y: Any) -> Any:  # noqa: ANN401
    return x * mp.log(x / y)


def power_of(p: float, r: Any, _: Any) -> Any:  # noqa: ANN401
    return r ** mp.mpf(p)


# What CVXPY is told, and the same function of a rate r with its own constant d, for mpmath.
EXPRESSIONS: dict[str, tuple[Written, Exact]] = {
    "sum": (lambda x: cp.log(x) + cp.sqrt(x) + D, lambda r, d: mp.log(r) + mp.sqrt(r) + d),
    "difference": (lambda x: D - cp.log(x) - x, lambda r, d: d - mp.log(r) - r),
    "multiply": (lambda x: cp.multiply(D, cp.log(x)), lambda r, d: d * mp.log(r)),
    "multiply, constant second": (lambda x: cp.multiply(cp.sqrt(x), D), lambda r, d: mp.sqrt(r) * d),
    "multiply a sum": (
        lambda x: cp.multiply(D, cp.inv_pos(x) + cp.inv_pos(1 + x) + 2),
        lambda r, d: d * (1 / r + 1 / (1 + r) + 2),
    ),
    "quotient": (lambda x: cp.log(x) / 3.0, lambda r, _: mp.log(r) / 3),
    "quotient by a vector": (lambda x: cp.log(x) / D, lambda r, d: mp.log(r) / d),
    "affine": (lambda x: 3 * (x + D) / 2 - x, lambda r, d: (r + 3 * d) / 2),
    "cancelling": (lambda x: cp.inv_pos((x + 1e9 * D) - 1e9 * D), lambda r, _: 1 / r),
    "constant": (lambda x: 0 * x + D, lambda _, d: d),
    "reshape": (
        lambda x: cp.vec(cp.inv_pos(cp.reshape(x, (25, 1), order="F")), order="C").T,
        lambda r, _: 1 / r,
    ),
    "log": (lambda x: cp.log(x + D), lambda r, d: mp.log(r + d)),
    "log1p": (lambda x: cp.log1p(cp.multiply(1 / D, x)), lambda r, d: mp.log1p(r * mp.mpf(1 / float(d)))),
    "exp": (lambda x: cp.exp(-cp.multiply(D, cp.log(x))), lambda r, d: mp.exp(-d * mp.log(r))),
    "exp, twice": (lambda x: cp.exp(cp.exp(-cp.log1p(x))), lambda r, _: mp.exp(1 / (1 + r))),
    "logistic": (lambda x: cp.logistic(np.log(D) - cp.log(x)), lambda r, d: mp.log(1 + mp.mpf(d) / r)),
    "logistic, rising": (
        lambda x: cp.logistic(1e-3 * x - D),
        lambda r, d: mp.log1p(mp.exp(mp.mpf(1e-3) * r - d)),
    ),
    "entr": (lambda x: cp.entr(x + D), lambda r, d: -(r + d) * mp.log(r + d)),
    "xexp": (lambda x: cp.xexp(1e-4 * x), lambda r, _: mp.mpf(1e-4) * r * mp.exp(mp.mpf(1e-4) * r)),
    "huber": (
        lambda x: cp.huber(x, 8),
        lambda r, _: r * r if r <= 8 else 16 * r - 64,
    ),
    "huber, falling": (
        lambda x: cp.huber(-cp.log(x), 3),
        lambda r, _: mp.log(r) ** 2 if abs(mp.log(r)) <= 3 else 6 * abs(mp.log(r)) - 9,
    ),
    "kl_div": (lambda x: cp.kl_div(x, D), kl),
    "kl_div, constant first": (lambda x: cp.kl_div(D, x), lambda r, d: kl(d, r)),
    "kl_div, nearly equal": (lambda x: cp.kl_div(x, x + D), lambda r, d: kl(r, r + d)),
    "kl_div, the other way": (lambda x: cp.kl_div(2 * x + D, 2 * x), lambda r, d: kl(2 * r + d, 2 * r)),
    "kl_div, proportional": (lambda x: cp.kl_div(x, 3 * x), lambda r, _: kl(r, 3 * r)),
    "rel_entr": (lambda x: cp.rel_entr(x, D), rel),
    "rel_entr, constant first": (lambda x: cp.rel_entr(D, x), lambda r, d: rel(d, r)),
    "rel_entr, nearly equal": (lambda x: cp.rel_entr(x, x + D), lambda r, d: rel(r, r + d)),
    "rel_entr, the other way": (lambda x: cp.rel_entr(x + D, x), lambda r, d: rel(r + d, r)),
    "rel_entr, scaled": (lambda x: cp.rel_entr(2 * x, 3 * x + D), lambda r, d: rel(2 * r, 3 * r + d)),
    "abs": (lambda x: cp.abs(cp.log(x) - D), lambda r, d: abs(mp.log(r) - d)),
    "maximum": (
        lambda x: cp.maximum(cp.inv_pos(x), 1 - x, cp.square(x) / 50, D),
        lambda r, d: max(1 / r, 1 - r, r * r / 50, d),
    ),
    "minimum": (lambda x: cp.minimum(cp.log(x), x / 9, D), lambda r, d: min(mp.log(r), r / 9, d)),
    "pos, neg, scalene": (
        lambda x: cp.pos(x - D) + cp.neg(x - 2 * D) + cp.scalene(x - 1.3, 2, 3),
        lambda r, d: (
            max(r - d, 0)
            + max(2 * d - r, 0)
            + (2 * (r - mp.mpf(1.3)) if r > mp.mpf(1.3) else 3 * (mp.mpf(1.3) - r))
        ),
    ),
    "power: inv_pos": (lambda x: cp.inv_pos(x + D), lambda r, d: 1 / (r + d)),
    "power: sqrt": (lambda x: cp.sqrt(x), lambda r, _: mp.sqrt(r)),
    "power: square": (lambda x: cp.square(x - D), lambda r, d: (r - d) ** 2),
    "power: 4, of both signs": (lambda x: cp.power(x - D, 4), lambda r, d: (r - d) ** 4),
    "power: of a constant": (lambda x: cp.power(2, -x / 1e5), lambda r, _: mp.mpf(2) ** (-r * mp.mpf(1e-5))),
    "power: exact cone": (lambda x: cp.power(x, 1.7, approx=False), lambda r, _: r ** mp.mpf(1.7)),
    "powers": (lambda x: fo.power(x, -D), lambda r, d: r**-d),
    "powers: convex": (lambda x: fo.power(x, 1.0 + D), lambda r, d: r ** (1 + d)),
    "powers: concave": (lambda x: fo.power(x + 1, D / 8.0), lambda r, d: (r + 1) ** (d / 8)),
    **{
        f"power: {p:g}": (functools.partial(cp.power, p=p), functools.partial(power_of, p))
        for p in (-3.0, -2.5, -2.0, -1 / 3, 0.3, 2 / 3, 1.0, 1.25, 2.5, 3.0, 7.1)
    },
}


def compiled(written: Written, n: int) -> Any:  # noqa: ANN401 - a Tape
    rate = cp.Variable(n, nonneg=True)
    return compile_expression(written(rate), rate)


def evaluated(written: Written, rates: Any, **how: int) -> Any:  # noqa: ANN401 - a Jet
    with np.errstate(all="ignore"):
        return compiled(written, len(rates)).evaluate(rates, **how)


def elementwise_atoms() -> list[type]:
    """Every elementwise atom of the installed CVXPY."""
    found: list[type] = []
    pending = [cp.atoms.elementwise.elementwise.Elementwise]
    while pending:
        subclasses = pending.pop().__subclasses__()
        pending.extend(subclasses)
        found.extend(kind for kind in subclasses if kind.__module__.startswith("cvxpy."))
    return found


def test_every_atom_of_cvxpy_that_can_be_in_a_convex_problem_has_a_rule() -> None:
    x = cp.Variable(2, nonneg=True)
    names = {"Power": "power", "PowerApprox": "power"}
    without = []
    for kind in elementwise_atoms():
        if kind.__module__.endswith(".logic") or kind.__module__.endswith(".power"):
            continue
        atom = kind(x, x) if kind.__name__ in ("kl_div", "rel_entr", "maximum", "minimum") else kind(x)
        if (atom.is_atom_convex() or atom.is_atom_concave()) and names.get(
            kind.__name__, kind.__name__
        ) not in known_atoms():
            without.append(kind.__name__)
    assert not without


def test_every_rule_is_tried() -> None:
    tried = {name.split(",")[0].split(":")[0] for name in EXPRESSIONS}
    assert {atom for atom in known_atoms() if hasattr(cp, atom)} <= tried


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_value_slope_and_curvature_are_the_derivatives(name: str) -> None:
    written, exact = EXPRESSIONS[name]
    jet = evaluated(written, RATES)
    for k, r in enumerate(RATES):
        of_rate = functools.partial(lambda d, x: exact(x, d), mp.mpf(D[k]))
        for order, found in enumerate(jet):
            expected = float(mp.diff(of_rate, mp.mpf(r), order))
            unit = abs(expected) + 1e-30  # mpmath differentiates in 50 digits
            if order == 0 and not name.startswith(("kl_div", "rel_entr")):
                unit += abs(r) + D[k]  # sums of terms may cancel in the value
            if name in ("power: square", "power: 4, of both signs"):
                unit += abs(r + D[k]) ** (max(0, {"s": 2, "4": 4}[name[7]] - order))
            assert abs(float(found[k]) - expected) <= EXACT * unit, (order, r)


class Built(NamedTuple):
    """A random expression: for CVXPY, for mpmath with an error for each of its nodes, and how many nodes."""

    written: Written
    exact: Callable[[Any, list[Any]], Any]
    nodes: int
    positive: bool


def leaf() -> Built:
    return Built(lambda x: x, lambda r, _: r, 0, positive=True)


UNARY: dict[str, tuple[Written, Callable[[Any], Any], bool, bool]] = {  # of positive arguments only; positive
    "exp": (cp.exp, mp.exp, False, True),
    "logistic": (cp.logistic, lambda v: mp.log1p(mp.exp(v)), False, True),
    "log": (cp.log, mp.log, True, False),
    "log1p": (cp.log1p, mp.log1p, True, True),
    "inv_pos": (cp.inv_pos, lambda v: 1 / v, True, True),
    "sqrt": (cp.sqrt, mp.sqrt, True, True),
    "entr": (cp.entr, lambda v: -v * mp.log(v), True, False),
    "square": (cp.square, lambda v: v * v, False, False),
    "xexp": (cp.xexp, lambda v: v * mp.exp(v), False, False),
    "huber": (cp.huber, lambda v: v * v if abs(v) <= 1 else 2 * abs(v) - 1, False, False),
    "abs": (cp.abs, abs, False, False),
    "power": (lambda v: cp.power(v, -0.75), lambda v: v ** mp.mpf(-0.75), True, True),
    "negative": (lambda v: -v, lambda v: -v, False, False),
}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Built:
    """Draw a nested expression; where a positive argument is needed and not known, logistic makes it so."""
    if depth == 0:
        return leaf()
    shape = draw(st.sampled_from([*UNARY, "add", "maximum", "minimum", "scale", "shift"]))
    inner = draw(expressions(depth - 1))
    if shape in ("scale", "shift"):
        c = draw(st.sampled_from([0.25, 0.5, 1.5, 3.0]))
        if shape == "scale":
            return _node(inner, lambda v: c * v, lambda v: c * v, inner.positive)
        return _node(inner, lambda v: c + v, lambda v: c + v, inner.positive)
    if shape in UNARY:
        written, exact, needs, positive = UNARY[shape]
        if needs and not inner.positive:
            inner = _node(inner, UNARY["logistic"][0], UNARY["logistic"][1], positive=True)
        return _node(inner, written, exact, positive)
    other = draw(expressions(depth - 1))
    both: dict[str, tuple[Any, Any, bool]] = {
        "add": (lambda a, b: a + b, lambda a, b: a + b, inner.positive and other.positive),
        "maximum": (cp.maximum, max, inner.positive or other.positive),
        "minimum": (cp.minimum, min, inner.positive and other.positive),
    }
    join, exact_join, positive = both[shape]
    first = inner.nodes

    def exact_both(r: Any, errors: list[Any]) -> Any:  # noqa: ANN401
        value = exact_join(inner.exact(r, errors[:first]), other.exact(r, errors[first:-1]))
        return value * (1 + errors[-1])

    return Built(
        lambda x: join(inner.written(x), other.written(x)),
        exact_both,
        inner.nodes + other.nodes + 1,
        positive=positive,
    )


def _node(inner: Built, written: Written, exact: Callable[[Any], Any], positive: bool) -> Built:
    def of_rate(r: Any, errors: list[Any]) -> Any:  # noqa: ANN401
        value = exact(inner.exact(r, errors[:-1])) * (1 + errors[-1])
        if not 1.0 / LARGE < abs(value) < LARGE:  # exp of exp: derivatives on the way are no floats
            raise OverflowError
        return value

    return Built(lambda x: written(inner.written(x)), of_rate, inner.nodes + 1, positive)


LARGE = 1e60
ROUNDING = 64 * np.finfo(float).eps  # of each node, a few roundings of its own
TINY = mp.mpf(10) ** -25


@pytest.mark.exhaustive
@settings(max_examples=200, deadline=None)
@given(built=expressions(), log_rate=st.floats(-3.0, 1.5))
def test_nested_atoms_lose_no_more_than_their_conditioning(built: Built, log_rate: float) -> None:
    """A relative error in any node changes each derivative by so much; all together bound ours.

    In compositions that follow the DCP rules nothing cancels inside the chain rule; in others, slope and
    curvature of each node may be off on their own.
    """
    r = mp.mpf(float(1.0371 * np.exp(log_rate)))  # off 1, where many of these tie
    jet = evaluated(built.written, np.array([float(r), 2.0 * float(r)]))
    rate = cp.Variable(2, nonneg=True)
    kinds = (0,) if built.written(rate).is_dcp() else (0, 1, 2)

    def derivative(order: int, wrong: int = -1, kind: int = 0) -> Any:  # noqa: ANN401
        def of_rate(x: Any) -> Any:  # noqa: ANN401
            error = TINY * (x / r - 1) ** kind
            return built.exact(x, [error if k == wrong else mp.mpf(0) for k in range(built.nodes)])

        return mp.diff(of_rate, r, order)

    try:
        derivative(0)
    except OverflowError:
        return
    for order, found in enumerate(jet):
        expected = derivative(order)
        shifts = [abs(derivative(order, k, j) - expected) / TINY for k in range(built.nodes) for j in kinds]
        allowed = ROUNDING * float(abs(expected) + abs(derivative(order + 1)) * r + sum(shifts))
        assert abs(float(found[0]) - float(expected)) <= allowed + 1e-30, (order, expected)


def test_orders_below_two_are_the_same_numbers() -> None:
    for written, _ in EXPRESSIONS.values():
        full = evaluated(written, RATES)
        for order in (0, 1):
            part = evaluated(written, RATES, order=order)
            assert all(np.array_equal(part[k], full[k]) for k in range(order + 1))
            assert all(np.all(np.isnan(part[k])) for k in range(order + 1, 3))


def test_taking_some_sources_takes_their_constants() -> None:
    for written, _ in EXPRESSIONS.values():
        node = compiled(written, len(RATES))
        with np.errstate(all="ignore"):
            whole = node.evaluate(RATES)
            for index in (slice(3, 9), np.array([7, 2, 2])):
                part = node.take(index).evaluate(RATES[index])
                assert all(
                    np.allclose(a, b[index], rtol=EXACT, atol=0.0) for a, b in zip(part, whole, strict=True)
                )


def test_what_occurs_twice_is_computed_once() -> None:
    def written(x: Any) -> Any:  # noqa: ANN401
        return cp.exp(-cp.log(x)) + cp.exp(-2 * cp.log(x)) - cp.log(x) + cp.exp(-cp.log(x + 0.0))

    tape = compiled(written, 3)
    atoms = [step for step in tape.steps if hasattr(step, "rule")]
    assert len(atoms) == 3  # one logarithm, two exponentials
    assert (
        len([c for c in compiled(lambda x: D @ np.eye(25) + cp.multiply(D, x), 25).constants if c.ndim]) == 1
    )


def test_an_unknown_atom_is_named_with_the_remedy() -> None:
    rate = cp.Variable(2, nonneg=True)
    with pytest.raises(UnknownAtomError, match=r"'stranger' in the objective.*register.*kernel\(\)"):
        compile_expression(stranger(rate), rate)
    with pytest.raises(UnknownAtomError, match="multiplies or divides two functions of the rate"):
        compile_expression(cp.multiply(rate, cp.exp(rate)), rate)
    with pytest.raises(UnknownAtomError, match="only for affine arguments"):
        compile_expression(cp.kl_div(cp.exp(rate), rate), rate)

"""Random objectives of CVXPY atoms, and their derivatives by dual numbers in extended precision.

An objective is one line of Python in `cp`, x = ρ/Δ and numbers. freshopt gets it with CVXPY for `cp`; the
oracle evaluates the same line with `Atoms` for `cp`, whose functions carry values and right-hand derivatives
and are written here from the atoms' definitions. Only forms without cancellation are composed: costs of
gains, where gains are non-negative, concave and increasing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.ground_truth.cell_truth import Wide, wide

Draw = Callable[..., Any]


@dataclass(frozen=True)
class Dual:
    """A value and its right-hand derivative in x."""

    value: Wide
    slope: Wide

    __array_ufunc__ = None

    def __add__(self, other: Any) -> Dual:
        """Return the sum."""
        other = other if isinstance(other, Dual) else Dual(wide(other), wide(0.0))
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, factor: float) -> Dual:
        """Return a multiple."""
        return Dual(self.value * wide(factor), self.slope * wide(factor))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Dual:
        """Return the negative."""
        return self * -1.0

    def __sub__(self, other: Any) -> Dual:
        """Return the difference."""
        return self + -1.0 * other

    def __rsub__(self, other: float) -> Dual:
        """Return a number minus this."""
        return -self + other

    def chain(self, value: Wide, slope: Wide) -> Dual:
        """Return a function of this, given its value and slope."""
        with np.errstate(all="ignore"):
            return Dual(value, np.where(self.slope == 0, 0, slope * self.slope))


class Atoms:
    """The atoms of the grammar, named as in CVXPY."""

    @staticmethod
    def log(x: Dual) -> Dual:
        """Return log x."""
        return x.chain(np.log(x.value), 1 / x.value)

    @staticmethod
    def log1p(x: Dual) -> Dual:
        """Return log(1 + x)."""
        return x.chain(np.log1p(x.value), 1 / (1 + x.value))

    @staticmethod
    def exp(x: Dual) -> Dual:
        """Return eˣ."""
        return x.chain(np.exp(x.value), np.exp(x.value))

    @staticmethod
    def sqrt(x: Dual) -> Dual:
        """Return √x."""
        return x.chain(np.sqrt(x.value), 1 / (2 * np.sqrt(x.value)))

    @staticmethod
    def power(x: Dual, p: float) -> Dual:
        """Return x^p."""
        exponent = wide(p)
        return x.chain(x.value**exponent, exponent * x.value ** (exponent - 1))

    @staticmethod
    def inv_pos(x: Dual) -> Dual:
        """Return 1/x."""
        return x.chain(1 / x.value, -1 / (x.value * x.value))

    @staticmethod
    def square(x: Dual) -> Dual:
        """Return x²."""
        return x.chain(x.value**2, 2 * x.value)

    @staticmethod
    def logistic(x: Dual) -> Dual:
        """Return log(1 + eˣ)."""
        q = np.exp(-abs(x.value))
        return x.chain(np.maximum(x.value, 0) + np.log1p(q), np.where(x.value >= 0, 1, q) / (1 + q))

    @staticmethod
    def xexp(x: Dual) -> Dual:
        """Return x·eˣ."""
        return x.chain(x.value * np.exp(x.value), (1 + x.value) * np.exp(x.value))

    @staticmethod
    def entr(x: Dual) -> Dual:
        """Return −x·log x."""
        value = np.where(x.value > 0, -x.value * np.log(np.maximum(x.value, 1e-4000)), 0)
        return x.chain(value, -1 - np.log(x.value))

    @staticmethod
    def kl_div(x: Any, y: Any) -> Dual:
        """Return x·log(x/y) − x + y for a number and a Dual."""
        if isinstance(x, Dual):
            ratio = x.value / wide(y)
            log = np.log(ratio)
            value = np.where(x.value > 0, x.value * np.where(x.value > 0, log, 0), 0) - x.value + wide(y)
            return x.chain(value, log)
        c = wide(x)
        return y.chain(c * np.log(c / y.value) - c + y.value, 1 - c / y.value)

    @staticmethod
    def rel_entr(x: float, y: Dual) -> Dual:
        """Return x·log(x/y) for a number x."""
        c = wide(x)
        return y.chain(c * np.log(c / y.value), -c / y.value)

    @staticmethod
    def huber(x: Dual, m: float) -> Dual:
        """Return x² up to M, 2M|x| − M² beyond."""
        size, most = abs(x.value), wide(m)
        value = np.where(size <= most, size**2, 2 * most * size - most**2)
        return x.chain(value, np.sign(x.value) * 2 * np.minimum(size, most))

    @staticmethod
    def maximum(a: Any, b: Any) -> Dual:
        """Return the larger; at a tie the one that rises faster."""
        a, b = _dual(a), _dual(b)
        second = (b.value > a.value) | ((b.value == a.value) & (b.slope > a.slope))
        return Dual(np.where(second, b.value, a.value), np.where(second, b.slope, a.slope))

    @staticmethod
    def minimum(a: Any, b: Any) -> Dual:
        """Return the smaller."""
        return -Atoms.maximum(-_dual(a), -_dual(b))

    @staticmethod
    def pos(x: Dual) -> Dual:
        """Return max(x, 0)."""
        return Atoms.maximum(x, 0.0)

    @staticmethod
    def abs(x: Dual) -> Dual:
        """Return |x|."""
        return Atoms.maximum(x, -x)


def _dual(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(wide(x), wide(0.0))


def evaluate(text: str, x: Wide) -> Dual:
    """Return the line's value and derivative in x."""
    with np.errstate(all="ignore"):
        found: Dual = eval(text, {"cp": Atoms, "x": Dual(x, np.ones_like(x))})
    return found


def number(rng: np.random.Generator, low: float = 0.01, high: float = 10.0) -> str:
    """Return a number, round as often as not."""
    value = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return f"{value:.1g}" if rng.random() < 0.5 else repr(round(value, 6))


def gain(rng: np.random.Generator, depth: int) -> str:
    """Return a non-negative, concave, increasing function of x."""
    if depth == 0 or rng.random() < 0.2:
        return str(rng.choice(["x", "x", f"{number(rng)} * x", f"(x + {number(rng)})"]))
    inner = gain(rng, depth - 1)
    return str(
        rng.choice(
            [
                f"cp.log1p({inner})",
                f"cp.sqrt({inner})",
                f"cp.power({inner}, {rng.choice([0.25, 0.5, 0.7, 0.9])})",
                f"cp.minimum({inner}, {number(rng, 0.1)})",
                f"cp.minimum({inner}, {gain(rng, depth - 1)})",
                f"({inner} + {gain(rng, depth - 1)})",
                f"({inner} + {number(rng)})",
                f"{number(rng)} * {inner}",
            ]
        )
    )


def cost(rng: np.random.Generator, depth: int) -> str:
    """Return a convex function of x."""
    inner, c = gain(rng, depth), number(rng, 0.1)
    if depth and rng.random() < 0.4:
        one, two = cost(rng, depth - 1), cost(rng, depth - 1)
        return str(rng.choice([f"({one} + {two})", f"cp.maximum({one}, {two})", f"{c} * ({one})"]))
    return str(
        rng.choice(
            [
                f"cp.inv_pos({inner})",
                f"-cp.log({inner})",
                f"cp.exp(-({inner}))",
                f"cp.power({inner}, {rng.choice([-0.3, -1.5, -2.0, -3.0])})",
                f"cp.logistic(-cp.log({inner}))",
                f"cp.logistic({c} - {inner})",
                f"cp.exp(2.0 * cp.logistic(-cp.log({inner})))",
                f"-({inner})",
                f"cp.pos({c} - {inner})",
                f"cp.square(cp.pos({c} - {inner}))",
                f"cp.huber(cp.pos({c} - {inner}), {number(rng, 0.1)})",
                f"cp.xexp(cp.pos({c} - {inner}))",
                f"cp.inv_pos({inner}) + {number(rng)} * x",
                f"cp.rel_entr({c}, x)",
                f"cp.kl_div({c}, x)",
                f"cp.kl_div(x, {c})",
                f"-cp.entr(x) - {c} * x",
                f"cp.square(x - {c})",
                f"cp.abs(x - {c})",
                f"cp.exp(-x) + cp.power(x, {rng.choice([2.0, 3.0, 1.5])})",
            ]
        )
    )


SOURCE = """class Declared(fo.Objective):
    def per_source(self, rate, sources):
        x = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, {text})
"""

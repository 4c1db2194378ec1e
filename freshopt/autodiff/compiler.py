"""Forward-mode derivatives of declared expressions: value, slope and curvature.

There are no Jacobians. A separable objective is a tree of elementwise CVXPY atoms over the vector of rates,
so each source's value, first and second derivative follow from one walk over the tree with the chain rule, in
NumPy. `compile_expression` turns the tree into a `Tape` once: a list of steps, each an atom applied to the
results of earlier ones.

* Whatever is affine in earlier results (sums, signs, products with constants) is one step Σ cⱼ·vⱼ + a + b·ρ,
  its constants worked out in advance; affine functions of the rate have slope b and curvature 0 for nothing.
* Equal steps are one step: a log(ρ) that occurs in ten places is computed once.
* An evaluation costs a handful of array passes per step, and no more than the order asked for.

An atom without a rule is named in an `UnknownAtomError`; `register` adds rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.autodiff.affine_steps import NONE, AffineSum, AffineTerm, Linear, added, is_number, scaled
from freshopt.autodiff.jets import ONE, ZERO
from freshopt.autodiff.jets import Jet as Jet
from freshopt.autodiff.kinked_atoms import KINKED
from freshopt.autodiff.relative_entropy import RELATIVE
from freshopt.autodiff.smooth_atoms import SMOOTH, Rule, Smooth, power, user_rule
from freshopt.autodiff.tape import Apply, Step, Tape
from freshopt.autodiff.tape import Node as Node
from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError
from freshopt.numerics.arrays import Array

UserDerivatives = Callable[..., tuple[Any, Any, Any]]
Parameters = Callable[[Expression], Sequence[npt.ArrayLike]]


class UnknownAtomError(ObjectiveError):
    """Atom in a declared objective without derivative rule.

    `Conic` solves such a problem uncertified.
    """


_REGISTERED: dict[str | type, tuple[Rule, Parameters | None]] = {
    **{name: (rule, None) for name, rule in {**SMOOTH, **KINKED}.items()},
    "huber": (SMOOTH["huber"], lambda expression: (expression.M.value,)),
}
# In perspectives a rate of 0 stands for so little: what follows of it stays within the floats.
LEAST = 1e-70
# They were one class until CVXPY 1.7.
_POWERS = ("power", "Power", "PowerApprox")
SAME = ("Promote", "broadcast_to", "reshape", "transpose", "nonneg_wrap", "conj", "real")
# Of one source these change nothing.
_SINGLE = ("Sum", "index", "Trace", "Hstack", "Vstack")


def register(atom: str | type, derivatives: UserDerivatives, parameters: Parameters | None = None) -> None:
    """Register the derivatives of another elementwise atom, for this process.

    Parameters
    ----------
    atom : type or str
        A subclass of CVXPY's ``Elementwise``, or the class name of an atom of CVXPY itself.
    derivatives : callable
        ``derivatives(x, *parameters)`` for an ndarray x returns (f, f', f'') of the same shape. For an atom
        of several arguments ``derivatives(x, y, ...)`` returns f, the gradient (f_x, f_y, ...) and the
        Hessian ((f_xx, f_xy, ...), (f_yx, f_yy, ...), ...). Outside the atom's domain it should return the
        extended value, ±inf, with an infinite slope that points back inside.
    parameters : callable, optional
        Takes the CVXPY expression and returns what the atom holds besides its arguments: numbers, or one
        vector of shape (n,) each.

    Raises
    ------
    ObjectiveError
        If `atom` is neither a class nor a name.

    Notes
    -----
    The atom must be twice differentiable; kinks are written with ``cp.maximum``, ``cp.minimum`` and
    ``cp.abs``. Convexity is CVXPY's business: the class says so in ``is_atom_convex`` and ``is_incr``. When a
    problem is made, values are compared with the class's ``numeric`` and slopes with values, at a few rates;
    certificates hold values against slopes at theirs. A cone solver needs a canonicalisation too, the others
    do not.

    Examples
    --------
    The penalty √(1 + x²), which CVXPY has only as a norm:

    >>> import cvxpy as cp, numpy as np, freshopt as fo
    >>> from cvxpy.atoms.elementwise.elementwise import Elementwise
    >>> class rounded(Elementwise):
    ...     def numeric(self, values):
    ...         return np.sqrt(1.0 + values[0] ** 2)
    ...     def sign_from_args(self):
    ...         return True, False
    ...     def is_atom_convex(self):
    ...         return True
    ...     def is_atom_concave(self):
    ...         return False
    ...     def is_incr(self, idx):
    ...         return self.args[idx].is_nonneg()
    ...     def is_decr(self, idx):
    ...         return self.args[idx].is_nonpos()
    ...     def _grad(self, values):
    ...         return [None]
    >>> def derivatives(x):
    ...     f = np.sqrt(1.0 + x * x)
    ...     return f, x / f, 1.0 / f**3
    >>> register(rounded, derivatives)
    >>> class NearTwo(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         return cp.multiply(sources.importance, rounded(rate - 2.0))
    >>> problem = fo.Problem(NearTwo(), fo.Sources([1.0, 1.0], importance=[1.0, 1.0]), bandwidth=3.0)
    >>> fo.solve(problem).rates.round(9)
    array([1.5, 1.5])
    """
    if not isinstance(atom, str | type):
        raise ObjectiveError(f"{atom!r} is no atom. Pass the atom's class, or the name of one of CVXPY's.")
    rule = derivatives if isinstance(derivatives, Smooth) else user_rule(derivatives)
    _REGISTERED[atom] = (rule, parameters)


def known_atoms() -> list[str]:
    """Return the names of the atoms that have a rule.

    Examples
    --------
    >>> "logistic" in known_atoms()
    True
    """
    names = (atom if isinstance(atom, str) else atom.__name__ for atom in _REGISTERED)
    return sorted({*names, *RELATIVE, "power"})


def has_rule(expression: Expression) -> bool:
    """Return whether the outermost atom has a registered elementwise rule."""
    return type(expression) in _REGISTERED


def compile_expression(expression: Expression, rate: Expression) -> Tape:
    """Compile a separable CVXPY expression of the variable `rate`.

    - `expression` cvxpy expression (n,)
    - `rate` cvxpy.Variable (n,)
    - raises UnknownAtomError: naming the atom that has no rule here.

    Examples
    --------
    >>> from freshopt.cvx import cp
    >>> rate = cp.Variable(3, nonneg=True)
    >>> tape = compile_expression(cp.square(rate) + cp.exp(-rate), rate)
    >>> tape.evaluate(np.array([0.0, 1.0, 2.0])).slope.round(4)
    array([-1.    ,  1.6321,  3.8647])
    """
    compiler = _Compiler(rate)
    with np.errstate(all="ignore"):
        compiler.place(compiler.parts(expression), last=True)
    last_use = {slot: k for k, step in enumerate(compiler.steps) for slot in step.slots if slot}
    finished: list[tuple[int, ...]] = [
        tuple(slot for slot, last in last_use.items() if last == k) for k in range(len(compiler.steps))
    ]
    return Tape(tuple(compiler.steps), tuple(compiler.constants), tuple(finished))


def _reciprocal(rate: Array) -> tuple[Array, Array, Array]:
    """Return 1/ρ and its derivatives."""
    x = 1.0 / np.maximum(rate, LEAST)
    return x, -x * x, 2.0 * x * x * x


def _product(rate: Array, value: Array) -> tuple[Any, ...]:
    """Return ρ·g and its derivatives in both."""
    x, none, one = np.maximum(rate, LEAST), np.zeros_like(value), np.ones_like(value)
    return x * value, (value, x), ((none, one), (one, none))


_RECIPROCAL, _PRODUCT = user_rule(_reciprocal), user_rule(_product)


class _Compiler:
    """State of one compilation: steps, constants and their places."""

    def __init__(self, rate: Expression) -> None:
        self.rate = rate
        self.steps: list[Step] = []
        self.constants: list[Array] = []
        self._slots: dict[Step, int] = {}
        self._found: dict[int, AffineSum] = {}
        self._places: dict[tuple[float, ...], list[int]] = {}

    def parts(self, expression: Expression) -> AffineSum:
        """Return an expression as an affine sum over slots of the tape."""
        known = self._found.get(id(expression))
        if known is None:
            known = self._found[id(expression)] = self._parts(expression)
        return known

    def place(self, parts: AffineSum, *, last: bool = False) -> int:
        """Return the slot that holds an affine sum.

        It is a new step unless the sum is one slot already.
        The result of a tape is its last step, so that is always a new one.
        """
        if not last and is_number(parts.intercept, 0.0):
            if not parts.terms and is_number(parts.slope, 1.0):
                return 0
            if len(parts.terms) == 1 and is_number(parts.slope, 0.0):
                ((slot, coefficient),) = parts.terms.items()
                if is_number(coefficient, 1.0):
                    return slot
        terms = []
        for slot, coefficient in parts.terms.items():
            sign = next((s for s in (1, -1) if is_number(coefficient, s)), 0)
            terms.append(
                AffineTerm(slot, sign, NONE if sign else self._constant(coefficient), not np.all(coefficient))
            )
        intercept = NONE if is_number(parts.intercept, 0.0) else self._constant(parts.intercept)
        slope = NONE if is_number(parts.slope, 0.0) else self._constant(parts.slope)
        return self._append(Linear(tuple(terms), intercept, slope, not np.all(parts.slope)), last=last)

    def _append(self, step: Step, *, last: bool = False) -> int:
        if last or step not in self._slots:
            self.steps.append(step)
            self._slots[step] = len(self.steps)
        return self._slots[step]

    def _parts(self, expression: Expression) -> AffineSum:
        if expression is self.rate:
            return AffineSum({}, ZERO, ONE)
        if expression.is_constant():
            return AffineSum({}, constant_value(expression), ZERO)
        name = type(expression).__name__
        arguments = expression.args
        if name == "AddExpression":
            return added([self.parts(argument) for argument in arguments])
        if name == "NegExpression":
            return scaled(self.parts(arguments[0]), np.asarray(-1.0))
        if name in SAME or (name in _SINGLE and expression.size == arguments[0].size == 1):
            return self.parts(arguments[0])
        single = name == "MulExpression" and all(argument.size == 1 for argument in arguments)
        if name in ("multiply", "DivExpression") or single:
            return self._product(expression, inverted=name == "DivExpression")
        return AffineSum({self._atom(expression): ONE}, ZERO, ZERO)

    def _product(self, expression: Expression, *, inverted: bool) -> AffineSum:
        """Return a product with a constant, or a quotient by one."""
        first, second = expression.args
        if not (second.is_constant() or (first.is_constant() and not inverted)):
            raise UnknownAtomError(
                f"the objective multiplies or divides two functions of the rate: '{expression}'. Only "
                "products with constants have a derivative rule."
            )
        factor = constant_value(second if second.is_constant() else first)
        whole = self.parts(first if second.is_constant() else second)
        if factor.ndim and len(whole.terms) > 1:  # one product, not one per term
            whole = AffineSum({self.place(whole): ONE}, ZERO, ZERO)
        return scaled(whole, np.asarray(1.0 / factor) if inverted else factor)

    def _atom(self, expression: Expression) -> int:
        """Place an atom and return its slot."""
        kind = type(expression)
        name = kind.__name__ if kind.__module__.split(".")[0] == "cvxpy" else ""
        if name in RELATIVE:
            return self._relative(expression, RELATIVE[name])
        if kind.__module__ == "freshopt.autodiff.perspective":
            return self._perspective(expression)
        if name in _POWERS:
            p = expression.p
            found: tuple[Rule, Parameters | None] | None = power(float(getattr(p, "value", p))), None
        else:
            found = _REGISTERED.get(kind) or _REGISTERED.get(name)
        if found is None:
            raise UnknownAtomError(
                f"atom '{kind.__name__}' in the objective has no derivative rule. Known: "
                f"{', '.join(known_atoms())}. Rewrite the expression with these, call "
                f"freshopt.autodiff.compiler.register, or give the objective a kernel()."
            )
        rule, parameters = found
        slots = tuple(self.place(self.parts(argument)) for argument in expression.args)
        held = () if parameters is None else parameters(expression)
        return self._append(Apply(rule, slots, tuple(self._constant(vector(value)) for value in held)))

    def _relative(self, expression: Expression, rule: Rule) -> int:
        """Place a relative entropy and return its slot.

        Its rule takes the difference and the determinant of the arguments too.
        """
        x, y = (self.parts(argument) for argument in expression.args)
        if not (x.affine and y.affine):
            raise UnknownAtomError(
                f"atom '{type(expression).__name__}' has a derivative rule only for affine arguments. "
                "Rewrite the expression."
            )
        difference = added([y, scaled(x, np.asarray(-1.0))])
        determinant = np.asarray(x.slope * y.intercept - x.intercept * y.slope)
        slots = tuple(self.place(part) for part in (x, y, difference))
        return self._append(Apply(rule, slots, (self._constant(determinant),)))

    def _perspective(self, expression: Expression) -> int:
        """Place ρ·g(a/ρ), of g's own steps at a/ρ."""
        rate = self.place(self.parts(expression.args[0]))
        inverse = self._append(Apply(_RECIPROCAL, (rate,), ()))
        self._found[id(expression.period)] = AffineSum({inverse: vector(expression.scale)}, ZERO, ZERO)
        value = self.place(self.parts(expression.inner))
        return self._append(Apply(_PRODUCT, (rate, value), ()))

    def _constant(self, value: Array) -> int:
        """Return the place of a constant, or of an equal one."""
        n = value.size
        probe = value.reshape(-1)[[0, n // 2, n - 1]]
        places = self._places.setdefault((n, *probe.tolist()), [])
        for place in places:
            if np.array_equal(self.constants[place], value):
                return place
        if value.ndim == 0 and float(value) in (0.0, 1.0):
            value = ONE if float(value) else ZERO
        self.constants.append(value)
        places.append(len(self.constants) - 1)
        return places[-1]


def constant_value(expression: Expression) -> Array:
    """Return a constant expression as numbers, a scalar if all are equal."""
    value = expression.value
    return vector(value.toarray() if hasattr(value, "toarray") else value)


def vector(value: npt.ArrayLike) -> Array:
    """Return numbers as a scalar if all equal, else a vector."""
    array = np.asarray(value, dtype=np.float64).reshape(-1)
    same = array[0] == array[-1] == array[len(array) // 2] and bool(np.all(array == array[0]))
    return np.array(array[0]) if same else array

"""Generated source of every atom, run as Python, against the tape; edges of domains too."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from freshopt.autodiff.compiler import compile_expression
from freshopt.autodiff.tape_description import describe
from freshopt.compiled.tapes import atom_functions
from freshopt.compiled.tapes.tape_source import jet_source, numbers_of
from freshopt.cvx import cp
from freshopt.numerics import vector_math
from freshopt.numerics.arrays import Array
from tests.autodiff.test_compiler import EXPRESSIONS
from tests.compiled.tape_cases import ACCEPTED, EDGES, RATES, disagreement

ULP = float(np.finfo(np.float64).eps)
# e^(d·log x) multiplies the error of the logarithm by its argument, up to 40 here.
AMPLIFIED = {"exp": 400.0 * ULP, "exp, twice": 100.0 * ULP}


def names() -> dict[str, Any]:
    """Return the functions that generated source calls, uncompiled; NumPy's numbers divide by 0."""
    found: dict[str, Any] = {"inf": np.inf, "nan": np.nan}
    for module in (vector_math, atom_functions):
        found.update(vars(module))
    for key in ("fast_exp", "fast_log"):
        own = found[key]
        found[key] = lambda x, own=own: np.float64(own(x))
    functions = inspect.getmembers(atom_functions, inspect.isfunction)
    for key, function in functions:
        if function.__module__ == atom_functions.__name__:
            found[key] = type(function)(function.__code__, found, key)
    return found


def jet_of(tape: Any, rates: Array, side: int) -> Array:  # noqa: ANN401 - a node
    """Return the jets by the generated source, shape (3, n)."""
    description = describe(tape)
    assert description is not None
    space = names()
    exec(jet_source("jet", description), space)
    columns = [np.broadcast_to(tape.constants[k], rates.shape) for k, _ in numbers_of(description)]
    found = [space["jet"](r, np.float64(side), [c[k] for c in columns]) for k, r in enumerate(rates)]
    return np.array(found, dtype=float).T


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("where", ["inside", "edges"])
def test_generated_source_has_the_tapes_numbers(name: str, where: str) -> None:
    rate = cp.Variable(len(RATES), nonneg=True)
    tape = compile_expression(EXPRESSIONS[name][0](rate), rate)
    rates = RATES if where == "inside" else EDGES
    with np.errstate(all="ignore"):
        for side in (1, -1):
            expected = tape.evaluate(rates, 2, side)
            found = jet_of(tape, rates, side)
            for order in range(3):
                assert disagreement(found[order], expected[order]) <= AMPLIFIED.get(name, 32.0 * ULP), order

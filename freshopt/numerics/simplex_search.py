"""`least_in_box`: minimisation of smooth functions of few variables by the Nelder-Mead simplex.

For functions that are costly and have no derivatives, such as marginal likelihoods over two parameters. It
takes the steps of SciPy's method of that name, to the last bit; loading `scipy.optimize` takes half a
second, in which the search is over.

Cost: one or two evaluations a step, some fifty steps for 1e-6 in two variables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.numerics.arrays import Array


def least_in_box(
    function: Callable[[Array], float],
    simplex: Array,
    low: Array,
    high: Array,
    *,
    near: float,
    close: float,
    steps: int,
) -> tuple[Array, float]:
    """Return the point that a simplex contracts to, and its value.

    Parameters
    ----------
    function : callable
        Value of a point, shape (n,).
    simplex : ndarray, shape (n+1, n)
        Vertices to start from.
    low, high : ndarray, shape (n,)
        The box; steps out of it are clipped.
    near, close : float
        The search ends where all vertices are within `near` of the best one, in each variable, and their
        values within `close` of its value.
    steps : int
        Steps at most.

    References
    ----------
    .. [1] Nelder and Mead, A simplex method for function minimization, Computer Journal 7 (1965), 308-313,
       doi:10.1093/comjnl/7.4.308: reflection 1, expansion 2, contraction and shrinkage 1/2.

    Examples
    --------
    >>> bowl = lambda x: float((x[0] - 1.0) ** 2 + (x[1] + 2.0) ** 2)
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> box = np.full(2, 5.0)
    >>> point, value = least_in_box(bowl, corners, -box, box, near=1e-6, close=1e-9, steps=1000)
    >>> point.round(5).tolist(), value < 1e-9
    ([1.0, -2.0], True)
    """
    # A vertex beyond an upper bound is reflected into the box: clipping might flatten the simplex.
    vertices = np.clip(np.where(simplex > high, 2.0 * high - simplex, simplex), low, high)
    values = np.array([function(vertex) for vertex in vertices])
    vertices, values = _sorted(*_sorted(vertices, values))
    for _ in range(steps - 1):
        apart, uneven = np.abs(vertices[1:] - vertices[0]), np.abs(values[0] - values[1:])
        if np.max(apart) <= near and np.max(uneven) <= close:
            break
        _step(function, vertices, values, low, high)
        vertices, values = _sorted(vertices, values)
    return vertices[0], float(np.min(values))


def _sorted(vertices: Array, values: Array) -> tuple[Array, Array]:
    order = np.argsort(values)
    return vertices[order], values[order]


def _step(
    function: Callable[[Array], float], vertices: Array, values: Array, low: Array, high: Array
) -> None:
    """Replace the worst vertex, or shrink the simplex towards the best."""
    centre, worst = np.add.reduce(vertices[:-1], 0) / (len(vertices) - 1), vertices[-1]

    def moved(towards: float) -> tuple[Array, float]:
        point = np.clip((1.0 + towards) * centre - towards * worst, low, high)
        return point, function(point)

    reflected, value = moved(1.0)
    if value < values[0]:
        expanded, further = moved(2.0)
        vertices[-1], values[-1] = (expanded, further) if further < value else (reflected, value)
        return
    if value < values[-2]:
        vertices[-1], values[-1] = reflected, value
        return
    outside = value < values[-1]
    contracted, nearer = moved(0.5 if outside else -0.5)
    if nearer <= value if outside else nearer < values[-1]:
        vertices[-1], values[-1] = contracted, nearer
        return
    for k in range(1, len(vertices)):
        vertices[k] = np.clip(vertices[0] + 0.5 * (vertices[k] - vertices[0]), low, high)
        values[k] = function(vertices[k])

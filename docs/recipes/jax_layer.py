"""JAX: optimal rates as a layer, a function of change rates and importances that gradients pass through.

freshopt does not need JAX. The backward pass solves once more, since JAX keeps only arrays between the two.
`problem_of` makes a problem of sources:

    problem_of = lambda sources: fo.Problem(fo.problems.HarmonicStaleness(), sources, bandwidth=100.0)
    jax.grad(lambda d: loss(optimal_rates(d, importance, problem_of)))(change_rate)
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import freshopt as fo

jax.config.update("jax_enable_x64", True)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def optimal_rates(change_rate, importance, problem_of):
    """Optimal rates as a function of change rates and importances."""
    return forward(change_rate, importance, problem_of)[0]


def forward(change_rate, importance, problem_of):
    def solve(d, w):
        return np.array(fo.solve(problem_of(fo.Sources(d, w))).rates)

    shape = jax.ShapeDtypeStruct(change_rate.shape, jnp.float64)
    return jax.pure_callback(solve, shape, change_rate, importance), (change_rate, importance)


def backward(problem_of, kept, upstream):
    def pull(d, w, v):
        gradient = fo.solve(problem_of(fo.Sources(d, w))).sensitivity().vjp(rates=v)
        return np.array(gradient.change_rate), np.array(gradient.importance)

    shape = jax.ShapeDtypeStruct(upstream.shape, jnp.float64)
    return jax.pure_callback(pull, (shape, shape), *kept, upstream)


optimal_rates.defvjp(forward, backward)

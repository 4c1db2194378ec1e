"""Interior points of thousands of rows: sparse systems, where dense ones would not fit."""

from __future__ import annotations

import numpy as np

import freshopt as fo
from freshopt.certificates.strict_interior import interior_points
from freshopt.problems import HarmonicStaleness


def test_rates_inside_a_tree_of_many_groups() -> None:
    hosts, rng = 3000, np.random.default_rng(4)
    host = np.repeat(np.arange(hosts), 2)
    sources = fo.Sources(rng.lognormal(size=2 * hosts), rng.lognormal(size=2 * hosts))
    reserve = dict(enumerate((10.0 ** rng.uniform(-3.0, 3.0, hosts)).tolist()))
    limit = {key: 3.0 * value for key, value in reserve.items()}
    problem = fo.Problem(
        HarmonicStaleness(), sources, constraints=[fo.Nested([host], at_most=limit, at_least=reserve)]
    )
    program = problem.program
    assert program is not None
    deepest = interior_points(program)[-1]
    used = np.add.reduceat(deepest, np.arange(0, 2 * hosts, 2))
    least = np.array(list(reserve.values()))
    assert np.all((used > least) & (used < 3.0 * least))
    # Halfway, every group is a whole reserve away from both.
    assert np.all(np.minimum(used / least - 1.0, 3.0 - used / least) > 0.1)

"""Compiled passes as the interior point method asks for them, against those in NumPy."""

import numpy as np
import pytest

import freshopt as fo
from freshopt.interior_point.newton_systems import ArrowGram, arrow_of
from freshopt.interior_point.row_passes import CompiledRowPasses, NumpyRowPasses, row_passes
from freshopt.interior_point.solve_rows import solve_rows
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.named import HARMONIC
from tests.ground_truth.tolerances import EXACT

pytestmark = pytest.mark.usefixtures("all_compiled")


def numpy_passes(own: Program) -> NumpyRowPasses:
    return NumpyRowPasses(own, arrow_of(own.rows))


def program(hosts: int, n: int = 3000) -> Program:
    """Draw a program under two budgets and the limits of disjoint hosts."""
    rng = np.random.default_rng(hosts)
    d, w = rng.lognormal(size=n), rng.lognormal(0.0, 2.0, n)
    cost, host = rng.lognormal(size=(2, n)), rng.integers(0, hosts, n)
    source, row = np.tile(np.arange(n), 2), np.repeat(np.arange(2), n)
    limits = 0.3 * np.bincount(host, weights=d, minlength=hosts) * rng.lognormal(size=hosts)
    blocks = [
        RowBlock.linear("host", range(hosts), np.arange(n), host, np.ones(n), limits),
        RowBlock.linear("budget", range(2), source, row, cost.ravel(), 0.2 * cost @ d),
    ]
    kernel = HARMONIC.kernel(fo.Sources(d, w))
    return Program(kernel, np.zeros(n), np.full(n, 1e3), d, Rows.gather(blocks, n))


@pytest.mark.exhaustive
@pytest.mark.parametrize("hosts", [20, 300], ids=["square", "arrow"])
def test_both_passes_say_the_same(hosts: int) -> None:
    own = program(hosts)
    y = np.random.default_rng(1).lognormal(size=len(own.rows))
    fast, plain = row_passes(own), numpy_passes(own)
    assert isinstance(fast, CompiledRowPasses)
    assert isinstance(plain, NumpyRowPasses)
    a, b = fast.evaluate(y), plain.evaluate(y)
    np.testing.assert_allclose(a.rates, b.rates, rtol=EXACT)
    np.testing.assert_allclose(a.used, b.used, rtol=EXACT)
    assert isinstance(a.gram, ArrowGram) == isinstance(b.gram, ArrowGram) == (hosts == 300)
    # Both take difference quotients for the curvature.
    if isinstance(a.gram, ArrowGram) and isinstance(b.gram, ArrowGram):
        a_parts, b_parts = a.gram[:3], b.gram[:3]
        assert np.array_equal(a.gram.arrow.place, b.gram.arrow.place)
    else:
        a_parts, b_parts = a.gram, b.gram  # type: ignore[assignment]
    for one, other in zip(a_parts, b_parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7)
    assert fast.evaluate(y, gram=False).gram is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("hosts", [20, 300], ids=["square", "arrow"])
def test_both_passes_lead_to_the_same_optimum(hosts: int) -> None:
    own = program(hosts)
    fast, plain = solve_rows(own, passes=row_passes), solve_rows(own, passes=numpy_passes)
    values = []
    for found in (fast, plain):
        assert found.why is None
        assert found.gap <= EXACT
        assert np.all(own.rows.used(found.rates) <= (1.0 + 1e-14) * own.rows.limits)
        values.append(float(np.sum(own.cost(found.rates))))
    assert values[0] == pytest.approx(values[1], rel=1e-11)


def test_what_is_not_compiled_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert isinstance(row_passes(program(20)), NumpyRowPasses)

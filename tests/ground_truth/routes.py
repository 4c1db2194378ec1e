"""Which of NumPy and compiled loops a test goes through."""

import pytest

import freshopt as fo
from freshopt.compiled import backend
from tests.ground_truth.named import present


def compile_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compiled loops do everything that they can, for any number of sources."""
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    monkeypatch.setattr(backend, "AT_HAND", 1)
    monkeypatch.setattr(backend, "account", backend.Account(loads=True))


def require_same_compiled(
    problem: fo.Problem,
    monkeypatch: pytest.MonkeyPatch,
    *,
    gap: float = 1e-12,
    value: float = 1e-12,
    one_price: bool = True,
) -> None:
    """Solve in NumPy, and by compiled loops with a proof: value and price, if it is one, must be the same."""
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert present(compiled.certificate).relative_gap < gap
    assert compiled.value == pytest.approx(plain.value, rel=value)
    if one_price:
        assert compiled.price == pytest.approx(plain.price, rel=1e-9)
    else:
        assert present(plain.certificate).relative_gap < gap

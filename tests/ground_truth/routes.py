"""Which of NumPy and compiled loops a test goes through."""

from __future__ import annotations

import pytest

from freshopt.compiled import backend


def compile_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compiled loops do everything that they can, for any number of sources."""
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    monkeypatch.setattr(backend, "AT_HAND", 1)
    monkeypatch.setattr(backend, "account", backend.Account(loads=True))

"""Dated changes before which no signal came: against a general optimiser on the likelihood row by row."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from freshopt.noisy_signals import NoisySignals

Floats = npt.NDArray[np.float64]


def simulated(seed: int, crawls: int, a: float, g: float, p: float) -> dict[str, Floats]:
    """One source: changes without a signal at rate a, signals at rate g, each true with probability p."""
    rng = np.random.default_rng(seed)
    time = np.concatenate([[0.0], np.cumsum(rng.exponential(1.0, crawls))])
    quiet = np.sort(rng.uniform(0.0, time[-1], rng.poisson(a * time[-1])))
    heard = np.sort(rng.uniform(0.0, time[-1], rng.poisson(g * time[-1])))
    true = heard[rng.random(len(heard)) < p]
    changes = np.sort(np.concatenate([quiet, true]))
    upto = np.searchsorted(changes, time)
    last = np.where(upto > 0, changes[np.maximum(upto - 1, 0)] if len(changes) else np.nan, np.nan)
    changed = np.diff(upto, prepend=upto[0]) > 0
    signals = np.diff(np.searchsorted(heard, time), prepend=0)
    return {
        "source": np.zeros(crawls + 1, dtype=np.int64),
        "time": time,
        "changed": changed.astype(float),
        "signals": signals.astype(float),
        "last_modified": np.where(changed, last, np.nan),
    }


def loss(parameters: Floats, log: dict[str, Floats]) -> float:
    a, k = np.exp(parameters)
    value = 0.0
    for j in range(1, len(log["time"])):
        gap, n = log["time"][j] - log["time"][j - 1], log["signals"][j]
        if not log["changed"][j]:
            value -= a * gap + k * n
        elif n == 0 and not math.isnan(log["last_modified"][j]):
            value += math.log(a) - a * (log["time"][j] - log["last_modified"][j])
        else:
            value += math.log(-math.expm1(-a * gap - k * n))
    return -value


@pytest.mark.parametrize(("a", "g", "p"), [(0.3, 1.0, 0.6), (2.0, 0.5, 0.9), (0.05, 3.0, 0.2)])
def test_dates_enter_the_maximum(a: float, g: float, p: float) -> None:
    log = simulated(31, 150, a, g, p)
    model = NoisySignals().fit(log)
    best = minimize(
        loss, np.log([a, 0.7]), args=(log,), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    assert model.silent_rate_[0] == pytest.approx(math.exp(best.x[0]), rel=1e-5)
    assert model.precision_[0] == pytest.approx(-math.expm1(-math.exp(best.x[1])), rel=1e-5)
    undated = NoisySignals().fit({key: column for key, column in log.items() if key != "last_modified"})
    assert undated.silent_rate_[0] != model.silent_rate_[0]


def test_dates_alone_tell_that_a_source_changed() -> None:
    log: dict[str, Any] = {
        "source": ["a"] * 4,
        "time": [0.0, 2.0, 4.0, 6.0],
        "changed": [0, 1, 0, 1],
        "signals": [5, 0, 1, 0],
        "last_modified": [-1.0, 1.5, None, 5.0],
    }
    model = NoisySignals().fit(log)
    assert model.silent_rate_[0] == pytest.approx(2.0 / (0.5 + 2.0 + 1.0), rel=1e-13)
    assert model.flag_.tolist() == ["signals never true"]


def test_since_when_a_page_is_deployed_tells_nothing_of_signals() -> None:
    n = 100
    log = {
        "source": np.repeat(np.arange(n), 2),
        "time": np.tile([3.0, 4.0], n),
        "changed": np.tile([0, 1], n),
        "signals": np.tile([7, 1], n),
        "last_modified": np.tile([2.5001, np.nan], n),
    }
    model = NoisySignals().fit(log)
    assert model.signal_rate_.tolist() == [1.0] * n

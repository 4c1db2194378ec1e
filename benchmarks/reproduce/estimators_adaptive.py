"""Learning change rates and refreshing by them in turns: section 5 of the estimators' paper.

50 pages, 7 of which change 55 times as often and count twice. After every 50 crawls of each page its change
rate is estimated anew and the refresh rates are solved anew, the first being uniform. Independent runs are
independent sources of one log, and hosts of one problem whose limits are the runs' budgets: all runs are
estimated and solved at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from estimator_runs import Array, log_of
from statements import Statement, always, below, equals, exact, share, within

import freshopt as fo
from freshopt.estimators import (
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentumStochasticApproximation,
    StochasticApproximation,
)
from freshopt.online import AdaptiveRates
from freshopt.problems import BinaryFreshness
from freshopt.solvers import WaterFilling

FAST, SLOW, BUDGET = 7, 43, 5.0
CHANGE_RATE = np.repeat([4.5 / FAST, 0.5 / SLOW], [FAST, SLOW])
IMPORTANCE = np.repeat([2.0, 1.0], [FAST, SLOW])
LOST = 41.1  # freshness: a fast page that is lost costs 0.17, all other errors together 0.03
PAGES, BATCH, BATCHES = FAST + SLOW, 50, 20
FLOOR = 1e-3  # of estimates and of rates: no page is abandoned

Learner = Callable[[], Any]  # makes an estimator; they share method names, not a class
ONLINE: dict[str, Learner] = {
    "LLN": lambda: LawOfLargeNumbers(alpha=1.0),
    "SA": lambda: StochasticApproximation(step=0.75),
    "SAM": lambda: MomentumStochasticApproximation(step=1.3, beta=0.75),
}


def freshness(rates: Array) -> Array:
    """Return Σ w ρ/(ρ+Δ) under the true change rates, over the last axis."""
    return np.asarray(np.sum(IMPORTANCE * rates / (rates + CHANGE_RATE), axis=-1))


def best() -> fo.Solution:
    """Return the optimum under the true change rates."""
    return fo.solve(fo.Problem(BinaryFreshness(), fo.Sources(CHANGE_RATE, IMPORTANCE), BUDGET))


def solved(estimates: Array) -> Array:
    """Return the rates that are best for estimates, each run, shape (runs, pages), for itself."""
    runs = len(estimates)
    run = np.repeat(np.arange(runs), PAGES)
    sources = fo.Sources(estimates.ravel(), np.tile(IMPORTANCE, runs), host=run, min_rate=FLOOR)
    # More bandwidth than the hosts may use together: each run spends its own budget at its own price.
    problem = fo.Problem(BinaryFreshness(), sources, 2 * BUDGET * runs, dict.fromkeys(range(runs), BUDGET))
    return np.asarray(fo.solve(problem, WaterFilling()).rates).reshape(runs, PAGES)


def crawled(rng: np.random.Generator, rates: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return gaps and outcomes of a batch of crawls of each page, shape (runs·pages, crawls)."""
    gaps = rng.exponential(1.0, (rates.size, BATCH)) / rates.reshape(-1, 1)
    change_rate = np.tile(CHANGE_RATE, len(rates))[:, None]
    return gaps, rng.random(gaps.shape) < -np.expm1(-change_rate * gaps)


def adaptive_rates(rng: np.random.Generator, runs: int, learner: Learner, *, restart: bool = False) -> Array:
    """Return the refresh rates after each batch, shape (runs, batches, pages).

    With `restart` each batch is learnt from alone; otherwise what was learnt is carried on, the crawls of
    each batch counting with the rates at which they were made.
    """
    rates, model = np.full((runs, PAGES), BUDGET / PAGES), learner()
    found = np.empty((runs, BATCHES, PAGES))
    for batch in range(BATCHES):
        log = log_of(*crawled(rng, rates))
        learn = model.fit if restart or batch == 0 else model.partial_fit
        rates = solved(learn(log, crawl_rate=rates.ravel()).change_rate_.reshape(runs, PAGES))
        found[:, batch] = rates
    return found


def adaptive(rng: np.random.Generator, runs: int, learner: Learner, *, restart: bool = False) -> Array:
    """Return the true freshness of the rates after each batch, shape (runs, batches)."""
    return freshness(adaptive_rates(rng, runs, learner, restart=restart))


def adaptive_likelihood(rng: np.random.Generator, runs: int) -> Array:
    """Return the same with smoothed maximum likelihood of all crawls so far."""
    rates = np.full((runs, PAGES), BUDGET / PAGES)
    seen: list[tuple[Array, npt.NDArray[np.bool_]]] = []
    found = np.empty((runs, BATCHES))
    for batch in range(BATCHES):
        seen.append(crawled(rng, rates))
        gaps, changed = (np.hstack(columns) for columns in zip(*seen, strict=True))
        rates = solved(
            MaximumLikelihood(smoothing=0.5).fit(log_of(gaps, changed)).change_rate_.reshape(runs, PAGES)
        )
        found[:, batch] = freshness(rates)
    return found


def optimum() -> Iterator[Statement]:
    """Compare the optimum with the prototype's, to its digits."""
    found = best()
    for what, expected, value, tolerance in (
        ("freshness", 41.18929, found.value, 5e-6),
        ("rate of a fast page", 0.258915, found.rates[0], 5e-7),
        ("rate of a slow page", 0.0741302, found.rates[-1], 5e-8),
    ):
        yield exact("Sec 5", f"optimum: {what}", expected, float(value), tolerance, said=f"{expected:.7g}")


def one_clock(seed: int, runs: int) -> Iterator[Statement]:
    """Decide what `AdaptiveRates` reaches in batches as long as 50 crawls of each page at equal rates."""
    pages = fo.Sources(CHANGE_RATE, IMPORTANCE)
    guess = fo.Problem(BinaryFreshness(), fo.Sources(1.0, IMPORTANCE), BUDGET)
    length = BATCH * PAGES / BUDGET
    estimators = {
        "LLN, α = ln(k+1)": (LawOfLargeNumbers(floor=FLOOR), 41.163),
        "SA": (StochasticApproximation(step=0.75, floor=FLOOR), 41.170),
        "smoothed MLE": (MaximumLikelihood(smoothing=0.5), None),
    }
    for name, (model, expected) in estimators.items():
        found = np.empty(runs)
        for run in range(runs):
            learner = AdaptiveRates(batch=length, estimator=model, seed=run)
            world = fo.World.poisson(pages, seed=1000 * seed + run)
            found[run] = freshness(learner.run(world, guess, BATCHES * length).rates[-1])
        text = f"`AdaptiveRates` with {name}, one clock for all pages"
        if expected is None:
            text = f"{text}: share of runs that have lost a page by batch 20"
            yield share("Sec 5", text, found < LOST, 0.0, 0.5, said="0 to 0.5 (not told)")
        else:
            text, said = f"{text}: freshness of the rates of batch 20", f"≥ {expected - 0.01:.5g} (prototype)"
            yield within("Sec 5", text, found, expected - 0.01, said=said)


def statements(seed: int, runs: int, *, likelihood: bool) -> Iterator[Statement]:
    """Decide what is said of section 5; likelihood, the slowest, on request."""

    def blocks(run: Callable[[np.random.Generator, int], Array]) -> Array:
        """Return runs in blocks that fit into memory, each with random numbers of its own."""
        sizes = [min(100, runs - start) for start in range(0, runs, 100)]
        return np.vstack([run(np.random.default_rng([seed, 5, k]), size) for k, size in enumerate(sizes)])

    yield from optimum()
    found = {name: blocks(partial(adaptive, learner=learner)) for name, learner in ONLINE.items()}
    # The prototype's are means of some dozens of runs, whose standard error is about 0.01 for LLN and MLE.
    for name, expected in (("LLN", 41.163), ("SA", 41.170), ("SAM", 41.170)):
        text = f"{name} carried on: freshness after batch 20"
        yield equals("Sec 5", text, expected, found[name][:, -1], 0.01)
    for name, learner in ONLINE.items():
        anew = blocks(partial(adaptive, learner=learner, restart=True))[:, BATCHES // 2 :]
        text = f"{name} learning anew in each batch stalls: freshness, mean of batches 11 to 20"
        yield within("Sec 5", text, anew.mean(axis=1), 40.8, 41.0)
    for name in ("SA", "SAM"):
        for batch in (1, 5, BATCHES):
            text = f"{name} carried on is closer to the optimum than LLN after batch {batch}"
            yield below("Fig 6", text, found["LLN"][:, batch - 1], found[name][:, batch - 1])
    gentle = blocks(partial(adaptive, learner=LawOfLargeNumbers))
    text = (
        "LLN carried on is closer to the optimum after batch 20 with α = ln(k+1) than with the paper's α = 1"
    )
    yield below("Sec 5", text, found["LLN"][:, -1], gentle[:, -1])
    text = "LLN carried on, α = 1: share of runs that have lost a page by batch 20 (freshness below 41.1)"
    yield share("Sec 5", text, found["LLN"][:, -1] < LOST, 0.05, 0.2, said="0.05 to 0.2 (not told)")
    for name, last in (("SA", found["SA"]), ("SAM", found["SAM"]), ("LLN, α = ln(k+1),", gentle)):
        text = f"{name} carried on: no page is lost by batch 20 (freshness below 41.1)"
        yield always("Sec 5", text, last[:, -1] >= LOST, said="always (not told)")
    yield from one_clock(seed, max(2, runs // 20))
    if likelihood:
        last = blocks(adaptive_likelihood)[:, -1]
        yield equals("Sec 5", "smoothed MLE of all crawls: freshness after batch 20", 41.165, last, 0.01)

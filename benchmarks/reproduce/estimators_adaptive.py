"""Learning change rates and refreshing by them in turns: section 5 of the estimators' paper.

50 pages, 7 of which change 55 times as often and count twice. After every 50 crawls of each page its change
rate is estimated anew and the refresh rates are solved anew, the first being uniform. Independent runs are
independent sources of one log, and hosts of one problem whose limits are the runs' budgets: all runs are
estimated and solved at once.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import freshopt as fo
from benchmarks.reproduce.claims import Measured, Measurements, Plan
from benchmarks.reproduce.estimator_runs import Array
from freshopt.estimators import (
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentumStochasticApproximation,
    StochasticApproximation,
)
from freshopt.modelling.objective import Refresh
from freshopt.online import AdaptiveRates
from freshopt.problems import BinaryFreshness
from freshopt.solvers import WaterFilling
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

FAST, SLOW, BUDGET = 7, 43, 5.0
CHANGE_RATE = np.repeat([4.5 / FAST, 0.5 / SLOW], [FAST, SLOW])
IMPORTANCE = np.repeat([2.0, 1.0], [FAST, SLOW])
LOST = 41.1  # freshness: a fast page that is lost costs 0.17, all other errors together 0.03
PAGES, BATCH, BATCHES = FAST + SLOW, 50, 20
INITIAL = 5  # batches in which Figure 6 has SA and SAM ahead "at least initially"
FLOOR = 1e-3  # of rates: no page is abandoned
BLOCK = 100  # runs that are learnt and solved at once
measure = Measurements()

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
    return fo.solve(fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources(CHANGE_RATE, IMPORTANCE), BUDGET))


def solved(estimates: Array) -> Array:
    """Return the rates that are best for estimates, each run, shape (runs, pages), for itself."""
    runs = len(estimates)
    run = np.repeat(np.arange(runs), PAGES)
    sources = fo.Sources(estimates.ravel(), np.tile(IMPORTANCE, runs), host=run, min_rate=FLOOR)
    # More bandwidth than the hosts may use together: each run spends its own budget at its own price.
    problem = fo.Problem(
        BinaryFreshness(Refresh.POISSON), sources, 2 * BUDGET * runs, dict.fromkeys(range(runs), BUDGET)
    )
    return np.asarray(fo.solve(problem, WaterFilling()).rates).reshape(runs, PAGES)


def crawled(rng: np.random.Generator, rates: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return gaps and outcomes of a batch of crawls of each page, shape (runs·pages, crawls)."""
    gaps = rng.exponential(1.0, (rates.size, BATCH)) / rates.reshape(-1, 1)
    change_rate = np.tile(CHANGE_RATE, len(rates))[:, None]
    return gaps, found_changes(rng, change_rate, gaps)


def adaptive_rates(rng: np.random.Generator, runs: int, learner: Learner, *, restart: bool = False) -> Array:
    """Return the refresh rates after each batch, shape (runs, batches, pages).

    With `restart` each batch is learnt from alone; otherwise what was learnt is carried on, the crawls of
    each batch counting with the rates at which they were made.
    """
    rates, model = np.full((runs, PAGES), BUDGET / PAGES), learner()
    found = np.empty((runs, BATCHES, PAGES))
    for batch in range(BATCHES):
        log = log_of_gaps(*crawled(rng, rates))
        learn = model.fit if restart or batch == 0 else model.partial_fit
        rates = solved(learn(log, crawl_rate=rates.ravel()).change_rate_.reshape(runs, PAGES))
        found[:, batch] = rates
    return found


def likelihood_rates(rng: np.random.Generator, runs: int) -> Array:
    """Return the same with smoothed maximum likelihood of all crawls so far."""
    rates = np.full((runs, PAGES), BUDGET / PAGES)
    seen: list[tuple[Array, npt.NDArray[np.bool_]]] = []
    found = np.empty((runs, BATCHES, PAGES))
    for batch in range(BATCHES):
        seen.append(crawled(rng, rates))
        gaps, changed = (np.hstack(columns) for columns in zip(*seen, strict=True))
        rates = solved(
            MaximumLikelihood(smoothing=0.5).fit(log_of_gaps(gaps, changed)).change_rate_.reshape(runs, PAGES)
        )
        found[:, batch] = rates
    return found


def closed_form() -> Array:
    """Return the optimal rates √(wΔ/λ) − Δ, which use up the budget and are all positive here."""
    roots = np.sqrt(IMPORTANCE * CHANGE_RATE)
    return np.asarray(roots * (BUDGET + CHANGE_RATE.sum()) / roots.sum() - CHANGE_RATE)


def regained(rates: Array) -> Array:
    """Return which share of the freshness that uniform rates lose to the optimum rates have."""
    uniform = freshness(np.full(PAGES, BUDGET / PAGES))
    return np.asarray((freshness(rates) - uniform) / (freshness(closed_form()) - uniform))


def strayed(rates: Array) -> Array:
    """Return how far a fast and a slow page's rates, Figure 6's, are from their optimum, relatively.

    The mean of both pages over the first batches; rates have shape (runs, batches, pages).
    """
    both, best_rates = [0, FAST], closed_form()
    return np.asarray(np.mean(np.abs(rates[:, :INITIAL, both] / best_rates[both] - 1), axis=(1, 2)))


def blocks(plan: Plan, runs: int, run: Callable[[np.random.Generator, int], Array]) -> Array:
    """Return runs in blocks that fit into memory, each with random numbers of its own."""
    sizes = [min(BLOCK, runs - start) for start in range(0, runs, BLOCK)]
    return np.concatenate(
        [run(np.random.default_rng([plan.seed, 5, k]), size) for k, size in enumerate(sizes)]
    )


def learning(learners: dict[str, Learner], plan: Plan, *, restart: bool = False) -> dict[str, Array]:
    """Return the refresh rates of some learners, each on the same random numbers."""
    runs = plan.runs()
    return {
        name: blocks(plan, runs, partial(adaptive_rates, learner=each, restart=restart))
        for name, each in learners.items()
    }


@measure.of("optimum", quick=1)
def optimum(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Compare the solver's optimum with its closed form."""
    yield "optimum", [abs(best().value / freshness(closed_form()) - 1)]


CARRIED = ("carried-on-lln", "carried-on-sa", "carried-on-sam")


@measure.of(*CARRIED, "fig-6-sa", "fig-6-sam", "lost-alpha-1", "lost-others", quick=6)
def carried_on(plan: Plan) -> Measured:
    """Learn on from batch to batch."""
    found = learning({**ONLINE, "ln": lambda: LawOfLargeNumbers(alpha=math.log1p)}, plan)
    for claim, rates in zip(CARRIED, found.values(), strict=False):
        yield claim, regained(rates[:, -1])
    far = {name: strayed(rates) for name, rates in found.items()}
    yield "fig-6-sa", far["SA"] - far["LLN"]
    yield "fig-6-sam", far["SAM"] - far["LLN"]
    kept = {name: freshness(rates[:, -1]) >= LOST for name, rates in found.items()}
    yield "lost-alpha-1", kept["LLN"]
    yield "lost-others", kept["SA"] & kept["SAM"] & kept["ln"]


@measure.of("anew", "fig-6-sa-anew", "fig-6-sam-anew")
def learnt_anew(plan: Plan) -> Measured:
    """Learn from each batch alone."""
    found = learning(ONLINE, plan, restart=True)
    yield "anew", np.max([regained(rates[:, -1]) for rates in found.values()], axis=0)
    far = {name: strayed(rates) for name, rates in found.items()}
    yield "fig-6-sa-anew", far["SA"] - far["LLN"]
    yield "fig-6-sam-anew", far["SAM"] - far["LLN"]


@measure.of("carried-on-mle")
def all_crawls(plan: Plan) -> Measured:
    """Learn by smoothed maximum likelihood from all crawls so far."""
    last = blocks(plan, plan.runs(), lambda rng, runs: likelihood_rates(rng, runs)[:, -1])
    yield "carried-on-mle", regained(last)


CLOCKED = {
    "adaptive-rates-lln": LawOfLargeNumbers(alpha=1.0),
    "adaptive-rates-sa": StochasticApproximation(step=0.75),
    "adaptive-rates-mle": MaximumLikelihood(smoothing=0.5),
    "adaptive-rates-default": LawOfLargeNumbers(),
}


@measure.of(*CLOCKED)
def one_clock(plan: Plan) -> Measured:
    """Run `AdaptiveRates`, in batches as long as 50 crawls of each page at equal rates."""
    pages = fo.Sources(CHANGE_RATE, IMPORTANCE)
    guess = fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources(1.0, IMPORTANCE), BUDGET)
    length = BATCH * PAGES / BUDGET
    for claim, model in CLOCKED.items():
        rates = np.empty((plan.runs(claim), PAGES))
        for run in range(len(rates)):
            learner = AdaptiveRates(batch=length, estimator=model, seed=1000 * plan.seed + run)
            world = fo.World.poisson(pages, seed=1000 * plan.seed + run)
            rates[run] = learner.run(world, guess, BATCHES * length).rates[-1]
        yield claim, regained(rates)

"""Propositions of LambdaCrawl on random instances: `optima`, `time_averages`, `learnt`, by claim."""

from __future__ import annotations

import numpy as np

import freshopt as fo
from benchmarks.reproduce.lambdacrawl_figures import HARMONIC, stand_in
from freshopt.estimators import MaximumLikelihood
from freshopt.online import LambdaLearnAndCrawl, price_bracket
from freshopt.simulation import missed_costs
from freshopt.solvers import LambdaCrawl, LambdaCrawlApprox
from freshopt.solvers.lambda_crawl import price_bracket as published_bracket

SMOOTHED = MaximumLikelihood(smoothing=0.5)
# Agreement of what is computed by two ways, and of a cost with its lower bound.
CLOSE = 1e-9
# Rates follow from the price, whose own tolerance the square root of Eq 5 enlarges.
CLOSE_RATES = 1e-6
# Other policies that an optimum is compared with.
OTHERS = 50


def optima(rng: np.random.Generator) -> dict[str, bool]:
    """Return what Propositions 2 to 7 and 9 say of one random instance."""
    n = int(rng.integers(2, 60))
    d, w = 10 ** rng.uniform(-2, 1, n), 10 ** rng.uniform(-1, 2, n)
    bandwidth = float(d.sum() * 10 ** rng.uniform(-2, 0.5))
    found = _silent(rng, d, w, bandwidth) | _signalled(rng, d, w, bandwidth) | _mixed(d, w, bandwidth)
    return found | {"algorithms": found["alg1"] and found["alg2"] and found["alg3"]}


def _silent(rng: np.random.Generator, d: np.ndarray, w: np.ndarray, bandwidth: float) -> dict[str, bool]:
    problem = fo.Problem(HARMONIC, fo.Sources(d, w), bandwidth)
    published, best = fo.solve(problem, LambdaCrawl(), tolerance=CLOSE), fo.solve(problem)
    low, high = np.exp(published_bracket(w, d, bandwidth))
    narrow = price_bracket(problem)
    printed = 0.5 * (np.sqrt(d**2 + 4.0 * w * d / best.price) - d)
    # Half of the other policies are near the optimum, half are anywhere.
    scale = np.where(np.arange(OTHERS) % 2, 0.01, 1.0)[:, None]
    other = published.rates * np.exp(scale * rng.normal(size=(OTHERS, len(d))))
    other *= bandwidth / other.sum(axis=1, keepdims=True)
    cost = w @ np.log1p(d / published.rates)
    inside = low * (1 - CLOSE) <= best.price <= high * (1 + CLOSE)
    own = low * (1 - CLOSE) <= narrow[0] <= best.price * (1 + CLOSE) and best.price <= narrow[1] * (1 + CLOSE)
    return {
        "eq5": bool(np.max(np.abs(printed / published.rates - 1.0)) <= CLOSE_RATES),
        "incompl-obs-optimal": bool(np.all(np.log1p(d / other) @ w >= cost * (1.0 - CLOSE))),
        "never-starves": bool(np.all(published.rates > 0.0)),
        "bracket": bool(inside),
        "narrower-bracket": bool(own and narrow[1] <= high * (1 + CLOSE)),
        "alg1": published.certificate.relative_gap <= CLOSE,
    }


def _signalled(rng: np.random.Generator, d: np.ndarray, w: np.ndarray, bandwidth: float) -> dict[str, bool]:
    sources = fo.Sources(d, w, signalled=True)
    limit = min(bandwidth, 0.9 * d.sum())
    best = fo.solve(fo.Problem(HARMONIC, sources, limit), LambdaCrawl())
    chance = best.rates / d
    # Probabilities of other policies: mixtures with that of equal probabilities keep to bandwidth and caps.
    mixed = rng.uniform(0.001, 1.0, (OTHERS, 1))
    other = (1.0 - mixed) * chance + mixed * (limit / d.sum())
    # So little bandwidth that no probability exceeds 1.
    free = 0.9 * float(np.min(d / w) * w.sum())
    relaxed = fo.solve(fo.Problem(HARMONIC, sources, free)).rates
    return {
        "prop5": bool(np.max(np.abs(relaxed / (free * w / w.sum()) - 1.0)) <= CLOSE),
        "compl-obs-optimal": bool(np.all(-np.log(other) @ w >= -(w @ np.log(chance)) * (1.0 - CLOSE))),
        "alg2": best.certificate.relative_gap <= CLOSE,
    }


def _mixed(d: np.ndarray, w: np.ndarray, bandwidth: float) -> dict[str, bool]:
    sources = fo.Sources(d, w, signalled=np.arange(len(d)) % 2 == 0)
    problem = fo.Problem(HARMONIC, sources, bandwidth)
    split, one = fo.solve(problem, LambdaCrawl(), tolerance=CLOSE), fo.solve(problem)
    apart = abs(split.value - one.value) / (one.value + one.price * bandwidth)
    even = fo.Problem(HARMONIC, fo.Sources(w / 3.0, w), bandwidth)
    rates = fo.solve(even, LambdaCrawlApprox()).rates
    return {
        "alg3": split.certificate.relative_gap <= CLOSE,
        "one-price": bool(apart <= CLOSE),
        "prop9": bool(
            np.max(np.abs(fo.solve(even).rates / (bandwidth * w / w.sum()) - 1.0)) <= CLOSE
            and np.max(np.abs(rates / (bandwidth * w / w.sum()) - 1.0)) <= CLOSE
        ),
    }


def time_averages(seed: int, run: int) -> dict[str, float]:
    """Return simulated costs over time, divided by those of Propositions 1 and 4."""
    horizon, n = 400.0, 200
    rng = np.random.default_rng([seed, 2, run])
    d = np.exp(rng.normal(-1.0, 1.0, n))
    world = fo.World.poisson(fo.Sources(d), seed=seed + run)
    rates = d * np.exp(rng.normal(0.0, 1.0, n))
    source = np.repeat(np.arange(n), rng.poisson(rates * horizon))
    quiet = over_time(world, source, rng.uniform(0.0, horizon, len(source)), horizon)
    chance = rng.uniform(0.1, 1.0, n)
    offsets, times = world.events(0.0, horizon)
    origin = np.repeat(np.arange(n), np.diff(offsets))
    followed = rng.random(len(times)) < chance[origin]
    heard = over_time(world, origin[followed], times[followed], horizon)
    return {
        "prop1-harmonic": quiet[0] / float(np.log1p(d / rates).sum()),
        "prop1-binary": quiet[1] / float((d / (d + rates)).sum()),
        "prop4-harmonic": heard[0] / float(-np.log(chance).sum()),
        "prop4-binary": heard[1] / float((1.0 - chance).sum()),
    }


def over_time(world: fo.World, source: np.ndarray, time: np.ndarray, horizon: float) -> tuple[float, float]:
    """Return harmonic and binary cost per time of the last three quarters: copies begin fresh."""
    whole = missed_costs(world, source, time, horizon)
    first = missed_costs(world, source, time, horizon / 4)
    span = 0.75 * horizon
    return (
        float((whole.harmonic - first.harmonic).sum()) / span,
        float((whole.stale - first.stale).sum()) / span,
    )


def learnt(seed: int, run: int) -> tuple[float, float]:
    """Return LLC's loss after 64 epochs of 50 days, and as a share of that after 4 epochs."""
    sources = stand_in(np.random.default_rng([seed, 8, run]), 100)
    told = fo.Sources(1.0, sources.importance, signalled=sources.signalled)
    history = LambdaLearnAndCrawl(epoch=50.0, estimator=SMOOTHED, seed=run).run(
        fo.World.poisson(sources, seed=seed + run), fo.Problem(HARMONIC, told, 20.0), 3200.0
    )
    relative = history.shortfall / history.best
    return float(relative[-1]), float(relative[-1] / relative[4])

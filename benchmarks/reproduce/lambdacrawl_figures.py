"""Figures 1 and 2 of LambdaCrawl on any sources, and its propositions on random instances, by claim.

The stand-ins of the paper's data are drawn here too. Costs are per source and day, by Propositions 1 and 4
and their binary counterparts; the bandwidth is a fifth of the number of sources a day, as in the paper.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import freshopt as fo
from freshopt.estimators import MaximumLikelihood
from freshopt.modelling.objective import Refresh
from freshopt.online import LambdaLearnAndCrawl, price_bracket
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.simulation import missed_costs
from freshopt.solvers import LambdaCrawl, LambdaCrawlApprox
from freshopt.solvers.binary_lambda_crawl import share_above
from freshopt.solvers.lambda_crawl import price_bracket as published_bracket

HARMONIC, BINARY = HarmonicStaleness(Refresh.POISSON), BinaryFreshness(Refresh.POISSON)
# Crawls per source and day, section 7.
BANDWIDTH = 0.2
# The share of sources that announce their changes, section 7.
SIGNALLED = 0.04
# The least rate of BLC with a floor, as a share of the mean rate: the paper's text does not give its own.
FLOOR = 0.4
FLOORS = (0.05, 0.1, 0.2, 0.4, 0.8)
# Mean and spread of the logarithm of change rates, mean importance: from the paper's costs of CC and UC.
LOG_RATE, SPREAD, IMPORTANCE = -1.2479, 2.0138, 1134.4
# What the second stand-in changes, fitted to LC's 35 % and to its cost of 300 to 500 on the axis of Fig 3.
HEAVY_SPREAD, HEAVY_SIGNALLED = 2.35, 9.0

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs per source of a policy, J_h and J_b."""

    harmonic: float
    binary: float


def stand_in(rng: np.random.Generator, n: int, share: float = SIGNALLED) -> fo.Sources:
    """Return sources that meet the paper's costs of CC and of UC."""
    importance = np.maximum(np.round(IMPORTANCE * np.exp(rng.normal(size=n) - 0.5)), 1.0)
    return fo.Sources(_change_rates(rng, n), importance, signalled=_some(rng, n, share))


def heavy_tailed(rng: np.random.Generator, n: int) -> fo.Sources:
    """Return sources whose importance has a heavier tail, and is larger with signals."""
    signalled = _some(rng, n, SIGNALLED)
    importance = np.exp(HEAVY_SPREAD * rng.normal(size=n)) * np.where(signalled, HEAVY_SIGNALLED, 1.0)
    importance *= IMPORTANCE / importance.mean()
    return fo.Sources(_change_rates(rng, n), importance, signalled=signalled)


def _change_rates(rng: np.random.Generator, n: int) -> Array:
    return np.clip(np.exp(LOG_RATE + SPREAD * rng.normal(size=n)), 5e-4, 7.0)


def _some(rng: np.random.Generator, n: int, share: float) -> npt.NDArray[np.bool_]:
    flags = np.zeros(n, dtype=np.bool_)
    flags[rng.permutation(n)[: round(share * n)]] = True
    return flags


def deaf(sources: fo.Sources) -> fo.Sources:
    """Return the sources as one sees them who does not listen to signals."""
    return fo.Sources(sources.change_rate, sources.importance)


def costs(sources: fo.Sources, rates: Array) -> Costs:
    """Return both costs of rates; signals are followed with probability rate / change rate."""
    d, w, heard = sources.change_rate, sources.importance, sources.signalled
    with np.errstate(divide="ignore"):
        chance = np.minimum(rates / d, 1.0)
        harmonic = np.where(heard, -np.log(chance), np.log1p(d / rates))
    binary = np.where(heard, 1.0 - chance, d / (d + rates))
    return Costs(float(w @ harmonic) / len(d), float(w @ binary) / len(d))


def blc(sources: fo.Sources, floor: float = 0.0) -> Array:
    """Return the rates of BLC with a floor, a share of the mean rate, without certifying them."""
    n = len(sources)
    lower = np.full(n, floor * BANDWIDTH)
    return share_above(sources.importance, sources.change_rate, lower, BANDWIDTH * n)[0]


@dataclass(frozen=True, slots=True)
class Policies:
    """What the policies of Figure 1 cost on some sources, by name.

    "least J_b" uses signals for the binary cost; `starved` is the share of sources that BLC never crawls,
    `share` that of LC's bandwidth which signalled sources have over their share of the sources, `gap` LC's
    relative duality gap.
    """

    costs: dict[str, Costs]
    starved: float
    share: float
    gap: float


def policies(sources: fo.Sources) -> Policies:
    """Return the costs of every policy of Figure 1."""
    n, silent, heard = len(sources), deaf(sources), sources.signalled
    told = fo.Problem(HARMONIC, sources, BANDWIDTH * n)
    best, starving = fo.solve(told), blc(silent)
    found = {
        "LC": costs(sources, best.rates),
        "LCA": costs(sources, fo.solve(told, LambdaCrawlApprox()).rates),
        "BLC": costs(silent, starving),
        "BLCε": costs(silent, blc(silent, FLOOR)),
        "CC": costs(silent, sources.change_rate * (BANDWIDTH * n / sources.change_rate.sum())),
        "UC": costs(silent, np.full(n, BANDWIDTH)),
        "least J_b": costs(sources, fo.solve(fo.Problem(BINARY, sources, BANDWIDTH * n)).rates),
    }
    share = float(best.rates[heard].sum()) / (BANDWIDTH * n) / (np.count_nonzero(heard) / n)
    return Policies(found, float(np.mean(starving == 0.0)), share, best.certificate.relative_gap)


def figure_1(found: Policies) -> dict[str, float]:
    """Return what each claim on Figure 1 measures."""
    lc, lca, starving, floor, by_rate, equal, least = found.costs.values()
    harmonic = min(equal.harmonic, by_rate.harmonic) / max(lc.harmonic, lca.harmonic, floor.harmonic)
    binary = min(equal.binary, by_rate.binary) / max(lc.binary, lca.binary, starving.binary, floor.binary)
    return {
        "uc-harmonic": equal.harmonic,
        "uc-binary": equal.binary,
        "cc-harmonic": by_rate.harmonic,
        "cc-binary": by_rate.binary,
        "lc-axis": lc.harmonic,
        "lc-beats-floor": 1.0 - lc.harmonic / floor.harmonic,
        "order": max(lc.harmonic / lca.harmonic, lca.harmonic / floor.harmonic),
        "heuristics": min(harmonic, binary),
        "blc-starves": found.starved,
        "blc-not-ahead-lc": lc.binary / starving.binary,
        "floor-not-ahead-lc": lc.binary / floor.binary,
        "none-ahead-lc": lc.binary / min(starving.binary, floor.binary),
        "none-ahead-lca": lca.binary / min(starving.binary, floor.binary),
        "lc-near-binary": lc.binary / least.binary,
        "floor-far-harmonic": floor.harmonic / lc.harmonic,
        "lca-near-lc-binary": lca.binary / lc.binary,
        "signalled-share": found.share,
        "certified": float(found.gap <= 1e-9),
    }


def figure_2(sources: fo.Sources) -> dict[str, float]:
    """Return what each claim on Figure 2 measures: the signalled sources alone."""
    sources = sources.take(np.flatnonzero(sources.signalled))
    n, silent = len(sources), deaf(sources)
    heard = costs(sources, fo.solve(fo.Problem(HARMONIC, sources, BANDWIDTH * n)).rates)
    unheard = costs(silent, fo.solve(fo.Problem(HARMONIC, silent, BANDWIDTH * n)).rates)
    starving, floor = costs(silent, blc(silent)), costs(silent, blc(silent, FLOOR))
    harmonic, binary = heard.harmonic / unheard.harmonic, heard.binary / unheard.binary
    others = heard.harmonic / floor.harmonic, heard.binary / floor.binary, heard.binary / starving.binary
    return {
        "co-io-harmonic": harmonic,
        "co-io-binary": binary,
        "co-others": max(others),
        "co-all": max(harmonic, binary, *others),
        "io-par": unheard.binary / min(starving.binary, floor.binary),
        "io-ahead": unheard.harmonic / floor.harmonic,
    }


def by_floor(sources: fo.Sources) -> list[float]:
    """Return by how much LC's J_h is below that of BLC with each of `FLOORS`."""
    n, silent = len(sources), deaf(sources)
    lc = costs(sources, fo.solve(fo.Problem(HARMONIC, sources, BANDWIDTH * n)).rates)
    floored = [costs(silent, blc(silent, each)) for each in FLOORS]
    return [1.0 - lc.harmonic / each.harmonic for each in floored]


def floors(sources: fo.Sources) -> dict[str, float]:
    """Return by how much LC is ahead of BLC with the smallest floor, and at most with the others."""
    smallest, *others = by_floor(sources)
    return {"floor-small": smallest, "floor-large": max(others)}


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

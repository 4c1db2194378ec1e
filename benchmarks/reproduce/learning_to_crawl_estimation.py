"""Lemmas 3, 5 and 8 and Figures 3-5 of Learning to Crawl: errors of estimates, and their bounds."""

import math
from functools import cache

import numpy as np
from scipy.special import pdtr, pdtrc

import freshopt as fo
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.learning_to_crawl_instances import Array, N
from freshopt.datasets import example_events
from freshopt.estimators import FullObservation, MaximumLikelihood, MomentMatching
from freshopt.simulation import SimulatedCrawler

measure = Measurements()
# Figures 3 and 4: bounds known to the estimator, change rates, crawl rates.
BOUNDS, RATES, CRAWL_RATES = (0.1, 1.0), (0.25, 0.5, 0.75), (0.25, 0.75)
CELLS = [(rate, crawl_rate) for rate in RATES for crawl_rate in CRAWL_RATES]
# Numbers of crawls over which slopes are fitted, sources of a run.
CRAWLS, SOURCES = (50, 200, 800), 500
HISTORIES = ("debian-uploads", "gstreamer-plugins")


def crawled(
    rng: np.random.Generator, rate: float, crawl_rate: float, shape: tuple[int, int], equal: bool
) -> fo.CrawlLog:
    """Return the log of sources crawled at random gaps or at equal ones."""
    gap = np.full(shape, 1.0 / crawl_rate) if equal else rng.exponential(1.0 / crawl_rate, shape)
    changed = rng.random(shape) < -np.expm1(-rate * gap)
    source = np.repeat(np.arange(shape[0]), shape[1])
    return fo.CrawlLog(source, np.cumsum(gap, axis=1).ravel(), changed.ravel(), start=0.0)


@measure.of("lemma-3", quick=12)
def lemma_3(plan: Plan) -> Measured:
    """Measure whether a source's error is within its bound of 90 %; the settings take turns."""
    rng, runs, held = np.random.default_rng([plan.seed, 20]), plan.runs(), []
    share = max(runs // (2 * len(CELLS)), 1)
    for rate, crawl_rate in CELLS:
        for crawls in (20, 80):
            log = crawled(rng, rate, crawl_rate, (share, crawls), equal=False)
            model = MomentMatching(BOUNDS).fit(log)
            held.append(np.abs(model.change_rate_ - rate) <= model.error_bound(0.9))
    yield "lemma-3", np.concatenate(held)[:runs]


def looseness(seed: int, runs: int, *, equal: bool) -> Array:
    """Return bounds of 90 % over root mean square errors, shape (runs, cells, crawls)."""
    rng = np.random.default_rng([seed, 21, equal])
    ratios: list[float] = []
    for _ in range(runs * len(CELLS) * len(CRAWLS)):
        rate, crawl_rate = CELLS[len(ratios) // len(CRAWLS) % len(CELLS)]
        crawls = CRAWLS[len(ratios) % len(CRAWLS)]
        model = MomentMatching(BOUNDS).fit(crawled(rng, rate, crawl_rate, (SOURCES, crawls), equal=equal))
        error = math.sqrt(np.mean((model.change_rate_ - rate) ** 2))
        ratios.append(float(np.mean(model.error_bound(0.9))) / error)
    return np.array(ratios).reshape(runs, len(CELLS), len(CRAWLS))


TIGHT = ("fig-3-tight", "fig-4-tight", "app-j-looser", "app-j-nearer")


@measure.of(*TIGHT)
def tightness(plan: Plan) -> Measured:
    """Measure how the bound over the error moves with N, with ξ and with the kind of gaps."""
    runs, logs = plan.runs(), []
    for name, equal in (("fig-3-tight", False), ("fig-4-tight", True)):
        ratio = np.log(looseness(plan.seed, runs, equal=equal))
        logs.append(ratio)
        each = [np.polyfit(np.log(CRAWLS), run.T, 1)[0].mean() for run in ratio]
        yield name, each
    random, even = logs
    yield "app-j-looser", np.mean(even - random, axis=(1, 2))
    # Cells are ordered by the change rate, two crawl rates each.
    yield "app-j-nearer", np.mean(random[:, :2] - random[:, -2:], axis=(1, 2))


@measure.of("fig-3-estimators")
def estimators(plan: Plan) -> Measured:
    """Measure by how much the errors of the two estimators differ, in the setting where most."""
    rng, worst = np.random.default_rng([plan.seed, 22]), []
    for _ in range(plan.runs()):
        ratios = []
        for rate, crawl_rate in CELLS:
            for crawls in (20, 80):
                log = crawled(rng, rate, crawl_rate, (4 * SOURCES, crawls), equal=False)
                matched = MomentMatching(BOUNDS).fit(log).change_rate_ - rate
                likely = np.clip(MaximumLikelihood(smoothing=0).fit(log).change_rate_, *BOUNDS) - rate
                ratios.append(math.sqrt(np.mean(matched**2) / np.mean(likely**2)))
        worst.append(max(abs(x - 1.0) for x in ratios))
    yield "fig-3-estimators", worst


def radius(sweep: float, sweeps: int, highest: float, number: int, delta: float) -> float:
    """Return the radius of Lemma 5 for as many sources at once."""
    return math.exp(highest * sweep) / sweep * printed_radius(sweeps, number, delta)


def printed_radius(sweeps: int, number: int, delta: float) -> float:
    """Return the radius in the paragraph after Theorem 1; τR/m is the number of sweeps."""
    return math.sqrt(math.log(2.0 * number / delta) / (2.0 * sweeps))


@measure.of("lemma-5", "thm-1-radius", quick=50)
def lemma_5(plan: Plan) -> Listed:
    """Measure whether the errors of all sources are within the two radii of 90 %."""
    rng, sweep, sweeps, delta = np.random.default_rng([plan.seed, 23]), 2.0, 100, 0.1
    proved, printed = [], []
    for _ in range(plan.runs()):
        rates = rng.uniform(*BOUNDS, N)
        found = rng.binomial(sweeps, -np.expm1(-rates * sweep)) / sweeps
        with np.errstate(divide="ignore"):
            error = np.abs(np.clip(-np.log1p(-found) / sweep, *BOUNDS) - rates)
        proved.append(bool(np.all(error <= radius(sweep, sweeps, BOUNDS[1], N, delta))))
        printed.append(bool(np.all(error <= printed_radius(sweeps, N, delta))))
    return proved, printed


@measure.of("thm-1-radius-unit", quick=1)
def units(plan: Plan) -> Measured:
    """Compute the printed radius in hours over that in days: the unit does not enter, τR/m has none."""
    hours, days = (printed_radius(100, N, 0.1) for _ in range(2))
    yield "thm-1-radius-unit", [24.0 * hours / days] * plan.runs()


@cache
def history(name: str) -> tuple[fo.World, tuple[float, float]]:
    """Return a recorded world, and the least and the largest rate of its sources.

    Sources that changed fewer than ten times are left out, as the paper leaves out those that never did.
    """
    events = example_events(name)
    time = events["time"].dt.epoch("ms").to_numpy() / 86_400_000.0
    source = events["source"].to_numpy()
    _, codes, count = np.unique(source, return_inverse=True, return_counts=True)
    kept = count[codes] >= 10
    begin, end = math.floor(time.min()), math.ceil(time.max())
    world = fo.World.from_events(
        {"source": source[kept], "time": time[kept] - begin}, start=0.0, horizon=float(end - begin)
    )
    log = visits(world, np.random.default_rng(0))
    rates = MaximumLikelihood(smoothing=0).fit(log).change_rate_
    return world, (float(rates.min()), float(rates.max()))


def visits(world: fo.World, rng: np.random.Generator) -> fo.CrawlLog:
    """Return the log of crawls at random, every other day on average."""
    n, crawls = len(world), int(world.horizon / 2.0)
    time = np.sort(rng.uniform(0.0, world.horizon, n * crawls))
    source = rng.integers(0, n, n * crawls)
    changed = SimulatedCrawler(world).refresh(source, time)
    return fo.CrawlLog(source, time, changed, start=0.0)


def first_crawls(log: fo.CrawlLog, number: int) -> fo.CrawlLog:
    """Return the log of each source's first crawls."""
    row = np.arange(len(log.time)) - np.repeat(log.offsets[:-1], np.diff(log.offsets))
    source = np.repeat(log.names, np.diff(log.offsets))
    kept = row < number
    return fo.CrawlLog(source[kept], log.time[kept], log.changed[kept], start=0.0)


def real_run(name: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return the slope of errors, what the estimators differ by at most, and the least coverage."""
    world, bounds = history(name)
    log, numbers = visits(world, rng), (40, 80, 160, 320)
    best = np.clip(MaximumLikelihood(smoothing=0).fit(log).change_rate_, *bounds)
    errors, ratios, held = [], [], []
    for number in numbers:
        part = first_crawls(log, number)
        model = MomentMatching(bounds).fit(part)
        likely = np.clip(MaximumLikelihood(smoothing=0).fit(part).change_rate_, *bounds)
        errors.append(math.sqrt(np.mean((model.change_rate_ - best) ** 2)))
        ratios.append(errors[-1] / math.sqrt(np.mean((likely - best) ** 2)))
        held.append(float(np.mean(np.abs(model.change_rate_ - best) <= model.error_bound(0.9))))
    slope = float(np.polyfit(np.log(numbers), np.log(errors), 1)[0])
    return slope, max(abs(x - 1.0) for x in ratios), min(held)


@measure.of("fig-5-falls", "fig-5-estimators", "fig-5-covers")
def figure_5(plan: Plan) -> Listed:
    """Measure errors of the estimates on real histories, against those of all crawls."""
    rows = []
    for run in range(plan.runs()):
        rng = np.random.default_rng([plan.seed, 24, run])
        rows.append([real_run(name, rng) for name in HISTORIES])
    found = np.array(rows)
    return found[:, :, 0].max(axis=1), found[:, :, 1].max(axis=1), found[:, :, 2].min(axis=1)


@measure.of("lemma-8", quick=200)
def lemma_8(plan: Plan) -> Measured:
    """Measure whether a source's error is within its bound of 90 % after counted crawls."""
    rng, runs = np.random.default_rng([plan.seed, 25]), plan.runs()
    rates = rng.uniform(*BOUNDS, runs)
    gap = rng.exponential(2.0, (runs, 20))
    counts = rng.poisson(rates[:, None] * gap)
    log = fo.CrawlLog(
        np.repeat(np.arange(runs), 20),
        np.cumsum(gap, axis=1).ravel(),
        counts.ravel() > 0,
        changes=counts.ravel().astype(float),
        start=0.0,
    )
    model = FullObservation(smoothing=0.0).fit(log)
    yield "lemma-8", np.abs(np.clip(model.change_rate_, *BOUNDS) - rates) <= model.error_bound(BOUNDS, 0.9)


def psi(t: Array) -> Array:
    """Return ψ of Appendix K."""
    return np.asarray(2.0 * ((1.0 + t) * np.log1p(t) - t) / t**2)


@measure.of("app-k-tails", quick=1000)
def tails(plan: Plan) -> Measured:
    """Compute both tails of random Poisson laws, and their bounds."""
    rng, runs = np.random.default_rng([plan.seed, 27]), plan.runs()
    mean = 10.0 ** rng.uniform(-1.0, 3.0, runs)
    away = mean * 10.0 ** rng.uniform(-2.0, 0.0, runs)
    # P(X > x) is that of X > ⌊x⌋, P(X < x) that of X ≤ ⌈x⌉ − 1.
    above, below = pdtrc(np.floor(mean + away), mean), np.ceil(mean - away) - 1.0
    under = np.where(below >= 0.0, pdtr(np.maximum(below, 0.0), mean), 0.0)
    exponent = -(away**2) / (2.0 * mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(away < mean, np.exp(exponent * psi(np.minimum(-away / mean, -1e-9))), 1.0)
    yield "app-k-tails", (above <= np.exp(exponent * psi(away / mean))) & (under <= lower)


@measure.of("app-k-root", quick=1)
def root(plan: Plan) -> Measured:
    """Compute the slope of the bound of Lemma 8 in ξ_max, both logarithmic, ξ_min = 0.1."""
    highest = np.geomspace(1.0, 100.0, 20)
    bound = np.sqrt(highest / psi(highest / 0.1 - 1.0))
    yield "app-k-root", [float(np.polyfit(np.log(highest), np.log(bound), 1)[0])] * plan.runs()

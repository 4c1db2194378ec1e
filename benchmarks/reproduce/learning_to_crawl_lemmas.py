"""Lemmas 1, 2, 4, 6 and 7 and Appendix H of Learning to Crawl, in random instances."""

import math

import numpy as np
from scipy.special import digamma, zeta

import freshopt as fo
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.learning_to_crawl_instances import BINARY, Array, N, equal_gaps, instance
from freshopt.estimators import MaximumLikelihood, MomentMatching
from freshopt.modelling.objective import Refresh
from freshopt.online import sensitivity_bound
from freshopt.problems import AccumulatedDelay, HarmonicStaleness

measure = Measurements()
LEMMAS = {
    "lemma-4": BINARY,
    "lemma-6": HarmonicStaleness(Refresh.POISSON),
    "lemma-7": AccumulatedDelay(Refresh.POISSON),
}
# Of Σw: rounding of an optimum that a solver finds.
ROUNDING = 1e-12


@measure.of("lemma-1-limit", "lemma-1-printed-limit", quick=4)
def lemma_1_limit(plan: Plan) -> Listed:
    """Measure to what freshness settles, by simulation of 4000 sources."""
    n, accuracy, right, printed = 4000, 0.02, [], []
    rng = np.random.default_rng([plan.seed, 1])
    for run in range(plan.runs()):
        change, crawl = float(rng.uniform(0.2, 2.0)), float(rng.uniform(0.2, 2.0))
        world = fo.World.poisson(fo.Sources([change] * n), seed=1000 * plan.seed + run)
        until = math.log(2.0 / accuracy) / change
        count = rng.poisson(crawl * until, n)
        last = np.where(count > 0, until * rng.random(n) ** (1.0 / np.maximum(count, 1)), 0.0)
        offsets, times = world.events(0.0, until)
        newest = np.zeros(n)
        filled = np.diff(offsets) > 0
        newest[filled] = times[offsets[1:][filled] - 1]
        fresh = float(np.mean(last >= newest))  # all are fresh at first
        limit = crawl / (crawl + change)
        right.append(abs(fresh - limit))
        printed.append(abs(fresh - (1.0 - limit)))
    return right, printed


@measure.of("lemma-1-below", "lemma-1-above", quick=1000)
def lemma_1(plan: Plan) -> Listed:
    """Measure whether freshness at the lemma's time is within ε above its limit, and below it."""
    rng, below, above = np.random.default_rng([plan.seed, 2]), [], []
    for _ in range(plan.runs()):
        n = int(rng.integers(1, 21))
        w, change = np.exp(rng.normal(size=n)), 10 ** rng.uniform(-1.0, 1.0, n)
        crawl, fresh = 10 ** rng.uniform(-1.0, 1.0, n), rng.random(n) < 0.5
        accuracy = float(np.sum(w) * 10 ** rng.uniform(-3.0, 0.0))
        until = math.log(2.0 * np.sum(w) / accuracy) / float(np.min(change))
        limit = crawl / (crawl + change)
        # Distance from the limit, of a chain with two states.
        excess = float(np.sum(w * (fresh - limit) * np.exp(-(crawl + change) * until)))
        below.append(excess >= 0.0)
        above.append(excess <= accuracy)
    return below, above


@measure.of("lemma-2-probability", quick=300)
def lemma_2_probability(plan: Plan) -> Measured:
    """Measure whether the least likely record of the proof is as likely as it says."""
    rng, held = np.random.default_rng([plan.seed, 3]), []
    n = np.arange(1, 20_001)
    for _ in range(plan.runs()):
        rate = float(rng.uniform(0.3, 3.0))
        long = rng.uniform(1.1, 3.0) / rate * np.log(n + 1.0)
        long = long[long >= 1.0]
        short = n ** -rng.uniform(1.1, 3.0) * 0.999
        record = -rate * short.sum() + np.log1p(-np.exp(-rate * long)).sum()
        alpha = -math.exp(rate) * math.log1p(-math.exp(-rate))
        bound = -rate * short.sum() - alpha * np.exp(-rate * long).sum()
        held.append(record >= bound * (1.0 + ROUNDING))
    yield "lemma-2-probability", held


def logarithmic_errors(rng: np.random.Generator, rate: float, sizes: tuple[int, ...]) -> Array:
    """Return the root mean square errors of 400 estimates, w_n = ln(n + 1), after as many crawls."""
    intervals = np.log(np.arange(1, sizes[-1] + 1) + 1.0)
    chance = np.exp(-rate * intervals)
    kept = np.array([np.cumsum(rng.random(len(chance)) < chance)[np.array(sizes) - 1] for _ in range(400)])
    grid = np.geomspace(0.1, 10.0, 400)
    errors = []
    for k, size in enumerate(sizes):
        expected = np.array([np.exp(-x * intervals[:size]).sum() for x in grid])
        # Moment matching: the rate at which as many crawls find nothing, clipped to the grid.
        found = np.interp(-kept[:, k], -expected, grid)
        errors.append(math.sqrt(np.mean((found - rate) ** 2)))
    return np.array(errors)


@measure.of("lemma-2-unlearnable", "lemma-2-learnable")
def lemma_2_errors(plan: Plan) -> Listed:
    """Measure whether the error falls where w_n = ln(n + 1), at ξ = 2 and at ξ = 1."""
    rng, sizes = np.random.default_rng([plan.seed, 4]), (1000, 100_000)
    rows: dict[float, list[float]] = {2.0: [], 1.0: []}
    for _ in range(plan.runs()):
        for rate, each in rows.items():
            first, last = logarithmic_errors(rng, rate, sizes)
            each.append(math.log(last / first) / math.log(sizes[1] / sizes[0]))
    return rows[2.0], rows[1.0]


@measure.of("lemma-2-short", quick=20)
def lemma_2_short(plan: Plan) -> Measured:
    """Measure whether groups of short intervals change as often as the lemma says, w_n = n^{-1/2}."""
    rng, rate = np.random.default_rng([plan.seed, 5]), 0.7
    intervals = np.arange(2, 40_001) ** -0.5
    total = np.cumsum(intervals)
    # Sums between 1 and 1 + the first interval, 0.71.
    group = np.floor(total / 1.8).astype(int)
    lengths = np.bincount(group, intervals)[1:-1]
    lengths = lengths[(lengths > 1.0) & (lengths < 2.0)]
    expected, apart = float(np.mean(np.exp(-rate * lengths))), []
    for _ in range(plan.runs()):
        changed = rng.random(len(lengths)) < -np.expm1(-rate * lengths)
        apart.append(float(np.mean(changed)) - (1.0 - expected))
    yield "lemma-2-short", apart


@measure.of("lemma-2-strict", quick=1)
def lemma_2_strict(plan: Plan) -> Measured:
    """Compute how c of ξ = 1.5 and of 1.7 part as groups are added, w_n = ln n, groups made for ξ = 1."""
    edges = [3.0]
    while len(edges) <= 1000:  # Σ 1/n of a group is ln of the quotient of its ends, nearly, hence 1/2
        edges.append(math.ceil(edges[-1] * math.exp(0.5)) if edges[-1] < 1e15 else edges[-1] * math.exp(0.5))
    ends = np.array(edges)
    sums = digamma(ends[1:]) - digamma(ends[:-1])
    inside = np.all((sums >= 1.0 / math.e) & (sums < 2.0 / math.e))
    # ln Π(1 − n^{−ξ}) = −Σ_j Σ_n n^{−jξ}/j, of which 40 terms are all that float64 holds.
    parts = {
        rate: np.exp(-sum((zeta(j * rate, ends[:-1]) - zeta(j * rate, ends[1:])) / j for j in range(1, 41)))
        for rate in (1.5, 1.7)
    }
    groups = np.array([10, 100, 1000])
    gap = np.array([np.mean(parts[1.7][:k]) - np.mean(parts[1.5][:k]) for k in groups])
    slope = float(np.polyfit(np.log(groups), np.log(gap), 1)[0]) if inside else math.nan
    yield "lemma-2-strict", [slope] * plan.runs()


def losses(plan: Plan, lemma: str, runs: int) -> tuple[Array, Array]:
    """Return losses of random instances, less what rounding explains, and the bounds of a lemma."""
    rng, rows = np.random.default_rng([plan.seed, 6, int(lemma[-1])]), []
    drawn, objective = [], LEMMAS[lemma]
    for _ in range(runs):
        n = int(rng.integers(2, 21))
        w, true = np.exp(rng.normal(size=n)), 10 ** rng.uniform(-1.0, 1.0, n)
        guess = true * np.exp(rng.normal(size=n) * 10 ** rng.uniform(-3.0, 0.2))
        bandwidth = n * float(10 ** rng.uniform(-1.5, 1.0))
        drawn += [fo.Problem(objective, fo.Sources(x, w), bandwidth) for x in (true, guess)]
    solved = fo.solve_many(drawn)
    for k in range(0, len(drawn), 2):
        problem, rates = drawn[k], solved[k + 1].rates
        if (numerics := problem.numerics) is None:
            raise ValueError(f"{objective!r} has no numerics")
        costs = numerics.cost(rates), numerics.cost(solved[k].rates)
        rounding = ROUNDING * float(np.sum(costs[0]))
        guess, true = drawn[k + 1].sources.change_rate, problem.sources.change_rate
        lost = float(np.sum(costs[0] - costs[1])) - rounding
        rows.append((lost, sensitivity_bound(problem, guess, true)))
    return np.array(rows)[:, 0], np.array(rows)[:, 1]


@measure.of("lemma-4", quick=50)
def lemma_4(plan: Plan) -> Measured:
    """Measure whether losses of binary freshness obey the lemma."""
    lost, bound = losses(plan, "lemma-4", plan.runs())
    yield "lemma-4", lost <= bound


@measure.of("lemma-6-corrected", "lemma-6-printed", quick=50)
def lemma_6(plan: Plan) -> Listed:
    """Measure whether losses of harmonic staleness obey the lemma with and without its factor of 2."""
    lost, bound = losses(plan, "lemma-6", plan.runs())
    return lost <= bound, lost <= 0.5 * bound


@measure.of("lemma-6-last-line", quick=1)
def lemma_6_last_line(plan: Plan) -> Measured:
    """Compute the last line of the proof over the line before it."""
    slowest, bandwidth = 0.3, 2.0
    curvature = slowest / ((slowest + bandwidth) * bandwidth**2)
    before = 2.0 / (curvature * slowest**4)
    printed = (slowest + bandwidth) * bandwidth**2 / slowest**5
    yield "lemma-6-last-line", [printed / before] * plan.runs()


@measure.of("lemma-7", quick=50)
def lemma_7(plan: Plan) -> Measured:
    """Measure whether losses of accumulated delay obey the lemma."""
    lost, bound = losses(plan, "lemma-7", plan.runs())
    yield "lemma-7", lost <= bound


@measure.of("app-h-equal-rates", "app-h-best-rates", quick=100)
def app_h(plan: Plan) -> Listed:
    """Measure how equal gaps do against equal Poisson rates and against the best ones."""
    rng, worse, leads = np.random.default_rng([plan.seed, 7]), [], []
    for _ in range(plan.runs()):
        any_problem = instance(rng, 10 ** rng.uniform(0.0, 3.0), rng.uniform(0.0, 2.0))
        x = any_problem.sources.change_rate * N / any_problem.bandwidth
        even = float(any_problem.sources.importance @ (1.0 / (1.0 + x)))
        worse.append(equal_gaps(any_problem) >= even)
        problem = instance(rng, 100.0, 0.5)
        lead = equal_gaps(problem) - fo.solve(problem, certify=False).value
        leads.append(lead / float(problem.sources.importance.sum()))
    return worse, leads


@measure.of("equal-gaps-estimators", quick=2)
def equal_gap_estimators(plan: Plan) -> Measured:
    """Measure whether moment matching is maximum likelihood where gaps are equal."""
    rng, same = np.random.default_rng([plan.seed, 9]), []
    for _ in range(plan.runs()):
        sources, crawls, gap = 500, 40, float(rng.uniform(0.3, 4.0))
        rates = rng.uniform(0.1, 1.0, sources)
        changed = rng.random((sources, crawls)) < -np.expm1(-gap * rates)[:, None]
        time = np.tile(gap * np.arange(1, crawls + 1), sources)
        log = fo.CrawlLog(np.repeat(np.arange(sources), crawls), time, changed.ravel(), start=0.0)
        likely = np.clip(MaximumLikelihood(smoothing=0).fit(log).change_rate_, 0.01, 20.0)
        matched = MomentMatching((0.01, 20.0)).fit(log).change_rate_
        same.append(bool(np.allclose(likely, matched, rtol=1e-9)))
    yield "equal-gaps-estimators", same

"""`learnt_changes`: the shape of change that a log shows.

The stale share c(u) of a stationary process is concave, and so a mixture of ramps min(u/τ, 1), each that of
regular changes τ mean gaps apart. A crawl a gap g after the last one finds a change with the probability
E c(Δg), over the posterior of Δ from earlier crawls alone: later ones teach the mixture by the EM algorithm
(Turnbull, JRSS B 38, 1976, doi:10.1111/j.2517-6161.1976.tb01597.x), concave in the weights. Prior weights are
those of a Poisson process and count as `PRIOR` crawls, so that a short log changes little.

Evidence is out of sample: half of the sources teach a shape, the other half tells its likelihood against the
Poisson process, and the other way round. The interval is that of samples of the sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from freshopt.errors import ObjectiveError, SourceDataError, warn
from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.modelling.curves.change_shape import ChangeShape
from freshopt.modelling.objective import Objective
from freshopt.numerics.arrays import Array, IntArray
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness

# Gaps of the ramps: 6 an octave, between which a polygon is within .2 % of 1 − e^{−u}.
GAPS = np.geomspace(2.0**-6, 2.0**5, 67)
# Crawls that the Poisson process counts as, those that teach, and the share of them that comes later.
PRIOR, MOST_CRAWLS, LATER, FEWEST = 50.0, 20_000, 1.0 / 3.0, 100
# Nats from which on evidence is strong: a likelihood ratio of 20, as Jeffreys has it.
STRONG = 3.0
# Rounds of EM, and samples of the sources for the interval, each with rounds from what all of them tell.
ROUNDS, SAMPLES, MORE = 100, 30, 30


def learnt_changes(log: CrawlLog, fit: Callable[[CrawlLog], Estimator], seed: int = 0) -> ChangeShape:
    """Return the shape of change that later crawls show.

    `fit` estimates change rates from the earlier ones.

    - raises SourceDataError if fewer than 100 of the later crawls tell of a gap.
    """
    source, likelihood = _teaching(log, fit, seed)
    _, code = np.unique(source, return_inverse=True)
    rng = np.random.default_rng([seed, 38])
    half = rng.permutation(int(np.max(code)) + 1)[code] % 2 == 0
    ones = np.ones(len(code))
    evidence = 0.0
    for own in (half, ~half):
        if np.any(own) and np.any(~own):
            mixed = _mixture(likelihood, ones * own)
            evidence += float(np.sum(np.log(likelihood[~own] @ mixed)))
            evidence -= float(np.sum(np.log(likelihood[~own] @ _poisson())))
    best, n, drawn = _mixture(likelihood, ones), int(np.max(code)) + 1, []
    for _ in range(SAMPLES):
        often = rng.multinomial(n, np.full(n, 1.0 / n))[code].astype(np.float64)
        drawn.append(_shares(_mixture(likelihood, often, best)))
    low, high = np.quantile(drawn, (0.05, 0.95), axis=0)
    return ChangeShape(np.append(0.0, GAPS), _shares(best), evidence, low, high)


def with_learnt_changes(
    objective: Objective, log: CrawlLog, fit: Callable[[CrawlLog], Estimator]
) -> Objective:
    """Return an objective under the change model that a log teaches.

    It is the objective itself, of a Poisson process, unless the evidence is for another. Delay is the same
    under any stationary process.
    """
    if type(objective) is AccumulatedDelay:
        warn(
            "change_model: of any process a time s brings Δs changes in expectation, and delay counts them: "
            "the plan is the same, and nothing was learnt."
        )
        return objective
    if type(objective) not in (BinaryFreshness, Age):
        raise ObjectiveError(
            f"a learnt change model is for 'binary' and 'age' (and 'delay', which needs none): what "
            f"{type(objective).__name__} counts, changed and unchanged crawls do not tell. Pass one of "
            "these as objective, or leave change_model out."
        )
    found = learnt_changes(log, fit)
    assert isinstance(objective, BinaryFreshness | Age)
    if not found.evidence > STRONG:
        warn(
            f"change_model: the log has no strong evidence against a Poisson process ({found.evidence:.1f} "
            f"nats, {STRONG:g} asked for), which is planned for."
        )
        return objective
    return replace(objective, changes=found)


def _teaching(log: CrawlLog, fit: Callable[[CrawlLog], Estimator], seed: int) -> tuple[IntArray, Array]:
    """Return the sources of later crawls, and their likelihoods, shape (m, ramps)."""
    split = float(np.quantile(log.time, 1.0 - LATER))
    early = log.time <= split
    kept = np.unique(log.source_index[early & ~np.isnan(log.interval)])
    rows = np.flatnonzero(~early & ~np.isnan(log.interval) & np.isin(log.source_index, kept))
    rows = rows[log.interval[rows] > 0.0]
    if len(rows) < FEWEST:
        raise SourceDataError(
            f"{len(rows)} crawls of the last third of the log tell of a gap, too few to learn how sources "
            f"change ({FEWEST} at least). Leave change_model out."
        )
    if len(rows) > MOST_CRAWLS:
        rows = np.sort(np.random.default_rng([seed, 39]).choice(rows, MOST_CRAWLS, replace=False))
    past = early & np.isin(log.source_index, kept)
    columns = {
        "source": np.searchsorted(kept, log.source_index[past]),
        "time": log.time[past],
        "elapsed": log.interval[past],
        "changed": log.changed[past],
    }
    columns |= {key: getattr(log, key)[past] for key in OPTIONAL if getattr(log, key) is not None}
    estimate = fit(derived_log(columns, log.names[kept], log.clock))
    nodes, weights = estimate.nodes()
    blank = ~np.isfinite(nodes)
    nodes = np.where(blank, estimate.change_rate_[:, None], nodes)
    weights = np.where(np.isnan(weights), 1.0 / weights.shape[1], weights)
    own = np.searchsorted(kept, log.source_index[rows])
    found = np.zeros((len(rows), len(GAPS)))
    for node, weight in zip(nodes[own].T, weights[own].T, strict=True):
        found += weight[:, None] * np.minimum((node * log.interval[rows])[:, None] / GAPS, 1.0)
    changed = np.asarray(log.changed[rows], dtype=np.bool_)
    return own, np.clip(np.where(changed[:, None], found, 1.0 - found), 1e-12, 1.0)


def _poisson() -> Array:
    """Return the weights of ramps that make 1 − e^{−u}."""
    shares = -np.expm1(-np.append(0.0, GAPS))
    slopes = np.append(np.diff(shares) / np.diff(np.append(0.0, GAPS)), 0.0)
    weights: Array = GAPS * -np.diff(slopes)
    return weights / np.sum(weights)


def _mixture(likelihood: Array, weight: Array, start: Array | None = None) -> Array:
    """Return the most likely weights of ramps."""
    prior = _poisson()
    mixed = prior if start is None else start
    for _ in range(ROUNDS if start is None else MORE):
        told = mixed * ((weight / (likelihood @ mixed)) @ likelihood)
        mixed = (PRIOR * prior + told) / (PRIOR + float(np.sum(weight)))
    return mixed


def _shares(mixed: Array) -> Array:
    """Return c at 0 and at every gap."""
    at = np.minimum(GAPS[:, None] / GAPS, 1.0) @ mixed
    return np.append(0.0, np.minimum(at, 1.0))

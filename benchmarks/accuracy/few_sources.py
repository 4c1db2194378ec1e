"""Measure plans for few sources: what estimates from short logs cost beside knowing the rates.

    python -m benchmarks few_sources [--seeds 30] [--save]

Rates are gamma distributed, with mean one change per mean crawl interval and a shape of 0.6 or 1.5; crawl
intervals are exponential, importances Pareto(1.5), the bandwidth one refresh per source and mean interval.
The regret is binary freshness lost by a plan from estimates, in percent of the importance, under periodic
refreshes.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.problems import BinaryFreshness
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

SHAPES, SOURCES, CRAWLS = (0.6, 1.5), (3, 10, 25), (2, 5, 20)
OBJECTIVE = BinaryFreshness(fo.Refresh.PERIODIC)


def learnt(log: fo.CrawlLog, prior: str) -> np.ndarray:
    """Return the estimates under a prior; one learnt from the log is weak where it tells nothing."""
    if prior == "Jeffreys":
        return MaximumLikelihood().fit(log).change_rate_
    tells = log.changed.any() and not log.changed.all()
    own = GammaPrior.from_log(log) if prior == "learnt" and tells else GammaPrior.weak(log)
    return MaximumLikelihood(prior=own).fit(log).change_rate_


def regret(seed: list[int], shape: float, n: int, crawls: int) -> dict[str, float]:
    """Return the regret of plans from one log, in percent."""
    rng = np.random.default_rng(seed)
    rate = np.maximum(rng.gamma(shape, 1.0 / shape, n), 1e-3)
    gaps = rng.exponential(1.0, (n, crawls))
    log = log_of_gaps(gaps, found_changes(rng, rate[:, None], gaps))
    weight = rng.pareto(1.5, n) + 1.0
    weight /= weight.sum()

    def fresh(estimate: np.ndarray) -> float:
        rates = fo.solve(fo.Problem(OBJECTIVE, fo.Sources(estimate, weight), float(n))).rates
        u = rate / np.maximum(rates, 1e-300)
        return float(weight @ (-np.expm1(-u) / u))

    best = fresh(rate)
    return {prior: 100.0 * (best - fresh(learnt(log, prior))) for prior in ("Jeffreys", "learnt", "weak")}


def rows(seeds: int = 30) -> Iterator[Row]:
    """Yield the mean regret of each shape, number of sources and of crawls."""
    for shape, n, crawls in product(SHAPES, SOURCES, CRAWLS):
        runs = [regret([int(10 * shape), n, crawls, seed], shape, n, crawls) for seed in range(seeds)]
        mean = {prior: float(np.mean([one[prior] for one in runs])) for prior in runs[0]}
        yield {"shape": shape, "sources": n, "crawls": crawls, **mean}


def claims(record: Record) -> Claims:
    """Yield that no plan from a log is better than one that knows the rates."""
    for row in record["regret"]:
        least = min(row["Jeffreys"], row["learnt"], row["weak"])
        yield (
            f"{row['sources']} sources, {row['crawls']} crawls: regret {least:.3g}, not below 0",
            least >= 0.0,
        )


BENCH = Measurement({"regret": rows}, quick={"seeds": 2}, facts=("seeds",), claims=claims)

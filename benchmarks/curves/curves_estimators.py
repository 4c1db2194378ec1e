"""Figures 2-6 of the estimators' paper: errors by crawl, what exponents do, rates learnt in batches.

Errors of Naive, LLN, SA and SAM are exact, from their moments; that of MLE is of simulated pages.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.curves.mean_curve import Axis, Curve, averaged, exactly, measured_curves, spaced
from benchmarks.reproduce import estimator_moments as moments
from benchmarks.reproduce import estimators_adaptive as adaptive
from benchmarks.reproduce.estimator_moments import errors, law_error
from benchmarks.reproduce.estimator_runs import Array
from freshopt.estimators import MaximumLikelihood
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

CRAWLS = spaced(1, 1000, 60)
SIMULATED = spaced(40, 1000, 10)  # crawls after which MLE is finite in all runs
EXPONENTS = {  # of SA and SAM, by figure
    ("Fig 2", (5.0, 3.0)): (0.75, (1.3, 0.75)),
    ("Fig 3", (500.0, 3.0)): (0.8, (0.8, 0.5)),
    ("Fig 4", (500.0, 50.0)): (0.8, (0.8, 0.5)),
}


def by_crawl(rng: np.random.Generator, runs: int) -> Iterator[Curve]:
    """Yield Figures 2(c), 3(c) and 4(c)."""
    for (figure, rates), (step, momentum) in EXPONENTS.items():
        axis: Axis = (figure, f"Δ = {rates[0]:g}, p = {rates[1]:g}", "crawls", "root mean square error")
        naive = [moments.error(moments.naive(k, *rates), rates[0]) for k in CRAWLS.tolist()]
        yield exactly(axis, "Naive", CRAWLS, naive)
        yield exactly(axis, "LLN", CRAWLS, [law_error(k, rates) for k in CRAWLS.tolist()])
        yield exactly(axis, "SA", CRAWLS, errors(1000, rates, step)[CRAWLS - 1])
        yield exactly(axis, "SAM", CRAWLS, errors(1000, rates, *momentum)[CRAWLS - 1])
        if figure != "Fig 3":  # where hardly any crawl finds nothing, MLE is often infinite
            known = SIMULATED if figure == "Fig 2" else SIMULATED[SIMULATED >= 150]
            squares = likelihood_squares(rng, runs, rates, known)
            yield averaged(axis, "MLE", known, squares, root=True)


def likelihood_squares(
    rng: np.random.Generator, runs: int, rates: tuple[float, float], known: Array
) -> Array:
    """Return squared errors of maximum likelihood after numbers of crawls, shape (runs, len(known))."""
    shape = (runs, 1000)
    gaps = rng.exponential(1.0 / rates[1], shape)
    changed = found_changes(rng, rates[0], gaps)
    fit = MaximumLikelihood(smoothing=0).fit
    found = [fit(log_of_gaps(gaps[:, :k], changed[:, :k])).change_rate_ for k in known.astype(int).tolist()]
    return np.asarray((np.array(found).T - rates[0]) ** 2)


def by_exponent() -> Iterator[Curve]:
    """Yield Figure 5: what α, η and β do at Δ = 500, p = 10."""
    rates, label = (500.0, 10.0), ("crawls", "root mean square error")
    alphas = {"α = 1": 0.0, "α = √k": 0.5, "α = k^0.75": 0.75}
    for name, power in alphas.items():
        axis: Axis = ("Fig 5a", "LLN", *label)
        yield exactly(axis, name, CRAWLS, [law_error(k, rates, float(k) ** power) for k in CRAWLS.tolist()])
    for step in (0.5, 0.6, 0.75, 0.8):
        axis = ("Fig 5b", "SA", *label)
        yield exactly(axis, f"η = {step:g}", CRAWLS, errors(1000, rates, step)[CRAWLS - 1])
    late = spaced(1, 100_000, 60)
    for beta in (0.4, 0.5, 0.6, 0.7):
        axis = ("Fig 5c", "SAM, η = 0.8", *label)
        yield exactly(axis, f"β = {beta:g}", late, errors(100_000, rates, 0.8, beta)[late - 1])
    for step in (0.7, 0.8, 0.9, 1.0):
        axis = ("Fig 5d", "SAM, β = 0.6", *label)
        yield exactly(axis, f"η = {step:g}", late, errors(100_000, rates, step, 0.6)[late - 1])


def by_batch(seed: int, runs: int) -> Iterator[Curve]:
    """Yield Figure 6: rates learnt in batches, and the freshness that they have."""
    batches = np.arange(1, adaptive.BATCHES + 1)
    for way, restart in (("carried on", False), ("learnt anew", True)):
        for name, learner in adaptive.ONLINE.items():
            learn = partial(adaptive.adaptive_rates, learner=learner, restart=restart)
            sizes = [min(100, runs - start) for start in range(0, runs, 100)]
            parts = [learn(np.random.default_rng([seed, 5, k]), size) for k, size in enumerate(sizes)]
            rates = np.concatenate(parts)
            axis: Axis = ("Fig 6", f"freshness, {way}", "batch", "freshness")
            yield averaged(axis, name, batches, adaptive.freshness(rates))
            if not restart:
                for kind, page in (("fast", 0), ("slow", adaptive.FAST)):
                    axis = ("Fig 6", f"rate of a {kind} page", "batch", "crawls per time unit")
                    yield averaged(axis, name, batches, rates[:, :, page])
    best = adaptive.best()
    for panel, what, level in (
        ("freshness", "freshness", best.value),
        ("rate of a fast page", "crawls per time unit", best.rates[0]),
        ("rate of a slow page", "crawls per time unit", best.rates[-1]),
    ):
        yield exactly(("Fig 6", panel, "batch", what), "optimum", batches[[0, -1]], [level, level])


def curves(runs: int = 0, few: bool = False, seed: int = 0) -> Iterator[Curve]:
    """Yield every curve on the estimators."""
    pages = runs or (40 if few else 4000)
    yield from by_crawl(np.random.default_rng([seed, 6]), pages)
    if not few:
        yield from by_exponent()
        yield from by_batch(seed, max(pages // 10, 2))


BENCH = measured_curves("estimators", curves)

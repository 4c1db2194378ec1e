"""Experiments 1 to 3 of the estimators' paper: Figures 1 to 5.

Errors of simulated pages are formed as the paper forms them, over 100 pages, and each hundred is one run
here; what the paper says of whole curves is decided on exact moments.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.reproduce import estimator_moments as moments
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.estimator_runs import Array, fitted, models, sampled
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

measure = Measurements()
HUNDRED = 100  # runs of which the paper forms its errors
OURS = ("LLN", "SA", "SAM")
CRAWLS = 1000
SLOW, FAST, STEPS = (500.0, 3.0), (500.0, 50.0), (500.0, 10.0)  # Δ and p of Figures 3, 4 and 5
SAM = (0.8, 0.5)  # exponents of SAM in Figures 3 and 4; that of SA is 0.8
ADVANTAGE = 400  # crawls for which SAM is ahead in Figure 4, as the paper has it
EARLY = 5  # crawls after which a tenth of the pages of Figure 2 have changed in each


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """Errors of independent pages by estimator, shape (hundreds, 100)."""

    of: dict[str, Array]

    def root(self, name: str) -> Array:
        """Return the root mean square error of each hundred."""
        return np.asarray(np.sqrt(np.mean(self.of[name] ** 2, axis=1)))

    def spread(self, name: str) -> Array:
        """Return the standard deviation of each hundred."""
        return np.asarray(np.std(self.of[name], axis=1, ddof=1))

    def largest(self, *names: str) -> Array:
        """Return the largest error of several estimators, of each hundred."""
        return np.asarray(np.max([self.root(name) for name in names], axis=0))

    def smallest(self, *names: str) -> Array:
        """Return the smallest error of several estimators, of each hundred."""
        return np.asarray(np.min([self.root(name) for name in names], axis=0))


def simulated(
    rng: np.random.Generator,
    hundreds: int,
    crawls: int,
    rates: tuple[float, float],
    exponents: tuple[float, tuple[float, float]],
    without: tuple[str, ...] = (),
) -> Errors:
    """Return the errors of all estimators but some, on the same pages."""
    given = {name: model for name, model in models(*exponents).items() if name not in without}
    found = sampled(rng, HUNDRED * hundreds, crawls, rates, given)
    return Errors({name: (values - rates[0]).reshape(hundreds, HUNDRED) for name, values in found.items()})


@measure.of("fig-1b-naive", "fig-1b-comparable", quick=2)
def figure_1b(plan: Plan) -> Listed:
    """Simulate the paper's page at p = 0.5."""
    rng = np.random.default_rng([plan.seed, 1])
    errors = simulated(rng, plan.runs(), 1723, (1.1098, 0.5), (0.75, (1.2, 0.6)), ("MM",))
    return errors.largest(*OURS, "MLE") / errors.root("Naive"), errors.largest(*OURS) / errors.root("MLE")


@measure.of("fig-1c", "fig-1c-single", quick=20)
def figure_1c(plan: Plan) -> Measured:
    """Simulate the paper's page at p = 0.1."""
    rng = np.random.default_rng([plan.seed, 2])
    errors = simulated(rng, plan.runs(), 340, (1.1098, 0.1), (0.75, (1.2, 0.6)), ("MM", "Naive"))
    yield "fig-1c", errors.largest("SAM", "MLE") / errors.smallest("LLN", "SA")
    # One page of each hundred, as the paper shows a single run.
    near = {name: np.abs(each[:, 0]) for name, each in errors.of.items()}
    yield "fig-1c-single", np.maximum(near["SAM"], near["MLE"]) < np.minimum(near["LLN"], near["SA"])


@measure.of("fig-2-naive", "fig-2-comparable", "fig-2-mle", "fig-2-hundred", "fig-2-efficiency", quick=4)
def figure_2(plan: Plan) -> Measured:
    """Simulate Δ = 5, p = 3."""
    rng, rates = np.random.default_rng([plan.seed, 3]), (5.0, 3.0)
    errors = simulated(rng, plan.runs(), CRAWLS, rates, (0.75, (1.3, 0.75)), ("MM",))
    worst, best = errors.largest(*OURS, "MLE"), errors.smallest(*OURS)
    yield "fig-2-naive", worst / errors.root("Naive")
    yield "fig-2-comparable", errors.largest(*OURS) / errors.root("MLE")
    yield "fig-2-mle", errors.root("MLE") / best
    yield "fig-2-hundred", (worst < errors.root("Naive")) & (errors.root("MLE") < best)
    bound = 1 / np.sqrt(CRAWLS * moments.information(*rates))
    yield "fig-2-efficiency", np.mean(errors.of["MLE"] ** 2, axis=1) / bound**2


@measure.of("fig-2-decay")
def figure_2_decay(plan: Plan) -> Measured:
    """Compare how far errors fall from 100 to 1000 crawls, of the same pages."""
    hundreds = plan.runs()
    rng, shape = np.random.default_rng([plan.seed, 4]), (HUNDRED * hundreds, CRAWLS)
    gaps = rng.exponential(1 / 3.0, shape)
    changed = found_changes(rng, 5.0, gaps)
    given = models(0.75, (1.3, 0.75))
    falls: dict[str, Array] = {}
    for name in ("LLN", "MLE"):
        roots = []
        for crawls in (100, CRAWLS):
            log = log_of_gaps(gaps[:, :crawls], changed[:, :crawls])
            squares = (fitted(given[name], log, 3.0) - 5.0) ** 2
            roots.append(np.sqrt(squares.reshape(hundreds, HUNDRED).mean(axis=1)))
        falls[name] = np.log10(roots[1] / roots[0])
    yield "fig-2-decay", falls["MLE"] - falls["LLN"]


@measure.of("mle-unstable", quick=500)
def instability(plan: Plan) -> Measured:
    """Say of which pages MLE is infinite after a few crawls and the online estimates are finite."""
    rng, shape = np.random.default_rng([plan.seed, 5]), (plan.runs(), EARLY)
    gaps = rng.exponential(1 / 3.0, shape)
    log = log_of_gaps(gaps, found_changes(rng, 5.0, gaps))
    given = models(0.75, (1.3, 0.75))
    finite = np.all([np.isfinite(fitted(given[name], log, 3.0)) for name in OURS], axis=0)
    yield "mle-unstable", np.isinf(fitted(given["MLE"], log, 3.0)) & finite


@measure.of("fig-3-sa", "fig-3-variance-sa", "fig-3-variance-lln", "fig-3-hundred", quick=4)
def figure_3(plan: Plan) -> Measured:
    """Simulate Δ = 500, p = 3."""
    rng = np.random.default_rng([plan.seed, 6])
    errors = simulated(rng, plan.runs(), CRAWLS, SLOW, (0.8, SAM), ("MM", "MLE", "Naive"))
    (law, plain, heavy), (loose, tight, between) = map(errors.root, OURS), map(errors.spread, OURS)
    yield "fig-3-sa", np.maximum(law, heavy) / plain
    yield "fig-3-variance-sa", tight / np.minimum(between, loose)
    yield "fig-3-variance-lln", between / loose
    yield "fig-3-hundred", (law < heavy) & (heavy < plain) & (tight < between) & (between < loose)


@measure.of("fig-4-sa", "fig-4-lln", "fig-4-volatile", "fig-4-hundred", quick=4)
def figure_4(plan: Plan) -> Measured:
    """Simulate Δ = 500, p = 50."""
    rng = np.random.default_rng([plan.seed, 7])
    errors = simulated(rng, plan.runs(), CRAWLS, FAST, (0.8, SAM), ("MM", "MLE", "Naive"))
    (law, plain, heavy), (loose, tight, wide) = map(errors.root, OURS), map(errors.spread, OURS)
    yield "fig-4-sa", np.maximum(law, heavy) / plain
    yield "fig-4-lln", law / np.minimum(plain, heavy)
    yield "fig-4-volatile", wide / np.maximum(loose, tight)
    yield "fig-4-hundred", (law < heavy) & (heavy < plain) & (np.maximum(loose, tight) < wide)


@measure.of("fig-3-lln", "fig-3-decay", "fig-4-improve", "fig-4-rapid", "fig-4-crossing")
def curves_of_figures_3_and_4(plan: Plan) -> Measured:
    """Compare exact errors after every crawl."""
    found: dict[tuple[float, float], list[Array]] = {}
    for rates in (SLOW, FAST):
        law = np.array([moments.law_error(k, rates) for k in range(1, CRAWLS + 1)])
        found[rates] = [law, moments.errors(CRAWLS, rates, 0.8), moments.errors(CRAWLS, rates, *SAM)]
    law, plain, heavy = found[SLOW]
    after = slice(1, 1 + plan.runs("fig-3-lln"))  # after the first crawl they are equal
    yield "fig-3-lln", law[after] < heavy[after]
    yield "fig-3-decay", [np.log10(law[-1] / law[99]) - np.log10(heavy[-1] / heavy[99])]
    ratios = [fast[-1] / slow[-1] for fast, slow in zip(found[FAST], found[SLOW], strict=True)]
    yield "fig-4-improve", [max(ratios)]
    law, plain, heavy = found[FAST]
    on_average = [curve[:ADVANTAGE].mean() for curve in (law, plain, heavy)]
    yield "fig-4-rapid", [on_average[2] / min(on_average[:2])]
    yield "fig-4-crossing", [np.flatnonzero(heavy < law)[-1] + 1]


@measure.of("fig-5a", "fig-5b", quick=1)
def figures_5a_and_5b(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Compare exact errors by α and by η at Δ = 500, p = 10."""
    laws = [moments.law_error(CRAWLS, STEPS, alpha) for alpha in (1.0, np.log(1001.0), 1000**0.5, 1000**0.75)]
    yield "fig-5a", [laws[-1] / max(laws[:-1])]
    plain = [moments.errors(CRAWLS, STEPS, eta)[-1] for eta in (0.5, 0.6, 0.75, 0.8, 1.0)]
    yield "fig-5b", [plain[0] / min(plain[1:])]


@measure.of("fig-5c-trade", "fig-5c-best-1000", "fig-5c-best-100000", "fig-5d-trade")
def figures_5c_and_5d(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Compare exact bias and spread of SAM by β and by η, up to 100 000 crawls."""
    betas = (0.4, 0.5, 0.6, 0.7)
    by_beta = [moments.bias_and_spread(100_000, STEPS, 0.8, beta) for beta in betas]
    yield "fig-5c-trade", (np.diff(halvings(by_beta)) > 0) & (np.diff(spreads(by_beta)) < 0)
    for crawls in (1000, 100_000):
        errors = [np.hypot(bias[crawls - 1], spread[crawls - 1]) for bias, spread in by_beta]
        yield f"fig-5c-best-{crawls}", [betas[int(np.argmin(errors))]]
    by_eta = [moments.bias_and_spread(CRAWLS, STEPS, eta, 0.6) for eta in (0.7, 0.8, 0.9, 1.0)]
    yield "fig-5d-trade", (np.diff(halvings(by_eta)) < 0) & (np.diff(spreads(by_eta)) > 0)


def halvings(curves: list[tuple[Array, Array]]) -> list[int]:
    """Return the crawls after which the bias of each curve is below half of Δ."""
    return [int(np.flatnonzero(np.abs(bias) < 0.5 * STEPS[0])[0]) + 1 for bias, _ in curves]


def spreads(curves: list[tuple[Array, Array]]) -> list[float]:
    """Return the standard deviation of each curve after 1000 crawls."""
    return [float(spread[CRAWLS - 1]) for _, spread in curves]

"""Theorems and remarks of the estimators' paper, decided on exact moments; other gaps, and costs.

Moments of SA and SAM come from a recursion over crawls, those of LLN from the binomial number of changes
found; the first claim shows that both are the estimators' own. Then: who converges to Δ for crawl gaps of
which kind, and what an observation costs, by online updates and by MLE.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import best_of
from benchmarks.reproduce import estimator_moments as moments
from benchmarks.reproduce import estimators_adaptive, estimators_figures
from benchmarks.reproduce.claims import Measured, Measurements, Plan
from benchmarks.reproduce.estimator_runs import GAPS, Array, fitted, models, sampled
from benchmarks.reproduce.reproduce import of_paper
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

measure = Measurements()
NEAR = (5.0, 3.0)  # Δ and p of Figure 2
FEW = 9  # crawls, whose 512 outcomes are all tried
# Figures 1b, 1c, 2, 3 and 4: Δ and p, crawls, exponent of SA, exponents of SAM.
EXPERIMENTS = (
    ((1.1098, 0.5), 1723, (0.75,), (1.2, 0.6)),
    ((1.1098, 0.1), 340, (0.75,), (1.2, 0.6)),
    (NEAR, 1000, (0.75,), (1.3, 0.75)),
    ((500.0, 3.0), 1000, (0.8,), (0.8, 0.5)),
    ((500.0, 50.0), 1000, (0.8,), (0.8, 0.5)),
)
LATE = 100_000  # crawls, to which the rates of convergence are followed


@measure.of("eq-1-3-moments", quick=1)
def moments_of_all_outcomes(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Compare the estimators, on every possible outcome of a few crawls, with the moments used below."""
    step, momentum = 0.75, (1.3, 0.75)
    closed: dict[str, Callable[[float, float], moments.Moments]] = {
        "Naive": partial(moments.naive, FEW),
        "LLN": partial(moments.law, FEW),
        "SA": partial(moments.heavy_ball, FEW, step=step),
        "SAM": partial(moments.heavy_ball, FEW, step=momentum[0], beta=momentum[1]),
    }
    given, worst = models(step, momentum), 0.0
    for change_rate, crawl_rate in (NEAR, (0.2, 1.0), (500.0, 3.0)):
        outcomes, weights = moments.every_outcome(FEW, change_rate, crawl_rate)
        log = log_of_gaps(np.ones(outcomes.shape), outcomes)
        for name, form in closed.items():
            rates = fitted(given[name], log, crawl_rate)
            for power, expected in enumerate(form(change_rate, crawl_rate), start=1):
                worst = max(worst, abs(float(weights @ rates**power) / expected - 1))
    yield "eq-1-3-moments", [worst]


@measure.of("thm-1-alpha-1", "thm-1-alpha-root", "thm-1-alpha-three-quarters", quick=1)
def law_rates(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Follow E|x − Δ| of LLN from 10⁹ to 10¹⁰ crawls, where α_k/k is small against 1 − μ for each α."""
    for name, power in (("1", 0.0), ("root", 0.5), ("three-quarters", 0.75)):
        near, far = (moments.law_distance(k, NEAR, float(k) ** power) for k in (10**9, 10**10))
        yield f"thm-1-alpha-{name}", [np.log10(far / near)]


@measure.of("thm-1-condition", quick=1)
def law_without_its_condition(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Follow the largest term of E|x − Δ|, a change in every crawl, where α_k = e^{−k}."""
    mu = NEAR[0] / sum(NEAR)
    terms = [k * np.log10(mu) + np.log10(NEAR[1] * k * np.exp(k) - NEAR[0]) for k in (50, 100)]
    yield "thm-1-condition", [terms[1] - terms[0]]


def exponent(curve: np.typing.NDArray[np.float64]) -> float:
    """Return the power of k as which a curve falls over its last decade."""
    return float(np.log10(curve[-1] / curve[len(curve) // 10 - 1]))


@measure.of("thm-2-rate", "remark-8-one-timescale", "remark-8-two-timescale", "conjecture-rate", "remark-7")
def rates_of_convergence(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Follow root mean square errors, which bound mean errors, over the last of five decades."""
    for name, exponents in (
        ("thm-2-rate", (0.75,)),
        ("remark-8-one-timescale", (1.5, 0.75)),
        ("remark-8-two-timescale", (1.3, 0.75)),
        ("conjecture-rate", (0.8, 0.5)),
        ("remark-7", (0.75, 0.75, 0.5)),
    ):
        yield name, [exponent(moments.errors(LATE, NEAR, *exponents))]


@measure.of("remark-6", "remark-6-summable")
def slow_velocity(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Follow the error of SAM where η > 2β, which the library refuses."""
    for name, exponents in (("remark-6", (1.3, 0.5)), ("remark-6-summable", (1.8, 0.5))):
        yield name, [exponent(moments.errors(LATE, NEAR, *exponents))]


@measure.of("remark-8-faster", quick=5)
def momentum_against_none(plan: Plan) -> Measured:
    """Compare the errors of SAM and SA at the end of each experiment."""
    cells = EXPERIMENTS[: plan.runs()]
    ends = [
        [moments.errors(crawls, rates, *each)[-1] for each in (plain, heavy)]
        for rates, crawls, plain, heavy in cells
    ]
    yield "remark-8-faster", [with_momentum < without for without, with_momentum in ends]


@measure.of("remark-8-larger-steps", quick=1)
def momentum_against_larger_steps(plan: Plan) -> Measured:  # noqa: ARG001 - nothing is random
    """Compare the errors of SAM and of SA with the exponent that SAM's β has."""
    worst = 0.0
    for rates, crawls, _, heavy in EXPERIMENTS:
        with_momentum, without = (moments.errors(crawls, rates, *each)[-1] for each in (heavy, heavy[1:]))
        worst = max(worst, abs(with_momentum / without - 1))
    yield "remark-8-larger-steps", [worst]


CHANGE_RATE, CRAWL_RATE, CRAWLS = 5.0, 3.0, 20_000
OURS, OFFLINE = ("LLN", "SA", "SAM"), ("MLE", "MM")
PAGES, SHORT, LONG = 200, 100, 10_000  # of the timings, and the crawls that each page has behind it
REPEATS = 3  # of which the least time counts: the others were disturbed


def distances(found: dict[str, Array], names: tuple[str, ...]) -> Array:
    """Return |estimate/Δ − 1|, shape (estimators, pages)."""
    return np.array([np.abs(found[name] / CHANGE_RATE - 1) for name in names])


@measure.of("thm-1-3-consistent", quick=4)
def consistency(plan: Plan) -> Measured:
    """Estimate from very many crawls with exponential gaps."""
    rng, pages = np.random.default_rng([plan.seed, 8]), plan.runs()
    given = {name: model for name, model in models(0.75, (1.3, 0.75)).items() if name in OURS}
    found = sampled(rng, pages, CRAWLS, (CHANGE_RATE, CRAWL_RATE), given)
    yield "thm-1-3-consistent", distances(found, OURS).max(axis=0)


@measure.of("naive-limit", quick=200)
def naive(plan: Plan) -> Measured:
    """Estimate as if each change found were the only one."""
    rng, pages = np.random.default_rng([plan.seed, 11]), plan.runs()
    found = sampled(
        rng, pages, 1000, (CHANGE_RATE, CRAWL_RATE), {"Naive": models(0.75, (1.3, 0.75))["Naive"]}
    )
    yield "naive-limit", found["Naive"] * (CHANGE_RATE + CRAWL_RATE) / (CRAWL_RATE * CHANGE_RATE)


@measure.of("gaps-online", "gaps-offline", "gaps-limit", quick=2)
def other_gaps(plan: Plan) -> Measured:
    """Estimate from as many crawls with gaps of three other kinds."""
    rng, pages = np.random.default_rng([plan.seed, 9]), plan.runs()
    given = models(0.75, (1.3, 0.75))
    rates, kinds = (CHANGE_RATE, CRAWL_RATE), tuple(kind for kind in GAPS if kind != "exponential")
    found = {kind: sampled(rng, pages, CRAWLS, rates, given, kind) for kind in kinds}
    yield "gaps-online", np.vstack([distances(found[kind], OURS) for kind in kinds]).min(axis=0)
    yield "gaps-offline", np.vstack([distances(found[kind], OFFLINE) for kind in kinds]).max(axis=0)
    limit = CRAWL_RATE * np.expm1(CHANGE_RATE / CRAWL_RATE)
    yield "gaps-limit", np.max([np.abs(found["fixed"][name] / limit - 1) for name in OURS], axis=0)


@measure.of("cost-of-an-observation", "cost-grows", "cost-constant")
def costs(plan: Plan) -> Measured:
    """Time one more crawl of each page, online and by MLE, with few and with many crawls behind it."""
    rng, given, rounds = np.random.default_rng([plan.seed, 10]), models(0.75, (1.3, 0.75)), plan.runs()
    gaps = rng.exponential(1 / CRAWL_RATE, (PAGES, LONG + 1))
    changed = found_changes(rng, CHANGE_RATE, gaps)
    tasks: dict[tuple[str, int], Callable[[], Any]] = {}
    for behind in (SHORT, LONG):
        history = log_of_gaps(gaps[:, : behind + 1], changed[:, : behind + 1])
        tasks["MLE", behind] = partial(given["MLE"].fit, history)
        one = log_of_gaps(gaps[:, behind : behind + 1], changed[:, behind : behind + 1])
        for name in OURS:
            model = models(0.75, (1.3, 0.75))[name]
            model.fit(log_of_gaps(gaps[:, :behind], changed[:, :behind]), CRAWL_RATE)
            tasks[name, behind] = partial(model.partial_fit, one, CRAWL_RATE)
    for task in tasks.values():  # what is compiled or cached is so before the rounds
        task()
    found = [
        {key: best_of(task, REPEATS, time.process_time) for key, task in tasks.items()} for _ in range(rounds)
    ]
    dearest = [{k: max(each[name, k] for name in OURS) for k in (SHORT, LONG)} for each in found]
    yield (
        "cost-of-an-observation",
        [a["MLE", LONG] / b[LONG] for a, b in zip(found, dearest, strict=True)],
    )
    yield "cost-grows", [each["MLE", LONG] / each["MLE", SHORT] for each in found]
    yield "cost-constant", [online[LONG] / online[SHORT] for online in dearest]


BENCH = of_paper("estimators", measure, estimators_figures.measure, estimators_adaptive.measure)

"""Change-rate estimators (Avrachenkov, Patil, Thoppe, Performance Evaluation 2022).

The paper: doi:10.1016/j.peva.2021.102261. A run is a page of its own with 1000 crawls unless said otherwise,
at the exponents of each figure (α = 1 for LLN, y₀ = z₀ = 0, ω = 1 for SAM). Means and root mean square errors
of Naive, LLN, SA and SAM are known exactly: from the binomial number of changes found, and from a recursion
for the moments. Statements marked "exact" compare these; the first rows show that they are the estimators'
own. The paper averages 100 runs, which resolve a mean to a tenth of the error and an error to 7 %: both are
held here to half of that. For MLE and MM the expected values are a prototype's, itself a simulation, and its
means are held to a tenth of the error; the bias of MLE is known to order 1/k as well (Cox and Snell, 1968).

Experiment 1 is about a Wikipedia page whose edits the paper finds to be Poisson; they are simulated with its
rate. Section 5 is run as the paper tells it, learning anew in each batch of 50 crawls, and with what was
learnt carried on, each crawl counting with the rate at which it was made. Some runs of LLN and MLE lose a
page there: overestimated once, it is hardly crawled again, and its freshness is gone. `AdaptiveRates` gives
all pages one clock instead of 50 crawls each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import estimator_moments as moments
import estimators_adaptive
import numpy as np
from estimator_runs import GAPS, Array, fitted, log_of, models, sampled
from statements import Statement, always, below, equals, exact

Pairs = Sequence[tuple[str, str]]


def exact_moments() -> Iterator[Statement]:
    """Compare the estimators, on every possible outcome of nine crawls, with the closed forms."""
    crawls, step, momentum = 9, 0.75, (1.3, 0.75)
    closed: dict[str, Callable[[float, float], moments.Moments]] = {
        "Naive": partial(moments.naive, crawls),
        "LLN": partial(moments.law, crawls),
        "SA": partial(moments.heavy_ball, crawls, step=step),
        "SAM": partial(moments.heavy_ball, crawls, step=momentum[0], beta=momentum[1]),
    }
    given = models(step, momentum)
    for name, form in closed.items():
        worst = 0.0
        for change_rate, crawl_rate in ((5.0, 3.0), (0.2, 1.0), (500.0, 3.0)):
            outcomes, weights = moments.every_outcome(crawls, change_rate, crawl_rate)
            rates = fitted(given[name], log_of(np.ones(outcomes.shape), outcomes), crawl_rate)
            for power, expected in enumerate(form(change_rate, crawl_rate), start=1):
                worst = max(worst, abs(float(weights @ rates**power) / expected - 1))
        text = f"{name}: first two moments over all outcomes of 9 crawls equal the closed forms, relatively"
        yield exact("Eq 1-3", text, 0.0, worst, 1e-12)
    worst = 0.0
    for crawls in range(1, 10):
        outcomes, weights = moments.every_outcome(crawls, 5.0, 3.0)
        mean = float(weights @ fitted(given["LLN"], log_of(np.ones(outcomes.shape), outcomes), 3.0))
        worst = max(worst, abs(mean / (5 * (1 - (5 / 8) ** crawls)) - 1))
    text = "E[LLN] = Δ(1 − μᵏ), μ = Δ/(Δ+p), for 1 to 9 crawls, relatively"
    yield exact("Thm 1", text, 0.0, worst, 1e-12)


def errors(crawls: int, rates: tuple[float, float], *exponents: float) -> Array:
    """Return the exact root mean square error of SA or SAM after each crawl."""
    curve = moments.recursion(crawls, *rates, *exponents)
    return np.sqrt(curve[:, 1] - 2 * rates[0] * curve[:, 0] + rates[0] ** 2)


def law_error(crawls: int, rates: tuple[float, float], alpha: float = 1.0) -> float:
    """Return the exact root mean square error of LLN."""
    return moments.error(moments.law(crawls, *rates, alpha), rates[0])


def exact_curves() -> Iterator[Statement]:
    """Decide what the paper says of whole curves, on the exact moments."""
    rates = (500.0, 50.0)
    law = np.array([law_error(crawls, rates) for crawls in range(1, 1001)])
    last = float(np.flatnonzero(errors(1000, rates, 0.8, 0.5) < law)[-1] + 1)
    text = "Δ = 500, p = 50: SAM has a smaller error than LLN up to about this crawl (exact)"
    yield exact("Fig 4", text, 400.0, last, 40.0)
    rates, at = (500.0, 10.0), "Δ = 500, p = 10"
    laws = [law_error(1000, rates, alpha) for alpha in (1.0, np.log(1001.0), 1000**0.5, 1000**0.75)]
    text = f"{at}: of α = 1, ln(k+1), √k and k^¾ LLN has the largest error with the last (exact)"
    yield always("Fig 5a", text, [laws[-1] > max(laws[:-1])])
    plain = [errors(1000, rates, eta)[-1] for eta in (0.5, 0.6, 0.75, 0.8, 1.0)]
    text = f"{at}: of η = .5, .6, .75, .8 and 1 SA has the smallest error with the first (exact)"
    yield always("Fig 5b", text, [plain[0] < min(plain[1:])])
    betas = {beta: errors(100_000, rates, 0.8, beta) for beta in (0.4, 0.5, 0.6, 0.7)}
    for crawls in (1000, 100_000):  # the paper's text does not tell how many
        best = min(betas, key=lambda beta: betas[beta][crawls - 1])
        text = f"{at}, η = .8: of β = .4, .5, .6, .7 SAM's smallest error after {crawls:,} crawls (exact)"
        yield exact("Fig 5c", text, 0.6, best, 0.0, said="0.6")
    falls = "the error falls as k to this power, from 10⁴ to 10⁵ crawls (exact)"
    for figure, model, exponents, expected in (
        ("Thm 2", "SA, η = 0.75", (0.75,), -0.375),
        ("Thm 2", "SA, η = 0.6", (0.6,), -0.3),
        ("Remark 8", "SAM, η = 1.3, β = 0.75", (1.3, 0.75), -0.375),
        ("Remark 8", "SAM, η = 0.8, β = 0.5", (0.8, 0.5), -0.25),
    ):
        curve = errors(100_000, (5.0, 3.0), *exponents)
        power = float(np.log10(curve[-1] / curve[9_999]))
        yield exact(figure, f"{model}: {falls}", expected, power, 0.02)
    ends = [law_error(crawls, (5.0, 3.0)) for crawls in (10_000, 100_000)]
    yield exact("Thm 1", f"LLN, α = 1: {falls}", -0.5, float(np.log10(ends[1] / ends[0])), 0.02)


def compared(figure: str, at: str, squares: dict[str, Array], pairs: Pairs, what: str) -> Iterator[Statement]:
    """State for each pair that the mean of the first's squares is smaller, in units of the second's mean."""
    for less, more in pairs:
        scale = float(np.mean(squares[more]))
        text = f"{at}: {what} of {less} is smaller than that of {more}, relatively"
        yield below(figure, text, squares[less] / scale, squares[more] / scale)


def experiment_1(rng: np.random.Generator, runs: int) -> Iterator[Statement]:
    """Decide who is better at the rate of the paper's Wikipedia page."""
    pairs: dict[tuple[float, int], Pairs] = {
        (0.5, 1723): [(name, "Naive") for name in ("LLN", "SA", "SAM", "MLE")],
        (0.1, 340): [(one, other) for one in ("SAM", "MLE") for other in ("LLN", "SA")],
    }
    change_rate = 1.1098
    for (crawl_rate, crawls), said in pairs.items():
        found = sampled(rng, runs, crawls, (change_rate, crawl_rate), models(0.75, (1.2, 0.6)))
        squares = {name: (values - change_rate) ** 2 for name, values in found.items()}
        at = f"Δ = {change_rate}, p = {crawl_rate}, {crawls} crawls"
        yield from compared("Fig 1", at, squares, said, "the mean square error")


def experiment_2(rng: np.random.Generator, runs: int) -> Iterator[Statement]:
    """Decide means, errors and orders after 1000 crawls."""
    slow: Pairs = [("LLN", "SA"), ("SAM", "SA"), ("LLN", "SAM")]
    online = ("Naive", "LLN", "SA", "SAM")
    first: Pairs = [(name, "Naive") for name in ("LLN", "SA", "SAM", "MLE")]
    first = [*first, *(("MLE", name) for name in ("LLN", "SA", "SAM", "MM"))]
    for figure, rates, step, momentum, prototype, pairs in (
        ("Fig 2", (5.0, 3.0), 0.75, (1.3, 0.75), {"MLE": (5.005, 0.245), "MM": (5.005, 0.256)}, first),
        ("Fig 3", (500.0, 3.0), 0.8, (0.8, 0.5), {}, slow),
        ("Fig 4", (500.0, 50.0), 0.8, (0.8, 0.5), {"MLE": (501.3, 37.3)}, slow),
    ):
        at, change_rate = f"Δ = {rates[0]:g}, p = {rates[1]:g}", rates[0]
        forms = (
            moments.naive(1000, *rates),
            moments.law(1000, *rates),
            moments.heavy_ball(1000, *rates, step),
            moments.heavy_ball(1000, *rates, *momentum),
        )
        exactly = {name: (x[0], moments.error(x, change_rate)) for name, x in zip(online, forms, strict=True)}
        given = {name: model for name, model in models(step, momentum).items() if name in exactly | prototype}
        many = 3 * runs if figure == "Fig 3" else runs  # the squared errors of LLN have a long tail there
        found = sampled(rng, many, 1000, rates, given)
        squares = {name: (values - change_rate) ** 2 for name, values in found.items()}
        for name, (mean, error) in (exactly | prototype).items():
            origin = "prototype" if name in prototype else "exact"
            text, said = f"{at}: mean of {name}", f"{mean:.4g} ({origin})"
            tolerance = error / 10 if name in prototype else error / 20
            yield equals(figure, text, mean, found[name], tolerance, said=said)
            text, said = f"{at}: root mean square error of {name}", f"{error:.4g} ({origin})"
            yield equals(figure, text, error, squares[name], 0.035 * error, root=True, said=said)
        if "MLE" in prototype:
            mean, error = change_rate + moments.likelihood_bias(1000, *rates), prototype["MLE"][1]
            text, said = f"{at}: mean of MLE with its bias of order 1/k", f"{mean:.4g} (theory)"
            yield equals("Eq 16", text, mean, found["MLE"], error / 20, said=said)
        yield from compared(figure, at, squares, pairs, "the mean square error")
        if figure == "Fig 3":
            spread = {name: (values - values.mean()) ** 2 for name, values in found.items()}
            yield from compared(figure, at, spread, [("SA", "SAM"), ("SAM", "LLN")], "the variance")


def consistency(rng: np.random.Generator, runs: int) -> Iterator[Statement]:
    """Decide who tends to Δ, and who to what else, for gaps of four kinds."""
    change_rate, crawl_rate, crawls = 5.0, 3.0, 20_000
    for kind, (_, transform) in GAPS.items():
        unchanged = transform(change_rate / crawl_rate)
        limits = dict.fromkeys(("LLN", "SA", "SAM"), crawl_rate * (1 - unchanged) / unchanged)
        limits |= {"Naive": crawl_rate * (1 - unchanged), "MLE": change_rate, "MM": change_rate}
        found = sampled(rng, runs, crawls, (change_rate, crawl_rate), models(0.75, (1.3, 0.75)), kind)
        for name, limit in limits.items():
            text = f"Δ = 5, {kind} gaps of mean 1/3: {name} tends to this (after 20,000 crawls, ± 1 %)"
            yield equals("Sec 3", text, limit, found[name], 0.01 * limit, said=f"{limit:.4g}")


def statements(runs: int | None, quick: bool, seed: int) -> Iterator[Statement]:
    """Yield every statement on the estimators."""
    rng = np.random.default_rng([seed, 1])
    pages = runs or (240 if quick else 20_000)
    yield from exact_moments()
    yield from exact_curves()
    yield from experiment_1(rng, pages // 2)
    yield from experiment_2(rng, pages)
    yield from consistency(rng, min(pages, 8 if quick else 400))
    yield from estimators_adaptive.statements(seed, min(pages, 6 if quick else 1000), likelihood=not quick)

"""Figures 1-4 of Learning to Crawl: how long to explore, ε-greedy by phase, errors of the estimators."""

from collections.abc import Iterator

import numpy as np

from benchmarks.curves.mean_curve import Axis, Curve, averaged, measured_curves, spaced
from benchmarks.reproduce import learning_to_crawl_instances as instances
from benchmarks.reproduce.learning_to_crawl_estimation import crawled
from freshopt.estimators import MaximumLikelihood, MomentMatching

SHOWN = 1  # of HORIZONS: the one whose regrets by length are drawn, 10⁴ as in the paper
BOUNDS = (0.1, 1.0)  # of change rates, known to the estimators of Figures 3 and 4
SAMPLE = 500  # sources in a run of those


def figure_1(seed: int, runs: int) -> Iterator[Curve]:
    """Yield regret by length at one horizon, and the best length and its regret by horizon."""
    found = [each for _, each in instances.explorations(seed, runs)]
    lengths = found[0][SHOWN].lengths
    regrets = np.array([each[SHOWN].regrets.mean(axis=0) for each in found]) / instances.N
    axis: Axis = ("Fig 1a", "T = 1e4", "length of exploration", "regret per source")
    yield averaged(axis, "ETC", lengths, regrets)
    best = np.array([[each.length for each in row] for row in found])
    axis = ("Fig 1b", "best length", "horizon T", "best length of exploration")
    yield averaged(axis, "ETC", instances.HORIZONS, best)
    lost = np.array([[each.regret / instances.N for each in row] for row in found]) / np.array(
        instances.HORIZONS
    )
    axis = ("Fig 1c", "regret", "horizon T", "regret per source and time")
    yield averaged(axis, "ETC", instances.HORIZONS, lost)


def figure_1_paper(seed: int, runs: int) -> Iterator[Curve]:
    """Yield the best length and its regret by horizon on instances of the paper's size."""
    horizons = 10.0**instances.DECADES
    for bandwidth in (100.0, 1000.0):
        best, regret = instances.best_lengths(instances.commitments(seed, runs, bandwidth), horizons)
        name = f"R = {bandwidth:g}"
        axis: Axis = ("Fig 1b", "best length, 5000 sources", "horizon T", "best length of exploration")
        yield averaged(axis, name, horizons, best)
        axis = ("Fig 1c", "regret, 5000 sources", "horizon T", "regret per source and time")
        yield averaged(axis, name, horizons, regret / instances.SOURCES / horizons)


def figure_2(seed: int, runs: int) -> Iterator[Curve]:
    """Yield regrets of ε-greedy by phase, and of the best ETC with horizons of as many phases."""
    for bandwidth, spread in instances.PHASED:
        many = instances.phased_runs(runs, (bandwidth, spread))
        own, other = (each / instances.N for each in instances.phases(seed, many, bandwidth, spread))
        kept = np.arange(2, instances.PHASES + 1, 2)
        panel = f"R = {bandwidth:g}, importances exp({spread:g} z)"
        axis: Axis = ("Fig 2", panel, "phase", "regret per source")
        yield averaged(axis, "ε-greedy", kept, own[:, kept - 1])
        yield averaged(axis, "best ETC", instances.CHECKED, other)
        axis = ("Fig 2", f"{panel}, difference", "phase", "difference of regrets")
        yield averaged(
            axis, "ε-greedy − best ETC", instances.CHECKED, own[:, np.array(instances.CHECKED) - 1] - other
        )


def figures_3_and_4(rng: np.random.Generator, runs: int) -> Iterator[Curve]:
    """Yield errors and bounds by the number of crawls, for random gaps and for equal ones."""
    crawls = spaced(5, 160, 8)
    for figure, equal in (("Fig 3", False), ("Fig 4", True)):
        for rate in (0.25, 0.5, 0.75):
            for crawl_rate in (0.25, 0.75):
                rows = np.array(
                    [
                        [errors(rng, rate, crawl_rate, int(count), equal) for count in crawls]
                        for _ in range(runs)
                    ]
                )
                axis: Axis = (figure, f"ξ = {rate}, ρ = {crawl_rate}", "crawls", "error of ξ̂")
                yield averaged(axis, "moment matching", crawls, rows[:, :, 0], root=True)
                yield averaged(axis, "maximum likelihood", crawls, rows[:, :, 1], root=True)
                yield averaged(axis, "bound of 90 %", crawls, rows[:, :, 2])


def errors(
    rng: np.random.Generator, rate: float, crawl_rate: float, crawls: int, equal: bool
) -> tuple[float, float, float]:
    """Return mean square errors of moment matching and maximum likelihood, and the mean published bound."""
    log = crawled(rng, rate, crawl_rate, (SAMPLE, crawls), equal)
    model = MomentMatching(BOUNDS).fit(log)
    likely = np.clip(MaximumLikelihood(smoothing=0).fit(log).change_rate_, *BOUNDS)
    one, other = (float(np.mean((each - rate) ** 2)) for each in (model.change_rate_, likely))
    return one, other, float(np.mean(model.error_bound(0.9)))


def curves(runs: int = 0, few: bool = False, seed: int = 0) -> Iterator[Curve]:
    """Yield every curve on learning to crawl."""
    many = max((500 if few else runs or 10_000) // 250, 2)
    if not few:
        yield from figure_1(seed, many)
        yield from figure_1_paper(seed, many)
        yield from figure_2(seed, many)
    yield from figures_3_and_4(np.random.default_rng([seed, 9]), max(many // 2, 2))


BENCH = measured_curves("learning_to_crawl", curves)

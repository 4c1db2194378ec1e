"""Solve times of harmonic staleness from 10² sources up, of freshopt and of others, and the figure of them.

Each method goes on to larger sizes, half a decade at a time, until the next solve would take longer than the
patience allows, judged by the growth of the last two, or until it has ended without rates twice in a row. A
line of the figure is one method.

Every rival takes change rates d, importances w and a bandwidth, and returns rates that minimise Σ w·log(1 +
d/ρ) with Σρ ≤ bandwidth. None uses freshopt. Each is written as its tool wants to be used: whole-array NumPy
with temporaries, a plain loop over floats, SciPy with gradients, CVXPY as the problem reads.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import minimize

import freshopt as fo
from benchmarks.harness import Record, seconds
from benchmarks.objectives import BUDGET
from freshopt.modelling.objective import Refresh
from freshopt.problems import HarmonicStaleness

BISECTIONS = 60  # of a bracket of 28 nats, to 2e-17
LOWEST = 1e-12  # of the price at which importance alone would use up the bandwidth

Rival = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


class NoRatesError(Exception):
    """A rival ended without rates."""


def numpy_bisection(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
    """Bisect the price, all sources at once: ρ(λ) = 2a/(1 + √(1 + 4a/d)) with a = w/λ."""
    high = w.sum() / bandwidth  # there Σρ ≤ Σw/λ = bandwidth
    low = LOWEST * high
    for _ in range(BISECTIONS):
        price = np.sqrt(low * high)
        a = w / price
        rates = 2.0 * a / (1.0 + np.sqrt(1.0 + 4.0 * a / d))
        if rates.sum() > bandwidth:
            low = price
        else:
            high = price
    return rates


def python_bisection(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
    """Bisect the price with a loop over the sources."""
    rows = list(zip(d.tolist(), w.tolist(), strict=True))
    high = sum(b for _, b in rows) / bandwidth
    low = LOWEST * high
    for _ in range(BISECTIONS):
        price = math.sqrt(low * high)
        used = 0.0
        for change_rate, importance in rows:
            a = importance / price
            used += 2.0 * a / (1.0 + math.sqrt(1.0 + 4.0 * a / change_rate))
        if used > bandwidth:
            low = price
        else:
            high = price
    worth = [(c, b / price) for c, b in rows]
    return np.array([2.0 * a / (1.0 + math.sqrt(1.0 + 4.0 * a / c)) for c, a in worth])


def slsqp(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
    """Give SciPy's SLSQP the cost, its gradient and one linear constraint."""
    found = minimize(
        lambda rates: float(np.sum(w * np.log1p(d / rates))),
        np.full(len(d), bandwidth / len(d)),
        jac=lambda rates: -w * d / (rates * (rates + d)),
        bounds=[(1e-9, None)] * len(d),
        constraints={
            "type": "ineq",
            "fun": lambda rates: bandwidth - rates.sum(),
            "jac": lambda rates: -np.ones_like(rates),
        },
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-9},
    )
    if not found.success:
        raise NoRatesError(found.message)
    return np.asarray(found.x)


def cone_program(backend: str) -> Rival:
    """Return CVXPY with a cone solver behind it: the declaration, compiled and solved."""

    def solve(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
        rates = cp.Variable(len(d), nonneg=True)
        staleness = cp.logistic(np.log(d) - cp.log(rates))
        program = cp.Problem(cp.Minimize(cp.sum(cp.multiply(w, staleness))), [cp.sum(rates) <= bandwidth])
        with warnings.catch_warnings():  # the gap tells what the answer is worth
            warnings.filterwarnings("ignore", message="Solution may be inaccurate", category=UserWarning)
            try:
                program.solve(solver=backend)
            except cp.SolverError as error:
                raise NoRatesError(f"{backend} failed") from error
        if rates.value is None:
            raise NoRatesError(f"{backend} said {program.status}")
        return np.asarray(rates.value)

    return solve


RIVALS: dict[str, Rival] = {
    "NumPy bisection": numpy_bisection,
    "pure Python": python_bisection,
    "SciPy SLSQP": slsqp,
    "CVXPY + CLARABEL": cone_program("CLARABEL"),
    "CVXPY + ECOS": cone_program("ECOS"),
}


ADD = "one NumPy addition"
ENOUGH = 2.0  # seconds after which a solve is not repeated
REPEATS = 7
FAILURES = 2  # in a row, that end a method
SHORT = 3000  # sources up to which a solve is done twice in a row: caches are cold after another method
FIRST = 100
PALETTE = 200  # colours of the figure; with 48 lines of two methods share one

Solve = Callable[[fo.Problem], float]


def harmonic(n: int) -> fo.Problem:
    """Return the problem with n sources of lognormal change rates and importances."""
    rng = np.random.default_rng(n)
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    return fo.Problem(HarmonicStaleness(Refresh.POISSON), fo.Sources(d, w), BUDGET * float(np.sum(d)))


def methods() -> dict[str, Solve]:
    """Return the lines of the figure: from a problem to seconds."""

    def alone(problem: fo.Problem) -> float:
        return fo.solve(problem, certify=False).seconds

    def certified(problem: fo.Problem) -> float:
        return seconds(lambda: fo.solve(problem))

    def without_compiling(problem: fo.Problem) -> float:
        os.environ["FRESHOPT_COMPILED"] = "0"
        try:
            return alone(problem)
        finally:
            del os.environ["FRESHOPT_COMPILED"]

    def addition(problem: fo.Problem) -> float:
        w, d = problem.sources.importance, problem.sources.change_rate
        out = np.zeros(len(w))
        return seconds(lambda: np.add(w, d, out=out))

    def rival(name: str) -> Solve:
        def timed(problem: fo.Problem) -> float:
            d, w = np.array(problem.sources.change_rate), np.array(problem.sources.importance)
            return seconds(lambda: RIVALS[name](d, w, problem.bandwidth))

        return timed

    found: dict[str, Solve] = {
        ADD: addition,
        "freshopt": alone,
        "freshopt, certified": certified,
        "freshopt, not compiled": without_compiling,
    }
    return found | {name: rival(name) for name in RIVALS}


def sizes(largest: int) -> Iterator[int]:
    """Yield 100, 316, 1000, ... up to the largest."""
    for k in range(4, 60):
        n = round(10 ** (k / 2))
        if n > largest:
            return
        yield n


def measure(largest: int, patience: float) -> list[dict[str, Any]]:
    """Time every method at every size that it manages, with so many seconds for one solve.

    Sizes are outside, so that methods are interleaved. A row has method, n, seconds; a method's last one may
    have a note in their place.
    """
    rows: list[dict[str, Any]] = []
    running = methods()
    taken: dict[str, list[float]] = {name: [] for name in running}
    failed: dict[str, int] = dict.fromkeys(running, 0)
    for n in sizes(largest):
        problem = harmonic(n)
        times: dict[str, list[float]] = {name: [] for name in running}
        notes = dict.fromkeys(running, "")
        for _ in range(REPEATS):
            for name, solve in running.items():
                if sum(times[name]) >= ENOUGH or notes[name]:
                    continue
                try:
                    times[name] += [solve(problem) for _ in range(1 + (n <= SHORT))]
                except NoRatesError as reason:
                    notes[name] = str(reason)
        for name, note in notes.items():
            least = None if note else min(times[name])
            rows.append({"method": name, "n": n, "seconds": least, "note": note})
            taken[name] += [] if least is None else [least]
            failed[name] = failed[name] + 1 if note else 0
        shown = (f"{name} {notes[name] or f'{taken[name][-1]:.2g}'}" for name in running)
        print(f"{n:>11,} sources, seconds: {'; '.join(shown)}", flush=True)
        running = {
            name: solve
            for name, solve in running.items()
            if failed[name] < FAILURES and _forecast(taken[name]) <= patience
        }
    return rows


def _forecast(taken: list[float]) -> float:
    """Return the seconds of the next size, from the growth of the last two; at least in proportion to n."""
    if len(taken) < 2:
        return 0.0
    return taken[-1] * max(taken[-1] / taken[-2], math.sqrt(10.0))


COLOURS = {
    "freshopt": "#0b6e4f",
    "freshopt, certified": "#0b6e4f",
    "freshopt, not compiled": "#0b6e4f",
    ADD: "#777777",
    "NumPy bisection": "#c1440e",
    "pure Python": "#8e5ea2",
    "SciPy SLSQP": "#b8860b",
    "CVXPY + CLARABEL": "#1f4e9e",
    "CVXPY + ECOS": "#3fa0d8",
}
STYLES = {"freshopt, certified": "--", "freshopt, not compiled": ":", ADD: "-."}


def draw(record: Record, path: Path) -> None:
    """Draw seconds over sources, both logarithmic, on a ground of its own that reads in the dark too."""
    from PIL import Image  # noqa: PLC0415

    rows = record["scaling"]
    figure = Figure(figsize=(8.0, 4.8), dpi=110, facecolor="white", layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.subplots()
    ends: list[tuple[float, float, str]] = []
    for name, colour in COLOURS.items():
        points = [(row["n"], row["seconds"]) for row in rows if row["method"] == name and row["seconds"]]
        if not points:
            continue
        own = name.startswith("freshopt")
        axes.loglog(
            *zip(*points, strict=True),
            color=colour,
            linestyle=STYLES.get(name, "-"),
            linewidth=2.4 if own else 1.5,
        )
        ends.append((math.log10(points[-1][0]), math.log10(points[-1][1]), name))
    for x, y, name in _apart(ends):
        axes.annotate(
            name,
            (10**x, 10**y),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=COLOURS[name],
            annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
        )
    largest = max(row["n"] for row in rows)
    decades = math.log10(largest / FIRST)
    axes.set_xlim(FIRST, largest * 10 ** (0.28 * decades))
    axes.set_xticks([FIRST * 10**k for k in range(int(decades + 0.01) + 1)])
    axes.minorticks_off()
    axes.set_xlabel("sources")
    axes.set_ylabel("seconds, one core")
    axes.set_title("Harmonic staleness: time to the optimal refresh rates", fontsize=11, pad=14)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(PALETTE, dither=Image.Dither.NONE).save(path, optimize=True)  # a third of the bytes


def _apart(ends: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Move labels up that would lie on another one: within 2.5 decades of n and a third of one of time."""
    placed: list[tuple[float, float, str]] = []
    for x, height, name in sorted(ends, key=lambda end: end[1]):
        y = height
        while any(abs(x - u) < 2.5 and abs(y - v) < 0.34 for u, v, _ in placed):
            y += 0.05
        placed.append((x, y, name))
    return placed

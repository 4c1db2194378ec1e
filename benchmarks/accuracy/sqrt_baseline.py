"""When rates ∝ √(importance × change rate) are as good as the optimum, and when they are not.

    python -m benchmarks sqrt_baseline [--data FOLDER] [--save]

The cost of `SquareRoot` above that of the optimum, both under the same change rates: those estimated from the
bundled histories (and from NAME.crawl_daily.parquet in FOLDER), or drawn. Costs are harmonic staleness and
the stale share at equal intervals. `STATEMENTS` were written before the first run, with what they predict and
over how many runs; they are left as they were, whether they held or not. --save writes
benchmarks/results/sqrt_baseline.json, docs/evidence/square-root.png and its tables of
docs/evidence/benchmarks.md; --page the last two from the saved results.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter
from scipy.special import ndtri

import freshopt as fo
from benchmarks.harness import ROOT, Claims, Measurement, Record, Row
from freshopt.datasets import load_example
from freshopt.modelling.objective import Refresh
from freshopt.planning.request import default_estimate
from freshopt.problems import Age, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import SquareRoot

Floats = npt.NDArray[np.float64]
BUNDLED = ("debian-uploads", "gstreamer-plugins")
PERIODIC = fo.Refresh.PERIODIC
OBJECTIVES: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(PERIODIC),
}
# Bandwidth over the sum of the change rates.
MODERATE, SCARCE = (1.0, 2.0, 4.0), 0.1
# Drawn sources of a run, draws of importances, signals or rates, and Pareto's exponent.
N, DRAWS, PARETO = 500, 20, 1.5
HOSTS = 10
# Of the map: bandwidth over the sum of change rates, and standard deviation of their logarithms.
MULTIPLES, SPREADS = np.geomspace(0.03, 30.0, 19), np.linspace(0.0, 3.6, 13)


class Statement(NamedTuple):
    """A prediction: the family it is about, and the band of the excess that it allows."""

    family: str
    words: str
    low: float
    high: float
    of: str  # "each": every run lies in the band; "mean": their mean does


STATEMENTS = (
    Statement("plain", "real logs, equal importances, no bounds, moderate bandwidth", 0.0, 0.02, "each"),
    Statement("drawn", "lognormal change rates (σ = 1.5), else the same", 0.0, 0.02, "each"),
    Statement("wide", "change rates over many decades (σ = 3), else the same", 0.0, 0.02, "each"),
    Statement("scarce", "bandwidth for a tenth of the changes, binary", 0.05, np.inf, "each"),
    Statement("importances", "Pareto(1.5) importances, all the bandwidths above 1", 0.0, 0.10, "mean"),
    Statement("bounds", "rates between a half and three times the mean rate", 0.0, 0.02, "each"),
    Statement(
        "hosts",
        "ten hosts, the fastest sources together, each a tenth of the bandwidth",
        0.02,
        np.inf,
        "each",
    ),
    Statement(
        "signals", "half of the sources announce their changes (Poisson refreshes)", 0.10, np.inf, "each"
    ),
    Statement("age", "the age of copies, whose rule is the cube root", 0.05, np.inf, "each"),
)


def excess(problem: fo.Problem) -> float:
    """Return by what share of the optimal cost the square-root rule costs more."""
    best, rule = fo.solve(problem, tolerance=1e-9), fo.solve(problem, SquareRoot(), certify=False)
    assert problem.numerics is not None
    own, least = (float(np.sum(problem.numerics.cost(each.rates))) for each in (rule, best))
    return own / least - 1.0


def histories(folder: Path | None) -> dict[str, Floats]:
    """Return the estimated change rates of each history."""
    logs = {name: load_example(name) for name in BUNDLED}
    for path in sorted(folder.glob("*.crawl_daily.parquet")) if folder else ():
        frame = pl.read_parquet(path).with_columns(pl.col("source").cast(pl.String))
        logs[path.name.split(".")[0]] = fo.CrawlLog.from_frame(frame)
    return {name: np.array(default_estimate(log).change_rate_) for name, log in logs.items()}


def cases(family: str, known: dict[str, Floats]) -> Iterator[tuple[str, str, float, fo.Problem]]:
    """Return the runs of a family: history, objective, bandwidth over Σ Δ, problem."""
    rng = np.random.default_rng(22)
    drawn = {"drawn": 1.5, "wide": 3.0}
    if family in drawn:
        known = {f"draw {k}": rng.lognormal(0.0, drawn[family], N) for k in range(DRAWS)}
    for name, rates in known.items():
        for kind, objective in OBJECTIVES.items():
            for multiple in (SCARCE,) if family == "scarce" else MODERATE:
                bandwidth, n = multiple * float(rates.sum()), len(rates)
                chosen, settings, limits, times = objective, {}, None, 1
                if family == "importances":
                    times = DRAWS
                elif family == "bounds":
                    settings = {"min_rate": 0.5 * bandwidth / n, "max_rate": 3.0 * bandwidth / n}
                elif family == "hosts":
                    host = np.empty(n, dtype=np.int64)
                    host[np.argsort(rates)] = np.arange(n) * HOSTS // n
                    settings, limits = {"host": host}, dict.fromkeys(range(HOSTS), bandwidth / HOSTS)
                elif family == "signals":
                    settings = {"signalled": rng.random(n) < 0.5}
                    chosen = (
                        HarmonicStaleness(Refresh.POISSON)
                        if kind == "harmonic"
                        else BinaryFreshness(Refresh.POISSON)
                    )
                elif family == "age":
                    chosen = Age(PERIODIC)
                if (family == "scarce" and kind != "binary") or (family == "age" and kind != "binary"):
                    continue
                for _ in range(times):
                    if family == "importances":
                        settings = {"importance": 1.0 + rng.pareto(PARETO, n)}
                    sources = fo.Sources(rates, **settings)
                    label = "age" if family == "age" else kind
                    yield name, label, multiple, fo.Problem(chosen, sources, bandwidth, limits)


def measure(data: Path | None = None) -> Record:
    """Return the runs, what became of each statement, and the map."""
    known = histories(data)
    runs, told = [], []
    for statement in STATEMENTS:
        found = [
            {"history": name, "objective": kind, "bandwidth": multiple, "excess": excess(problem)}
            for name, kind, multiple, problem in cases(statement.family, known)
        ]
        shares = np.array([run["excess"] for run in found])
        judged = shares if statement.of == "each" else np.array([shares.mean()])
        # Rounding: both costs are sums of float64.
        held = bool(np.all((judged >= statement.low - 1e-9) & (judged <= statement.high)))
        told.append(
            {
                "family": statement.family,
                "words": statement.words,
                "band": [statement.low, statement.high if np.isfinite(statement.high) else None],
                "of": statement.of,
                "runs": len(found),
                "least": float(shares.min()),
                "mean": float(shares.mean()),
                "largest": float(shares.max()),
                "held": held,
            }
        )
        print(f"{statement.family}: {told[-1]}", flush=True)
        if not found[0]["history"].startswith("draw"):
            runs += [{"family": statement.family, **run} for run in summed(found)]
    return {
        "statements": told,
        "runs": runs,
        "spreads": {name: float(np.std(np.log(rates))) for name, rates in known.items()},
        "map": regime_map(),
        "held_out": held_out(),
    }


def summed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean over draws of each history, objective and bandwidth."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for run in found:
        groups.setdefault((run["history"], run["objective"], run["bandwidth"]), []).append(run["excess"])
    keys = ("history", "objective", "bandwidth")
    return [
        {**dict(zip(keys, key, strict=True)), "excess": float(np.mean(each)), "draws": len(each)}
        for key, each in groups.items()
    ]


def regime_map() -> dict[str, Any]:
    """Return the excess over bandwidths and spreads, on quantiles of lognormal change rates."""
    normal = ndtri((np.arange(N) + 0.5) / N)
    weight = 1.0 + np.random.default_rng(1).pareto(PARETO, N)
    panels = {
        "harmonic, equal importances": (OBJECTIVES["harmonic"], 1.0),
        "stale share, equal importances": (OBJECTIVES["binary"], 1.0),
        "stale share, Pareto importances": (OBJECTIVES["binary"], weight),
    }
    found = {}
    for title, (objective, importance) in panels.items():
        found[title] = [
            [
                excess(fo.Problem(objective, fo.Sources(rates, importance), multiple * float(rates.sum())))
                for multiple in MULTIPLES
            ]
            for rates in (np.exp(spread * normal) for spread in SPREADS)
        ]
    return {"multiples": MULTIPLES.tolist(), "spreads": SPREADS.tolist(), "panels": found}


def held_out() -> list[dict[str, Any]]:
    """Return what the rule saves of the plan's realised cost in back-tests of the bundled histories."""
    rows = []
    for name in BUNDLED:
        log = load_example(name)
        total = float(np.sum(default_estimate(log).change_rate_))
        for row in fo.backtest(log, [multiple * total for multiple in MODERATE]).means:
            if row.policy == "∝ √(w·Δ)":
                saved = {"saving": row.saving, "error": row.saving_error}
                rows.append({"history": name, "bandwidth": row.bandwidth / total, **saved})
    return rows


def draw(saved: Record, path: Path) -> None:
    """Draw the regime map with the real histories on it."""
    matplotlib.use("Agg")

    plt.style.use(ROOT / "notebooks" / "freshopt.mplstyle")
    panels = saved["map"]["panels"]
    figure, axes = plt.subplots(1, len(panels), figsize=(12.0, 4.2), sharey=True, layout="constrained")
    scale, shown = LogNorm(0.1, 100.0), None
    for axis, (title, excesses) in zip(axes, panels.items(), strict=True):
        percent = np.clip(100.0 * np.array(excesses), 0.1, 100.0)
        shown = axis.pcolormesh(
            saved["map"]["multiples"],
            saved["map"]["spreads"],
            percent,
            norm=scale,
            cmap="YlOrRd",
            shading="gouraud",
        )
        lines = axis.contour(
            saved["map"]["multiples"],
            saved["map"]["spreads"],
            percent,
            levels=[2.0, 10.0],
            colors="black",
            linewidths=[1.6, 0.8],
        )
        axis.clabel(lines, fmt=lambda value: f"{value:g} %")
        kind = "harmonic" if title.startswith("harmonic") else "binary"
        family = "importances" if "Pareto" in title else "plain"
        for marker, (name, spread) in zip("osD^", saved["spreads"].items(), strict=False):
            own = [
                run
                for run in saved["runs"]
                if (run["family"], run["history"], run["objective"]) == (family, name, kind)
            ]
            axis.scatter(
                [run["bandwidth"] for run in own],
                [spread] * len(own),
                c=[max(100.0 * run["excess"], 0.1) for run in own],
                norm=scale,
                cmap="YlOrRd",
                marker=marker,
                edgecolors="black",
                s=50,
                label=name,
                zorder=3,
            )
        axis.set(xscale="log", title=title, xlabel="bandwidth over the sum of the change rates")
    axes[0].set_ylabel("spread: std. deviation of log change rate")
    axes[0].legend(loc="upper right", fontsize=8, title="real histories", frameon=True)
    bar = figure.colorbar(shown, ax=axes, label="cost of the √ rule above the optimum")
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def share(value: float) -> str:
    """Return a share in percent, as the tables have it."""
    return f"{100.0 * value:.3g}" if value < 10.0 else f"{100.0 * value:.0f}"


def claims(record: Record) -> Claims:
    """Yield that statements were judged by their bands, and what the page says."""
    for row, one in zip(record["statements"], STATEMENTS, strict=True):
        band = [one.low, one.high if np.isfinite(one.high) else None]
        yield f"{one.family}: the band {band} is that of the statement", row["band"] == band
        least, most = (row["least"], row["largest"]) if one.of == "each" else (row["mean"], row["mean"])
        yield (
            f"{one.family}: {least} to {most}",
            row["held"] == (least >= one.low - 1e-9 and most <= one.high),
        )
        yield f"{one.family}: {row['runs']} runs", row["runs"] >= 2 and row["family"] == one.family
    yield "not all hold", not all(row["held"] for row in record["statements"])
    if len(record["spreads"]) < 4:
        return
    # What the page says is of the histories that are not bundled, too.
    rows = {row["family"]: row for row in record["statements"]}
    yield "four histories", all(row["runs"] >= 4 for row in record["statements"])
    for family, low, high in (("scarce", 0.155, 0.325), ("age", 0.115, 0.485)):
        least, most = rows[family]["least"], rows[family]["largest"]
        yield f"{family}: {least:.3f} to {most:.3f}", low < least <= most < high
    yield f"signals: {rows['signals']['largest']:.3f}", 0.12 < rows["signals"]["largest"] < 0.13
    worst: dict[tuple[str, float], float] = {}
    for run in (run for run in record["runs"] if run["family"] == "plain"):
        key = run["objective"], run["bandwidth"]
        worst[key] = max(worst.get(key, 0.0), run["excess"])
    yield f"harmonic staleness: {worst}", max(worst["harmonic", each] for each in MODERATE) < 0.0125
    yield f"stale share: {worst}", 0.06 < worst["binary", 1.0] < 0.07
    yield f"of more bandwidth: {worst}", worst["binary", 2.0] > 0.02 > worst["binary", 4.0]


def statements(record: Record) -> Iterator[Row]:
    """Yield the statements with their bands in words."""
    for row in record["statements"]:
        low, high = row["band"]
        band = f"at least {share(low)}" if high is None else f"at most {share(high)}"
        numbers = {key: share(max(row[key], 0.0)) for key in ("least", "mean", "largest")}
        yield row | numbers | {"predicted": band + " on average" * (row["of"] == "mean")}


def real(record: Record) -> Iterator[Row]:
    """Yield the plain family by history, a key for each objective and bandwidth."""
    for name, spread in record["spreads"].items():
        own = (run for run in record["runs"] if (run["family"], run["history"]) == ("plain", name))
        cells = {f"{run['objective']}, {run['bandwidth']:g}": share(run["excess"]) for run in own}
        tested = [row for row in record["held_out"] if row["history"] == name and row["bandwidth"] < 1.5]
        told = (f"{-100.0 * row['saving']:.1f} ± {100.0 * row['error']:.1f}" for row in tested)
        yield {"history": name, "spread": spread, "held out": next(told, "–"), **cells}


BENCH = Measurement(
    {"": measure},
    facts=("seconds",),
    rows={"statements": statements, "real": real},
    pictures={"docs/evidence/square-root.png": draw},
    claims=claims,
)

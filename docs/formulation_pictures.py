"""The pictures of the twelve formulations, each from the problems that its blocks leave behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness

POISSON = fo.Refresh.POISSON
STYLE = Path(__file__).resolve().parents[1] / "notebooks" / "freshopt.mplstyle"
BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#B8B8B8"
TIERS = ("news", "blog", "docs")
REGIONS = ("eu", "us", "asia")
Names = dict[str, Any]


def draw(name: str, names: Names, path: Path) -> None:
    """Draw one picture into a PNG file."""
    with plt.style.context(str(STYLE)):
        figure, axes = plt.subplots(figsize=(6.4, 3.2))
        DRAWN[name](axes, names)
        figure.savefig(path, dpi=130, metadata={"Software": ""})
        plt.close(figure)


def used(rates: np.ndarray, groups: np.ndarray, names: tuple[str, ...], cost: Any = 1.0) -> list[float]:  # noqa: ANN401
    """Return Σ cost·rate of each group."""
    return [float(np.sum((cost * rates)[groups == name])) for name in names]


def fresh_share(names: Names, solution: fo.Solution) -> list[float]:
    """Return the percentage of each tier's requests that find a fresh copy."""
    rates, requests = solution.rates, names["requests"]
    fresh = requests * rates / (rates + names["change_rate"])
    return [100 * fresh[names["tier"] == t].sum() / requests[names["tier"] == t].sum() for t in TIERS]


def tangent(axes: Axes, x: np.ndarray, at: tuple[float, float], slope: float, text: str) -> None:
    """Draw a dot and the line through it whose slope is a price."""
    line = at[1] + slope * (x - at[0])
    axes.plot(x, line, color=RED, linestyle="--", linewidth=1.2)
    axes.plot(*at, "o", color=RED, markersize=6)
    axes.annotate(text, at, xytext=(10, -16), textcoords="offset points", color=RED, fontsize=8.5)


def two_budgets(axes: Axes, names: Names) -> None:
    limits, problem = np.linspace(6.0, 34.0, 29), names["problem"]
    values = [fo.solve(_with_limit(problem, 1, limit)).value for limit in limits]
    axes.plot(limits, values, color=BLUE)
    solution = names["solution"]
    price = solution.prices["megabytes"]
    tangent(
        axes, np.array([14.0, 26.0]), (20.0, solution.value), price, f"slope {price:.2f}, the price of a MB"
    )
    axes.set(xlabel="megabytes a day allowed", ylabel="fresh requests a day")


def _with_limit(problem: fo.Problem, place: int, limit: float) -> fo.Problem:
    constraints = list(problem.constraints)
    constraints[place] = replace(constraints[place], limit=limit)
    return fo.Problem(problem.objective, problem.sources, constraints=constraints)


def regions(axes: Axes, names: Names) -> None:
    solution, links = names["solution"], names["links"]
    free = fo.solve(fo.Problem(BinaryFreshness(POISSON), names["sources"], bandwidth=40.0))
    x = np.arange(3)
    for shift, rates, colour, label in (
        (-0.2, free.rates, GREY, "no links"),
        (0.2, solution.rates, BLUE, "with links"),
    ):
        axes.bar(
            x + shift,
            used(rates, names["region"], REGIONS, names["megabytes"]),
            0.36,
            color=colour,
            label=label,
        )
    for k, name in enumerate(REGIONS):
        axes.plot([k - 0.45, k + 0.45], [links[name]] * 2, color=RED, label="limit" if k == 0 else None)
        text = f"price {solution.prices[f'link[{name}]']:.2f}"
        axes.text(k + 0.2, links[name] - 0.7, text, ha="center", va="top", color="white", fontsize=8.5)
    axes.set_xticks(x, REGIONS)
    axes.set(ylabel="megabytes a day")
    above(axes)


def nested(axes: Axes, names: Names) -> None:
    solution, tree = names["solution"], names["tree"]
    free = fo.solve(fo.Problem(BinaryFreshness(POISSON), names["sources"], bandwidth=40.0))
    groups = [
        ("host 4", "host"),
        ("host 6", "host"),
        ("a.org", "domain"),
        ("d.com", "domain"),
        ("press", "owner"),
    ]
    for k, (name, level) in enumerate(groups):
        own = names[level] == name
        axes.barh(k + 0.2, free.rates[own].sum(), 0.36, color=GREY, label="no limits" if k == 0 else None)
        axes.barh(
            k - 0.2, solution.rates[own].sum(), 0.36, color=BLUE, label="with limits" if k == 0 else None
        )
        reserve = name in tree.at_least
        limit = (tree.at_least if reserve else tree.at_most)[name]
        price = solution.prices[f"nested{' reserve' if reserve else ''}[{name}]"]
        shown = {"host 4": "limit", "d.com": "reserve"}.get(name)
        axes.plot([limit] * 2, [k - 0.42, k + 0.42], color=GREEN if reserve else RED, label=shown)
        right = max(limit, free.rates[own].sum()) + 0.4
        axes.text(right, k, f"price {price:.2f}", va="center", fontsize=8.5)
    axes.set_yticks(
        range(len(groups)), [f"{level} {name}".replace("host host", "host") for name, level in groups]
    )
    axes.set(xlabel="refreshes a day", xlim=(0, 28))
    axes.grid(visible=False, axis="y")
    axes.legend(loc="lower right")


def above(axes: Axes) -> None:
    """Put the legend above the axes."""
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)


def label_heights(axes: Axes, bars: Any, colour: str) -> None:  # noqa: ANN401
    """Write the heights of bars into them."""
    text = "black" if colour == GREY else "white"
    axes.bar_label(bars, fmt="%.0f", fontsize=8.5, label_type="center", color=text)


def paired(axes: Axes, pairs: list[tuple[str, list[float], str]], ylabel: str) -> None:
    """Draw bars of each tier side by side, with their heights."""
    wide = 0.8 / len(pairs)
    for j, (label, heights, colour) in enumerate(pairs):
        x = np.arange(3) + (j - 0.5 * (len(pairs) - 1)) * wide
        bars = axes.bar(x, heights, 0.92 * wide, color=colour, label=label)
        label_heights(axes, bars, colour)
    axes.set_xticks(range(3), TIERS)
    axes.set(ylabel=ylabel, ylim=(0, 100))
    above(axes)


def floors(axes: Axes, names: Names) -> None:
    before, after = fresh_share(names, names["without"]), fresh_share(names, names["solution"])
    paired(axes, [("without", before, GREY), ("with floors", after, BLUE)], "fresh requests, %")
    for k, tier in enumerate(TIERS):
        if tier in names["floors"].at_least:
            level = 100 * names["floors"].at_least[tier]
            axes.plot([k - 0.45, k + 0.45], [level] * 2, color=RED, label="floor" if k == 0 else None)
    above(axes)


def cheapest(axes: Axes, names: Names) -> None:
    shares, solution = np.linspace(0.4, 0.92, 27), names["solution"]
    least = []
    for share in shares:
        target = fo.Target(BinaryFreshness(POISSON), at_least=share)
        least.append(fo.solve(fo.Problem(fo.Spend(), names["sources"], constraints=[target])).value)
    axes.plot(100 * shares, least, color=BLUE)
    price = solution.prices["fresh"] / 100
    tangent(
        axes,
        np.array([70.0, 89.0]),
        (80.0, solution.value),
        price,
        f"{price:.2f} refreshes a day\nper percentage point",
    )
    axes.set(xlabel="requests that are to find a fresh copy, %", ylabel="refreshes a day, at least")


def age(axes: Axes, names: Names) -> None:
    days, requests = np.linspace(0.0, 6.0, 121), names["requests"]
    for label, solution, colour in (
        ("without the rule", names["without"], GREY),
        ("with it", names["solution"], BLUE),
    ):
        older = 100 * np.exp(-np.outer(days, solution.rates)) @ requests / requests.sum()
        axes.semilogy(days, older, color=colour, label=label)
    axes.plot([0.0, 3.0, 3.0], [1.0, 1.0, 0.06], color=RED, linestyle="--", linewidth=1.0)
    axes.plot(3.0, 1.0, "o", color=RED, markersize=6)
    axes.annotate(
        "1 % at 3 days",
        (3.0, 1.0),
        xytext=(-8, -14),
        textcoords="offset points",
        ha="right",
        color=RED,
        fontsize=8.5,
    )
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set(xlabel="age of the copy, days", ylabel="requests that find it older, %", ylim=(0.06, 120))
    axes.legend()


def front(axes: Axes, names: Names) -> None:
    delay = fo.solve(fo.Problem(AccumulatedDelay(POISSON), names["sources"], bandwidth=40.0))
    stale = fo.solve(fo.Problem(HarmonicStaleness(POISSON), names["sources"], bandwidth=40.0))
    total, change_rate = names["requests"].sum(), names["change_rate"]
    least = stale.value / total
    most = names["requests"] @ np.log1p(change_rate / delay.rates) / total
    levels = least + (most - least) * np.linspace(0.01, 1.0, 40) ** 2
    values = []
    for level in levels:
        limit = fo.Target(HarmonicStaleness(POISSON), at_most=level)
        values.append(
            fo.solve(fo.Problem(AccumulatedDelay(POISSON), names["sources"], 40.0, constraints=[limit])).value
        )
    axes.plot(levels, values, color=BLUE)
    solution = names["solution"]
    price = solution.prices["staleness"]
    tangent(axes, np.array([0.4715, 0.4795]), (0.475, solution.value), -price, "")
    axes.annotate(
        f"slope −{price:.0f}",
        (0.475, solution.value),
        xytext=(10, 8),
        textcoords="offset points",
        color=RED,
        fontsize=8.5,
    )
    axes.plot(most, delay.value, "o", color=GREY, markersize=6)
    axes.annotate(
        "least delay",
        (most, delay.value),
        xytext=(-4, 9),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )
    axes.set(xlabel="mean harmonic staleness, at most", ylabel="accumulated delay")


def fairest(axes: Axes, names: Names) -> None:
    sums = fo.solve(fo.Problem(BinaryFreshness(POISSON), names["polite"], bandwidth=36.0))
    plans = [
        ("best sum", sums, GREY),
        ("minimax", names["solution"], BLUE),
        ("leximin", names["leximin"], GREEN),
    ]
    paired(
        axes,
        [(label, fresh_share(names, plan), colour) for label, plan, colour in plans],
        "fresh requests, %",
    )


def tied(axes: Axes, names: Names) -> None:
    tied_rates, free = names["solution"].rates, names["without"].rates
    order = np.argsort(-tied_rates[::5], kind="stable")
    for place, k in enumerate(order):
        own = slice(5 * k, 5 * k + 5)
        axes.plot(
            place + np.linspace(-0.25, 0.25, 5),
            free[own],
            "o",
            color=GREY,
            label="pages alone" if place == 0 else None,
        )
        axes.plot(
            [place - 0.35, place + 0.35],
            [tied_rates[5 * k]] * 2,
            color=BLUE,
            linewidth=2.5,
            label="its sitemap" if place == 0 else None,
        )
    axes.set_xticks(range(12), [str(k) for k in order])
    axes.set(xlabel="host", ylabel="refreshes a day")
    axes.grid(visible=False, axis="x")
    axes.legend()


def ratios(axes: Axes, names: Names) -> None:
    child, parent = np.flatnonzero(names["parent"] >= 0), names["parent"]
    for label, rates, style in (
        ("without", names["without"].rates, {"color": GREY, "marker": "x"}),
        ("with the limit", names["solution"].rates, {"color": BLUE, "marker": "o", "s": 16}),
    ):
        axes.scatter(rates[parent[child]], rates[child], label=label, **style)
    most = 1.05 * max(
        names["solution"].rates[parent[child]].max(), names["without"].rates[parent[child]].max()
    )
    top = 1.08 * names["without"].rates[child].max()
    axes.plot([0.0, most], [0.0, 2.0 * most], color=RED, label="twice the parent's")
    axes.set(
        xlabel="parent's refreshes a day",
        ylabel="page's refreshes a day",
        xlim=(-0.02, most),
        ylim=(-0.05, top),
    )
    above(axes)


def plain(axes: Axes, names: Names) -> None:
    x = np.arange(3)
    for shift, label, rates, colour in (
        (-0.2, "without", names["without"].rates, GREY),
        (0.2, "with the rules", names["solution"].rates, BLUE),
    ):
        share = 100 * np.array(used(rates, names["region"], REGIONS)) / rates.sum()
        bars = axes.bar(x + shift, share, 0.36, color=colour, label=label)
        label_heights(axes, bars, colour)
    axes.plot([0.55, 1.45], [25.0, 25.0], color=RED, label="quarter for us")
    axes.set_xticks(x, REGIONS)
    axes.set(ylabel="refreshes, % of all")
    above(axes)


def infeasible(axes: Axes, names: Names) -> None:
    limits, shares = np.concatenate([np.linspace(2.0, 40.0, 20), np.linspace(45.0, 130.0, 18)]), []
    news = np.where(names["tier"] == "news", names["requests"], 0.0)
    readers = fo.Sources(names["change_rate"], importance=news)
    for limit in limits:
        budget = fo.Budget(limit, cost=names["megabytes"], name="megabytes")
        shares.append(
            100
            * fo.solve(fo.Problem(BinaryFreshness(POISSON), readers, constraints=[budget])).value
            / news.sum()
        )
    axes.fill_between(limits, shares, color=BLUE, alpha=0.15)
    axes.plot(limits, shares, color=BLUE)
    axes.text(70, 38, "possible", color=BLUE)
    enough, most = names["conflict"].sufficient
    for to, number in (
        ((enough, 80.0), f"{enough:.3g} MB"),
        ((20.0, 100 * most), f"{np.floor(1000 * most) / 10:.1f} %"),
    ):
        axes.annotate("", to, (20.0, 80.0), arrowprops={"arrowstyle": "->", "color": RED})
        axes.annotate(number, to, xytext=(8, -13), textcoords="offset points", fontsize=8.5, color=RED)
    axes.set(
        xlabel="megabytes a day allowed", ylabel="fresh requests for news, %", ylim=(0, 100), xlim=(0, 130)
    )


DRAWN: dict[str, Callable[[Axes, Names], None]] = {
    "two-budgets": two_budgets,
    "regions": regions,
    "nested": nested,
    "floors": floors,
    "cheapest": cheapest,
    "age": age,
    "front": front,
    "fairest": fairest,
    "tied": tied,
    "ratios": ratios,
    "plain": plain,
    "infeasible": infeasible,
}

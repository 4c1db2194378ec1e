"""Measure which policies real histories reward: plan, weekly re-planning, simple rules, hindsight.

    python -m benchmarks policies [--data FOLDER] [--seeds 3] [--save]

FOLDER holds NAME.events.parquet (source, time in days, kind 1 for a change) and NAME.sources.parquet
(source, start and stop in days); without it the bundled histories alone are measured. A log of m crawls per
source, and a first one, ends at a split, its gaps are exponential with mean 7 days, its outcomes changed or
not. Sources are those alive from before their first crawl until the end of the test; in each run up to 300 of
them are drawn anew (bootstrap), with Pareto(1.5) importances.

Policies are held against the true changes of the next 26 mean gaps (`freshopt.planning.policies`).
The gain is the share of the way from the plan to the best static plan in hindsight, means over mean refresh
gaps of 7/4, 7 and 28 days, binary freshness and harmonic staleness, splits and seeds; ± is the standard error
over splits and seeds, each a paired difference. "Smoothing 0.5" is the plan of maximum likelihood with the
papers' pseudo-observation in place of the learnt prior. "Reachable" is how far knowing every rate would go,
as hindsight also knows the draws: rates are drawn from the posterior, changes of the window from the rates,
and the plan and that of the drawn rates are held against these. "Phased" is the plan at good hours of the
week where the log shows a cycle, and the plan itself elsewhere: its gain is 0 there.

Bands stated before the run: weekly re-planning from logs of 5 crawls gains 20 or more on scoop and on eol;
smoothing 0.5 on eol at 2 crawls, binary, gains -200 or less. The run prints which of them hold. Its picture
is docs/evidence/policies.png.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import GAP, HISTORIES, TEST, Floats, History, bundled, read, sampled
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.objectives import AT_EQUAL_GAPS as OBJECTIVES
from freshopt.datasets.change_histories import EXAMPLES
from freshopt.estimators import MaximumLikelihood
from freshopt.planning import measured, policies
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.plan import estimated_sources
from freshopt.planning.plan_steps import problem_of
from freshopt.planning.policies import policies_in
from freshopt.planning.policy_cost import PolicyCost, mean_row
from freshopt.planning.static_rates import at_rates, hindsight_rates
from freshopt.planning.wishes import Wishes

BUNDLED = tuple(EXAMPLES)
MOST = 300  # sources
CRAWLS = (2, 5, 20, 100)
MOST = 300  # sources
SPLITS = (0.6, 0.8)  # of the record
SMOOTHED = "smoothing 0.5"
PHASED = policies.PHASED
SHOWN = (policies.REPLANNED, PHASED, policies.SQUARE_ROOT, policies.UNIFORM, policies.PROPORTIONAL, SMOOTHED)
# Stated before the run: history, crawls, objective or both, policy, at least or at most, percent of the gap.
BANDS = (
    ("scoop_packages", 5, "", policies.REPLANNED, ">=", 20.0),
    ("eol_releases", 5, "", policies.REPLANNED, ">=", 20.0),
    ("eol_releases", 2, "binary", SMOOTHED, "<=", -200.0),
)


def window_of(
    history: History, split: float, crawls: int, rng: np.random.Generator
) -> tuple[HeldOutWindow, Floats] | None:
    """Return a log of crawls before a split with the changes after it, and importances."""
    end = split + TEST * GAP
    made = sampled(history, split, end, crawls, MOST, rng)
    if made is None:
        return None
    log, world, weight = made
    return HeldOutWindow.of(log, world, split, end), weight


def reachable(window: HeldOutWindow, request: Wishes, bandwidths: list[float], seed: int) -> list[float]:
    """Share of the way to hindsight that the true rates go in simulated changes, at each bandwidth."""
    estimate, sources = estimated_sources(window.past, request)
    rates = np.asarray(estimate.draws(1, seed)).reshape(-1)
    rng = np.random.default_rng([seed, 7])
    begin = min(window.begin - 4.0 * (window.end - window.begin), float(window.world.start.min()))
    many = rng.poisson(np.minimum(rates, 100.0) * (window.end - begin))
    names = np.arange(len(rates))
    world = fo.World.from_events(
        {"source": np.repeat(names, many), "time": rng.uniform(begin, window.end, many.sum())},
        names=names,
        start=begin,
        horizon=window.end,
    )
    drawn = HeldOutWindow.of(window.past, world, window.begin, window.end)
    true = fo.Sources(rates, sources.importance, names=sources.names)
    found = []
    for bandwidth in bandwidths:
        problem = problem_of(request, sources, bandwidth)
        tried = (
            fo.solve(problem).rates,
            fo.solve(problem_of(request, true, bandwidth)).rates,
            hindsight_rates(drawn, request.objective, problem),
        )
        plan, known, best = (
            row_of(drawn, request, at_rates(drawn, request, problem, each, bandwidth)).realised
            for each in tried
        )
        found.append(100.0 * (plan - known) / (plan - best))
    return found


def row_of(window: HeldOutWindow, request: Wishes, conduct: measured.Conduct, name: str = "") -> PolicyCost:
    """Return what a policy cost in a window; costs are compared, whatever the objective's sense."""
    importance = request.importance
    weight = np.ones(len(window.span)) if importance is None else importance(window.past.names)
    found = measured.measure(name, window, request.objective, weight, conduct)
    return mean_row([found], None, maximised=False)


def smoothed(log: fo.CrawlLog) -> MaximumLikelihood:
    """Return the estimator of the papers' pseudo-observation, fitted."""
    return MaximumLikelihood(smoothing=0.5).fit(log)


def run(window: HeldOutWindow, weight: Floats, seed: int) -> dict[str, dict[str, list[float]]]:
    """Gains of the policies in one window: objective → policy → at each mean refresh gap."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, objective in OBJECTIVES.items():
        cells: dict[str, list[float]] = {}
        bandwidths = [len(weight) / gap for gap in (GAP / 4, GAP, 4 * GAP)]
        request = Wishes(objective, bandwidths[0], 1.0, importance=lambda _: weight, seed=seed)
        told = [
            mean_row([one], None, maximised=False) for one in policies_in(window, request, bandwidths, GAP)
        ]
        papers = Wishes(objective, bandwidths[0], 1.0, lambda _: weight, estimator=smoothed)
        _, sources = estimated_sources(window.past, papers)
        known = dict(zip(bandwidths, reachable(window, request, bandwidths, seed), strict=True))
        for bandwidth in bandwidths:
            rows = {row.policy: row for row in told if row.bandwidth == bandwidth}
            problem = problem_of(papers, sources, bandwidth)
            rates = fo.solve(problem).rates
            guess = sources.change_rate[:, None], np.ones((len(rates), 1))
            conduct = at_rates(window, papers, problem, rates, bandwidth, guess)
            rows[SMOOTHED] = row_of(window, papers, conduct, SMOOTHED)
            plan = rows[policies.PLAN]
            best = rows[policies.HINDSIGHT].realised
            gap_to_best = plan.realised - best
            rows.setdefault(PHASED, plan)
            cells.setdefault("cycle", []).append(100.0 * (rows[PHASED] is not plan))
            for policy in SHOWN:
                saved = plan.realised - rows[policy].realised
                cells.setdefault(policy, []).append(100.0 * saved / gap_to_best)
                cells.setdefault(f"{policy}, of the cost", []).append(100.0 * saved / plan.realised)
            cells.setdefault("reachable", []).append(known[bandwidth])
            cells.setdefault("gap", []).append(100.0 * gap_to_best / plan.realised)
            cells.setdefault("ratio", []).append(plan.realised / (plan.predicted or np.nan))
            cells.setdefault("ratio, smoothed", []).append(
                rows[SMOOTHED].realised / (rows[SMOOTHED].predicted or np.nan)
            )
        found[name] = cells
    return found


def measure(name: str, history: History, crawls: int, seeds: int) -> Row | None:
    """Gains of one history for logs of so many crawls."""
    runs = []
    for number, part in enumerate(SPLITS):
        split = min(part * history.end, history.end - TEST * GAP)
        for seed in range(seeds):
            rng = np.random.default_rng([number, crawls, seed])
            made = window_of(history, split, crawls, rng)
            if made is not None:
                runs.append(run(*made, seed))
    if not runs:
        return None
    row: dict[str, Any] = {"history": name, "crawls": crawls, "runs": len(runs)}
    for key in runs[0]["binary"]:
        table = np.array([[one[objective][key] for objective in OBJECTIVES] for one in runs])
        each = table.mean(axis=(1, 2))
        error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else None
        row[key] = {
            "mean": float(each.mean()),
            "error": error,
            **{name: table[:, k].mean(axis=0).tolist() for k, name in enumerate(OBJECTIVES)},
        }
    return row


def bands(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return which of the stated bands hold."""
    found = []
    for history, crawls, objective, policy, sign, limit in BANDS:
        for row in rows:
            if (row["history"], row["crawls"]) == (history, crawls):
                told = row[policy]
                value = float(np.mean(told[objective])) if objective else told["mean"]
                holds = value >= limit if sign == ">=" else value <= limit
                names = {"history": history, "crawls": crawls, "objective": objective, "policy": policy}
                found.append(names | {"band": f"{sign} {limit:g}", "value": value, "holds": bool(holds)})
    return found


def draw(found: Record, path: Path) -> None:
    """Draw the gains by the length of the log, a panel a history."""
    mpl.use("Agg")

    names = list(dict.fromkeys(row["history"] for row in found["rows"]))
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.0), sharey=True, squeeze=False)
    shown = {policies.REPLANNED: "re-planned weekly", PHASED: "at good hours"}
    shown |= {policies.UNIFORM: "uniform", SMOOTHED: SMOOTHED}
    for axis, name in zip(axes[0], names, strict=True):
        rows = [row for row in found["rows"] if row["history"] == name]
        crawls = [row["crawls"] for row in rows]
        for policy, label in shown.items():
            means = [row[policy]["mean"] for row in rows]
            errors = [row[policy]["error"] or 0.0 for row in rows]
            axis.errorbar(crawls, means, errors, marker="o", markersize=3, capsize=2, label=label)
        axis.axhline(0.0, color="0.6", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_xticks(crawls, [str(each) for each in crawls])
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("crawls per source")
        axis.set_yscale("symlog", linthresh=50.0)
        axis.set_ylim(-1000.0, 110.0)
        ticks = (-1000, -300, -100, -50, -25, 0, 25, 50, 100)
        axis.set_yticks(ticks, [f"{each}".replace("-", "−") for each in ticks], fontsize=8)
        axis.minorticks_off()
    axes[0][0].set_ylabel("gain over the plan,\n% of the gap to hindsight")
    figure.tight_layout(rect=(0.0, 0.08, 1.0, 1.0))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncols=len(shown), fontsize=8)
    figure.savefig(path, dpi=130)


def run_all(data: Path | None = None, seeds: int = 3) -> Record:
    """Return the gains of each history and length of a log, and the bands."""
    rows = []
    for name in (*(HISTORIES if data else ()), *BUNDLED):
        history = read(data, name) if name in HISTORIES and data else bundled(name)
        for crawls in CRAWLS:
            row = measure(name, history, crawls, seeds)
            if row is None:
                print(f"{name}, {crawls} crawls: fewer than 30 sources with so long a record")
                continue
            rows.append(row)
            print({key: row[key]["mean"] for key in (*SHOWN, "ratio")} | {"history": name, "crawls": crawls})
    return {"rows": rows, "bands": bands(rows)}


def claims(record: Record) -> Claims:
    """Yield the bands that were stated."""
    yield "the bands are judged by the rows", record["bands"] == bands(record["rows"])
    for each in record["bands"]:
        yield f"{each['history']}, {each['policy']} {each['band']}: {each['value']:.0f}", each["holds"]


def gains(record: Record) -> Iterator[Row]:
    """Yield means with their errors."""
    for row in record["rows"]:
        told = {key: each for key, each in row.items() if isinstance(each, dict)}
        errors = {key: "" if x["error"] is None else f" ± {x['error']:.0f}" for key, x in told.items()}
        yield row | {key: f"{round(x['mean'])}{errors[key]}".replace("-", "−") for key, x in told.items()}


def stated(record: Record) -> Iterator[Row]:
    """Yield the bands as the page has them."""
    for each in record["bands"]:
        where = ", ".join(filter(None, (each["history"], f"{each['crawls']} crawls", each["objective"])))
        signs = str.maketrans({"-": "−"})
        band = each["band"].replace(">=", "≥").replace("<=", "≤").translate(signs)
        yield each | {"stated": f"{where}: {each['policy']} {band}"}


BENCH = Measurement(
    {"": run_all},
    {"seeds": 1},
    ("python", "seconds", "seeds"),
    rows={"gains": gains, "bands": stated},
    pictures={"docs/evidence/policies.png": draw},
    claims=claims,
)

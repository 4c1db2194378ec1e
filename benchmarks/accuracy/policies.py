"""Measure which policies real histories reward: plan, weekly re-planning, simple rules, hindsight.

    python benchmarks/accuracy/policies.py [--data FOLDER] [--seeds 3] [--save]

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
smoothing 0.5 on eol at 2 crawls, binary, gains -200 or less. The run prints which of them hold.

--save keeps benchmarks/results/policies.json, draws docs/policies.png and writes the tables of
docs/backtest.md; --page does the latter two alone, from the saved run.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.datasets.change_histories import EXAMPLES
from freshopt.estimators import MaximumLikelihood
from freshopt.planning import measured, policies
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.hindsight import hindsight_rates
from freshopt.planning.plan import estimated_sources
from freshopt.planning.plan_steps import problem_of
from freshopt.planning.policies import policies_in
from freshopt.planning.policy_cost import PolicyCost, mean_row
from freshopt.planning.request import PlanRequest
from freshopt.planning.static_rates import at_rates
from freshopt.problems import BinaryFreshness, HarmonicStaleness

ROOT = Path(__file__).resolve().parents[2]
SAVED, PAGE = ROOT / "benchmarks" / "results" / "policies.json", ROOT / "docs" / "backtest.md"
PICTURE = ROOT / "docs" / "policies.png"
HISTORIES = ("eol_releases", "scoop_packages")
BUNDLED = tuple(EXAMPLES)
GAP, TEST, MOST = 7.0, 26, 300  # days; mean gaps in the test window; sources
CRAWLS = (2, 5, 20, 100)
SPLITS = (0.6, 0.8)  # of the record
PERIODIC = fo.Refresh.PERIODIC
OBJECTIVES = {"binary": BinaryFreshness(PERIODIC), "harmonic": HarmonicStaleness(PERIODIC)}
SMOOTHED = "smoothing 0.5"
PHASED = policies.PHASED
SHOWN = (policies.REPLANNED, PHASED, policies.SQUARE_ROOT, policies.UNIFORM, policies.PROPORTIONAL, SMOOTHED)
# Stated before the run: history, crawls, objective or both, policy, at least or at most, percent of the gap.
BANDS = (
    ("scoop_packages", 5, "", policies.REPLANNED, ">=", 20.0),
    ("eol_releases", 5, "", policies.REPLANNED, ">=", 20.0),
    ("eol_releases", 2, "binary", SMOOTHED, "<=", -200.0),
)
Floats = np.ndarray


class History:
    """Changes of one data set and when its sources are there, in days."""

    def __init__(self, name: str, folder: Path | None) -> None:
        import polars as pl

        self.name = name
        if name in BUNDLED:
            log = fo.datasets.load_example(name)
            changes = fo.ChangeHistory.from_frame(
                fo.datasets.example_events(name), sources=log.sources_, start=log.origin
            )
            code, moment = changes.source_index, changes.time
            self.start = log.time[log.offsets[:-1]]
            self.stop = np.full(len(log.sources_), log.end)
        else:
            assert folder is not None
            events = pl.read_parquet(folder / f"{name}.events.parquet").with_columns(
                pl.col("source").cast(pl.String)
            )
            sources = pl.read_parquet(folder / f"{name}.sources.parquet").sort("source")
            codes = {label: k for k, label in enumerate(sources["source"].to_list())}
            events = events.filter(pl.col("kind") == 1)
            code = events["source"].replace_strict(codes, return_dtype=pl.Int64).to_numpy()
            moment = events["time"].to_numpy()
            self.start, self.stop = sources["start"].to_numpy(), sources["stop"].to_numpy()
        order = np.lexsort((moment, code))
        counts = np.bincount(code, minlength=len(self.start))
        self.changes = np.split(moment[order], np.cumsum(counts)[:-1])
        self.end = float(self.stop.max())


def window_of(
    history: History, split: float, crawls: int, rng: np.random.Generator
) -> tuple[HeldOutWindow, Floats] | None:
    """Return a log of crawls before a split with the changes after it, and importances."""
    end = split + TEST * GAP
    lasting = np.flatnonzero((history.start < split) & (history.stop >= end - 1e-9))
    sample = lasting[rng.integers(len(lasting), size=min(MOST, len(lasting)))]
    gaps = rng.exponential(GAP, (len(sample), crawls))
    back = np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1]
    times = split - np.concatenate([back, np.zeros((len(sample), 1))], axis=1)
    there = history.start[sample] <= times[:, 0]
    sample, times = sample[there], times[there]
    if len(sample) < 30:
        return None
    weight = rng.pareto(1.5, len(sample)) + 1.0
    own = [history.changes[k] for k in sample.tolist()]
    passed = np.array(
        [np.searchsorted(each, row, side="right") for each, row in zip(own, times, strict=True)]
    )
    changed = np.diff(passed, axis=1, prepend=passed[:, :1]) > 0
    source = np.repeat(np.arange(len(sample)), times.shape[1])
    log = fo.CrawlLog(source, times.ravel(), changed.ravel())
    world = fo.World.from_events(
        {"source": np.repeat(np.arange(len(own)), [len(each) for each in own]), "time": np.concatenate(own)},
        names=np.arange(len(own)),
        start=np.minimum(history.start[sample], times[:, 0]),
        horizon=end,
    )
    return HeldOutWindow.of(log, world, split, end), weight / weight.sum()


def reachable(window: HeldOutWindow, request: PlanRequest, bandwidths: list[float], seed: int) -> list[float]:
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
    true = fo.Sources(rates, sources.importance, name=sources.name)
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


def row_of(
    window: HeldOutWindow, request: PlanRequest, conduct: measured.Conduct, name: str = ""
) -> PolicyCost:
    """Return what a policy cost in a window; costs are compared, whatever the objective's sense."""
    importance = request.importance
    weight = np.ones(len(window.span)) if importance is None else importance(window.past.sources_)
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
        request = PlanRequest(objective, bandwidths[0], 1.0, importance=lambda _: weight, seed=seed)
        told = [
            mean_row([one], None, maximised=False) for one in policies_in(window, request, bandwidths, GAP)
        ]
        papers = PlanRequest(objective, bandwidths[0], 1.0, lambda _: weight, estimate=smoothed)
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


def measure(history: History, crawls: int, seeds: int) -> dict[str, Any] | None:
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
    row: dict[str, Any] = {"history": history.name, "crawls": crawls, "runs": len(runs)}
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
                names = (
                    ("history", history),
                    ("crawls", crawls),
                    ("objective", objective),
                    ("policy", policy),
                )
                found.append(
                    {**dict(names), "band": f"{sign} {limit:g}", "value": value, "holds": bool(holds)}
                )
    return found


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the tables of a saved run in Markdown."""

    def cell(told: dict[str, Any]) -> str:
        error = "" if told["error"] is None else f" ± {told['error']:.0f}"
        return f"{round(told['mean'])}{error}".replace("-", "−")

    head = ["history", "crawls", "re-planned weekly", "phased", "∝ √(w·Δ)", "uniform", "proportional"]
    head += [SMOOTHED, "reachable", "gap"]
    gains = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    told = ["| history | crawls | plan | smoothing 0.5 |", "| --- " * 4 + "|"]
    for row in found["rows"]:
        cells = [row["history"], str(row["crawls"]), *(cell(row[name]) for name in SHOWN)]
        cells += [cell(row["reachable"]), cell(row["gap"])]
        gains.append(f"| {' | '.join(cells)} |")
        ratios = (f"{row[key]['mean']:.2f}" for key in ("ratio", "ratio, smoothed"))
        told.append(f"| {row['history']} | {row['crawls']} | {' | '.join(ratios)} |")
    stated = ["| stated | measured | |", "| --- " * 3 + "|"]
    for each in found["bands"]:
        which = (
            f"{each['history']}, {each['crawls']} crawls{', ' * bool(each['objective'])}{each['objective']}"
        )
        value = f"{each['value']:.0f}".replace("-", "−")
        band = each["band"].replace("-", "−").replace(">=", "≥").replace("<=", "≤")
        stated.append(f"| {which}: {each['policy']} {band} | {value} | {'yes' if each['holds'] else 'no'} |")
    return {"gains": "\n".join(gains), "ratios": "\n".join(told), "bands": "\n".join(stated)}


def write_page(found: dict[str, Any]) -> None:
    """Write the tables of a saved run into the page, and draw its picture."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables(found).items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = head + begin + table + "\n" + end + rest.partition(end)[2]
    PAGE.write_text(text, encoding="utf-8")
    draw(found)


def draw(found: dict[str, Any]) -> None:
    """Draw the gains by the length of the log, a panel a history."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

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
    figure.savefig(PICTURE, dpi=130)


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        write_page(json.loads(SAVED.read_text(encoding="utf-8")))
        return
    begun = time.perf_counter()
    rows = []
    for name in (*(HISTORIES if arguments.data else ()), *BUNDLED):
        history = History(name, arguments.data)
        for crawls in CRAWLS:
            row = measure(history, crawls, arguments.seeds)
            if row is None:
                print(f"{name}, {crawls} crawls: fewer than 30 sources with so long a record")
                continue
            rows.append(row)
            texts = (
                f"{policy} {row[policy]['mean']:.1f} ± {row[policy]['error'] or np.nan:.1f}"
                for policy in SHOWN
            )
            ratio = f"; realised/predicted {row['ratio']['mean']:.2f}"
            print(f"{name}, {crawls} crawls: {'; '.join(texts)}{ratio}", flush=True)
    found = {
        "python": platform.python_version(),
        "seconds": round(time.perf_counter() - begun),
        "seeds": arguments.seeds,
        "rows": rows,
        "bands": bands(rows),
    }
    for each in found["bands"]:
        print(each)
    print(f"{found['seconds']} s")
    if arguments.save:
        SAVED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        write_page(found)
        print(f"saved {SAVED}")


if __name__ == "__main__":
    main()

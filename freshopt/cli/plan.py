"""`freshopt plan`: from a crawl log to a folder with change rates, certified refresh rates and a schedule."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click
import numpy as np

from freshopt.cli import options
from freshopt.cli.console import number, progress, show
from freshopt.io.folder import complete_folder
from freshopt.planning import FILES, Plan, Wishes, make_plan, summary, write_files
from freshopt.units import SECONDS, parse_duration, parse_rate


@click.command()
@options.log_argument
@options.example_option
@options.objective_option
@options.refresh_option
@options.bandwidth_option
@options.horizon_option
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--importance", type=click.Path(path_type=Path), help="Table with columns source, importance.")
@click.option("--min-rate", default="0", metavar="RATE", help="Refresh every source at least so often.")
@click.option("--max-rate", default=None, metavar="RATE", help="Refresh no source more often.")
@options.smoothing_option
@options.confidence_option
@click.option("--seed", type=int, default=0, show_default=True, help="For --refresh poisson.")
@options.time_unit_option
@click.option("--csv", is_flag=True, help="Write CSV instead of Parquet.")
@options.overwrite_option
def plan(
    log: Path | None,
    example: str | None,
    objective: str,
    refresh: str,
    bandwidth: str,
    horizon: str,
    out: Path,
    importance: Path | None,
    min_rate: str,
    max_rate: str | None,
    smoothing: float,
    confidence: float,
    seed: int,
    time_unit: str,
    csv: bool,
    overwrite: bool,
) -> None:
    """Turn a crawl LOG into change rates, certified refresh rates and a schedule.

    LOG is a CSV or Parquet file with the columns source, time (numbers or dates) and changed (0 or 1): what
    each crawl found.
    """
    wishes = Wishes(
        objective=options.objective_of(objective, refresh),
        bandwidth=parse_rate(bandwidth, time_unit),
        horizon=parse_duration(horizon, time_unit),
        importance=options.importance_of(importance),
        min_rate=parse_rate(min_rate, time_unit),
        max_rate=np.inf if max_rate is None else parse_rate(max_rate, time_unit),
        smoothing=smoothing,
        confidence=confidence,
        seed=seed,
    )
    with complete_folder(out, overwrite, files=FILES) as staging, progress(6) as report:
        crawls = options.log_of(log, example, time_unit)
        made = make_plan(crawls, wishes, report)
        report("writing")
        names = write_files(made, staging, csv=csv)
    show(_rows(made, example or str(log)))
    click.echo(f"\nwrote {', '.join(names)} to {out}")


def _rows(made: Plan, name: str) -> list[tuple[str, str]]:
    """Return what a newcomer should read of a plan."""
    facts = summary(made)
    counts, unit, proof = facts["counts"], facts["time_unit"], made.solution.certificate
    rates = made.solution.rates
    refreshed = rates[rates > 0.0]
    intervals = np.quantile(1.0 / refreshed, [0.0, 0.5, 1.0]) if len(refreshed) else np.full(3, np.inf)
    flags = "".join(f", {count} {flag}" for flag, count in counts["flags"].items() if flag != "ok")
    sense = "higher is better" if facts["sense"] == "maximise" else "lower is better"
    others = "; ".join(f"{kind} rates {number(value)}" for kind, value in facts["baselines"].items())
    spread = f"from {number(intervals[0])} to {number(intervals[2])}, median {number(intervals[1])} {unit}s"
    return [
        ("log", f"{name}: {counts['crawls']:,} crawls of {counts['sources']:,} sources{_span(made)}"),
        (
            "change rates",
            f"total {number(facts['change_rate']['sum'])} per {unit}, "
            f"median {number(facts['change_rate']['median'])}{flags}",
        ),
        ("objective", f"{facts['objective']} ({sense}), {facts['discipline']} refreshes"),
        (
            "bandwidth",
            f"{number(facts['bandwidth_used'])} of {number(facts['bandwidth'])} per {unit} used; "
            f"one more refresh per {unit} would be worth {number(facts['price'])}",
        ),
        ("intervals", f"{spread}; {counts['never_refreshed']:,} sources never refreshed"),
        ("value", f"{number(facts['value'])} in the long run; {others}"),
        (
            "schedule",
            f"{counts['refreshes']:,} refreshes in {number(facts['horizon'])} {unit}s, {facts['method']}, "
            f"value over that time {number(facts['schedule_value'])}",
        ),
        ("proof", f"{facts['status']}: relative gap {proof.relative_gap:.1e}" if proof else "none"),
        ("time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in facts["seconds"].items())),
    ]


def _span(made: Plan) -> str:
    """Return the time that the log covers."""
    log = made.log
    begin, end = float(np.min(log.time)), log.end
    if log.origin is None:
        return f", time {number(begin)} to {number(end)} {log.time_unit}s"
    day = SECONDS[log.time_unit]
    first, last = (log.origin + timedelta(seconds=t * day) for t in (begin, end))
    return f", {first:%Y-%m-%d} to {last:%Y-%m-%d}"

"""`freshopt plan`: from a crawl log to a folder with change rates, certified refresh rates and a schedule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import numpy as np

from freshopt.arrays import Array
from freshopt.certificate import Certificate
from freshopt.cli import inputs, options, tables
from freshopt.cli.console import count, number, progress, show
from freshopt.cli.estimation import Estimation, estimation_options
from freshopt.cli.objectives import Parameters, objective_of
from freshopt.cli.origins import Origin, origin_options
from freshopt.cli.plan_parts import plan_in_partitions, worth_of_more
from freshopt.cli.replay_table import replay_table
from freshopt.cli.report import command_line
from freshopt.held_out import replay_held_out
from freshopt.io.folder import complete_folder
from freshopt.plan_folder import FILES, summary, write_files
from freshopt.planning import Plan, Wishes, make_plan
from freshopt.units import SECONDS

_RESOLVED = 1e-15  # differences of values below this are lost in a sum of float64


@click.command(short_help="Turn a crawl LOG into refresh rates and a schedule.")
@options.log_argument
@options.example_option
@origin_options
@options.plan_objective_option
@options.exponent_option
@options.deadline_option
@options.refresh_option
@options.bandwidth_option
@options.horizon_option
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
@options.importance_option
@options.hosts_option
@options.host_limits_option
@click.option("--min-rate", default="0", metavar="RATE", help="Refresh every source at least so often.")
@click.option("--max-rate", default=None, metavar="RATE", help="Refresh no source more often.")
@estimation_options
@options.confidence_option
@options.seed_option
@click.option(
    "--draws",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Change rates to draw from what the log leaves open, to tell what uncertainty costs; 0 for none.",
)
@click.option(
    "--replay",
    is_flag=True,
    help="Hold out the last quarter of the log, and tell what a plan from the rest achieves there beside "
    "equal and proportional rates and the log's own crawls.",
)
@options.engine_options(
    "LOG is then a folder of Parquet files, each source's crawls in one of them, and DIR gets folders of "
    "tables, one part a file. --importance and --hosts may be folders too, with files of the same names."
)
@options.time_unit_option
@click.option("--csv", is_flag=True, help="Write CSV instead of Parquet.")
@options.overwrite_option
@click.pass_context
def plan(
    context: click.Context,
    origin: Origin,
    objective: str,
    exponent: float | None,
    deadline: str | None,
    refresh: str | None,
    bandwidth: str,
    horizon: str,
    out: Path,
    importance: Path | None,
    hosts: Path | None,
    host_limits: Path | None,
    min_rate: str,
    max_rate: str | None,
    estimation: Estimation,
    confidence: float,
    seed: int,
    draws: int,
    replay: bool,
    engine: str,
    scheduler: str | None,
    time_unit: str,
    csv: bool,
    overwrite: bool,
) -> None:
    """Turn a crawl LOG into change rates, certified refresh rates and a schedule.

    LOG is a CSV or Parquet file with the columns source, time (numbers or dates) and changed (0 or 1): what
    each crawl found. DIR gets the tables change_rates, rates and schedule, summary.json, and report.html, a
    page to be looked at in a browser. The log and the schedule are held in memory; for more than that there
    is --engine dask, which goes without --draws and without the page (freshopt report DIR writes it).
    """
    if (hosts is None) != (host_limits is None) and not (hosts and estimation.by_host):
        raise click.UsageError("--hosts and --host-limits need each other. Give both or neither.")
    in_memory = engine == "memory"  # else workers read the tables
    host_of = tables.hosts_of(hosts) if in_memory else None
    if scheduler is not None and in_memory:
        raise click.UsageError("--scheduler is for --engine dask. Add that, or leave it out.")
    parameters = inputs.parameters_of(Parameters(), objective, exponent, deadline, time_unit)
    wishes = Wishes(
        objective=objective_of(objective, refresh, parameters),
        bandwidth=inputs.rate_of("--bandwidth", bandwidth, time_unit),
        horizon=inputs.duration_of("--horizon", horizon, time_unit),
        importance=tables.importance_of(importance) if in_memory else None,
        hosts=host_of,
        host_limits=tables.host_limits_of(host_limits, time_unit),
        min_rate=inputs.rate_of("--min-rate", min_rate, time_unit),
        max_rate=np.inf if max_rate is None else inputs.rate_of("--max-rate", max_rate, time_unit),
        estimate=lambda log: estimation.fit(log, host_of),
        draws=draws,
        confidence=confidence,
        seed=seed,
    )
    if not in_memory:
        if replay:
            raise click.UsageError("--replay is for --engine memory. Leave it out.")
        plan_in_partitions(
            origin,
            wishes,
            out,
            importance,
            hosts,
            estimation,
            time_unit,
            scheduler,
            csv=csv,
            overwrite=overwrite,
        )
        return
    with complete_folder(out, overwrite, files=FILES) as staging, progress(9) as report:
        found = origin.read(time_unit)
        if wishes.importance is None and found.importance is not None:
            weights = found.importance
            wishes = replace(wishes, importance=lambda _: weights)
        made = make_plan(found.log, wishes, report)
        held = None
        if replay:
            report("replay")
            held = replay_held_out(found.log, wishes, found.history)
        report("writing")
        more = {"command": command_line(context), **(held.facts() if held else {})}
        names = write_files(made, staging, csv=csv, more=more)
    show(_rows(made, found.words, objective))
    if held is not None:
        click.echo(f"\n{replay_table(held, made)}")
    click.echo(f"\nwrote {', '.join(names)} to {out}")


def _rows(made: Plan, read: str, objective: str) -> list[tuple[str, str]]:
    """Return what a newcomer should read of a plan."""
    facts = summary(made)
    counts, unit, proof = facts["counts"], facts["time_unit"], made.solution.certificate
    rates = made.solution.rates
    flags = "".join(f", {times:,} {flag}" for flag, times in counts["flags"].items() if flag != "ok")
    kind = facts["objective"]
    goal = f"{kind}, {objective}" if kind == "SynchronizationCost" else kind  # one class, several names
    sense = "higher is better" if facts["sense"] == "maximise" else "lower is better"
    others = "; ".join(f"{kind} rates {number(value)}" for kind, value in facts["baselines"].items())
    return [
        ("log", f"{read}, {_span(made)}"),
        (
            "change rates",
            f"total {number(facts['change_rate']['sum'])} per {unit}, "
            f"median {number(facts['change_rate']['median'])}{flags}",
        ),
        ("objective", f"{goal} ({sense}), {facts['discipline']} refreshes"),
        (
            "bandwidth",
            f"{number(facts['bandwidth_used'])} of {number(facts['bandwidth'])} per {unit} used; "
            f"{worth_of_more(facts)}",
        ),
        (
            "intervals",
            f"{_spread(rates, unit)}; {count(counts['never_refreshed'], 'source')} never refreshed",
        ),
        ("value", f"{number(facts['value'])} in the long run; {others}"),
        (
            "schedule",
            f"{count(counts['refreshes'], 'refresh')} in {count(facts['horizon'], unit)}, {facts['method']}, "
            f"value over that time {number(facts['schedule_value'])}{_ages(made)}",
        ),
        *_uncertainty(facts),
        ("proof", f"{facts['status']}: {_gap(proof)}" if proof else "none"),
        ("time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in facts["seconds"].items())),
    ]


def _uncertainty(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the change rates that the log leaves open mean for the plan."""
    spread = facts["uncertainty"]
    if spread is None:
        return []
    low, high = spread["value_90_percent"]
    loss = f"{number(spread['mean_regret'])} ({100 * spread['relative_regret']:.2g} %)"
    draws = f"90 % of {spread['draws']} draws of what the log leaves open"
    text = f"value {number(low)} to {number(high)} for {draws}; to know it is worth {loss}"
    if not low <= facts["value"] <= high:
        text += "; the value above is at the estimates, and costs do not grow in proportion to change rates"
    return [("uncertainty", text)]


def _spread(rates: Array, unit: str) -> str:
    """Return how far apart the refreshes of a source are."""
    refreshed = rates[rates > 0.0]
    if len(refreshed) == 0:
        return "none"
    least, median, most = np.quantile(1.0 / refreshed, [0.0, 0.5, 1.0])
    return f"from {number(least)} to {number(most)}, median {count(float(median), unit)}"


def _ages(made: Plan) -> str:
    """Return how old the copies are to begin with, where some are not fresh from the log's last crawl.

    Without it nobody could tell why a value over the horizon is far from that of the long run.
    """
    ages = made.log.age
    old = int(np.count_nonzero(ages > made.schedule.horizon))
    if old == 0:
        return ""
    oldest = count(float(np.max(ages)), made.log.time_unit)
    return f" ({count(old, 'source')} last crawled longer than that before it, at most {oldest})"


def _gap(proof: Certificate) -> str:
    """Return the relative gap, down to what float64 can tell of the value itself."""
    relative = proof.relative_gap
    if proof.vanishing and relative > _RESOLVED:
        return f"the cost vanishes, gap {proof.gap:.1e}"
    return f"relative gap {f'{relative:.1e}' if relative > _RESOLVED else f'below {_RESOLVED:.0e}'}"


def _span(made: Plan) -> str:
    """Return the time that the log covers."""
    log = made.log
    begin, end = float(np.min(log.time)), log.end
    if log.origin is None:
        return f"time {number(begin)} to {count(end, log.time_unit)}"
    seconds = SECONDS[log.time_unit]
    first, last = (log.origin + timedelta(seconds=t * seconds) for t in (begin, end))
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"

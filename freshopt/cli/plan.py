"""`freshopt plan`: from a crawl log to a certified plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from freshopt.cli.backtest_table import replay_table
from freshopt.cli.plan_dask import plan_in_partitions
from freshopt.cli.plan_failures import replayed_failures, with_failures, without_ended
from freshopt.cli.plan_lifetimes import (
    lifetime_format_option,
    plan_on_request,
    require_lifetimes,
    stale_option,
)
from freshopt.cli.report import command_line
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.planning.backtest import backtest
from freshopt.planning.plan import Plan
from freshopt.planning.plan import plan as make_plan
from freshopt.planning.plan_files import FILES, write_files
from freshopt.planning.plan_rows import plan_rows
from freshopt.planning.request import PlanRequest
from freshopt.questions.todays_crawls import freshness_of, share_of
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.changed_costs import changed_costs, require_plain_plan
from freshopt.terminal.changes_table import changes_table
from freshopt.terminal.console import count, progress, show
from freshopt.terminal.constraint_options import ConstraintOptions, constraint_options
from freshopt.terminal.crontab_line import crontab_line
from freshopt.terminal.estimator_options import Estimation, estimation_options
from freshopt.terminal.log_inputs import Found, Origin, origin_options
from freshopt.terminal.objective_options import Parameters, objective_of
from freshopt.terminal.own_crawls import with_own_crawls
from freshopt.terminal.source_columns import SourceColumns


@click.command(short_help="Turn a crawl LOG into refresh rates and a schedule.")
@options.log_argument
@options.example_option
@origin_options
@options.plan_objective_option
@options.exponent_option
@options.deadline_option
@options.solve_refresh_option
@options.optional_bandwidth_option
@click.option(
    "--freshness",
    metavar="SHARE",
    help="In place of --bandwidth: the least that keeps copies fresh such a share of the time, 99%, or as "
    "much as the log's own crawls do, today. With --objective binary, then the default.",
)
@options.horizon_option
@options.requests_option
@lifetime_format_option
@stale_option
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
@options.importance_option
@options.hosts_option
@options.host_limits_option
@options.host_gap_option
@options.columns_option
@options.changed_cost_option
@constraint_options()
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
    help="Posterior samples of the change rates, to estimate the cost of uncertainty; 0 disables.",
)
@click.option(
    "--load-limit",
    type=click.FloatRange(min=1.0),
    default=2.0,
    show_default=True,
    help="Where changes peak at some hours of the week, crawl after the peaks at up to so many times the "
    "mean load; 1 keeps the load flat. Of periodic refreshes and --engine memory.",
)
@click.option(
    "--replay",
    is_flag=True,
    help="Hold out the last half of the log in three windows, and tell what plans from the crawls before "
    "each of them achieve, predicted and realised, beside simple rules, the log's own crawls and the best "
    "static rates in hindsight; and which of them the log supports.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path),
    metavar="OLD",
    help="Folder of an earlier plan or of a live planner, or table with columns source, rate (or interval) "
    "of the rates in force: tell what changes, and what that brings.",
)
@click.option(
    "--max-churn",
    metavar="SHARE",
    help="For --compare: change at most such a share of the sources' intervals, 10%; those whose change "
    "brings most. What that costs is told.",
)
@click.option(
    "--every",
    metavar="TIME",
    help="Print the crontab line that plans again after each such time, 7d or 1d or hours or minutes that "
    "divide a day or an hour, from LOG and the plan's own crawls. With --replay there is a row for that.",
)
@click.option(
    "--crawls",
    "own_crawls",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, time, changed: what the crawls of earlier plans found, which continue "
    "LOG (repeatable). With --every it may not exist yet, and is DIR-crawls.csv unless given.",
)
@options.retry_option
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
    bandwidth: str | None,
    freshness: str | None,
    horizon: str | None,
    requests: Path | None,
    kind: str | None,
    stale: str | None,
    out: Path,
    importance: Path | None,
    hosts: Path | None,
    host_limits: Path | None,
    host_gap: str | None,
    source_columns: Path | None,
    changed_cost: float | None,
    constraints: ConstraintOptions,
    min_rate: str,
    max_rate: str | None,
    estimation: Estimation,
    confidence: float,
    seed: int,
    draws: int,
    load_limit: float,
    replay: bool,
    compare: Path | None,
    max_churn: str | None,
    every: str | None,
    own_crawls: tuple[Path, ...],
    retry_at_once: bool,
    engine: str,
    scheduler: str | None,
    time_unit: str,
    csv: bool,
    overwrite: bool,
) -> None:
    """Turn a crawl LOG into certified refresh rates and a schedule.

    LOG is a CSV or Parquet file or JSON lines, with the columns source, time (numbers or dates) and changed
    (0 or 1; or a hash of the content, an etag, an HTTP status): what each crawl found; or the access log of a
    web server; or the folder of a live planner. --columns tells other names. DIR gets the tables
    change_rates, rates and schedule, summary.json, and report.html, a page to be looked at in a browser. The
    log and the schedule are held in memory; for more than that there is --engine dask, which goes without
    --draws and without the page (freshopt report DIR writes it).

    With --budget, --nested or --target the prices of the constraints are printed, a sentence each; DIR gets
    the table constraints too, and the page a section. Columns that they name are in
    --source-columns.

    --refresh on-request is of caches: LOG is what they asked the origin, --requests the log of who asks them;
    DIR gets the tables change_rates and lifetimes, summary.json and, with --format, what the cache loads.
    """
    if refresh == "on-request":
        require_lifetimes(context)
    elif horizon is None:
        raise click.UsageError("Missing option '--horizon', the length of the schedule. Add it, such as 7d.")
    elif requests is not None or kind is not None or stale is not None:
        raise click.UsageError(
            "--requests, --format and --stale-while-revalidate are for --refresh on-request. Leave them out."
        )
    objective_given = context.get_parameter_source("objective") is ParameterSource.COMMANDLINE
    if freshness is not None:
        freshness_of(freshness, "--freshness")
        objective = _freshness_objective(bandwidth, objective if objective_given else None, engine)
        constraints.require_none("does not go with --freshness; say --target 99% --cheapest beside it")
    else:
        constraints.require_usable(bandwidth, objective_given=objective_given)
    limited = context.get_parameter_source("load_limit") is ParameterSource.COMMANDLINE
    cost_of = None
    if engine == "memory" or changed_cost is not None:
        cost_of = changed_costs(changed_cost, source_columns, constraints)
    if source_columns is not None and not constraints.given() and cost_of is None:
        raise click.UsageError(
            "--source-columns is for --budget, --nested and --target, or has the column changed_cost. Give "
            "one of these, or leave it out."
        )
    if cost_of is not None:
        require_plain_plan(
            {
                "--engine dask": engine == "dask",
                "--freshness": freshness is not None,
                "--max-churn": max_churn is not None,
                "--load-limit": limited and load_limit > 1.0,
            }
        )
    for_groups = estimation.by_host or constraints.given()
    in_memory = engine == "memory"  # else workers read the tables
    if hosts is not None and host_limits is None and host_gap is None and not for_groups:
        raise click.UsageError(
            "--hosts is for --host-limits, --host-gap, --prior host and constraints. Give one."
        )
    if hosts is None and host_limits is not None and not in_memory:
        raise click.UsageError("--host-limits needs --hosts with --engine dask. Give both or neither.")
    host_of = tables.hosts_of(hosts) if in_memory else None
    by_host = host_limits is not None or host_gap is not None or estimation.by_host
    if in_memory and hosts is None and by_host:
        host_of = origin.hosts()
    if scheduler is not None and in_memory:
        raise click.UsageError("--scheduler is for --engine dask. Add that, or leave it out.")
    parameters = inputs.parameters_of(Parameters(), objective, exponent, deadline, time_unit)
    asked: dict[str, Any] = {
        "bandwidth": None if bandwidth is None else inputs.rate_of("--bandwidth", bandwidth, time_unit),
        "objective": Spend() if constraints.cheapest else objective_of(objective, refresh, parameters),
        "importance": tables.importance_of(importance) if in_memory else None,
        "hosts": host_of,
        "host_limits": tables.host_limits_of(host_limits, time_unit),
        "min_rate": inputs.rate_of("--min-rate", min_rate, time_unit),
        "max_rate": None if max_rate is None else inputs.rate_of("--max-rate", max_rate, time_unit),
        "estimator": lambda log: estimation.fit(log, host_of),
        "seed": seed,
        "changed_cost": cost_of,
    }
    if refresh == "on-request":
        host_of = asked.pop("hosts")
        asked.pop("seed")
        asked.pop("changed_cost")
        plan_on_request(
            context,
            origin,
            requests,
            kind,
            out,
            time_unit,
            csv=csv,
            overwrite=overwrite,
            hosts=host_of,
            confidence=confidence,
            freshness=freshness,
            stale_while_revalidate=stale and inputs.duration_of("--stale-while-revalidate", stale, time_unit),
            **asked,
        )
        return
    assert horizon is not None, "asked for above"
    length = inputs.duration_of("--horizon", horizon, time_unit)
    period = None if every is None else inputs.duration_of("--every", every, time_unit)
    if period is not None and length < period and in_memory:
        raise click.UsageError(
            f"--horizon {horizon} is shorter than --every {every}. The schedule would end before the "
            "next plan. Give a horizon of at least that."
        )
    if max_churn is not None:
        if compare is None:
            raise click.UsageError("--max-churn limits changes of earlier rates. Add --compare OLD.")
        constraints.require_none("does not go with --max-churn, which chooses within one bandwidth")
        share_of("--max-churn", max_churn)
    if replay:
        constraints.require_none("does not go with --replay, which compares rates within one bandwidth")
    if not in_memory:
        only = {
            "--replay": replay,
            "--every": every,
            "--compare": compare is not None,
            "--crawls": own_crawls,
            "--retry-at-once": retry_at_once,
            "--load-limit": limited,
            "--host-gap": host_gap is not None,
        }
        for name, given in only.items():
            if given:
                raise click.UsageError(f"{name} is for --engine memory. Leave it out.")
        limit, most = asked.pop("max_rate"), asked.pop("bandwidth")
        plan_in_partitions(
            origin,
            PlanRequest(
                bandwidth=np.inf if most is None else most,
                horizon=length,
                confidence=confidence,
                max_rate=np.inf if limit is None else limit,
                estimate=asked.pop("estimator"),
                **asked,
            ),
            out,
            importance,
            hosts,
            source_columns,
            constraints,
            refresh,
            estimation,
            time_unit,
            scheduler,
            csv=csv,
            overwrite=overwrite,
        )
        return
    loop = None if every is None else _loop(context, every, own_crawls, out)
    if every is not None:
        own_crawls = own_crawls or (_crawls_of(out),)
    earlier = None if compare is None else tables.rates_in_force_of(compare, time_unit)
    known = [path for path in own_crawls if every is None or path.exists()]
    with complete_folder(out, overwrite, files=FILES) as staging, progress(12) as on_progress:
        found = _continued(origin.read(time_unit), known, origin, empty=every is not None)
        if asked["importance"] is None and found.importance is not None:
            asked["importance"] = found.importance
        if constraints.given():
            asked["constraints"] = partial(_declared, constraints, source_columns, refresh)
        recorded = origin.statuses(found.log)
        asked["importance"] = without_ended(asked["importance"], recorded)
        job = partial(
            make_plan,
            found.data,
            horizon=length,
            confidence=confidence,
            draws=draws,
            load_limit=load_limit,
            host_gap=inputs.gap_of("--host-gap", host_gap, time_unit),
            freshness=freshness,
            compare=earlier,
            max_churn=max_churn,
            retry_at_once=retry_at_once,
            on_progress=on_progress,
            **asked,
        )
        made, fetches = with_failures(job, recorded)
        held = None
        if replay:
            on_progress("back-test")
            asked["bandwidth"] = made.problem.bandwidth
            asked |= replayed_failures(made, recorded, continued=bool(known))
            held = backtest(found.data, every=period, load_limit=load_limit, **asked)
        on_progress("writing")
        more = {"command": command_line(context), **(held.facts() if held else {})}
        if loop is not None:
            more["again"] = {"every": period, "crontab": loop, "crawls": [str(path) for path in own_crawls]}
        each = None if held is None or held.details is None else held.details.to_frame()
        names = write_files(made, staging, csv=csv, more=more, held_out=each)
    show([*plan_rows(made, found.words, objective), *fetches, _time(made)])
    if made.changes is not None:
        click.echo(f"\n{changes_table(made.changes, made)}")
    if held is not None:
        click.echo(f"\n{replay_table(held, made)}")
    if loop is not None:
        files = " or ".join(str(path) for path in own_crawls)
        click.echo(
            f"\nAppend what the schedule's crawls find (source, time, changed) to {files}; this line of a "
            f"crontab plans again from them:\n{loop}"
        )
    click.echo(f"\nwrote {', '.join(names)} to {out}")


def _freshness_objective(bandwidth: str | None, objective: str | None, engine: str) -> str:
    """Return the objective of a plan for a freshness, or raise UsageError."""
    if bandwidth is not None:
        raise click.UsageError("--freshness stands in place of --bandwidth. Leave one of them out.")
    if engine != "memory":
        raise click.UsageError("--freshness is for --engine memory. Say --target 99% --cheapest there.")
    if objective not in (None, "binary"):
        raise click.UsageError(
            f"--freshness plans for --objective binary, not for {objective}. Leave one of them out."
        )
    return "binary"


def _loop(context: click.Context, every: str, own_crawls: tuple[Path, ...], out: Path) -> str:
    """Return the crontab line that runs this command again."""
    more = () if own_crawls else ("--crawls", str(_crawls_of(out)))
    return crontab_line(every, command_line(context, out, more, without=("replay",)))


def _crawls_of(out: Path) -> Path:
    """Return the default file of a plan's own crawls."""
    return out.with_name(f"{out.name}-crawls.csv")


def _continued(found: Found, own_crawls: Sequence[Path], origin: Origin, *, empty: bool) -> Found:
    """Return a log with the crawls of earlier plans."""
    if not own_crawls:
        return found
    if not isinstance(found.data, CrawlLog):
        raise click.UsageError("--crawls continues a log, and here all changes are known. Leave it out.")
    log = with_own_crawls(found.data, own_crawls, empty=empty, answers_are_changes=origin.answers_are_changes)
    added = count(len(log) - len(found.data), "own crawl")
    return Found(log, f"{found.name} and {added}", found.importance)


def _declared(
    constraints: ConstraintOptions, columns: Path | None, refresh: str | None, sources: Sources
) -> list[Constraint]:
    """Return the declared constraints on a plan's sources."""
    return constraints.made(SourceColumns.by_name(sources, columns, "--source-columns FILE"), refresh)


def _time(made: Plan) -> tuple[str, str]:
    """Return the row of the seconds of each step."""
    return "time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in made.seconds.items())

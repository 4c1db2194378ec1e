"""`freshopt plan`: from a crawl log to a certified plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from freshopt.cli.backtest_table import replay_table
from freshopt.cli.plan_dask import plan_in_partitions
from freshopt.cli.plan_failures import replayed_failures, with_failures, without_ended
from freshopt.cli.plan_lifetimes import lifetime_format_option, plan_on_request
from freshopt.cli.report import command_line
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.planning.backtest import backtest
from freshopt.planning.clashes import DASK, OF_TIMES, ON_REQUEST
from freshopt.planning.plan import Plan
from freshopt.planning.plan import plan as make_plan
from freshopt.planning.plan_files import FILES, write_files
from freshopt.planning.plan_rows import plan_rows
from freshopt.planning.wishes import BackTestWishes, LifetimeWishes
from freshopt.terminal import inputs, options
from freshopt.terminal.changes_table import changes_table
from freshopt.terminal.console import count, progress, show
from freshopt.terminal.constraint_options import ConstraintOptions, constraint_options
from freshopt.terminal.crontab_line import crontab_line
from freshopt.terminal.estimator_options import Estimation, estimation_options
from freshopt.terminal.log_inputs import Found, Origin, origin_options
from freshopt.terminal.objective_options import Parameters, objective_of
from freshopt.terminal.own_crawls import with_own_crawls
from freshopt.terminal.source_columns import SourceColumns
from freshopt.terminal.wish_options import changed_cost_of, given_options, read_wishes, refuse, wish_options
from freshopt.units import duration_of

# Of plans of lifetimes and of times alike.
OF_LIFETIMES = {*LifetimeWishes.__annotations__, "bandwidth"}


@click.command(short_help="Turn a crawl LOG into refresh rates and a schedule.")
@options.log_argument
@options.example_option
@origin_options
@options.plan_objective_option
@options.exponent_option
@options.deadline_option
@options.solve_refresh_option
@wish_options("bandwidth", "horizon")
@options.requests_option
@lifetime_format_option
@wish_options("requests")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
@wish_options("sources")
@options.columns_option
@wish_options("cost")
@constraint_options()
@wish_options("bounds")
@estimation_options
@wish_options("estimates")
@click.option(
    "--replay",
    is_flag=True,
    help="Hold out the last half of the log in three windows, and tell what plans from the crawls before "
    "each of them achieve, predicted and realised, beside simple rules, the log's own crawls and the best "
    "static rates in hindsight; and which of them the log supports.",
)
@wish_options("changes")
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
@wish_options("failures")
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
    /,
    origin: Origin,
    objective: str,
    exponent: float | None,
    deadline: str | None,
    refresh: str | None,
    requests: Path | None,
    kind: str | None,
    out: Path,
    source_columns: Path | None,
    constraints: ConstraintOptions,
    estimation: Estimation,
    replay: bool,
    every: str | None,
    own_crawls: tuple[Path, ...],
    engine: str,
    scheduler: str | None,
    time_unit: str,
    csv: bool,
    overwrite: bool,
    **wishes: Any,  # noqa: ANN401 - see `WISHES`
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
    said, in_memory = given_options(context), engine == "memory"
    given = {name: value for name, value in wishes.items() if name in said}
    if in_memory or "changed_cost" in given:
        cost, said_cost = changed_cost_of(given.get("changed_cost"), source_columns)
        if cost is not None:
            given["changed_cost"], said["changed_cost"] = cost, said_cost
    if "freshness" in given and "--objective" not in said:
        objective = "binary"
    _refuse(said, given, constraints, estimation, objective, refresh, engine)
    if refresh != "on-request" and "horizon" not in given:
        raise click.UsageError("Missing option '--horizon', the length of the schedule. Add it, such as 7d.")
    if "freshness" not in given:
        constraints.require_bandwidth(given.get("bandwidth"))
    tables_at = {name: None if in_memory else given.pop(name, None) for name in ("importance", "hosts")}
    asked = {"bandwidth": None, **read_wishes(given, time_unit)}
    parameters = inputs.parameters_of(Parameters(), objective, exponent, deadline, time_unit)
    asked["objective"] = Spend() if constraints.cheapest else objective_of(objective, refresh, parameters)
    by_host = "host_limits" in asked or "host_gap" in asked or estimation.by_host
    if in_memory and by_host and "hosts" not in asked:
        asked["hosts"] = origin.hosts()
    asked["estimator"] = partial(estimation.fit, hosts=asked.get("hosts"))
    if refresh == "on-request":
        plan_on_request(
            context, origin, requests, kind, out, time_unit, csv=csv, overwrite=overwrite, **asked
        )
        return
    period = None if every is None else duration_of("--every", every, time_unit)
    if period is not None and asked["horizon"] < period:
        raise click.UsageError(
            f"--horizon {given['horizon']} is shorter than --every {every}. The schedule would end before "
            "the next plan. Give a horizon of at least that."
        )
    if not in_memory:
        plan_in_partitions(
            origin,
            asked,
            out,
            tables_at["importance"],
            tables_at["hosts"],
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
    known = [path for path in own_crawls if every is None or path.exists()]
    with complete_folder(out, overwrite, files=FILES) as staging, progress(12) as on_progress:
        found = _continued(origin.read(time_unit), known, origin, empty=every is not None)
        if found.importance is not None:
            asked.setdefault("importance", found.importance)
        if constraints.given():
            asked["constraints"] = partial(_declared, constraints, source_columns, refresh)
        recorded = origin.statuses(found.log)
        asked["importance"] = without_ended(asked.get("importance"), recorded)
        job = partial(make_plan, found.data, on_progress=on_progress, **asked)
        made, fetches = with_failures(job, recorded)
        held = None
        if replay:
            on_progress("back-test")
            tested = {name: asked[name] for name in BackTestWishes.__annotations__ if name in asked}
            tested |= replayed_failures(made, recorded, continued=bool(known))
            held = backtest(found.data, bandwidth=made.problem.bandwidth, every=period, **tested)
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


def _refuse(
    said: dict[str, str],
    given: dict[str, Any],
    constraints: ConstraintOptions,
    estimation: Estimation,
    objective: str,
    refresh: str | None,
    engine: str,
) -> None:
    """Raise UsageError for what does not go together."""
    more = {
        ON_REQUEST: ON_REQUEST if refresh == "on-request" else "",
        DASK: DASK if engine == "dask" else "",
        OF_TIMES: next((said[name] for name in given if name not in OF_LIFETIMES), ""),
        "constraints": next(iter(constraints.given()), ""),
        "other objective": "" if objective == "binary" else objective,
        "--load-limit above 1": "--load-limit" if given.get("load_limit", 1.0) > 1.0 else "",
        "--host-limits of partitions": "--host-limits" if engine == "dask" and "host_limits" in given else "",
        "--prior host": "--prior host" if estimation.by_host else "",
    }
    refuse({**said, **{name: words for name, words in more.items() if words}})


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

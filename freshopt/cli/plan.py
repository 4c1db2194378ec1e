"""`freshopt plan`: from a crawl log to a certified plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from freshopt.cli.lifetimes import lifetime_format_option, plan_on_request, require_promise
from freshopt.cli.partitions import plan_in_partitions
from freshopt.cli.plan_failures import replayed_failures, with_failures, without_ended
from freshopt.cli.report import command_line
from freshopt.errors import warn
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.naming import PLANNED
from freshopt.planning.backtest import backtest
from freshopt.planning.clashes import DASK, OF_TIMES, ON_REQUEST
from freshopt.planning.plan import Plan
from freshopt.planning.plan import plan as make_plan
from freshopt.planning.plan_files import FILES, write_files
from freshopt.planning.plan_steps import why_no_draws
from freshopt.planning.wishes import BackTestWishes, LifetimeWishes
from freshopt.questions.bandwidth_for import AS_TODAY
from freshopt.report.context import SUMMARY, Context, Facts
from freshopt.report.headline import closing, headline
from freshopt.report.page import findings
from freshopt.report.plan_tables import PlanFolder
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.commands import command
from freshopt.terminal.console import columns, count, fitted, note, progress, show, wrapped
from freshopt.terminal.constraint_options import ConstraintOptions, constraint_options
from freshopt.terminal.estimator_options import Estimation, estimation_options
from freshopt.terminal.log_inputs import Found, Origin, origin_options
from freshopt.terminal.own_crawls import crontab_line, with_own_crawls
from freshopt.terminal.own_objectives import is_own
from freshopt.terminal.settings_file import write_settings
from freshopt.terminal.tables import SourceColumns
from freshopt.terminal.wish_options import (
    changed_cost_of,
    given_options,
    read_wishes,
    refuse,
    wish_option,
    wish_options,
)
from freshopt.units import duration_of

# The length of the schedule, unless one is given.
HORIZON = "7d"
# Of plans of lifetimes and of times alike.
OF_LIFETIMES = {*LifetimeWishes.__annotations__, "bandwidth"}


@command()
@options.log_argument
@options.example_option
@origin_options
@inputs.goal_options(PLANNED, own=True)
@options.solve_refresh_option
@wish_options("bandwidth", "horizon")
@options.requests_option
@lifetime_format_option
@wish_options("requests")
@options.folder_option("plan")
@wish_options("sources")
@options.columns_option
@wish_options("cost")
@constraint_options()
@wish_option("promise", multiple=True)
@wish_options("hours")
@wish_options("bounds")
@estimation_options
@wish_options("estimates")
@click.option(
    "--replay",
    is_flag=True,
    help="Test the plan on your history: plan from the earlier crawls, score on the later changes, "
    "beside simpler rules.",
)
@wish_option("compare_rule", multiple=True)
@wish_options("changes")
@click.option(
    "--every",
    metavar="TIME",
    help="Print a crontab line that plans again this often: 7d, 1d, or hours or minutes that divide a "
    "day or an hour.",
)
@click.option(
    "--crawls",
    "own_crawls",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, time, changed: crawls since LOG (repeatable). With --every it may"
    " not exist yet (default: DIR-crawls.csv).",
)
@wish_options("failures")
@options.engine_options(
    "LOG is then a folder of Parquet files, each source's crawls in one of them, and DIR gets such folders."
)
@options.time_unit_option
@options.csv_option
@options.overwrite_option
@click.option("--details", is_flag=True, help="Print all that was found, in rows.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, and nothing else.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but warnings and errors.")
@click.pass_context
def plan(
    context: click.Context,
    /,
    origin: Origin,
    goal: inputs.Goal,
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
    details: bool,
    as_json: bool,
    quiet: bool,
    **wishes: Any,  # noqa: ANN401 - see `WISHES`
) -> None:
    """Turn a crawl LOG into refresh rates and a schedule, with proof.

    LOG tells what each crawl found: columns source, time and changed (or a hash, an etag, an HTTP status), as
    CSV, Parquet or JSON lines; or it is the access log of a web server, or the folder of a live planner. Give
    one file, several, or - for standard input. DIR gets report.html, the page to look at first, the tables
    change_rates, rates and schedule, summary.json, and plan.toml, the settings used.
    """
    said, in_memory = given_options(context), engine == "memory"
    given = {name: value for name, value in wishes.items() if name in said}
    if in_memory or "changed_cost" in given:
        cost, said_cost = changed_cost_of(given.get("changed_cost"), source_columns)
        if cost is not None:
            given["changed_cost"], said["changed_cost"] = cost, said_cost
    if "compare_rule" in given:
        replay, said["--replay"] = True, said["compare_rule"]
    if "freshness" in given and "--objective" not in said:
        goal = replace(goal, objective="binary")
    _refuse(said, given, constraints, estimation, str(goal.objective), refresh, engine)
    if refresh == "on-request":
        require_promise(given)
    else:
        given.setdefault("horizon", HORIZON)
    if "freshness" not in given and not in_memory:
        constraints.require_bandwidth(given.get("bandwidth"))
    tables_at = {name: None if in_memory else given.pop(name, None) for name in ("importance", "hosts")}
    limited = "freshness" in given or constraints.limit_bandwidth
    asked = {"bandwidth": None if limited else AS_TODAY, **read_wishes(given, time_unit)}
    made_goal = goal.made(refresh, time_unit)
    asked["objective"] = Spend() if constraints.cheapest else made_goal
    if in_memory and source_columns is not None and is_own(str(goal.objective)):
        asked["source_columns"] = tables.own_columns_in(source_columns, filled=True)
    by_host = "host_limits" in asked or "host_gap" in asked or estimation.by_host
    if in_memory and by_host and "hosts" not in asked:
        asked["hosts"] = origin.hosts()
    rules = {"compare_rule": asked.pop("compare_rule")} if "compare_rule" in asked else {}
    if "features" not in asked:
        asked["estimator"] = partial(estimation.fit, hosts=asked.get("hosts"))
    if refresh == "on-request":
        warn("--refresh on-request is now a command of its own, freshopt lifetimes, with the same options.")
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
    silent = as_json or quiet
    origin.require_log()
    with complete_folder(out, overwrite, files=FILES) as staging, progress(12, silent=silent) as on_progress:
        found = _continued(origin.read(time_unit), known, origin, empty=every is not None)
        if found.importance is not None:
            asked.setdefault("importance", found.importance)
        if constraints.given():
            asked["constraints"] = partial(_declared, constraints, source_columns, refresh)
        recorded = origin.statuses(found.log)
        asked["importance"] = without_ended(asked.get("importance"), recorded)
        job = partial(make_plan, found.data, on_progress=on_progress, **asked)
        made, fetches = with_failures(job, recorded)
        if given.get("draws") and made.uncertainty is None:
            kept = None if made.few is None else "--max-churn keeps rates"
            why = kept or why_no_draws(made.problem, len(made.log))
            note(f"--draws {given['draws']}: nothing is drawn, as {why}.")
        held = None
        if replay:
            on_progress("back-test")
            tested = {name: asked[name] for name in BackTestWishes.__annotations__ if name in asked} | rules
            tested |= replayed_failures(made, recorded, continued=bool(known))
            held = backtest(found.data, bandwidth=made.problem.bandwidth, every=period, **tested)
        on_progress("writing")
        more = {"command": command_line(context), **(held.facts() if held else {})}
        if loop is not None:
            more["again"] = {"every": period, "crontab": loop, "crawls": [str(path) for path in own_crawls]}
        each = None if held is None or held.details is None else held.details.to_frame()
        names = write_files(made, staging, csv=csv, more=more, held_out=each)
        names.append(write_settings(context, staging, out))
    if as_json:
        click.echo((out / SUMMARY).read_text(encoding="utf-8").rstrip("\n"))
    if as_json or quiet:
        return
    again = ""
    if loop is not None:
        files = " or ".join(str(path) for path in own_crawls)
        again = (
            f"Append what the schedule's crawls find (source, time, changed) to {files}; this line of a "
            f"crontab plans again from them:\n{loop}"
        )
    _tell(
        made,
        out,
        names,
        read=found.words,
        objective=str(goal.objective),
        fetches=fetches,
        again=again,
        replayed=held is not None,
        details=details,
    )


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
        "own objective": objective if is_own(objective) else "",
        "--load-limit above 1": "--load-limit" if given.get("load_limit", 1.0) > 1.0 else "",
        "--host-limits of partitions": "--host-limits" if engine == "dask" and "host_limits" in given else "",
        "--prior host": "--prior host" if estimation.by_host else "",
    }
    refuse({**said, **{name: words for name, words in more.items() if words}})


def _loop(context: click.Context, every: str, own_crawls: tuple[Path, ...], out: Path) -> str:
    """Return the crontab line that runs this command again."""
    more = () if own_crawls else ("--crawls", str(_crawls_of(out)))
    return crontab_line(
        every, command_line(context, out, more, without=("replay", "compare_rule", "details"))
    )


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
    known = SourceColumns.by_name(sources, columns, "--source-columns FILE")
    return constraints.made(known, refresh)


# Findings whose tables are printed too.
TABLES = ("earlier", "held-out")


def _tell(
    made: Plan,
    folder: Path,
    files: Sequence[str],
    *,
    read: str,
    objective: str,
    fetches: Sequence[tuple[str, str]],
    again: str,
    replayed: bool,
    details: bool,
) -> None:
    """Print a plan: ten lines, or all details."""
    known = Context.of(Facts.of(folder))
    click.echo(headline(known, width=columns(), warned=True))
    if details:
        click.echo()
        found = findings(known, PlanFolder(folder, known), read=read, objective=objective)
        rows = (row for each in found if each.key != "warnings" for row in each.rows())  # said by now
        steps = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in made.seconds.items())
        show([*rows, *fetches, ("time", steps)])
        for each in found:
            if each.key in TABLES and each.table is not None:
                notes = [wrapped(note) for note in each.facts.get("notes", ())]
                click.echo(
                    "\n" + "\n".join([wrapped(f"{each.table.caption}:"), fitted(each.table.texts()), *notes])
                )
    elif fetches:
        click.echo()
        show(fetches)
    if again:
        click.echo(f"\n{again}")
    click.echo(
        ("\n" if details or again or fetches else "")
        + closing(known, folder, files, details=details, replayed=replayed)
    )

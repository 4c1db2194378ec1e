"""`freshopt pipeline`: certified refresh rates of copies that are made of copies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import click

from freshopt.cli.pipeline_plan import FILES, OBJECTIVES, plan_pipeline
from freshopt.cli.report import command_line
from freshopt.cli.schedule import exported_rows
from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs import schema
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.schema import Table
from freshopt.pipelines.pipeline import Pipeline
from freshopt.pipelines.pipeline import pipeline as make_pipeline
from freshopt.terminal import inputs, options
from freshopt.terminal.commands import OneOf, command
from freshopt.terminal.console import show, working
from freshopt.terminal.wish_options import own_option, table_options, wished
from freshopt.tools.dbt_project import DbtJobs, Manifest, read_manifest
from freshopt.tools.export import export
from freshopt.units import convert_time, duration_of, rate_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Options of a pipeline's plan."""

    bandwidth: str = wished(
        required=True,
        help="What all refreshes use, such as 200/day; with --cost run_results.json seconds of the "
        "warehouse, 14400/day or 4h/day.",
    )
    change_rates: Path | None = own_option(
        help="Table with columns source, change_rate of the roots, as freshopt estimate writes it; sources "
        "that are not in the graph are left out."
    )
    rates: tuple[str, ...] = own_option(
        (),
        names=("--rate",),
        metavar="NAME=RATE",
        help="Change rate of one root, such as raw.orders=24/day, in place of the table's; 0 if it never "
        "changes (repeatable).",
    )
    cost: Path | None = own_option(
        help="What a refresh of each node uses: dbt's run_results.json, run times in seconds, or a table "
        "with columns source, refresh_cost (default 1)."
    )
    importance: Path | None = wished(
        help="Table with columns source, importance; 0 for other nodes (default: 1 for each node of which "
        "nothing is made; of dbt the exposures')."
    )
    views: tuple[str, ...] = own_option(
        (),
        names=("--view",),
        metavar="NAME",
        help="Node that is as fresh as its parents at all times and never refreshed (repeatable); dbt's own "
        "are known.",
    )
    phases: Literal["aligned", "independent"] = own_option(
        "aligned",
        help="aligned: each node right after its parents, at periods that are multiples of each other; "
        "independent: equal intervals at phases of their own.",
    )
    objective: str = own_option(
        "log-freshness",
        type=OneOf(list(OBJECTIVES)),
        help="log-freshness, which starves no node; delay, the number of missed changes; or, of aligned "
        "phases, binary, the share of time fresh.",
    )
    kind: Literal["dbt"] | None = own_option(
        names=("--format",),
        help="Also write jobs: dbt's selectors.yml and a crontab that calls them; of a manifest.json.",
    )


@command()
@click.argument("graph", type=click.Path(path_type=Path))
@table_options("asked", PipelineOptions)
@options.folder_option()
@options.time_unit_option
@options.csv_option
@options.overwrite_option
@click.pass_context
@working("planning")
def pipeline(
    context: click.Context,
    graph: Path,
    asked: PipelineOptions,
    out: Path,
    time_unit: str,
    csv: bool,
    overwrite: bool,
) -> None:
    """Find certified refresh rates for the nodes of a GRAPH of copies.

    GRAPH is dbt's manifest.json (or the folder that holds it), or a table with the columns upstream,
    downstream, an edge in each row. Changes happen at the roots; a refresh of a node copies the present state
    of its parents, and what counts is whether it is fresh with respect to all roots upstream. DIR gets the
    tables rates, of what is refreshed, and nodes, of how fresh each node is and whether that is exact or a
    lower bound, and summary.json.
    """
    known = graph_of(graph)
    if asked.kind is not None and not (isinstance(known, Manifest) and asked.phases == "aligned"):
        raise click.UsageError(
            "--format dbt is for the manifest.json of a project, and for --phases aligned: its jobs build "
            "parents first. Leave it out."
        )
    in_seconds = asked.cost is not None and are_run_times(asked.cost)
    inputs.require_other(out, asked.change_rates, asked.cost, asked.importance)
    with complete_folder(out, overwrite, files=FILES) as staging:
        line = pipeline_of(
            known, asked.change_rates, asked.rates, asked.cost, asked.importance, asked.views, time_unit
        )
        limit = bandwidth_of(asked.bandwidth, time_unit, in_seconds=in_seconds)
        periods = DbtJobs.periods(time_unit) if asked.kind else None
        made = plan_pipeline(line, limit, asked.objective, aligned=asked.phases == "aligned", periods=periods)
        written = made.write(staging, csv=csv, more={"command": command_line(context)})
        done = None
        if asked.kind:
            file = graph / "manifest.json" if graph.is_dir() else graph
            rates = dict(zip(line.source_names, made.rates.tolist(), strict=True))
            done = export(rates, DbtJobs(file), staging / "jobs", time_unit=time_unit)
    shown = made.rows(str(graph), "second" if in_seconds else "refresh" if asked.cost is None else "unit")
    show([*shown, *([] if done is None else exported_rows("dbt", done))])
    jobs = ["jobs/selectors.yml", "jobs/crontab"] if asked.kind else []
    click.echo(f"\nwrote {', '.join([*written, *jobs])} to {out}")


# An amount of time, such as 4h.
_TIME = re.compile(r"[0-9.]+ *[a-z]+")


def graph_of(path: Path) -> Manifest | list[tuple[str, str]]:
    """Return dbt's graph of a manifest.json, or a table's edges."""
    if path.is_dir() or path.suffix.lower() == ".json":
        return read_manifest(path)
    frame = Table.read(path, schema.EDGES).frame
    above, below = ([str(name) for name in frame[key].to_list()] for key in ("upstream", "downstream"))
    return list(zip(above, below, strict=True))


def pipeline_of(
    graph: Manifest | list[tuple[str, str]],
    change_rates: Path | None,
    rates: tuple[str, ...],
    cost: Path | None,
    importance: Path | None,
    views: tuple[str, ...],
    time_unit: str,
) -> Pipeline:
    """Return the pipeline that the options declare."""
    given = [_named(text, time_unit) for text in rates]
    own = dict(given)
    if len(own) < len(given):
        twice = [repr(name) for name in own if sum(name == other for other, _ in given) > 1]
        raise SourceDataError(
            f"--rate names {list_offenders(twice)} more than once. Give each root one rate."
        )
    return make_pipeline(
        graph,
        _change_rates(graph, change_rates, time_unit) | own,
        None if importance is None else Table.read(importance, schema.IMPORTANCES).by_key("importance"),
        cost
        if cost is None or are_run_times(cost)
        else Table.read(cost, schema.REFRESH_COSTS).by_key("refresh_cost"),
        views=views,
        time_unit=time_unit,
    )


def are_run_times(cost: Path) -> bool:
    """Return whether costs are dbt's run times, in seconds."""
    return cost.is_dir() or cost.suffix.lower() == ".json"


def bandwidth_of(text: str, time_unit: str, *, in_seconds: bool) -> float:
    """Return the bandwidth per time unit; of run times such as 4h/day.

    Examples
    --------
    >>> bandwidth_of("4h/day", "day", in_seconds=True), bandwidth_of("600/h", "day", in_seconds=True)
    (14400.0, 14400.0)
    """
    amount, slash, unit = text.partition("/")
    if in_seconds:
        seconds = duration_of("--bandwidth", amount, "second")
        text = f"{seconds!r}{slash}{unit}"
    elif slash and _TIME.fullmatch(amount.strip()):
        raise SourceDataError(
            f"--bandwidth {text} is time of a warehouse, and no run times are known. Add --cost "
            "run_results.json, or write refreshes, such as 200/day."
        )
    return rate_of("--bandwidth", text, time_unit)


def _change_rates(
    graph: Manifest | list[tuple[str, str]], path: Path | None, time_unit: str
) -> dict[str, float]:
    """Return the change rates of a table, of the graph's nodes alone."""
    if path is None:
        return {}
    table = Table.read(path, schema.CHANGE_RATES)
    unit = table.unit(None)
    edges = graph.edges if isinstance(graph, Manifest) else graph
    known = {*chain.from_iterable(edges), *(graph.short_names() if isinstance(graph, Manifest) else ())}
    given = table.by_key("change_rate")
    return {name: rate / convert_time(1.0, unit, time_unit) for name, rate in given.items() if name in known}


def _named(text: str, time_unit: str) -> tuple[str, float]:
    """Return the root and the rate of NAME=RATE."""
    name, equals, rate = text.rpartition("=")
    if not (name and equals):
        raise SourceDataError(f"--rate: {text!r} names no root. Write it such as raw.orders=24/day.")
    return name, rate_of("--rate", rate, time_unit)

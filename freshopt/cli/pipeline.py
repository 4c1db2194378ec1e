"""`freshopt pipeline`: certified refresh rates of copies that are made of copies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from freshopt.cli.pipeline_inputs import are_run_times, bandwidth_of, graph_of, pipeline_of
from freshopt.cli.pipeline_plan import FILES, OBJECTIVES, PipelinePlan, plan_pipeline
from freshopt.cli.report import command_line
from freshopt.cli.schedule import exported_rows
from freshopt.logs.atomic_output import complete_folder
from freshopt.terminal import inputs, options
from freshopt.terminal.commands import OneOf, command
from freshopt.terminal.console import show, working
from freshopt.terminal.wish_options import own_option, table_options, wished
from freshopt.tools.dbt_project import DbtJobs, Manifest
from freshopt.tools.export import Exported, export


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
    for read in (asked.change_rates, asked.cost, asked.importance):
        inputs.require_other(read, out)
    with complete_folder(out, overwrite, files=FILES) as staging:
        line = pipeline_of(
            known, asked.change_rates, asked.rates, asked.cost, asked.importance, asked.views, time_unit
        )
        limit = bandwidth_of(asked.bandwidth, time_unit, in_seconds=in_seconds)
        periods = DbtJobs.periods(time_unit) if asked.kind else None
        made = plan_pipeline(line, limit, asked.objective, aligned=asked.phases == "aligned", periods=periods)
        written = made.write(staging, csv=csv, more={"command": command_line(context)})
        done = _jobs(made, graph, staging) if asked.kind else None
    shown = made.rows(str(graph), "second" if in_seconds else "refresh" if asked.cost is None else "unit")
    show([*shown, *([] if done is None else exported_rows("dbt", done))])
    jobs = ["jobs/selectors.yml", "jobs/crontab"] if asked.kind else []
    click.echo(f"\nwrote {', '.join([*written, *jobs])} to {out}")


def _jobs(made: PipelinePlan, manifest: Path, folder: Path) -> Exported:
    file = manifest / "manifest.json" if manifest.is_dir() else manifest
    return export(made.named_rates(), DbtJobs(file), folder / "jobs", time_unit=made.line.sources.time_unit)

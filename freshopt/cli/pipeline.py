"""`freshopt pipeline`: certified refresh rates of copies that are made of copies."""

from __future__ import annotations

from pathlib import Path

import click

from freshopt.cli.pipeline_inputs import are_run_times, bandwidth_of, graph_of, pipeline_of
from freshopt.cli.pipeline_plan import FILES, OBJECTIVES, PipelinePlan, plan_pipeline
from freshopt.cli.report import command_line
from freshopt.cli.schedule import exported_rows
from freshopt.logs.atomic_output import complete_folder
from freshopt.terminal import inputs, options
from freshopt.terminal.console import show, working
from freshopt.tools.dbt_project import DbtJobs, Manifest
from freshopt.tools.export import Exported, export


@click.command(short_help="Plan the refreshes of a pipeline of tables.")
@click.argument("graph", type=click.Path(path_type=Path))
@click.option(
    "--bandwidth",
    required=True,
    metavar="RATE",
    help="What all refreshes use, such as 200/day; with --cost run_results.json seconds of the warehouse, "
    "14400/day or 4h/day.",
)
@click.option(
    "--change-rates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, change_rate of the roots, as freshopt estimate writes it; sources that "
    "are not in the graph are left out.",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="NAME=RATE",
    help="Change rate of one root, such as raw.orders=24/day, in place of the table's; 0 if it never changes "
    "(repeatable).",
)
@click.option(
    "--cost",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What a refresh of each node uses: dbt's run_results.json, run times in seconds, or a table with "
    "columns source, refresh_cost (default 1).",
)
@click.option(
    "--importance",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, importance; 0 for other nodes (default: 1 for each node of which "
    "nothing is made; of dbt the exposures').",
)
@click.option(
    "--view",
    "views",
    multiple=True,
    metavar="NAME",
    help="Node that is as fresh as its parents at all times and never refreshed (repeatable); dbt's own are "
    "known.",
)
@click.option(
    "--phases",
    type=click.Choice(["aligned", "independent"]),
    default="aligned",
    show_default=True,
    help="aligned: each node right after its parents, at periods that are multiples of each other; "
    "independent: equal intervals at phases of their own.",
)
@click.option(
    "--objective",
    type=click.Choice(list(OBJECTIVES)),
    default="log-freshness",
    show_default=True,
    help="log-freshness, which starves no node; delay, the number of missed changes; or, of aligned phases, "
    "binary, the share of time fresh.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["dbt"]),
    help="Also write jobs: dbt's selectors.yml and a crontab that calls them; of a manifest.json.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
@options.time_unit_option
@click.option("--csv", is_flag=True, help="Write CSV instead of Parquet.")
@options.overwrite_option
@click.pass_context
@working("planning")
def pipeline(
    context: click.Context,
    graph: Path,
    bandwidth: str,
    change_rates: Path | None,
    rates: tuple[str, ...],
    cost: Path | None,
    importance: Path | None,
    views: tuple[str, ...],
    phases: str,
    objective: str,
    kind: str | None,
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
    if kind is not None and not (isinstance(known, Manifest) and phases == "aligned"):
        raise click.UsageError(
            "--format dbt is for the manifest.json of a project, and for --phases aligned: its jobs build "
            "parents first. Leave it out."
        )
    in_seconds = cost is not None and are_run_times(cost)
    for read in (change_rates, cost, importance):
        inputs.require_other(read, out)
    with complete_folder(out, overwrite, files=FILES) as staging:
        line = pipeline_of(known, change_rates, rates, cost, importance, views, time_unit)
        limit = bandwidth_of(bandwidth, time_unit, in_seconds=in_seconds)
        periods = DbtJobs.periods(time_unit) if kind else None
        made = plan_pipeline(line, limit, objective, aligned=phases == "aligned", periods=periods)
        written = made.write(staging, csv=csv, more={"command": command_line(context)})
        done = _jobs(made, graph, staging) if kind else None
    shown = made.rows(str(graph), "second" if in_seconds else "refresh" if cost is None else "unit")
    show([*shown, *([] if done is None else exported_rows("dbt", done))])
    jobs = ["jobs/selectors.yml", "jobs/crontab"] if kind else []
    click.echo(f"\nwrote {', '.join([*written, *jobs])} to {out}")


def _jobs(made: PipelinePlan, manifest: Path, folder: Path) -> Exported:
    file = manifest / "manifest.json" if manifest.is_dir() else manifest
    return export(made.named_rates(), DbtJobs(file), folder / "jobs", time_unit=made.line.sources.time_unit)

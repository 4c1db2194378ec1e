"""`freshopt estimate`, `freshopt solve` and `freshopt examples`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np
from click.core import ParameterSource

from freshopt.cli.solve_dask import solve_in_partitions
from freshopt.datasets.change_histories import EXAMPLES, load_example
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.io.atomic_output import complete_file
from freshopt.io.tables import table_ending, with_unit, write_table
from freshopt.modelling.problem import Problem
from freshopt.modelling.spend import Spend
from freshopt.planning.declared import price_sentences, row_table, solve_declared
from freshopt.solving import solve as solve_problem
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.console import number, plain, show
from freshopt.terminal.constraint_options import ConstraintOptions, constraint_options
from freshopt.terminal.estimator_options import Estimation, estimation_options
from freshopt.terminal.log_inputs import Origin, origin_options, outcome
from freshopt.terminal.objective_options import objective_of
from freshopt.terminal.source_columns import SourceColumns

out_option = click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Table to write, .csv or .parquet."
)


@click.command()
@options.log_argument
@options.example_option
@origin_options
@out_option
@estimation_options
@options.hosts_option
@options.confidence_option
@options.time_unit_option
@options.overwrite_option
def estimate(
    origin: Origin,
    out: Path,
    estimation: Estimation,
    hosts: Path | None,
    confidence: float,
    time_unit: str,
    overwrite: bool,
) -> None:
    """Estimate the change rates of the sources in a LOG."""
    import polars

    if hosts is not None and not estimation.by_host:
        raise click.UsageError("--hosts is for --prior host. Give both or neither.")
    table_ending(out)
    for read in (origin.log, origin.history):
        inputs.require_other(read, out)
    with complete_file(out, overwrite) as staging:
        found = origin.read(time_unit)
        crawls = found.log
        model = estimation.fit(crawls, tables.hosts_of(hosts))
        lower, upper = model.interval(confidence)
        columns = {"source": crawls.sources_.tolist(), "change_rate": model.change_rate_, "lower": lower}
        frame = polars.DataFrame({**columns, "upper": upper, "flag": model.flag_})
        write_table(with_unit(frame, crawls.time_unit), staging)
    flags, counts = np.unique(model.flag_, return_counts=True)
    kinds = ", ".join(
        f"{number_of:,} {flag}" for flag, number_of in zip(flags.tolist(), counts.tolist(), strict=True)
    )
    known = model.change_rate_[np.isfinite(model.change_rate_)]
    median = f"median {number(float(np.median(known)))} per {crawls.time_unit}; " if len(known) else ""
    show(
        [
            ("log", f"{found.words}{outcome(found.data)}"),
            ("change rates", f"{median}{kinds}"),
            ("estimator", repr(model)),
            *_resets(model),
            ("wrote", str(out)),
        ]
    )


def _resets(model: Estimator) -> list[tuple[str, str]]:
    """Return how often rates are drawn anew, where they are."""
    if not isinstance(model, MaximumLikelihood) or model.reset_ is None:
        return []
    if model.reset_ == 0.0:
        return [("resets", "none: rates last")]
    return [("resets", f"each rate is drawn anew once in {number(1.0 / model.reset_)} {model.time_unit_}s")]


@click.command()
@click.argument("sources", type=click.Path(path_type=Path))
@options.solve_objective_option
@options.exponent_option
@options.deadline_option
@options.refresh_option
@options.optional_bandwidth_option
@options.host_limits_option
@constraint_options()
@click.option(
    "--solver",
    type=click.Choice(list(options.SOLVERS)),
    default="auto",
    show_default=True,
    metavar="NAME",
    help=f"Solver, one of {', '.join(options.SOLVERS)}; auto chooses one and says why.",
)
@options.engine_options(
    "SOURCES is then a folder of Parquet files, and --out a folder for the rates, a file per partition."
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Table to write, .csv or .parquet; a folder with --engine dask.",
)
@options.table_unit_option
@options.overwrite_option
@click.pass_context
def solve(
    context: click.Context,
    sources: Path,
    objective: str,
    exponent: float | None,
    deadline: str | None,
    refresh: str | None,
    bandwidth: str | None,
    host_limits: Path | None,
    constraints: ConstraintOptions,
    solver: str,
    engine: str,
    scheduler: str | None,
    out: Path,
    time_unit: str | None,
    overwrite: bool,
) -> None:
    """Find certified refresh rates for a table of SOURCES.

    SOURCES is a CSV or Parquet file with the column change_rate and, optionally, source (a name), importance,
    min_rate, max_rate, refresh_cost (bandwidth of one refresh), host, and signalled (true if the source
    announces its changes). --objective power reads scale, exponent and cap, --objective deadline reads
    deadline.

    With --budget, --nested or --target the prices of the constraints are printed, a sentence each, and the
    table of all of them is written beside --out: rates.constraints.csv beside rates.csv.
    """
    objective_given = context.get_parameter_source("objective") is ParameterSource.COMMANDLINE
    constraints.require_usable(bandwidth, objective_given=objective_given)
    if engine == "dask":
        solve_in_partitions(
            sources,
            objective,
            (exponent, deadline, refresh),
            bandwidth,
            host_limits,
            constraints,
            solver,
            out,
            time_unit,
            scheduler,
            overwrite=overwrite,
        )
        return
    if scheduler is not None:
        raise click.UsageError("--scheduler is for --engine dask. Add that, or leave it out.")
    ending = table_ending(out)
    declared = constraints.given()
    beside = out.with_name(f"{out.name.removesuffix(ending)}.constraints{ending}")
    for written in (out, beside) if declared else (out,):
        inputs.require_other(sources, written)
    more = complete_file(beside, overwrite) if declared else nullcontext()
    with complete_file(out, overwrite) as staging, more as rows:
        known, columns, frame = tables.sources_of(sources, time_unit)
        unit = known.time_unit
        given = constraints.made(SourceColumns(known, frame, sources, "SOURCES"), refresh)
        problem = Problem(
            Spend()
            if constraints.cheapest
            else objective_of(
                objective, refresh, inputs.parameters_of(columns, objective, exponent, deadline, unit)
            ),
            known,
            None if bandwidth is None else inputs.rate_of("--bandwidth", bandwidth, unit),
            tables.host_limits_of(host_limits, unit),
            given,
        )
        chosen = options.SOLVERS[solver]
        solution = solve_problem(problem, chosen) if solver != "auto" else solve_declared(problem)
        write_table(with_unit(solution.to_frame(), unit), staging)
        table = row_table(solution)
        if rows is not None and table is not None:
            write_table(table.to_frame(), rows)
    click.echo(repr(solution))
    click.echo(f"   wrote: {out}{f', {beside}' if declared else ''}")
    for k, text in enumerate(price_sentences(solution) if declared else []):
        click.echo(plain(text) if k else f"\n{plain(text)}")


@click.command(short_help="List the bundled examples, or write the log of one.")
@click.argument("name", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="File for the example's crawl log.")
@options.overwrite_option
def examples(name: str | None, out: Path | None, overwrite: bool) -> None:
    """List the bundled examples, or write the log of NAME."""
    import polars

    if out is not None:
        table_ending(out)
    if name is None:
        if out is not None:
            raise click.UsageError("Name the example to write, before --out.")
        show([(key, example.description) for key, example in EXAMPLES.items()])
        return
    log = load_example(name)
    if out is None:
        show([(name, repr(log)), ("", f"freshopt examples {name} --out log.csv writes it.")])
        return
    with complete_file(out, overwrite) as staging:
        columns = {"source": log.sources_[log.source_index].tolist(), "time": inputs.moments(log, log.time)}
        columns["changed"] = log.changed.astype(np.int8)
        if log.last_modified is not None:
            columns["last_modified"] = inputs.moments(log, log.last_modified)
        write_table(polars.DataFrame(columns), staging)
    show([(name, repr(log)), ("wrote", str(out))])

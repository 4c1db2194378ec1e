"""`freshopt estimate`, `freshopt solve` and `freshopt examples`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.cli.partitions import solve_in_partitions
from freshopt.cli.plan_failures import outcome_words
from freshopt.datasets.change_histories import EXAMPLES, load_example
from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.estimators.success_rates import SuccessRates
from freshopt.formatting import aligned, percent
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.read_events import read_requests
from freshopt.logs.schema import HOSTS, column_of
from freshopt.logs.tables import table_ending, with_unit, write_table
from freshopt.modelling.failing_fetches import retried_at_once
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.spend import Spend
from freshopt.naming import OBJECTIVES
from freshopt.planning.clashes import DASK
from freshopt.planning.declared import price_sentences, row_table
from freshopt.planning.failing_window import Statuses
from freshopt.planning.findings import time_fresh
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.report.value_words import price_text, spread
from freshopt.solving import solve as solve_problem
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.commands import OneOf, command
from freshopt.terminal.console import columns, plain, show, working
from freshopt.terminal.constraint_options import ConstraintOptions, constraint_options
from freshopt.terminal.estimator_options import Estimation, estimation_options
from freshopt.terminal.log_inputs import Origin, origin_options, outcome, request_rates
from freshopt.terminal.own_objectives import is_own
from freshopt.terminal.tables import SourceColumns
from freshopt.terminal.wish_options import RateLimits, given_options, rate_limits, refuse, wish_option
from freshopt.units import duration, rate_of

# Digits of a setting that nobody reads.
_LONG = re.compile(r"[0-9]+\.[0-9]{5,}(?:e[+-]?[0-9]+)?")


@command()
@options.log_argument
@options.example_option
@origin_options
@options.file_option("Table to write, .csv or .parquet.", required=True)
@estimation_options
@wish_option("hosts")
@wish_option("confidence")
@click.option(
    "--requests",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Access log of those who ask the cache, or a table with columns source, time: adds the column "
    "request_rate, for solve --refresh on-request.",
)
@options.time_unit_option
@options.overwrite_option
@working("estimating change rates")
def estimate(
    origin: Origin,
    out: Path,
    estimation: Estimation,
    hosts: Path | None,
    confidence: float,
    requests: Path | None,
    time_unit: str,
    overwrite: bool,
) -> None:
    """Estimate the change rates of the sources in a LOG.

    Where a log's statuses show that fetches failed, the table has the column success, the chance that a
    fetch succeeds, of which freshopt solve makes attempts. With --requests it has request_rate instead.
    """
    if hosts is not None and not estimation.by_host:
        raise click.UsageError("--hosts is for --prior host. Give that, or leave it out.")
    table_ending(out)
    inputs.require_other(out, *origin.paths, requests)
    with complete_file(out, overwrite) as staging:
        found = origin.read(time_unit)
        crawls = found.log
        host_of = origin.hosts() if estimation.by_host and hosts is None else column_of(hosts, HOSTS)
        model = estimation.fit(crawls, host_of)
        lower, upper = model.interval(confidence)
        told = {"source": crawls.names.tolist(), "change_rate": model.change_rate_, "lower": lower}
        frame = polars.DataFrame({**told, "upper": upper, "flag": model.flag_})
        asked: list[tuple[str, str]] = []
        if requests is not None:
            seen = read_requests(requests, time_unit=time_unit)
            rates, words = request_rates(seen, frame["source"].to_list(), requests)
            frame, asked = frame.with_columns(request_rate=rates), [("requests", words)]
        else:
            frame, asked = _with_success(frame, origin.statuses(crawls))
        write_table(with_unit(frame, crawls.time_unit), staging)
    flags, counts = np.unique(model.flag_, return_counts=True)
    kinds = ", ".join(
        f"{number_of:,} {flag}" for flag, number_of in zip(flags.tolist(), counts.tolist(), strict=True)
    )
    known = model.change_rate_[np.isfinite(model.change_rate_)]
    middle = float(np.median(known)) if len(known) else 0.0
    median = f"median source one in {duration(1.0 / middle, crawls.time_unit)}; " if middle > 0.0 else ""
    show(
        [
            ("log", f"{found.words}{outcome(found.data)}"),
            ("change rates", f"{median}{kinds}"),
            ("estimator", _LONG.sub(lambda found: f"{float(found[0]):.5g}", repr(model))),
            *_resets(model),
            *asked,
            ("wrote", str(out)),
        ]
    )


def _with_success(
    frame: polars.DataFrame, recorded: Statuses | None
) -> tuple[polars.DataFrame, list[tuple[str, str]]]:
    """Return the table with chances of success, and a printed row."""
    found = None if recorded is None else SuccessRates.from_statuses(*recorded)
    if found is None or not (found.fails or bool(np.any(found.ended))):
        return frame, []
    names = frame["source"].to_list()
    if found.fails:
        frame = frame.with_columns(success=found.success_of(names))
    return frame, [("statuses", outcome_words(found, names))]


def _resets(model: Estimator) -> list[tuple[str, str]]:
    """Return how often rates are drawn anew, where they are."""
    if not isinstance(model, MaximumLikelihood) or model.reset_ is None:
        return []
    if model.reset_ == 0.0:
        return [("resets", "none: rates last")]
    return [("resets", f"each rate is drawn anew once in {duration(1.0 / model.reset_, model.time_unit_)}")]


@command()
@click.argument("sources", type=click.Path(path_type=Path))
@inputs.goal_options(OBJECTIVES, own=True)
@options.solve_refresh_option
@wish_option("bandwidth")
@wish_option("host_limits")
@rate_limits
@constraint_options()
@click.option(
    "--solver",
    type=OneOf(list(options.SOLVERS)),
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Solver, such as water-filling or interior-point; auto chooses one and says why.",
)
@options.engine_options(
    "SOURCES is then a folder of Parquet files, and --out a folder for the rates, a file per partition."
)
@options.file_option("Table to write, .csv or .parquet; a folder with --engine dask.", required=True)
@wish_option("retry_at_once")
@options.table_unit_option
@options.overwrite_option
@click.pass_context
@working("solving")
def solve(
    context: click.Context,
    sources: Path,
    goal: inputs.Goal,
    refresh: str | None,
    bandwidth: str | None,
    host_limits: Path | None,
    bounds: RateLimits,
    constraints: ConstraintOptions,
    solver: str,
    engine: str,
    scheduler: str | None,
    out: Path,
    retry_at_once: bool,
    time_unit: str | None,
    overwrite: bool,
) -> None:
    """Find certified refresh rates for a table of SOURCES.

    SOURCES is a CSV or Parquet file with the column change_rate and, optionally, source (a name), importance,
    min_rate, max_rate, refresh_cost (bandwidth of one refresh), changed_cost (what a refresh uses besides if
    the source has changed), success (chance that a fetch succeeds; rates are then attempts), host, and
    signalled (true if the source announces its changes). --objective power reads scale, exponent and cap,
    --objective deadline reads deadline. --refresh on-request, of caches, reads
    request_rate and, where expired copies may be served while they are fetched, stale_while_revalidate; the
    table written has the column lifetime.

    With --budget, --nested or --target the prices of the constraints are printed, a sentence each, and the
    table of all of them is written beside --out: rates.constraints.csv beside rates.csv.
    """
    said = given_options(context) | ({DASK: DASK} if engine == "dask" else {})
    declared = constraints.given()
    refuse(said | ({"constraints": declared[0]} if declared else {}))
    constraints.require_bandwidth(bandwidth)
    if engine == "dask":
        if bounds != RateLimits():
            raise click.UsageError(
                "--engine dask takes limits from the columns min_rate and max_rate. Leave the options out."
            )
        solve_in_partitions(
            sources,
            goal,
            refresh,
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
    ending = table_ending(out)
    beside = out.with_name(f"{out.name.removesuffix(ending)}.constraints{ending}")
    for written in (out, beside) if declared else (out,):
        inputs.require_other(written, sources)
    more = complete_file(beside, overwrite) if declared else nullcontext()
    with complete_file(out, overwrite) as staging, more as rows:
        known, own, listed = tables.sources_of(sources, time_unit, bounds.on, own=is_own(str(goal.objective)))
        unit = known.time_unit
        if retry_at_once:
            if known.success is None:
                raise SourceDataError(
                    f"{sources} has no column 'success', the chance that a fetch succeeds. Add it, or leave "
                    "--retry-at-once out."
                )
            known = retried_at_once(known)
        given = constraints.made(SourceColumns(known, listed, "SOURCES"), refresh)
        problem = Problem(
            Spend() if constraints.cheapest else goal.made(refresh, unit, own),
            known,
            None if bandwidth is None else rate_of("--bandwidth", bandwidth, unit),
            tables.host_limits_of(host_limits, unit),
            given,
        )
        chosen = options.SOLVERS[solver]
        solution = solve_problem(problem, chosen) if solver != "auto" else solve_with_kinks(problem)
        write_table(with_unit(solution.to_frame(), unit), staging)
        table = row_table(solution)
        if rows is not None and table is not None:
            write_table(table.to_frame(), rows)
    told = [line.partition(": ")[::2] for line in repr(solution).splitlines()]
    told += [(key.rjust(8), text) for key, text in _meaning(solution)]
    if retry_at_once:
        told.append((" retries", "at once: rates are of successes, and what is used are attempts"))
    told.append(("   wrote", f"{out}{f', {beside}' if declared else ''}"))
    for label, text in aligned(told, columns()):
        click.echo(f"{label}{': ' if label.strip() else '  '}{text}")
    for k, text in enumerate(price_sentences(solution) if declared else []):
        click.echo(plain(text) if k else f"\n{plain(text)}")


def _meaning(solution: Solution) -> Iterator[tuple[str, str]]:
    """Yield what rates and prices mean, in units of every day."""
    problem, unit = solution.problem, solution.problem.sources.time_unit
    if not bool(np.all(np.isfinite(solution.rates))):
        return
    shares = time_fresh(problem, {"plan": solution})
    on_request = problem.objective.refresh is Refresh.ON_REQUEST
    if shares is not None:
        what = "requests find a fresh copy, weighted" if on_request else "the time"
        yield (
            "fresh",
            f"{percent(shares['plan'], space=' ')} of {what}{'' if on_request else ','} by importance",
        )
    yield "interval", spread(solution.rates, unit)
    if on_request:
        with np.errstate(divide="ignore"):
            yield "lifetime", spread(1.0 / solution.lifetimes, unit)
    if solution.price > 0.0 and np.isfinite(problem.bandwidth) and problem.program is None:
        kind = type(problem.objective).__name__
        better = problem.objective.sense == "maximise"
        limit = problem.bandwidth
        text = price_text(kind, solution.price, limit, solution.value, unit, maximised=better)
        yield "means", text.partition(": ")[2]


@command()
@click.argument("name", required=False)
@options.file_option("File for the example's crawl log.")
@options.overwrite_option
def examples(name: str | None, out: Path | None, overwrite: bool) -> None:
    """List the bundled examples, or write the log of NAME."""
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
        rows = {"source": log.names[log.source_index].tolist(), "time": log.clock.moments(log.time)}
        rows["changed"] = log.changed.astype(np.int8)
        if log.last_modified is not None:
            rows["last_modified"] = log.clock.moments(log.last_modified)
        write_table(polars.DataFrame(rows), staging)
    show([(name, repr(log)), ("wrote", str(out))])

"""Graph, change rates, costs and importances that `freshopt pipeline` is given."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs import schema
from freshopt.logs.schema import Table
from freshopt.pipelines.pipeline import Pipeline, pipeline
from freshopt.tools.dbt_project import Manifest, read_manifest
from freshopt.units import convert_time, duration_of, rate_of

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
    return pipeline(
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

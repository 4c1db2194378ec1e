"""Numbers by node: change rates, importances and costs, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, expect, list_offenders, shown
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array
from freshopt.pipelines.graph import Node, require_known
from freshopt.tools.dbt_project import read_run_times


def named_numbers(
    given: Any,  # noqa: ANN401 - a mapping, or a fitted estimator
    short: Mapping[Node, Node],
    place: Mapping[Node, int],
    what: str,
    time_unit: str,
) -> dict[Node, float]:
    """Return numbers by node, full names for short ones."""
    if hasattr(given, "change_rate_"):
        if given.time_unit_ != time_unit:
            raise SourceDataError(
                f"the estimates are per {given.time_unit_}, time_unit is {time_unit!r}. Pass time_unit="
                f"{given.time_unit_!r}."
            )
        pairs = zip(given.sources_.tolist(), given.change_rate_.tolist(), strict=True)
        return {short.get(node, node): rate for node, rate in pairs if short.get(node, node) in place}
    expect(given, Mapping, what, "Pass a mapping of node to number")
    found = {short.get(node, node): value for node, value in given.items()}
    require_known(found, place, what)
    return found


def number_column(given: Mapping[Node, float], place: Mapping[Node, int], what: str, default: float) -> Array:
    """Return numbers as a column over the nodes, checked."""
    column = np.full(len(place), default)
    wrong = []
    for node, value in given.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if not (number == 0.0 == default or SMALLEST <= number <= LARGEST):
            wrong.append(f"{shown(node)}: {shown(value)}")
        column[place[node]] = number
    if wrong:
        least = "0 or more" if default == 0.0 else "> 0"
        raise SourceDataError(
            f"{what} out of range for {list_offenders(wrong)}. It must be {least}, within {SMALLEST:g}.."
            f"{LARGEST:g}. Correct it."
        )
    return column


def refresh_costs(
    cost: Mapping[Any, float] | str | os.PathLike[str] | None,
    short: Mapping[Node, Node],
    place: Mapping[Node, int],
    needed: list[Node],
) -> Array:
    """Return what refreshes cost, as a column over the nodes."""
    if cost is None:
        return np.ones(len(place))
    if not isinstance(cost, str | os.PathLike):
        return number_column(named_numbers(cost, short, place, "cost", ""), place, "cost", 1.0)
    times = read_run_times(cost)
    lacking = [shown(node) for node in needed if node not in times]
    if lacking:
        raise SourceDataError(
            f"{cost} has no run time of {list_offenders(lacking)}. Pass the run_results.json of a run of all "
            "models, or costs of your own."
        )
    return number_column({node: value for node, value in times.items() if node in place}, place, "cost", 1.0)

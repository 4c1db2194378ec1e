"""Fetches that fail in `freshopt plan`, by a log's statuses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from freshopt.errors import ObjectiveError, list_offenders
from freshopt.estimators.success_rates import SuccessRates
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.planning.failing_window import Statuses
from freshopt.planning.plan import Plan


def without_ended(
    importance: Any,  # noqa: ANN401 - as `plan` takes it
    recorded: Statuses | None,
) -> Any:  # noqa: ANN401
    """Return importances that are 0 for sources that have ended."""
    found = None if recorded is None else SuccessRates.from_statuses(*recorded)
    if found is None or not bool(np.any(found.ended)):
        return importance
    gone = found.sources_[found.ended].tolist()

    def lasting(names: Any) -> Array:  # noqa: ANN401
        given = 1.0 if importance is None else importance(names) if callable(importance) else importance
        return np.where(np.isin(names, gone), 0.0, given)

    return lasting


def outcome_words(found: SuccessRates, planned: Iterable[Any]) -> str:
    """Return what statuses tell, with sources that are never fetched.

    Those that never answered have no change rates, and are in no table; `planned` are the names that have.
    """
    known = {str(name) for name in planned}
    fetched = (found.ended | (found.attempts > 0.0)).tolist()
    silent = [
        repr(name)
        for name, was in zip(found.sources_.tolist(), fetched, strict=True)
        if was and str(name) not in known
    ]
    words = found.words
    if bool(np.any(found.ended)):
        words += ", to be fetched no more"
    if silent:
        words += f"; left out, as they never answered: {list_offenders(silent)}"
    return words


def with_failures(job: partial[Plan], recorded: Statuses | None) -> tuple[Plan, list[tuple[str, str]]]:
    """Return the plan in attempts where fetches failed, and rows on them.

    Where the objective or a target has no cell of attempts that fail, the plan is that of fetches that all
    succeed, and a row says why.
    """
    found = None if recorded is None else SuccessRates.from_statuses(*recorded)
    if found is None or not (found.fails or bool(np.any(found.ended))):
        told = "the log has no failed fetches: --retry-at-once changes nothing"
        return job(), [("statuses", told)] if job.keywords.get("retry_at_once", False) else []
    words = outcome_words(found, job.args[0].names.tolist())
    if not found.fails:
        return job(), [("statuses", words)]
    at_once = job.keywords.get("retry_at_once", False)
    why = "" if at_once else _slow_attempts(job.keywords["objective"])
    try:
        if not why:
            return job(success=found.success_of), [("statuses", words)]
    except ObjectiveError as error:
        why = str(error).partition(". ")[0]
        if job.keywords.get("changed_cost") is not None:
            why = "attempts that fail and cost what they bring have no cell, but with --retry-at-once"
    return job(), [("statuses", f"{words}; rates are planned as if all succeeded: {why}")]


def _slow_attempts(objective: Objective) -> str:
    """Return why a plan in attempts would take long, or nothing."""
    if objective.refresh is not Refresh.PERIODIC or not isinstance(objective, CurveObjective):
        return ""
    curve = objective.curve(Sources(1.0))
    kinked = not curve.smooth and curve.attempts is None
    return "a cost with a kink is summed attempt by attempt, unless with --refresh poisson" if kinked else ""


def replayed_failures(made: Plan, recorded: Statuses | None, *, continued: bool) -> dict[str, Any]:
    """Return how fetches fail in a plan's back-test, as arguments.

    Of crawls that continue the log no failures are recorded: then coins decide.
    """
    success = made.request.success
    if success is None or recorded is None:
        return {}
    told = {"success": success} if continued else {"statuses": recorded}
    return {**told, "retry_at_once": made.request.retry_at_once}

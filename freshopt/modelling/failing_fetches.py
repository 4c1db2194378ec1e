"""`in_attempts`: an objective of fetches that fail, stated in attempts.

An objective is written for refreshes that succeed. With `Sources(success=s)` its rate is one of attempts:
under Poisson refreshes, and for announced changes, sρ takes the place of ρ; an objective that knows how the
same costs are stated in fetches that never fail (`Objective.never_failing`) keeps its compiled loops and its
cones; periodic attempts have a cell of their own (`freshopt.modelling.fetches.attempt_cell`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.errors import ObjectiveError, expect
from freshopt.modelling.cost_curve import slowed_kernel
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.separable.kernel import Kernel


class InAttempts(NamedTuple):
    """Objective and sources whose rates are sρ of attempts ρ.

    - `sources`: Without chances of success, unless the objective reads them itself.
    - `share` (n,): The s that remains to be put in front of the rate; None for 1.
    """

    objective: Objective
    sources: Sources
    share: Array | None


def in_attempts(objective: Objective, sources: Sources, *, signalled: bool = False) -> InAttempts:
    """Return what an objective declares of attempts.

    - raises ObjectiveError if it declares nothing for periodic attempts, or for refreshes on request.
    """
    success = sources.failing
    if success is None or objective.attempts:
        return InAttempts(objective, sources, None)
    _require_no_requests(objective, sources, success)
    plain = sources.never_failing()
    if signalled:
        objective.require_share_of_signals()
    refresh = Refresh.ON_SIGNAL if signalled else objective.refresh
    stated = objective.never_failing(plain, success, refresh)
    if stated is not None:
        return InAttempts(*stated, None)
    if refresh is Refresh.PERIODIC:
        raise ObjectiveError(f"{_no_form(objective, sources, success)}. {_remedy(objective)}.")
    return InAttempts(objective, plain, success)


def refused_attempts(objective: Objective, sources: Sources) -> str | None:
    """Return why an objective has no declared form of attempts, or None."""
    success = sources.failing
    if success is None or objective.attempts or objective.refresh is not Refresh.PERIODIC:
        return None
    if objective.never_failing(sources.never_failing(), success, Refresh.PERIODIC) is not None:
        return None
    return f"{_no_form(objective, sources, success)}; use fo.solve"


def kernel_in_attempts(objective: Objective, sources: Sources, *, signalled: bool) -> Kernel | None:
    """Return the hand-written numerics in attempts, or None.

    - raises ObjectiveError: as `in_attempts`, of an objective without numerics of periodic attempts.
    """
    success = sources.failing
    if success is not None and not signalled and not objective.attempts:
        _require_no_requests(objective, sources, success)
        if objective.refresh is Refresh.PERIODIC:
            plain = sources.never_failing()
            if objective.never_failing(plain, success, Refresh.PERIODIC) is None:
                kernel = objective.attempt_kernel(plain, success)
                if kernel is not None:
                    return kernel
    own, plain, share = in_attempts(objective, sources, signalled=signalled)
    kernel = (own.signalled_kernel if signalled else own.kernel)(plain)
    return kernel if kernel is None or share is None else slowed_kernel(kernel, share)


def retried_at_once(sources: Sources) -> Sources:
    """Return the sources of fetches that are retried at once.

    Rates, and their bounds, are then of refreshes that succeed; one takes 1/s attempts of the bandwidth, and
    what a changed source costs besides once.

    Examples
    --------
    >>> sources = retried_at_once(Sources([1.0, 3.0], success=[0.5, 0.2]))
    >>> sources.refresh_cost
    array([2., 5.])
    """
    expect(sources, Sources, "sources", "Pass freshopt.Sources")
    if sources.success is None:
        return sources
    return Sources(
        sources.column("change_rate") if sources.rated else None,
        sources.column("importance"),
        sources.names,
        sources.host,
        sources.signalled,
        sources.min_rate * sources.success,
        sources.max_rate * sources.success,
        sources.refresh_cost / sources.success,
        sources.time_unit,
        sources.request_rate,
        sources.stale_while_revalidate,
        changed_cost=0.0 if sources.changed_cost is None else sources.changed_cost,
        columns=sources.columns,
    )


def _first(sources: Sources, success: Array) -> str:
    return sources.label(int(np.flatnonzero(success < 1.0)[0]))


def _no_form(objective: Objective, sources: Sources, success: Array) -> str:
    return (
        f"fetches of {_first(sources, success)} may fail, and {objective!r} has no declared form for "
        "periodic attempts"
    )


def _remedy(objective: Objective) -> str:
    kinds = type(objective)
    if kinds.attempt_kernel is not Objective.attempt_kernel or kinds.kernel is Objective.kernel:
        return "Use Refresh.POISSON, or fo.solve"
    poisson = "use Refresh.POISSON, or " if Refresh.POISSON in objective.disciplines else ""
    text = f"{poisson}leave success out"
    return text[0].upper() + text[1:]


def _require_no_requests(objective: Objective, sources: Sources, success: Array) -> None:
    if objective.refresh is Refresh.ON_REQUEST:
        raise ObjectiveError(
            f"fetches of {_first(sources, success)} may fail, and refreshes on request have no cell for "
            "that. Leave success out, or use Refresh.POISSON or Refresh.PERIODIC."
        )

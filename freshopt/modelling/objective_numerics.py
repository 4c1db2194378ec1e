"""`numerics_of`: an objective's numerics for all of a problem's sources."""

from __future__ import annotations

import numpy as np

from freshopt.autodiff.compiler import UnknownAtomError, compile_expression
from freshopt.cvx import cp
from freshopt.errors import ObjectiveError
from freshopt.modelling.declaration import declare, name_of
from freshopt.modelling.failing_fetches import kernel_in_attempts
from freshopt.modelling.fetches.conditional_fetches import PerBandwidth
from freshopt.modelling.fetches.derived_penalties import (
    announced_kernel,
    require_penalty,
    require_twin,
    signals_follow_from,
)
from freshopt.modelling.fetches.gap_costs import GapCosts, as_kernel, derived_attempts
from freshopt.modelling.numerics_check import require_declared, require_registered
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.phased_objective import PhasedObjective
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.numerics.arrays import extremes
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics
from freshopt.separable.linear_cost import LinearCost


def numerics_of(objective: Objective, sources: Sources) -> tuple[Numerics | None, str]:
    """Return an objective's numerics, or None and the atom that is unknown.

    They come from kernels where there are any, else they are derived.

    - raises ObjectiveError if the declaration is refused, or does not cover signalled sources.
    """
    if isinstance(objective, Spend):
        return LinearCost(sources.refresh_cost), ""
    if isinstance(objective, PerBandwidth):
        return _per_bandwidth(objective, sources), ""
    if isinstance(objective, PhasedObjective):
        if sources.failing is not None:
            raise ObjectiveError(
                "good phases of the week are for fetches that succeed. Leave success or the profile out."
            )
        own = objective.objective
        numerics, unknown = numerics_of(own, sources)
        if numerics is not None and own.penalty_of is not None and not isinstance(numerics, MixedNumerics):
            require_penalty(own, numerics, sources, periodic=True)
        return (None if numerics is None else objective.hull(numerics, sources)), unknown
    signalled = sources.signalled
    least, most = extremes(signalled)
    refusal = objective.refuses_signals() if most else None
    if refusal is not None:
        first = sources.label(int(np.flatnonzero(signalled)[0]))
        raise ObjectiveError(
            f"{first} is signalled, but {refusal}. Pass signalled=False for these sources, or use another "
            "objective or discipline."
        )
    try:
        silent = None if least else _kind(objective, sources, signalled=False)
        announced = _kind(objective, sources, signalled=True) if most else None
    except UnknownAtomError as error:
        return None, str(error)
    if silent is None or announced is None:
        return silent or announced, ""
    return MixedNumerics(signalled, silent, announced), ""


def gap_costs(objective: Objective, sources: Sources) -> GapCosts | str:
    """Return what gaps cost by a declaration, or why nobody knows."""
    if objective.refresh is not Refresh.PERIODIC:
        return (
            f"{objective!r} is a cost of rates under {objective.refresh.value} refreshes, which tells no "
            "cost of age; declare refresh = fo.Refresh.PERIODIC and the cost of equal gaps"
        )
    numerics, unknown = numerics_of(objective, sources.never_failing())
    if numerics is None:
        return f"{objective!r} tells no cost of age: {unknown.rstrip('.')}"
    found = GapCosts(numerics)
    refused = found.refused(len(sources))
    return found if refused is None else f"{objective!r} tells no cost of age: {refused}. Use its rates alone"


def _has_derived_attempts(objective: Objective, sources: Sources) -> bool:
    """Return whether periodic attempts follow from the cost of rates alone."""
    success = sources.failing
    if success is None or objective.attempts or objective.refresh is not Refresh.PERIODIC:
        return False
    if type(objective).kernel is not Objective.kernel:
        return False
    return objective.never_failing(sources.never_failing(), success, Refresh.PERIODIC) is None


def _trusted(objective: Objective, *, signalled: bool) -> bool:
    """Return whether a declaration beside a kernel needs no check.

    Tests checked it, or there is none. An expectation declares what the objective in it does.
    """
    home = type(objective).__module__
    inner = getattr(objective, "objective", None)
    if home == "freshopt.modelling.expected" and isinstance(inner, Objective):
        return _trusted(inner, signalled=signalled)
    name = "signalled_per_source" if signalled else "per_source"
    named = home.startswith("freshopt.problems.")
    return named or getattr(Objective, name) is getattr(type(objective), name)


def _per_bandwidth(objective: PerBandwidth, sources: Sources) -> Numerics:
    """Return numerics over bandwidth used, between the sources' bounds."""
    own, given = objective.sources, objective.objective
    kernel = given.kernel(own)
    if kernel is None:
        derived, unknown = numerics_of(given, own)
        if derived is None:
            raise ObjectiveError(f"fetches that cost what they bring need derivatives: {unknown}")
        kernel = as_kernel(derived, len(own))
    if given.penalty_of is not None:
        require_penalty(given, kernel, own, periodic=given.refresh is Refresh.PERIODIC)
    return objective.hull(kernel, sources)


def _kind(objective: Objective, sources: Sources, *, signalled: bool) -> Kernel | DerivedNumerics:
    """Return the numerics of one kind of source.

    They are of full length n: the kernel, or derived from the declaration.
    """
    if signalled and (twin := signals_follow_from(objective)) is not None:
        plain = sources.never_failing()
        numerics = _kind(twin, plain, signalled=False)
        if twin is not objective:
            require_twin(objective, _kind(objective, plain, signalled=False), numerics, sources)
        return announced_kernel(objective, numerics, sources)
    if not signalled and _has_derived_attempts(objective, sources):
        plain = sources.never_failing()
        assert sources.success is not None, "some fetches fail"
        return derived_attempts(_kind(objective, plain, signalled=False), sources.success)
    kernel = kernel_in_attempts(objective, sources, signalled=signalled)
    method = objective.signalled_per_source if signalled else objective.per_source
    if kernel is not None and _trusted(objective, signalled=signalled):
        return kernel
    rate = cp.Variable(len(sources), nonneg=True, name="rate")
    declaration = declare(objective, method, rate, sources)
    chosen = np.broadcast_to(sources.signalled == signalled, len(sources))
    if kernel is not None:
        where = name_of(objective, method)
        require_declared(objective, kernel, declaration, rate, sources, chosen, where)
        return kernel
    if declaration.constraints:
        raise ObjectiveError(
            f"{name_of(objective, method)} returns auxiliary constraints but there is no kernel. Write "
            f"{'signalled_' if signalled else ''}kernel(sources): value, marginal and inverse marginal."
        )
    sign = 1.0 if objective.sense == "minimise" else -1.0
    node = compile_expression(declaration.expression, rate)
    numerics = DerivedNumerics(node, sign, sources.scale)
    require_registered(numerics, declaration.expression, rate, sources, chosen)
    return numerics

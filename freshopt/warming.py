"""`warm`: load compiled loops before they are needed."""

from __future__ import annotations

import numpy as np

from freshopt.compiled import backend
from freshopt.dual_search.batch_water_filling import SMALL
from freshopt.errors import ObjectiveError, SourceDataError, shown
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.renamed import keywords
from freshopt.solving import solve

# Small and large problems have loops of their own.
_SIZES = (2 * backend.AT_HAND, SMALL + 1)


@keywords()
def warm(problem: Problem | Objective | None = None) -> None:
    """Load numba, and the compiled loops of a problem or objective.

    A process loads numba only once NumPy has worked for as long as loading takes, .9 s. A service that is to
    be fast from its first request on calls this when it starts. Loading takes about a second; on a machine
    that has never compiled these loops, compiling takes some seconds for each kind of problem, and a
    minute for all of the default.

    Parameters
    ----------
    problem : Problem or Objective, optional
        A problem is solved once, and its loops stay loaded. For an objective they are those of sources with
        change rates and importances, and no bounds, few or many. None means harmonic staleness and binary
        freshness under both disciplines, and accumulated delay.

    Raises
    ------
    ObjectiveError
        If an objective has settings for single sources; pass a problem then.

    Notes
    -----
    Where ``FRESHOPT_COMPILED=0`` there is nothing to load. Results of loops and of NumPy agree to rounding,
    not to the last bit: which of them computes a result depends on what the process has done before, always
    in the same way, and on this call.

    Examples
    --------
    >>> import freshopt as fo
    >>> fo.warm(fo.problems.AccumulatedDelay(fo.Refresh.POISSON))
    """
    if problem is not None and not isinstance(problem, Problem | Objective):
        raise TypeError(f"problem is {shown(problem)}. Pass a freshopt.Problem, an objective, or nothing.")
    if not backend.compiled():
        return
    with backend.loading():
        if isinstance(problem, Problem):
            solve(problem, throw=False)
            return
        for objective in _usual() if problem is None else [problem]:
            for n in _SIZES:
                sources = Sources(np.linspace(0.5, 2.0, n), np.linspace(1.0, 2.0, n))
                try:
                    problem = Problem(objective, sources, float(n))
                except SourceDataError:
                    raise ObjectiveError(
                        f"{objective!r} has settings for each source. Pass a problem: fo.warm(problem)."
                    ) from None
                solve(problem, throw=False)


def _usual() -> list[Objective]:
    both = (Refresh.POISSON, Refresh.PERIODIC)
    return [kind(refresh) for kind in (HarmonicStaleness, BinaryFreshness) for refresh in both] + [
        AccumulatedDelay(Refresh.POISSON)
    ]

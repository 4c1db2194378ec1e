"""`bandwidth_for`: the least bandwidth that keeps a promise, with its proof.

The question is a problem of its own: minimise the bandwidth used, `Spend`, subject to a `Target` on the mean
of an objective, within the bounds and limits of the problem that is asked about. Its solution's certificate
answers both ways: its rates keep the promise with the bandwidth found, and by weak duality no rates keep it
with less than the certificate's bound. The objective may be minimised or maximised; its curvature makes the
target convex.

Cost: as a problem with one target, some ten passes over the sources.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from freshopt.certificates.solution import Solution
from freshopt.errors import InfeasibleProblemError, ObjectiveError, SourceDataError, expect
from freshopt.formatting import number, percent
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.modelling.worst import Worst
from freshopt.noisy_signals.with_signals import follows_signals, freshness_with_signals
from freshopt.numerics.arrays import LARGEST, Array, as_number, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.binary_freshness import BinaryFreshness, freshness_like
from freshopt.questions.rate_changes import cut_to_limits, rates_of
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.renamed import keywords
from freshopt.units import rate_text, share_of

AS_TODAY = "as today"
# Relative gaps are told from here on: below, processors and library versions differ.
_TOLD = 1e-12
# Values below are what is left at the largest finite rates of something that vanishes at infinite ones.
_VANISHED = 1e-50


@frozen_value(repr=False)
class BandwidthFor:
    """Least bandwidth for a promise, with its proof.

    Attributes
    ----------
    objective : Objective
        Whose value is promised; `BinaryFreshness` where freshness is.
    fresh : bool
        Whether a freshness was promised, and not a value.
    target : float
        What was promised: a share of time, or a value Σ w(·).
    bandwidth : float
        What the rates found use per time unit: so much suffices.
    at_least : float
        Proved lower bound: with less no rates keep the promise.
    reached : float
        The freshness or value of the rates found.
    solution : Solution
        Of the cheapest rates, with the certificate that proves both.
    today : float or None
        Bandwidth of the rates in force, where the promise is theirs.
    no_cycle : bool
        Whether it stands beside a weekly cycle that it does not have: the sentence then says so.
    beyond : bool
        Whether the rates in force exceed maximum rates or host limits: the sentence then says so.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.5, 2.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=3.0)
    >>> round(fo.bandwidth_for(problem, freshness=0.9).bandwidth, 2)
    10.4
    """

    objective: Objective
    fresh: bool
    target: float
    bandwidth: float
    at_least: float
    reached: float
    solution: Solution
    today: float | None = None
    no_cycle: bool = False
    beyond: bool = False

    @property
    def saving(self) -> float | None:
        """Share of today's bandwidth that is saved; negative where more is needed."""
        return None if self.today is None else 1.0 - self.bandwidth / self.today

    @property
    def sentence(self) -> str:
        """The answer in words."""
        sources = self.solution.problem.sources
        at = " at equal intervals" if self.no_cycle else ""
        counted, unit = bool(np.all(sources.refresh_cost == 1.0)), sources.time_unit
        needed = rate_text(self.bandwidth, unit, "refresh" if counted else "")
        if self.saving is None:
            return f"{self.promise}{at} needs {needed}; no rates do with less{at} ({self._proved})"
        more = difference(self.saving, "refreshes" if counted else "bandwidth")
        today = rate_text(self.today or 0.0, unit)
        limits = ", within limits that today's rates exceed" if self.beyond else ""
        return f"{self.promise}{at} needs {more}: {needed}, not {today}{limits} ({self._proved})"

    @property
    def promise(self) -> str:
        """What was promised, in words."""
        if self.fresh:
            share = percent(self.target, space=" ")
            return f"{share} fresh" if self.today is None else f"as fresh as today ({share})"
        value = f"{type(self.objective).__name__} {number(self.target)}"
        return value if self.today is None else f"as good as today ({value})"

    @property
    def _proved(self) -> str:
        """How far the proved lower bound is from the bandwidth found."""
        gap = self.bandwidth - self.at_least
        relative = gap / self.bandwidth if self.bandwidth > 0.0 else 0.0
        return f"proved to within {percent(max(relative, _TOLD), space=' ')}"

    def __repr__(self) -> str:
        return f"BandwidthFor({self.sentence})"


@keywords()
def bandwidth_for(
    problem: Problem,
    *,
    freshness: float | str | None = None,
    value: float | str | None = None,
    today: CrawlLog | npt.ArrayLike | None = None,
    tolerance: float = 1e-9,
) -> BandwidthFor:
    """Find the least bandwidth that keeps a promise, and prove it.

    The problem's own bandwidth is left aside; its bounds, host limits and other constraints hold.

    Parameters
    ----------
    problem : Problem
    freshness : float, str such as "99%", or "as today"
        Share of time that copies are to be fresh, by importance, in (0, 1). The rates are then the cheapest
        for freshness, whatever the problem's objective; its refresh discipline is kept.
    value : float or "as today"
        The value Σ w(·) of the problem's objective that is to be reached: at most so much of one that is
        minimised, at least so much of one that is maximised.
    today : CrawlLog or array_like, shape (n,), optional
        For "as today": the rates in force, or a log whose crawls they are (`rates_in_force`).
    tolerance : float
        Relative duality gap of the answer.

    Returns
    -------
    BandwidthFor

    Raises
    ------
    InfeasibleProblemError
        If no bandwidth suffices; tells what is the best within bounds and limits.
    SourceDataError
        If not one promise is given, or it is no number in range.

    Notes
    -----
    "As today" evaluates the rates in force by the same formula as the answer: at equal intervals (or Poisson
    times), under the same change rates. Crawls at unequal intervals keep copies less fresh than equal ones at
    the same rate, so that the log's own crawls may save more than is told, and not less.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=3.0)
    >>> fo.bandwidth_for(problem, freshness=0.5)
    BandwidthFor(50 % fresh needs 4 refreshes per day; no rates do with less (proved to within 1e-10 %))
    >>> round(fo.bandwidth_for(problem, value=1.0).bandwidth, 9)
    9.0
    >>> round(fo.bandwidth_for(problem, freshness="as today", today=[4.0, 1.0]).saving, 9)
    0.2
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    if (freshness is None) == (value is None):
        raise SourceDataError(
            "the promise is either a freshness or a value. Pass one of them, such as freshness=0.99."
        )
    sources, fresh = problem.sources, freshness is not None
    require_fixed_costs(sources, "the bandwidth for a promise")
    objective = freshness_objective(problem) if fresh else _with_mean(problem)
    weight = total(sources.column("importance"))
    scale = weight if fresh else 1.0
    asked = freshness if fresh else value
    as_today = isinstance(asked, str) and asked == AS_TODAY
    if isinstance(freshness, str) and freshness.strip().endswith("%"):
        asked = share_of("freshness", freshness)
    elif isinstance(asked, str) and not as_today:
        raise SourceDataError(
            f'the promise is {asked!r}. Pass a number, or "{AS_TODAY}", or a freshness such as "90%".'
        )
    if as_today != (today is not None):
        raise SourceDataError(
            f'"{AS_TODAY}" and today= need each other. Pass today=log, or the rates in force.'
        )
    used, beyond = None, False
    if today is not None:
        rates = rates_of(sources, today)
        used = total(sources.refresh_cost * rates)
        beyond = cut_to_limits(problem, rates) is not None
        # Rates in force are of crawls that follow no signals.
        known = freshness_like(objective) if fresh else objective
        wanted = _value(known, sources, rates) / scale
    else:
        wanted = as_number(asked, "freshness" if fresh else "value", "Pass a number.")
    _require_within(wanted, objective, sources, weight, fresh=fresh)
    mean = wanted if fresh else wanted / weight
    # Of a priced use its limits count here, not its cost, which is no bandwidth.
    given = (one.budget if isinstance(one, Priced) else one for one in problem.constraints)
    others = [one for one in given if not isinstance(one, Budget) or (one.bounded and not _is_bandwidth(one))]
    # The problem's own target of freshness, which is kept, has the shorter name.
    taken = any(isinstance(one, Target) and one.label == "freshness" for one in others)
    name = None if not fresh else "freshness promised" if taken else "freshness"
    if objective.sense == "maximise":
        target = Target(objective, at_least=mean, name=name)
    else:
        target = Target(objective, at_most=mean, name=name)
    limits = problem.host_limits if problem.short[1] else None
    try:
        solution = solve_with_kinks(
            Problem(Spend(), sources, None, limits, [*others, target]), tolerance=tolerance
        )
    except InfeasibleProblemError as error:
        raise InfeasibleProblemError(
            f"{_promised(wanted, fresh=fresh)} is out of reach at any bandwidth: {error}", error.conflict
        ) from None
    proof = solution.certificate
    assert proof is not None, "it was asked for"
    reached = _value(objective, sources, solution.rates) / scale
    least = min(proof.bound, solution.value)
    return BandwidthFor(
        objective, fresh, wanted, solution.value, least, reached, solution, used, beyond=beyond
    )


def difference(saving: float, of: str = "crawls") -> str:
    """Return a saved share of crawls, refreshes or bandwidth in words.

    Examples
    --------
    >>> difference(0.305), difference(-0.02, "bandwidth"), difference(1e-7)
    ('30.5 % fewer crawls', '2 % more bandwidth', 'as many crawls')
    """
    whole = of == "bandwidth"
    # A ten-thousandth is below what change rates from a log can tell.
    if abs(saving) < 1e-4:
        return f"as {'much' if whole else 'many'} {of}"
    less = "less" if whole else "fewer"
    return f"{percent(abs(saving), space=' ')} {less if saving > 0.0 else 'more'} {of}"


def freshness_objective(problem: Problem) -> Objective:
    """Return the freshness of copies under a problem's discipline.

    Bandwidth itself has none: then it is that of the first target, or else equal intervals. Where crawls
    follow signals so does freshness.
    """
    own = plain(problem.objective)
    if isinstance(own, Spend):
        listed = [one.objective for one in problem.constraints if isinstance(one, Target)]
        own = listed[0] if listed else BinaryFreshness(Refresh.PERIODIC)
    if follows_signals(own):
        return freshness_with_signals(own)
    if isinstance(own, BinaryFreshness):
        return own
    return freshness_like(own)


def _with_mean(problem: Problem) -> Objective:
    """Return a problem's objective; raise unless it is a sum over sources."""
    own = plain(problem.objective)
    if isinstance(own, Spend | Worst):
        raise ObjectiveError(
            f"{own!r} has no mean value to promise. Declare the problem with another objective, or ask for a "
            "freshness."
        )
    return own


def _value(objective: Objective, sources: Sources, rates: Array) -> float:
    """Return the objective's value at some rates."""
    numerics, unknown = numerics_of(objective, sources)
    if numerics is None:
        raise ObjectiveError(f"{objective!r}: {unknown}")
    with np.errstate(all="ignore"):
        return objective.value_from_cost(total(numerics.cost(rates)), sources)


def _require_within(
    wanted: float, objective: Objective, sources: Sources, weight: float, *, fresh: bool
) -> None:
    """Raise unless finite rates may keep a promise."""
    if not weight > 0.0:
        raise SourceDataError("all importances are 0, and nothing is to be kept fresh. Give some source one.")
    on_request = objective.refresh is Refresh.ON_REQUEST
    if fresh and not 0.0 < wanted < 1.0:
        end = "at infinite rates" if not on_request else "where every request fetches"
        raise SourceDataError(
            f"freshness is {wanted:g}, which is not between 0 and 1: copies are fresh all the time only "
            f"{end}. Pass such as 0.99."
        )
    if not math.isfinite(wanted):
        raise SourceDataError(
            f"the value is {wanted}: a source that is never refreshed costs without limit. Pass a number."
        )
    limit = _value(objective, sources, np.minimum(sources.max_rate, LARGEST))
    limit = (0.0 if abs(limit) < _VANISHED else limit) / (weight if fresh else 1.0)
    room = limit - wanted if objective.sense == "maximise" else wanted - limit
    capped = not bool(np.any(np.isinf(sources.max_rate)))
    if room > 0.0 or (capped and room == 0.0):
        return
    share = f"{percent(limit, space=' ')} of {'requests a fresh copy' if on_request else 'the time'}"
    best = f"a value of {number(limit)}" if not fresh else share if on_request else f"copies fresh {share}"
    promise = _promised(wanted, fresh=fresh)
    raise InfeasibleProblemError(
        f"{promise} is out of reach at any bandwidth: max_rate everywhere gives {best}. Ask for that, or "
        "raise max_rate."
        if capped
        else f"{promise} is out of reach at any bandwidth: ever higher rates approach {best}, and do not "
        "reach it. Ask for less."
    )


def _promised(wanted: float, *, fresh: bool) -> str:
    return f"{percent(wanted, space=' ')} fresh" if fresh else f"a value of {number(wanted)}"


def _is_bandwidth(one: Budget) -> bool:
    return one.cost is None and one.by is None and one.at_least is None

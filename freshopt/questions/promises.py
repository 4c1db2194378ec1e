"""Promises on the age of copies, and what they cost.

"95% younger than 2h" is a promise for each source: its copy is younger than two hours 95 % of the time, so
that at a random moment 95 % of all copies are, of any group of them, however they are weighed. What is meant
by age is said with it:

* *younger than* T: the time since the last fetch that succeeded. Changes come at random moments, so that the
  same share of them is fetched within T.
* *less than* T *behind*: the time since the oldest change that the copy misses.
* *at 7:00 on workdays younger than* T: at these moments alone, which are appointments of the schedule
  (`freshopt.scheduling.appointments`). Attempts that succeed with chance s are k before each moment, the
  least with 1 − (1 − s)^k of the share.

Both shares rise with the rate, so that a promise is a least rate of each source. A gap g costs the time
C(g) that a copy is late in it, (g − T)⁺ or x − (1 − e^{−Δx})/Δ with x = (g − T)⁺. At equal gaps of open time
I the late share is E C(g)/E g over the lengths g of gaps (`freshopt.scheduling.hours`), of attempts that
succeed with chance s over Σ_k s(1−s)^{k−1} gaps of k·I. At random times it is e^{−ρT}, times Δ/(Δ + ρ) where
missed changes count. A bisection finds the rate.

The price of a promise is the bandwidth that it takes to be as good as without it, less what is used
without it; `freshopt.bandwidth_for` answers with a proof.

Cost: 60 evaluations of the share for each promise, one row of all alike; one solve for each price.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import count as count_from
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from freshopt.certificates.solution import Solution
from freshopt.errors import InfeasibleProblemError, SourceDataError, expect, list_offenders, shown
from freshopt.estimators.week_clock import WEEK, check_time_zone
from freshopt.formatting import count, percent
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.numerics.arrays import LARGEST, Array, IntArray, total
from freshopt.numerics.special_functions import mean_stale_share
from freshopt.questions.bandwidth_for import bandwidth_for
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.scheduling.appointments import Appointed, Appointments, WithAppointments
from freshopt.scheduling.hours import Hours, days_of, second_of_day
from freshopt.scheduling.schedule import Method
from freshopt.units import SECONDS, parse_duration, rate_text

GRAMMAR = (
    'Write such as "95% younger than 2h", "99% less than 1d behind", "news/*: always younger than 30min" or '
    '"at 7:00 on workdays younger than 2h"'
)
PROMISE_HELP = (
    "Keep a promise and tell its price: '95% younger than 2h' since the fetch, '99% less than 1d behind' the "
    "changes, 'news/*: always younger than 1h', 'at 7:00 on workdays younger than 2h' (repeatable)."
)
_WORDS = re.compile(
    r"(?:(?P<who>.+?)\s*:\s+)?(?:(?P<share>\d+(?:\.\d+)?)\s*%|(?P<always>always))\s+(?:of\s+the\s+time\s+)?"
    r"(?:younger\s+than\s+(?P<age>.+)|less\s+than\s+(?P<lag>.+?)\s+behind)"
)
_MOMENTS = re.compile(
    r"(?:(?P<who>.+?)\s*:\s+)?(?:(?:(?P<share>\d+(?:\.\d+)?)\s*%|always)\s+)?(?:at|by)\s+"
    r"(?P<times>\d{1,2}(?::\d\d)?(?:\s*,\s*\d{1,2}(?::\d\d)?)*)(?:\s+(?P<zone>UTC|[A-Z]\w+/[\w/+-]+))?"
    r"(?:\s+on\s+(?P<days>[A-Za-z][A-Za-z, -]*?))?\s+younger\s+than\s+(?P<age>.+)"
)
# Relative differences that are rounding of a solve.
FREE = 1e-9
# Steps of bisection, and the range of rates times the age that is searched.
STEPS, RANGE = 100, 2.0**60
# Share of time that is rounding, where closed hours have ends.
ROUNDED = 1e-12
# Chance of a run of failed attempts that counts no more.
_RARE = 1e-18


@dataclass(frozen=True, slots=True)
class Promise:
    """Least share of time that copies are younger than an age.

    - `who`: Pattern of names, as in file names; None for all sources.
    - `age`: In time units.
    - `behind`: Whether the age is that of the oldest missed change, not of the fetch.
    - `appointments`: The moments at which alone the age counts.
    """

    text: str
    who: str | None
    share: float
    age: float
    behind: bool
    appointments: Appointments | None = None

    def of(self, names: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which sources it is of."""
        if self.who is None:
            return np.ones(len(names), dtype=np.bool_)
        return np.array([fnmatchcase(str(name), self.who) for name in names.tolist()], dtype=np.bool_)

    def require_sources(self, names: npt.NDArray[Any]) -> None:
        """Raise if it is of none."""
        if not self.of(names).any():
            few = list_offenders([repr(name) for name in names[:3].tolist()])
            raise SourceDataError(
                f"promise {shown(self.text)}: no source is called {shown(self.who)}; some are {few}. "
                "Correct the pattern, in which * is any text."
            )

    def attempts(self, chance: Array) -> IntArray:
        """Return how many attempts before a moment keep the share."""
        with np.errstate(divide="ignore"):
            many = math.log1p(-self.share) / np.log1p(-chance) if self.share < 1.0 else np.ones(len(chance))
        return np.maximum(np.ceil(many * (1.0 - FREE)), 1.0).astype(np.int64)

    def least_rates(
        self,
        names: npt.NDArray[Any],
        change_rate: Array,
        success: Array | None,
        refresh: Refresh,
        hours: Hours | None,
        unit: str,
    ) -> Array:
        """Return the least rates that keep it, 0 of others."""
        mine, found = np.flatnonzero(self.of(names)), np.zeros(len(names))
        chance = np.ones(len(mine)) if success is None else success[mine]
        what = f"promise {shown(self.text)}"
        if self.share == 1.0 and (refresh is not Refresh.PERIODIC or bool(np.any(chance < 1.0))):
            why = "some fetches fail" if refresh is Refresh.PERIODIC else "gaps are random"
            raise SourceDataError(f"{what}: {why}, and nothing holds always. Promise such as 99%.")
        if hours is not None and refresh is not Refresh.PERIODIC:
            raise SourceDataError(f"{what} within hours is of equal intervals. Leave refresh out.")
        if self.appointments is not None:
            if refresh is not Refresh.PERIODIC or hours is not None:
                other = "random times" if hours is None else "hours, which its moments stand beside"
                raise SourceDataError(f"{what} does not go with {other}. Leave one of them out.")
            found[mine] = self.appointments.rate(self.attempts(chance)) * SECONDS[unit]
            return found
        # Sources that are alike have one rate.
        missed = change_rate[mine] if self.behind else np.full(len(mine), np.inf)
        alike, place = np.unique(np.stack([missed, chance]), axis=1, return_inverse=True)
        age = np.full(alike.shape[1], self.age)
        late = partial(_late, age, alike[0], alike[1], refresh, hours, unit)
        try:
            found[mine] = _least(late, 1.0 - self.share, age)[np.reshape(place, -1)]
        except InfeasibleProblemError as error:
            raise InfeasibleProblemError(f"{what} {error}") from None
        return found


def promised_rates(
    promises: Iterable[Promise],
    names: npt.NDArray[Any],
    change_rate: Array,
    success: Array | None,
    most: Array | float,
    given: tuple[Refresh, Hours | None, str],
) -> list[Array]:
    """Return each promise's least rates, up to the largest.

    `given` are refreshes, hours and time unit.
    """
    found, moments = [], False
    for promise in promises:
        found.append(promise.least_rates(names, change_rate, success, *given))
        moments = moments or promise.appointments is not None
        over = np.flatnonzero(found[-1] > most)
        if len(over):
            raise InfeasibleProblemError(
                f"promise {promise.text!r} needs more than the largest rate of "
                f"{list_offenders(map(repr, names[over].tolist()))}. "
                "Promise less, or shorten the least interval."
            )
    twice = np.flatnonzero(np.sum(np.array(found) > 0.0, axis=0) > 1) if moments and len(found) > 1 else ()
    if len(twice):
        raise SourceDataError(
            f"several promises are of {list_offenders(map(repr, names[twice].tolist()))}, and one of "
            "them is of moments. Give one for each source, with moments such as 7:00, 13:00."
        )
    return found


def rates_for_gaps(longest: Array, hours: Hours, unit: str) -> Array:
    """Return the least rates within hours at which no gap is longer.

    Examples
    --------
    >>> rates_for_gaps(np.array([1.0]), Hours.of("hours", "not 22-6"), "day").round(6)
    array([1.])
    """
    each, place = np.unique(longest, return_inverse=True)
    late = partial(_late, each, np.full(len(each), np.inf), np.ones(len(each)), Refresh.PERIODIC, hours, unit)
    try:
        return _least(late, 0.0, each)[place]
    except InfeasibleProblemError as error:
        raise InfeasibleProblemError(f"a longest interval {error}") from None


def fresh_within(
    hours: Hours, rate: Array, change_rate: Array, success: Array, refresh: Refresh, unit: str
) -> Array:
    """Return the time share of fresh copies with closed hours, (n,).

    Examples
    --------
    >>> given = np.ones(1), np.full(1, 0.1), np.ones(1), Refresh.PERIODIC, "day"
    >>> fresh_within(Hours.of("hours", "Sat 3:00-3:05"), *given).round(3)  # in effect once a week
    array([0.719])
    """
    fresh, some = np.zeros(len(rate)), rate > 0.0
    given = change_rate[some], success[some], refresh, hours, unit
    fresh[some] = 1.0 - _late(np.zeros(len(given[0])), *given, rate[some])
    return fresh


def _late(
    age: Array,
    change_rate: Array,
    success: Array,
    refresh: Refresh,
    hours: Hours | None,
    unit: str,
    rate: Array,
) -> Array:
    """Return the share of time that copies are late, shape (n,).

    Where every change counts from the fetch on, the change rate is inf.
    """
    if refresh is not Refresh.PERIODIC:
        rate = rate * success
        missed = np.where(np.isinf(change_rate), 1.0, 1.0 / (1.0 + rate / change_rate))
        return np.asarray(np.exp(-rate * age) * missed)
    found, chance = np.zeros(len(rate)), success
    for attempt in count_from(1):
        gap = attempt / rate
        length, share = gap[:, None], np.ones((len(gap), 1))
        if hours is not None:
            length, share = hours.gaps(gap * (hours.share * SECONDS[unit]))
            length = length / SECONDS[unit]
        late = np.maximum(length - age[:, None], 0.0)
        with np.errstate(invalid="ignore"):
            stale = np.where(late > 0.0, mean_stale_share(change_rate[:, None] * late), 0.0)
        found += chance * np.sum(share * late * stale, axis=1)
        chance = chance * (1.0 - success)
        if not np.max(chance, initial=0.0) > _RARE:
            break
    return found * rate * success


def _least(late: Callable[[Array], Array], allowed: float, age: Array) -> Array:
    """Return the least rates that leave a share late."""
    low, high = -math.log(RANGE) - np.log(age), 0.5 * math.log(RANGE) - np.log(age)
    closed = late(np.exp(high))
    allowed = max(allowed, ROUNDED) if bool(np.any(closed > 0.0)) else allowed
    if bool(np.any(closed > allowed)):
        worst = percent(float(np.max(closed)), space=" ")
        raise InfeasibleProblemError(
            f"is out of reach: at any rate copies are later {worst} of the time, in closed hours. Promise "
            "less, or fetch at more hours."
        )
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        kept = late(np.exp(middle)) <= allowed
        low, high = np.where(kept, low, middle), np.where(kept, middle, high)
    return np.exp(high)


class _Timed(Protocol):
    """What has a time unit."""

    @property
    def time_unit(self) -> str:
        """Its name."""


def promises_of(name: str, given: str | Iterable[str | Promise], clock: _Timed) -> tuple[Promise, ...]:
    """Return promises in words, on a clock.

    Examples
    --------
    >>> from freshopt.modelling.sources import Sources
    >>> [own] = promises_of("promise", "news/*: 95% younger than 2h", Sources([1.0], time_unit="hour"))
    >>> own.who, own.share, own.age, own.behind
    ('news/*', 0.95, 2.0, False)
    """
    expect(given, (str, Promise, Iterable), name, GRAMMAR)
    found = []
    for each in [given] if isinstance(given, str | Promise) else given:
        if isinstance(each, Promise):
            found.append(each)
            continue
        moments = _MOMENTS.fullmatch(str(each).strip())
        words = _WORDS.fullmatch(str(each).strip()) if moments is None else moments
        if words is None:
            raise SourceDataError(f"{name} {shown(each)} cannot be read. {GRAMMAR}.")
        share = float(words["share"] or 100.0) / 100.0
        if not 0.0 < share <= 1.0:
            raise SourceDataError(f"{name} {shown(each)} is not of more than 0 and up to 100 %. {GRAMMAR}.")
        try:
            lag = words["lag"] if moments is None else None
            age = parse_duration((words["age"] if lag is None else lag).strip(), clock.time_unit)
            kept = None if moments is None else _appointments(moments, age * SECONDS[clock.time_unit])
        except SourceDataError as error:
            raise SourceDataError(f"{name} {shown(each)}: {error}") from None
        found.append(Promise(str(each).strip(), words["who"], share, age, lag is not None, kept))
    return tuple(found)


def _appointments(words: re.Match[str], age: float) -> Appointments:
    """Return moments of the week in words."""
    days = days_of(words["days"] or "daily", "days")
    clock = [each.strip().partition(":") for each in words["times"].split(",")]
    times = [second_of_day(hour, minute, "time") for hour, _, minute in clock]
    zone = None if words["zone"] in {None, "UTC"} else check_time_zone(words["zone"])
    moments = {(day * SECONDS["day"] + time) % WEEK for day in days for time in times}
    return Appointments(tuple(sorted(moments)), age, zone)


def with_appointments(
    method: Method,
    promises: Iterable[Promise],
    sources: Sources,
    names: npt.NDArray[Any],
    second: float,
) -> Method:
    """Return a method that keeps the appointments of promises.

    Time 0 is at a second since 1970.
    """
    appointed, urgency = [], sources.importance * sources.change_rate
    for promise in promises:
        if promise.appointments is None:
            continue
        source = np.flatnonzero(promise.of(names))
        chance = np.ones(len(source)) if sources.failing is None else sources.failing[source]
        kept = Appointed(promise.appointments, source, promise.attempts(chance))
        kept.check(sources.max_rate[source], sources.time_unit, f"promise {shown(promise.text)}")
        appointed.append(kept)
    if not appointed:
        return method
    return WithAppointments(method, appointed, urgency, sources.max_rate, second, sources.time_unit)


class PromisePrice(NamedTuple):
    """What a promise of some sources needs, and what it costs.

    It needs a least bandwidth by itself. To be as good as without it takes `extra` beyond `used`, which is
    used without it; None where no bandwidth within the limits does.
    """

    text: str
    sources: int
    needs: float
    extra: float | None
    used: float
    time_unit: str

    @property
    def price(self) -> str:
        """What it costs, in words."""
        if self.extra is None:
            return "no bandwidth within the limits is as good as without"
        if self.extra <= FREE * self.used:
            return "costs nothing: kept anyway"
        more = percent(self.extra / self.used, space=" ")
        return f"{rate_text(self.extra, self.time_unit, 'fetch')} more ({more}) are as good as without"

    def facts(self) -> dict[str, Any]:
        """Return the numbers and words, ready for JSON."""
        needs = f"{rate_text(self.needs, self.time_unit, 'fetch')} at least"
        sentence = f"“{self.text}”: {needs} for {count(self.sources, 'source')}; {self.price}"
        return {**self._asdict(), "price": self.price, "sentence": sentence}


def promise_prices(
    promises: tuple[Promise, ...],
    alone: Callable[[tuple[Promise, ...]], tuple[Array, Problem]],
    without: Solution,
) -> tuple[PromisePrice, ...]:
    """Return what each promise costs, and all of several together.

    `alone` has the least rates of some, and the problem without a bandwidth whose bounds they are.
    """
    found = []
    for some in [*((each,) for each in promises), *([promises] if len(promises) > 1 else [])]:
        text = some[0].text if len(some) == 1 else f"all {len(some)} promises"
        found.append(promise_price(text, *alone(some), without))
    return tuple(found)


def promise_price(text: str, least: Array, problem: Problem, without: Solution) -> PromisePrice:
    """Return the price of the promise in a problem."""
    sources, used, extra = problem.sources, without.bandwidth_used, 0.0
    if bool(np.any(without.rates < least)):
        try:
            if isinstance(problem.objective, Spend):
                extra = solve_with_kinks(problem, FREE, FREE).value - used
            elif problem.per_bandwidth is not None:
                extra = _bandwidth_as_good(problem, without) - used
            else:
                extra = bandwidth_for(problem, value=without.value).bandwidth - used
        except InfeasibleProblemError:
            extra = math.nan
    many, needs = int(np.count_nonzero(least)), total(problem.used_by_source(least))
    return PromisePrice(
        text, many, needs, None if math.isnan(extra) else max(extra, 0.0), used, sources.time_unit
    )


def _bandwidth_as_good(problem: Problem, without: Solution) -> float:
    """Return the least bandwidth as good, to `FREE`, or NaN.

    By Newton's method within a bracket: the best value is convex in the bandwidth, and the price its slope.
    """
    sign = 1.0 if problem.objective.sense == "minimise" else -1.0
    close, low, high = FREE * abs(without.value), without.bandwidth_used, math.inf
    now = 2.0 * max(low, total(problem.used_by_source(problem.lower)))
    while high == math.inf or high - low > FREE * high:
        try:
            found = solve_with_kinks(problem.restated(bandwidth=now), FREE, FREE)
            worse, price = sign * (found.value - without.value), float(found.price)
        except InfeasibleProblemError:
            worse, price = math.inf, 0.0
        if worse > close and high == math.inf and (price <= 0.0 or now >= LARGEST):
            return math.nan
        low, high = (now, high) if worse > close else (low, now)
        if abs(worse) <= close:
            break
        now += worse / price if price > 0.0 else math.nan
        if not low < now < high:
            now = 0.5 * (low + high)
    return high

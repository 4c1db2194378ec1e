"""What a paper states, decided by seeded runs: `Statement` and its constructors.

How to use it. A module ``reproduce_<paper>.py`` has a docstring (first line: the paper; the rest: settings
and what differs; both are shown on the page) and a function ``statements(runs, quick, seed)`` that yields.
1. Pass one number per independent run, never a pooled mean; compare runs that share a seed with `below`.
2. ``runs`` is the number of runs asked for, None for your own default. ``quick`` is what the tests run, in
   less than 8 s: fewer runs or statements, never another size, as its verdicts are held to the saved ones.
3. ``figure`` and ``text`` are the key by which quick and full runs are matched: no measured number in them.
4. The 95 % interval alone decides: inside the band "holds", outside "does not hold", else "undecided": take
   more runs, not a wider band. Say in a comment where a tolerance comes from.
5. A claim known to be false is stated as the paper has it; its verdict is then "does not hold".
6. The constructors: `equals`, `within` (mean of runs; with ``root=True`` the root of it, for an RMSE),
   `below` (difference), `share` (of yes/no runs), `always` (in each run), `exact` (nothing is random).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, its measurement, and the band in which the measurement must lie for it to hold.

    Attributes
    ----------
    figure : str
        Where the statement is from: "Fig 1", "Expt 2", "Lemma 3".
    text : str
    expected : str
        What the paper or the prototype has.
    ours, low, high : float
        The measurement and its 95 % interval; low = high = ours if nothing is random.
    runs : int
        Independent runs.
    at_least, at_most : float
        The band.
    """

    figure: str
    text: str
    expected: str
    ours: float
    low: float
    high: float
    runs: int
    at_least: float
    at_most: float

    @property
    def verdict(self) -> str:
        """Whether the interval lies inside the band, outside of it, or across its edge."""
        if self.at_least <= self.low and self.high <= self.at_most:
            return HOLDS
        if self.high < self.at_least or self.low > self.at_most:
            return FAILS
        return UNDECIDED

    def record(self) -> dict[str, Any]:
        """Return what is saved; infinite numbers, which JSON lacks, as null."""
        fields = {key: _finite(value) for key, value in asdict(self).items()}
        return {**fields, "verdict": self.verdict}

    @classmethod
    def of(cls, record: dict[str, Any]) -> Statement:
        """Return the statement that was saved; its verdict is computed anew."""
        limits = {"ours": math.nan, "low": -math.inf, "high": math.inf}
        limits |= {"at_least": -math.inf, "at_most": math.inf}
        fields = {key: value for key, value in record.items() if key != "verdict"}
        return cls(**{key: limits[key] if value is None else value for key, value in fields.items()})


def within(
    figure: str,
    text: str,
    samples: npt.ArrayLike,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    said: str | None = None,
    root: bool = False,
) -> Statement:
    """State that the mean over runs lies between low and high.

    Parameters
    ----------
    figure, text : str
    samples : array_like, shape (runs,)
        One number per independent run.
    low, high : float
        The band; leave one out for "at least" or "at most".
    said : str, optional
        What the paper or the prototype has; by default the band.
    root : bool
        Whether the root of the mean is stated: pass squared errors for a root mean square error.
    """
    values = np.asarray(samples, dtype=np.float64).reshape(-1)
    mean, least, most = mean_interval(values)
    if root:  # it increases, so the ends of an interval become the ends of its image
        mean, least, most = (math.sqrt(max(x, 0.0)) for x in (mean, least, most))
    return Statement(figure, text, said or _band(low, high), mean, least, most, len(values), low, high)


def equals(
    figure: str,
    text: str,
    expected: float,
    samples: npt.ArrayLike,
    tolerance: float,
    *,
    said: str | None = None,
    root: bool = False,
) -> Statement:
    """State that the mean over runs is a number, up to a tolerance ≥ 0; see `within`."""
    said = said or f"{expected:g} ± {tolerance:g}"
    low, high = expected - tolerance, expected + tolerance
    return within(figure, text, samples, low, high, said=said, root=root)


def below(
    figure: str,
    text: str,
    smaller: npt.ArrayLike,
    larger: npt.ArrayLike,
    *,
    by: float = 0.0,
    paired: bool = True,
    said: str | None = None,
) -> Statement:
    """State that one mean is below another by at least `by`; ours is smaller − larger.

    Parameters
    ----------
    figure, text : str
    smaller, larger : array_like, shape (runs,)
        Paired: entries of the same run, which are subtracted (larger may then be one number). Otherwise the
        runs are independent, and the interval is Welch's.
    by : float
    paired : bool
    said : str, optional
    """
    one, other = (np.asarray(given, dtype=np.float64) for given in (smaller, larger))
    said = said or f"difference {_band(-math.inf, 0.0 - by)}"
    if paired:
        return within(figure, text, one - other, high=0.0 - by, said=said)
    variances = [np.var(x, ddof=1) / len(x) for x in (one, other)]
    error = math.sqrt(sum(variances))
    freedom = error**4 / sum(v**2 / (len(x) - 1) for v, x in zip(variances, (one, other), strict=True))
    mean, half = float(one.mean() - other.mean()), _quantile(freedom) * error
    runs = min(len(one), len(other))
    return Statement(figure, text, said, mean, mean - half, mean + half, runs, -math.inf, 0.0 - by)


def share(
    figure: str,
    text: str,
    outcomes: npt.ArrayLike,
    low: float = 0.0,
    high: float = 1.0,
    *,
    said: str | None = None,
) -> Statement:
    """State that the share of independent yes/no outcomes lies in a band (Clopper-Pearson interval)."""
    from scipy.special import betaincinv

    flags = np.asarray(outcomes, dtype=bool).reshape(-1)
    n, hits, tail = len(flags), int(np.count_nonzero(flags)), 0.5 * (1.0 - CONFIDENCE)
    least = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    most = float(betaincinv(hits + 1, n - hits, 1.0 - tail)) if hits < n else 1.0
    return Statement(figure, text, said or _band(low, high), hits / n, least, most, n, low, high)


def always(figure: str, text: str, outcomes: npt.ArrayLike, *, said: str = "always") -> Statement:
    """State that something was so in each of the runs; ours is the share of runs in which it was."""
    flags = np.asarray(outcomes, dtype=bool).reshape(-1)
    found = float(np.mean(flags))
    return Statement(figure, text, said, found, found, found, len(flags), 1.0, 1.0)


def exact(
    figure: str, text: str, expected: float, value: float, tolerance: float, *, said: str | None = None
) -> Statement:
    """State that a number that is computed, not sampled, is as expected."""
    said, value = said or f"{expected:g} ± {tolerance:g}", float(value)
    return Statement(figure, text, said, value, value, value, 1, expected - tolerance, expected + tolerance)


def mean_interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean and the ends of its t-interval; infinitely wide for a single run."""
    mean = float(np.mean(values))
    if len(values) == 1:
        return mean, -math.inf, math.inf
    half = _quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def _quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 * (1.0 + CONFIDENCE)))


def _band(low: float, high: float) -> str:
    """Say a band in words."""
    if math.isinf(low):
        return f"≤ {high:g}"
    return f"≥ {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"


def _finite(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""`SuccessRates`: chances that fetches succeed, learnt from outcomes of fetches.

A source that was fetched n times, k of them with success, has a chance s of success with the posterior
Beta(a + k, b + n − k). The prior Beta(a, b) is that of all sources, with the largest marginal likelihood
Π B(a + k, b + n − k)/B(a, b) (empirical Bayes): sources that were hardly tried are near the mean of all,
those that were tried often near their own share.

HTTP statuses tell outcomes: 2xx and 304 (unchanged) are successes, 5xx, 429 and 0 (no answer in time)
failures, and no evidence of "unchanged"; 404 and 410 end a source, and count as neither. An empty status says
nothing.

Cost: one pass over the rows, some 60 evaluations of the likelihood.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.formatting import count
from freshopt.heavy import optimize, special
from freshopt.logs.row_outcomes import ended, failed
from freshopt.numerics.arrays import Array, BoolArray, as_numbers
from freshopt.numerics.frozen_arrays import frozen_value

# Of the prior: its mean in logits, and the logarithm of its weight in fetches. A log in which everything
# succeeds bounds neither.
LOGITS, WEIGHTS = (-8.0, 8.0), (-1.0, 8.0)


@frozen_value(repr=False)
class SuccessRates:
    """Posterior chances of success of each source.

    Attributes
    ----------
    sources_ : ndarray, shape (n,)
        Sorted names.
    attempts, successes : ndarray of float, shape (n,)
        Fetches whose outcome is known, without those that ended a source.
    ended : ndarray of bool, shape (n,)
        Whether the last fetch found the source gone.
    prior : (float, float)
        a and b of the Beta prior.

    Examples
    --------
    >>> found = SuccessRates.from_statuses(
    ...     ["a", "a", "a", "b", "b", "c"], [200, 304, 503, 500, 0, 404], [0.0, 1.0, 2.0, 0.0, 1.0, 0.0]
    ... )
    >>> found
    SuccessRates(5 attempts of 3 sources, 40 % succeed, 1 source ended ('c'))
    >>> found.ended.tolist()
    [False, False, True]
    """

    sources_: npt.NDArray[Any]
    attempts: Array
    successes: Array
    ended: BoolArray
    prior: tuple[float, float]

    @classmethod
    def from_statuses(cls, source: npt.ArrayLike, status: npt.ArrayLike, time: npt.ArrayLike) -> Self:
        """Learn from a log's columns, a row for each fetch.

        Parameters
        ----------
        source : array_like of str or int, shape (rows,)
        status : array_like, shape (rows,)
            HTTP statuses; 0 where there was no answer, NaN where nothing is known of the fetch.
        time : array_like, shape (rows,)
            Numbers, for which of a source's fetches was the last.

        Raises
        ------
        SourceDataError
            If lengths differ, there are no rows, or a column holds no names or numbers.
        """
        who, told, clock = status_columns(source, status, time)
        names, code = np.unique(who, return_inverse=True)
        gone, tried = ended(told), ~ended(told) & ~np.isnan(told)
        n = len(names)
        attempts = np.bincount(code, weights=tried, minlength=n).astype(np.float64)
        successes = np.bincount(code, weights=tried & ~failed(told), minlength=n).astype(np.float64)
        # By time, and what says nothing before all.
        last = np.lexsort((clock, ~np.isnan(told), code))[np.cumsum(np.bincount(code, minlength=n)) - 1]
        return cls(names, attempts, successes, gone[last], _fitted(attempts, successes))

    @property
    def success(self) -> Array:
        """Posterior means of the chances of success, shape (n,), for `Sources(success=)`."""
        a, b = self.prior
        return (a + self.successes) / (a + b + self.attempts)

    def success_of(self, names: npt.ArrayLike) -> Array:
        """Return the chances of sources by name, shape (m,).

        One without fetches has the prior's mean.

        Examples
        --------
        >>> found = SuccessRates.from_statuses(["a", "a", "b"], [200, 503, 304], [0.0, 1.0, 0.0])
        >>> a, b, mean = found.success_of(["a", "b", "c"])
        >>> bool(a < mean < b)
        True
        """
        a, b = self.prior
        known = dict(zip(self.sources_.tolist(), self.success.tolist(), strict=True))
        return np.array([known.get(name, a / (a + b)) for name in np.asarray(names).tolist()])

    @property
    def fails(self) -> bool:
        """Whether any attempt failed."""
        return bool(np.any(self.successes < self.attempts))

    def __repr__(self) -> str:
        return f"SuccessRates({self.words})"

    @property
    def words(self) -> str:
        """Attempts, the share that succeeds and the sources that ended."""
        total = float(np.sum(self.attempts))
        share = f"{float(np.sum(self.successes)) / total:.3g}" if total else "0"
        percent = f"{100.0 * float(share):.3g} % succeed"
        ended = f"{count(int(np.count_nonzero(self.ended)), 'source', 'd')} ended"
        if bool(np.any(self.ended)):
            ended += f" ({list_offenders(map(repr, self.sources_[self.ended].tolist()))})"
        rows = f"{count(int(total), 'attempt', 'd')} of {count(len(self.sources_), 'source', 'd')}"
        return f"{rows}, {percent}, {ended}"


def status_columns(
    source: npt.ArrayLike, status: npt.ArrayLike, time: npt.ArrayLike
) -> tuple[npt.NDArray[Any], Array, Array]:
    """Return the columns, or refuse them."""
    told, clock = as_numbers(status, "status"), as_numbers(time, "time")
    try:
        who = np.asarray(source)
    except ValueError:
        raise SourceDataError("source has entries of different lengths. Pass a name each.") from None
    if not who.shape == told.shape == clock.shape or told.ndim != 1 or told.size == 0:
        raise SourceDataError(
            f"source, status and time have shapes {who.shape}, {told.shape} and {clock.shape}. Pass one each "
            "for every fetch."
        )
    kinds = {type(name) for name in who.tolist()}
    if not (kinds <= {str} or kinds <= {int}):
        raise SourceDataError("source holds no names. Pass text, or integers, for each fetch.")
    return who, told, clock


def _fitted(attempts: Array, successes: Array) -> tuple[float, float]:
    """Return the Beta prior with the largest marginal likelihood."""
    pairs, times = np.unique(np.stack([attempts, successes]), axis=1, return_counts=True)
    tried, good = pairs

    def parameters(x: Array) -> tuple[float, float]:
        mean, weight = float(special.expit(x[0])), float(np.exp(x[1]))
        return mean * weight, (1.0 - mean) * weight

    def surprise(x: Array) -> float:
        a, b = parameters(x)
        return -float(times @ (special.betaln(a + good, b + tried - good) - special.betaln(a, b)))

    share = (float(np.sum(successes)) + 0.5) / (float(np.sum(attempts)) + 1.0)
    start = np.clip([np.log(share / (1.0 - share)), 1.0], [LOGITS[0], WEIGHTS[0]], [LOGITS[1], WEIGHTS[1]])
    found = optimize.minimize(surprise, start, method="L-BFGS-B", bounds=[LOGITS, WEIGHTS])
    return parameters(found.x)

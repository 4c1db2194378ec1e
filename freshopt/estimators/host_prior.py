"""`HostPriors`: hierarchical prior by host, shrunk towards the pooled one.

Each host's gamma prior is estimated from its own sources.

Pages of one host tend to change alike. Rates on a host are gamma distributed with a shape a that all hosts
share and a mean m of its own; the logarithms of the means are normally distributed over hosts. The mean of a
host with many crawled sources is its own, that of one with few is shrunk towards the pooled one, and a host
without crawls has the pooled one. The posterior variance of a host's mean widens its prior.

By Fisher's identity the slope of a host's log-likelihood in ln m, its rates integrated out, is
Σ a(E[Δ]/m − 1) over its sources, and E[Δ] is what `MaximumLikelihood` with the prior estimates: each step of
the search is one such estimate and a Newton step for all hosts at once. The spread of the hosts and the shape
maximise the marginal likelihood, the means integrated out by Laplace's method.

Cost: some 300 maximisations of the likelihood over at most 10 000 sources, and 30 over all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import GammaParameters, widened
from freshopt.estimators.gamma_prior import ENOUGH, FLATTEST, STEEPEST, GammaPrior
from freshopt.estimators.marginal_likelihood import laplace
from freshopt.heavy import optimize, special
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray, are_text, shape_of
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.units import convert_time

# Largest number of rounds of the search; the means settle to 1e-6 in about 10.
ROUNDS = 30
# Smallest spread of ln m: hosts within 1 % of each other count as equal.
NARROWEST = 1e-2
# Longest step in ln m.
LEAP = 1.0


@frozen_value(repr=False)
class HostPriors:
    """Hierarchical gamma prior of change rates by host.

    Attributes
    ----------
    hosts : ndarray, shape (h,)
        Sorted labels.
    mean, shape : ndarray of float, shape (h+1,)
        Mean change rate, per time unit, and shape of each host's prior; the relative spread of rates is
        1/√shape. The last entry is that of a host without crawls.
    within : float
        The shape if the means were known: how alike the sources of a host are.
    spread : float
        Standard deviation of the logarithm of the hosts' means: how different the hosts are.
    names, code : ndarray, shape (n,)
        The sources of the log, sorted, and the position of each one's host in `hosts`.
    time_unit : str
    birth_rate : float
        As that of `GammaPrior`, of all hosts.

    Examples
    --------
    Sources of some hosts change in every other crawl interval, those of others hardly ever; one was seen only
    once.

    >>> host = np.repeat(["fast", "quick", "slow", "still"], 5)
    >>> changed = np.where(np.arange(200).reshape(20, 10) < 100, [0, 1] * 5, 0)
    >>> changed[12, 5] = changed[17, 3] = 1
    >>> log = CrawlLog(np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20), changed.ravel())
    >>> priors = HostPriors.from_log(log, host)
    >>> bool(priors.mean[0] > 10 * priors.mean[2])
    True
    """

    hosts: npt.NDArray[Any]
    mean: Array
    shape: Array
    within: float
    spread: float
    names: npt.NDArray[Any]
    code: IntArray
    time_unit: str
    birth_rate: float = 0.0

    @classmethod
    def from_log(cls, log: CrawlLog, host: npt.ArrayLike) -> HostPriors:
        """Return the hierarchical prior of maximum marginal likelihood.

        Parameters
        ----------
        log : CrawlLog
            Of many sources, some of which changed and were crawled between changes.
        host : array_like of str or int, shape (n,)
            The host of each source, in the order of ``log.names``.

        Raises
        ------
        SourceDataError
            If there is not one host for each source, or the log does not tell how rates are spread.
        """
        expect(log, CrawlLog, "log", "Pass a freshopt.CrawlLog")
        shape_of(host, "host")
        labels = np.asarray(host)
        if labels.shape != log.names.shape:
            raise SourceDataError(
                f"host has shape {labels.shape} but the log has {len(log.names)} sources. Give one host "
                "for each, in the order of log.names."
            )
        hosts, code = np.unique(labels, return_inverse=True)
        observed = CrawlLikelihood.of(log)
        start = GammaPrior.from_marginal_likelihood(log)
        # Whole hosts, some of all sizes: the spread of rates on a host is estimated only from all of it.
        order = np.random.default_rng(0).permutation(len(hosts))
        chosen = order[np.cumsum(np.bincount(code)[order]) <= max(ENOUGH, np.bincount(code)[order[0]])]
        some = np.isin(code, chosen)
        births = start.birth_rate
        sample = _Hosts(observed.select(some), np.unique(code[some], return_inverse=True)[1], births)
        shape, typical, spread = sample.spread_of(start.shape, np.log(start.shape / start.exposure))
        mean, variance = _Hosts(observed, code, births).means(shape, typical, spread)
        mean, variance = np.append(mean, typical), np.append(variance, spread**2)
        wide, means = widened(shape, np.exp(mean), variance)
        return cls(hosts, means, wide, shape, spread, log.names, code, log.time_unit, births)

    def __repr__(self) -> str:
        """Return the number of hosts and their spread.

        Never the arrays.
        """
        settings = f"within={self.within:.4g}, spread={self.spread:.3g}"
        return f"HostPriors({len(self.hosts)} hosts, {settings})"

    def parameters(self, log: CrawlLog) -> GammaParameters:
        """Return the prior of each source.

        In the time unit of the log.

        A source that the prior was not fitted to has the prior of a host without crawls.

        Raises
        ------
        SourceDataError
            If none of the log's sources is known, or names are integers here and text there.
        """
        at = np.zeros(len(log.names), dtype=np.int64)
        known = np.zeros(len(log.names), dtype=np.bool_)
        if are_text(self.names) is are_text(log.names):
            at = np.minimum(np.searchsorted(self.names, log.names), len(self.names) - 1)
            known = self.names[at] == log.names
        if not known.any():
            some = list_offenders(map(repr, log.names[:1].tolist()))
            raise SourceDataError(
                f"the priors know no source of this log, such as {some}. Learn them from this log, with its "
                "hosts."
            )
        host = np.where(known, self.code[at], len(self.hosts))
        unit = convert_time(1.0, log.time_unit, self.time_unit)
        mean = self.mean[host] * unit
        return GammaParameters(
            self.shape[host], self.shape[host] / mean, np.full(len(host), unit * self.birth_rate)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Hosts:
    """Likelihood of sources, with the host of each."""

    observed: CrawlLikelihood
    code: IntArray
    birth_rate: float

    def means(
        self, shape: float, typical: float, spread: float, begin: Array | None = None
    ) -> tuple[Array, Array]:
        """Return posterior mean and variance of hosts' ln m, given the others'."""
        count = int(self.code.max()) + 1
        mean = np.full(count, typical) if begin is None else begin
        for _ in range(ROUNDS):
            _, slope, curve = self._evidence(shape, mean)
            slope, curve = slope - (mean - typical) / spread**2, curve + spread**-2.0
            step = np.clip(slope / curve, -LEAP, LEAP)
            mean = mean + step
            if np.max(np.abs(step)) < 1e-6:
                break
        return mean, 1.0 / curve

    def spread_of(self, shape: float, typical: float) -> tuple[float, float, float]:
        """Return shape, ln of the typical mean and spread, by coordinates."""
        spread, mean = 1.0, None
        for _ in range(ROUNDS):
            before = (np.log(shape), typical, np.log(spread))
            mean, variance = self.means(shape, typical, spread, mean)
            best = optimize.minimize_scalar(
                self._loss,
                args=(mean, spread),
                bounds=(max(np.log(FLATTEST), before[0] - 1.0), min(np.log(STEEPEST), before[0] + 1.0)),
                method="bounded",
                options={"xatol": 1e-3},
            )
            shape, typical = float(np.exp(best.x)), float(np.mean(mean))
            spread = max(float(np.sqrt(np.mean((mean - typical) ** 2 + variance))), NARROWEST)
            if np.max(np.abs(np.subtract((np.log(shape), typical, np.log(spread)), before))) < 1e-2:
                break
        return shape, typical, spread

    def _loss(self, logarithm: float, mean: Array, spread: float) -> float:
        """Return the negative log evidence of ln(shape), means integrated out."""
        evidence, _, curve = self._evidence(float(np.exp(logarithm)), mean)
        return -evidence + 0.5 * float(np.sum(np.log(curve + spread**-2.0)))

    def _evidence(self, shape: float, mean: Array) -> tuple[float, Array, Array]:
        """Return the log evidence with its first two derivatives.

        The log-likelihood, its slope in each ln m, and minus its curvature there.
        """
        own = np.exp(mean)[self.code]
        births = np.full(len(own), self.birth_rate)
        posterior = self.observed.under(GammaParameters(np.full(len(own), shape), shape / own, births))
        rate, value, alpha = posterior.peaks()  # as if it were Gamma with this mode and curvature
        total = np.sum(laplace(value, alpha) + shape * np.log(shape / own)) - len(rate) * special.gammaln(
            shape
        )
        pull = shape * (rate / own)
        # What is known of a rate from its crawls sharpens the mean; what is not, does not.
        sharp = pull * np.maximum(1.0 - pull / alpha, 0.01)
        slope, curve = (np.bincount(self.code, each, len(mean)) for each in (pull - shape, sharp))
        return float(total), slope.astype(np.float64), curve.astype(np.float64)

"""`PooledSignals`: recall and precision from a log and a table of signals.

A source changes unannounced at the rate a, and signals come at the rate g, a share p of them true: the
likelihood of its crawls is that of `signal_likelihood`, and Δ = a + pg. Most sources have few crawls and
fewer signals. So recall l = pg/Δ and precision have beta priors around the means of the source's host, and
these are learnt from all of its sources and shrunk to those of all hosts; Δ has the prior of a plan without
signals. Sources that never signal are told from others: l̄ is that of sources that signal, times how likely
the source is one of these.

    Δ ~ Gamma(α, β),   l ~ Beta(m·l̄, m(1−l̄)),   p ~ Beta(m·p̄, m(1−p̄)).

Estimates are the posterior modes of ln a, logit p and ln g, found by expectation and maximisation [1]_: given
the rates, the crawl after a time s with n signals that found a change hides as/(1−e^{−x}) unannounced changes
and np/(1−e^{−x}) true signals, x = as − n ln(1−p), and given these each rate is a ratio of counts, but for
(α−m) ln Δ, which is bounded from below. Intervals are normal in these coordinates, by the curvature. Where
sources of a host differ, modes of few crawls lie too low, and intervals of 90 % cover 78 % after 5 crawls of
each source, 90 % after 40 (a test).

A kind of signal is kept if it tells something: if the crawls of all sources are more likely, by a
likelihood-ratio test at 5 %, when a share of it is taken for true than when none is [2]_.

Cost: some 100 passes over the crawls that found a change.

References
----------
.. [1] Dempster, Laird, Rubin, "Maximum likelihood from incomplete data via the EM algorithm", Journal of the
   Royal Statistical Society B 39 (1977), doi:10.1111/j.2517-6161.1977.tb01600.x.
.. [2] Chernoff, "On the distribution of the likelihood ratio", Annals of Mathematical Statistics 25 (1954),
   doi:10.1214/aoms/1177728725: on the edge p = 0 it is half of χ²₁'s.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from freshopt.estimators.crawl_rows import GammaParameters
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator, check_confidence
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.estimators.sufficient_statistics import flags_of
from freshopt.heavy import special
from freshopt.logs.crawl_log import CrawlLog
from freshopt.noisy_signals.signal_likelihood import SignalLikelihood, counted_crawls
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.numerics.segments import segment_sums

# m: changes, or signals, after which a source's own recall, or precision, weighs as much as its host's.
STRENGTH = 8.0
# How likely a source signals at least, so that logarithms are finite.
SILENT = 1e-6
# Sources by which a host's means are shrunk to those of all.
SHRUNK = 2.0
# Rounds end when no rate moves by more, relatively, or by themselves.
CLOSE, ROUNDS = 1e-7, 1_000
# Twice the gain in log-likelihood from which on a kind of signal tells something: half of χ²₁ exceeds it in
# 5 % of cases.
TELLS = 2.7055
# Step in ln a, logit p and ln g at which slopes are compared: the curvature is then right to some 1e-7.
NEARBY = 1e-4
# Weight of a change, or signal, that is taken for unannounced, or true, as much as for the other.
HALF = 0.5


class Posterior(NamedTuple):
    """Crawls, signals and priors of n sources.

    Prior means of recall and precision are those of the host, shape and exposure those of the prior of Δ.
    """

    crawls: SignalLikelihood
    many: Array
    time: Array
    recall: Array
    precision: Array
    shape: Array
    exposure: Array

    def step(self, a: Array, p: Array, g: Array, hidden: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """Return rates of a higher posterior density, given what crawls hide."""
        silent, true = hidden
        change = a + p * g
        told = p * g / change
        # (α − m) ln Δ is bounded from below by its tangent, or by a sum of the logarithms of its parts.
        extra = np.maximum(self.shape - STRENGTH, 0.0)
        slope = self.exposure + np.maximum(STRENGTH - self.shape, 0.0) / change
        watched = self.crawls.time + segment_sums(self.crawls.intervals, self.crawls.offsets)
        announced = STRENGTH * self.recall + extra * told
        new_a = (silent + STRENGTH * (1.0 - self.recall) + extra * (1.0 - told)) / (watched + slope)
        new_g = (self.many + announced) / (self.time + slope * p)
        yes = true + STRENGTH * self.precision + announced
        no, bend = self.many - true + STRENGTH * (1.0 - self.precision), slope * new_g
        whole = yes + no + bend
        new_p = 2.0 * yes / (whole + np.sqrt(np.maximum(whole * whole - 4.0 * bend * yes, 0.0)))
        return new_a, new_p, new_g

    def slopes(self, at: Array) -> Array:
        """Return the slopes in ln a, logit p, ln g."""
        a, p, g = np.exp(at[0]), special.expit(at[1]), np.exp(at[2])
        by_rate, by_evidence = self.crawls.slopes(a, -np.log1p(-p))
        slope = (STRENGTH - self.shape) / (a + p * g) + self.exposure
        told, true = STRENGTH * self.recall, STRENGTH * self.precision
        return np.stack(
            [
                a * by_rate + STRENGTH - told - slope * a,
                p * by_evidence
                + (true + told) * (1.0 - p)
                - (STRENGTH - true) * p
                - slope * p * (1.0 - p) * g,
                self.many + told - g * self.time - slope * p * g,
            ]
        )

    def errors(self, a: Array, p: Array, g: Array) -> dict[str, Array]:
        """Return standard errors of ln Δ, logit l, logit p."""
        at = np.stack([np.log(a), np.log(p) - np.log1p(-p), np.log(g)])
        rows = [
            (self.slopes(at + step) - self.slopes(at - step)) / (2.0 * NEARBY)
            for step in NEARBY * np.eye(3)[:, :, None]
        ]
        covariance = np.linalg.inv(-np.stack(rows).transpose(2, 0, 1))
        told = p * g / (a + p * g)
        directions = {
            "change_rate": (1.0 - told, told * (1.0 - p), told),
            "recall": (-np.ones(len(a)), 1.0 - p, np.ones(len(a))),
            "precision": (np.zeros(len(a)), np.ones(len(a)), np.zeros(len(a))),
        }
        made = {key: np.stack(each, axis=1) for key, each in directions.items()}
        return {
            key: np.sqrt(np.maximum(np.einsum("ni,nij,nj->n", each, covariance, each), 0.0))
            for key, each in made.items()
        }


class Kind(NamedTuple):
    """A kind of signal: its number, precision and gain in log-likelihood."""

    name: str
    signals: int
    precision: float
    gain: float

    @property
    def tells(self) -> bool:
        """Whether crawls find more changes after such signals."""
        return 2.0 * self.gain > TELLS


class PooledSignals(Estimator):
    """Recall, precision and change rates, pooled by host.

    `prior` is of the change rates, the log's own by default. Fitted it has `recall_`, `precision_` (0 and 1
    where no kind of signal tells anything), `silent_rate_` and `signal_rate_`, shape (n,) each, all `kinds_`,
    and `signals_`, those of the kinds that tell something.
    """

    def __init__(
        self,
        signals: SignalTable,
        hosts: npt.NDArray[Any] | None = None,
        prior: GammaPrior | FeaturePriors | None = None,
    ) -> None:
        self.signals, self.hosts, self.prior = signals, hosts, prior

    def __repr__(self) -> str:
        return f"PooledSignals({self.signals!r})"

    def fit(self, log: CrawlLog) -> Self:
        """Learn from a log's crawls and the signals between them."""
        n = len(log.names)
        # Without a crawl interval nothing is learnt, and the prior is one crawl a unit of time.
        known = self.prior or default_prior(log) or GammaPrior(HALF, 1.0, log.time_unit)
        rates = known.parameters(log)
        self.kinds_ = tuple(
            _kind(log, self.signals.of_kinds(np.arange(len(self.signals.kinds)) == k), name, rates)
            for k, name in enumerate(self.signals.kinds)
        )
        self.signals_ = self.signals.of_kinds([kind.tells for kind in self.kinds_])
        some = len(self.signals_) > 0
        crawls = counted_crawls(log, ~np.isnan(log.interval), self.signals_.counts(log))
        codes = np.zeros(n, dtype=np.int64)
        if self.hosts is not None:
            codes = np.unique(self.hosts, return_inverse=True)[1].astype(np.int64)
        half = np.full(n, HALF)
        self.posterior_ = Posterior(
            crawls,
            crawls.heard + segment_sums(crawls.signals, crawls.offsets),
            segment_sums(np.nan_to_num(log.interval), log.offsets),
            half,
            half,
            rates.shape,
            rates.exposure,
        )
        a, p, g, self.posterior_ = _modes(self.posterior_, codes)
        self._errors, self._silent = self.posterior_.errors(a, p, g), crawls.hidden(a, p)[0]
        change = a + p * g
        self.silent_rate_, self.signal_rate_ = a, g if some else np.zeros(n)
        self.recall_, self.precision_ = (p * g / change, p) if some else (np.zeros(n), np.ones(n))
        unchanged = segment_sums((~log.changed & ~np.isnan(log.interval)).astype(np.float64), log.offsets)
        self.library = log.library
        return self._publish(log.names, log.time_unit, change, flags_of(crawls.changed, unchanged > 0.0))

    def shares(self, quantity: str, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return credible intervals of "recall" or "precision", shape (n,) each."""
        level, share = 0.5 + 0.5 * check_confidence(confidence), getattr(self, f"{quantity}_")
        reach = float(special.ndtri(level)) * self._errors[quantity]
        with np.errstate(divide="ignore"):
            middle = special.logit(share)
        ends = np.stack([special.expit(middle - reach), special.expit(middle + reach)])
        # Without a signal l is of a beta distribution by itself, and its logarithm far from normal.
        none = (self.posterior_.many == 0.0) & (quantity == "recall")
        prior = STRENGTH * self.posterior_.recall[none]
        rest = STRENGTH - prior + self._silent[none]
        ends[0, none] = np.minimum(share[none], special.betaincinv(prior, rest, 1.0 - level))
        ends[1, none] = np.maximum(share[none], special.betaincinv(prior, rest, level))
        return ends[0], ends[1]

    def _distribution(self) -> RateDistribution:
        rate, error, none = (
            self.change_rate_,
            self._errors["change_rate"],
            np.zeros(len(self.flag_), np.bool_),
        )

        def quantiles(levels: Array) -> Array:
            return np.asarray(rate * np.exp(error * special.ndtri(levels)))

        return RateDistribution(quantiles, none, none)


def _modes(posterior: Posterior, codes: IntArray) -> tuple[Array, Array, Array, Posterior]:
    """Return the modes of a, p and g, and the posterior learnt."""
    change = posterior.shape / posterior.exposure
    a, p, g = HALF * change, posterior.precision, change
    # From sources that signal alone: begun with all, recall falls before silent ones are told from others.
    hosts, signals = int(np.max(codes)) + 1, np.where(posterior.many > 0.0, 1.0, SILENT)
    for _ in range(ROUNDS):
        hidden = silent, true = posterior.crawls.hidden(a, p)
        recall = _pooled(true, silent + true, codes, hosts, signals)
        signals = np.where(posterior.many > 0.0, 1.0, _signals_at_all(recall, silent, codes, signals))
        precision = _pooled(true, posterior.many, codes, hosts, 1.0)
        posterior = posterior._replace(recall=signals * recall, precision=precision)
        before, (a, p, g) = (a, p, g), posterior.step(a, p, g, hidden)
        if (
            max(float(np.max(np.abs(new / old - 1.0))) for new, old in zip((a, p, g), before, strict=True))
            < CLOSE
        ):
            break
    return a, p, g, posterior


def _signals_at_all(recall: Array, silent: Array, codes: IntArray, signals: Array) -> Array:
    """Return how likely a source without a signal signals at all.

    So many of its host's sources do, and these have no signal of so many changes with the beta-binomial's
    chance B(m·l̄, m(1−l̄) + k)/B(m·l̄, m(1−l̄)).
    """
    of_host = (np.bincount(codes, signals) + HALF) / (np.bincount(codes) + 1.0)
    rest = STRENGTH * (1.0 - recall)
    chance = (
        special.gammaln(rest + silent)
        - special.gammaln(rest)
        + special.gammaln(STRENGTH)
        - special.gammaln(STRENGTH + silent)
    )
    return np.maximum(special.expit(special.logit(of_host[codes]) + chance), SILENT)


def _pooled(true: Array, of: Array, codes: IntArray, hosts: int, counts: Array | float) -> Array:
    """Return the share of each source's host, shrunk to that of all.

    A source counts the more the more it tells, and at most as one, or as `counts`.
    """
    weight = counts / (of + STRENGTH)
    part, whole = (np.bincount(codes, each * weight, hosts).astype(np.float64) for each in (true, of))
    # Half a change or signal of each sort keeps shares off their edges.
    share = (total(part) + HALF * HALF / STRENGTH) / (total(whole) + HALF / STRENGTH)
    return np.asarray(((part + SHRUNK * share) / (whole + SHRUNK))[codes])


def _kind(log: CrawlLog, signals: SignalTable, name: str, rates: GammaParameters) -> Kind:
    """Return what a kind of signal tells, all sources alike."""
    crawls = counted_crawls(log, ~np.isnan(log.interval), signals.counts(log))
    many = total(crawls.heard) + total(crawls.signals)
    watched = crawls.time + segment_sums(crawls.intervals, crawls.offsets)

    def best(p: float, *, learnt: bool) -> tuple[float, float]:
        # Unannounced changes are spread as all changes are, around a mean of their own.
        a, scale, n = rates.shape / rates.exposure, 1.0, len(log.names)
        for _ in range(ROUNDS):
            silent, true = crawls.hidden(a, np.full(n, p))
            new = (rates.shape + silent) / (rates.exposure / scale + watched)
            share = min(total(true) / many, 1.0 - CLOSE) if learnt else p
            moved = max(float(np.max(np.abs(new / a - 1.0))), abs(share - p))
            a, p, scale = new, share, total(rates.exposure * new) / total(rates.shape)
            if moved < CLOSE:
                break
        spread = rates.shape * np.log(a / scale) - rates.exposure * a / scale
        return p, total(crawls.value(a, np.full(n, -np.log1p(-p))) + spread)

    if not many > 0.0:
        return Kind(name, 0, 0.0, 0.0)
    precision, likelihood = best(HALF, learnt=True)
    return Kind(name, int(many), precision, max(likelihood - best(0.0, learnt=False)[1], 0.0))

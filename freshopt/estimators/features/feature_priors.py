"""`FeaturePriors`: prior of each source's change rate, by its features.

A crawl after a gap a finds a change with probability 1 − e^{−aΔ}: if ln Δ is linear in features, that is a
binomial regression with the complementary log-log link and the offset ln a. Counted and dated changes are its
limit of short gaps. Effects have a normal prior, whose width predicts held-out sources best: words of few
sources, such as hosts, are shrunk, and what separates changes perfectly has a finite effect. The crawls of a
source of m expected changes weigh 1/(1 + m/a), as a negative binomial count does.

Rates differ beyond what features tell: Δ = e^η·ε. η is predicted by a regression on the sources of other
folds, and ε is gamma distributed as `GammaPrior` learns it from the same crawls with time in units of e^{−η}:
its spread has the errors of predictions in it. A word that was not learnt, such as a new host, adds the
variance of the effects of those that were.

Cost: 6 regressions by glum, and 20 of 2 000 sources; 10⁶ rows with 50 hosts take 1.5 s each.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from freshopt.errors import FreshoptError, SourceDataError, expect
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import GammaParameters, evenly, widened
from freshopt.estimators.features.source_features import Design, SourceFeatures
from freshopt.estimators.gamma_prior import ENOUGH, GammaPrior, few_crawls
from freshopt.estimators.marginal_likelihood import MarginalLikelihood
from freshopt.heavy import sparse
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.units import convert_time

# Nats that features must gain, or they tell nothing.
TELLING = 3.0
# Sources with two crawls that features are learnt from at least, and parts of cross-fitting.
LEAST, FOLDS = 30, 5
# Precisions of effects: standard deviations of 1.8, 0.6, 0.18 and 0.06 of ln Δ; tried on so many sources.
PRECISIONS, CHOOSERS = (0.3, 3.0, 30.0, 300.0), 2000
# Shapes that are tried, beside the pooled one.
SPREADS = np.array([0.7, 1.0, 1.5, 2.5, 4.0, 7.0, 12.0])
# Time that stands for a moment, in units of a source's own time between changes; largest gradient and
# number of steps.
SHORT, PRECISE, MOST_STEPS = 0.03, 1e-8, 200


@frozen_value(repr=False)
class Effects:
    """What features tell of ln Δ.

    Its intercept `start`, the effect of `each` column of the design, the variance of those of `words` by
    feature, and the prior of the `residual` ε.
    """

    design: Design
    start: float
    each: Array
    words: Mapping[str, float]
    residual: GammaPrior

    def levels(self, table: SourceFeatures) -> tuple[Array, Array]:
        """Return η of each source, and its variance by unknown words."""
        rows = np.arange(len(table.names))
        variance = np.zeros(len(rows))
        for name, own in self.words.items():
            variance += np.where(self.design.codes(name, table.columns[name]) < 0, own, 0.0)
        return self.start + self.design.matrix(table, rows) @ self.each, variance

    def priors(self, level: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Return mean, shape and rate of births of each source."""
        own, unit = self.residual, np.exp(level)
        wide, mean = widened(own.shape, own.shape / own.exposure * unit, variance)
        return mean, wide, own.birth_rate * unit


@frozen_value(repr=False)
class FeaturePriors:
    """Gamma priors of change rates by features of sources.

    Attributes
    ----------
    table : SourceFeatures
        Features of n sources.
    mean, shape : ndarray of float, shape (n,)
        Mean change rate, per time unit, and shape of each source's prior; the relative spread is 1/√shape.
    birth_rate : ndarray of float, shape (n,)
        As that of `GammaPrior`, by source.
    spread : dict of str to float
        Standard deviation over sources of what each feature adds to ln Δ; empty where features tell nothing.
    gain : float
        Log marginal likelihood of all crawls, each source held out, beyond that of the pooled prior, in nats.
        Below 3 features tell nothing, and all sources have the pooled prior.
    pooled : GammaPrior
        The prior without features.
    within : float
        The shape given all effects: how alike sources of like features are.
    effects : Effects or None
        What was learnt, for other sources.

    Examples
    --------
    Pages on one host change ten times as often as on another; two were never crawled.

    >>> import polars as pl
    >>> rng = np.random.default_rng(0)
    >>> changed = rng.random((20, 40)) < np.repeat([0.05, 0.5], 20)
    >>> log = CrawlLog(np.tile(np.arange(40), 20), np.repeat(np.arange(20), 40), changed.ravel())
    >>> host = ["slow"] * 20 + ["fast"] * 20 + ["slow", "fast"]
    >>> frame = pl.DataFrame({"source": np.arange(42), "host": host})
    >>> FeaturePriors.from_log(log, frame).mean[-2:].round(2).tolist()
    [0.03, 0.63]
    """

    table: SourceFeatures
    mean: Array
    shape: Array
    birth_rate: Array
    spread: dict[str, float]
    gain: float
    pooled: GammaPrior
    within: float
    effects: Effects | None = None

    @classmethod
    def from_log(cls, log: CrawlLog, features: Any) -> FeaturePriors:  # noqa: ANN401 - as `SourceFeatures.of`
        """Learn the priors of a log's sources.

        Parameters
        ----------
        log : CrawlLog
            With at least 30 sources that were crawled twice, some of which changed.
        features : dataframe, path or "url"
            A table with the column source, a row for each, and columns of numbers or words; or what the URLs
            of the sources tell, which is added where it tells them apart.

        Raises
        ------
        SourceDataError
            If a source has no row, a column is constant or has empty cells, or the log tells too little.
        FreshoptError
            Without glum, which ``freshopt[features]`` brings.
        """
        expect(log, CrawlLog, "log", "Pass a freshopt.CrawlLog")
        table = SourceFeatures.of(log.names, features)
        observed = CrawlLikelihood.of(log)
        learners = np.flatnonzero(observed.known)
        if len(learners) < LEAST:
            raise SourceDataError(
                f"features are learnt from sources that were crawled twice, and the log has {len(learners)} "
                f"of them, where {LEAST} are needed. Leave features out."
            )
        pooled = GammaPrior.from_likelihood(observed, log.time_unit, few=few_crawls(log))
        own, rows = observed.select(learners), table.rows_of(log.names)[learners]
        regression = _Regression.of(own, table, rows)
        if not table.design(rows).matrix(table, rows[:1]).shape[1]:
            raise SourceDataError(
                f"no feature tells sources that were crawled twice apart: {', '.join(table.columns)}. Add a "
                "column, or leave features out."
            )
        precision, shape = regression.chosen(pooled.shape)
        held = regression.held_out(precision, shape)
        residual = GammaPrior.from_likelihood(_in_units(own, held), log.time_unit, few=few_crawls(log))
        gain = _gain(own, held, residual, pooled)
        # Of features that tell nothing.
        spread, learnt = {}, Effects(Design({}, {}), 0.0, np.zeros(0), {}, pooled)
        if gain > TELLING:
            learnt = regression.effects(precision, shape, residual)
            matrix = learnt.design.matrix(table, np.arange(len(table.names)))
            spread = {
                k: float(np.std(matrix[:, at] @ learnt.each[at])) for k, at in learnt.design.parts().items()
            }
        level, variance = learnt.levels(table)
        if spread:
            level[rows], variance[rows] = held, 0.0
        given = learnt.priors(level, variance)
        return cls(table, *given, spread, gain, pooled, learnt.residual.shape, learnt)

    def __repr__(self) -> str:
        told = f"{len(self.mean)} sources, gain={self.gain:.3g}, within={self.within:.3g}"
        return f"FeaturePriors({told}: {', '.join(self.spread) or 'no feature tells'})"

    def parameters(self, log: CrawlLog) -> GammaParameters:
        """Return the prior of each source.

        In the time unit of the log.

        Raises
        ------
        SourceDataError
            If the features have no row of a source.
        """
        at = self.table.rows_of(log.names)
        unit = convert_time(1.0, log.time_unit, self.pooled.time_unit)
        shape, mean = self.shape[at], self.mean[at] * unit
        return GammaParameters(shape, shape / mean, self.birth_rate[at] * unit)


def priors_of(table: SourceFeatures, learnt: FeaturePriors) -> FeaturePriors:
    """Return the priors of sources, by effects that others taught."""
    effects, names = learnt.effects, learnt.table.names
    assert effects is not None, "priors of a log have effects"
    order = np.argsort(names)
    at = order[np.minimum(np.searchsorted(names, table.names, sorter=order), len(names) - 1)]
    same = names[at] == table.names
    own, others = (learnt.mean, learnt.shape, learnt.birth_rate), effects.priors(*effects.levels(table))
    mean, shape, births = (np.where(same, one[at], other) for one, other in zip(own, others, strict=True))
    return replace(learnt, table=table, mean=mean, shape=shape, birth_rate=births)


class _Regression(NamedTuple):
    """Rows of the regression, of n sources.

    `gap`, `found` (0 or 1) and `weight` of each row, its `source`, `time` (observed of each source), and
    their parts in cross-fitting.
    """

    observed: CrawlLikelihood
    table: SourceFeatures
    rows: IntArray
    mean: float
    source: IntArray
    gap: Array
    found: Array
    weight: Array
    time: Array
    fold: IntArray

    @classmethod
    def of(cls, observed: CrawlLikelihood, table: SourceFeatures, rows: IntArray) -> _Regression:
        """Return the rows of a likelihood."""
        n, (changes, whole) = len(rows), observed.pooled()
        mean = changes / whole
        each = np.repeat(np.arange(n), observed.found)
        time = observed.exposure + np.bincount(each, observed.rows.length, n)
        # ln(1−e^{−x}) = ln x − x/2 + O(x²): a counted change is a crawl after a gap, half of it not still.
        short = SHORT * (time + 1.0 / mean) / (observed.found + observed.counted + 1.0)
        still = np.maximum(observed.exposure / short - 0.5 * observed.counted, 0.0)
        counted, quiet = np.flatnonzero(observed.counted > 0.0), np.flatnonzero(still > 0.0)
        one = np.ones(len(each))
        parts = [(each, observed.rows.length, one, one)]
        parts += [(counted, short[counted], np.ones(len(counted)), observed.counted[counted])]
        parts += [(quiet, short[quiet], np.zeros(len(quiet)), still[quiet])]
        fold = np.random.default_rng(0).permutation(n) % FOLDS
        source, gap, found, weight = map(np.concatenate, zip(*parts, strict=True))
        return cls(observed, table, rows, mean, source, gap, found, weight, time, fold)

    def fitted(self, precision: float, shape: float, some: IntArray) -> tuple[Design, float, Array]:
        """Return design, intercept and effects, learnt from some of the sources."""
        design = self.table.design(self.rows[some])
        matrix = design.matrix(self.table, self.rows)
        start = math.log(self.mean)
        if not matrix.shape[1]:
            return design, start, np.zeros(0)
        kept = np.flatnonzero(np.isin(self.source, some))
        source = self.source[kept]
        weight = self.weight[kept] / (1.0 + self.mean * self.time[source] / shape)
        alpha = precision / float(np.sum(weight))
        given = matrix[source], self.found[kept], weight, np.log(self.gap[kept]) + start
        intercept, effects = _regressed(*given, alpha)
        return design, start + intercept, effects

    def effects(self, precision: float, shape: float, residual: GammaPrior) -> Effects:
        """Return the effects that all sources tell."""
        design, start, each = self.fitted(precision, shape, np.arange(len(self.rows)))
        parts, words = design.parts(), {}
        for name, own in design.words.items():
            if len(own):
                code = design.codes(name, self.table.columns[name][self.rows])
                words[name] = float(np.var(each[parts[name]][code[code >= 0]]))
        return Effects(design, start, each, words, residual)

    def held_out(self, precision: float, shape: float) -> Array:
        """Return each source's ln Δ as predicted by the others."""
        level = np.empty(len(self.rows))
        for fold in range(FOLDS):
            out = np.flatnonzero(self.fold == fold)
            design, start, effects = self.fitted(precision, shape, np.flatnonzero(self.fold != fold))
            level[out] = start + design.matrix(self.table, self.rows[out]) @ effects
        return level

    def chosen(self, shape: float) -> tuple[float, float]:
        """Return the precision and the shape that predict sources best."""
        some = np.arange(len(self.rows))
        if len(some) > CHOOSERS:
            some = np.sort(np.random.default_rng(1).choice(some, CHOOSERS, replace=False))
        part = _Regression.of(self.observed.select(some), self.table, self.rows[some])
        tried = []
        for precision in PRECISIONS:
            deformed = _in_units(part.observed, part.held_out(precision, shape))
            changes, time = deformed.pooled()
            mean = changes / time
            evidence = MarginalLikelihood.of(deformed, mean, shape)
            tried += [(evidence.best(own, own / mean)[0], precision, own) for own in shape * SPREADS]
        _, precision, own = max(tried)
        return precision, float(own)


def _in_units(observed: CrawlLikelihood, level: Array) -> CrawlLikelihood:
    """Return the likelihood of rates in units of e^level."""
    per = np.exp(level)
    rows, dates = observed.rows, observed.dates
    return replace(
        observed,
        rows=rows._replace(length=rows.length * np.repeat(per, rows.number)),
        exposure=observed.exposure * per,
        dates=None if dates is None else dates._replace(age=dates.age * per),
    )


def _gain(own: CrawlLikelihood, level: Array, residual: GammaPrior, pooled: GammaPrior) -> float:
    """Return the log marginal likelihood beyond the pooled prior's."""
    some = evenly(len(level), ENOUGH)
    every, own, level = len(level), own.select(some), level[some]
    # A counted change, or a first date, has a density, which is that in other units of time.
    dated = own.counted if own.dates is None else own.counted + own.dates.possible
    total = float(np.sum(dated * level))
    for observed, prior, sign in ((_in_units(own, level), residual, 1.0), (own, pooled, -1.0)):
        evidence = MarginalLikelihood.of(observed, prior.shape / prior.exposure, prior.shape)
        total += sign * evidence.at(prior.shape, prior.exposure, prior.birth_rate)
    return total * every / len(some)


def _regressed(
    matrix: sparse.csc_array, found: Array, weight: Array, offset: Array, alpha: float
) -> tuple[float, Array]:
    """Return intercept and effects of a regression with a ridge."""
    try:
        import glum
        import threadpoolctl
    except ImportError as error:
        raise FreshoptError(
            f"{error.name} is not installed. Install it with: pip install 'freshopt[features]'"
        ) from None
    model = glum.GeneralizedLinearRegressor(
        family="binomial",
        link=glum.CloglogLink(),
        alpha=alpha,
        l1_ratio=0.0,
        gradient_tol=PRECISE,
        max_iter=MOST_STEPS,
    )
    # On one core: on several, sums differ in their last digits, and beside other work it waits for them.
    with threadpoolctl.threadpool_limits(1), warnings.catch_warnings():
        # It says that shares near 1 are clipped, which a step may overshoot to.
        warnings.simplefilter("ignore", UserWarning)
        model.fit(matrix, found, sample_weight=weight, offset=offset)
    if model.n_iter_ >= MOST_STEPS:
        raise FreshoptError(f"effects of features did not settle in {MOST_STEPS} steps. Report the features.")
    return float(model.intercept_), np.asarray(model.coef_, dtype=np.float64)

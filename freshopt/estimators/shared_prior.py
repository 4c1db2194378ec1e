"""`RateDraws`: draws of change rates, with the prior that they share.

How rates are distributed is not known, and what is not known of it moves all rates together: intervals of a
total from independent posteriors under one best prior are too narrow, and miss where rates are distributed
otherwise than it says. Here the prior is a distribution on cells of ln(Δ·s), of any form: Dirichlet's process
about a logistic one with a location, a scale for either side, and a concentration that are unknown in turn. A
narrow one lets ten sources tell where an eleventh lies, a wide one bends to two kinds of sources; its tails
are power laws of Δ, which is how much faster a source may be that changed at every crawl. The location has as
hyperprior the half-Cauchy law of √(Δ·gap), averaged over the sources' gaps: with one source nearly Jeffreys'
prior. s is 1, or where that makes the log likelier the source's own mean gap, as a crawler that follows its
sources has rates that go with gaps, or the time between changes that its own prior expects.

Gibbs' sampler draws rates, prior and its parameters in turn; and since sources of which little is known keep
each other where they are, it moves all of them together, too.

All that the prior needs of a source is the integral of its likelihood over each cell, and a draw from the
likelihood within one (`Cells`). A likelihood that bends within a cell has nodes of its own where it is not
negligible.

Cost: one likelihood per cell and source, and 32 to 100 more for a source whose rate is known well; a sweep
takes some ten operations per cell and learner, and 0.1 ms. With more sources than `LEARNERS` a sample of them
tells the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import check_seed
from freshopt.estimators.crawl_rows import evenly
from freshopt.estimators.rate_distribution import MOST_NUMBERS, RateDistribution, RateEvidence
from freshopt.heavy import special
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_whole, chunks

# Width of a cell in ln Δ, and the largest number of cells; a wider range has wider ones.
WIDTH, MOST = 0.25, 200
# Nats below its largest value from which on a likelihood is nothing.
NOTHING = 20.0
# Cells within that distance, below which a source has nodes of its own; so many, of which so many count.
WIDE, NODES, COUNTING = 16, 32, 12
# Each zoom makes the range eight times as narrow or more.
ZOOMS = 5
# Scales of the logistic distribution on either side of its location, and concentrations.
SCALES = np.array([0.15, 0.3, 0.6, 1.0, 1.7, 3.0])
CONCENTRATIONS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 1000.0])
# Mass of a cell that the logistic distribution does not reach.
LEAST = 1e-12
# Sources that tell the prior: more of them tell it better than the rates matter.
LEARNERS = 1000
# Sources by which s is chosen.
CHOOSERS = 200
# Sweeps before the first draw, since the start is a good one, and at least in all: of few draws each is as
# many sweeps after the one before.
BURN, SWEEPS = 60, 60
# Sources whose rates are drawn together.
BLOCK = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Likelihoods of m sources, integrated over cells of t = ln(Δ·s).

    - `left`, `width`: Where the cells begin, and how wide each is.
    - `shift` (m,): ln s.
    - `weight` (m, cells): Integrals, over the largest likelihood.
    - `top` (m,): Its logarithm.
    - `sharp` (s,): Sources with nodes of their own.
    - `node`, `likelihood`, `cell` (s, nodes): Their nodes of t, the likelihoods there, and the nodes' cells.
    """

    left: float
    width: float
    shift: Array
    weight: Array
    top: Array
    sharp: IntArray
    node: Array
    likelihood: Array
    cell: IntArray

    @classmethod
    def of(
        cls, evidence: RateEvidence, which: IntArray, shift: Array, left: float, width: float, count: int
    ) -> Cells:
        """Return the cells of some sources, given by increasing positions."""

        def told(t: Array, some: IntArray) -> Array:
            with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
                value = evidence.log_likelihood(np.exp(t.T - shift[some]), which[some]).T
            return np.nan_to_num(value, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)

        every = np.arange(len(which))
        centre = left + width * (np.arange(count) + 0.5)
        value = told(np.repeat(centre[None], len(which), axis=0), every)
        top = _tops(value)
        sharp = np.flatnonzero(np.count_nonzero(value > top[:, None] - NOTHING, axis=1) < WIDE)
        with np.errstate(under="ignore"):
            weight = width * np.exp(value - top[:, None])
        own, at = value[sharp], np.repeat(centre[None], len(sharp), axis=0)
        moving, (node, found) = np.arange(len(sharp)), np.empty((2, len(sharp), NODES))
        for _ in range(ZOOMS):
            if len(moving) == 0:
                break
            lowest, highest = _reach(at, own)
            at = lowest[:, None] + (highest - lowest)[:, None] * np.linspace(0.0, 1.0, NODES)
            own = told(at, sharp[moving])
            node[moving], found[moving] = at, own
            few = np.count_nonzero(own > _tops(own)[:, None] - NOTHING, axis=1) < COUNTING
            moving, at, own = moving[few], at[few], own[few]
        high = _tops(found)
        with np.errstate(under="ignore"):
            likelihood = np.exp(found - high[:, None])
        cell = np.clip(np.floor((node - left) / width), 0, count - 1).astype(np.int64)
        top[sharp] = high
        weight[sharp] = 0.0
        step = node[:, 1:2] - node[:, :1] if len(sharp) else np.empty((0, 1))
        np.add.at(weight, (sharp[:, None], cell), likelihood * step)
        return cls(left, width, shift, weight, top, sharp, node, likelihood, cell)

    def rates(self, prior: Array, random: np.random.Generator) -> Array:
        """Return a draw of change rates, (m,), by the cells' prior mass."""
        chosen = chosen_cells(self.weight * prior, random)
        t = self.left + self.width * (chosen + random.random(len(chosen)))
        if len(self.sharp):
            inside = np.where(self.cell == chosen[self.sharp, None], self.likelihood, 0.0)
            node = chosen_cells(inside, random)
            step = self.node[:, 1] - self.node[:, 0]
            at = self.node[np.arange(len(node)), node]
            t[self.sharp] = at + step * (random.random(len(node)) - 0.5)
        rates: Array = np.exp(t - self.shift)
        return rates


def chosen_cells(mass: Array, random: np.random.Generator) -> IntArray:
    """Return a column of each row, drawn with probabilities like its numbers."""
    below = np.cumsum(mass, axis=1)
    level = random.random(len(mass)) * below[:, -1]
    chosen: IntArray = np.minimum(np.count_nonzero(below <= level[:, None], axis=1), mass.shape[1] - 1)
    return chosen


def _tops(value: Array) -> Array:
    """Return the largest log-likelihood of each row; 0 where all vanish."""
    top: Array = np.max(value, axis=1, initial=-np.inf)
    return np.where(np.isfinite(top), top, 0.0)


def _reach(at: Array, value: Array) -> tuple[Array, Array]:
    """Return the nodes next to those where a likelihood counts."""
    row, last = np.arange(len(at)), at.shape[1] - 1
    there = value > _tops(value)[:, None] - NOTHING
    first, end = np.argmax(there, axis=1), last - np.argmax(there[:, ::-1], axis=1)
    return at[row, np.maximum(first - 1, 0)], at[row, np.minimum(end + 1, last)]


@dataclass(frozen=True, slots=True, eq=False)
class RateDraws:
    """Change rates that a log leaves possible.

    - `rates` (draws, n): NaN of a source of which nothing is known, nor of any other, without a prior.
    - `changed`, `open` (n,): As `RateEvidence` has them.
    - `known`: Whether the log tells anything of any rate; else draws are those of a prior.
    """

    rates: Array
    changed: BoolArray
    open: BoolArray
    known: bool = True

    def some(self, count: int) -> RateDraws:
        """Return some of the draws, evenly spaced."""
        chosen = np.linspace(0, len(self.rates) - 1, count).round().astype(np.int64)
        return replace(self, rates=self.rates[chosen])

    @classmethod
    def of(cls, distribution: RateDistribution, draws: int, seed: int) -> RateDraws:
        """Return draws of all rates, with the prior that they share.

        Where nothing is known of any source they are those of the distribution itself.
        """
        n = len(distribution.lowest)
        draws, seed = as_whole(draws, "draws", 1, MOST_NUMBERS // max(1, n)), check_seed(seed)
        evidence = None if distribution.evidence is None else distribution.evidence()
        if evidence is None or not np.any(evidence.known):
            none = np.zeros(n, dtype=np.bool_)
            return cls(distribution.draws(draws, seed), none, none, known=False)
        return cls(_rates_under_shared_prior(evidence, draws, seed), evidence.changed, evidence.open)


def _rates_under_shared_prior(evidence: RateEvidence, draws: int, seed: int) -> Array:
    """Return draws of all rates, (draws, n), by the prior they share."""
    random = np.random.default_rng([seed, 2])
    learners = np.flatnonzero(evidence.known)
    if len(learners) > LEARNERS:
        learners = np.sort(random.choice(learners, LEARNERS, replace=False))
    tried = [_Chain.of(evidence, learners, shift) for shift in _shifts(evidence)]
    best = max(tried, key=lambda chain: chain.evidence)
    masses, every = best.run(draws, random), np.arange(len(best.shift))
    drawn = np.empty((draws, len(every)))
    for part in chunks(len(every), BLOCK):
        range_of_cells = best.cells.left, best.cells.width, masses.shape[1]
        cells = Cells.of(evidence, every[part], best.shift[part], *range_of_cells)
        random = np.random.default_rng([seed, 3, part.start])
        for own, mass in zip(drawn, masses, strict=True):
            own[part] = cells.rates(mass, random)
    return drawn


def _shifts(evidence: RateEvidence) -> list[Array]:
    """Return ln s for each s.

    It is 1, and the sources' mean gaps, and times between changes that their priors expect, where these
    differ.
    """
    gap = evidence.gap
    told = ~np.isnan(gap)
    shifts = [np.zeros(len(gap))]
    if np.any(told) and np.max(gap[told]) > math.exp(WIDTH) * np.min(gap[told]):
        shifts.append(np.log(np.where(told, gap, np.median(gap[told]))))
    if evidence.expected is not None:
        shifts.append(-np.log(evidence.expected))
    return shifts


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """Gibbs' sampler of the shared prior.

    `evidence` is the log marginal likelihood of some of the sources if the prior is logistic, the same on
    both sides; `location` and `scale` are those by which it is largest.
    """

    cells: Cells
    shift: Array
    hyperprior: Array  # logarithm, of the location by cell
    masses: Array  # of logistic distributions: (scales, scales, offset of a cell from the location)
    evidence: float
    location: int
    scale: int

    @classmethod
    def of(cls, evidence: RateEvidence, learners: IntArray, shift: Array) -> _Chain:
        """Return the chain of some sources, at the best logistic prior."""
        own = shift[learners]
        left = math.log(evidence.slowest) + float(np.min(own))
        length = math.log(evidence.fastest) + float(np.max(own)) - left
        width = max(WIDTH, length / MOST)
        count = max(2, math.ceil(length / width))
        cells = Cells.of(evidence, learners, own, left, width, count)
        centre = left + width * (np.arange(count, dtype=np.float64) + 0.5)
        hyperprior = _hyperprior(centre, evidence.gap[learners], own)
        masses = _masses(count, width)
        some = evenly(len(learners), CHOOSERS)
        every, cell = np.arange(len(SCALES)), np.arange(count)
        about = masses[every, every][:, cell - cell[:, None] + count]  # (scales, locations, cells)
        with np.errstate(divide="ignore"):
            log = np.log(np.maximum(cells.weight[some] @ about.reshape(-1, count).T, 1e-300))
        total = np.sum(log, axis=0).reshape(len(SCALES), count) + hyperprior
        best = float(np.max(total))
        scale, location = divmod(int(np.argmax(total)), count)
        whole = best + math.log(float(np.mean(np.exp(total - best)))) + float(np.sum(cells.top[some]))
        return cls(cells, shift, hyperprior, masses, whole, location, scale)

    def run(self, draws: int, random: np.random.Generator) -> Array:
        """Return draws of the prior's mass of each cell, shape (draws, cells)."""
        count, n = len(self.hyperprior), len(self.cells.weight)
        at, left, right, c = self.location, self.scale, self.scale, 2
        mass, kept = self._about(at)[left, right], np.empty((draws, count))
        blunt = np.setdiff1d(np.arange(n), self.cells.sharp)
        with np.errstate(divide="ignore", under="ignore"):
            log = np.maximum(np.log(self.cells.weight[blunt]), -700.0)
        concentrated = special.gammaln(CONCENTRATIONS) - special.gammaln(CONCENTRATIONS + n)
        apart = max(1, SWEEPS // draws)
        for sweep in range(1 - BURN, apart * draws + 1):
            with np.errstate(under="ignore"):
                cell = chosen_cells(self.cells.weight * mass, random)
            if len(blunt):
                moved = self._moved(cell, blunt, log, at, self.masses[left, right], CONCENTRATIONS[c])
                to = _one(moved, random)
                cell[blunt] += to - at
                at = to
            number = np.bincount(cell, minlength=count)
            there = np.flatnonzero(number)
            many = number[there]
            a = CONCENTRATIONS[c]
            along = self.masses[left, right][there - np.arange(count)[:, None] + count]
            at = _one(_occupied(a * along, many) + self.hyperprior, random)
            about = self._about(at)
            left = _one(_occupied(a * about[:, right][:, there], many), random)
            right = _one(_occupied(a * about[left][:, there], many), random)
            own = CONCENTRATIONS[:, None] * about[left, right][there]
            c = _one(_occupied(own, many) + concentrated, random)
            mass = random.gamma(CONCENTRATIONS[c] * about[left, right] + number) + 1e-300
            mass /= np.sum(mass)
            if sweep > 0 and sweep % apart == 0:
                kept[sweep // apart - 1] = mass
        return kept

    def _moved(self, cell: IntArray, blunt: IntArray, log: Array, at: int, law: Array, a: float) -> Array:
        """Return log plausibilities of moves of blunt sources and the location.

        Together, by −at, −at + 1, ...

        The prior's mass of each cell is integrated out.
        """
        count, own = len(self.hyperprior), cell[blunt]
        moves = np.arange(count) - at
        there = own[:, None] + moves
        inside = (there >= 0) & (there < count)
        told = log[np.arange(len(blunt))[:, None], np.clip(there, 0, count - 1)]
        value: Array = np.sum(np.where(inside, told, -np.inf), axis=0) + self.hyperprior
        if len(self.cells.sharp):
            to = np.flatnonzero(np.isfinite(value))
            fixed = np.bincount(cell[self.cells.sharp], minlength=count)
            padded = np.pad(np.bincount(own, minlength=count), count)
            number = fixed + np.lib.stride_tricks.sliding_window_view(padded, count)[count - moves[to]]
            k, c = np.nonzero(number)
            share = a * law[c - to[k] + count]
            value[to] += np.bincount(
                k, special.gammaln(share + number[k, c]) - special.gammaln(share), len(to)
            )
        return value

    def _about(self, at: int) -> Array:
        """Return masses of logistic distributions about a cell, (scales, scales, cells)."""
        count = len(self.hyperprior)
        return self.masses[:, :, count - at : 2 * count - at]


def _occupied(share: Array, many: IntArray) -> Array:
    """Return Dirichlet's log probability of counts over the last axis, unnormalised."""
    value: Array = np.sum(special.gammaln(share + many) - special.gammaln(share), axis=-1)
    return value


def _one(log: Array, random: np.random.Generator) -> int:
    """Return a position, drawn with probabilities whose logarithms are given."""
    with np.errstate(under="ignore"):
        below = np.cumsum(np.exp(log - np.max(log)))
    return min(int(np.searchsorted(below, random.random() * below[-1], side="right")), len(log) - 1)


def _masses(count: int, width: float) -> Array:
    """Return masses of cells about a location.

    At offsets from −count to count − 1.

    A half with each scale has the part of the mass with which the density is continuous.
    """
    edge = width * (np.arange(-count, count + 1) - 0.5)
    left, right = SCALES[:, None, None], SCALES[None, :, None]
    share = left / (left + right)
    with np.errstate(over="ignore", under="ignore"):
        below = 2.0 * share / (1.0 + np.exp(-np.minimum(edge, 0.0) / left))
        above = (1.0 - share) * np.tanh(0.5 * np.maximum(edge, 0.0) / right)
    mass: Array = np.diff(np.where(edge < 0.0, below, share + above), axis=-1)
    return mass + LEAST


def _hyperprior(centre: Array, gap: Array, shift: Array) -> Array:
    """Return the location's log hyperprior by cell, flat without gaps."""
    told = ~np.isnan(gap)
    if not np.any(told):
        return np.zeros(len(centre))
    x = centre[:, None] + (np.log(gap[told]) - shift[told])
    density: Array = np.log(np.mean(0.5 / np.cosh(0.5 * x), axis=1))
    return density

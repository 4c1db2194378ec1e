"""Exponential sums Σ d_m e^{−mθ}, compressed by Gauss quadrature.

The increments d_m ≥ 0 are those of a penalty, θ > 0 is any. At θ = 1e-8 the sum has 4e9 terms. They are the
same for every θ, so they are compressed once: in each octave of m the discrete measure d is replaced by its
Gauss quadrature, a few positive weights at nodes inside the octave, and so is everything below an octave.
Where terms matter, e^{−mθ} varies by a bounded factor over an octave, and the quadrature is exact to
rounding. An evaluation then costs about a hundred exponentials, whatever θ is. Octaves are compressed when
first asked for, and kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.errors import ObjectiveError
from freshopt.numerics.arrays import Array, BoolArray, chunks
from freshopt.numerics.gauss_quadrature import Quadrature, gauss, joined

Penalty: TypeAlias = Callable[[Array], Array]

# Nodes per octave; e^{−3s}(s/2)^{24}/24! < 2e-20 bounds the Gauss error relative to C(1/θ), s = θ2^{k−1}.
NODES = 12
# Octaves: m ≤ 2^62, so that a penalty may index by integers.
_TOP = 62
# The first 2^4 terms stay as they are.
_EXACT = 4
# As e^{−45} = 3e-20, terms with mθ beyond this do not count.
_TAIL = 45.0
# Terms with mθ up to here in all may share one quadrature: (4/4)^{24}/24! = 2e-24.
_HEAD = 4.0
# Bound of C(m)e^{−mθ} relative to the sum at mθ ≥ 45: 3e-20·45^p/p! for C = m^p, so p ≤ 8.
_GROWTH = math.log(1e-10)
# Cells per octave where C is sampled, two points each: J is off by 2e-16 for √m, 2e-14 for m⁴.
_CELLS = 2048
# Cells no wider are summed term by term.
_ENUMERATE = 16
# Cells of C without a smooth run, at most; of 16 terms each these are 4 million terms.
_ROUGH = 2**18
# Share of a cell's mass by which C may deviate from a quartic: off by 1e-9/2048 in the mean of m.
_SMOOTH = 1e-9
# Rounding that C may have.
_ULPS = 32 * np.finfo(np.float64).eps
# Values of θ in a matrix product, sorted: near ones need the same octaves.
_ROWS = 1024
# Boole's rule: weights of ∫₀¹ from 0, ¼, ½, ¾, 1.
_BOOLE = np.array([7.0, 32.0, 12.0, 32.0, 7.0]) / 90.0
# Newton steps of `theta_of`; from the table's linear guess 1e-3, 1e-6, 1e-12, 1e-24.
_STEPS = 4
# Table entries per factor e of θ.
_FINE = 8
# A table is extended by these steps.
_EIGHT = np.arange(64.0, 0.0, -1.0) / _FINE
# Width in log θ of a group that shares a quadrature of its slope.
_NEAR = 0.2
# Largest θ; e^{−1000} is 0.
LARGEST = 1e3


class ExponentialSums(NamedTuple):
    """Exponential sums at θ and their derivatives, shape (n,) each.

    Σ d_m·(1, m, m(m−1))·e^{−(j−1)θ}, m = shift + j, and where they are complete.
    """

    zeroth: Array
    first: Array
    second: Array
    known: BoolArray


class PenaltyIncrements:
    """Measure d_m = C(m) − C(m−1) of a penalty C.

    Counted from the first missed change that costs anything: m = shift + j, j ≥ 1. Octave k is
    2^k < j ≤ 2^{k+1}.

    - `penalty`: C, of arrays of whole numbers m ≥ 0 (float64).
    - `shift`: The largest m with C(m) = 0.
    - `bounded`: Whether C no longer grows at m = 2^62.
    - raises ObjectiveError if C is not a penalty: C(0) ≠ 0, decreasing, not a number, 0 throughout.
    """

    __slots__ = ("_blocks", "_heads", "_last", "_log_at", "_penalty", "_tables", "bounded", "shift")

    def __init__(self, penalty: Penalty) -> None:
        self._penalty, self.shift = penalty, 0.0
        start = float(_values(penalty, np.zeros(1))[0])
        if start != 0.0:
            raise ObjectiveError(
                f"the penalty of no missed change is {start:g}. It must be 0. Subtract it: C(m) - C(0)."
            )
        powers = np.exp2(np.arange(_TOP + 1.0))
        at = self._at(powers)
        if not at[-1] > 0.0:
            raise ObjectiveError("the penalty is 0 for any number of missed changes. Pass one that grows.")
        self.shift = self._last_free(at)
        at = self._at(powers)
        if at[0] == np.inf:
            raise ObjectiveError(
                f"the penalty of {self.shift + 1.0:g} missed changes is infinite. Pass finite penalties."
            )
        self.bounded = bool(at[-1] == at[-2] < np.inf)
        # All of C is in the octaves before the last: then it is constant, or infinite, or out of range.
        self._last = int(np.argmax(at == at[-1])) if self.bounded else int(np.flatnonzero(at < np.inf)[-1])
        self._log_at = np.log(at)
        self._blocks: dict[int, Quadrature | None] = {}
        self._heads: dict[int, Quadrature] = {}
        self._tables: dict[float, tuple[Array, Array, bool]] = {}

    def sums(self, theta: Array) -> ExponentialSums:
        """Return the exponential sums at θ in [0, 1000], shape (n,)."""
        sums, known = np.empty((len(theta), 3)), np.empty(len(theta), dtype=np.bool_)
        order = np.argsort(theta)
        for part in chunks(len(theta), _ROWS):
            some = order[part]
            near = theta[some]
            octave = self.octave(float(near[0]))
            shared = math.floor(math.log2(_HEAD / max(float(near[-1]), 2.0**-_TOP)))
            j, weight = self.quadrature(octave, min(max(_EXACT, shared), octave))
            m = self.shift + j
            moments = np.stack([weight, m * weight, m * (m - 1.0) * weight], axis=1)
            sums[some] = np.exp(-np.multiply.outer(near, j - 1.0)) @ moments
            known[some] = self._complete(near, sums[some, 0], octave)
        return ExponentialSums(sums[:, 0], sums[:, 1], sums[:, 2], known)

    def theta_of(self, target: Array, decay: float) -> Array:
        """Return the θ at which the log first moment meets targets.

        It solves log Σ m d_m e^{−(j−1)θ} − (shift + decay)·θ = target.
        It is 0 if the target is above all values, inf if below. Where the sums are not known for small θ, and
        the root should lie there, the least θ for which they are.

        - `target` (n,)
        - `decay`: 0 or more.
        """
        grid, height = self._table(decay, float(np.max(target, initial=-np.inf)))
        # The function is convex and falls: Newton from the left never passes the root, from elsewhere once.
        theta = np.exp(np.interp(-target, -height, grid))
        whole = self.bounded and self._whole(self.octave(0.0))
        least = 0.0 if whole else math.exp(grid[0])
        for _ in range(_STEPS):
            sums = self.sums(theta)
            with np.errstate(all="ignore"):
                excess = np.log(sums.first) - (self.shift + decay) * theta - target
                step = excess / (sums.second / sums.first + decay)
            theta = np.clip(np.where(np.isfinite(step), theta + step, theta), least, LARGEST)
        if whole:
            theta = np.where(target >= np.log(self.sums(np.zeros(1)).first), 0.0, theta)
        return np.where((target <= height[-1]) & (decay == 0.0), np.inf, theta)

    def octave(self, theta: float) -> int:
        """Return the least octave whose sum is complete.

        It is the k, as small as possible, for which j ≤ 2^k is all that counts, or all that is known.
        """
        wanted = math.ceil(math.log2(_TAIL / theta)) if theta > 2.0**-_TOP else _TOP
        top = max(_EXACT, min(wanted, self._last))
        return next((k for k in range(_EXACT, top) if self._block(k) is None), top)

    def quadrature(self, octave: int, head: int = _EXACT, number: int = NODES) -> Quadrature:
        """Return quadrature nodes j and weights of 0 < j ≤ 2^octave."""
        parts = [self._head(head)]
        for k in range(head, octave):
            block = self._block(k)
            if block is not None:
                parts.append(gauss(*block, number) if number < NODES else block)
        return joined(parts)

    def slopes(self, theta: Array, number: int) -> tuple[Array, Array]:
        """Return nodes m and shares of the slope at θ.

        The slope is Σ m d_m e^{−mθ} of each θ > 0; both are of shape (n, number).
        Σ d_m e^{−mt} is then, for t within a factor of 2 of θ, a constant and the slope times
        Σ_j share_j/m_j·e^{−m_j(t−θ)}. One Gauss quadrature serves all θ within 10 %.
        """
        nodes, shares = np.ones((len(theta), number)), np.zeros((len(theta), number))
        group = np.rint(np.log(theta) / _NEAR).astype(np.int64)
        for code in np.unique(group):
            some, middle = np.flatnonzero(group == code), math.exp(code * _NEAR)
            j, weight = self.quadrature(self.octave(middle))
            masses = (self.shift + j) * weight * np.exp(-(j - 1.0) * middle)
            j, weight = gauss(j, np.where(masses > 1e-18 * np.sum(masses), masses, 0.0), number)
            own = weight * np.exp(-np.multiply.outer(theta[some] - middle, j - j[0]))
            nodes[some, : len(j)] = self.shift + j
            shares[some, : len(j)] = own / np.sum(own, axis=1, keepdims=True)
        return nodes, shares

    def reason(self) -> str:
        """Return why the sums end where they end."""
        rough = [k for k, block in self._blocks.items() if block is None]
        if rough:
            return f"It has too many irregular steps beyond m = {self.shift + 2.0 ** min(rough):.3g}."
        return "It grows too fast, or its sum has more than 2^62 terms."

    def _whole(self, octave: int) -> bool:
        """Return whether the first octaves hold the whole measure."""
        return self.bounded and octave >= self._last

    def _complete(self, theta: Array, zeroth: Array, octave: int) -> BoolArray:
        """Return where the octaves left out are negligible.

        So they are for a penalty that grows as a power: that is tested at each θ.
        """
        with np.errstate(divide="ignore"):
            last = np.clip(np.ceil(np.log2(_TAIL / theta)), _EXACT + 1, _TOP).astype(np.int64)
            slow = self._log_at[last] - theta * np.exp2(last) <= np.log(zeroth) - theta + _GROWTH
        far = theta * 2.0**octave >= _TAIL
        return np.where(far, slow, self._whole(octave))

    def _table(self, decay: float, highest: float) -> tuple[Array, Array]:
        """Return log θ and the function of `theta_of` there."""
        low, top = math.log(LARGEST) - 8.0, math.log(LARGEST)
        grid, height, ended = self._tables.get(decay, (np.empty(0), np.empty(0), False))
        while not ended and not (len(grid) and height[0] > highest):
            more = np.arange(top, low, -1.0 / _FINE)[::-1] if not len(grid) else grid[0] - _EIGHT
            theta = np.exp(more)
            sums = self.sums(theta)
            unknown = np.flatnonzero(~sums.known)
            first = int(unknown[-1]) + 1 if len(unknown) else 0
            ended = len(unknown) > 0 or theta[0] < 1e-3 * 2.0**-self._last
            value = np.log(sums.first) - (self.shift + decay) * theta
            grid, height = np.concatenate([more[first:], grid]), np.concatenate([value[first:], height])
            self._tables[decay] = grid, height, ended
        return grid, height

    def _at(self, j: Array) -> Array:
        """Return C(shift + j) at increasing j, checked."""
        m = self.shift + j
        return _rising(m, np.concatenate([_values(self._penalty, m[part]) for part in chunks(len(m))]))

    def _last_free(self, at: Array) -> float:
        """Return the last m of zero penalty, by bisection."""
        k = int(np.argmax(at > 0.0))
        low, high = (0.0 if k == 0 else 2.0 ** (k - 1)), 2.0**k
        while low < (middle := math.floor(0.5 * (low + high))) < high:
            costs = _values(self._penalty, np.array([float(middle)]))[0] > 0.0
            low, high = (low, float(middle)) if costs else (float(middle), high)
        return low

    def _head(self, k: int) -> Quadrature:
        """Return one quadrature of 0 < j ≤ 2^k, first terms exact."""
        if k not in self._heads:
            if k == _EXACT:
                self._heads[k] = Quadrature(*self._terms(np.zeros(1), 2**_EXACT))
            else:
                parts = [self._head(k - 1), self._block(k - 1)]
                self._heads[k] = gauss(*joined([part for part in parts if part is not None]), NODES)
        return self._heads[k]

    def _block(self, k: int) -> Quadrature | None:
        """Return the quadrature of octave k, None where C is too irregular."""
        if k not in self._blocks:
            atoms = self._atoms(2.0**k)
            self._blocks[k] = None if atoms is None else gauss(*atoms, NODES)
        return self._blocks[k]

    def _atoms(self, low: float) -> Quadrature | None:
        """Return positions and masses that stand for d on (low, 2·low]."""
        width = max(low / _CELLS, min(low, _ENUMERATE))
        starts = low + width * np.arange(low / width)
        parts: list[Quadrature] = []
        while len(starts) <= _ROUGH:
            if width <= _ENUMERATE:
                return joined([*parts, self._terms(starts, int(width))])
            if not len(starts):
                return joined(parts)
            part, smooth = self._sampled(starts, width)
            parts.append(part)
            width /= 4.0
            starts = (starts[~smooth, None] + width * np.arange(4.0)).ravel()
        return None

    def _terms(self, starts: Array, width: int) -> Quadrature:
        """Return every term of cells."""
        grid = starts[:, None] + np.arange(width + 1.0)
        at = self._at(grid.ravel()).reshape(grid.shape) if len(starts) else grid
        return Quadrature(grid[:, 1:].ravel(), np.diff(at, axis=1).ravel())

    def _sampled(self, starts: Array, width: float) -> tuple[Quadrature, BoolArray]:
        """Return two points per smooth cell, with its first moments.

        Smooth are the cells in which C is a quartic; the second result says which those are.
        By parts, ∫u dC = C(1) − ∫C and ∫u² dC = C(1) − 2∫uC over a cell of unit width, and Boole's rule
        integrates the quartic. The terms of a cell sit at its whole numbers: half a unit to the right of a
        continuous spread and with 1/12 less of variance (Euler-Maclaurin, to the next order in the mean).
        """
        quarters = np.linspace(0.0, 1.0, 5)
        odd = 2.0 * np.floor(0.5 * width * np.array([0.138, 0.618])) + 1.0  # whole numbers off any grid
        offsets = np.concatenate([width * quarters, odd])
        order = np.argsort(offsets, kind="stable")
        values = np.empty((len(starts), len(offsets)))
        grid = starts[:, None] + offsets[order]
        values[:, order] = self._at(grid.ravel()).reshape(grid.shape)
        mass = values[:, 4] - values[:, 0]
        share = (values - values[:, :1]) / np.where(mass > 0.0, mass, 1.0)[:, None]
        off = np.max(np.abs(share[:, :5] @ _lagrange(odd / width) - share[:, 5:]), axis=1)
        smooth = off * mass <= _SMOOTH * mass + _ULPS * values[:, 4]
        mean = 1.0 - share[:, :5] @ _BOOLE
        variance = 1.0 - 2.0 * share[:, :5] @ (_BOOLE * quarters) - mean * mean
        spread = np.sqrt(np.maximum(variance * width * width - 1.0 / 12.0, 0.0))
        centre = starts + width * mean + 0.5 - (1.0 - 2.0 * share[:, 2]) / (3.0 * width)
        use = smooth & (mass > 0.0)
        points = np.concatenate([(centre - spread)[use], (centre + spread)[use]])
        return Quadrature(points, np.tile(0.5 * mass[use], 2)), smooth


def _lagrange(u: Array) -> Array:
    """Return the Lagrange matrix to fractions u, shape (5, m)."""
    knots = np.linspace(0.0, 1.0, 5)
    rows = []
    for i, knot in enumerate(knots):
        others = np.delete(knots, i)
        rows.append(np.prod((u[:, None] - others) / (knot - others), axis=1))
    return np.array(rows)


def _values(penalty: Penalty, m: Array) -> Array:
    """Return C(m) as numbers; raise ObjectiveError otherwise."""
    with np.errstate(all="ignore"):
        values = np.asarray(penalty(m), dtype=np.float64)
    if values.shape != m.shape:
        raise ObjectiveError(
            f"the penalty returned shape {values.shape} for {len(m)} numbers of missed changes. Write it for "
            f"arrays: one penalty per entry (np.where, not if)."
        )
    bad = np.flatnonzero(np.isnan(values) | (values == -np.inf))
    if len(bad):
        raise ObjectiveError(
            f"the penalty of {m[bad[0]]:g} missed changes is {values[bad[0]]}. Return numbers for all m >= 0."
        )
    return values


def _rising(m: Array, values: Array) -> Array:
    """Return values at increasing m, monotone within rounding, or raise ObjectiveError."""
    highest = np.maximum.accumulate(values)
    with np.errstate(invalid="ignore"):
        falls = np.flatnonzero(highest - values > _ULPS * np.abs(highest))
    if len(falls):
        k = int(falls[0])
        raise ObjectiveError(
            f"the penalty falls to {values[k]:g} at {m[k]:g} missed changes, from {highest[k]:g} before. "
            f"Missing more changes cannot cost less. Correct it, for instance by np.maximum.accumulate."
        )
    return highest

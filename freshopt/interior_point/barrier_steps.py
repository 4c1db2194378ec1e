"""`BarrierPoint`: rates inside bounds and multipliers, one Newton step each.

With slack variables s > 0 beside c = b + level·t − G(ρ) and a product τ aimed at for every complementarity,

    (J D Jᵀ + S/Y) Δy + level·Δt = τ/y − c − J D r,       levelᵀ(y + Δy) = 1,
    Δρ = −D (r + JᵀΔy),                  r = φ' − τ/(ρ − lo) + τ/(hi − ρ),

where D = 1/(φ'' + z_lo/(ρ − lo) + z_hi/(hi − ρ)) and J are the rows' slopes. A predictor sets τ (Mehrotra);
correctors then move the products that would end far from τ towards it (Gondzio), each with the same matrix,
as long as the steps lengthen.

Distances to the nearer bound are unknowns of their own: at an optimum most of them are far below an ulp of
the rate.

References
----------
S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992,
doi:10.1137/0802028.
J. Gondzio, "Multiple centrality corrections in a primal-dual method for linear programming", Comput. Optim.
Appl. 6, 1996, doi:10.1007/BF00249643.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshopt.interior_point.newton_systems import (
    Gram,
    NewtonSystem,
    arrow_of,
    empty_gram,
    reach_of,
    with_products,
)
from freshopt.interior_point.row_scaling import scales
from freshopt.numerics.arrays import Array, chunks, total
from freshopt.separable.program import Program

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Fraction of the way to the boundary (Mehrotra 1992).
_FRACTION = 0.995
# Complementarity products at least this small a share of their mean are not pulled up.
_CENTRAL = 1e-4
# The least share of the complementarity that a step aims at, and the least share of the residuals.
_LEAST, _OUTRUN = 1e-3, 0.1
# Correctors of a step. Without any, 20 000 sources of ill scale under 20 rows take 53 steps, with three 30.
_CORRECTORS = 3
# They aim at steps longer by this share and this much, at products within this factor of the aim, and end
# once both lengths together gain less than this.
_LONGER, _MORE, _WITHIN, _GAINED = 1.1, 0.1, 0.1, 0.02
# Steps below this are none.
_NEGLIGIBLE = 1e-10
# Slack variables begin at the slacks, or at this share of the limits.
_LEAST_SLACK = 0.1


class _Step(NamedTuple):
    """Steps of all unknowns."""

    rates: Array
    slack: Array
    level: float
    y: Array
    low: Array
    high: Array


class _Aims(NamedTuple):
    """Products that a step aims at, of rows and of bounds."""

    rows: Array
    low: Array
    high: Array


class BarrierPoint:
    """Iterate of the method; rows are scaled.

    - `program`: Whose sources all have room between their bounds.
    """

    def __init__(self, program: Program) -> None:
        rows, self.scale = program.rows, scales(program)
        self._limits = rows.limits / self.scale
        rows = replace(rows, coefficient=rows.coefficient / self.scale[rows.row], limits=self._limits)
        self.program, self.arrow = replace(program, rows=rows), arrow_of(rows)
        self._level = None if program.level is None else program.level / self.scale
        self._width = program.upper - program.lower
        self._wide = np.isfinite(self._width)
        self._slopes: csr_array | None = None
        self._bends: csr_array | None = None
        self.passes, self.level = 0, 0.0
        # Slacks, and the objective's slopes and curvatures; then the unknowns.
        self._c, self._own, self._bend = np.zeros(0), np.zeros(0), np.zeros(0)
        self._start()

    @property
    def rates(self) -> Array:
        """Rates, from their nearer bounds."""
        own = self.program
        return np.where(self._below <= self._above, own.lower + self._below, own.upper - self._above)

    @property
    def multipliers(self) -> Array:
        """Multipliers of the rows as they are."""
        return self._y / self.scale

    @property
    def feasible(self) -> bool:
        """Whether the rates are strictly inside all rows."""
        return bool(np.all(self._c > 0.0))

    def distance(self) -> float:
        """Return the complementarity and the residuals, relative to |F| + Σ y|b|."""
        size = abs(total(self.program.cost(self.rates))) if self._level is None else abs(self.level)
        return (float(np.sum(self._products())) + self._off()) / (
            size + float(self._y @ np.abs(self._limits))
        )

    def advance(self) -> bool:
        """Take one step; return whether there was one."""
        bend = self._bend if self._bends is None else self._bend + self._bends @ self._y
        response = 1.0 / (bend + self._low / self._below + self._high / self._above)
        try:
            system = NewtonSystem(self._gram(response), self._s / self._y)
        except np.linalg.LinAlgError:
            return False
        newton = _Newton(self, system, response)
        count = len(self._s) + len(self._below) + int(np.count_nonzero(self._wide))
        mean = float(np.sum(self._products())) / count
        zero = np.zeros(len(self._below))
        first = newton.direction(_Aims(np.zeros(len(self._s)), zero, zero))
        left = sum(float(np.sum(each)) for each in self._ahead(first, *np.minimum(1.0, self._reaches(first))))
        share = min(1.0, max(0.0, left / count / mean)) ** 3
        aim = min(mean, max(max(share, _LEAST) * mean, _OUTRUN * self._off() / count))
        aims = _Aims(
            aim - np.clip(first.y * first.slack, -mean, mean),
            aim - np.clip(first.low * first.rates, -mean, mean),
            aim + np.clip(first.high * first.rates, -mean, mean),
        )
        step = newton.direction(aims)
        for _ in range(_CORRECTORS):
            reaches = np.minimum(1.0, self._reaches(step))
            aims = self._corrected(aims, step, np.minimum(1.0, _LONGER * reaches + _MORE), aim)
            longer = newton.direction(aims)
            if not float(np.sum(np.minimum(1.0, self._reaches(longer)) - reaches)) > _GAINED:
                break
            step = longer
        return self._moved(step)

    def _start(self) -> None:
        """Set unknowns in the middle of things."""
        own, wide = self.program, self._wide
        least = 0.1 * np.where(wide, np.minimum(self._width, own.typical), own.typical)
        self._below = np.clip(own.typical - own.lower, least, np.where(wide, 0.5 * self._width, np.inf))
        self._above = self._width - self._below
        self._evaluate()
        m = len(self._limits)
        if self._level is None:
            x = self.rates
            value = total(np.abs(self._own) * np.minimum(x, own.typical))
            self._y = np.full(m, value / m if 0.0 < value < np.inf else 1.0)
        else:
            # The rows of the level share it evenly, and it meets them with a tenth to spare.
            moves = self._level > 0.0
            self.level = float(np.max(-self._c[moves] / self._level[moves])) + _LEAST_SLACK
            self._c = self._c + self._level * self.level
            share = 1.0 / (self._level[moves] * np.count_nonzero(moves))
            self._y = np.full(m, float(np.mean(share)))
            self._y[moves] = share
        self._s = np.maximum(self._c, _LEAST_SLACK)
        pull = self._pull()
        near = np.minimum(self._below, self._above)
        mean = float(np.mean(np.concatenate((np.abs(pull) * near, self._y * self._s))))
        self._low = np.maximum(pull, 0.0) + mean / self._below
        self._high = np.where(wide, np.maximum(-pull, 0.0) + mean / self._above, 0.0)

    def _evaluate(self) -> None:
        """Evaluate slacks, slopes and curvatures at the rates."""
        from scipy.sparse import csr_array

        self.passes += 1
        own, x = self.program, self.rates
        rows, shape = own.rows, (len(x), len(own.rows))
        if rows.curves or self._slopes is None:
            self._slopes = csr_array((rows.slopes(x), rows.row, rows.first), shape=shape)
            if rows.curves:
                self._bends = csr_array((rows.bends(x), rows.row, rows.first), shape=shape)
        used = rows.used(x) if rows.curves else self._slopes.T @ x
        self._c = self._limits - used
        if self._level is not None:
            self._c += self._level * self.level
        zero = np.zeros(len(x))
        self._own = zero if own.numerics is None else -own.numerics.marginal(x)
        self._bend = zero if own.numerics is None else own.numerics.curvature(x)

    def _pull(self) -> Array:
        """Return φ' of every source."""
        assert self._slopes is not None
        pull: Array = self._own + self._slopes @ self._y
        return pull

    def _off(self) -> float:
        """Return the residuals of slacks and stationarity, priced."""
        near = np.minimum(self._below, self._above)
        stationary = float(np.sum(np.abs(self._pull() - self._low + self._high) * near))
        return stationary + float(self._y @ np.abs(self._c - self._s))

    def _products(self) -> Array:
        """Return all complementarity products."""
        high = (self._high * self._above)[self._wide]
        return np.concatenate((self._y * self._s, self._low * self._below, high))

    def _ahead(self, step: _Step, primal: float, dual: float) -> _Aims:
        """Return the products behind a step of given lengths."""
        above = np.where(self._wide, self._above - primal * step.rates, 0.0)
        return _Aims(
            (self._y + dual * step.y) * (self._s + primal * step.slack),
            (self._low + dual * step.low) * (self._below + primal * step.rates),
            (self._high + dual * step.high) * above,
        )

    def _corrected(self, aims: _Aims, step: _Step, lengths: Array, aim: float) -> _Aims:
        """Return aims that move outlying products towards the aim."""
        least, most = _WITHIN * aim, aim / _WITHIN
        ahead = self._ahead(step, float(lengths[0]), float(lengths[1]))
        rows, low, high = (np.maximum(np.clip(each, least, most) - each, -most) for each in ahead)
        return _Aims(aims.rows + rows, aims.low + low, aims.high + np.where(self._wide, high, 0.0))

    def _reaches(self, step: _Step) -> Array:
        """Return how far primal and dual unknowns can move, shape (2,)."""
        up, down = reach_of(self._below, step.rates), reach_of(self._above, -step.rates)
        primal = min(reach_of(self._s, step.slack), up, down)
        return np.array(
            [
                primal,
                min(
                    reach_of(self._y, step.y), reach_of(self._low, step.low), reach_of(self._high, step.high)
                ),
            ]
        )

    def _gram(self, response: Array) -> Gram:
        """Return J D Jᵀ."""
        assert self._slopes is not None
        rows, root = self.program.rows, np.sqrt(response)
        gram = empty_gram(len(rows), self.arrow)
        for part in chunks(len(root)):
            start, stop = part.start, part.stop
            own = slice(int(rows.first[start]), int(rows.first[stop]))
            source = np.repeat(np.arange(stop - start), np.diff(rows.first[start : stop + 1]))
            values = self._slopes.data[own] * root[part][source]
            row = rows.row[own].astype(np.int64)
            gram = with_products(gram, values, source, row, stop - start)
        return gram

    def _moved(self, step: _Step) -> bool:
        """Move along a step; return whether it led anywhere."""
        if not (np.all(np.isfinite(step.rates)) and bool(np.all(np.isfinite(step.y)))):
            return False
        primal, dual = np.minimum(1.0, _FRACTION * self._reaches(step)).tolist()
        below, above = self._below + primal * step.rates, self._above - primal * step.rates
        near = below <= above
        self._below, self._above = (
            np.where(near, below, self._width - above),
            np.where(near, self._width - below, above),
        )
        self._s, self.level = self._s + primal * step.slack, self.level + primal * step.level
        self._evaluate()
        y, low, high = self._y + dual * step.y, self._low + dual * step.low, self._high + dual * step.high
        self._y, self._low, self._high = y, low, high
        least = _CENTRAL * float(np.mean(self._products()))
        self._y, self._low = np.maximum(y, least / self._s), np.maximum(low, least / self._below)
        self._high = np.where(self._wide, np.maximum(high, least / self._above), 0.0)
        return bool(max(primal, dual) > _NEGLIGIBLE)


class _Newton:
    """Newton's system at a point, for several aims."""

    def __init__(self, point: BarrierPoint, system: NewtonSystem, response: Array) -> None:
        self._point, self._system, self._response, self._pull = point, system, response, point._pull()
        self._border = None if point._level is None else system.solve(point._level)

    def direction(self, aims: _Aims) -> _Step:
        """Return the steps that aim at given products."""
        at, response, level = self._point, self._response, self._point._level
        slopes = at._slopes
        assert slopes is not None
        rest = self._pull - aims.low / at._below + aims.high / at._above
        dy = self._system.solve(aims.rows / at._y - at._c - slopes.T @ (response * rest))
        dt = 0.0
        if level is not None and self._border is not None:
            dt = float(level @ (dy + at._y) - 1.0) / float(level @ self._border)
            dy = dy - dt * self._border
        rates = -response * (rest + slopes @ dy)
        slack = at._c - at._s - slopes.T @ rates
        low = (aims.low - at._low * rates) / at._below - at._low
        high = np.where(at._wide, (aims.high + at._high * rates) / at._above - at._high, 0.0)
        return _Step(rates, slack if level is None else slack + dt * level, dt, dy, low, high)

"""`Tape`: a compiled expression, evaluated step by step.

Each step is applied to the results of earlier ones.
`freshopt.autodiff.compiler` writes it; evaluating it is a loop. `take` slices the constants, so that a
caller can go through the sources in chunks that stay in the cache (`freshopt.separable.derived_kernel` does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from freshopt.autodiff.jets import ONE, ZERO, Jet
from freshopt.autodiff.kinked_atoms import RIGHT
from freshopt.autodiff.smooth_atoms import Rule
from freshopt.numerics.arrays import Array, Index
from freshopt.numerics.frozen_arrays import frozen_value


class Node(Protocol):
    """Protocol of compiled expressions."""

    def evaluate(self, rate: Array, order: int = 2, side: int = RIGHT) -> Jet:
        """Return the jet at the rates."""

    def take(self, index: Index) -> Node:
        """Return the same expression for some of the sources."""


class Step(Protocol):
    """Protocol of one step of a tape."""

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots of the earlier results used."""

    def run(self, jets: Sequence[Jet], constants: Sequence[Array], order: int, side: int) -> Jet:
        """Return the step's jet from earlier ones."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Atom applied to earlier results, and to constants after them."""

    rule: Rule
    slots: tuple[int, ...]
    constants: tuple[int, ...] = ()

    def run(self, jets: Sequence[Jet], constants: Sequence[Array], order: int, side: int) -> Jet:
        """Return the atom's jet."""
        given = [jets[slot] for slot in self.slots]
        return self.rule(order, side, *given, *[constants[k] for k in self.constants])


@frozen_value()
class Tape:
    """Compiled expression: steps in order, the last one its result.

    The rate stands before the first step.

    - `steps`: Step k fills slot k + 1; slot 0 is the rate.
    - `constants`: Each a scalar or of shape (n,).
    - `finished` tuple of tuple of int: For each step, the slots that nothing uses afterwards; their memory is
      used again.
    """

    steps: tuple[Step, ...]
    constants: tuple[Array, ...]
    finished: tuple[tuple[int, ...], ...]

    def evaluate(self, rate: Array, order: int = 2, side: int = RIGHT) -> Jet:
        """Return value, slope and curvature at the rates.

        Each is of their shape (perhaps a read-only view).

        - `rate` (n,)
        - `order` {0, 1, 2}: The highest derivative wanted; those beyond it are nan.
        - `side` {+1, -1}: Whether slopes at kinks are those to the right or to the left.

        Notes
        -----
        Floating-point warnings are the caller's to silence: infinite values at rate 0 are meant.
        """
        jets = [Jet(rate, ONE, ZERO)]
        for step, finished in zip(self.steps, self.finished, strict=True):
            jets.append(step.run(jets, self.constants, order, side))
            for slot in finished:
                jets[slot] = jets[0]
        last = jets[-1]
        return Jet(*(e if e.shape == rate.shape else np.broadcast_to(e, rate.shape) for e in last))

    def take(self, index: Index) -> Tape:
        """Return the same expression for some of the sources."""
        taken = tuple(c if c.ndim == 0 else c[index] for c in self.constants)
        return Tape(self.steps, taken, self.finished)

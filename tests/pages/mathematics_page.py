"""The cells of docs/evidence/mathematics.md, evaluated as printed, in 30 digits.

A test names the formula that it evaluates (`shown`); the page must contain it literally.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
from scipy.special import gammaincinv

import freshopt as fo

PAGE = (Path(__file__).parents[2] / "docs" / "evidence" / "mathematics.md").read_text(encoding="utf-8")
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC
RATES = (0.03, 0.4, 1.3, 20.0)  # refreshes of a source that changes D times
D, W = 1.5, 1.7
mp = mpmath.MPContext()
mp.dps = 30
Formula = Callable[[Any], Any]


NEARLY = 1e-6  # of the price at which a source is given up, where it has one; and a rate next to none
INVERSES = (
    r"\rho(\lambda) = \sqrt{w\Delta/\lambda}-\Delta \ \text{ if } w>\lambda\Delta, \text{ else } 0",
    r"\rho(\lambda)=\frac{\Delta}{u},\ P(2,u)=\frac{\lambda\Delta}{w}",
    r"\rho(\lambda) = \frac{2A}{1+\sqrt{1+4A/\Delta}},\ A=\frac{w}{\lambda}",
    r"\rho(\lambda)=\frac{\Delta}{v},\ v = 1+q+W_0\!\left(-e^{-1-q}\right),\ q=\frac{\lambda\Delta}{w}",
    r"\rho(\lambda)=\min\left(\frac{w}{\lambda},\Delta\right)",
)


def shown(*formulas: str) -> None:
    for formula in formulas:
        assert formula in PAGE, f"the page no longer prints {formula}"


@dataclass(frozen=True)
class Cell:
    name: str
    objective: fo.Objective
    printed: str
    cost: Formula
    marginal: Formula
    inverse: Formula | None = None  # of λ, with the importance W
    signalled: bool = False


def gamma2(u: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return 1 - (1 + u) * mp.exp(-u)


def ein(z: Any) -> Any:  # noqa: ANN401
    return mp.e1(z) + mp.log(z) + mp.euler


def periodic_harmonic(price: float) -> Any:  # noqa: ANN401
    q = mp.mpf(price) * D / W
    return D / (1 + q + mp.lambertw(-mp.exp(-1 - q)).real)


def root_price(x: float) -> Any:  # noqa: ANN401
    return mp.sqrt(W * D / mp.mpf(x))


POWER = fo.problems.SynchronizationCost(fo.problems.PowerCost(0.8, 0.6))
A, E = mp.mpf("0.8"), mp.mpf("0.6")
CELLS = (
    Cell(
        "binary, Poisson",
        fo.problems.BinaryFreshness(fo.Refresh.POISSON),
        r"J = \frac{\Delta}{\Delta+\rho}, \qquad -J' = \frac{\Delta}{(\Delta+\rho)^2}",
        lambda r: D / (D + r),
        lambda r: D / (D + r) ** 2,
        lambda x: max(root_price(x) - D, 0),
    ),
    Cell(
        "binary, periodic",
        fo.problems.BinaryFreshness(PERIODIC),
        r"J = 1-\frac{1-e^{-u}}{u}, \qquad -J' = \frac{1-(1+u)e^{-u}}{\Delta}",
        lambda r: 1 - (1 - mp.exp(-D / r)) * r / D,
        lambda r: gamma2(D / r) / D,
        lambda x: D / float(gammaincinv(2, x * D / W)),
    ),
    Cell(
        "binary, on signal",
        fo.problems.BinaryFreshness(fo.Refresh.POISSON),
        r"$J=1-p$, linear, with the slope $-1/\Delta$",
        lambda r: 1 - r / D,
        lambda _: 1 / mp.mpf(D),
        signalled=True,
    ),
    Cell(
        "harmonic, Poisson",
        fo.problems.HarmonicStaleness(fo.Refresh.POISSON),
        r"J = \ln\left(1+\frac{\Delta}{\rho}\right), \qquad -J' = \frac{\Delta}{\rho(\rho+\Delta)}",
        lambda r: mp.log(1 + D / r),
        lambda r: D / (r * (r + D)),
        lambda x: 2 * W / x / (1 + mp.sqrt(1 + 4 * W / x / D)),
    ),
    Cell(
        "harmonic, periodic",
        fo.problems.HarmonicStaleness(PERIODIC),
        r"J = \mathrm{Ein}(u)-1+\frac{1-e^{-u}}{u}, \qquad -J' = \frac{u-1+e^{-u}}{\Delta}",
        lambda r: ein(D / r) - 1 + (1 - mp.exp(-D / r)) * r / D,
        lambda r: (D / r - 1 + mp.exp(-D / r)) / D,
        periodic_harmonic,
    ),
    Cell(
        "harmonic, on signal",
        fo.problems.HarmonicStaleness(fo.Refresh.POISSON),
        r"J = -\ln p, \qquad -J' = \frac{1}{\rho}, \qquad \rho(\lambda)=\min",
        lambda r: -mp.log(r / D),
        lambda r: 1 / r,
        lambda x: min(W / mp.mpf(x), D),
        signalled=True,
    ),
    Cell(
        "count, Poisson",
        fo.problems.AccumulatedDelay(fo.Refresh.POISSON),
        r"J = \frac{\Delta}{\rho}, \qquad",
        lambda r: D / r,
        lambda r: D / r**2,
        root_price,
    ),
    Cell(
        "count, periodic",
        fo.problems.AccumulatedDelay(PERIODIC),
        r"J = \frac{\Delta}{2\rho}, \qquad",
        lambda r: D / (2 * r),
        lambda r: D / (2 * r**2),
        lambda x: root_price(2 * x),
    ),
    Cell(
        "count, on signal",
        fo.problems.AccumulatedDelay(fo.Refresh.POISSON),
        r"J = \frac{1}{p}-1 .",
        lambda r: D / r - 1,
        lambda r: D / r**2,
        signalled=True,
    ),
    Cell(
        "age, Poisson",
        fo.problems.Age(fo.Refresh.POISSON),
        r"J = \frac{\Delta}{\rho(\rho+\Delta)}, \qquad "
        r"-J' = \frac{\Delta(2\rho+\Delta)}{\rho^2(\rho+\Delta)^2}",
        lambda r: D / (r * (r + D)),
        lambda r: D * (2 * r + D) / (r * (r + D)) ** 2,
    ),
    Cell(
        "age, periodic",
        fo.problems.Age(PERIODIC),
        r"J = \frac{1}{2\rho}-\frac1\Delta+\frac{\rho}{\Delta^2}\left(1-e^{-u}\right)",
        lambda r: 1 / (2 * r) - 1 / mp.mpf(D) + r / D**2 * (1 - mp.exp(-D / r)),
        lambda r: 1 / (2 * r**2) - gamma2(D / r) / D**2,
    ),
    Cell(
        "age, on signal",
        fo.problems.Age(fo.Refresh.POISSON),
        r"= \frac{1/p-1}{\Delta} = \frac1\rho-\frac1\Delta, \qquad -J' = \frac{1}{\rho^2}",
        lambda r: 1 / r - 1 / mp.mpf(D),
        lambda r: 1 / r**2,
        lambda x: min(mp.sqrt(W / mp.mpf(x)), D),
        signalled=True,
    ),
    Cell(
        "power, Poisson",
        fo.problems.SynchronizationCost(fo.problems.PowerCost(0.8, 0.6), POISSON),
        r"J = a\,\Gamma(1+e)\,\rho^{-e}",
        lambda r: A * mp.gamma(1 + E) * r**-E,
        lambda r: E * A * mp.gamma(1 + E) * r ** (-E - 1),
    ),
    Cell(
        "power, periodic",
        POWER,
        r"J = \frac{a}{e+1}\,\rho^{-e}, \qquad "
        r"\rho(\lambda) = \left(\frac{w\,a\,e}{(e+1)\lambda}\right)^{1/(e+1)}",
        lambda r: A / (E + 1) * r**-E,
        lambda r: E * A / (E + 1) * r ** (-E - 1),
        lambda x: (W * A * E / ((E + 1) * x)) ** (1 / (E + 1)),
    ),
)
NAMES = [cell.name for cell in CELLS]

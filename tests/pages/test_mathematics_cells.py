"""The printed mathematics: its cells against their curves, against definitions, and against the library."""

import math
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.pages.mathematics_page import (
    CELLS,
    INVERSES,
    NAMES,
    NEARLY,
    POISSON,
    RATES,
    A,
    Cell,
    D,
    E,
    Formula,
    W,
    ein,
    gamma2,
    mp,
    shown,
)


def of_cell(objective: fo.Objective, signalled: bool = False, rate: float = D) -> Any:  # noqa: ANN401
    sources = fo.Sources([rate], W, signalled=signalled)
    return fo.Problem(objective, sources, bandwidth=1.0).numerics


@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
def test_a_cell_is_what_the_page_prints(cell: Cell) -> None:
    shown(cell.printed, *INVERSES)
    numerics = of_cell(cell.objective, cell.signalled)
    for rate in RATES:
        if cell.signalled and rate > D:
            continue
        at, r = np.array([rate]), mp.mpf(rate)
        assert math.isclose(numerics.cost(at)[0], W * cell.cost(r), rel_tol=EXACT)
        slope = -mp.diff(cell.cost, r)
        assert math.isclose(slope, cell.marginal(r), rel_tol=EXACT)
        assert math.isclose(numerics.marginal(at)[0], W * cell.marginal(r), rel_tol=EXACT)
        price = float(W * cell.marginal(r))
        if cell.inverse and price < (1 - NEARLY) * W * cell.marginal(
            mp.mpf(NEARLY)
        ):  # else no digits are left
            assert math.isclose(cell.inverse(price), rate, rel_tol=SCALAR)
            assert math.isclose(numerics.inverse_marginal(np.array([price]))[0], rate, rel_tol=SCALAR)


# The curves as printed: C(m) if there is a penalty, c(s), c'(s).
CURVES: dict[str, tuple[str, Formula | None, Formula, Formula]] = {
    "binary": (
        r"$c(s)=1-e^{-\Delta s}$, $c'(s)=\Delta e^{-\Delta s}$",
        lambda m: mp.mpf(1 if m else 0),
        lambda s: 1 - mp.exp(-D * s),
        lambda s: D * mp.exp(-D * s),
    ),
    "harmonic": (
        r"$c'(s)=\Delta\,E[1/(N_s+1)]=(1-e^{-\Delta s})/s$",
        lambda m: mp.harmonic(m),
        lambda s: ein(D * s),
        lambda s: (1 - mp.exp(-D * s)) / s,
    ),
    "count": (r"$c(s)=\Delta s$", lambda m: m, lambda s: D * s, lambda _: mp.mpf(D)),
    "age": (
        r"$c(s)=E(s-T)^+=s-(1-e^{-\Delta s})/\Delta$ and $c'(s)=1-e^{-\Delta s}$",
        None,
        lambda s: s - (1 - mp.exp(-D * s)) / D,
        lambda s: 1 - mp.exp(-D * s),
    ),
    "power": ("$c(s)=a s^e$, $e>0$", None, lambda s: A * s**E, lambda s: E * A * s ** (E - 1)),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_cell_follows_from_its_curve(name: str) -> None:
    printed, penalty, curve, slope = CURVES[name]
    shown(
        printed, r"J(\rho) = \rho\int_0^\infty c(s)\,e^{-\rho s}\,ds = \int_0^\infty c'(s)\,e^{-\rho s}\,ds"
    )
    shown(r"J(\rho) = \rho\int_0^{1/\rho} c(s)\,ds = \rho\,G(1/\rho)", r"-J'(\rho) = I\,c(I)-G(I) = V(I)")
    cells = {cell.name.split(", ")[1]: cell for cell in CELLS if cell.name.startswith(name + ",")}
    s = mp.mpf("0.7")
    if penalty:
        terms = (penalty(m) * mp.exp(-D * s) * (D * s) ** m / mp.factorial(m) for m in range(60))
        assert math.isclose(mp.fsum(terms), curve(s), rel_tol=EXACT)
    elif name == "age":
        waited = mp.quad(lambda t: (s - t) * D * mp.exp(-D * t), [0, s])
        assert math.isclose(waited, curve(s), rel_tol=EXACT)
    assert math.isclose(mp.diff(curve, s), slope(s), rel_tol=EXACT)
    for rate in (mp.mpf("0.4"), mp.mpf("1.3")):
        far = [0, 1, 4, 16, 64, 256]
        # ages are exponential: s = t²/ρ smooths a power at 0
        mean = mp.quad(lambda t, r=rate: 2 * t * mp.exp(-t * t) * curve(t * t / r), [0, 1, 2, 4, 8])
        assert math.isclose(mean, cells["Poisson"].cost(rate), rel_tol=EXACT)
        if name != "power":
            mixed = mp.quad(lambda t, r=rate: slope(t) * mp.exp(-r * t), far) if name != "count" else D / rate
            assert math.isclose(mixed, cells["Poisson"].cost(rate), rel_tol=EXACT)
        gap = 1 / rate
        whole = mp.quad(lambda t, i=gap: 2 * t * i * curve(t * t * i), [0, 1])  # s = t²·I
        assert math.isclose(rate * whole, cells["periodic"].cost(rate), rel_tol=EXACT)
        assert math.isclose(gap * curve(gap) - whole, cells["periodic"].marginal(rate), rel_tol=EXACT)


def test_the_sums_over_missed_changes_are_the_cells_of_any_penalty() -> None:
    shown(
        r"J(\rho) = \sum_{m\ge 1} d_m\,(1+x)^{-m}, \qquad "
        r"-J'(\rho) = \frac{1}{\Delta}\sum_{m\ge 1} m\,d_m\,(1+x)^{-m-1}"
    )
    shown(
        r"J(\rho) = \sum_{m\ge 1} d_m\,(1-p)^{m}, \qquad "
        r"-J'(\rho) = \frac{1}{\Delta}\sum_{m\ge 1} m\,d_m\,(1-p)^{m-1}"
    )
    m = np.arange(1, 4000)
    step = np.sqrt(m) - np.sqrt(m - 1)
    for signalled in (False, True):
        numerics = of_cell(fo.problems.ExpectedPenalty(np.sqrt), signalled)
        for rate in (0.2, 0.9, 1.4):
            y = 1.0 - rate / D if signalled else 1.0 / (1.0 + rate / D)
            cost, slope = np.sum(step * y**m), np.sum(m * step * y ** (m - 1 if signalled else m + 1)) / D
            at = np.array([rate])
            assert math.isclose(numerics.cost(at)[0], W * cost, rel_tol=SCALAR)
            assert math.isclose(numerics.marginal(at)[0], W * slope, rel_tol=SCALAR)
    # the named penalties are such sums
    x = mp.mpf("0.35")
    for name, step_of in (
        ("binary", lambda k: k == 1),
        ("harmonic", lambda k: 1 / k),
        ("count", lambda _: 1),
    ):
        for kind, y in (("Poisson", 1 / (1 + x)), ("on signal", 1 - x)):
            (cell,) = (each for each in CELLS if each.name == f"{name}, {kind}")
            total = mp.nsum(lambda k, f=step_of, z=y: f(k) * z**k, [1, mp.inf])
            assert math.isclose(total, cell.cost(x * D), rel_tol=SCALAR)


def test_ein_is_its_integral() -> None:
    shown(r"$\mathrm{Ein}(z)=\int_0^z (1-e^{-t})/t\,dt$")
    for z in (0.01, 0.7, 5.0):
        assert math.isclose(mp.quad(lambda t: -mp.expm1(-t) / t, [0, z]), ein(z), rel_tol=EXACT)


def test_the_age_on_signal_by_simulation() -> None:
    shown(r"J = p\,(1-p)\Delta\cdot\frac{1}{(p\Delta)^2}")
    rng, p, n = np.random.default_rng(7), 0.3, 400_000
    gaps, followed = rng.exponential(1.0 / D, n), rng.random(n) < p
    since = np.zeros(n)  # age of the oldest missed change, at each change, before it is followed or not
    stale, first = False, 0.0
    area = np.zeros(n)
    time = np.cumsum(gaps)
    for k in range(n):
        if stale:
            since[k] = time[k] - first
            begin = since[k] - gaps[k]
            area[k] = gaps[k] * (begin + 0.5 * gaps[k])
        if followed[k]:
            stale = False
        elif not stale:
            stale, first = True, time[k]
    blocks = area.reshape(200, -1).sum(axis=1) / gaps.reshape(200, -1).sum(axis=1)
    error = blocks.std(ddof=1) / math.sqrt(len(blocks))
    assert abs(blocks.mean() - (1 / p - 1) / D) <= 4 * error


def test_capped_powers_lines_and_polls() -> None:
    shown(r"$U-\rho\,U t_0 e/(e+1)$: linear", r"J = \rho\,Q(1/\rho) = \max_j\,(\alpha_j+\beta_j\,\rho)")
    cap, at = 1.1, np.array([0.2])
    t0 = (cap / 0.8) ** (1 / 0.6)
    assert 1 / t0 > 0.2
    capped = of_cell(fo.problems.SynchronizationCost(fo.problems.PowerCost(0.8, 0.6, cap=cap)))
    assert math.isclose(capped.cost(at)[0], W * (cap - 0.2 * cap * t0 * 0.6 / 1.6), rel_tol=EXACT)
    shown(r"J = a\,e\,\rho^{-e}\,\gamma(e,\rho t_0), \qquad -J' = a\,e\,\rho^{-e-1}\,\gamma(1+e,\rho t_0)")
    random = of_cell(fo.problems.SynchronizationCost(fo.problems.PowerCost(0.8, 0.6, cap=cap), POISSON))
    for rate in RATES:
        at, x = np.array([rate]), rate * t0
        cost = A * E * rate**-E * mp.gammainc(E, 0, x)
        assert math.isclose(random.cost(at)[0], W * cost, rel_tol=SCALAR)
        slope = A * E * rate ** (-E - 1) * mp.gammainc(1 + E, 0, x)
        assert math.isclose(random.marginal(at)[0], W * slope, rel_tol=SCALAR)
        mean = mp.quad(lambda t, r=rate: min(A * (t / r) ** E, cap) * mp.exp(-t), [0, x, x + 60])
        assert math.isclose(mean, cost, rel_tol=SCALAR)
    slopes, offsets = [0.0, 1.0, 2.5], [0.0, -2.0, -9.0]
    lines = of_cell(fo.problems.SynchronizationCost(fo.problems.PiecewiseLinearCost(slopes, offsets)))
    for rate in RATES:
        total = rate * max(a / rate + b for a, b in zip(slopes, offsets, strict=True))
        assert math.isclose(lines.cost(np.array([rate]))[0], W * total, rel_tol=EXACT, abs_tol=EXACT)
    shown(r"\int_0^{r} d = r\left(1-E_2(a/r)\right), \qquad E_2(z)=\int_1^\infty \frac{e^{-zt}}{t^2}\,dt")
    polls, materials = (
        of_cell(fo.problems.PollingKnapsack("polls")),
        of_cell(fo.problems.PollingKnapsack("materials")),
    )
    for rate in RATES[1:]:
        at, z = np.array([rate]), mp.mpf(D) / rate
        second = mp.quad(lambda t, y=z: mp.exp(-y * t) / t**2, [1, 2, 4, 16, 64, 1024, mp.inf])
        integral = mp.quad(lambda y: 1 - mp.exp(-D / y), [0, rate / 64, rate / 8, rate])
        assert math.isclose(integral, rate * (1 - second), rel_tol=SCALAR)
        assert math.isclose(materials.marginal(at)[0], W * (1 - mp.exp(-z)), rel_tol=EXACT)
        assert math.isclose(polls.marginal(at)[0], W * gamma2(z), rel_tol=EXACT)
        gains = materials.cost(at) - materials.cost(
            np.array([2.0 * rate])
        )  # up to a constant: costs are −gains
        double = mp.quad(lambda y: 1 - mp.exp(-D / y), [rate, 2 * rate])
        assert math.isclose(gains[0], W * double, rel_tol=SCALAR)

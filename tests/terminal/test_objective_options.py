"""Every objective by its name: rates that meet the conditions of optimality, worked out here once more."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.optimize import linprog

import freshopt as fo
from freshopt.cvx import cp
from freshopt.naming import OBJECTIVES, objective_of
from tests.ground_truth.command_lines import Run, refusals, refuse
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

Floats = npt.NDArray[np.float64]
DELTA, WEIGHT = np.array([0.3, 1.0, 4.0]), np.array([2.0, 1.0, 3.0])
TABLE = "source,change_rate,importance\na,0.3,2\nb,1,1\nc,4,3\n"
MISSED = np.arange(1.0, 200_000.0)


def solved(run: Run, *options: str, table: str = TABLE) -> Floats:
    """Return the rates that `solve` writes for a table of sources and a bandwidth of 5 per day."""
    Path("sources.csv").write_text(table)
    run("solve", "sources.csv", "--bandwidth", "5/day", *options, "--out", "rates.csv", "--overwrite")
    return pl.read_csv("rates.csv")["rate"].to_numpy()


def stale(u: Floats) -> Floats:
    """Integrate 1 − e^{−us} over s in (0, 1) by a series: Σ (−1)^{k+1} u^k/(k+1)!."""
    terms = [(-1.0) ** (k + 1) * u**k / math.factorial(k + 1) for k in range(1, 80)]
    return np.asarray(np.sum(terms, axis=0))


def penalty(of: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Return the marginal Σ m·(C(m) − C(m−1))·(1+x)^{−m−1}/Δ at the rates xΔ."""
    steps = MISSED * (of(MISSED) - of(MISSED - 1.0))

    def marginal(rate: Floats) -> Floats:
        falls = np.exp(-np.outer(np.log1p(rate / DELTA), MISSED + 1.0))
        return np.asarray(falls @ steps / DELTA)

    return marginal


def slope(cost: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Return −dJ/dρ by a central difference, right to about 1e-9."""
    return lambda rate: (cost(rate * (1 - 1e-5)) - cost(rate * (1 + 1e-5))) / (2e-5 * rate)


# Objective, discipline, and −dJ/dρ of each source at its rate.
MARGINALS: dict[tuple[str, str], Callable[[Floats], Floats]] = {
    ("harmonic", "poisson"): lambda r: DELTA / r / (r + DELTA),
    ("binary", "poisson"): lambda r: DELTA / (r + DELTA) ** 2,
    ("binary-cost", "poisson"): lambda r: DELTA / (r + DELTA) ** 2,
    ("binary", "periodic"): slope(lambda r: stale(DELTA / r)),
    ("binary-cost", "periodic"): slope(lambda r: stale(DELTA / r)),
    ("polls", "periodic"): slope(lambda r: DELTA * stale(DELTA / r)),
    ("materials", "periodic"): lambda r: -np.expm1(-DELTA / r),
    ("delay", "poisson"): lambda r: DELTA / r**2,
    ("delay", "periodic"): lambda r: DELTA / r**2 / 2.0,
    ("age", "poisson"): slope(lambda r: DELTA / (r * (r + DELTA))),
    ("power", "periodic"): lambda r: 0.5 / 1.5 * r**-1.5,
    ("power", "poisson"): lambda r: 0.5 * math.gamma(1.5) * r**-1.5,
    ("penalty-sqrt", "poisson"): penalty(np.sqrt),
    ("penalty-log", "poisson"): penalty(np.log1p),
    ("penalty-square", "poisson"): penalty(np.square),
}


@pytest.mark.parametrize(("objective", "refresh"), MARGINALS)
def test_another_refresh_is_worth_the_same_at_every_source(objective: str, refresh: str, run: Run) -> None:
    # Polls count each source's updates, wherever they are worth more than a poll elsewhere.
    rates = solved(run, "--objective", objective, "--refresh", refresh)
    assert math.fsum(rates) == pytest.approx(5.0, rel=EXACT)
    worth = WEIGHT * MARGINALS[objective, refresh](np.where(rates > 0.0, rates, 1e-9))
    some = rates > 0.0
    assert np.count_nonzero(some) >= 2
    np.testing.assert_allclose(worth[some], worth[some].max(), rtol=1e-7)


# A name without a marginal here is held against the program that its objective declares.
DECLARED = [
    (name, refresh.value)
    for name, named in OBJECTIVES.items()
    if not any(name == other for other, _ in MARGINALS) and not named.command.needs
    for refresh in named.refreshes
]


@pytest.mark.parametrize(("objective", "refresh"), [*DECLARED, ("harmonic", "poisson")])
def test_rates_are_optimal_for_what_the_objective_declares(objective: str, refresh: str, run: Run) -> None:
    rates = solved(run, "--objective", objective, "--refresh", refresh)
    assert math.fsum(rates) <= 5.0 * (1.0 + EXACT)
    problem = fo.Problem(objective_of(objective, refresh), fo.Sources(DELTA, WEIGHT), bandwidth=5.0)
    program, fixed = problem.to_cvxpy(), problem.to_cvxpy()
    best = float(program.solve(solver="CLARABEL"))
    (rate,) = (variable for variable in fixed.variables() if variable.name() == "rate")
    value = float(cp.Problem(fixed.objective, [*fixed.constraints[:-1], rate == rates]).solve())
    assert value == pytest.approx(best, rel=CONIC)


def test_every_name_is_tried() -> None:
    tried = {name for name, _ in [*MARGINALS, *DECLARED]}
    assert tried | {"deadline"} == set(OBJECTIVES)


def test_without_a_discipline_it_is_the_objectives_own(run: Run) -> None:
    for name, own in (("harmonic", "periodic"), ("penalty-sqrt", "poisson"), ("polls", "periodic")):
        plain, named = (solved(run, "--objective", name, *how) for how in ((), ("--refresh", own)))
        np.testing.assert_array_equal(plain, named)


def test_power_takes_its_parameters_from_options_or_columns(run: Run) -> None:
    rates = solved(run, "--objective", "power", "--exponent", "0.8")
    np.testing.assert_allclose(rates, 5.0 * WEIGHT ** (1 / 1.8) / np.sum(WEIGHT ** (1 / 1.8)), rtol=SCALAR)
    table = "source,change_rate,scale,exponent\na,1,2,0.5\nb,1,1,1\nc,1,0.7,0.2\n"
    scale, e = np.array([2.0, 1.0, 0.7]), np.array([0.5, 1.0, 0.2])
    own = solved(run, "--objective", "power", table=table)
    worth = scale * e / (e + 1.0) * own ** (-e - 1.0)
    np.testing.assert_allclose(worth, worth[0], rtol=SCALAR)
    # Neglected for longer than a day the second costs no more than that day: at this price it is given up.
    capped = "source,change_rate,scale,exponent,cap\na,1,2,0.5,\nb,1,1,1,0.1\nc,1,0.7,0.2,\n"
    assert solved(run, "--objective", "power", table=capped)[1] == 0.0


@pytest.mark.parametrize("how", ["option", "column"])
def test_deadlines_are_the_linear_programs_optimum(how: str, run: Run) -> None:
    deadline = np.array([0.5, 0.5, 0.5]) if how == "option" else np.array([0.25, 2.0, 0.4])
    column = "".join(
        f"{name},{d},{w},{late}\n" for name, d, w, late in zip("abc", DELTA, WEIGHT, deadline, strict=True)
    )
    table = TABLE if how == "option" else f"source,change_rate,importance,deadline\n{column}"
    options = ("--deadline", "12h") if how == "option" else ()
    rates = solved(run, "--objective", "deadline", *options, table=table)
    # min Σ w·z with z ≥ 1 − deadline·ρ, z ≥ 0, Σρ ≤ 5
    program = linprog(
        np.concatenate([np.zeros(3), WEIGHT]),
        A_ub=np.block([[-np.diag(deadline), -np.eye(3)], [np.ones(3), np.zeros(3)]]),
        b_ub=[-1.0, -1.0, -1.0, 5.0],
    )
    assert program.fun is not None
    assert program.fun > 0.1
    late = float(np.sum(WEIGHT * np.maximum(0.0, 1.0 - deadline * rates)))
    assert late == pytest.approx(program.fun, rel=SCALAR)


def test_host_limits_take_what_they_may(run: Run) -> None:
    Path("limits.csv").write_text("host,limit\nslow,1\n")
    table = "source,change_rate,host\na,1,slow\nb,1,slow\nc,1,fast\nd,1,007\n"
    rates = solved(run, "--objective", "delay", "--host-limits", "limits.csv", table=table)
    np.testing.assert_allclose(rates, [0.5, 0.5, 2.0, 2.0], rtol=EXACT)


REFUSED = refusals(
    """
SOLVE --objective polls --refresh poisson -> polls has no poisson cell | --refresh periodic
SOLVE --objective penalty-log --refresh periodic -> no periodic cell | --refresh poisson
SOLVE --objective deadline --refresh poisson -> no poisson cell | --refresh periodic
SOLVE --objective deadline -> needs one | --objective deadline:2d | column 'deadline'
SOLVE --objective deadline --deadline 3/day -> --deadline: '3/day' is a rate | such as 7d
SOLVE --objective delay --deadline 3d -> --deadline is for --objective deadline | not for delay
SOLVE --exponent 1 -> --exponent is for --objective power, not for harmonic | Leave it out
SOLVE --objective power --exponent -1 -> exponent | -1
SOLVE --objective power --exponent nan -> exponent | nan
SOLVE --host-limits no.csv -> there is no file no.csv | Check the path
SOLVE --host-limits rates.csv -> rates.csv has no column 'host' | Rename or add
SOLVE --host-limits limits.csv -> have no host
POWER gaps.csv -> exponent is empty in row 2, line 3 of gaps.csv
POWER powers.csv --exponent 1 -> both give it | Leave one
PLAN --host-limits limits.csv -> no host can be read from | --hosts
PLAN --objective polls -> 'polls' is not one of | 'harmonic'
""",
    SOLVE="solve sources.csv --bandwidth 2 --out out.csv",
    POWER="solve --bandwidth 2 --out out.csv --objective power",
    PLAN="plan log.csv --bandwidth 1 --horizon 7d --out out",
)


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_an_objective_cannot_do_is_one_line(
    arguments: tuple[str, ...], words: tuple[str, ...], folder: Path
) -> None:
    Path("limits.csv").write_text("host,limit\nx,1\n")
    Path("gaps.csv").write_text("source,change_rate,exponent\na,1,0.5\nb,2,\n")
    Path("powers.csv").write_text("source,change_rate,exponent\na,1,0.5\nb,2,1\n")
    refuse(folder, arguments, words)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("host,limit\nx,0\n", ("must be numbers > 0", "'x': 0", "Correct")),
        ("host,limit\nz,1\n", ("unknown hosts 'z'", "Correct")),
        ("host,limit\n", ("limits.csv", "no rows")),
    ],
    ids=["zero", "unknown", "no rows"],
)
def test_host_limits_that_cannot_be_used(limits: str, words: tuple[str, ...], folder: Path) -> None:
    Path("limits.csv").write_text(limits)
    Path("hosted.csv").write_text("source,change_rate,host\na,1,x\nb,2,y\n")
    how = ["--bandwidth", "2", "--out", "out.csv", "--host-limits", "limits.csv"]
    refuse(folder, ["solve", "hosted.csv", *how], words)

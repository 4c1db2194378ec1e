"""Derivatives of optima: against the KKT equations solved in 30 digits at nearby parameters."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.certificates.sensitivity import Sensitivity
from freshopt.problems import LaterThan, PollingKnapsack
from tests.certificates.perturbed_optima import Instance, Row, planted
from tests.ground_truth.named import chosen
from tests.ground_truth.strata import matrix, rare

Floats = npt.NDArray[np.float64]
OBJECTIVES: dict[str, fo.Objective] = {
    "spend": fo.Spend(),
    **chosen("harmonic", "harmonic periodic", "delay", "delay periodic", "binary", "binary periodic", "age"),
    "polls": PollingKnapsack(),
    "later": LaterThan(0.5, refresh=fo.Refresh.POISSON),
}
# Second derivatives are differences of the numerics' marginals, right to about 1e-11.
TOLERANCE = 1e-9
N = 6
EVERY = tuple(range(N))
UNIT = Row("bandwidth", EVERY, (1.0,) * N)
BYTES = Row("bytes", EVERY, (3.0, 0.2, 1.0, 0.5, 2.0, 0.1))
NEWS = Row("news", (0, 2, 4), (1.0, 2.0, 1.0))
RESERVE = Row("reserve", (1, 3), (1.0, 1.0), sign=-1.0)


def mean(loss: str, label: str, members: tuple[int, ...] = EVERY, *, fair: bool = False) -> Row:
    maximised = OBJECTIVES[loss].sense == "maximise"
    return Row(label, members, loss=loss, fair=fair, sign=-1.0 if maximised else 1.0)


def problem_of(instance: Instance) -> fo.Problem:
    """The same problem, declared."""
    codes = list(instance.codes)
    bare = [loss.removesuffix(" on signal") for loss in instance.losses]
    signalled = [loss.endswith("on signal") for loss in instance.losses]
    sources = fo.Sources(
        instance.d,
        instance.w,
        signalled=signalled,
        min_rate=instance.lower[codes],
        max_rate=instance.upper[codes],
    )
    objective = OBJECTIVES[bare[0]]
    fair = [row for row in instance.rows if row.fair]
    if fair:
        by: list[str | None] = [
            next((r.label for r in fair if k in r.members), None) for k in range(len(codes))
        ]
        objective = fo.Worst(OBJECTIVES[fair[0].loss], by=by)
    constraints: list[Any] = []
    for row, limit in zip(instance.rows, instance.limits.tolist(), strict=True):
        members = list(row.members)
        if row.loss and not row.fair:
            one = OBJECTIVES[row.loss]
            by = [row.label if k in members else None for k in range(len(codes))]
            side = {"at_least": -limit} if row.sign < 0.0 else {"at_most": limit}
            constraints.append(fo.Target(one, by=by, name="mean " + row.label, **side))
        elif row.cost:
            cost = np.zeros(len(codes))
            cost[members] = np.abs(row.cost)
            if row.sign < 0.0:
                constraints.append(reserve(row.label, cost, -limit))
            else:
                constraints.append(fo.Budget(limit, cost=cost, name=row.label))
    if len(set(codes)) < len(codes):
        constraints.append(fo.Tied(codes))
    return fo.Problem(objective, sources, constraints=constraints)


def reserve(label: str, cost: Floats, least: float) -> Any:  # noqa: ANN401 - a function of a CVXPY variable
    return lambda rate: [(cost @ rate >= least).set_label(label)]


def label(row: Row) -> str:
    if row.fair:
        return f"worst[{row.label}]"
    return f"mean {row.label}[{row.label}]" if row.loss else row.label


def derivatives(instance: Instance) -> Sensitivity:
    codes = list(instance.codes)
    rates = np.array([float(rate) for rate in instance.start.rates])[codes]
    prices = {label(row): float(y) for row, y in zip(instance.rows, instance.start.prices, strict=True)}
    return Sensitivity.at(problem_of(instance), rates, prices)


def require_right(instance: Instance, seed: int, tolerance: float = TOLERANCE) -> Sensitivity:
    """Compare a derivative along a random direction of each parameter."""
    at, random = derivatives(instance), np.random.default_rng(seed)
    assert at.degenerate == 0
    n, m = len(instance.codes), len(instance.rows)
    adjustable = np.array([not row.fair for row in instance.rows])
    limited = adjustable * np.maximum(np.abs(instance.limits), 1e-3)
    dearest = max(float(price) for price in instance.start.prices)
    whole = abs(float(instance.start.value))
    sign = -1.0 if problem_of(instance).objective.sense == "maximise" else 1.0
    for which in range(3):
        dw = random.normal(size=n) * instance.w * (which == 0)
        dd = random.normal(size=n) * instance.d * (which == 1)
        db = random.normal(size=m) * limited * (which == 2)
        rates, prices, value = instance.direction(dw, dd, db)
        changes = {label(row): float(x) for row, x in zip(instance.rows, db, strict=True) if not row.fair}
        found = at.jvp(importance=dw, change_rate=dd, limits=changes)
        found_prices = np.array([found.prices[label(row)] for row in instance.rows])
        # What does not move is compared with what there is to move.
        largest = max(float(rate) for rate in instance.start.rates)
        within = tolerance * (np.max(np.abs(rates)) + 1e-2 * largest)
        assert np.max(np.abs(found.rates - rates)) <= within
        assert np.max(np.abs(found_prices - prices)) <= tolerance * (np.max(np.abs(prices)) + 1e-2 * dearest)
        assert abs(found.value - sign * value) <= tolerance * (abs(value) + 1e-2 * whole)
    return at


@matrix(loss=[name for name in OBJECTIVES if name != "spend"], every=4)
def test_two_budgets_and_bounds(loss: str) -> None:
    at = require_right(planted((loss,) * N, (UNIT, BYTES, NEWS), (0.1, 0.05, 0.0), 1, held=(1, 4)), 2)
    assert at.binding == ("bandwidth", "bytes")
    assert not at.free[[1, 4]].any()


MEANS = [
    ("binary", 8.0),
    ("harmonic", 2.0),
    ("age", 2.0),
    ("polls", 9.0),
    ("later", 20.0),
    ("binary periodic", 9.0),
]


@pytest.mark.parametrize(("loss", "price"), MEANS)
@pytest.mark.sampled(3)
def test_the_cheapest_rates_that_meet_targets(loss: str, price: float) -> None:
    rows = (mean(loss, "all"), mean("harmonic", "some", (1, 2, 3)), mean("binary", "idle", (4, 5)))
    require_right(planted(("spend",) * N, rows, (price, 0.8, 0.0), 3, held=(4,)), 4)


@pytest.mark.parametrize("seed", [0, *rare(*range(1, 6))])
def test_an_objective_under_a_budget_a_target_of_another_and_a_reserve(seed: int) -> None:
    rows = (UNIT, mean("binary", "fresh", (0, 1, 2)), RESERVE)
    require_right(planted(("harmonic",) * N, rows, (0.4, 2.0, 0.05), seed), 5)


@pytest.mark.parametrize("seed", [0, *rare(*range(1, 6))])
def test_ill_scaled_sources(seed: int) -> None:
    rows = (UNIT, BYTES, mean("harmonic", "fresh"))
    require_right(planted(("delay",) * N, rows, (0.1, 0.2, 0.5), seed, ill=True), 6, 1e-8)


def test_the_worst_group() -> None:
    fair = [mean("harmonic", name, members, fair=True) for name, members in (("a", (0, 1)), ("b", (2, 3, 4)))]
    instance = planted(("harmonic",) * N, (UNIT, *fair), (0.3, 0.6, 0.4), 7, held=(5,))
    require_right(instance, 8)


def test_tied_sources() -> None:
    instance = planted(("harmonic",) * N, (UNIT, BYTES), (0.2, 0.1), 9, codes=(0, 1, 0, 2, 2, 2), held=(1,))
    require_right(instance, 10)


def test_signalled_sources_that_are_refreshed_at_every_change() -> None:
    losses = ("harmonic on signal",) * 3 + ("harmonic",) * 3
    require_right(planted(losses, (UNIT, BYTES), (0.02, 0.01), 11, signalled=(0, 1, 2)), 12)


def weights(at: Sensitivity, seed: int) -> tuple[Floats, dict[str, float], float]:
    random = np.random.default_rng(seed)
    prices = dict(zip(at.labels, random.normal(size=len(at.labels)).tolist(), strict=True))
    return random.normal(size=len(at.free)), prices, float(random.normal())


def require_transposed(at: Sensitivity, sources: fo.Sources, seed: int) -> None:
    """⟨v, Ju⟩ = ⟨Jᵀv, u⟩ on random vectors, relative to the sizes of what is added up."""
    (dw, db, _), (v, prices, value) = weights(at, seed), weights(at, seed + 1)
    dw, dd = dw * sources.importance, weights(at, seed + 2)[0] * sources.change_rate
    change = at.jvp(importance=dw, change_rate=dd, limits=db)
    gradient = at.vjp(rates=v, prices=prices, value=value)
    by_row = np.array([prices[key] * change.prices[key] for key in at.labels])
    by_limit = np.array([gradient.limits[key] * db[key] for key in at.labels])
    pushed = np.concatenate((v * change.rates, by_row, np.array([value * change.value])))
    pulled = np.concatenate((gradient.importance * dw, gradient.change_rate * dd, by_limit))
    size = max(float(np.sum(np.abs(pushed))), float(np.sum(np.abs(pulled))))
    assert abs(float(np.sum(pushed) - np.sum(pulled))) <= 1e-10 * size


@pytest.mark.parametrize("seed", range(2))
def test_vjp_is_the_transpose_of_jvp(seed: int) -> None:
    fair = [mean("age", name, members, fair=True) for name, members in (("a", (0, 1)), ("b", (2, 3, 4)))]
    instances = [
        planted(("harmonic",) * N, (UNIT, mean("binary", "fresh"), RESERVE), (0.4, 2.0, 0.05), seed),
        planted(("harmonic",) * N, (UNIT, *fair), (0.3, 0.6, 0.4), seed, held=(5,)),
        planted(("binary",) * N, (UNIT, BYTES), (0.2, 0.1), seed, codes=(0, 1, 0, 2, 2, 2), held=(1,)),
        planted(("harmonic on signal",) * 3 + ("harmonic",) * 3, (UNIT,), (0.02,), seed, signalled=(0, 1)),
        planted(("delay",) * N, (UNIT, BYTES), (0.1, 0.2), seed, ill=True),
    ]
    for instance in instances:
        require_transposed(derivatives(instance), problem_of(instance).sources, seed)


def test_an_answer_with_the_rounding_of_an_interior_point() -> None:
    rows = (UNIT, BYTES, NEWS, mean("binary", "fresh"))
    instance, random = (
        planted(("harmonic",) * N, rows, (0.4, 0.1, 0.0, 2.0), 13, held=(1, 4)),
        np.random.default_rng(0),
    )
    at = derivatives(instance)
    rates = np.array([float(rate) for rate in instance.start.rates]) * (1.0 + 1e-11 * random.normal(size=N))
    prices = {label(row): max(float(y), 1e-12) for row, y in zip(rows, instance.start.prices, strict=True)}
    near = Sensitivity.at(problem_of(instance), np.clip(rates, instance.lower, instance.upper), prices)
    assert (near.binding, near.degenerate) == (at.binding, 0)
    assert np.array_equal(near.free, at.free)
    one, other = (x.jvp(importance=instance.w, limits={"bytes": 1.0}) for x in (at, near))
    assert other.rates == pytest.approx(one.rates, abs=1e-8)
    assert other.prices == pytest.approx(one.prices, abs=1e-8)


def solved() -> list[Instance]:
    fair = [mean("harmonic", name, members, fair=True) for name, members in (("a", (0, 1)), ("b", (2, 3, 4)))]
    return [
        planted(("harmonic",) * N, (UNIT, mean("binary", "fresh", (0, 1, 2)), RESERVE), (0.4, 2.0, 0.05), 0),
        planted(("harmonic",) * N, (UNIT, *fair), (0.3, 0.6, 0.4), 7, held=(5,)),
        planted(("binary",) * N, (UNIT, BYTES, NEWS), (0.1, 0.05, 0.0), 1, held=(1, 4)),
    ]


@pytest.mark.parametrize("instance", solved(), ids=["mixed", "worst", "budgets"])
def test_solutions_have_the_derivatives_of_the_optimum(instance: Instance) -> None:
    exact, found = derivatives(instance), fo.solve(problem_of(instance)).sensitivity()
    assert np.array_equal(found.free, exact.free)
    assert (found.binding, found.degenerate) == (exact.binding, 0)
    one, other = (x.jvp(importance=instance.w, change_rate=instance.d[::-1]) for x in (exact, found))
    assert other.rates == pytest.approx(one.rates, abs=1e-7)
    assert other.value == pytest.approx(one.value, rel=1e-7)

"""Solvers chosen for declared problems, own arrays, many rows and lifetimes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.solver_protocol import Solver
from freshopt.cvx import cp
from freshopt.separable.kernel import Kernel
from freshopt.solvers import Conic, InteriorPoint, LifetimeRule, SeparableNewton, WaterFilling
from tests.contracts import discovery
from tests.ground_truth.cost_truth import Floats
from tests.ground_truth.named import BINARY, BINARY_ON_REQUEST, DELAY_ON_REQUEST, HARMONIC, declared, present
from tests.ground_truth.strata import matrix, rare, stratified
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

N = 200
RNG = np.random.default_rng(4)
CHANGE_RATE, WEIGHT = 10.0 ** RNG.uniform(-5, 5, N), RNG.lognormal(0.0, 3.0, N)
PLAN = 10.0 ** RNG.uniform(-8, 2, N)
HOST = np.arange(N) % 5


def delay(rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
    return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate))


def paid(exponent: float) -> fo.Objective:
    """Return the delay and what all refreshes cost, more than in proportion."""
    return declared(lambda r, s: delay(r, s) + 0.1 * cp.power(r, exponent))


# Objectives that are least at a finite rate, and that rate.
LEAST: dict[str, tuple[fo.Objective, Any]] = {
    "orders": (
        declared(lambda r, s: 5 * r + cp.multiply(s.change_rate, cp.inv_pos(r))),
        np.sqrt(CHANGE_RATE / 5),
    ),
    **{
        f"paid, to the {e:g}": (paid(e), (WEIGHT * CHANGE_RATE / (0.1 * e)) ** (1 / (e + 1)))
        for e in (1.2, 2.0, 3.0)
    },
    "projection": (declared(lambda r, _: cp.square(r - PLAN)), PLAN),
    "entropy": (
        declared(lambda r, s: cp.multiply(s.importance, cp.entr(r)), sense="maximise"),
        np.full(N, np.exp(-1.0)),
    ),
}


@matrix(name=LEAST, solver=[None, SeparableNewton(), WaterFilling()], hosts=[False, True])
def test_rates_at_a_price_of_0_are_right_one_by_one(name: str, solver: Solver | None, hosts: bool) -> None:
    """A gap of 1e-13 of the cost would leave rates off by its root, and small ones by any share of them."""
    objective, least = LEAST[name]
    sources = fo.Sources(CHANGE_RATE, WEIGHT, host=HOST)
    limits = {0: 1e12, 3: 0.5 * float(np.sum(least[HOST == 3]))} if hosts else None
    found = fo.solve(fo.Problem(objective, sources, bandwidth=1e20, host_limits=limits), solver)
    assert found.price == 0.0
    free = (HOST != 3) | (not hosts)
    assert np.allclose(found.rates[free], least[free], rtol=SCALAR, atol=0.0)


KINKED: dict[str, Callable[[Any, fo.Sources], Any]] = {
    "maximum": lambda r, s: cp.multiply(s.importance, cp.maximum(1 - cp.multiply(1 / s.change_rate, r), 0)),
    "minimum": lambda r, s: -cp.multiply(s.importance, cp.minimum(cp.multiply(1 / s.change_rate, r), 1)),
    "abs": lambda r, s: cp.multiply(s.importance, cp.abs(r - s.change_rate)),
}


@pytest.mark.parametrize("name", KINKED)
def test_objectives_with_kinks_take_newton(name: str) -> None:
    objective = declared(lambda r, s: KINKED[name](r, s) + 0.01 * delay(r, s))
    problem = fo.Problem(objective, fo.Sources(CHANGE_RATE, WEIGHT), bandwidth=0.3 * float(CHANGE_RATE.sum()))
    found = fo.solve(problem)
    assert found.note.startswith("Auto chose SeparableNewton(")
    assert present(found.certificate).confirms(SCALAR)
    filled = fo.solve(problem, WaterFilling())
    assert found.value <= filled.value + SCALAR * abs(filled.value)


def test_entropies_take_water_filling_and_smooth_objectives_newton() -> None:
    sources = fo.Sources(CHANGE_RATE, WEIGHT)
    churn = declared(lambda r, s: delay(r, s) + cp.multiply(s.importance, cp.kl_div(r, PLAN)))
    found = fo.solve(fo.Problem(churn, sources, bandwidth=float(PLAN.sum())))
    assert found.note.startswith("Auto chose WaterFilling()")
    assert "kl_div" in found.note
    smooth = fo.solve(fo.Problem(declared(delay), sources, bandwidth=3.0))
    assert smooth.note.startswith("Auto chose SeparableNewton(")
    root = np.sqrt(WEIGHT * CHANGE_RATE)
    assert np.allclose(smooth.rates, 3.0 * root / root.sum(), rtol=EXACT, atol=0.0)


def test_a_signalled_kind_with_kinks_counts_too() -> None:
    class Both(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return delay(rate, sources)

        def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return KINKED["maximum"](rate, sources)

    mixed = fo.Sources(CHANGE_RATE, WEIGHT, signalled=HOST == 2)
    problem = fo.Problem(Both(), mixed, bandwidth=100.0)
    found = fo.solve(problem, SeparableNewton())
    assert found.iterations <= 20
    assert present(found.certificate).confirms(SCALAR)
    assert found.value <= fo.solve(problem, WaterFilling()).value * (1.0 + SCALAR)


def test_a_cost_that_vanishes_is_not_given_up_for_the_smallest_price() -> None:
    """Refreshes worth less than 1e-290 still lower the cost, to 0 in the end; nothing is proved before."""
    tail = declared(lambda r, s: cp.multiply(s.importance, cp.exp(-cp.multiply(1 / s.change_rate, r))))
    found = fo.solve(fo.Problem(tail, fo.Sources([5e-4], [4e-4]), bandwidth=53.0), SeparableNewton())
    assert found.value == 0.0
    assert found.status is fo.Status.OPTIMAL


ARRAYS_N = 12


class Delay(fo.Objective):
    """Σ a·Δ/ρ, with one a for each source."""

    def __init__(self, own: Floats) -> None:
        self.own = own

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(self.own * sources.change_rate, cp.inv_pos(rate))


class Reshaped(Delay):
    """The same with shapes that are changed on the way, and a constant in a column."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        column = cp.reshape(cp.inv_pos(rate), (len(sources), 1), order="F")
        weight = (self.own * sources.change_rate)[:, np.newaxis]
        return cp.reshape(cp.multiply(weight, column), (len(sources),), order="F")


class Signalled(Delay):
    """The same, and for signalled sources too."""

    def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return self.per_source(rate, sources)


class Kernelled(Delay):
    """The same with a kernel."""

    def kernel(self, sources: fo.Sources) -> Kernel:
        return Kernel(
            self.own * sources.importance,
            (sources.change_rate,),
            lambda rate, d: d / rate,
            lambda rate, d: d / rate**2,
            lambda price, d: np.sqrt(d / price),
        )


class Auxiliary(Kernelled):
    """The same with a variable of its own."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        t = cp.Variable(len(sources))
        return cp.multiply(self.own * sources.change_rate, t), [cp.inv_pos(rate) <= t]


class Coned(Auxiliary):
    """The same with a cone form."""

    def cone_form(self, y: Any, sources: fo.Sources, typical: Floats) -> Any:  # noqa: ANN401
        return (self.own * sources.change_rate / typical) @ cp.inv_pos(y), []


KINDS = (Delay, Reshaped, Signalled, Kernelled, Auxiliary, Coned)


def problem(kind: type[Delay], *, limited: bool = False) -> fo.Problem:
    """Return a problem with sources that hardly count, which cone solvers leave out."""
    rng = np.random.default_rng(4)
    own = 10.0 ** rng.uniform(-1.0, 1.0, ARRAYS_N)
    own[::4] = 1e-15
    more: dict[str, Any] = {"signalled": np.arange(ARRAYS_N) % 2 == 1} if kind is Signalled else {}
    if limited:
        more |= {"host": ["x", "y"] * (ARRAYS_N // 2), "min_rate": 0.01, "max_rate": 0.5}
    # Signalled sources are refreshed at most once per change; the best rates are below that here.
    sources = fo.Sources(10.0 ** rng.uniform(0.5, 1.0, ARRAYS_N), **more)
    return fo.Problem(kind(own), sources, 3.0, {"x": 1.0} if limited else None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS[:4])
def test_conic_solves_it(kind: type[Delay]) -> None:
    """By Cauchy-Schwarz the best rates are proportional to √(aΔ)."""
    given = problem(kind)
    solution = fo.solve(given, Conic(), throw=False)
    root = np.sqrt(given.objective.own * given.sources.change_rate)  # type: ignore[attr-defined]
    assert solution.status is fo.Status.OPTIMAL, solution.note
    assert solution.value == pytest.approx(np.sum(root) ** 2 / given.bandwidth, rel=CONIC)


def test_the_newton_solver_compares_kernel_and_declaration_of_many_sources() -> None:
    own = np.linspace(1.0, 2.0, 100)
    given = fo.Problem(Kernelled(own), fo.Sources(own[::-1]), 50.0)
    root = np.sqrt(own * own[::-1])
    assert fo.solve(given, SeparableNewton()).value == pytest.approx(np.sum(root) ** 2 / 50.0, rel=EXACT)


@pytest.mark.parametrize(
    ("name", "kind", "limited"), stratified(discovery.solvers(), KINDS, (False, True), every=10)
)
@pytest.mark.sampled(3)
def test_every_solver_answers_with_a_status(name: str, kind: type[Delay], limited: bool) -> None:
    solver: Any = discovery.solvers()[name]
    if hasattr(solver, "limit"):
        solver = dataclasses.replace(solver, limit=100)
    solution = fo.solve(problem(kind, limited=limited), solver, throw=False)
    assert solution.status is fo.Status.OPTIMAL or solution.note


def crossing(n: int, groups: int) -> fo.Problem:
    """Return a problem with two partitions into groups that cross each other."""
    rng = np.random.default_rng(groups)
    limits = dict.fromkeys(range(groups), 1.5 * n / groups)
    budgets = [
        fo.Budget(limits, by=rng.permutation(np.arange(n) % groups), cost=rng.uniform(0.5, 2.0, n), name=name)
        for name in "ab"
    ]
    return fo.Problem(HARMONIC, fo.Sources(rng.uniform(1.0, 2.0, n)), constraints=budgets)


def test_a_matrix_without_room_is_refused_in_one_line() -> None:
    problem = crossing(20_000, 10_000)
    with pytest.raises(
        fo.SolverRefusedError, match=r"20,000 rows .* 3\.2 GB; it takes 15,811 such rows"
    ) as refused:
        fo.solve(problem)
    assert "\n" not in str(refused.value)


def test_few_enough_rows_are_solved() -> None:
    found = fo.solve(crossing(3000, 100))
    assert present(found.certificate).relative_gap <= 1e-12


def test_auto_asks_the_cone_solver_only_of_few_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshopt.solvers.interior_point.CELLS", 100)
    few, (refusing, conic) = crossing(60, 6), (InteriorPoint(), Conic())
    assert refusing.supports(few) is not None
    note = fo.solve(few).note
    assert note.startswith(f"Auto chose {conic}: 12 rows that share sources need a matrix")


def ill_scaled(n: int = 20) -> fo.Sources:
    rng = np.random.default_rng(9)
    return fo.Sources(10.0 ** rng.uniform(-6.0, 4.0, n), request_rate=10.0 ** rng.uniform(-4.0, 4.0, n))


@pytest.mark.parametrize(
    "share",
    [*rare(1e-3), 0.3, *rare(0.99)],
)
def test_lifetimes_are_in_proportion(share: float) -> None:
    sources = ill_scaled()
    budget = share * float(sources.asked.sum())
    problem = fo.Problem(BINARY_ON_REQUEST, sources, bandwidth=budget)
    best = fo.solve(problem).value
    for power in (0.0, 1.0, 0.5):
        found = fo.solve(problem, LifetimeRule(power), certify=power == 0.0)
        # The source with the longest lifetime, in requests, tells it with the most digits.
        k = int(np.argmax(found.lifetimes * sources.asked))
        life = found.lifetimes[k] * (sources.change_rate[k] / sources.change_rate) ** power
        assert found.rates == pytest.approx(1.0 / (life + 1.0 / sources.asked), rel=1e-6)
        assert found.rates.sum() == pytest.approx(budget, rel=1e-9)
        assert found.value <= best * (1.0 + 1e-12)
        if found.certificate is not None:
            assert found.value + found.certificate.gap >= best * (1.0 - 1e-9)


def test_costs_and_bounds() -> None:
    sources = fo.Sources(
        [1.0, 1.0, 1.0], request_rate=[2.0, 2.0, 2.0], refresh_cost=[1.0, 3.0, 1.0], max_rate=0.5
    )
    found = fo.solve(fo.Problem(DELAY_ON_REQUEST, sources, bandwidth=1.25), LifetimeRule())
    assert found.lifetimes == pytest.approx([3.5, 3.5, 3.5])
    assert sources.refresh_cost @ found.rates == pytest.approx(1.25)


def test_refuses_what_has_no_lifetimes() -> None:
    problem = fo.Problem(BINARY, fo.Sources([1.0, 2.0]), bandwidth=1.0)
    assert "Refresh.ON_REQUEST" in str(LifetimeRule().supports(problem))
    with pytest.raises(fo.SolverRefusedError, match=r"refreshed on request"):
        fo.solve(problem, LifetimeRule())
    with pytest.raises(fo.SourceDataError, match=r"power is nan, not a finite number"):
        LifetimeRule(np.nan)
    with pytest.raises(TypeError, match=r"power of LifetimeRule is of type str"):
        LifetimeRule("one")  # type: ignore[arg-type]


D, W = np.random.default_rng(3).lognormal(0.0, 1.0, (2, 50))


class Stock(fo.Objective):
    """w·(x + 1/x) with x = ρ/Δ, least at x = 1."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        x = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, cp.inv_pos(x) + x)


@pytest.mark.parametrize(
    ("share", "kind", "note"),
    [
        (0.03, SeparableNewton, "derived from the declaration"),
        (0.999, WaterFilling, "Newton's steps did not settle"),
        (3.0, WaterFilling, "less would cost less"),
    ],
)
def test_costs_that_rise_again(share: float, kind: type, note: str) -> None:
    solution = fo.solve(fo.Problem(Stock(), fo.Sources(D, W), bandwidth=share * float(D.sum())))
    assert type(solution.solver) is kind
    assert note in solution.note
    # At the price λ, x = √(w/(w + λΔ)).
    rates = D * np.sqrt(W / (W + solution.price * D))
    assert solution.rates == pytest.approx(rates, rel=1e-9)
    assert solution.rates.sum() == pytest.approx(min(share, 1.0) * D.sum(), rel=EXACT)
    assert solution.certificate.relative_gap <= EXACT


def test_a_target_whose_cost_is_not_declared_is_no_cone() -> None:
    sources = fo.Sources([0.4, 1.0, 3.0, 0.2], signalled=[True, True, False, False])
    target = fo.Target(fo.problems.HarmonicStaleness(), at_most=10.0)
    problem = fo.Problem(fo.problems.BinaryFreshness(), sources, 1.0, constraints=[target])
    reason = Conic().supports(problem)
    assert reason is not None
    assert "not declared in CVXPY" in reason

"""Derivatives of optima where formulas are known: many sources, kinks, linear pieces, degenerate optima."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.certificates import kkt_system
from freshopt.certificates.sensitivity import Sensitivity
from freshopt.cvx import cp
from freshopt.problems import LaterThan
from freshopt.separable.kernel import Kernel
from freshopt.solvers import ClosedForm
from tests.ground_truth.named import AGE, BINARY, DELAY, HARMONIC, written

Floats = npt.NDArray[np.float64]


def shares(w: Any, d: Any, bandwidth: Any) -> Any:  # noqa: ANN401 - real or complex
    """The optimum of Σ wΔ/ρ under Σρ = B."""
    roots = np.sqrt(w * d)
    return bandwidth * roots / np.sum(roots)


def test_many_ill_scaled_sources_in_a_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    n, random = 100_000, np.random.default_rng(0)
    w, d = np.exp(random.normal(0.0, 3.0, n)), 10.0 ** random.uniform(-5.0, 5.0, n)
    problem, rates = fo.Problem(DELAY, fo.Sources(d, w), bandwidth=1e4), shares(w, d, 1e4)
    prices = {"bandwidth": float(np.sum(np.sqrt(w * d)) / 1e4) ** 2}
    passes: list[int] = []
    marginal = Kernel.marginal

    def counted(self: Kernel, rate: Floats) -> Floats:
        passes.append(1)
        return marginal(self, rate)

    monkeypatch.setattr(Kernel, "marginal", counted)
    at = Sensitivity.at(problem, rates, prices)
    assert len(passes) <= 20
    dw, dd = w * random.normal(size=n), d * random.normal(size=n)
    found = at.jvp(importance=dw, change_rate=dd, limits={"bandwidth": 2.0})
    # The derivative of an analytic function, by a complex step: exact to rounding.
    exact = shares(w + 1e-30j * dw, d + 1e-30j * dd, 1e4 + 2e-30j).imag / 1e-30
    assert np.max(np.abs(found.rates - exact) / (np.abs(exact) + rates)) < 1e-9
    v = random.normal(size=n) / rates
    gradient = at.vjp(rates=v)
    pulled = np.array(
        [gradient.importance @ dw, gradient.change_rate @ dd, 2.0 * gradient.limits["bandwidth"]]
    )
    assert abs(v @ found.rates - np.sum(pulled)) < 1e-10 * (np.abs(v) @ np.abs(found.rates))
    assert len(passes) <= 20
    assert (at.degenerate, at.binding) == (0, ("bandwidth",))


def test_refresh_costs() -> None:
    random = np.random.default_rng(2)
    w, d, c = (np.exp(random.normal(size=6)) for _ in range(3))
    dw, dd, dc = (random.normal(size=6) for _ in range(3))

    def budget(w: Any, d: Any, c: Any, limit: Any) -> Any:  # noqa: ANN401
        return limit * np.sqrt(w * d / c) / np.sum(np.sqrt(w * d * c))

    def target(w: Any, d: Any, c: Any, limit: Any) -> Any:  # noqa: ANN401
        return np.sqrt(w * d / c) * np.sum(np.sqrt(w * d * c)) / (limit * np.sum(w))

    sources, some = fo.Sources(d, w, refresh_cost=c), fo.Target(DELAY, at_most=0.5)
    dearest = float(np.sum(np.sqrt(w * d * c)) ** 2 / (0.25 * np.sum(w)))
    price = float(np.sum(np.sqrt(w * d * c)) / 4.0) ** 2
    cheapest = fo.Problem(fo.Spend(), sources, constraints=[some])
    for problem, optimum, limit, prices in (
        (fo.Problem(DELAY, sources, bandwidth=4.0), budget, 4.0, {"bandwidth": price}),
        (cheapest, target, 0.5, {"AccumulatedDelay": dearest}),
    ):
        at = Sensitivity.at(problem, optimum(w, d, c, limit), prices)
        exact = optimum(w + 1e-30j * dw, d + 1e-30j * dd, c + 1e-30j * dc, limit + 1e-30j).imag / 1e-30
        limits = dict.fromkeys(at.labels, 1.0)
        found = at.jvp(importance=dw, change_rate=dd, refresh_cost=dc, limits=limits)
        assert found.rates == pytest.approx(exact, abs=1e-9 * np.max(np.abs(exact)))
        v = random.normal(size=6)
        back = at.vjp(rates=v)
        pulled = (
            back.importance @ dw + back.change_rate @ dd + back.refresh_cost @ dc + sum(back.limits.values())
        )
        assert pulled == pytest.approx(float(v @ exact), rel=1e-8)
    assert at.vjp(value=1.0).refresh_cost == pytest.approx(target(w, d, c, 0.5), rel=1e-10)


@pytest.mark.parametrize("cost", ["each", "once"])
def test_refresh_costs_of_hosts_and_of_tied_sources(cost: Any) -> None:  # noqa: ANN401 - one of two words
    sources = fo.Sources(1.0, host=["a", "b", "b", "b"], refresh_cost=[2.0, 3.0, 5.0, 1.0])
    tied = fo.Tied([None, "x", "x", None], cost=cost)
    problem = fo.Problem(DELAY, sources, 50.0, host_limits={"a": 4.0}, constraints=[tied])
    # Two sources share the rate r: 2/r² = λ·c, with the last one's 1/s² = λ, and c·r + s = 46.
    c = 8.0 if cost == "each" else 5.0
    s = 46.0 / (1.0 + np.sqrt(2.0 * c))
    r, price = s * np.sqrt(2.0 / c), 1.0 / s**2
    prices = {"bandwidth": price, "host[a]": 1.0 / 8.0 - price}
    at = Sensitivity.at(problem, [2.0, r, r, s], prices)
    assert at.degenerate == 0
    assert at.jvp(refresh_cost=[1.0, 0.0, 0.0, 0.0]).rates == pytest.approx([-1.0, 0.0, 0.0, 0.0], abs=1e-10)
    found = at.jvp(refresh_cost=[0.0, 0.0, 1.0, 0.0])
    ds = -46.0 / (1.0 + np.sqrt(2.0 * c)) ** 2 / np.sqrt(2.0 * c)
    dr = ds * np.sqrt(2.0 / c) - 0.5 * r / c
    assert found.rates == pytest.approx([0.0, dr, dr, ds], abs=1e-10)
    # The cheaper one of a bundle costs nothing where one request answers for all.
    assert at.jvp(refresh_cost=[0.0, 1.0, 0.0, 0.0]).rates[1] == pytest.approx(
        dr if cost == "each" else 0.0, abs=1e-10
    )


def test_a_single_source_takes_what_there_is() -> None:
    at = fo.solve(fo.Problem(DELAY, fo.Sources([2.0], refresh_cost=[4.0]), bandwidth=3.0)).sensitivity()
    assert at.jvp(limits={"bandwidth": 1.0}).rates == pytest.approx([0.25], rel=1e-12)
    assert at.jvp(importance=1.0, change_rate=1.0).rates == pytest.approx([0.0], abs=1e-12)
    assert at.degenerate == 0


def test_the_envelope_theorem() -> None:
    sources = fo.Sources([1.0, 2.0, 8.0], [1.0, 0.0, 3.0], host=["a", "a", "b"])
    problem = fo.Problem(BINARY, sources, bandwidth=3.0, host_limits={"b": 1.0})
    solution = fo.solve(problem)
    gradient = solution.sensitivity().vjp(value=1.0)
    fresh = solution.rates / (solution.rates + sources.change_rate)
    assert gradient.importance == pytest.approx(fresh, rel=1e-12)
    assert gradient.limits["bandwidth"] == pytest.approx(solution.price, rel=1e-12)
    assert gradient.limits["host[b]"] == pytest.approx(solution.host_prices["b"], rel=1e-12)
    slope = -sources.importance * solution.rates / (solution.rates + sources.change_rate) ** 2
    assert gradient.change_rate == pytest.approx(slope, rel=1e-10)


def test_limits_on_many_hosts_take_a_sparse_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    n, hosts = 600, 200
    sources = fo.Sources(random.uniform(0.1, 5.0, n), random.uniform(0.1, 5.0, n), host=np.arange(n) % hosts)
    limits = {h: float(random.uniform(0.5, 3.0)) for h in range(hosts)}
    solution = fo.solve(fo.Problem(DELAY, sources, bandwidth=250.0, host_limits=limits))
    dense = solution.sensitivity()
    monkeypatch.setattr(kkt_system, "DENSE", 10)
    sparse = solution.sensitivity()
    assert 50 < len(sparse.binding) < hosts
    change = {"bandwidth": 1.0, **dict.fromkeys(sparse.binding[1:50], 0.1)}
    one, other = (at.jvp(importance=sources.importance, limits=change) for at in (sparse, dense))
    assert one.rates == pytest.approx(other.rates, abs=1e-10)
    assert one.value == pytest.approx(other.value, rel=1e-12)
    assert np.sum(one.rates) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("dense", [0, 1000])
def test_a_limit_that_only_a_bound_meets_moves_nothing(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kkt_system, "DENSE", dense)
    sources = fo.Sources([1.0, 1.0, 4.0], host=["a", "b", "b"], max_rate=[1.0, 9.0, 9.0])
    problem = fo.Problem(DELAY, sources, bandwidth=4.0, host_limits={"a": 1.0})
    at = Sensitivity.at(problem, [1.0, 1.0, 2.0], {"bandwidth": 1.0, "host[a]": 0.25})
    assert at.degenerate == 1
    found = at.jvp(limits={"bandwidth": 3.0, "host[a]": 1.0})
    assert found.rates == pytest.approx([0.0, 1.0, 2.0], abs=1e-10)
    assert found.prices["host[a]"] == 0.0


def test_linear_sources_take_what_the_rows_leave() -> None:
    # Of signalled sources the fresh share is linear: one is refreshed at some of its signals, and its w/Δ is
    # the price; the others are refreshed at all or none.
    w, d = np.array([3.0, 2.0, 1.0, 4.0, 5.0]), np.array([2.0, 2.0, 2.0, 1.0, 3.0])
    sources = fo.Sources(d, w, signalled=[True, True, True, False, False])
    solution = fo.solve(fo.Problem(BINARY, sources, bandwidth=4.5))
    assert solution.price == pytest.approx(1.0, rel=1e-12)
    assert 0.0 < solution.rates[1] < 2.0

    def optimum(w: Any, d: Any, bandwidth: Any) -> Any:  # noqa: ANN401
        price = w[1] / d[1]
        silent = np.sqrt(w[3:] * d[3:] / price) - d[3:]
        return np.array([d[0], bandwidth - d[0] - np.sum(silent), 0.0, *silent])

    assert optimum(w, d, 4.5) == pytest.approx(solution.rates, abs=1e-12)
    at, random = solution.sensitivity(), np.random.default_rng(1)
    dw, dd = random.normal(size=5), random.normal(size=5)
    exact = optimum(w + 1e-30j * dw, d + 1e-30j * dd, 4.5 + 1e-30j).imag / 1e-30
    found = at.jvp(importance=dw, change_rate=dd, limits={"bandwidth": 1.0})
    assert found.rates == pytest.approx(exact, abs=1e-9)
    assert found.prices["bandwidth"] == pytest.approx(dw[1] / 2.0 - 0.5 * dd[1], abs=1e-9)
    assert at.degenerate == 0


def test_sources_at_a_kink_stay() -> None:
    objective = LaterThan(1.0, refresh=fo.Refresh.PERIODIC)
    problem = fo.Problem(objective, fo.Sources([1.0, 1.0, 1.0], [3.0, 2.0, 1.0]), bandwidth=1.5)
    at = Sensitivity.at(problem, [1.0, 0.5, 0.0], {"bandwidth": 2.0})
    assert at.free.tolist() == [False, True, False]
    found = at.jvp(importance=[1.0, 10.0, 1.0], limits={"bandwidth": 1.0})
    assert found.rates.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
    assert found.prices["bandwidth"] == pytest.approx(10.0, rel=1e-12)


# An objective that is not proportional to importance.
Squared = written("Squared", lambda rate, sources: cp.multiply(sources.importance**2, cp.inv_pos(rate)))


def test_importance_may_enter_an_objective_in_any_way() -> None:
    w = np.array([1.0, 2.0, 5.0])
    at = fo.solve(fo.Problem(Squared(), fo.Sources([1.0] * 3, w), bandwidth=4.0)).sensitivity()
    exact = 4.0 * (np.eye(3) / np.sum(w) - w[:, None] / np.sum(w) ** 2)
    for k in range(3):
        assert at.jvp(importance=np.eye(3)[k]).rates == pytest.approx(exact[:, k], abs=1e-10)
        assert at.vjp(rates=np.eye(3)[k]).importance == pytest.approx(exact[k], abs=1e-10)


def test_what_just_touches_is_counted_and_stays() -> None:
    sources = fo.Sources([1.0, 4.0, 9.0], max_rate=[np.inf, 2.0, np.inf])
    at = fo.solve(fo.Problem(DELAY, sources, bandwidth=6.0)).sensitivity()
    assert at.degenerate == 1
    # More bandwidth: the second source, at its bound, takes no more of it.
    assert at.jvp(limits={"bandwidth": 1.0}).rates == pytest.approx([0.25, 0.0, 0.75], abs=1e-9)
    constraints = [fo.Budget(6.0), fo.Budget(6.0, cost=[1.0, 1.0, 1.0], name="again")]
    problem = fo.Problem(DELAY, fo.Sources([1.0, 4.0, 9.0]), constraints=constraints)
    assert Sensitivity.at(problem, [1.0, 2.0, 3.0], {"bandwidth": 1.0}).degenerate == 1
    doubled = Sensitivity.at(problem, [1.0, 2.0, 3.0], {"bandwidth": 0.5, "again": 0.5})
    assert doubled.degenerate == 1
    both = doubled.jvp(limits={"bandwidth": 1.0, "again": 1.0})
    assert both.rates == pytest.approx([1 / 6, 2 / 6, 3 / 6], rel=1e-9)


def test_sources_of_no_importance_have_a_right_derivative_of_the_value() -> None:
    sources = fo.Sources([1.0, 4.0], [1.0, 0.0])
    at = fo.solve(fo.Problem(HARMONIC, sources, bandwidth=3.0)).sensitivity()
    assert np.isinf(at.vjp(value=1.0).importance[1])
    assert np.all(np.isfinite(at.vjp(rates=1.0).importance))
    assert np.isfinite(at.jvp(importance=[1.0, 0.0]).value)


def test_what_has_no_derivatives_says_so() -> None:
    sources = fo.Sources([1.0, 4.0])
    solution = fo.solve(fo.Problem(DELAY, sources, bandwidth=3.0))
    with pytest.raises(fo.SourceDataError, match="limits name 'kB', but the rows are 'bandwidth'"):
        solution.sensitivity().jvp(limits={"kB": 1.0})
    with pytest.raises(fo.SourceDataError, match="change_rate has shape"):
        solution.sensitivity().jvp(change_rate=[1.0, 2.0, 3.0])
    fairest = fo.Worst(DELAY, by=["a", "b"], then="next")
    with pytest.raises(fo.ObjectiveError, match="leximin"):
        Sensitivity.at(fo.Problem(fairest, sources, bandwidth=3.0), [1.0, 2.0], {})
    coupled = fo.Problem(
        DELAY, sources, 3.0, constraints=lambda rate: [cp.norm(np.ones((2, 2)) @ rate) <= 9.0]
    )
    with pytest.raises(fo.ObjectiveError, match="Derivatives need constraints that are rows"):
        Sensitivity.at(coupled, [1.0, 2.0], {})
    refused = ClosedForm().solve(fo.Problem(AGE, sources, bandwidth=3.0))
    with pytest.raises(fo.CertificateError, match="no rates to differentiate"):
        refused.sensitivity()


def test_the_repr_says_what_moves() -> None:
    solution = fo.solve(fo.Problem(DELAY, fo.Sources([1.0, 4.0]), bandwidth=3.0))
    assert repr(solution.sensitivity()) == "Sensitivity(2 of 2 rates move, 1 of 1 rows bind, 0 degenerate)"


def test_where_no_row_binds_only_bounds_move() -> None:
    sources = fo.Sources([1.0, 2.0], [3.0, 1.0], signalled=True)
    at = fo.solve(fo.Problem(BINARY, sources, bandwidth=10.0)).sensitivity()
    assert at.binding == ()
    found = at.jvp(change_rate=[1.0, 0.0], importance=1.0, limits={"bandwidth": 1.0})
    assert found.rates.tolist() == pytest.approx([1.0, 0.0])
    assert found.prices == {"bandwidth": 0.0}
    # All changes are seen at any change rate: the fresh share stays 1.
    assert found.value == pytest.approx(2.0, abs=1e-9)
    assert at.vjp(rates=[1.0, 1.0]).change_rate == pytest.approx([1.0, 1.0])


def test_kinks_that_move_with_the_change_rate_carry_their_sources() -> None:
    """Every N-th signal is followed: a rate of Δ/N stays one as Δ grows, and the others make room."""
    d, signalled = np.array([0.4, 1.0, 3.0, 0.2, 6.0, 0.9]), np.arange(6) < 3
    w = np.array([1.0, 2.0, 0.5, 3.0, 4.0, 1.0])

    def solved(change_rate: Floats) -> fo.Solution:
        sources = fo.Sources(change_rate, w, signalled=signalled)
        return fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), sources, bandwidth=1.0))

    solution = solved(d)
    at, held = solution.sensitivity(), np.flatnonzero(~solution.sensitivity().free)
    assert held.tolist() == [0, 1, 2]
    assert d[held] / solution.rates[held] == pytest.approx([4.0, 5.0, 56.0])
    room = at.jvp(limits={"bandwidth": 1.0}).rates
    for k in held:
        one = np.eye(6)[k] * d[k]
        change, step = at.jvp(change_rate=one), 1e-5
        expected = one * solution.rates / d - solution.rates[k] * room
        assert change.rates == pytest.approx(expected, rel=1e-9, abs=1e-15)
        ahead, behind = solved(d + step * one).value, solved(d - step * one).value
        assert change.value == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)
        backward = at.vjp(rates=w, value=0.7).change_rate @ one
        assert backward == pytest.approx(w @ change.rates + 0.7 * change.value, rel=1e-9)


@pytest.mark.parametrize("bandwidth", [0.9, 0.99, 0.999])
def test_marginals_that_end_at_every_signal_are_smooth(bandwidth: float) -> None:
    """Of ages after signals J' = (1/Δ² − 1/ρ²)/2: in relative terms it falls ever faster towards ρ = Δ."""
    d, w = np.array([0.3, 1.0, 4.0]), np.array([1e3, 1.0, 30.0])
    sources = fo.Sources(d, w, signalled=True)
    solution = fo.solve(fo.Problem(fo.problems.Age(), sources, bandwidth=bandwidth * d.sum()))
    at, cubed = solution.sensitivity(), solution.rates**3
    assert at.free.all()
    share = cubed / w / (cubed / w).sum()
    assert at.jvp(limits={"bandwidth": 1.0}).rates == pytest.approx(share, rel=1e-6)
    for k in range(3):
        own = np.eye(3)[k] * cubed / d**3
        moved = at.jvp(change_rate=np.eye(3)[k]).rates
        assert moved == pytest.approx(own - share * own.sum(), rel=1e-5, abs=1e-9)


def test_sources_without_change_rates() -> None:
    sized = written("Sized", lambda rate, sources: cp.multiply(sources["size"], cp.inv_pos(rate)))
    sources = fo.Sources(columns={"size": [1.0, 4.0, 9.0]})
    change = fo.solve(fo.Problem(sized(), sources, 3.0)).sensitivity().jvp(limits={"bandwidth": 1.0})
    assert change.rates == pytest.approx(np.array([1.0, 2.0, 3.0]) / 6.0)
    assert change.value == pytest.approx(-((6.0 / 3.0) ** 2))

"""The certificate: valid for every candidate, exact at the optimum, honest about what it cannot prove."""

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.row_repair import repair
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Uniform
from tests.ground_truth import truth
from tests.ground_truth.cases import as_cost, as_problem
from tests.ground_truth.cell_truth import CURVES
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present, written
from tests.ground_truth.refusals import refused
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import matrix, rare, stratified
from tests.ground_truth.strategies import FAMILIES, FETCHED, PLAIN, sample
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.ground_truth.truth import Floats, Instance, instance
from tests.ground_truth.unknown_atom import stranger

CANDIDATES = 15  # per instance; × 36 instances = 540


def candidate(rng: np.random.Generator, kind: int, plain: Instance, optimal: Floats) -> Floats:
    """Draw rates: near the optimum, far from it, terrible, infeasible."""
    n, share = len(optimal), plain.bandwidth / len(optimal) / plain.cost
    caps = np.minimum(plain.caps(), 1e3 * plain.bandwidth)
    if kind == 0:
        return optimal
    if kind <= 4:
        return np.clip(optimal * np.exp(rng.normal(0.0, 10.0**-kind, n)), plain.lower, caps)
    if kind <= 7:
        return share * rng.dirichlet(np.ones(n)) * n
    if kind == 8:
        return np.array(np.clip(share, plain.lower, caps))
    if kind == 9:  # nearly everything to one source
        rates = 1e-9 * share
        rates[rng.integers(n)] = plain.bandwidth
        return rates
    if kind == 10:  # every rate too small by decades
        return share * 10.0 ** rng.uniform(-12.0, -3.0, n)
    if kind == 11:  # everybody over their caps and the budget
        return 50.0 * share
    if kind == 12:
        return np.array(plain.lower)
    return share * 10.0 ** rng.uniform(-3.0, 3.0, n)


@functools.cache
def solved(curve: str, discipline: str, family: str) -> tuple[Instance, fo.Problem, truth.Optimum]:
    plain = sample(7, curve, discipline, family, 5, ill=family == "costs", budget=0.4)
    return plain, as_problem(plain), truth.best(plain)


@pytest.mark.parametrize(
    ("curve", "discipline", "family", "kind"),
    [
        *stratified(CURVES, PLAIN, FAMILIES, range(CANDIDATES), every=23),
        *stratified(CURVES, FETCHED, FAMILIES, range(CANDIDATES), every=66, of=6),
    ],
)
def test_bound_is_never_below_the_true_gap(curve: str, discipline: str, family: str, kind: int) -> None:
    plain, problem, best = solved(curve, discipline, family)
    rng = np.random.default_rng([8, kind])
    named = {host: best.host_prices[int(host)] for host in problem.host_limits}
    rates = candidate(rng, kind, plain, best.rates)
    for price, host_prices in (
        (None, None),
        (best.price, named),
        (best.price * float(10.0 ** rng.uniform(-4.0, 4.0)), None),
        (float(10.0 ** rng.uniform(-6.0, 6.0)), {host: float(rng.exponential()) for host in named}),
    ):
        proof = fo.certify(problem, rates, price, host_prices)
        cost = truth.total_cost(plain, proof.rates)
        if not math.isfinite(cost):
            assert proof.gap == math.inf
            continue
        assert proof.gap >= cost - best.value - EXACT * (best.scale + cost), price
        assert abs(as_cost(plain, proof.value) - cost) <= EXACT * (cost + float(np.sum(plain.importance)))
        if math.isfinite(proof.gap):
            assert as_cost(plain, proof.bound) <= best.value + EXACT * (best.scale + cost)


@pytest.mark.parametrize(
    ("curve", "discipline", "family"),
    [*stratified(CURVES, PLAIN, FAMILIES, every=3), *stratified(CURVES, FETCHED, FAMILIES, every=23)],
)
@pytest.mark.sampled(3)
def test_optimum_is_proved_and_its_price_found(curve: str, discipline: str, family: str) -> None:
    plain = sample(9, curve, discipline, family, 5, budget=0.4)
    problem, best = as_problem(plain), truth.best(plain)
    named = {host: best.host_prices[int(host)] for host in problem.host_limits}
    assert fo.certify(problem, best.rates, best.price, named).relative_gap <= EXACT
    assert fo.certify(problem, best.rates).relative_gap <= SCALAR


@matrix(prices=[9, *rare(41)], every=5)
@pytest.mark.parametrize(
    ("cell", "family", "used"),
    stratified(
        [(10, "harmonic", "poisson"), (11, "count", "poisson"), (12, "binary", "periodic")],
        FAMILIES,
        [1.0, 0.2],
        every=3,
    ),
)
def test_no_price_is_better_than_the_one_that_is_searched(
    cell: tuple[int, str, str], family: str, used: float, prices: int
) -> None:
    """The bound of rates far from optimal has several valleys; the search ends in the deepest."""
    seed, curve, discipline = cell
    problem = as_problem(sample(seed, curve, discipline, family, 5, budget=0.4))
    rates = np.maximum(problem.lower, used * fo.solve(problem, Uniform()).rates)
    found = fo.certify(problem, rates)
    assert found.infeasibility == 0.0
    for price in found.price * np.logspace(-2.0, 2.0, prices):
        assert fo.certify(problem, rates, float(price)).gap >= found.gap * (1.0 - SCALAR)


@matrix(curve=CURVES, discipline=["poisson", "periodic"])
def test_terms_are_those_of_the_formula(curve: str, discipline: str) -> None:
    """Of each source the smaller bound: by costs in 40 digits, or by tangents where rates are near."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        d, w = rng.lognormal(0.0, 1.0, (2, 6))
        plain = instance(curve, discipline, d, 3.0, importance=w)
        problem, own = as_problem(plain), present(as_problem(plain).numerics)
        rates = 3.0 * rng.dirichlet(np.ones(6))
        price = 1.1 * float(np.median(own.marginal(rates)))
        bought = own.inverse_marginal(np.full(6, price))

        def bounds(
            rates: Floats,
            own: Any = own,  # noqa: ANN401
            price: float = price,
            bought: Floats = bought,
            plain: Instance = plain,
        ) -> tuple[float, float]:
            unused = price * (3.0 - math.fsum(rates))
            tangents = math.fsum(np.maximum(0.0, (bought - rates) * (own.marginal(rates) - price)))
            dual = truth.total_cost(plain, rates) - truth.total_cost(plain, bought)
            return tangents + unused, dual + price * math.fsum(rates - bought) + unused

        tangents, dual = bounds(rates)
        found = fo.certify(problem, rates, price)
        assert dual * (1.0 - EXACT) <= found.gap <= dual * (1.0 + SCALAR)
        assert found.gap < tangents
        near = bought * (1.0 + 1e-8 * rng.standard_normal(6))
        filled, unused = problem.with_bandwidth(math.fsum(near)), price * (3.0 - math.fsum(near))
        close, rounding = bounds(near)[0] - unused, 1e-15 * price * math.fsum(near)
        assert 0.0 < fo.certify(filled, near, price).gap <= 9.0 * close + rounding


def test_gap_of_two_sources_by_hand() -> None:
    """Delay, Δ = (1, 4), B = 3, ρ = (1.5, 1.5): cost 10/3 against 3; at λ = 1 each term by hand.

    ρ̂ = (1, 2), and Δ/ρ + ρ falls from 13/6 to 2 and from 25/6 to 4. Tangents f' = Δ/ρ² = (4/9, 16/9) tell
    5/18 and 7/18, twice as much.
    """
    problem = as_problem(instance("count", "poisson", [1.0, 4.0], 3.0))
    proof = fo.certify(problem, [1.5, 1.5], 1.0)
    # Rounding of costs is counted as 1e-12 of them, those at ρ and those at ρ̂.
    assert 1.0 / 3.0 <= proof.gap <= 1.0 / 3.0 + 7.0 * EXACT
    assert abs(proof.value - 10.0 / 3.0) <= EXACT
    assert abs(proof.bound - (10.0 / 3.0 - proof.gap)) <= EXACT
    assert abs(proof.relative_gap - proof.gap / (10.0 / 3.0 + 3.0)) <= EXACT


def test_slack_is_paid_for_at_the_price() -> None:
    """One source at its optimal rate for λ = 1 with half of the bandwidth left: the gap is λ·slack."""
    problem = as_problem(instance("count", "poisson", [1.0], 2.0))
    assert abs(fo.certify(problem, [1.0], 1.0).gap - 1.0) <= EXACT


@pytest.mark.parametrize("kind", [AccumulatedDelay, BinaryFreshness, HarmonicStaleness])
def test_price_zero_proves_nothing_where_rates_are_unbounded(kind: type) -> None:
    proof = fo.certify(fo.Problem(kind(), fo.Sources([1.0, 2.0]), 3.0), [1.0, 2.0], 0.0)
    assert proof.gap == proof.relative_gap == math.inf
    assert proof.reason
    assert not proof.confirms(1e300)


@pytest.mark.parametrize("kind", [AccumulatedDelay, HarmonicStaleness])
def test_rates_of_infinite_cost_have_no_bound(kind: type) -> None:
    proof = fo.certify(fo.Problem(kind(), fo.Sources([1.0, 2.0]), 3.0), [1.0, 0.0])
    assert proof.value == proof.gap == proof.relative_gap == math.inf
    assert proof.bound == -math.inf
    assert proof.reason


def test_price_zero_is_proof_enough_where_every_cap_is_reached() -> None:
    problem = fo.Problem(HARMONIC, fo.Sources([1.0, 2.0], max_rate=[0.5, 1.0]), 3.0)
    assert fo.certify(problem, [0.5, 1.0], 0.0).gap == 0.0
    assert fo.certify(problem, [0.5, 1.0]).relative_gap <= EXACT


def test_cost_zero_counts_as_optimal_by_its_absolute_gap() -> None:
    problem = fo.Problem(HARMONIC, fo.Sources([1.0, 2.0], signalled=True), 5.0)
    proof = fo.certify(problem, [1.0, 2.0])
    assert proof.value == 0.0
    assert proof.confirms(1e-6)
    near = fo.certify(problem, [1.0 - 1e-15, 2.0])
    assert near.vanishing
    assert near.gap > 0.0 == near.relative_gap
    assert near.confirms(1e-6)
    assert not fo.certify(problem, [0.9, 2.0]).confirms(1e-6)


def test_infeasible_rates_are_repaired_and_reported() -> None:
    sources = fo.Sources(
        [1.0, 1.0, 1.0], min_rate=[0.1, 0.0, 0.0], max_rate=[np.inf, 2.0, np.inf], host=["a", "b", "b"]
    )
    problem = fo.Problem(DELAY, sources, 4.0, {"b": 1.5})
    proof = fo.certify(problem, [0.0, 4.0, 1.0])
    assert proof.infeasibility == 1.0  # the first rate is 0 where at least 0.1 is asked for
    assert np.all(proof.rates >= [0.1, 0.0, 0.0])
    assert abs(proof.rates[1] + proof.rates[2] - 1.5) <= EXACT
    assert abs(proof.rates[1] / proof.rates[2] - 2.0) <= EXACT  # shrunk in proportion after the cap of 2
    over = fo.certify(fo.Problem(DELAY, fo.Sources([1.0, 1.0]), 4.0), [3.0, 3.0])
    assert abs(over.infeasibility - 0.5) <= EXACT
    assert np.all(np.abs(over.rates - 2.0) <= EXACT)


@matrix(scale=[1e4, 1e9, 1e14, 1e20], every=3)
def test_rates_far_beyond_the_limits_are_repaired_to_a_few_ulp(scale: float) -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], min_rate=[0.0, 0.1, 0.0], host=["a", "a", "b"])
    for limits in ({}, {"a": 0.6}):
        problem = fo.Problem(HARMONIC, sources, 1.0, limits)
        proof = fo.certify(problem, np.array([1.1, 1.7, 0.3]) * scale)
        assert math.fsum(proof.rates) == pytest.approx(1.0, rel=EXACT)
        best = present(fo.solve(problem).certificate)
        assert proof.value >= best.bound
    held = fo.certify(fo.Problem(HARMONIC, sources, 10.0, {"a": 0.6}), [1.1 * scale, scale, 3.0])
    assert held.rates[0] + held.rates[1] == pytest.approx(0.6, rel=EXACT)
    assert held.rates[2] == 3.0


def test_negative_rates_are_clipped() -> None:
    proof = fo.certify(fo.Problem(BINARY, fo.Sources([1.0, 1.0]), 4.0), [-1.0, 3.0])
    assert proof.rates[0] == 0.0
    assert proof.infeasibility == 1.0


def test_rounding_is_no_violation_and_rates_come_back_as_they_were() -> None:
    problem = fo.Problem(DELAY, fo.Sources([1.0] * 3), 0.3)
    rates = np.array([0.1, 0.1, 0.1 + 3e-17])
    repaired, worst = repair(problem, rates)
    assert worst == 0.0
    assert repaired is rates


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        (([1.0, np.nan],), ("rates are not finite for source 1", "Pass numbers")),
        (([1.0, np.inf],), ("rates are not finite for source 1",)),
        (([1.0],), ("rates has shape (1,)", "2 sources")),
        ((["a", "b"],), ("rates must be numbers",)),
        (([1.0, 1.0], -1.0), ("price is -1.0", ">= 0")),
        (([1.0, 1.0], math.nan), ("price is nan",)),
        (([1.0, 1.0], 1.0, {"x": 1.0}), ("hosts without a limit: 'x'", "Drop")),
        (([1.0, 1.0], 1.0, {"h": -1.0}), ("host_prices must be numbers >= 0",)),
    ],
)
def test_bad_candidates_are_refused_by_name(arguments: tuple[Any, ...], phrases: tuple[str, ...]) -> None:
    problem = fo.Problem(DELAY, fo.Sources([1.0, 2.0], host=["h", "h"]), 3.0, {"h": 2.0})
    with pytest.raises(fo.SourceDataError) as caught:
        fo.certify(problem, *arguments)
    assert all(phrase in str(caught.value) for phrase in phrases)


# An atom that nothing here can differentiate.
Strange = written("Strange", lambda rate, _sources: stranger(rate - 5.0))


def test_unknown_atoms_prove_nothing_but_are_evaluated() -> None:
    problem = fo.Problem(Strange(), fo.Sources([1.0, 2.0]), 3.0)
    proof = fo.certify(problem, [1.0, 2.0])
    assert "'stranger'" in proof.reason
    assert proof.gap == proof.relative_gap == math.inf
    assert proof.bound == -math.inf
    assert abs(proof.value - (7.0 + 5.0)) <= EXACT  # it is 2|x| − 1 beyond 1
    assert not proof.confirms(1.0)


def test_repr_is_one_line_without_arrays() -> None:
    text = repr(fo.certify(fo.Problem(DELAY, fo.Sources([1.0] * 50), 3.0), np.full(50, 0.06)))
    assert "\n" not in text
    assert "[" not in text
    assert "relative_gap=" in text


@pytest.mark.parametrize("price", [None, 1e20, 1e40])
def test_min_rates_that_use_up_nearly_all_bandwidth_hide_no_gap(price: float | None) -> None:
    """A rate next to 0 has a slope of 1e30; beside λB at such prices a gap of 1e11 times the cost is 1e-7."""
    sources = fo.Sources([1.0, 1.0], min_rate=[1.0 - 1e-7, 0.0])
    problem = fo.Problem(HARMONIC, sources, 1.0)
    poor = fo.certify(problem, [1.0 - 1e-30, 1e-30], price)
    assert poor.value > 4.0 * fo.solve(problem).value
    assert poor.relative_gap > 0.5
    assert not poor.confirms(1e-6)
    assert fo.certify(problem, fo.solve(problem).rates).confirms(SCALAR)


@pytest.mark.parametrize("changed_cost", [0.0, 3.0])
def test_rates_beyond_their_bounds_are_infeasible_whatever_a_fetch_costs(changed_cost: float) -> None:
    sources = fo.Sources([1.0, 2.0, 0.5], min_rate=0.1, max_rate=1.0, changed_cost=changed_cost)
    problem = fo.Problem(BINARY, sources, 20.0)
    assert fo.certify(problem, [1.0, 1.0, 5.0]).infeasibility == pytest.approx(0.8, rel=EXACT)
    assert fo.certify(problem, [1.0, 0.05, 1.0]).infeasibility == pytest.approx(0.5, rel=EXACT)
    assert fo.certify(problem, [1.0, 1.0, 1.0]).infeasibility == 0.0
    refused("not finite", fo.certify, problem, [1.0, np.inf, 1.0])


@matrix(compiled=[False, True], every=2)
def test_what_rounding_takes_from_a_limit_is_counted(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """One source, cost wΔ/ρ, best at B/c: fractions tell the true gap of rates as they are stored."""
    if compiled:
        compile_all(monkeypatch)
    rng, short = np.random.default_rng(3), 0
    for _ in range(150):
        d, w, c = 10.0 ** rng.uniform([-6.0, -6.0, -1.0], [4.0, 6.0, 1.0])
        problem = fo.Problem(DELAY, fo.Sources([d], [w], refresh_cost=c), d * 10.0 ** rng.uniform(-3.0, 1.3))
        found = fo.solve(problem)
        proofs = [present(found.certificate), fo.certify(problem, found.rates, found.price)]
        less = found.rates * (1.0 - 10.0 ** rng.uniform(-17.0, -3.0))
        proofs += [fo.certify(problem, less), fo.certify(problem, less, found.price)]
        proofs += [present(one.certificate) for one in fo.solve_many([problem, problem])]
        for proof in proofs:
            rate, best = Fraction(float(proof.rates[0])), Fraction(problem.bandwidth) / Fraction(c)
            true = Fraction(w) * Fraction(d) * (1 / rate - 1 / best)
            assert Fraction(proof.gap) >= true
            unused = problem.bandwidth - float(c * proof.rates[0])
            short += proof.price * max(0.0, unused) < true
            assert proof.relative_gap <= 1e-15 or proof.rates[0] < found.rates[0]
    assert short > 20  # of slacks as float64 has them

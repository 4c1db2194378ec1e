"""Best responses: ages from tables, conditional fetches and host prices, against roots in many digits."""

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammainc

import freshopt as fo
from freshopt.compiled import demand_functions
from freshopt.compiled.cells import conditional_functions
from freshopt.compiled.column_passes import best_response, fill_rates
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.host_search import (
    AT_ONCE,
    GOES_ON,
    JUMPS,
    LATE,
    LINEAR,
    MET,
    HostSearch,
    search_price,
    settle_host,
    write_mixture,
)
from freshopt.compiled.source_columns import SearchStart, SourceColumns
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.problems import Age
from tests.ground_truth.named import (
    AGE,
    AGE_PERIODIC,
    BINARY,
    BINARY_PERIODIC,
    DELAY,
    DELAY_PERIODIC,
    HARMONIC,
    HARMONIC_PERIODIC,
    present,
)
from tests.ground_truth.routes import compile_all, require_same_compiled
from tests.ground_truth.tolerances import EXACT

# Half-ulps of a polynomial, of its argument's quotient, and of the product with the change rate.
FEW_ULP = 2e-15
DISCIPLINES = [fo.Refresh.POISSON, fo.Refresh.PERIODIC]
DEMANDS = {
    fo.Refresh.POISSON: demand_functions.age_poisson,
    fo.Refresh.PERIODIC: demand_functions.age_periodic,
}


def marginal(refresh: fo.Refresh, rate: mpmath.mpf, d: mpmath.mpf) -> mpmath.mpf:
    """Return −J'(ρ) as it is printed."""
    if refresh is fo.Refresh.POISSON:
        return d * (2 * rate + d) / (rate * (rate + d)) ** 2
    u = d / rate
    if u < mpmath.mpf("1e-12"):
        return (u**3 / 3 - u**4 / 8 + u**5 / 30) / d**2
    return (u**2 / 2 - 1 + (1 + u) * mpmath.exp(-u)) / d**2


def truth(refresh: fo.Refresh, worth: float, d: float) -> mpmath.mpf:
    """Return the rate whose marginal value is 1/worth, by bisection on logarithms."""
    price, change = 1 / mpmath.mpf(worth), mpmath.mpf(d)
    low, high = mpmath.mpf("1e-260"), mpmath.mpf("1e260")
    for _ in range(90):
        middle = mpmath.sqrt(low * high)
        low, high = (middle, high) if marginal(refresh, middle, change) > price else (low, middle)
    return mpmath.sqrt(low * high)


def pairs() -> list[tuple[float, float]]:
    """Return marginal values and change rates: usual, extreme, and where tables change over to limits."""
    rng = np.random.default_rng(20)
    usual = [(10.0 ** rng.uniform(-21, 21), 10.0 ** rng.uniform(-6, 4)) for _ in range(30)]
    extreme = [(10.0 ** rng.uniform(-300, 300), 10.0 ** rng.uniform(-100, 100)) for _ in range(20)]
    ends = [(math.ldexp(1.0 + e, -k), 1.0) for k in (-81, -80, 0, 55, 56) for e in (-1e-9, 0.0, 1e-9)]
    return [*usual, *[(a, d) for a, d in extreme if 1e-290 < a * d < 1e290], *ends]


@pytest.mark.parametrize("refresh", DISCIPLINES)
def test_table_gives_the_root_of_the_printed_equation(refresh: fo.Refresh) -> None:
    objective = Age(refresh)
    with mpmath.workdps(60):
        for worth, d in pairs():
            exact = truth(refresh, worth, d)
            compiled = DEMANDS[refresh](worth, d)
            assert abs(compiled / exact - 1) < FEW_ULP, (worth, d)
            if 1e-290 < worth < 1e290:
                kernel = present(objective.kernel(fo.Sources([d])))
                plain = float(kernel.inverse_marginal(np.array([1.0 / worth]))[0])
                assert abs(plain / exact - 1) < FEW_ULP, (worth, d)


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", DISCIPLINES)
def test_rates_rise_with_the_marginal_value_up_to_rounding(refresh: fo.Refresh) -> None:
    for d in (1e-100, 1e-6, 1.0, 1e4, 1e100):
        worth = np.exp(np.linspace(math.log(1e-300), math.log(1e300), 20_001))
        with np.errstate(over="ignore", under="ignore"):
            rates = np.array([DEMANDS[refresh](float(a), d) for a in worth])
        assert np.all(np.isfinite(rates))
        assert np.all(rates >= 0.0)
        assert np.all(rates[1:] >= rates[:-1] * (1.0 - FEW_ULP))


@pytest.mark.parametrize("refresh", DISCIPLINES)
@pytest.mark.parametrize("d", [1e-100, 5e-7, 1.0, 1e100])
def test_ends_of_the_floats_are_no_trouble(refresh: fo.Refresh, d: float) -> None:
    with np.errstate(all="ignore"):
        at_zero, least, most, infinite = (
            DEMANDS[refresh](np.float64(a), np.float64(d)) for a in (0.0, 1e-310, 1.7e308, math.inf)
        )
    assert at_zero == 0.0
    assert 0.0 < least < most
    assert infinite > 0.0
    assert not math.isnan(infinite)


CELLS: dict[str, tuple[Demand, fo.Objective]] = {
    "binary": (conditional_functions.binary_changed, BINARY_PERIODIC),
    "harmonic": (conditional_functions.harmonic_changed, HARMONIC_PERIODIC),
    "delay": (conditional_functions.delay_changed, DELAY_PERIODIC),
    "age": (conditional_functions.age_changed, AGE_PERIODIC),
    "binary, Poisson": (conditional_functions.binary_changed_poisson, BINARY),
    "harmonic, Poisson": (conditional_functions.harmonic_changed_poisson, HARMONIC),
    "delay, Poisson": (conditional_functions.delay_changed_poisson, DELAY),
    "age, Poisson": (conditional_functions.age_changed_poisson, AGE),
}


def marginal_conditional(name: str, u: float, d: float) -> float:
    """Return −J' at ρ = Δ/u by the textbook formulas, for u that are not small."""
    value: float = {
        "binary": gammainc(2.0, u) / d,
        "harmonic": (u + np.expm1(-u)) / d,
        "delay": u * u / (2.0 * d),
        "age": (u * u / 2.0 - gammainc(2.0, u)) / d**2,
        "binary, Poisson": d / (d / u + d) ** 2,
        "harmonic, Poisson": d / (d / u * (d / u + d)),
        "delay, Poisson": d / (d / u) ** 2,
        "age, Poisson": d * (2.0 * d / u + d) / (d / u * (d / u + d)) ** 2,
    }[name]
    return value


def changed(name: str, u: float) -> tuple[float, float]:
    """Return what a fetch finds changed, and by how much more one at a higher rate."""
    if name.endswith("Poisson"):
        return u / (1.0 + u), (u / (1.0 + u)) ** 2
    return float(-np.expm1(-u)), float(gammainc(2.0, u))


@pytest.mark.parametrize("name", CELLS)
def test_best_responses_are_roots_of_the_marginal_per_bandwidth(name: str) -> None:
    demand, rng = CELLS[name][0], np.random.default_rng(len(name))
    for _ in range(60):
        worth, d, c0, c1 = 10.0 ** rng.uniform(-1.5, 1.5, 4)

        def excess(log_u: float, own: tuple[float, float, float, float] = (worth, d, c0, c1)) -> float:
            worth, d, c0, c1 = own
            u = np.exp(log_u)
            return float(
                np.log(worth * marginal_conditional(name, u, d)) - np.log(c0 + c1 * changed(name, u)[1])
            )

        if excess(6.0) <= 0.0:
            assert not name.startswith("binary") or demand(worth, d, d, c0, c1) == 0.0
            continue
        if excess(-4.0) >= 0.0:
            continue
        u = float(np.exp(brentq(excess, -4.0, 6.0, xtol=1e-14, rtol=1e-14)))
        used = d / u * (c0 + c1 * changed(name, u)[0])
        assert demand(worth, d, d, c0, c1) == pytest.approx(used, rel=1e-9)


@pytest.mark.parametrize("name", CELLS)
def test_best_responses_are_those_of_numpy_at_any_scale(name: str) -> None:
    demand, objective = CELLS[name]
    rng = np.random.default_rng(5)
    d, w, c0, c1, price = 10.0 ** rng.uniform(-8.0, 8.0, (5, 60))
    c1[:10] = 0.0
    twin = present(
        fo.Problem(objective, fo.Sources(d, w, refresh_cost=c0, changed_cost=c1), 1.0).per_bandwidth
    )
    expected = present(twin.numerics).inverse_marginal(price)
    found = [demand(*own) for own in zip(w / price, d, d, c0, c1, strict=True)]
    assert found == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("name", CELLS)
def test_worth_nothing_and_everything(name: str) -> None:
    demand = CELLS[name][0]
    with np.errstate(all="ignore"):
        assert demand(np.float64(0.0), *np.array([2.0, 2.0, 1.0, 5.0])) == 0.0
        assert demand(np.float64(np.inf), *np.array([2.0, 2.0, 1.0, 5.0])) > 1e100


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CELLS)
def test_compiled_solutions_are_those_of_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    d, w, c0, c1 = rng.lognormal(0.0, 1.0, (4, n))
    host = rng.integers(0, 20, n)
    sources = fo.Sources(d, w, refresh_cost=c0, changed_cost=10.0 * c1, host=host)
    problem = fo.Problem(CELLS[name][1], sources, 6000.0, {0: 50.0, 3: 20.0})
    require_same_compiled(problem, monkeypatch, gap=1e-9)


MEMBERS = 30


def steps(worth: float, d: float) -> float:
    """Return Δ where a signal is worth its price, else 0."""
    return d if worth >= d else 0.0


def plateau(worth: float, d: float) -> float:
    """Return a demand that rises from d / 37 at a step."""
    return d / 37.0 * math.sqrt(worth / d) if worth >= d else 0.0


KINDS = {"steps": steps, "plateau": plateau}


def both(worth: float, d: float, signalled: bool) -> float:
    """Return all or nothing on signals, else √(aΔ) − Δ."""
    return steps(worth, d) if signalled else max(0.0, math.sqrt(worth * d) - d)


def spare(own: SourceColumns) -> SourceColumns:
    """Return memory for copies of a source."""
    memory = np.empty((5, AT_ONCE))
    signalled = np.zeros(AT_ONCE, dtype=np.bool_)
    return SourceColumns(signalled, memory[0], (memory[1],) * len(own.parameters), *memory[2:5])


def searched(kind: str, seed: int, ties: int = 0) -> tuple[HostSearch, Array, Array, BoolArray, float]:
    """Return a search, w, d, who is signalled, and the limit; w/d may have few values."""
    rng = np.random.default_rng(seed)
    d, w = rng.lognormal(size=MEMBERS), rng.lognormal(size=MEMBERS)
    signalled = rng.random(MEMBERS) < {"steps": 1.0, "plateau": 0.0, "both": 0.5}[kind]
    one = np.ones(MEMBERS)
    # Uncompiled, the logarithm of no demand is an error: a little is always asked for.
    own = SourceColumns(signalled, w, (d,), one, 1e-15 * one, np.inf * one)
    if ties:
        w[:] = d * rng.choice(rng.lognormal(size=ties), MEMBERS)
    limit = float(rng.uniform(0.02, 0.6)) * float(np.sum(d)) * (1.0 / 37.0 if kind == "plateau" else 1.0)

    def rate(signalled: bool, worth: tuple[float], parameters: tuple[float]) -> float:
        return plateau(*worth, *parameters) if kind == "plateau" else both(*worth, *parameters, signalled)

    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        for k in range(len(rates)):
            rates[k] = best_response(rate, columns, k, inverse_price)

    floor = 1e-3
    used = sum(rate(s, (a / floor,), (b,)) for s, a, b in zip(signalled.tolist(), w, d, strict=True))
    start = SearchStart(math.log(floor), 0.0, 1.0, True)
    found = search_price(
        respond, own, limit, math.log(used / limit), start, np.empty(MEMBERS), np.empty(MEMBERS), spare(own)
    )
    return found, w, d, signalled, limit


@pytest.mark.parametrize("kind", ["steps", "plateau", "both"])
def test_a_step_that_crosses_the_limit_is_enclosed_within_few_turns(kind: str) -> None:
    """The step is where importance over change rate is the price; halving alone would take 43 turns."""
    jumped = []
    for seed in range(60):
        found, w, d, signalled, _ = searched(kind, seed)
        if found.state == JUMPS:
            places = np.log(w / d)[signalled if kind == "both" else slice(None)]
            inside = (places >= found.low - 1e-13) & (places <= found.high + 1e-13)
            assert np.sum(inside) == 1
            assert found.high - found.low <= 3e-13
            jumped.append(found.turn)
    assert len(jumped) >= 15
    assert float(np.mean(jumped)) < 24.0
    assert max(jumped) <= LATE + 48


@pytest.mark.parametrize("ties", [1, 2, 3])
@pytest.mark.parametrize("kind", ["steps", "plateau"])
def test_many_steps_at_one_price_are_enclosed_within_few_turns(kind: str, ties: int) -> None:
    """However often the bracket is halved, as many steps are left in it."""
    found = [searched(kind, seed, ties) for seed in range(30)]
    for each, w, d, _, limit in found:
        beside = each.low - 1e-12, each.high + 1e-12
        used = [math.fsum(map(KINDS[kind], (w * math.exp(-x)).tolist(), d.tolist())) for x in beside]
        assert each.state != GOES_ON
        assert each.state != JUMPS or used[0] > limit >= used[1]
    assert float(np.mean([each.turn for each, *_ in found])) < 20.0


@pytest.mark.parametrize("seed", range(60))
def test_demand_crosses_the_limit_between_both_ends(seed: int) -> None:
    found, w, d, signalled, limit = searched("both", seed)

    def demand(x: float) -> float:
        worth = w * math.exp(-x)
        return math.fsum(map(both, worth.tolist(), d.tolist(), signalled.tolist()))

    if found.state == JUMPS:
        assert demand(found.low - 1e-12) > limit >= demand(found.high + 1e-12)
    else:
        # Rates and price are interpolated from the last two.
        near = 2.0 * abs(found.x - found.before) if found.state == LINEAR else 1e-11
        assert demand(found.x - near) > limit > demand(found.x + near)


@pytest.mark.parametrize("floor", [1e-290, 0.03])
def test_a_ceiling_of_demand_at_the_floor_does_not_delay_a_search(floor: float) -> None:
    """At their upper bounds rates are no power of the price, and the floor tells nothing."""
    rng, turns = np.random.default_rng(3), []
    for _ in range(60):
        d, w = rng.lognormal(size=MEMBERS), rng.lognormal(size=MEMBERS)
        one, upper = np.ones(MEMBERS), rng.uniform(0.2, 3.0, MEMBERS)
        own = SourceColumns(np.zeros(MEMBERS, dtype=np.bool_), w, (d,), one, 1e-15 * one, upper)

        def rate(_signalled: bool, worth: tuple[float], parameters: tuple[float]) -> float:
            return demand_functions.harmonic_poisson(*worth, *parameters)

        def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
            for k in range(len(rates)):
                rates[k] = best_response(rate, columns, k, inverse_price)

        used = fill_rates(respond, own, 1.0 / floor, np.empty(MEMBERS))
        limit = float(rng.uniform(0.05, 0.95)) * used
        start = SearchStart(math.log(floor), math.log(0.3), 1.0, True)
        one, other = np.empty((2, MEMBERS))
        found = search_price(respond, own, limit, math.log(used / limit), start, one, other, spare(own))
        assert found.state in {MET, LINEAR}
        turns.append(found.turn)
    assert float(np.mean(turns)) < 8.0
    assert max(turns) < 20


@pytest.mark.parametrize("off", [-3e-12, -1e-14, 0.0, 1e-14, 3e-12])
def test_a_jump_beside_its_bracket_is_mixed_all_the_same(off: float) -> None:
    """Formulas that are compiled twice may round apart: a limit is used up wherever the jump is."""
    d, one = np.array([1.0, 2.0, 4.0]), np.ones(3)
    w = np.array([0.5, 1.0, 8.0]) * d
    own = SourceColumns(np.zeros(3, dtype=np.bool_), w, (d,), one, 0.0 * one, np.inf * one)

    def rate(_signalled: bool, worth: tuple[float], parameters: tuple[float]) -> float:
        return steps(*worth, *parameters)

    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        for k in range(len(rates)):
            rates[k] = best_response(rate, columns, k, inverse_price)

    found = HostSearch(JUMPS, off, off, off - 5e-14, off + 5e-14, 20)
    rates, (rich, poor) = np.zeros(3), np.empty((2, 3))
    price = write_mixture(respond, found, own, 5.0, rich, poor, np.arange(3), rates)
    assert rates == pytest.approx([0.0, 1.0, 4.0], rel=1e-12)
    assert price == pytest.approx(1.0, abs=1e-10)


def upright(worth: float, d: float) -> float:
    """Return Δ/t with e^{−t} = 1 − Δ/a: no rate at a = Δ, and a slope without bound there."""
    share = min(d / worth, 1.0)
    return d / -math.log1p(-share) if share < 1.0 else 1e-300


@pytest.mark.parametrize("seed", range(4, 8))
def test_a_price_beside_a_vertical_slope_is_found(seed: int) -> None:
    """Logarithms of prices near 1 are finer than prices: two may have one demand, not quite the limit."""
    rng = np.random.default_rng(seed)
    for near in 10.0 ** rng.uniform(-13.0, -9.0, 100):
        many = int(rng.integers(1, 13))
        d = rng.lognormal(size=many)
        w = d * np.exp(rng.uniform(-0.5, 0.5, many))
        one, rates = np.ones(many), np.empty(many)
        own = SourceColumns(np.zeros(many, dtype=np.bool_), w, (d,), one, 1e-15 * one, np.inf * one)

        def rate(_signalled: bool, worth: tuple[float], parameters: tuple[float]) -> float:
            return upright(*worth, *parameters)

        def respond(columns: SourceColumns, inverse_price: float, out: Array) -> None:
            for k in range(len(out)):
                out[k] = best_response(rate, columns, k, inverse_price)

        def demand(price: float, own: SourceColumns = own) -> float:
            return math.fsum(map(upright, (own.importance / price).tolist(), own.parameters[0].tolist()))

        limit = demand(float(rng.choice(w / d)) * (1.0 - near))
        start = SearchStart(math.log(1e-3), 0.0, 1.0, True)
        scratch = np.empty((2, many))
        price = settle_host(
            respond, own, limit, demand(1e-3), start, scratch, spare(own), np.arange(many), rates
        )
        assert math.fsum(rates) == pytest.approx(limit, rel=EXACT)
        assert demand(price * (1.0 - 1e-12)) >= limit >= demand(price * (1.0 + 1e-12))


@pytest.mark.exhaustive
def test_rates_of_hosts_whose_demand_jumps_are_between_those_of_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_all(monkeypatch)
    rng, n, hosts = np.random.default_rng(1), 3000, 100
    d, w, host = rng.lognormal(size=n), rng.lognormal(size=n), np.arange(n) % hosts
    sources = fo.Sources(d, w, signalled=rng.random(n) < 0.7, host=host)
    limits = dict(enumerate((rng.uniform(0.1, 0.9, hosts) * np.bincount(host, d)).tolist()))
    solution = fo.solve(fo.Problem(BINARY, sources, 0.9 * float(np.sum(d)), limits))
    assert present(solution.certificate).relative_gap < EXACT
    signalled = sources.signalled
    binding = [(k, price) for k, price in solution.host_prices.items() if price > 0.0]
    assert len(binding) > hosts // 2
    for k, price in binding:
        mine = host == k
        assert math.fsum(solution.rates[mine]) == pytest.approx(limits[k], rel=EXACT)
        for side, sign in ((1.0 + 1e-9, -1.0), (1.0 - 1e-9, 1.0)):
            worth = w[mine] / ((price + solution.price) * side)
            bound = [both(*each) for each in zip(worth, d[mine], signalled[mine], strict=True)]
            assert np.all(sign * (np.array(bound) - solution.rates[mine]) >= -1e-12)

"""Gap terms of single sources, and compiled proofs of many: never smaller than exact, hardly larger."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from freshopt.compiled import backend, poll_proofs, proof_functions
from freshopt.compiled.cells import capped_poisson, kink_proofs
from freshopt.compiled.proof_columns import EVALUATIONS, INFLATION, Proof, ProofColumns, enabled
from freshopt.compiled.proof_functions import HALF_ULP, ROUNDING, ProofCell, proved
from freshopt.compiled.proof_tables import mean_harmonic_loss
from freshopt.numerics.arrays import CACHED, Array, read_only
from tests.ground_truth.source_gaps import CELLS, DIGITS, exact_source_gap
from tests.ground_truth.strata import matrix

PROOFS: dict[str, ProofCell] = {
    "harmonic": proof_functions.HARMONIC,
    "harmonic periodic": proof_functions.HARMONIC_PERIODIC,
    "log periodic": proof_functions.LOG_PERIODIC,
    "harmonic signals": proof_functions.HARMONIC_SIGNAL,
    "binary": proof_functions.BINARY,
    "binary periodic": proof_functions.BINARY_PERIODIC,
    "binary signals": proof_functions.BINARY_SIGNAL,
    "delay": proof_functions.DELAY,
    "delay periodic": proof_functions.DELAY_PERIODIC,
    "delay signals": proof_functions.DELAY_SIGNAL,
    "age": proof_functions.AGE,
    "age periodic": proof_functions.AGE_PERIODIC,
    "age signals": proof_functions.AGE_SIGNAL,
    "power": proof_functions.POWER,
    "capped power": proof_functions.CAPPED_POWER,
    "capped Poisson": capped_poisson.CAPPED_POISSON,
    "polls": poll_proofs.POLLS,
    "materials": poll_proofs.MATERIALS,
    "later": proof_functions.LATER,
    "kinks": kink_proofs.KINKS,
}
# Marginal values that do not fall as a power, and those of stretches, whose terms are no squares.
FLAT = ("binary periodic", "polls", "materials", "later", "capped power", "capped Poisson")
LINEAR = ("binary signals", "kinks")
TRIALS = 60
# Near the best response a bound exceeds the exact share by twice the elasticity, at most 3.
MEDIAN = 6.5


def term(
    cell: ProofCell, rate: float, w: float, paid: float, bounds: tuple[float, float], p: list[float]
) -> tuple[float, float, float, float]:
    """Return cost, gain, gap term and whether outside, in plain Python."""
    own: Any = tuple(np.float64(value) for value in p)
    here, weight, price, lower, upper = (np.float64(value) for value in (rate, w, paid, *bounds))
    with np.errstate(all="ignore"):
        return proved(
            lambda _, given, p: cell.values(*given, *p),
            lambda _, given, p: cell.reach(*given, *p),
            False,
            here,
            weight,
            price,
            lower,
            upper,
            own,
        )


def parameters(name: str, rng: np.random.Generator) -> list[float]:
    if "power" in name:
        own = [float(rng.normal(0.0, 8.0)), float(10.0 ** rng.uniform(-1.0, 0.7))]
        return own if name == "power" else capped(own[0], own[1], float(10.0 ** rng.uniform(-3.0, 3.0)))
    if name == "capped Poisson":
        return felt(float(10.0 ** rng.uniform(-1.5, 1.0)), float(10.0 ** rng.uniform(-3.0, 3.0)))
    if name == "kinks":
        return kinks(rng, 1 + int(rng.integers(4)))
    return [float(10.0 ** rng.uniform(-4.0, 4.0))]


def capped(log_scale: float, e: float, kink: float) -> list[float]:
    """Return the parameters of a power with a cap."""
    plateau = mpmath.exp(log_scale) * mpmath.mpf(kink) ** (-1 - mpmath.mpf(e))
    return [log_scale, e, kink, float(plateau)]


def felt(e: float, kink: float) -> list[float]:
    """Return the parameters of a power with a cap of 1 under Poisson refreshes."""
    plateau = mpmath.mpf(e) / (1 + mpmath.mpf(e)) / mpmath.mpf(kink)
    scale = mpmath.log(plateau * mpmath.gamma(2 + mpmath.mpf(e)) * mpmath.mpf(kink) ** (1 + mpmath.mpf(e)))
    return [float(scale), e, kink, float(plateau)]


def kinks(rng: np.random.Generator, many: int) -> list[float]:
    """Return a level, and kinks with their gains; two may be one."""
    rates, gains = np.sort(10.0 ** rng.uniform(-4.0, 4.0, many)), 10.0 ** rng.uniform(-4.0, 4.0, many)
    rates[-1] = rates[many // 2]
    pairs = np.stack([np.sort(rates), -np.sort(-gains)], axis=1)
    return [float(rng.choice([0.0, 10.0 ** rng.uniform(-4.0, 4.0)])), *pairs.ravel().tolist()]


def scale_of(name: str, p: list[float]) -> float:
    """Return a rate that is typical of a source."""
    if len(p) == 4 and "kinks" not in name:
        return p[2]
    if "power" in name:
        return 1.0
    return p[-2] if name == "kinks" else 1.0 / p[0] if name == "later" else p[0]


def most(name: str) -> float:
    """Return up to how many decades above that its cost goes on falling as far as floats tell."""
    return 0.0 if "signals" in name else {"kinks": -1e-9, "later": 2.5}.get(name, np.inf)


@pytest.mark.parametrize("name", PROOFS)
def test_what_has_no_importance_and_pays_nothing_loses_nothing(name: str) -> None:
    p = parameters(name, np.random.default_rng(5))
    for rate in (0.0, 1.0, 3e5):
        assert term(PROOFS[name], rate, 0.0, 0.0, (0.0, math.inf), p)[:3] == (0.0, 0.0, 0.0)


@matrix(name=PROOFS, every=5)
def test_terms_bound_the_exact_share_of_a_gap(name: str) -> None:
    rng, ratios, floor = np.random.default_rng(len(name)), [], 0.0
    exact = CELLS[name]
    with mpmath.workdps(DIGITS):
        for trial in range(TRIALS):
            p = parameters(name, rng)
            own = float(rng.choice([1.0, 1e-6, 1e6, 0.37]))
            w = 1.0 if "power" in name else own  # that of a power is in its scale
            scale, signals = scale_of(name, p), "signals" in name
            decades = (-2.0, -0.1) if signals else (-2.8, min(5.0, most(name)))
            best = scale * float(10.0 ** rng.uniform(*decades))
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off)
            rate = min(rate, scale) if signals else rate
            paid = float(w * exact.marginal(mpmath.mpf(best), *map(mpmath.mpf, p)))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            upper = scale if signals else np.inf
            bounds = [(0.0, upper), (min(rate, 0.9 * best), min(upper, max(rate, 1.1 * best))), (rate, upper)]
            lower, upper = bounds[trial % 3]
            truth = exact_source_gap(exact, rate, w, paid, (lower, upper), p)
            cost, _, found, outside = term(PROOFS[name], rate, own, paid, (lower, upper), p)
            assert outside == 0.0
            assert found >= truth, (name, p, w, rate, paid, lower, upper)
            whole = float(w * exact.cost(mpmath.mpf(rate), *map(mpmath.mpf, p)))
            assert cost == pytest.approx(whole, rel=1e-12, abs=1e-15 * w)
            floor = max(floor, float(truth) / (abs(whole) + paid * rate))
            # What rounding adds to a linear source is no square.
            if truth > (1e-12 if name in LINEAR else 1e-24) * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    assert floor > 1e-6  # some rates are far from their best responses
    assert np.median(ratios) < MEDIAN


@pytest.mark.parametrize("name", PROOFS)
def test_marginal_values_are_within_the_rounding_allowed(name: str) -> None:
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS + 40):
        for x in rng.uniform(-15.0, 15.0, 150):
            p = parameters(name, rng)
            rate = scale_of(name, p) * 10.0 ** min(x, most(name))
            cell = PROOFS[name]
            _, _, marginal, rounding = cell.values(np.float64(rate), 1.0, *map(np.float64, p))
            exact = CELLS[name].marginal(mpmath.mpf(rate), *map(mpmath.mpf, p))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    # Prices times costs, and the difference, take the rest.
    assert worst <= 0.5


@pytest.mark.parametrize(
    "name",
    [name for name in PROOFS if name not in (*FLAT, *LINEAR)],
)
def test_marginal_values_fall_at_least_as_fast_as_the_reach_says(name: str) -> None:
    shifted = name == "binary"
    with mpmath.workdps(DIGITS):
        for x in np.linspace(-12.0, 12.0, 121):
            p = [mpmath.mpf("0.3"), mpmath.mpf("0.8")] if name == "power" else [mpmath.mpf("1.7")]
            shift = p[0] if shifted else mpmath.mpf(0)
            here = mpmath.mpf(10) ** mpmath.mpf(float(x)) * 2
            there = here * (1 + mpmath.mpf(10) ** -6)
            fall = (here + shift) * CELLS[name].marginal(here, *p)
            assert fall * (1 + mpmath.mpf(10) ** -25) >= (there + shift) * CELLS[name].marginal(there, *p)


def test_gaps_at_kinks_are_those_of_all_kinks_tried() -> None:
    """On a kink that is a best response there is none; from elsewhere the best of all kinks tells it."""
    rng, exact = np.random.default_rng(2), CELLS["kinks"]
    with mpmath.workdps(DIGITS):
        for _ in range(300):
            p = kinks(rng, 3)
            rates, gains = p[1::2], [*p[2::2], 0.0]
            j = int(rng.integers(3))
            paid = gains[j + 1] + float(rng.uniform(0.01, 0.99)) * (gains[j] - gains[j + 1])
            assert term(PROOFS["kinks"], rates[j], 1.0, paid, (0.0, np.inf), p)[2] == 0.0
            rate = float(rng.choice([*rates, 0.5 * rates[0], 3.0 * rates[-1]]))
            paid *= float(rng.choice([1.0, 0.1, 30.0]))
            own = [*map(mpmath.mpf, p)]
            each = [exact.cost(mpmath.mpf(x), *own) + mpmath.mpf(paid) * x for x in (rate, 0.0, *rates)]
            truth = each[0] - min(each)
            found = term(PROOFS["kinks"], rate, 1.0, paid, (0.0, np.inf), p)[2]
            assert (
                truth * (1.0 - 1e-15) <= found <= truth * (1.0 + 1e-14) + 1e-15 * paid * max(rate, rates[-1])
            )


def test_the_logarithm_behind_the_plateau_has_an_elasticity_of_at_least_one() -> None:
    with mpmath.workdps(DIGITS):
        for x in np.linspace(-12.0, 6.0, 181):
            u = mpmath.mpf(10) ** mpmath.mpf(float(x))
            whole = u - mpmath.log1p(u)
            assert u * u / (1 + u) >= whole >= u * u / (2 * (1 + u))


@pytest.mark.parametrize("name", PROOFS)
def test_no_importance_costs_nothing_and_wastes_what_it_takes(name: str) -> None:
    p = {
        "power": [-np.inf, 1.0],
        "capped power": [-np.inf, 1.0, 1.0, 0.0],
        "capped Poisson": felt(1.0, 1.0),
        "kinks": [0.0, 1.0, 1.0],
    }.get(name, [1.0])
    for rate, lower in ((0.5, 0.0), (0.5, 0.25), (0.5, 0.5)):
        cost, gain, gap, outside = term(PROOFS[name], rate, 0.0, 2.0, (lower, 1.0), p)
        assert (cost, gain, outside) == (0.0, 0.0, 0.0)
        assert 2.0 * (rate - lower) <= gap <= 2.0 * (rate - lower) * (1.0 + 1e-11)
    assert term(PROOFS[name], 0.0, 0.0, 2.0, (0.0, 1.0), p)[:3] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", PROOFS)
def test_rates_that_are_no_rates_prove_nothing(name: str) -> None:
    p = {
        "power": [0.0, 1.0],
        "capped power": capped(math.log(0.5), 1.0, 1.0),
        "capped Poisson": felt(1.0, 1.0),
        "kinks": [0.0, 1.0, 1.0],
    }.get(name, [1.0])
    for rate in (np.nan, np.inf, -np.inf, -1.0, 2.0):
        assert term(PROOFS[name], rate, 1.0, 2.0, (0.0, 1.0), p)[3] == 1.0
    cost, _, gap, _ = term(PROOFS[name], 0.0, 1.0, 2.0, (0.0, 1.0), p)
    if name in ("binary", *FLAT, *LINEAR):
        # Starved for good: the marginal value at 0 is below the price.
        assert cost == pytest.approx(0.0 if name == "materials" else 1.0, rel=1e-12)
        assert gap == 0.0
    else:
        assert not np.isfinite(gap)


def test_the_tables_mean_harmonic_needs_no_other_library() -> None:
    u = 10.0 ** np.linspace(-12.0, 12.0, 97)
    with mpmath.workdps(DIGITS):
        for value, found in zip(u, mean_harmonic_loss(u), strict=True):
            exact = CELLS["harmonic periodic"].cost(mpmath.mpf(1), mpmath.mpf(float(value)))
            assert abs(float(found / exact - 1)) < 2e-15


def test_the_allowance_is_thirty_two_half_ulps() -> None:
    assert ROUNDING == 32.0 * HALF_ULP == 2.0**-48


N = CACHED + 321
ANNOUNCED = {
    "harmonic": proof_functions.HARMONIC_SIGNAL,
    "binary": proof_functions.BINARY_SIGNAL,
    "delay": proof_functions.DELAY_SIGNAL,
    "age": proof_functions.AGE_SIGNAL,
}
COLUMNS_CELLS = {
    "harmonic": proof_functions.HARMONIC,
    "binary": proof_functions.BINARY,
    "delay": proof_functions.DELAY,
    "age": proof_functions.AGE,
    "harmonic periodic": proof_functions.HARMONIC_PERIODIC,
    "binary periodic": proof_functions.BINARY_PERIODIC,
    "delay periodic": proof_functions.DELAY_PERIODIC,
    "age periodic": proof_functions.AGE_PERIODIC,
    "power": proof_functions.POWER,
    "capped power": proof_functions.CAPPED_POWER,
    "capped Poisson": capped_poisson.CAPPED_POISSON,
    "log periodic": proof_functions.LOG_PERIODIC,
    "polls": poll_proofs.POLLS,
    "materials": poll_proofs.MATERIALS,
    "later": proof_functions.LATER,
    "kinks": kink_proofs.KINKS,
}


def columns(name: str, *, announced: ProofCell | None = None, n: int = N) -> tuple[ProofColumns, Array]:
    """Return columns over twenty decades and rates, some of which are 0, tied or without importance."""
    rng = np.random.default_rng(n + len(name))
    d, w, c = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n), rng.uniform(0.5, 2.0, n)
    w[::17], d[5:9] = 0.0, 1.0
    log_scale = np.where(w > 0.0, np.log(np.where(w > 0.0, w, 1.0)), -np.inf)
    p = {
        "power": (log_scale, np.full(n, 0.7)),
        "capped power": (log_scale, np.full(n, 0.7), d, w * d**-1.7),
        "capped Poisson": (np.log(d) * 1.7, np.full(n, 0.7), d, 1.0 / d / math.gamma(2.7)),
        "kinks": (d, 0.3 * d, 2.0 / d, d, 1.0 / d),
    }.get(name, (d,))
    signalled = rng.random(n) < 0.5 if announced is not None else None
    rates = d * 10.0 ** rng.uniform(-3.0, 3.0, n)
    if signalled is not None:
        rates = np.where(signalled, np.minimum(rates, d), rates)
    lower, upper = 0.5 * rates, rates * np.where(rng.random(n) < 0.5, 2.0, np.inf)
    lower[::2] = 0.0
    rates[17 * 5] = lower[17 * 5] = 0.0
    return (
        ProofColumns(
            n,
            COLUMNS_CELLS[name],
            announced,
            False if signalled is None else read_only(signalled),
            read_only(w),
            tuple(map(read_only, p)),
            read_only(c),
            read_only(lower),
            read_only(upper),
        ),
        read_only(rates),
    )


def by_source(own: ProofColumns, rates: Array, paid: Array) -> Array:
    """Return Σ of the same functions in plain Python, one source after the other."""

    def whole(column: Any) -> Any:  # noqa: ANN401 - a column of any kind
        return np.broadcast_to(column, (own.n,))

    def cell(signalled: bool) -> ProofCell:
        return own.announced if signalled and own.announced is not None else own.silent

    found = []
    with np.errstate(all="ignore"):
        for k in range(own.n):
            found.append(
                proved(
                    lambda s, given, p: cell(s).values(*given, *p),
                    lambda s, given, p: cell(s).reach(*given, *p),
                    bool(whole(own.signalled)[k]),
                    rates[k],
                    whole(own.importance)[k],
                    paid[k],
                    whole(own.lower)[k],
                    whole(own.upper)[k],
                    tuple(whole(column)[k] for column in own.parameters),
                )
            )
    return np.array([math.fsum(column) for column in np.array(found).T])


def same(proof: Proof, truth: Array) -> None:
    cost, gain, gap, outside = truth
    assert proof.cost == pytest.approx(cost, rel=1e-13)
    assert proof.gain == pytest.approx(gain, rel=1e-13)
    assert proof.gap == pytest.approx(INFLATION * gap, rel=1e-8)
    assert proof.outside == outside == 0.0


@matrix(
    name=[
        pytest.param(name, marks=[pytest.mark.exhaustive] if name == "log periodic" else [])
        for name in COLUMNS_CELLS
    ],
    every=5,
)
def test_a_pass_adds_up_the_terms_of_all_sources(name: str) -> None:
    own, rates = columns(name)
    price = 0.03
    proof = own.prove(rates, price)
    same(proof, by_source(own, rates, np.asarray(own.cost) * price))
    assert proof.used == pytest.approx(math.fsum(own.cost * rates), rel=1e-14)


@matrix(name=ANNOUNCED, every=4)
def test_signalled_sources_have_a_cell_of_their_own(name: str) -> None:
    own, rates = columns(name, announced=ANNOUNCED[name])
    same(own.prove(rates, 0.5), by_source(own, rates, np.asarray(own.cost) * 0.5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["harmonic", "binary periodic"])
def test_sources_of_hosts_pay_more_and_are_added_up_by_host(name: str) -> None:
    own, rates = columns(name)
    rng = np.random.default_rng(3)
    hosts = 40
    codes = read_only(np.minimum(rng.integers(0, hosts + 5, N), hosts))
    on_top = rng.exponential(1.0, hosts)
    proof = own.prove_hosts(rates, 0.1, on_top, codes)
    cost = np.asarray(own.cost)
    same(proof, by_source(own, rates, cost * (0.1 + np.append(on_top, 0.0))[codes]))
    for host in range(hosts):
        exact = math.fsum((cost * rates)[codes == host])
        assert proof.by_host[host] == pytest.approx(exact, rel=4e-16)


@matrix(hosts=[False, True], every=2)
def test_proofs_have_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, hosts: bool
) -> None:
    own, rates = columns("binary", n=40 * CACHED + 5)
    codes = read_only(np.arange(own.n) % 7)
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("FRESHOPT_THREADS", threads)
        proof = own.prove_hosts(rates, 0.1, np.arange(7.0), codes) if hosts else own.prove(rates, 0.1)
        found.append((*proof[:5], proof.by_host.tobytes()))
    assert found[0] == found[1] == found[2]


def test_single_numbers_and_float32_are_columns() -> None:
    rng = np.random.default_rng(8)
    d = rng.lognormal(0.0, 1.0, N).astype(np.float32)
    rates = read_only(rng.lognormal(0.0, 1.0, N))
    own = ProofColumns(
        N, COLUMNS_CELLS["harmonic"], None, False, 2.0, (read_only(d.astype(float)),), 1.0, 0.0, math.inf
    )
    few_bits: Any = read_only(d)
    narrow = ProofColumns(N, COLUMNS_CELLS["harmonic"], None, False, 2.0, (few_bits,), 1.0, 0.0, math.inf)
    same(own.prove(rates, 0.5), by_source(own, rates, np.full(N, 0.5)))
    assert own.prove(rates, 0.5)[:5] == narrow.prove(rates, 0.5)[:5]


@pytest.mark.parametrize("bad", [math.nan, -1.0, 1e9])
def test_rates_that_are_not_within_bounds_are_counted(bad: float) -> None:
    own, rates = columns("harmonic")
    changed = rates.copy()
    changed[[3, CACHED + 1]] = bad
    upper = np.full(N, 1e8)
    lower = np.zeros(N)
    bounded = ProofColumns(
        N,
        own.silent,
        None,
        False,
        own.importance,
        own.parameters,
        own.cost,
        read_only(lower),
        read_only(upper),
    )
    assert bounded.prove(read_only(changed), 0.03).outside == 2.0


def test_few_sources_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = int(backend.LOADING / EVALUATIONS) + 1
    unused = ProofCell(proof_functions.delay_poisson, proof_functions.reach_from_change)
    assert not enabled(enough // 2, COLUMNS_CELLS["harmonic"])
    assert enabled(enough // 2 + 1, COLUMNS_CELLS["harmonic"])
    assert enabled(backend.AT_HAND, COLUMNS_CELLS["harmonic"])
    assert not enabled(backend.AT_HAND - 1, COLUMNS_CELLS["harmonic"])
    assert not enabled(1000, unused)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert not enabled(10 * enough, COLUMNS_CELLS["harmonic"])

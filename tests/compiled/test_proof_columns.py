"""Compiled proofs against the same functions called source by source; bits, threads, hosts, columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from freshopt.compiled import backend, poll_proofs, proof_functions
from freshopt.compiled.proof_columns import EVALUATIONS, INFLATION, Proof, ProofColumns, enabled
from freshopt.compiled.proof_functions import ProofCell, proved
from freshopt.numerics.arrays import CACHED, Array, read_only

N = CACHED + 321
ANNOUNCED = {
    "harmonic": proof_functions.HARMONIC_SIGNAL,
    "binary": proof_functions.BINARY_SIGNAL,
    "delay": proof_functions.DELAY_SIGNAL,
    "age": proof_functions.AGE_SIGNAL,
}
CELLS = {
    "harmonic": proof_functions.HARMONIC,
    "binary": proof_functions.BINARY,
    "delay": proof_functions.DELAY,
    "age": proof_functions.AGE,
    "harmonic periodic": proof_functions.HARMONIC_PERIODIC,
    "binary periodic": proof_functions.BINARY_PERIODIC,
    "delay periodic": proof_functions.DELAY_PERIODIC,
    "age periodic": proof_functions.AGE_PERIODIC,
    "power": proof_functions.POWER,
    "log periodic": proof_functions.LOG_PERIODIC,
    "polls": poll_proofs.POLLS,
    "materials": poll_proofs.MATERIALS,
}


def columns(name: str, *, announced: ProofCell | None = None, n: int = N) -> tuple[ProofColumns, Array]:
    """Return columns over twenty decades and rates, some of which are 0, tied or without importance."""
    rng = np.random.default_rng(n + len(name))
    d, w, c = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n), rng.uniform(0.5, 2.0, n)
    w[::17], d[5:9] = 0.0, 1.0
    log_scale = np.where(w > 0.0, np.log(np.where(w > 0.0, w, 1.0)), -np.inf)
    p = (log_scale, np.full(n, 0.7)) if name == "power" else (d,)
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
            CELLS[name],
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
                    lambda s, rate, w, p: cell(s).values(rate, w, *p),
                    lambda s, *given: cell(s).reach(*given[:-1], *given[-1]),
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


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.exhaustive] if name == "log periodic" else []) for name in CELLS],
)
@pytest.mark.sampled(5)
def test_a_pass_adds_up_the_terms_of_all_sources(name: str) -> None:
    own, rates = columns(name)
    price = 0.03
    proof = own.prove(rates, price)
    same(proof, by_source(own, rates, np.asarray(own.cost) * price))
    assert proof.used == pytest.approx(math.fsum(own.cost * rates), rel=1e-14)


@pytest.mark.parametrize("name", ANNOUNCED)
@pytest.mark.sampled(4)
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


@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.sampled(2)
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
        N, CELLS["harmonic"], None, False, 2.0, (read_only(d.astype(float)),), 1.0, 0.0, math.inf
    )
    few_bits: Any = read_only(d)
    narrow = ProofColumns(N, CELLS["harmonic"], None, False, 2.0, (few_bits,), 1.0, 0.0, math.inf)
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
    assert not enabled(enough // 2, CELLS["harmonic"])
    assert enabled(enough // 2 + 1, CELLS["harmonic"])
    assert enabled(backend.AT_HAND, CELLS["harmonic"])
    assert not enabled(backend.AT_HAND - 1, CELLS["harmonic"])
    assert not enabled(1000, unused)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert not enabled(10 * enough, CELLS["harmonic"])

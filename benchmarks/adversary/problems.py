"""Draw, solve, judge, shrink: the run of `problems`."""

import time
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.adversary.case import Case, backend
from benchmarks.adversary.drawing import draw, shrink
from benchmarks.adversary.judging import Finding, examine, judge, same_answer

BATCH = 20
LARGE = 60  # sources; a script of more is longer than what draws them
KEPT = 3  # scripts of each kind of finding


def inspect(case: Case) -> tuple[str, list[Finding]]:
    """Judge a case, and the same one in another order and in other units."""
    status, found = judge(case)
    if found or status != "optimal" or len(case) > 500 or case.solver != "None":
        return status, found
    one = case.solve()
    order = np.random.default_rng(len(case)).permutation(len(case))
    heavier = case.changed(importance=case.columns["importance"] * 1024.0, layout="plain")
    found += _challenge(case)
    for name, other, factor in (
        ("permuted", case.take(order), 1.0),
        ("importance times 1024", heavier, 1024.0),
    ):
        different = same_answer(one, other.solve(), factor)
        if different is not None:
            found.append(Finding(different.kind, f"{name}: {different.words}"))
    return status, found


def _challenge(case: Case) -> list[Finding]:
    """Judge the certificate of arbitrary rates and prices, and a solution from an arbitrary price on."""
    rng = np.random.default_rng(len(case))
    problem, most = case.problem(), case.bandwidth / np.sum(np.asarray(case.columns["refresh_cost"]))
    rates = most * 10.0 ** rng.uniform(-2, 0.5, len(case)) * (rng.random(len(case)) < 0.9)
    typical = float(np.median(case["importance"])) / case.bandwidth + 1e-30
    price = None if rng.random() < 0.5 else typical * 10.0 ** float(rng.uniform(-3, 3))
    hosts = None if rng.random() < 0.5 else {h: typical * float(rng.lognormal(0, 3)) for h in case.limits}
    with backend(case.compiled), warnings.catch_warnings():
        warnings.simplefilter("error")
        proof = fo.certify(problem, rates, price, hosts)
        warm = fo.solve(problem, throw=False, warm_start=typical * 10.0 ** float(rng.uniform(-9, 9)))
    word = fo.Status.OPTIMAL if proof.confirms(1e-6) else fo.Status.INACCURATE
    given = SimpleNamespace(
        certificate=proof, status=word, rates=proof.rates, price=proof.price, host_prices=proof.host_prices
    )
    found = examine(case.changed(solver="certify"), given)
    return [Finding(f"certify: {each.kind}", each.words) for each in found] + [
        Finding(f"warm start: {each.kind}", each.words) for each in examine(case, warm)
    ]


def batch(seed: int, number: int, size: int = BATCH) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Inspect cases of one seed; return how they ended, and scripts of what was found."""
    ended: Counter[str] = Counter()
    scripts: list[tuple[str, str]] = []
    for k in range(size):
        case = draw(np.random.default_rng([seed, number, k]))
        status, found = inspect(case) if k % 3 == 0 else judge(case)
        if status == "refused" and case.solver != "None":
            ended[status] += 1
            case = case.changed(solver="None")
            status, found = judge(case)
        ended[status] += 1
        ended["sources"] += len(case)
        if found:
            kind = found[0].kind
            small = shrink(case, lambda other, kind=kind: any(f.kind == kind for f in inspect(other)[1]))
            words = next(f.words for f in inspect(small)[1] if f.kind == kind)
            where = f"{small.kind}, {small.layout}, seed {seed} {number} {k}, at first {len(case)} sources"
            if len(small) > LARGE:
                again = f"case = draw(np.random.default_rng([{seed}, {number}, {k}]))"
                scripts.append((kind, f"# {kind}: {words}\n# {where}, now {len(small)}\n{again}"))
            else:
                scripts.append((kind, small.script(f"{kind}: {words}\n{where}")))
    return ended, scripts


def run(minutes: float = 10.0, seed: int = 1, jobs: int = 1) -> dict[str, Any]:
    """Inspect batches until the time is up; print what is found as it is found."""
    end, begun, number = time.monotonic() + 60.0 * minutes, time.monotonic(), 0
    ended: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=50) as pool:
        running: set[Future[Any]] = set()
        while time.monotonic() < end or running:
            while len(running) < jobs and time.monotonic() < end:
                running.add(pool.submit(batch, seed, number))
                number += 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                counts, scripts = future.result()
                ended += counts
                for kind, script in scripts:
                    kinds[kind] += 1
                    if kinds[kind] <= KEPT:
                        print(f"\n{script}\n", flush=True)
    sources = ended.pop("sources", 0)
    return {
        "seed": seed,
        "instances": ended.total(),
        "sources": sources,
        "seconds": round(time.monotonic() - begun, 1),
        "ended": dict(ended.most_common()),
        "findings": dict(kinds.most_common()),
    }

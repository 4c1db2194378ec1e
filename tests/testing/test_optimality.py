"""The judge against the ground truth, and its sentences."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.testing import Instance, assert_optimal, instances, standard_objectives
from freshopt.testing.optimality import judge
from tests.ground_truth import truth
from tests.ground_truth.cases import OBJECTIVES, as_instance
from tests.ground_truth.strata import exhaustive, matrix
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.ground_truth.unknown_atom import stranger

DELAY = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
THREE = [o for o in standard_objectives() if type(o) in OBJECTIVES.values()]
REQUESTS = [kind(fo.Refresh.ON_REQUEST) for kind in OBJECTIVES.values()]


def has_truth(case: Instance) -> bool:
    """Return whether the truth has the curve: of every N-th signal it has none."""
    objective, signalled = case.problem.objective, case.problem.sources.signalled
    binary = isinstance(objective, fo.problems.BinaryFreshness)
    return binary or objective.refresh is fo.Refresh.POISSON or not np.any(signalled)


def candidates() -> list[Any]:
    """Return every third in every run, and a few of other fetches."""
    found: list[tuple[Instance, int]] = []
    for scale in ("benign", "ill"):
        for objective in THREE:
            known = [case for case in instances(objective, 3, 9, scale) if has_truth(case)]
            plain = (case for case in known if "fail" not in case.name)
            found += [(case, 3) for case in itertools.islice(plain, 0, None, 7)]
            failing = (case for case in known if "fail" in case.name)
            found += [
                (case, 211) for case in (*failing, *instances(objective, 3, 9, scale, conditional=True))
            ]
        for objective in REQUESTS:
            found += [(case, 97) for case in itertools.islice(instances(objective, 3, 9, scale), 0, None, 3)]
    return [
        pytest.param(
            case, id=f"{case.problem.objective!r} {case.name}", marks=[exhaustive] if k % few else []
        )
        for k, (case, few) in enumerate(found)
    ]


@matrix(case=candidates(), every=4)
def test_the_judge_is_the_truth(case: Instance) -> None:
    """What is accepted is as good as brute force says; what is worse than that by more is refused."""
    problem, plain = case.problem, as_instance(case.problem)
    best = truth.best(plain)
    weight = math.fsum(plain.importance)
    inside = np.minimum(best.rates, problem.upper)
    assert_optimal(problem, inside, SCALAR)
    rng = np.random.default_rng(4)
    refused = 0
    for size in (1e-7, 1e-3, 0.3):
        rates = np.clip(inside * (1.0 - size * rng.random(len(inside))), problem.lower, problem.upper)
        short = truth.total_cost(plain, rates) - best.value
        judgement = judge(problem, rates, 1e-6)
        assert judgement.feasible
        assert judgement.certificate.gap >= short - EXACT * (best.scale + weight)
        if judgement.sentence:
            refused += 1
        else:
            assert short <= 1e-6 * (best.scale + short) * (1 + 1e-3) or short <= 1e-12 * weight
    moved = bool(np.any((inside > problem.lower * (1 + 1e-3)) & (plain.importance > 0)))
    assert (refused > 0) == moved


def named(**changes: object) -> fo.Problem:
    sources = {"change_rate": [1.0, 4.0], "names": ["a", "b"], **changes}
    return fo.Problem(DELAY, fo.Sources(**sources), 3.0)  # type: ignore[arg-type]


def refusal(problem: fo.Problem, rates: object, tolerance: float = 1e-6) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_optimal(problem, rates, tolerance)  # type: ignore[arg-type]
    return str(caught.value)


def test_the_sentence_names_gap_and_sources() -> None:
    # Σ Δ/ρ is 2 + 1.6 here and (1 + 2)²/3 = 3 at best: 0.6 too much, which is 0.6/(3.6 + 3) of both.
    text = refusal(named(), [0.5, 2.5])
    assert text.startswith("not proved optimal to 1e-06: the certified gap is 0.6 (relative 0.091)")
    assert "the infeasibility 0." in text
    assert "'a' (rate 0.5 is too low" in text
    assert text.endswith(" of the gap).")
    shares = [int(word) for word, unit in itertools.pairwise(text.split()) if unit == "%"]
    assert 97 <= sum(shares) <= 103


def test_the_sentence_names_unused_bandwidth_and_hosts() -> None:
    assert "0.3 of the bandwidth (not used" in refusal(named(), [0.9, 1.8])
    sources = fo.Sources([1.0, 1.0, 1.0], host=["h", "h", "k"])
    limited = fo.Problem(DELAY, sources, 9.0, {"h": 1.0})
    assert "0.2 of the limit of host 'h' (not used" in refusal(limited, [0.4, 0.4, 8.2])


@pytest.mark.parametrize(
    ("changes", "rates", "words"),
    [
        ({"max_rate": [0.5, 9.0]}, [0.6, 2.4], ("'a' has rate 0.6, above its upper bound 0.5",)),
        ({"min_rate": [1.5, 0.0]}, [1.0, 2.0], ("'a' has rate 1, below its lower bound 1.5",)),
        ({}, [1.0, 2.5], ("the rates use 3.5 of 3", "infeasibility 0.17")),
        ({}, [-1e-12, 3.0], ("'a' has rate -1e-12, below its lower bound 0", "infeasibility 1.")),
    ],
)
def test_the_sentence_names_what_is_violated(
    changes: dict[str, object], rates: list[float], words: tuple[str, ...]
) -> None:
    text = refusal(named(**changes), rates)
    assert "feasible" in text.split(":")[0]
    for word in words:
        assert word in text


def test_an_infinite_gap_names_its_sources() -> None:
    text = refusal(named(), [0.0, 3.0])
    assert "'a' at rate 0" in text
    assert "inf" in text


def test_what_are_no_rates() -> None:
    assert "not finite for 'b'" in refusal(named(), [1.0, math.nan])
    assert "shape (3,)" in refusal(named(), [1.0, 1.0, 1.0])
    assert "numbers" in refusal(named(), ["one", "two"])


def test_rounding_is_no_violation() -> None:
    assert_optimal(named(), np.array([1.0, 2.0]) * (1 + 2e-16), EXACT)


class Strange(fo.Objective):
    """An atom without derivative rules."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance, stranger(rate))


def test_without_a_proof_nothing_is_asserted() -> None:
    problem = fo.Problem(Strange(), fo.Sources([1.0, 4.0]), 3.0)
    with pytest.raises(fo.ObjectiveError, match="nothing can be proved"):
        assert_optimal(problem, [1.0, 2.0])


def test_a_host_whose_sources_are_all_at_bounds_does_not_spoil_the_bound() -> None:
    """Freshness of a source that changes 3000 times a day is worth no refresh at this price."""
    sources = fo.Sources([3000.0, 1.0], host=["a", "free"])
    problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, 1.0, {"a": 2.0})
    assert_optimal(problem, [0.0, 1.0], EXACT)

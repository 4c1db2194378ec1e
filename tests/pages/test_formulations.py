"""The twelve formulations: the page is what its blocks find, and CVXPY agrees with each."""

import importlib.util
import re
import struct
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cvxpy as cp
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import CONIC, SCALAR
from tests.pages.formulations_in_cvxpy import PROGRAMS, data_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "guides" / "objectives-and-limits.md").read_text(encoding="utf-8")
LONGEST_BLOCK = 12
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@cache
def writer() -> ModuleType:
    spec = present(importlib.util.spec_from_file_location("formulations", DOCS / "formulations.py"))
    made = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(made)
    return made


@cache
def parts() -> list[tuple[str, str, dict[str, Any]]]:
    """Return each part of the page as it is, as it would be written, and the names of its blocks."""
    return [(part, writer().filled(part, names), dict(names)) for part, names in writer().sections(PAGE)]


FORMULATIONS = range(1, 13)


def near(one: str, other: str) -> bool:
    """Return whether two printed numbers differ by a unit of the last place at most."""
    digits = max(len(text.partition("e")[0].partition(".")[2]) for text in (one, other))
    power = max(int(text.partition("e")[2] or 0) for text in (one, other))
    return abs(float(one) - float(other)) <= 1.01 * 10.0 ** (power - digits)


@pytest.mark.parametrize("place", [0, *FORMULATIONS])
def test_the_page_is_what_its_blocks_find(place: int) -> None:
    kept, fresh, _ = parts()[place]
    assert NUMBER.sub("#", fresh) == NUMBER.sub("#", kept), "run: python docs/formulations.py"
    for one, other in zip(NUMBER.findall(kept), NUMBER.findall(fresh), strict=True):
        assert near(one, other), f"{one} is now {other}; run: python docs/formulations.py"


def test_there_are_twelve() -> None:
    heads = [part.partition("\n")[0] for part, _, _ in parts()[1:]]
    assert [int(head.split()[1].rstrip(".")) for head in heads] == list(FORMULATIONS) == sorted(PROGRAMS)


@pytest.mark.parametrize("place", FORMULATIONS)
def test_each_is_short_and_has_a_picture_and_its_price_read_aloud(place: int) -> None:
    part, _, _ = parts()[place]
    for text in writer().BLOCK.findall(part)[:1]:
        assert sum(bool(line.strip()) for line in text.splitlines()) <= LONGEST_BLOCK
    assert re.search(r"^> \S", part, re.MULTILINE)
    (picture,) = writer().PICTURE.findall(part)
    data = (DOCS / "formulations" / f"{picture}.png").read_bytes()
    assert data[:4] == b"\x89PNG"
    assert struct.unpack(">II", data[16:24]) == (832, 416)


@pytest.mark.parametrize("place", FORMULATIONS[:-1])
def test_cvxpy_finds_the_same_and_the_certificate_proves_it(place: int) -> None:
    _, _, names = parts()[place]
    solution, program = names["solution"], PROGRAMS[place](data_of(names))
    assert solution.status is fo.Status.OPTIMAL
    assert solution.certificate.relative_gap <= SCALAR
    program.solve(solver=cp.CLARABEL)
    assert solution.value == pytest.approx(program.value, rel=CONIC)
    declared = names["problem"].to_cvxpy()
    declared.solve(solver=cp.CLARABEL)
    assert declared.value == pytest.approx(program.value, rel=CONIC)


def test_cvxpy_finds_no_plan_either_and_what_the_message_says_suffices() -> None:
    _, _, names = parts()[-1]
    program = PROGRAMS[12](data_of(names))
    program.solve(solver=cp.CLARABEL)
    assert program.status == cp.INFEASIBLE
    conflict = names["conflict"]
    assert conflict.labels == ("megabytes", "fresh[news]")
    enough, most = conflict.sufficient
    for megabytes, share in ((1.001 * enough, 0.8), (20.0, 0.999 * most)):
        target = fo.Target(BinaryFreshness(fo.Refresh.POISSON), at_least={"news": share}, by=names["tier"])
        budget = fo.Budget(megabytes, cost=names["megabytes"])
        problem = fo.Problem(fo.Spend(), names["sources"], constraints=[budget, target])
        assert fo.solve(problem).status is fo.Status.OPTIMAL

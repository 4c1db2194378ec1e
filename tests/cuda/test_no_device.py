"""CUDA without a device: refusals, and kernels in the simulator."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import freshopt as fo
from freshopt.compiled import demand_functions, proof_functions
from freshopt.cuda import DeviceProblem
from freshopt.cuda.bandwidth_correction import corrected
from freshopt.cuda.formulas import Edition, device_name, has_edition
from freshopt.solvers import WaterFillingCuda
from tests.ground_truth.named import AGE, BINARY_PERIODIC, HARMONIC, HARMONIC_ON_REQUEST, present
from tests.ground_truth.refusals import refused


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No numba-cuda, as on a bare machine."""
    monkeypatch.setattr("freshopt.cuda.device.importlib.util.find_spec", lambda _: None)


@pytest.mark.usefixtures("bare")
def test_one_line_says_what_to_install() -> None:
    problem = fo.Problem(HARMONIC, fo.Sources([1.0, 2.0]), 1.0)
    line = r"numba-cuda is not installed: pip install 'freshopt\[cuda\]'"
    refused(line, fo.solve, problem, WaterFillingCuda(), error=fo.SolverRefusedError)
    refused(line, DeviceProblem, HARMONIC, [1.0, 2.0], 1.0, error=fo.SolverRefusedError)
    assert fo.solve(problem, WaterFillingCuda(), throw=False).status is fo.Status.REFUSED


def test_settings_are_checked() -> None:
    refused(r"dtype is 'float16'\..* Pass 'float64' or 'float32'\.", WaterFillingCuda, dtype="float16")


FORMULAS = [
    (demand_functions.harmonic_poisson, (2.5, 0.7)),
    (demand_functions.harmonic_periodic, (2.5, 0.7)),
    (demand_functions.binary_periodic, (2.5, 0.7)),
    (demand_functions.age_poisson, (2.5, 0.7)),
    (demand_functions.age_periodic, (2.5, 0.7)),
    (demand_functions.power_law, (2.5, 0.3, 0.4)),
    (proof_functions.harmonic_periodic, (0.4, 2.0, 0.7)),
    (proof_functions.binary_periodic, (0.4, 2.0, 0.7)),
    (proof_functions.age_periodic, (0.4, 2.0, 0.7)),
    (proof_functions.power_law, (0.4, 2.0, 0.3, 0.5)),
]


@pytest.mark.parametrize(("formula", "arguments"), FORMULAS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_formula_rewritten_is_the_formula(formula: object, arguments: tuple[float, ...]) -> None:
    assert callable(formula)
    edition = Edition()
    name = edition.add(formula)
    names: dict[str, object] = {"np": np, "math": math}
    for text in edition.sources.values():
        exec(text, names)
    rewritten = names[name]
    assert callable(rewritten)
    tables = [edition.tables[table] for table in edition.needed[name]]
    given = tuple(map(np.float64, arguments))
    assert rewritten(*given, *tables) == formula(*given)


def test_every_formula_of_every_objective_has_an_edition() -> None:
    edition = Edition()
    for objective in (HARMONIC, BINARY_PERIODIC, AGE):
        kernel = objective.kernel(fo.Sources([1.0, 2.0]))
        assert has_edition(kernel.unit_demand)
        assert edition.add(present(kernel.unit_demand)) == device_name(present(kernel.unit_demand))
    assert not has_edition(None)
    assert not has_edition(math.sqrt)


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40),
    st.floats(-1e-7, 1e-7),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_correction_uses_what_is_missing_or_less(
    values: list[float], share: float, kind: type[np.floating]
) -> None:
    rates = np.array(values, dtype=kind)
    lower, upper = np.zeros(len(rates)), np.full(len(rates), math.inf)
    cost = np.linspace(1.0, 3.0, len(rates))
    used = float(np.sum(cost * rates))
    missing = share * used
    new = corrected(rates, cost, lower, upper, missing)
    more = math.fsum((cost * (new.astype(float) - rates.astype(float))).tolist())
    rounding = 1e-15 * used
    assert new.dtype == rates.dtype
    # Bits of a rate that is a power of two are half as far below it.
    step = 2.0 * float(np.max(cost * np.spacing(rates)))
    assert -rounding <= missing - more <= step + rounding
    assert np.all(np.abs(new / rates - 1.0) < 3e-6)


def test_refreshes_on_request_need_columns_that_a_device_problem_has_not() -> None:
    objective = HARMONIC_ON_REQUEST
    with pytest.raises(fo.ObjectiveError, match=r"needs request rates, .* Solve a Problem of host arrays\.$"):
        DeviceProblem(objective, [1.0, 2.0], 1.0)


FILE = Path(__file__).with_name("on_device.py")


@pytest.mark.exhaustive
def test_everything_that_runs_on_a_device_in_the_simulator() -> None:
    """The file tests what `fo.solve` does there, cell by cell, against the host's solver."""
    # The options of the suite itself: no workers, and files of other names.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(FILE)],
        cwd=FILE.parents[2],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout


@pytest.mark.parametrize(
    "cell", [proof_functions.HARMONIC, proof_functions.BINARY, proof_functions.BINARY_SIGNAL]
)
def test_device_functions_take_what_they_use_alone(cell: proof_functions.ProofCell) -> None:
    edition = Edition()
    text = edition.sources[edition.add(cell.reach)]
    assert "*" not in text.partition("\n")[0]
    exec(text, {"np": np, "math": math})

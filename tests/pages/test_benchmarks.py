"""The speed benchmark runs, its rivals find the optimum, and what pages quote of saved results is in them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.ground_truth.kkt import violations
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.ground_truth.truth import instance

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
KEYS = {
    "adversary": {"files", "problems", "processes"},
    "cone_solvers": {"n", "seeds", "tolerance", "rows"},
    "derived": {"budget", "rows"},
    "exactness": {"sizes", "water_filling", "certificates"},
    "speed": {"quick", "cores", "python", "versions", "sizes", "rows", "scaling", "waited"},
}
LINES = {
    "one NumPy addition",
    "freshopt",
    "freshopt, certified",
    "freshopt, not compiled",
    "NumPy bisection",
    "pure Python",
    "SciPy SLSQP",
    "CVXPY + CLARABEL",
    "CVXPY + ECOS",
}
SMALLEST = 8  # bytes of the signature of a PNG file
MODULES = ("speed", "speed_parts", "speed_rivals", "speed_scaling")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "speed"))
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name)


def strict(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON.")

    return json.loads(text, parse_constant=refuse)


def check_record(record: dict[str, Any]) -> None:
    works = [row["work"] for row in record["rows"]]
    assert len({(row["work"], row["n"]) for row in record["rows"]}) == len(works)
    assert works[:2] == ["ADD", "ADD into fresh memory"]
    for beginning in ("harmonic", "binary", "power", "delay", "age", "against CVXPY", "own objective"):
        assert any(work.startswith(beginning) for work in works), beginning
    for row in record["rows"]:
        assert row["measured"] > 0.0 or row["note"]
        assert row["n"] > 0
        assert row.get("miss", 0.0) <= EXACT
        assert (row.get("gap") or 0.0) <= (CONIC if row["work"].startswith("against") else SCALAR)
    assert {row["method"] for row in record["scaling"]} == LINES
    assert all(row["note"] or row["seconds"] > 0.0 for row in record["scaling"])
    for name in LINES:
        sizes = [row["n"] for row in record["scaling"] if row["method"] == name]
        assert sizes == sorted(set(sizes))
        assert sizes[0] == 100


def check_picture(path: Path) -> None:
    data = path.read_bytes()
    assert data[:SMALLEST] == b"\x89PNG\r\n\x1a\n"
    assert len(data) < 80_000


@pytest.mark.exhaustive
def test_a_quick_run_measures_saves_and_draws_everything(
    tmp_path: Path, modules: dict[str, ModuleType]
) -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "speed" / "speed.py"),
        "--quick",
        "--save",
        str(tmp_path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    record = strict((tmp_path / "benchmarks" / "results" / "speed.json").read_text())
    assert set(record) == KEYS["speed"]
    assert record["quick"] is True
    assert all(row["met"] is None for row in record["rows"])
    check_record(record)
    check_picture(tmp_path / "docs" / "scaling.png")
    assert all(row["work"] in ran.stdout for row in record["rows"])
    page = (tmp_path / "docs" / "speed.md").read_text(encoding="utf-8")
    assert modules["speed"].filled(page, record) == page
    assert page != (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_an_unknown_part_and_an_incomplete_record_are_refused() -> None:
    script = str(ROOT / "benchmarks" / "speed" / "speed.py")
    for given, words in (
        (["--parts", "hosts,rubbish"], "no part is called rubbish"),
        (["--parts", "hosts", "--save"], "only a complete measurement is saved"),
    ):
        ran = subprocess.run([sys.executable, script, *given], capture_output=True, text=True, check=False)
        assert ran.returncode == 2
        assert words in ran.stderr


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_saved_results_parse_and_have_what_is_quoted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    record = strict(text)
    if path.stem in KEYS:
        assert set(record) >= KEYS[path.stem]
        assert all(record[key] for key in KEYS[path.stem] & {"rows", "water_filling", "scaling"})
    assert str(ROOT) not in text


def test_every_kept_result_is_known() -> None:
    assert set(KEYS) <= {path.stem for path in RESULTS}


def test_the_saved_speeds_are_complete_and_the_page_shows_them(modules: dict[str, ModuleType]) -> None:
    record = strict((ROOT / "benchmarks" / "results" / "speed.json").read_text())
    assert record["quick"] is False
    assert record["sizes"] == json.loads(json.dumps(modules["speed_parts"].Sizes()._asdict()))
    check_record(record)
    assert max(row["n"] for row in record["scaling"] if row["method"] == "freshopt") == 10**8
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert modules["speed"].filled(page, record) == page
    check_picture(ROOT / "docs" / "scaling.png")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/scaling.png)" in readme
    assert "](docs/speed.md)" in readme


def test_rivals_find_the_optimum(modules: dict[str, ModuleType]) -> None:
    rng = np.random.default_rng(5)
    d, w = rng.lognormal(0.0, 1.0, 40), rng.lognormal(0.0, 1.0, 40)
    bandwidth = 0.5 * float(np.sum(d))
    problem = instance("harmonic", "poisson", d, bandwidth, importance=w)
    rivals = modules["speed_rivals"].RIVALS
    least = None
    for name, solve in rivals.items():
        rates = solve(d, w, bandwidth)
        cost = float(np.sum(w * np.log1p(d / rates)))
        if "bisection" in name or "Python" in name:
            price = float(np.median(w * d / (rates * (rates + d))))
            assert violations(problem, rates, price).worst() <= SCALAR, name
            least = cost
        assert least is not None
        assert abs(cost - least) <= CONIC * least, name
        assert abs(float(np.sum(rates)) - bandwidth) <= CONIC * bandwidth, name
    assert len(rivals) == 5


def test_a_row_is_met_only_on_the_right_side_and_with_the_bandwidth_spent(
    modules: dict[str, ModuleType],
) -> None:
    row = modules["speed_parts"].row
    assert row("a", 1, 5.9, "ADD", 6.0)["met"] is True
    assert row("a", 1, 6.1, "ADD", 6.0)["met"] is False
    assert row("a", 1, 5.9, "ADD", 6.0, miss=2e-12)["met"] is False
    assert row("a", 1, 6.1, "ADD", 6.0, fresh=0.2)["met"] is True
    assert row("a", 1, 101.0, "x", 100.0)["met"] is True
    assert row("a", 1, 99.0, "x", 100.0)["met"] is False
    assert row("a", 1, 99.0, "x", None)["met"] is None


def test_a_method_is_dropped_when_its_next_size_would_take_too_long(
    modules: dict[str, ModuleType],
) -> None:
    scaling = modules["speed_scaling"]
    assert list(scaling.sizes(3000)) == [100, 316, 1000]
    assert scaling._forecast([1.0]) == 0.0
    assert scaling._forecast([1.0, 5.0]) == 25.0
    assert scaling._forecast([1.0, 1.0]) == pytest.approx(10**0.5)

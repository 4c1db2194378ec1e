"""Fixtures of the tests of the command line; the seeds of all property tests.

Every run draws the same examples, so that a change that breaks nothing fails nothing. To look for new ones:
``pytest --hypothesis-profile search``; what it finds is kept as an ``@example``.

``--part 2/3`` runs the second of three parts of the tests that are chosen. Of a test that is marked
``sampled(4)`` every run has each fourth set of parameters; the others are exhaustive.
"""

import contextlib
import gc
import os
import zlib
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from freshopt.cli import main
from freshopt.compiled import backend
from tests.ground_truth.command_lines import FILES, Run, crawl_log
from tests.ground_truth.routes import compile_all

settings.register_profile("seeded", derandomize=True, database=None)
settings.register_profile("search", derandomize=False, print_blob=True)
settings.load_profile("seeded")
# Versions from 6.131 on draw constants of the modules that are loaded, too: the tests run before would decide
# what is drawn, and where the package is installed.
with contextlib.suppress(ImportError):
    from hypothesis.internal.conjecture import providers

    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants

# Workers fill the cores already: threads of BLAS in each would spin while they wait for one another, which
# took three quarters of a solve with a hundred rows. Workers and their processes get this from here.
for library in ("OMP", "OPENBLAS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", help="K/N: of N parts of the chosen tests, only the K-th")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not sampled, and keep one part: the tests whose names, not their order, fall into it."""
    usual: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is None or item.get_closest_marker("exhaustive") is not None:
            continue
        name = item.nodeid.partition("[")[0]
        if usual[name] % sampled.args[0]:
            item.add_marker(pytest.mark.exhaustive)
        usual[name] += 1
    part, parts = map(int, str(config.getoption("--part")).split("/"))
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"--part {part}/{parts}: pass K/N with K from 1 to N")
    kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == part - 1]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector.

    It would go through ten thousand tests and all imported modules again and again: of the time of collecting
    that was two fifths. Objects are not frozen afterwards: under Hypothesis 6.100 a test then seems flaky.
    To go through all of them still takes half a second, and is done a tenth as often.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        young, middle, old = gc.get_threshold()
        gc.set_threshold(young, middle, 10 * old)


@pytest.fixture
def all_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)


@pytest.fixture(autouse=True)
def _own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test an account of its own: which route it takes does not depend on the tests before."""
    monkeypatch.setattr(backend, "account", backend.Account())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a runner of command lines in an empty folder, which end well unless said otherwise."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0, told: bytes | None = None) -> Result:
        """Run a command, which is told some standard input."""
        result = CliRunner().invoke(main, arguments, input=told)
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    crawl_log().write_parquet(tmp_path / "log.parquet")
    return Path("log.parquet")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    return tmp_path

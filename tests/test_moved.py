"""Old import paths, keywords and attributes: each works, is the new one, and says what that is."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx
import numpy as np
import pytest
from matplotlib.figure import Figure

import freshopt as fo
from freshopt import automata, goodness_of_fit, tools
from freshopt.moved import MOVED
from freshopt.pipelines import node_freshness
from freshopt.renamed import keywords
from freshopt.testing.recipe import Recipe
from tests.ground_truth.refusals import refused

# What documentation named before.
DOCUMENTED = {
    "freshopt.exporters": [name for name in tools.__all__ if not name.startswith("read_")],
    "freshopt.exporters.nginx": ["Nginx"],
    "freshopt.exporters.cron_lines": ["cron_lines"],
    "freshopt.io": [
        *("read_changedetection", "read_dbt", "read_git", "read_history", "read_log", "read_nutch"),
        "read_requests",
    ],
    "freshopt.io.read_log": ["read_log"],
    "freshopt.live.clock": ["Clock"],
    "freshopt.io.read_dbt": ["read_dbt"],
    "freshopt.io.dbt_artifacts": ["read_manifest", "read_run_times", "Manifest"],
    "freshopt.adapters.scrapy": ["FreshoptAddon"],
    "freshopt.weekly": ["WeeklyProfile", "peak_hours"],
    "freshopt.weekly.peak_hours": ["peak_hours"],
    "freshopt.inference.gamma_prior": ["GammaPrior"],
    "freshopt.inference.interval_methods": ["Posterior", "check_confidence"],
    "freshopt.estimators.naive": ["Naive"],
    "freshopt.bounds": ["sensitivity_bound", "etc_regret_bound", "mirror_sync_regret_bound", "price_bracket"],
}


@pytest.mark.parametrize(("module", "name"), [(m, own) for m, names in DOCUMENTED.items() for own in names])
def test_old_names_are_the_new_ones(module: str, name: str) -> None:
    words = rf"^{module}\.{name} is freshopt\.[\w.]+\.{name} now\. "
    # An old module of that name is bound there once another test has imported it.
    vars(import_module(module)).pop(name, None)
    with pytest.warns(DeprecationWarning, match=words) as told:
        found = getattr(import_module(module), name)
    assert found.__module__.startswith("freshopt.")
    place, _, own = str(told[0].message).split()[2].rpartition(".")
    assert found is getattr(import_module(place), own)
    assert told[0].filename == __file__


@pytest.mark.parametrize("old", MOVED)
def test_every_old_module_is_found_and_has_no_other_names(old: str) -> None:
    module = import_module(old)
    assert isinstance(import_module(MOVED[old]), ModuleType)
    with pytest.raises(AttributeError, match=rf"there is no {old}\.nothing"):
        module.nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import_module(f"{old}.nothing")


def test_a_module_that_was_a_function_of_its_package_is_called_as_one() -> None:
    code = (
        "import freshopt.io.read_git, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "try: freshopt.io.read_git('nowhere')\n"
        "except freshopt.SourceDataError as error: print(error)\n"
        "import freshopt as fo\n"
        "print(fo.exporters.Crontab())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "nowhere is not a folder. Name a git repository, or a folder in one.",
        "Crontab(command='refresh')",
    ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from freshopt.io import read_log", 1),
        ("from freshopt.io.tables import read_table", 1),
        ("import freshopt.io\nfreshopt.io.atomic_output.complete_file", 1),
        ("import freshopt.exporters\nfreshopt.exporters.crontab.Crontab", 1),
        ("from freshopt.exporters import *\nCrontab", None),
        ("from freshopt.io import *\nread_log", None),
    ],
)
def test_old_names_are_told_once_in_every_way_to_import_them(code: str, said: int | None) -> None:
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        f"    exec(compile({code!r}, 'user', 'exec'), {{}})\n"
        "print(len(told), *{one.filename for one in told})\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count, *places = ran.stdout.split()
    assert places == ["user"]
    assert said is None or int(count) == said


SOURCES = fo.Sources([1.0, 2.0], names=["a", "b"])
LOG = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
LINE = fo.pipeline([("a", "b")], {"a": 1.0})
TREE = automata.AutomataTree(2)
RECIPE = Recipe.from_problem(fo.Problem("age", SOURCES, bandwidth=1.0))


@pytest.mark.parametrize(
    ("made", "old", "new"),
    [
        (lambda: fo.Sources([1.0, 2.0], name=["a", "b"]).names, "Sources(name=)", ["a", "b"]),  # type: ignore[call-arg]
        (lambda: SOURCES.name, "Sources.name", ["a", "b"]),
        (lambda: LOG.sources_, "CrawlLog.sources_", ["a", "b"]),
        (
            lambda: fo.ChangeHistory(["a"], [1.0], 0.0, 2.0, sources=["a", "b"]).names,  # type: ignore[call-arg]
            "ChangeHistory(sources=)",
            ["a", "b"],
        ),
        (lambda: fo.ChangeHistory(["a"], [1.0]).sources_, "ChangeHistory.sources_", ["a"]),
        (lambda: LINE.name, "Pipeline.name", ["a", "b"]),
        (lambda: LINE.sources_name, "Pipeline.sources_name", ["b"]),
        (lambda: node_freshness(LINE, [1.0]).name, "NodeFreshness.name", ["a", "b"]),
        (lambda: RECIPE.name, "Recipe.name", ["a", "b"]),
        (lambda: sources_in(automata.to_networkx(TREE, name=["a", "b"])), "to_networkx(name=)", ["a", "b"]),  # type: ignore[call-arg]
        (
            lambda: automata.draw(TREE, Figure().subplots(), name=["a", "b"]) or [],  # type: ignore[call-arg]
            "draw(name=)",
            [],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_old_attributes_are_the_new_ones(made: Callable[[], Any], old: str, new: list[str]) -> None:
    with pytest.warns(DeprecationWarning, match=" now. The old name goes") as told:
        found = made()
    assert list(found) == new
    words = str(told[0].message)
    assert words.startswith(f"{old} is {old.partition('(')[0].partition('.')[0]}")
    assert words.endswith(" now. The old name goes with the next release.")
    assert told[0].filename == __file__


def sources_in(graph: networkx.DiGraph) -> list[str]:
    return sorted(name for kind, name in graph if kind == "source")


def test_a_check_is_drawn_by_its_earlier_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    check = goodness_of_fit.poisson_check(fo.ChangeHistory(["a"] * 40, rng.uniform(0.0, 9.0, 40), 0.0, 9.0))
    with pytest.warns(DeprecationWarning, match=r"goodness_of_fit\.plot is goodness_of_fit\.draw now"):
        goodness_of_fit.plot(check, tmp_path / "check.png")
    assert (tmp_path / "check.png").exists()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fo.plan(LOG, horizn=7), r"plan\(\) .* Did you mean 'horizon'\?$"),  # type: ignore[call-arg]
        (lambda: fo.Problem("age", SOURCES, bandwith=3), r"Problem\(\) .*\. Did you mean 'bandwidth'\?$"),  # type: ignore[call-arg]
        (lambda: fo.Sources(change_rates=[1.0]), r"Sources\(\) .*\. Did you mean 'change_rate'\?$"),  # type: ignore[call-arg]
        (lambda: fo.Sources([1.0], zzz=1), r"'zzz'\.$"),  # type: ignore[call-arg]
        (lambda: fo.Planner("x", bandwith=3), r"^Planner\(\) .*\. Did you mean 'bandwidth'\?$"),  # type: ignore[call-arg]
    ],
    ids=["plan", "Problem", "Sources", "unlike all", "Planner"],
)
def test_a_wrong_keyword_names_the_nearest(call: Callable[[], object], words: str) -> None:
    refused(words, call, error=TypeError)


@pytest.mark.parametrize("name", [name for name in fo.__all__ if inspect.isfunction(getattr(fo, name))])
def test_every_function_names_the_keyword_nearest_to_a_mistyped_one(name: str) -> None:
    function = getattr(fo, name)
    for key in inspect.signature(function).parameters:
        with pytest.raises(TypeError, match=rf"^{name}\(\) got .* '{key}x'\. Did you mean '{key}'\?$"):
            function(**{f"{key}x": 1})


def test_old_and_new_together_are_refused() -> None:
    @keywords(name="names")
    def size(names: list[str]) -> int:
        return len(names)

    refused(r"size\(\) got names twice, as name too", size, names=["a"], name=["b"], error=TypeError)

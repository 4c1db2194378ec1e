"""Old keywords and attributes: each works, is the new one, and says what that is."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from matplotlib.figure import Figure

import freshopt as fo
from freshopt import automata, goodness_of_fit
from freshopt.moved import keywords
from freshopt.pipelines import node_freshness
from freshopt.testing.recipe import Recipe
from tests.ground_truth.refusals import refused

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
def test_old_names_are_the_new_ones(made: Callable[[], Any], old: str, new: list[str]) -> None:
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

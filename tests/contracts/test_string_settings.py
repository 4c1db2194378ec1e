"""Settings that are one of a few words: walked through the public API, another word is refused.

The message lists those that are possible. A setting is found by its type: a Literal of strings, or an
enumeration. What can be called with right arguments is in `tests.contracts.api_calls`; methods and records
beside these are called here, or left out with a reason.
"""

import dataclasses
import enum
import importlib
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt import automata, online
from freshopt.cvx import cp
from freshopt.live.source_command import SourceCommand
from freshopt.online.learner import Journal
from tests.contracts.api_calls import CALLS
from tests.contracts.api_fixtures import SOURCES
from tests.contracts.test_api import public_names
from tests.ground_truth.named import AGE
from tests.ground_truth.refusals import refused

SIMULATED = automata.SimulatedSources([1.0, 2.0])
TREE = automata.AutomataTree(2, resolution=3)
GRAPH = fo.pipeline([("a", "b")], {"a": 1.0})
RECORD: dict[str, Any] = {
    **dict.fromkeys(("time", "duration", "value", "spent", "allowed", "final"), np.ones(1)),
    "learner": "Even()",
    "best": None,
    "kept": np.zeros(1, np.int64),
    "rates": np.ones((1, 1)),
}
# Settings that no call of `api_calls` has: how a word is handed over.
BESIDE: dict[str, Callable[[Any], Any]] = {
    "automata.AutomataTree.from_shares polling": lambda word: TREE.from_shares([0.5, 0.5], polling=word),
    "automata.AutomataTree.observe feedback": lambda word: TREE.observe(SIMULATED, 1, word),
    "automata.AutomataTree.simulate feedback": lambda word: TREE.simulate(SIMULATED, 1, word),
    "automata.SimulatedSources.slots feedback": lambda word: SIMULATED.slots(
        word, automata.Update.REWARD_PENALTY
    ),
    "automata.SimulatedSources.slots update": lambda word: SIMULATED.slots(automata.Feedback.NEWS, word),
    "freshopt.Pipeline.freshness refresh": lambda word: GRAPH.freshness([1.0, 1.0], word),
    "freshopt.Pipeline.missed_changes refresh": lambda word: GRAPH.missed_changes([1.0, 1.0], word),
    "online.RunHistory sense": lambda word: online.RunHistory(**RECORD, sense=word),
    "testing.validate scales": lambda word: fo.testing.validate(
        lambda problem: problem.lower, [AGE], n=2, scales=[word], smallest=False
    ),
}
# A copy's settings are checked where the copy is declared, and handed on by the library.
HANDED_ON = frozenset(
    ["never_failing", "cone_form", "declare", "convex_per_bandwidth", "concave_per_bandwidth", "power_law"]
)
RESULTS = frozenset(["freshopt.Solution", "freshopt.Solutions", "distributed.DistributedSolution"])


def choices(hint: Any) -> list[Any]:  # noqa: ANN401 - a type
    """Return the words, or the members, that a type names."""
    if typing.get_origin(hint) is typing.Literal:
        return [word for word in typing.get_args(hint) if isinstance(word, str)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return list(hint)
    return [word for inner in typing.get_args(hint) for word in choices(inner)]


def hints(function: Any) -> dict[str, Any]:  # noqa: ANN401 - a function or class
    """Return the types of a function's arguments; those that only type checkers know as text."""
    known = vars(importlib.import_module(function.__module__))
    found = {}
    for key, written in getattr(function, "__annotations__", {}).items():
        try:
            found[key] = eval(written, dict(known)) if isinstance(written, str) else written
        except NameError:
            assert "Literal" not in str(written)
    return found


def public_settings() -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the owner, the name and the choices of every setting of public functions, classes and methods."""
    for name in sorted(public_names()):
        package, own = name.split(".")
        home = fo if package == "freshopt" else importlib.import_module(f"freshopt.{package}")
        found = getattr(home, own)
        functions = {name: found}
        if isinstance(found, type):
            functions = {name: vars(found).get("__init__")}
            methods = inspect.getmembers(found, inspect.isroutine)
            functions |= {f"{name}.{key}": method for key, method in methods if not key.startswith("_")}
        for where, function in functions.items():
            if inspect.isfunction(function) or inspect.ismethod(function):
                for key, hint in hints(function).items():
                    if key != "return" and choices(hint):
                        yield where, key, choices(hint)


SETTINGS = {
    f"{owner} {key}": words
    for owner, key, words in public_settings()
    if owner.rpartition(".")[2] not in HANDED_ON
    and owner not in RESULTS
    and not owner.startswith("pipelines.Pipe")
}


def test_the_walk_finds_them() -> None:
    assert len(SETTINGS) > 25
    assert {"freshopt.Tied cost", "freshopt.Worst then", "solvers.Conic backend"} <= set(SETTINGS)
    called = {f"{owner} {key}" for owner, call in CALLS.items() for key in call.arguments}
    defaults = {
        f"{owner} {key}"
        for owner, call in CALLS.items()
        for key in inspect.signature(call.function).parameters
    }
    assert not set(SETTINGS) - called - defaults - set(BESIDE), "give these a call in BESIDE"
    assert set(BESIDE) <= set(SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("wrong", ["banana", "", "POISSON", 3])
def test_another_word_is_refused_with_those_that_are_possible(setting: str, wrong: Any) -> None:  # noqa: ANN401
    owner, key = setting.split()
    words = SETTINGS[setting]
    if owner in CALLS:
        call = CALLS[owner]

        handed_over: Callable[[Any], Any] = lambda word: call.function(**{**call.arguments, key: word})  # noqa: E731
    else:
        handed_over = BESIDE[setting]
    if wrong == 3 and words == ["auto"]:
        return  # a number, or auto
    with pytest.raises(fo.FreshoptError) as caught:
        handed_over(wrong)
    message = str(caught.value)
    assert "\n" not in message
    offered = [word for word in words if (word if isinstance(word, str) else repr(word)) in message]
    # Of disciplines those that the objective has.
    assert len(offered) == len(words) or (isinstance(words[0], fo.Refresh) and offered), message


def maximised(sense: Any, *, by_instance: str = "") -> fo.Objective:  # noqa: ANN401
    """Return √ρ or −√ρ with a sense of the class, of the instance, by a property, or by a field."""

    class Own(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            root = cp.multiply(sources.importance, cp.sqrt(rate))
            return root if self.sense == "maximise" else -root

    if by_instance == "field":

        @dataclasses.dataclass(frozen=True)
        class Field(Own):
            sense: str = "minimise"  # type: ignore[assignment, misc]

        return Field(sense)
    if by_instance == "assigned":
        plain = Own()
        plain.sense = sense  # type: ignore[misc]
        return plain
    own = {"sense": property(lambda _: sense) if by_instance == "property" else sense}
    found: fo.Objective = type("Stated", (Own,), own)()
    return found


@pytest.mark.parametrize("where", ["class", "field", "assigned", "property"])
@pytest.mark.parametrize("word", ["minimise", "minimize", "maximise", "maximize"])
def test_both_spellings_are_the_same_sense(word: str, where: str) -> None:
    objective = maximised(word, by_instance=where)
    solved = fo.solve(fo.Problem(objective, SOURCES, bandwidth=3.0))
    assert np.isclose(solved.rates.sum(), 3.0)
    assert (solved.value > 0.0) == word.startswith("max")
    meant = word.replace("ize", "ise")
    assert fo.Expected(objective, np.ones((len(SOURCES), 1)), [1.0]).sense == meant
    assert fo.Worst(objective, by=["a", "b", "c"]).sense == meant
    side: dict[str, Any] = {"at_least" if word.startswith("max") else "at_most": 0.0}
    assert fo.Target(maximised(word, by_instance=where), **side).objective.sense == meant


@pytest.mark.parametrize("where", ["class", "field", "assigned", "property"])
@pytest.mark.parametrize("word", ["banana", "min", "Maximise", "", None, 1, "minimises"])
def test_another_sense_is_refused(word: object, where: str) -> None:
    with pytest.raises(fo.ObjectiveError, match=r"^sense of \w+ is .* Pass 'minimise' or 'maximise'\.$"):
        fo.Problem(maximised(word, by_instance=where), SOURCES, bandwidth=3.0)


def test_settings_of_records_that_are_not_exported_are_read_the_same_way() -> None:
    assert Journal("Even()", "maximize")._sense == "maximise"  # type: ignore[arg-type]
    refused("Pass 'minimise' or 'maximise'", Journal, "Even()", "banana", error=fo.FreshoptError)
    with pytest.raises(fo.FreshoptError, match="Pass 'output' or 'exit-code'"):
        SourceCommand(("cat", "{source}"), changed_by="exit code")  # type: ignore[arg-type]

"""One instance of every public class, and what is in it: for tests of copies, pickles and read-only arrays.

Most are found, not listed: what the calls of `api_calls` take, make and return, and whatever these hold.
"""

import functools
import importlib
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import freshopt as fo
from freshopt import estimators, noisy_signals, solvers, testing, tools
from freshopt.cvx import cp
from freshopt.datasets.change_histories import EXAMPLES
from freshopt.estimators.changes_per_time import Naive
from freshopt.estimators.estimator import BatchEstimator
from freshopt.estimators.known_crawl_rate import KnownCrawlRate
from tests.contracts import api_calls, api_elsewhere
from tests.contracts.api_fixtures import COUNTED, LIMITED, LOG, MATCHED, PROBLEM, SOURCES, sources
from tests.ground_truth.named import BINARY

# They have no values of their own; `tests.distributed.test_solving` has those of partitions.
# A planner is a handle on an open database, no value: a copy would share its connection.
HANDLES = frozenset(["freshopt.Planner"])
NONE = api_elsewhere.ELSEWHERE["a base class or a protocol"] | HANDLES
PARTITIONED = "distributed."
SIGNALLED = {
    "source": ["a"] * 4,
    "elapsed": [1.0, 2.0, 1.0, 3.0],
    "signals": [0, 1, 0, 1],
    "changed": [0, 1, 1, 0],
}


class OwnArrays(fo.Objective):
    """A user's objective that holds an array of length n."""

    def __init__(self, weight: list[float]) -> None:
        self.weight = np.array(weight)

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(self.weight * sources.change_rate, cp.inv_pos(rate))


def attributes(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any object
    """Return all that an object holds, by name."""
    held = dict(getattr(value, "__dict__", {}))
    for owner in type(value).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__weakref__" and hasattr(value, name):
                held[name] = getattr(value, name)
    return held


def is_ours(value: Any) -> bool:  # noqa: ANN401 - any object
    return type(value).__module__.split(".")[0] in ("freshopt", "tests") and not isinstance(value, type)


def reachable(value: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any object
    """Yield the library's objects that an object holds, itself first, each once, with their paths."""
    seen: dict[int, Any] = {}
    queue = [(path, value)]
    while queue:
        where, here = queue.pop()
        if id(here) in seen or isinstance(here, type | types.ModuleType):
            continue
        seen[id(here)] = here
        if is_ours(here):
            yield where, here
            queue += [(f"{where}.{name}", held) for name, held in attributes(here).items()]
        if isinstance(here, functools.partial):
            queue += [(f"{where}.arguments", (*here.args, here.keywords))]
        if isinstance(here, tuple | list | set | frozenset):
            queue += [(f"{where}[{k}]", held) for k, held in enumerate(here)]
        elif isinstance(here, Mapping) and not is_ours(here):
            queue += [(f"{where}[{key!r}]", held) for key, held in here.items()]


def public_classes() -> dict[type, str]:
    """Return every public class with its name."""
    found: dict[type, str] = {}
    for package in ("", *(f".{name}" for name in fo._PACKAGES)):
        module = importlib.import_module(f"freshopt{package}")
        for name in module.__all__:
            if inspect.isclass(getattr(module, name)):
                found.setdefault(getattr(module, name), f"{module.__name__.split('.')[-1]}.{name}")
    return {
        owner: name for owner, name in found.items() if name not in NONE and not name.startswith(PARTITIONED)
    }


def kinds(owner: type[fo.FreshoptError]) -> Iterator[type[fo.FreshoptError]]:
    """Yield all subclasses of an error."""
    for child in owner.__subclasses__():
        yield child
        yield from kinds(child)


def errors() -> list[Exception]:
    """Return an error of every kind, one as a pool of processes raises it, and a warning."""
    plain: set[Any] = {fo.FreshoptError, *kinds(fo.FreshoptError)} - {fo.CertificateError}
    made: list[Any] = [kind("It is so. Because.") for kind in sorted(plain, key=str)]
    made.append(fo.SourceDataWarning("It looks wrong. Because."))
    try:
        fo.solve(PROBLEM, solvers.MirrorDescent(limit=1))
    except fo.CertificateError as error:
        error.add_note("a note")
        made.append(error)
    return made


@functools.cache
def values() -> dict[str, Any]:
    """Return values by name, such that every public class is among what they hold."""
    found: dict[str, Any] = {}
    for name, call in api_calls.CALLS.items():
        found[f"{name} takes"] = call.arguments
        owner = public_class(name)
        if owner is not None and name not in HANDLES:
            known = inspect.signature(owner).parameters.values()
            given = {each.name: call.arguments[each.name] for each in known if each.name in call.arguments}
            if all(each.name in given or each.default is not each.empty for each in known):
                found[name] = fitted(owner(**given))
        if not name.startswith("testing.assert"):
            result = call.function(**call.arguments)
            found[f"{name} returns"] = list(result) if inspect.isgenerator(result) else result
    own = fo.Problem(OwnArrays([1.0, 2.0, 3.0]), SOURCES, 2.0)
    mixed = fo.Problem(
        BINARY,
        sources(signalled=[False, True, False], host=["x", "x", "y"], max_rate=4.0),
        2.0,
        {"x": 1.0},
    )
    more = [
        *errors(),
        *EXAMPLES.values(),
        noisy_signals.SignalWaits([[2.0, 0.5]], names=["a"]),
        noisy_signals.AgeThresholds([2.0], 0.5, 0.5, names=["a"]),
        noisy_signals.WithNoisySignals(fo.problems.AccumulatedDelay(), [0.5], [0.9]),
        noisy_signals.NoisySignals().fit(
            {
                "source": ["a"] * 4,
                "elapsed": [1.0, 2.0, 1.0, 3.0],
                "signals": [0, 1, 0, 1],
                "changed": [0, 1, 1, 0],
            }
        ),
        *(
            getattr(tools, name)()
            for name in (
                "CacheControl",
                "ChangeDetection",
                "Dbt",
                "Dns",
                "Nginx",
                "Redis",
                "ExternalSecrets",
                "FreshRss",
                "Miniflux",
                "Nutch",
                "PgCron",
                "StormCrawler",
            )
        ),
        tools.TextTemplate("{source}"),
        tools.DbtJobs("manifest.json"),
        solvers.Auto(),
        LIMITED,
        fo.solve(LIMITED),
        fo.certify(LIMITED, [0.5, 0.5, 0.1], prices={"bytes": 0.1}),
        fo.solve(own),
        fo.solve(mixed),
        testing.Recipe.from_problem(PROBLEM),
        MATCHED,
    ]
    return found | {type(value).__name__ + f" {k}": value for k, value in enumerate(more)}


def fitted(value: Any) -> Any:  # noqa: ANN401 - any object
    """Return an estimator fitted to a log, and any other value as it is."""
    if isinstance(value, estimators.FullObservation):
        return value.fit(COUNTED)
    if isinstance(value, KnownCrawlRate):
        return value.fit(LOG, 1.0)
    return value.fit(LOG) if isinstance(value, BatchEstimator | Naive) else value


def public_class(name: str) -> Any:  # noqa: ANN401 - a class or None
    package, _, own = name.partition(".")
    module = fo if package == "freshopt" else importlib.import_module(f"freshopt.{package}")
    found = getattr(module, own)
    return found if inspect.isclass(found) else None

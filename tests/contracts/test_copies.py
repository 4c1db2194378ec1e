"""Every public value comes back from pickles and copies equal, with its arrays as read-only as before.

A pickle is how results come back from a pool of processes and go to Dask workers.
"""

import concurrent.futures
import copy
import functools
import multiprocessing
import pickle
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cloudpickle
import numpy as np
import pytest

import freshopt as fo
from freshopt import noisy_signals
from freshopt.cvx import cp
from tests.contracts.api_fixtures import PROBLEM
from tests.contracts.api_values import attributes, is_ours, public_classes, reachable, values


def pickled(protocol: int, value: Any) -> Any:  # noqa: ANN401 - any object
    return pickle.loads(pickle.dumps(value, protocol))


PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "cloudpickle": lambda value: pickle.loads(cloudpickle.dumps(value)),
    **{f"pickle {k}": functools.partial(pickled, k) for k in PROTOCOLS},
}


@pytest.fixture(scope="module", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Write what is exported to a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("copies"))
        yield


@functools.cache
def specimens() -> dict[str, Any]:
    """Return one value of every class of the library that public values hold, by its path."""
    found: dict[type, tuple[str, Any]] = {}
    for name, value in values().items():
        for path, held in reachable(value, name):
            # CVXPY's expressions have a number each, and remember what they were asked.
            if type(held).__module__.startswith("freshopt") and not isinstance(held, cp.Expression):
                found.setdefault(type(held), (path, held))
    return dict(found.values())


def difference(one: Any, other: Any, where: str = "it", seen: frozenset[int] = frozenset()) -> str:  # noqa: ANN401
    """Return where two values differ; empty if they are equal, types, dtypes and strides 0 included."""
    if one is other or id(one) in seen:
        return ""
    seen |= {id(one)}
    if type(one) is not type(other):
        return f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, np.ndarray):
        return difference_of_arrays(one, other, where)
    if isinstance(one, np.random.Generator):
        return difference(one.bit_generator.state, other.bit_generator.state, where, seen)
    if isinstance(one, Mapping) and not is_ours(one):
        one, other = dict(one), dict(other)
        if list(one) != list(other):
            return f"{where}: {list(one)} and {list(other)}"
        pairs = [(f"{where}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, tuple | list):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} entries"
        pairs = [(f"{where}[{k}]", *both) for k, both in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, functools.partial):
        pairs = [(where, (one.func, one.args, one.keywords), (other.func, other.args, other.keywords))]
    elif isinstance(one, types.MethodType):
        pairs = [(where, one.__self__, other.__self__)] if one.__name__ == other.__name__ else [(where, 0, 1)]
    elif isinstance(one, Exception):
        pairs = [(where, (one.args, sorted(vars(one).items())), (other.args, sorted(vars(other).items())))]
    elif is_ours(one) and attributes(one):
        ours, theirs = attributes(one), attributes(other)
        if ours.keys() != theirs.keys():
            return f"{where}: {set(ours) ^ set(theirs)}"
        pairs = [(f"{where}.{name}", ours[name], theirs[name]) for name in ours]
    else:
        same = one == other or (isinstance(one, float) and np.isnan(one) and np.isnan(other))
        return "" if same else f"{where}: {one!r} and {other!r}"
    return next(filter(None, (difference(a, b, path, seen) for path, a, b in pairs)), "")


def difference_of_arrays(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], where: str) -> str:
    """Compare what code can tell apart: numbers, type, whether it may be written and takes memory."""
    for what, a, b in (
        ("dtype", one.dtype, other.dtype),
        ("shape", one.shape, other.shape),
        ("writeable", one.flags.writeable, other.flags.writeable),
        ("one number", one.size and one.strides == (0,), other.size and other.strides == (0,)),
    ):
        if a != b:
            return f"{where}: {what} is {a} and {b}"
    return "" if np.array_equal(one, other, equal_nan=one.dtype.kind == "f") else f"{where}: other numbers"


# Classes whose public arrays are state, and change as they act.
ACTING = (noisy_signals.SignalCrawler,)


def writable(value: Any, path: str) -> list[str]:  # noqa: ANN401 - any object
    """Return the arrays that can be changed: public ones, and of frozen values all."""
    found = []
    for where, held in reachable(value, path):
        frozen = getattr(getattr(held, "__dataclass_params__", None), "frozen", False)
        if type(held).__module__.startswith("tests") or isinstance(held, ACTING):
            continue
        for name, attribute in attributes(held).items():
            if frozen or not name.startswith("_"):
                found += [f"{where}.{name}" for array in arrays(attribute) if array.flags.writeable]
    return found


def arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:  # noqa: ANN401 - any attribute
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for entry in value:
            yield from arrays(entry)
    elif isinstance(value, Mapping) and not is_ours(value):
        for entry in value.values():
            yield from arrays(entry)


def test_every_public_class_has_a_value_whose_arrays_cannot_be_written() -> None:
    # What is on a device, `tests.cuda.on_device` makes; no library copies it off unasked.
    classes = {owner for owner in public_classes() if not owner.__module__.startswith("freshopt.cuda")}
    missing = classes - {type(value) for value in specimens().values()}
    assert missing == set(), "give these an instance in tests/contracts/api_values.py"
    assert [path for name, value in values().items() for path in writable(value, name)] == []


def test_values_come_back_equal_and_read_only() -> None:
    for path, value in specimens().items():
        for way, copied in WAYS.items():
            try:
                again = copied(value)
            except Exception as error:
                error.add_note(f"{way} of {path}")
                raise
            assert difference(value, again, path) == "", way
            assert writable(again, path) == [], way


def test_a_table_of_sources_is_the_same_after_a_pickle() -> None:
    sources = fo.Sources([1.0, 2.0])
    assert (
        pickle.loads(pickle.dumps(sources)).to_frame().columns
        == sources.to_frame().columns
        == ["source", "change_rate"]
    )
    assert len(pickle.dumps(fo.Sources(np.ones(10_000)))) < 2 * 80_000


def test_a_certificate_error_comes_back_from_a_pool_with_its_solution() -> None:
    """Spawned, as everywhere but on Linux; what cannot be loaded breaks the pool."""
    kept = [value for value in specimens().values() if type(value).__module__.startswith("freshopt")]
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        failing = pool.submit(fo.solve, PROBLEM, fo.solvers.MirrorDescent(limit=1))
        with pytest.raises(fo.CertificateError) as caught:
            failing.result()
        again = list(pool.map(copy.copy, kept))
    assert caught.value.solution.status is fo.Status.ITERATION_LIMIT
    assert not caught.value.solution.rates.flags.writeable
    for value, returned in zip(kept, again, strict=True):
        assert difference(value, returned) == ""
        assert writable(returned, type(returned).__name__) == []

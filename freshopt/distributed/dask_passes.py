"""Passes over all partitions, on Dask workers or threads.

Where a `distributed` client is active its scheduler runs the tasks. A worker that is lost costs its tasks a
second run elsewhere, and results that it had not yet handed over are computed again: tasks are functions of
a partition and of a message, without memory, and may run any number of times. Otherwise Dask's default
scheduler (threads; `dask.config` may say otherwise) runs them, a few partitions for each core at a time.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from freshopt.errors import FreshoptError, ObjectiveError, SourceDataError

Result = TypeVar("Result")
# Partitions per core and batch on threads; waiting for the slowest of a batch costs a few per cent.
AT_ONCE = 4
# Partitions per thread of the workers; results wait on workers until the client has time for them.
IN_FLIGHT = 4


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """Runs passes over partitions and keeps the seconds they take.

    - `on_progress`: Called with a word before each pass.
    - `seconds`: Of the passes so far.
    """

    on_progress: Callable[[str], None]
    seconds: list[float] = field(default_factory=list)

    def run(
        self,
        word: str,
        step: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        message: object,
        fold: Callable[[int, Any], Any] = lambda _, result: result,
    ) -> list[Any]:
        """Run a step on every partition; return results, folded, in order."""
        results: list[Any] = [None] * len(calls)
        with self.timed(word):
            for k, result in run_pass(step, list(calls), message):
                results[k] = fold(k, result)
        return results

    @contextmanager
    def timed(self, word: str) -> Iterator[None]:
        """Announce a pass and, if it succeeds, note how long it takes."""
        self.on_progress(word)
        begun = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - begun)


def run_pass(
    work: Callable[..., Result], calls: list[tuple[Any, ...]], message: object
) -> Iterator[tuple[int, Result]]:
    """Yield ``(k, work(*calls[k], message))`` as calls complete.

    - `work`: Importable by workers.
    - `calls`: The arguments of each call; delayed values among them are computed first.
    - `message`: Sent once, whatever the number of calls.
    - raises SourceDataError if Dask is not installed.
    - raises FreshoptError: what a call raises; or, naming the call, where its workers were lost again and
      again.
    """
    dask = _dask()
    sent_message = dask.delayed(pack(message), pure=False, traverse=False)
    client = _client()
    if client is not None:
        # Sent once, as a task that can run again on another worker where one was lost.
        sent_message = client.compute(sent_message)
    del message
    tasks = [dask.delayed(_apply, pure=False)(work, sent_message, *call) for call in calls]
    if client is not None:
        yield from _on_workers(client, tasks)
        return
    size = AT_ONCE * (os.cpu_count() or 1)
    for begin in range(0, len(tasks), size):
        for k, result in enumerate(dask.compute(*tasks[begin : begin + size])):
            yield begin + k, result


def run_behind(
    work: Callable[..., Any],
    calls: list[tuple[Any, ...]],
    message: object,
    then: Callable[[list[Any], Any], Result],
    further: object,
) -> Result:
    """Map and reduce on workers; return the reduced result.

    It is ``then([work(*call, message) for call in calls], further)``; the list stays on the workers.

    - `work`, `calls`, `message`: As in `run_pass`.
    - `then`: Importable by workers; it runs on one of them.
    - `further`: Sent to it.
    """
    dask = _dask()
    sent_message, last = (dask.delayed(pack(one), pure=False, traverse=False) for one in (message, further))
    tasks = [dask.delayed(_apply, pure=False)(work, sent_message, *call) for call in calls]
    ((_, result),) = run_pass(_after, [(then, tasks, last)], None)
    found: Result = result
    return found


def pack(value: object) -> bytes:
    """Return a value as bytes, by cloudpickle.

    Classes of scripts and notebooks are packed too. What a worker cannot unpack then fails as a task with a
    sentence; within Dask's own messages it would take the worker down.
    """
    import cloudpickle

    packed: bytes = cloudpickle.dumps(value)
    return packed


def unpack(packed: bytes) -> Any:  # noqa: ANN401 - what was packed
    """Return the value, on a worker."""
    try:
        return pickle.loads(packed)
    except ImportError as error:
        raise ObjectiveError(
            f"a worker cannot load the objective: {error}. Install that module on the workers."
        ) from None


def _apply(work: Callable[..., Result], message: bytes, *call: Any) -> Result:  # noqa: ANN401
    return work(*call, unpack(message))


def _after(then: Callable[[list[Any], Any], Result], results: list[Any], further: bytes, _: None) -> Result:
    return then(results, unpack(further))


def _on_workers(client: Any, tasks: list[Any]) -> Iterator[tuple[int, Any]]:  # noqa: ANN401
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    window = IN_FLIGHT * max(1, sum(client.nthreads().values()))
    waiting: dict[Any, tuple[int, Any]] = {}
    done, sent = as_completed(), 0
    try:
        while sent < len(tasks) or waiting:
            if sent < len(tasks) and len(waiting) <= window // 2:
                futures = client.compute(tasks[sent : sent + window])
                waiting |= {future.key: (sent + k, future) for k, future in enumerate(futures)}
                done.update(futures)
                sent += len(futures)
            future = next(done)
            k, _ = waiting[future.key]
            yield k, future.result()
            del waiting[future.key]
            future.release()
    except KilledWorker as error:
        raise FreshoptError(
            f"a pass was given up: {' '.join(str(error).split('.')[0].split())}. "
            "Give workers more memory, or use smaller partitions."
        ) from None
    finally:
        client.cancel([future for _, future in waiting.values()])


def _client() -> Any:  # noqa: ANN401
    """Return the active client, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        # This is how distributed says that there is no client.
        return None


def _dask() -> Any:  # noqa: ANN401
    try:
        import dask
        import pyarrow  # noqa: F401 - what reads and writes the partitions
    except ImportError as error:
        raise SourceDataError(
            f"{error.name} is not installed. Install it with: pip install 'freshopt[dask]'"
        ) from None
    return dask

"""One pool of threads per process, for passes over chunks of sources.

A pool made for each pass takes longer than a pass over 10⁵ sources. The caller works on a share of its own
and then on every share that no thread has begun, so that passes of several callers, or a pass within a pass,
never wait for a free thread. A forked process starts with a pool of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise

# The pool, once a pass has been shared, and for how many threads it was made.
_POOL: dict[int, ThreadPoolExecutor] = {}


def threads() -> int:
    """Return how many threads share a pass."""
    given = os.environ.get("FRESHOPT_THREADS", "")
    return max(1, int(given)) if given.isdigit() else _cores()


def _cores() -> int:
    """Return how many cores the process may use.

    Those of the machine where the system does not say.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_chunks_in_threads(part: Callable[[int, int], None], pieces: int, least: int) -> None:
    """Run ``part(begin, end)`` over 0..pieces, in threads.

    There are as many threads as `threads` says, with `least` pieces each. What a share raises is raised here,
    once no thread works on any of them.
    """
    shares = max(1, pieces // least)
    workers = min(threads(), shares) if shares > 1 else 1
    if workers == 1:
        part(0, pieces)
        return
    mine, *others = pairwise(pieces * k // workers for k in range(workers + 1))
    pool = _pool(workers - 1)
    handed: list[tuple[Future[None], tuple[int, int]]] = []
    try:
        for each in others:
            future = _submitted(pool, part, each)
            if future is None:
                break
            handed.append((future, each))
        for each in (mine, *others[len(handed) :]):
            part(*each)
        for future, each in handed[::-1]:
            if future.cancel():
                part(*each)
    finally:
        # Cancelled futures are never run, and count as done only when a thread comes by.
        begun = [future for future, _ in handed if not future.cancel()]
        wait(begun)
    for future in begun:
        future.result()


def _submitted(
    pool: ThreadPoolExecutor, part: Callable[[int, int], None], each: tuple[int, int]
) -> Future[None] | None:
    try:
        return pool.submit(part, *each)
    except RuntimeError:  # how a pool says that the interpreter is ending
        return None


def _pool(size: int) -> ThreadPoolExecutor:
    """Return the process's pool, of `size` threads or more.

    Threads start when there is work for them. A pool that is too small is left to the passes that use it: it
    ends with the last of them.
    """
    found = next(iter(_POOL.items()), None)
    if found is not None and found[0] >= size:
        return found[1]
    most = max(size, _cores())
    made = ThreadPoolExecutor(most, thread_name_prefix="freshopt")
    _POOL.clear()
    _POOL[most] = made
    return made


if hasattr(os, "register_at_fork"):  # Windows does not fork
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_POOL.clear)

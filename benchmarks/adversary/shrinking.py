"""Smaller cases with the same finding: fewer sources, fewer features, rounder numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.adversary.case import DEFAULTS, Case

TRIES = 400


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = TRIES) -> Case:
    """Return a simpler case that fails in the same way, after so many tries at most."""
    left, before = tries, None
    while before is not case and left > 0:
        before = case
        for candidate in simpler(case):
            left -= 1
            if left < 0:
                break
            if fails(candidate):
                case = candidate
                break
    return case


def simpler(case: Case) -> Iterator[Case]:
    """Yield simpler cases, the boldest first."""
    n = len(case)
    chunk = n // 2
    while chunk:
        for start in range(0, n, chunk):
            kept = np.delete(np.arange(n), np.s_[start : start + chunk])
            if len(kept):
                part = case.take(kept)
                share = len(kept) / n
                limits = {host: limit * share for host, limit in part.limits.items()}
                yield part
                yield part.changed(bandwidth=case.bandwidth * share, limits=limits)
        chunk = chunk // 2 if n <= 64 or chunk > n // 8 else 0
    if case.layout != "plain":
        yield case.changed(layout="plain")
    if case.solver != "None":
        yield case.changed(solver="None")
    if not case.compiled:
        yield case.changed(compiled=True)
    if case.limits:
        yield case.changed(limits={})
        for host in case.limits:
            yield case.changed(limits={h: limit for h, limit in case.limits.items() if h != host})
    scopes = [np.arange(n), *([np.array([k]) for k in range(n)] if 1 < n <= 12 else [])]
    for key, default in (*DEFAULTS.items(), ("change_rate", 1.0)):
        for scope in scopes:
            column = np.array(case.columns[key], dtype=float)
            if np.any(column[scope] != default):
                column[scope] = default
                yield case.changed(**{key: column})
    for digits in (1, 2, 3):
        for key, column in case.columns.items():
            rounded = np.array([float(f"{x:.{digits - 1}e}") for x in column])
            if not np.array_equal(rounded, column):
                yield case.changed(**{key: rounded})
        whole = float(f"{case.bandwidth:.{digits - 1}e}")
        if whole != case.bandwidth:
            yield case.changed(bandwidth=whole)
        limits = {host: float(f"{limit:.{digits - 1}e}") for host, limit in case.limits.items()}
        if limits != case.limits:
            yield case.changed(limits=limits)

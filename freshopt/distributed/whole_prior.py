"""Default prior of a partitioned log, one for all files.

Without it each file would learn one of its own, from its own sources alone. It is learnt before the workers
begin, from files with as many sources as a prior takes: a log with no more sources has the prior that a plan
in memory has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.gamma_prior import ENOUGH, GammaPrior
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.logs.read_crawls import read_log
from freshopt.planning.wishes import Wishes


def with_whole_prior(request: Wishes, files: Sequence[Path], time_unit: str) -> Wishes:
    """Return the request with the default estimator under the log's prior.

    A request with an estimator of its own stays as it is.
    """
    if request.estimator is not None:
        return request
    logs: list[CrawlLog] = []
    for file in files:
        logs.append(read_log(file, time_unit, answers_are_changes=None))
        if sum(len(log.names) for log in logs) >= ENOUGH:
            break
    return replace(request, estimator=partial(_fitted, default_prior(_joined(logs))))


def _fitted(prior: GammaPrior | None, log: CrawlLog) -> Estimator:
    return MaximumLikelihood(prior=prior).fit(log)


def _joined(logs: list[CrawlLog]) -> CrawlLog:
    """Return one log of all sources, each on its file's clock."""
    before = np.cumsum([0, *(len(log.names) for log in logs)])
    columns: dict[str, Any] = {
        "source": np.concatenate([k + log.source_index for k, log in zip(before[:-1], logs, strict=True)]),
        "time": np.concatenate([log.time for log in logs]),
        "elapsed": np.concatenate([log.interval for log in logs]),
        "changed": np.concatenate([log.changed for log in logs]),
    }
    for key in OPTIONAL:
        given = [getattr(log, key) for log in logs]
        if any(column is not None for column in given):
            columns[key] = np.concatenate(
                [
                    np.full(len(log), np.nan) if column is None else column
                    for log, column in zip(logs, given, strict=True)
                ]
            )
    return derived_log(columns, np.arange(before[-1]), Clock(logs[0].time_unit))

"""Old import paths, for a release: names from where they are now.

A module of `MOVED` is found although there is no file of it. Its names are looked up on use (PEP 562), with a
DeprecationWarning.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_SAME = (
    *("cache_control", "changedetection", "cron_fields", "crontab", "dbt", "dns", "export"),
    *("external_secrets", "icalendar", "nginx", "nutch", "pg_cron", "redis", "stormcrawler", "text_lines"),
    *("text_template", "whole_intervals", "whole_lifetimes"),
)
_READ = (
    *("access_log", "atomic_output", "log_files", "read_history", "read_log", "read_requests", "tables"),
)
# Old module: the module that has its names.
MOVED = {
    "freshopt.adapters": "freshopt.live",
    "freshopt.adapters.scrapy": "freshopt.live.scrapy",
    "freshopt.exporters": "freshopt.tools",
    **{f"freshopt.exporters.{name}": f"freshopt.tools.{name}" for name in _SAME},
    "freshopt.exporters.cron_lines": "freshopt.tools.cron_fields",
    "freshopt.exporters.dbt_jobs": "freshopt.tools.dbt_project",
    "freshopt.exporters.placeholders": "freshopt.tools.text_template",
    "freshopt.exporters.tool_format": "freshopt.tools.export",
    "freshopt.io": "freshopt.logs",
    **{f"freshopt.io.{name}": f"freshopt.logs.{name}" for name in _READ},
    "freshopt.io.access_clients": "freshopt.logs.client_copies",
    "freshopt.io.fetch_outcomes": "freshopt.logs.read_log",
    "freshopt.io.log_cells": "freshopt.logs.cells",
    "freshopt.io.changedetection_api": "freshopt.tools.changedetection_api",
    "freshopt.io.dbt_artifacts": "freshopt.tools.dbt_project",
    "freshopt.io.git_process": "freshopt.tools.git",
    "freshopt.io.read_changedetection": "freshopt.tools.changedetection",
    "freshopt.io.read_dbt": "freshopt.tools.dbt",
    "freshopt.io.read_git": "freshopt.tools.git",
    "freshopt.io.read_nutch": "freshopt.tools.nutch",
    "freshopt.io.read_planner": "freshopt.tools.live_planner",
    "freshopt.io.run_snapshots": "freshopt.tools.records",
    "freshopt.bounds": "freshopt.online",
    "freshopt.bounds.explore_then_commit_regret": "freshopt.online.regret_bounds",
    "freshopt.bounds.mirror_sync_regret": "freshopt.online.regret_bounds",
    "freshopt.bounds.price_bracket": "freshopt.online.price_bracket",
    "freshopt.bounds.sensitivity": "freshopt.online.sensitivity",
    "freshopt.estimators.momentum_stochastic_approximation": "freshopt.estimators.stochastic_approximation",
    "freshopt.online.async_mirror_sync": "freshopt.online.async_sync",
    "freshopt.online.async_projected_gradient_sync": "freshopt.online.async_sync",
    "freshopt.scheduling.carousel": "freshopt.scheduling.constant_load",
    "freshopt.scheduling.discrete_counts": "freshopt.scheduling.integer_counts",
    "freshopt.scheduling.earliest_deadline": "freshopt.scheduling.constant_load",
    "freshopt.scheduling.lifetime_table": "freshopt.scheduling.rate_table",
    "freshopt.live.clock": "freshopt.logs.clock",
}


def moved_name(module: str, name: str, old: str) -> object:
    """Return what had a name in an old module, `old` with it."""
    place = MOVED.get(f"{module}.{name}", MOVED.get(module))
    home = None if place is None or name.startswith("_") else import_module(place)
    if home is None or not hasattr(home, name):
        raise AttributeError(f"there is no {old}")
    words = f"{old} is {place}.{name} now. The old name goes with the next release."
    warnings.warn(words, DeprecationWarning, stacklevel=3)
    return getattr(home, name)


class _Moved(ModuleType):
    """An old module; one named as a function can be called."""

    def __getattr__(self, name: str) -> object:
        """Return a name from where it is now, or an old module."""
        old, home = f"{self.__name__}.{name}", import_module(MOVED[self.__name__])
        if name == "__all__":
            return [own for own in home.__all__ if hasattr(home, own)]
        if old in MOVED and not hasattr(import_module(MOVED[old]), name):
            return import_module(old)
        with warnings.catch_warnings():
            if sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
                # `from package import name` asks twice; the caller's own line is told.
                warnings.simplefilter("ignore")
            return moved_name(self.__name__, name, old)

    def __call__(self, *given: object, **named: object) -> object:
        """Call the function that the module is named after."""
        function = moved_name(self.__name__, self.__name__.rpartition(".")[2], self.__name__)
        return function(*given, **named)  # type: ignore[operator]


class _Finder:
    """Finder and loader of old modules."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004
        """Return how an old module is made."""
        return ModuleSpec(name, _Finder, is_package=True) if name in MOVED else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """Return an old module."""
        return _Moved(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Leave a module as it is made."""


sys.meta_path.append(_Finder)

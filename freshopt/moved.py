"""Old names of modules, for a release.

A module of `MOVED` is found although there is no file of it. Its names are looked up on use (PEP 562), with a
DeprecationWarning. Every process that imports freshopt imports this file, so that it needs little.
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
    *("external_secrets", "icalendar", "nginx", "nutch", "pg_cron", "redis", "stormcrawler", "text_template"),
)
_INFERENCE = (
    *(
        "crawl_formulas",
        "crawl_likelihood",
        "crawl_loops",
        "gamma_prior",
        "host_prior",
        "marginal_likelihood",
    ),
    *("rate_distribution", "rate_grid", "reset_filter", "shared_prior", "success_rates"),
)
_READ = (*("access_log", "atomic_output", "log_files", "tables"),)
_RULES = ("back_off", "fixed_interval", "miniflux", "nutch", "stormcrawler")
_EPOCHS = ("adaptive_rates", "lambda_learn_and_crawl", "phased_epsilon_greedy", "replan_every")
# Old module: the module that has its names.
MOVED = {
    "freshopt.adapters": "freshopt.live",
    "freshopt.adapters.scrapy": "freshopt.live.scrapy",
    "freshopt.exporters": "freshopt.tools",
    **{f"freshopt.exporters.{name}": f"freshopt.tools.{name}" for name in _SAME},
    "freshopt.exporters.cron_lines": "freshopt.tools.cron_fields",
    "freshopt.exporters.dbt_jobs": "freshopt.tools.dbt_project",
    "freshopt.exporters.placeholders": "freshopt.tools.text_template",
    "freshopt.exporters.text_lines": "freshopt.tools.export",
    "freshopt.exporters.tool_format": "freshopt.tools.export",
    "freshopt.exporters.whole_intervals": "freshopt.tools.whole_seconds",
    "freshopt.exporters.whole_lifetimes": "freshopt.tools.whole_seconds",
    "freshopt.io": "freshopt.logs",
    **{f"freshopt.io.{name}": f"freshopt.logs.{name}" for name in _READ},
    "freshopt.io.read_history": "freshopt.logs.read_events",
    "freshopt.io.read_log": "freshopt.logs.read_crawls",
    "freshopt.io.read_requests": "freshopt.logs.read_events",
    "freshopt.io.access_clients": "freshopt.logs.client_copies",
    "freshopt.io.fetch_outcomes": "freshopt.logs.read_crawls",
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
    "freshopt.bounds.price_bracket": "freshopt.online.regret_bounds",
    "freshopt.bounds.sensitivity": "freshopt.online.sensitivity",
    "freshopt.estimators.momentum_stochastic_approximation": "freshopt.estimators.stochastic_approximation",
    "freshopt.online.async_mirror_sync": "freshopt.online.mirror_sync",
    "freshopt.online.async_projected_gradient_sync": "freshopt.online.mirror_sync",
    "freshopt.scheduling.carousel": "freshopt.scheduling.constant_load",
    "freshopt.scheduling.discrete_counts": "freshopt.scheduling.integer_counts",
    "freshopt.scheduling.earliest_deadline": "freshopt.scheduling.constant_load",
    "freshopt.scheduling.lifetime_table": "freshopt.scheduling.rate_table",
    "freshopt.live.clock": "freshopt.logs.clock",
    "freshopt.inference": "freshopt.estimators",
    **{f"freshopt.inference.{name}": f"freshopt.estimators.{name}" for name in _INFERENCE},
    "freshopt.inference.compiled_likelihood": "freshopt.estimators.crawl_likelihood",
    "freshopt.inference.dated_crawls": "freshopt.estimators.crawl_rows",
    "freshopt.inference.forgetting": "freshopt.estimators.crawl_rows",
    "freshopt.inference.formula_loops": "freshopt.estimators.crawl_loops",
    "freshopt.inference.interval_methods": "freshopt.estimators.estimator",
    "freshopt.inference.rate_evidence": "freshopt.estimators.rate_distribution",
    "freshopt.inference.rate_posterior": "freshopt.estimators.rate_distribution",
    "freshopt.estimators.rate_posterior": "freshopt.estimators.rate_distribution",
    "freshopt.estimators.batch_estimator": "freshopt.estimators.estimator",
    "freshopt.estimators.full_observation": "freshopt.estimators.changes_per_time",
    "freshopt.estimators.law_of_large_numbers": "freshopt.estimators.known_crawl_rate",
    "freshopt.estimators.naive": "freshopt.estimators.changes_per_time",
    "freshopt.weekly": "freshopt.estimators",
    "freshopt.weekly.best_phases": "freshopt.estimators.weekly_profile",
    "freshopt.weekly.peak_hours": "freshopt.estimators.weekly_profile",
    "freshopt.weekly.profile": "freshopt.estimators.weekly_profile",
    "freshopt.weekly.profile_learning": "freshopt.estimators.weekly_learning",
    "freshopt.weekly.spans": "freshopt.estimators.weekly_learning",
    "freshopt.weekly.week_clock": "freshopt.estimators.week_clock",
    "freshopt.goodness_of_fit.score_sums": "freshopt.goodness_of_fit.traces",
    "freshopt.goodness_of_fit.statistical_tests": "freshopt.goodness_of_fit.poisson_tests",
    "freshopt.goodness_of_fit.testable_sources": "freshopt.goodness_of_fit.traces",
    "freshopt.online.fixed_polling": "freshopt.online.automata_tree",
    "freshopt.online.async_sync": "freshopt.online.mirror_sync",
    "freshopt.online.exploration_length": "freshopt.online.explore_then_commit",
    **{f"freshopt.online.{name}": "freshopt.online.certainty_equivalence" for name in _EPOCHS},
    "freshopt.online.crawl_buffer": "freshopt.online.epoch_crawls",
    "freshopt.online.visit_times": "freshopt.online.epoch_crawls",
    "freshopt.online.poll_batches": "freshopt.online.automata_tree",
    "freshopt.online.runs": "freshopt.online.learner",
    "freshopt.online.oracle": "freshopt.online.rate_evaluation",
    "freshopt.online.price_bracket": "freshopt.online.regret_bounds",
    "freshopt.simulation.change_columns": "freshopt.simulation.loops",
    "freshopt.simulation.expected_costs": "freshopt.simulation.static_costs",
    "freshopt.simulation.age_laws": "freshopt.simulation.static_costs",
    "freshopt.simulation.request_states": "freshopt.simulation.request_replay",
    **{f"freshopt.simulation.rules.{name}": "freshopt.simulation.rules.programs" for name in _RULES},
    "freshopt.simulation.age_costs": "freshopt.simulation.crawler",
    "freshopt.simulation.replay_window": "freshopt.simulation.staleness_integrals",
    "freshopt.testing.row_shortfalls": "freshopt.testing.optimality",
    "freshopt.testing.shrinking": "freshopt.testing.validation",
    "freshopt.testing.constraint_cuts": "freshopt.testing.recipe",
    "freshopt.datasets.crawl_rhythms": "freshopt.datasets.change_histories",
    "freshopt.pipelines.aligned": "freshopt.pipelines.after_parents",
    "freshopt.pipelines.blocks": "freshopt.pipelines.upstream",
    "freshopt.pipelines.node_numbers": "freshopt.pipelines.graph",
    "freshopt.pipelines.independent_phases": "freshopt.pipelines.after_parents",
    "freshopt.noisy_signals.quality_classes": "freshopt.noisy_signals.with_signals",
    "freshopt.noisy_signals.poisson_tails": "freshopt.noisy_signals.cycle_terms",
    "freshopt.noisy_signals.threshold_passes": "freshopt.noisy_signals.threshold_search",
    "freshopt.noisy_signals.threshold_rule": "freshopt.noisy_signals.signal_thresholds",
    "freshopt.automata.heaps": "freshopt.automata.transitions",
    "freshopt.automata.initial_state": "freshopt.automata.share_bounds",
    "freshopt.automata.observed_costs": "freshopt.automata.polls",
    "freshopt.automata.observed_costs.Cost": "freshopt.automata.settings",
}


def warn_renamed(old: str, new: str, level: int = 3) -> None:
    """Warn that something has another name."""
    words = f"{old} is {new} now. The old name goes with the next release."
    warnings.warn(words, DeprecationWarning, stacklevel=level)


def moved_name(module: str, name: str, old: str) -> object:
    """Return what had a name in an old module, `old` with it."""
    place = MOVED.get(f"{module}.{name}", MOVED.get(module))
    home = None if place is None or name.startswith("_") else import_module(place)
    if home is None or not hasattr(home, name):
        raise AttributeError(f"there is no {old}")
    warn_renamed(old, f"{place}.{name}", 4)
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

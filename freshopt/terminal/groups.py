"""Options that a command lists, in groups, and further settings.

A group is a panel of the help and, by its first word, a section of the file. A command that is not here lists
all its options; an option that is not here, of a command that is, works and is not told. rich-click, which
draws the panels, is imported where help is asked for, and only there.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import NamedTuple

import click


class Group(NamedTuple):
    """Options that belong together: those listed, and further settings."""

    listed: tuple[str, ...]
    more: tuple[str, ...] = ()


_LOG = Group(
    ("example", "columns", "time-unit"),
    ("client", "agent", "pattern", "answers-are-changes", "sources", "verbose"),
)
_BOUNDS = ("min-interval", "max-interval", "limits", "host-limits")
_RATES = ("min-rate", "max-rate")
_FILE = Group(("out", "overwrite"))
GROUPS: dict[str, dict[str, Group]] = {
    "plan": {
        "Input": Group(("example", "columns"), (*_LOG.more[:5], "crawls", "time-unit")),
        "Plan": Group(
            ("bandwidth", "freshness", "objective"),
            (
                *("horizon", "importance", "refresh", "exponent", "deadline", "cheapest"),
                *("retry-at-once", "changed-cost"),
            ),
        ),
        "Limits": Group(
            ("min-interval", "max-interval", "host-limits"),
            (
                *("limits", "host-gap", "hosts", *_RATES, "budget", "target", "nested", "nested-limits"),
                *("source-columns", "load-limit", "promise", "hours"),
            ),
        ),
        "Test and compare": Group(("replay",), ("compare-rule", "compare", "max-churn", "every")),
        "Output": Group(("out", "overwrite", "details", "json", "quiet"), ("csv", "verbose")),
        "Settings": Group(("config", "init")),
        "Estimate": Group(
            (),
            (
                "estimator",
                "smoothing",
                "half-life",
                "reset",
                "prior",
                "confidence",
                "seed",
                "draws",
                "signals",
                "features",
                "change-model",
            ),
        ),
        "Advanced": Group((), ("engine", "scheduler")),
    },
    "lifetimes": {
        "Input": Group(("requests", "example", "columns"), _LOG.more),
        "Plan": Group(
            ("bandwidth", "freshness", "objective", "importance", "stale-while-revalidate"),
            ("exponent", "deadline", "confidence", "time-unit"),
        ),
        "Limits": Group(_BOUNDS, ("hosts", *_RATES)),
        "Output": Group(("format", "out", "overwrite"), ("csv",)),
        "Estimate": Group((), ("estimator", "smoothing", "half-life", "reset", "prior")),
    },
    "estimate": {
        "Input": Group((*_LOG.listed, "requests"), _LOG.more),
        "Estimate": Group(
            ("estimator", "prior", "hosts", "half-life", "reset", "confidence"), ("smoothing",)
        ),
        "Output": _FILE,
    },
    "poisson-check": {
        "Input": _LOG,
        "Test": Group(("level",)),
        "Output": Group(("out", "plot", "overwrite")),
    },
    "solve": {
        "Problem": Group(
            ("bandwidth", "objective", "refresh", "time-unit"),
            ("exponent", "deadline", "retry-at-once", "verbose"),
        ),
        "Limits": Group((*_BOUNDS, "budget", "target", "cheapest"), (*_RATES, "nested", "nested-limits")),
        "Solve": Group(("solver",), ("engine", "scheduler")),
        "Output": _FILE,
    },
    "run": {
        "Sources": Group(
            ("sources", "log", "bandwidth", "objective"),
            ("source-columns", "features", "answers-are-changes", "burst"),
        ),
        "Limits": Group((*_BOUNDS, "host-gap"), (*_RATES, "hours", "promise", "no-promise", "changed-cost")),
        "Run": Group(
            ("command", "changed-by", "jobs", "timeout", "once", "for"), ("signals-from", "verbose")
        ),
        "Output": Group(("quiet",)),
    },
    "serve": {
        "Service": Group(("listen", "token-file"), ("verbose",)),
        "Plan": Group(("bandwidth", "objective"), ("source-columns", "features", "burst")),
        "Limits": Group(("host-limits", "host-gap", "promise"), ("no-promise", "hours", "changed-cost")),
    },
    "frontier": {
        "Problem": Group(
            ("bandwidths", "objective", "refresh", "time-unit"), ("exponent", "deadline", "verbose")
        ),
        "Limits": Group((*_BOUNDS, "budget", "target"), (*_RATES, "nested", "nested-limits")),
        "Output": _FILE,
    },
    "schedule": {
        "Times": Group(("method", "horizon", "start", "host-gap", "hosts"), ("seed", "verbose")),
        "Tools": Group(("format", "longest", "command", "template"), ("table", "retry-at-once", "time-unit")),
        "Method": Group((), ("sources", "objective", "slot", "crawlers", "per-host", "min-gap", "blackout")),
        "Output": _FILE,
    },
    "check": {
        "Problems": Group(
            ("objective", "refresh", "bandwidth", "host-limits", "time-unit"),
            ("exponent", "deadline", "seed", "n", "verbose"),
        ),
        "Solvers": Group(("solvers", "solver", "tolerance", "time-limit")),
        "Output": Group(("details", "html", "overwrite")),
    },
}

# Options by their names before 0.2, which go in 0.3.
RENAMED = {
    "sync": {"--shortest": "--min-interval", "--longest": "--max-interval"},
    "schedule": {"--refresh": "--method"},
}
# How a help ends, with the first of each group's further settings.
_MORE = "{} more settings, such as {}: options too; --init writes them with comments, --config reads them."


def command_help(command: click.Command, context: click.Context, groups: Mapping[str, Group]) -> str:
    """Return the help of a command, its listed options in panels."""
    from rich_click import RichCommand, RichContext
    from rich_click.rich_panel import RichOptionPanel

    more = [group.more for group in groups.values() if group.more]
    first = ", ".join(f"--{names[0]}" for names in more[:4])
    told = RichCommand(
        name=command.name,
        params=[_shown(each) for each in command.params],
        help=command.help,
        epilog=_MORE.format(sum(map(len, more)), first) if more else None,
        panels=[
            RichOptionPanel(title, options=[f"--{name}" for name in group.listed])
            for title, group in groups.items()
            if group.listed
        ],
        context_settings=command.context_settings,
    )
    with RichContext(told, info_name=context.info_name, parent=context.parent) as drawn:
        return told.get_help(drawn)


def _shown(parameter: click.Parameter) -> click.Parameter:
    """Return a parameter as help shows it, a flag without its opposite."""
    drawn = copy(parameter)
    drawn.secondary_opts = []
    return drawn


def group_help(group: click.Group, ctx: click.Context, panels: Mapping[str, Mapping[str, str]]) -> str:
    """Return the help of a group of commands, each in a line."""
    from rich_click import RichContext, RichGroup
    from rich_click.rich_panel import RichCommandPanel

    told = RichGroup(
        name=group.name,
        commands={
            name: click.Command(name, short_help=text)
            for each in panels.values()
            for name, text in each.items()
        },
        params=group.params,
        help=group.help,
        epilog=group.epilog,
        panels=[RichCommandPanel(title, commands=[*each]) for title, each in panels.items()],
        context_settings=group.context_settings,
    )
    with RichContext(told, info_name=ctx.info_name, parent=ctx.parent, **group.context_settings) as drawn:
        return told.get_help(drawn)

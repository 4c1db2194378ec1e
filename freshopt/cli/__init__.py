"""The command line, ``freshopt COMMAND``.

Errors and warnings are one line each on standard error, never a traceback.

A command's module is imported when the command is run. Until then only click is loaded, so that an interrupt
during the imports, which take half a second, is ended by click as any other.
"""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem

from freshopt import __version__
from freshopt.errors import FreshoptError, SourceDataWarning, hearing, suggestion
from freshopt.terminal.console import DataError, plain
from freshopt.terminal.groups import GROUPS, group_help

# Each command's module and what it does, in the groups of the help.
PANELS = {
    "Plan": {
        "plan": ("plan", "Turn a crawl log into refresh rates and a schedule."),
        "import": ("import_log", "Make a log of what another tool has recorded."),
        "lifetimes": ("lifetimes", "Plan how long a cache keeps its copies."),
        "pipeline": ("pipeline", "Plan the refreshes of a pipeline of tables."),
        "run": ("run", "Carry out a live plan, a command for each source."),
        "serve": ("serve", "Serve a live plan over HTTP to your crawlers."),
        "sync": ("sync", "Set the intervals of a running tool from its own history."),
    },
    "Step by step": {
        "estimate": ("solve", "Estimate how often the sources in a log change."),
        "poisson-check": ("poisson_check", "Test whether changes come at random, at constant rates."),
        "solve": ("solve", "Find the best refresh rates for a table of sources."),
        "frontier": ("frontier", "Show what more or less bandwidth brings."),
        "schedule": ("schedule", "Write refresh times or intervals for a table of rates."),
    },
    "Look and check": {
        "report": ("report", "Write the web page of a plan."),
        "status": ("run", "Show a live plan, or fail a job on an alarm."),
        "replay": ("replay", "Measure a schedule under known changes."),
        "check": ("check", "Compare all solvers on the same problems."),
        "examples": ("solve", "List the bundled examples, or write the log of one."),
        "doctor": ("report", "Show versions and the state of this installation."),
    },
}
HELP = ["-h", "--help"]
COMMANDS = {name: each for group in PANELS.values() for name, each in group.items()}


class _Commands(click.Group):
    """Command group that reports every expected error in one line.

    Expected are errors of freshopt, of the file system and of usage.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as in click
        """Return the command names in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in GROUPS and _completes_option():
            listed = [name for group in GROUPS[cmd_name].values() for name in group.listed]
            return click.Command(cmd_name, params=[click.Option([f"--{name}"]) for name in listed])
        module, text = COMMANDS[cmd_name]
        found = importlib.import_module(f"freshopt.cli.{module}")
        name = cmd_name.replace("-", "_")
        # Of a word of Python's the function is called as its module is.
        command: click.Command = getattr(found, module if keyword.iskeyword(name) else name)
        command.short_help = text
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which is nearest to a wrong word."""
        word = args[0]
        if word not in COMMANDS and word[:1].isalpha() and not ctx.resilient_parsing:
            ctx.fail(f"No such command {word!r}.{suggestion(word, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as in click
        """Return what asks for help, in any context."""
        return HELP

    def get_help(self, ctx: click.Context) -> str:
        """Return the commands in groups, of which none is imported."""
        panels = {title: {name: text for name, (_, text) in group.items()} for title, group in PANELS.items()}
        return group_help(self, ctx, panels)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, of which none is imported."""
        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the command name."""
        with _one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Run the command."""
        with _one_line(), _warnings_in_one_line():
            return super().invoke(ctx)


def _completes_option() -> bool:
    """Return whether a shell asks for options, known without their command."""
    words, at = os.environ.get("COMP_WORDS", "").split(), os.environ.get("COMP_CWORD", "")
    # fish tells the word itself, other shells its position.
    word = at if not at.isdigit() else words[int(at)] if int(at) < len(words) else ""
    return "_FRESHOPT_COMPLETE" in os.environ and word.startswith("-")


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each warning about the data once, on standard error."""
    with hearing(), warnings.catch_warnings():
        warnings.simplefilter("always", SourceDataWarning)
        others, told = warnings.showwarning, set()

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:  # noqa: ANN401
            text = plain(str(message))
            if not issubclass(category, SourceDataWarning):
                others(message, category, *where, **more)
            elif text not in told:
                told.add(text)
                click.echo(f"Warning: {text}", err=True)

        warnings.showwarning = show
        yield


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "freshopt"
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        raise DataError(f"{message}{stop} See {path} --help.") from error
    except FreshoptError as error:
        raise DataError(plain(str(error))) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output went away: click ends quietly
            raise
        where = error.filename or "the output"
        raise DataError(f"{where}: {error.strerror or error}. Choose another place or name.") from error


@click.group(
    "freshopt",
    cls=_Commands,
    epilog='Completion in bash: eval "$(_FRESHOPT_COMPLETE=bash_source freshopt)" (zsh_source, fish_source).',
    context_settings={"help_option_names": HELP, "max_content_width": 100},
)
@click.version_option(__version__, prog_name="freshopt")
def main() -> None:
    """Fetch less, stay as fresh: plan when to fetch each source.

    Start with your crawl log: freshopt plan LOG. Or try: freshopt plan --example debian-uploads
    """

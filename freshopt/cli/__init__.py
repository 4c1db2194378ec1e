"""The command line, ``freshopt COMMAND``.

Errors and warnings are one line each on standard error, never a traceback.

A command's module is imported when the command is run. Until then only click is loaded, so that an interrupt
during the imports, which take half a second, is ended by click as any other.
"""

from __future__ import annotations

import errno
import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from freshopt import __version__
from freshopt.errors import FreshoptError, SourceDataWarning, hearing
from freshopt.terminal.console import DataError, plain

COMMANDS = {
    "plan": "freshopt.cli.plan",
    "estimate": "freshopt.cli.solve",
    "poisson-check": "freshopt.cli.poisson_check",
    "solve": "freshopt.cli.solve",
    "run": "freshopt.cli.run",
    "frontier": "freshopt.cli.frontier",
    "schedule": "freshopt.cli.schedule",
    "pipeline": "freshopt.cli.pipeline",
    "sync": "freshopt.cli.sync",
    "replay": "freshopt.cli.replay",
    "report": "freshopt.cli.report",
    "check": "freshopt.cli.check",
    "examples": "freshopt.cli.solve",
}


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
        command: click.Command = getattr(
            importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_")
        )
        if not any(parameter.name == "verbose" for parameter in command.params):
            command.params.append(_verbose())
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the command name.

        Without any argument click shows the help.
        """
        if not args:
            return super().parse_args(ctx, args)
        with _one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Run the command."""
        with _one_line(), _warnings_in_one_line():
            return super().invoke(ctx)


def _verbose() -> click.Option:
    """Return the option --verbose, which shows the library's log."""
    return click.Option(
        ["--verbose"],
        is_flag=True,
        expose_value=False,
        callback=_listen,
        help="Show steps with their times, and what solvers decide, on standard error.",
    )


def _listen(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Print what the library logs until the command ends."""
    if not value:
        return
    logger, handler = logging.getLogger("freshopt"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def close() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    context.call_on_close(close)


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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="freshopt")
def main() -> None:
    """Plan certified optimal refresh rates and schedules for copies.

    Start with: freshopt plan --example debian-uploads --bandwidth 4/day --horizon 90d --out plan
    """

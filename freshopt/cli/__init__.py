"""The command line, ``freshopt COMMAND``: errors are one line on standard error, never a traceback."""

from __future__ import annotations

from typing import Any

import click

from freshopt import __version__
from freshopt.cli.check import check
from freshopt.cli.console import DataError
from freshopt.cli.parts import estimate, examples, schedule, solve
from freshopt.cli.plan import plan
from freshopt.errors import FreshoptError


class _Commands(click.Group):
    """A group whose commands end freshopt's own errors in one line."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Run the command."""
        try:
            return super().invoke(ctx)
        except FreshoptError as error:
            raise DataError(" ".join(str(error).split())) from error


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="freshopt")
def main() -> None:
    """Keep copies fresh: how often to refresh each source, at which times, and how sure we are.

    Start with: freshopt plan --example debian-uploads --bandwidth 4/day --horizon 90d --out plan
    """


for command in (plan, estimate, solve, schedule, check, examples):
    main.add_command(command)

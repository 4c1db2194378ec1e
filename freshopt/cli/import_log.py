"""`freshopt import`: what another tool has recorded, as a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from freshopt.formatting import count
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_events import table_of
from freshopt.logs.tables import write_table
from freshopt.terminal import options
from freshopt.terminal.commands import command as named
from freshopt.terminal.groups import group_help
from freshopt.terminal.log_inputs import Found, outcome
from freshopt.terminal.tool_options import import_options, read_tool
from freshopt.tools.table import READ, Tool

_STDOUT = Path("-")


class _Tools(click.Group):
    """A command for each tool."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the tools, each in a line."""
        return group_help(self, ctx, {"Tools": {name: _short(tool) for name, tool in READ.items()}})


@click.group("import", cls=_Tools)
def import_log() -> None:
    """Make a log of what another tool has recorded.

    Such as a git repository, or copies of sitemaps. The log is a table, read by freshopt plan and all other
    commands that take a LOG. Where all changes are known, the table says so in its column history. Some make
    another table: of signals (plan --signals), or of limits (plan --limits).
    """


def _command(tool: Tool) -> click.Command:
    """Return the command that reads a tool."""

    def run(path: Path | str, out: Path, time_unit: str, overwrite: bool, **settings: Any) -> None:  # noqa: ANN401
        given = {name.replace("_", "-"): value for name, value in settings.items() if value not in (None, ())}
        data = read_tool(tool, path, given, time_unit)
        table = table_of(data) if tool.makes == "log" else data
        if out == _STDOUT:
            click.echo(table.write_csv(), nl=False)
        else:
            with complete_file(out, overwrite) as staging:
                write_table(table, staging)
        if tool.makes != "log":
            sources = count(table["source"].n_unique(), "source")
            words = f"{path}: {tool.makes} of {sources} in {count(len(table), 'row')}"
            command = f"freshopt plan LOG --{tool.makes} {out}"
        else:
            words = f"{Found(data, tool.called.format(path)).words}{outcome(data)}"
            # A history tells no crawls, and so no bandwidth.
            command = f"freshopt plan {out}{'' if isinstance(data, CrawlLog) else ' --bandwidth RATE'}"
        click.echo(words, err=out == _STDOUT)
        if out != _STDOUT:
            click.echo(f"wrote {out}; next: {command}")

    decorators: list[options.Decorator] = [
        click.argument(
            "path",
            type=click.STRING if tool.metavar == "URL" else click.Path(path_type=Path),
            metavar=tool.metavar,
        ),
        *import_options(tool),
        click.option(
            "--out",
            "-o",
            default=f"{tool.makes}.parquet",
            show_default=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Table to write, CSV or Parquet by its name; - prints CSV.",
        ),
        options.time_unit_option,
        options.overwrite_option,
    ]
    command = options.together(decorators)(run)
    return named(tool.name, help=f"{tool.metavar}: {tool.help}", short_help=_short(tool))(command)


def _short(tool: Tool) -> str:
    """Return what is read of a tool, without how."""
    return tool.help.partition(":")[0].rstrip(".") + "."


for _tool in READ.values():
    import_log.add_command(_command(_tool))

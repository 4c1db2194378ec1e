"""`freshopt report`, a plan's folder as one web page, and `freshopt doctor`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from freshopt.report.page import PAGE, write_report
from freshopt.terminal import options
from freshopt.terminal.commands import command
from freshopt.terminal.console import show, working
from freshopt.terminal.settings_file import APART, key_of
from freshopt.versions import versions

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)


@command()
@click.argument("dir", type=click.Path(path_type=Path))
@options.file_option("File to write (default: DIR/report.html).", metavar="FILE")
@options.overwrite_option
def report(dir: Path, out: Path | None, overwrite: bool) -> None:
    """Write the plan in DIR as one web page.

    DIR is what freshopt plan has written; there its page is already, unless it was made with --engine dask.
    The page is self-contained: no network. A page that is there is replaced with --overwrite only.
    """
    click.echo(f"wrote {write_report(dir, out or dir / PAGE, overwrite=overwrite)}")


@command()
@working("looking")
def doctor() -> None:
    """Show versions and the state of this installation, for reports of errors.

    Among them are the processor, the threads that are used, the extras that are found, and whether machine
    code that one process compiled is found by the next.
    """
    show([*versions().items()])


def command_line(
    context: click.Context, out: Path | None = None, more: Sequence[str] = (), without: Sequence[str] = ()
) -> str:
    """Return the command line that reproduces the result.

    - `out`: Where the result goes, in place of an earlier one. By default a word stands for it.
    - `more`: Words to add.
    - `without`: Names of parameters to leave out.
    """
    words: list[str] = []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if context.get_parameter_source(name) not in _GIVEN or key_of(parameter) in {*APART, *without}:
            continue
        if isinstance(parameter, click.Argument):
            words = [*map(str, value if isinstance(value, tuple) else [value]), *words]
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        elif isinstance(value, tuple):
            words += [word for each in value for word in (parameter.opts[0], str(each))]
        else:
            words += [parameter.opts[0], str(value)]
    where = ["--out", "DIR"] if out is None else ["--out", str(out), "--overwrite"]
    return shlex.join(["freshopt", context.info_name or "", *words, *more, *where])

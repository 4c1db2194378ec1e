"""`freshopt report`: a plan's folder as one web page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from freshopt.report import write_report
from freshopt.terminal import options

# Options that say where a result goes, and not which.
_APART = ("out", "overwrite")


@click.command(short_help="Write the web page of the plan in DIR.")
@click.argument("dir", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write (default: DIR/report.html)."
)
@options.overwrite_option
def report(dir: Path, out: Path | None, overwrite: bool) -> None:
    """Write the plan in DIR as one web page.

    DIR is what freshopt plan has written; there its page is already, unless it was made with --engine dask.
    The page is self-contained: no network. An earlier DIR/report.html is replaced, a FILE only
    with --overwrite.
    """
    click.echo(f"wrote {write_report(dir, out, overwrite=overwrite)}")


def command_line(
    context: click.Context, out: Path | None = None, more: Sequence[str] = (), without: Sequence[str] = ()
) -> str:
    """Return the command line that reproduces the result.

    Parameters
    ----------
    context : click.Context
    out : Path, optional
        Where the result goes, in place of an earlier one. By default a word stands for it.
    more : sequence of str
        Words to add.
    without : sequence of str
        Names of parameters to leave out.
    """
    words: list[str] = []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in (
            *_APART,
            *without,
        ):
            continue
        if isinstance(parameter, click.Argument):
            words.insert(0, str(value))
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[0])
        elif isinstance(value, tuple):
            words += [word for each in value for word in (parameter.opts[0], str(each))]
        else:
            words += [parameter.opts[0], str(value)]
    where = ["--out", "DIR"] if out is None else ["--out", str(out), "--overwrite"]
    return shlex.join(["freshopt", context.info_name or "", *words, *more, *where])

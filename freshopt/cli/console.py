"""What people see: aligned rows on standard output, progress on standard error, one line for an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click


class DataError(click.ClickException):
    """Input or a result that cannot be used; ends the command with one line and exit code 2."""

    exit_code = 2


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that announces the next of `total` steps; a bar where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda name: bar.update(task, description=name, advance=1)


def show(rows: Sequence[tuple[str, str]]) -> None:
    """Print labelled rows, labels aligned and dimmed where colour is understood."""
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        click.echo(f"{click.style(label.ljust(width), bold=True)}  {text}")


def number(value: float) -> str:
    """Return a number as people read it.

    Examples
    --------
    >>> number(82.6371), number(2160.0), number(12345.67), number(1e12)
    ('82.64', '2,160', '12,345.7', '1e+12')
    """
    if 1e3 <= abs(value) < 1e9:
        return f"{value:,.1f}".removesuffix(".0")
    return f"{value:.4g}"


def count(value: float, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1.

    Examples
    --------
    >>> count(1, "crawl"), count(1306, "day"), count(0.5, "day")
    ('1 crawl', '1,306 days', '0.5 days')
    """
    text = f"{value:,}" if isinstance(value, int) else number(value)
    ending = "" if value == 1 else "es" if noun.endswith("sh") else "s"
    return f"{text} {noun}{ending}"

"""Console output: aligned rows, progress bars and one-line errors."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from freshopt.formatting import WIDTH, aligned, table
from freshopt.formatting import count as count  # what people see of numbers, for all commands
from freshopt.formatting import number as number

# Seconds after which a command that still works says so.
SILENCE = 15.0
# Where a command keeps what is said at its end.
NOTES = "freshopt.notes"


class DataError(click.ClickException):
    """Unusable input or result: one line and exit code 2."""

    exit_code = 2


def plain(text: str) -> str:
    r"""Return a text as one line without control characters.

    Names may come from strangers' web pages.

    Examples
    --------
    >>> print(plain("a\n \x1b[31mb"))
    a \x1b[31mb
    """
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in line)


@contextmanager
def progress(total: int, *, silent: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that announces the next of `total` steps.

    A bar is drawn where standard error is a terminal; elsewhere a line says every `SILENCE` seconds which
    step it is; a silent command says nothing.
    """
    if silent:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    if not console.is_terminal:  # a bar that is disabled ends with an empty line in Rich 13 and 14.1
        with heartbeat() as announce:
            announce("reading")
            yield announce
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda name: bar.update(task, description=name, advance=1)


@contextmanager
def heartbeat() -> Iterator[Callable[[str], None]]:
    """Yield a function that announces the next step.

    Every `SILENCE` seconds the step is named on standard error, with its time so far, so that no one has to
    ask whether anything still happens. Lines are written at once, into pipes too.
    """
    done = threading.Event()
    step, begun = "", time.monotonic()

    def announce(name: str) -> None:
        nonlocal step, begun
        step, begun = name, time.monotonic()

    def speak() -> None:
        with suppress(OSError):  # no one reads any more, which the command itself will notice
            while not done.wait(SILENCE):
                click.echo(f"... {step}: {time.monotonic() - begun:.0f} s", err=True)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield announce
    finally:
        done.set()
        speaker.join()


@contextmanager
def working(step: str) -> Iterator[None]:
    """Say every `SILENCE` seconds what a command does; also a decorator."""
    with heartbeat() as announce:
        announce(step)
        yield


def note(text: str) -> None:
    """Say something when the command has succeeded, on standard error."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(NOTES, {})[text] = None


def show(rows: Sequence[tuple[str, str]]) -> None:
    """Print labelled rows, labels aligned and bold, texts wrapped."""
    for label, text in aligned(rows, columns()):
        click.echo(f"{click.style(label, bold=True)}  {text}")


def wrapped(text: str) -> str:
    """Return a paragraph, wrapped."""
    return "\n".join(line for _, line in aligned([("", text)], columns() + 2))


def fitted(rows: Sequence[Sequence[str]], *, text: int = 0) -> str:
    """Return a table that fits the console; see `table`."""
    return table(rows, columns(), text=text)


def columns() -> int:
    """Return how wide lines may be.

    A narrower terminal has shorter lines; a file or a pipe has them as a wide one.
    """
    if not sys.stdout.isatty():
        return WIDTH
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)

"""`freshopt doctor`: versions, and the state of the installation."""

from __future__ import annotations

from freshopt.terminal.commands import command
from freshopt.terminal.console import show, working
from freshopt.versions import versions


@command()
@working("looking")
def doctor() -> None:
    """Show versions and the state of this installation, for reports of errors.

    Among them are the processor, the threads that are used, the extras that are found, and whether machine
    code that one process compiled is found by the next.
    """
    show([*versions().items()])

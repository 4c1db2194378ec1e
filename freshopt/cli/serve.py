"""`freshopt serve`: a live planner over HTTP."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from freshopt.cli.live_settings import LiveOptions
from freshopt.errors import FreshoptError
from freshopt.terminal.commands import command
from freshopt.terminal.wish_options import table_options


@command()
@click.argument("folder")
@click.option(
    "--listen",
    default="127.0.0.1:8765",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen. Beyond the loopback calls need a token.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the token that calls send as Authorization: Bearer TOKEN. By default that of the "
    "environment's FRESHOPT_TOKEN, if there is one.",
)
@table_options("live", LiveOptions)
def serve(folder: str, listen: str, token_file: Path | None, live: LiveOptions) -> None:
    """Serve a live plan over HTTP, to crawlers in any language.

    FOLDER is that of freshopt run or of fo.Planner, or the address of a PostgreSQL database; with --bandwidth
    a new one is begun, to which sources are sent. Clients ask for what is due, and report what they found;
    the page / of the service lists the calls. Ctrl-C finishes what is being answered. Needs freshopt[serve].
    """
    try:
        server = import_module("freshopt.live.service.server")
    except ModuleNotFoundError as error:
        raise FreshoptError(
            f'freshopt serve needs {error.name}. Install it: pip install "freshopt[serve]".'
        ) from None
    settings = live.settings()
    try:
        server.serve(
            folder,
            listen,
            server.token_of(token_file),
            lambda address: click.echo(f"serving at {address}"),
            **settings,
        )
    except KeyboardInterrupt:
        return

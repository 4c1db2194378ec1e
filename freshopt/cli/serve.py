"""`freshopt serve`: a live planner over HTTP."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from freshopt.errors import FreshoptError
from freshopt.live.settings import SETTINGS
from freshopt.planning.request import Clock
from freshopt.terminal import options
from freshopt.terminal.commands import command
from freshopt.terminal.own_objectives import live_objective_of
from freshopt.terminal.wish_options import option_of, wish_option


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
@wish_option("bandwidth", SETTINGS)
@wish_option("host_gap", SETTINGS)
@wish_option("burst", SETTINGS)
@options.live_objective
def serve(
    folder: str,
    listen: str,
    token_file: Path | None,
    objective: str | None,
    **wishes: Any,  # noqa: ANN401
) -> None:
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
    settings = {name: value for name, value in wishes.items() if value is not None}
    for name, value in settings.items():
        SETTINGS[name].read(option_of(name), value, Clock("day"))
    if objective is not None:
        settings["objective"] = live_objective_of(objective)
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

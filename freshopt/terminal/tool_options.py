"""Options of foreign tools, from the table of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from freshopt.errors import SourceDataError
from freshopt.terminal.commands import not_for
from freshopt.terminal.options import Decorator
from freshopt.tools.table import FLAGS, TOOLS, Setting, Tool

# Settings of what is written, each with the tools that have it.
WRITTEN: dict[Setting, list[str]] = {}
for _tool in TOOLS:
    for _setting in _tool.options:
        if _setting.of == "write":
            WRITTEN.setdefault(_setting, []).append(_tool.name)


def _option(setting: Setting, help_text: str, *, hidden: bool = False) -> Decorator:
    """Return the option of a setting."""
    return click.option(
        f"--{setting.name}",
        type=click.STRING if setting.least is None else click.IntRange(min=setting.least),
        multiple=setting.many,
        metavar=setting.metavar,
        help=help_text,
        hidden=hidden,
    )


def _argument(name: str) -> str:
    """Return the argument that click makes of an option."""
    return name.replace("-", "_")


def import_options(tool: Tool) -> Iterator[Decorator]:
    """Yield the options of what is read of a tool."""
    return (_option(setting, setting.help[:1].upper() + setting.help[1:]) for setting in _of(tool, "read"))


def flags() -> Iterator[Decorator]:
    """Yield the flags that import replaces, and of their settings."""
    for tool in FLAGS.values():
        kind = click.Path(path_type=Path)
        yield click.option(f"--{tool.name}", type=kind, metavar=tool.metavar, help=tool.help, hidden=True)
        for setting in _of(tool, "read"):
            yield _option(setting, f"For --{tool.name}: {setting.help}", hidden=True)


def write_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of what is written, which may choose formats."""
    for setting, tools in reversed(WRITTEN.items()):
        which = "" if setting.name in tools else f"For --format {', '.join(tools)}: "
        command = _option(setting, which + setting.help)(command)
    return command


def taken(arguments: dict[str, Any]) -> tuple[dict[str, Path], dict[str, Any]]:
    """Take tools' flags out of arguments; return paths and settings given."""
    paths = {name: arguments.pop(_argument(name)) for name in FLAGS}
    settings = {
        setting.name: arguments.pop(_argument(setting.name))
        for tool in FLAGS.values()
        for setting in _of(tool, "read")
    }
    return (
        {name: path for name, path in paths.items() if path is not None},
        {name: given for name, given in settings.items() if given not in (None, ())},
    )


def require_settings_of(tool: str | None, given: Mapping[str, Any]) -> None:
    """Raise if a setting is another tool's than that read."""
    for owner in FLAGS.values():
        for setting in _of(owner, "read"):
            if setting.name in given and owner.name != tool:
                raise click.UsageError(f"--{setting.name} is for --{owner.name}. Leave it out.")


def read_tool(tool: Tool, path: Path | str, given: Mapping[str, Any], time_unit: str) -> Any:  # noqa: ANN401 - log, history or table
    """Return what a tool has recorded: log, history or other table."""
    reader: Any = tool.read
    named = {s.argument or _argument(s.name): given[s.name] for s in _of(tool, "read") if s.name in given}
    return reader(path, **named) if tool.makes != "log" else reader(path, time_unit=time_unit, **named)


def import_line(tool: Tool, path: Path, given: Mapping[str, Any]) -> str:
    """Return the command that takes the place of a tool's flag."""
    words = ["freshopt", "import", tool.name, str(path)]
    for setting in _of(tool, "read"):
        values = given.get(setting.name, ())
        for value in values if setting.many else [values] if setting.name in given else []:
            words += [f"--{setting.name}", str(value)]
    return shlex.join([*words, "--out", "log.parquet"])


def settings_of(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a format as its arguments."""
    named = {}
    for setting, tools in WRITTEN.items():
        text = given[_argument(setting.name)]
        if text is None:
            if kind == setting.name:
                raise click.UsageError(
                    f"--format {kind} needs the text for each source. Add --{setting.name}."
                )
            continue
        if kind not in tools:
            raise click.UsageError(not_for(f"--{setting.name}", tools, kind, "--format"))
        try:
            named[setting.argument or _argument(setting.name)] = setting.value(text)
        except SourceDataError as error:
            raise SourceDataError(f"--{setting.name}: {error}") from None
    return named


def _of(tool: Tool, what: str) -> list[Setting]:
    """Return the settings of what is read of a tool, or written."""
    return [setting for setting in tool.options if setting.of == what]

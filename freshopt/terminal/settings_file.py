"""A command's settings as a TOML file, read and written.

A file has the names of the options, in sections that are for the eye alone. A path in it is relative to the
file.
"""

from __future__ import annotations

import json
import os
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from freshopt.errors import SHOWN, SourceDataError, list_offenders, suggestion
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.tables import ENDINGS
from freshopt.terminal.groups import GROUPS

# Where a result goes and what is printed is no setting of it.
APART = {"out", "overwrite", "details", "json", "quiet", "config", "init", "verbose"}

_WIDTH = 100


def key_of(parameter: click.Parameter) -> str:
    """Return the name of a parameter in files."""
    return parameter.opts[0].lstrip("-").replace("-", "_")


def read_settings(command: click.Command, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a file's values by parameter, as defaults for click."""
    try:
        told = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SourceDataError(f"{path} cannot be read as TOML ({error}). Correct it.") from None
    flat = {name: value for name, value in told.items() if not isinstance(value, dict)}
    for section in told.values():
        flat |= section if isinstance(section, dict) else {}
    known = {key_of(each): each for each in command.params if key_of(each) not in ("config", "init")}
    names = {name: name.replace("-", "_") for name in flat}
    odd = [name for name in flat if names[name] not in known]
    if odd:
        meant = "".join(suggestion(name, known) for name in odd[:SHOWN])
        raise SourceDataError(
            f"{path} sets {list_offenders(map(repr, odd))}, which freshopt {command.name} does not have."
            f"{meant} Correct the name, or see freshopt {command.name} --init."
        )
    folder = Path(path).parent
    return {
        known[names[name]].name or "": _value(known[names[name]], value, folder, f"{path}: {name}")
        for name, value in flat.items()
    }


def write_settings(context: click.Context, folder: Path, final: Path) -> str:
    """Write a run's settings into a folder; return the file's name."""
    given = {}
    for each in context.command.params:
        name = each.name or ""
        source = context.get_parameter_source(name)
        if source not in (None, ParameterSource.DEFAULT) and key_of(each) not in APART:
            given[key_of(each)] = _written(each, context.params.get(name), final)
    text = "".join(_lines(context.command, given))
    name = f"{context.command.name}.toml"
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return name


def write_template(command: click.Command) -> Path:
    """Write the settings of a command with comments; return the file."""
    path = Path(f"{command.name}.toml")
    with complete_file(path, overwrite=False) as staging:
        staging.write_text("".join(_lines(command, {})), encoding="utf-8", newline="\n")
    return path


def _lines(command: click.Command, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a file: what is given, and all else as a comment."""
    yield (
        f"# Settings of freshopt {command.name}: freshopt {command.name} --config FILE reads them.\n"
        "# A line without # sets; flags of the command line win. Paths are relative to this file.\n\n"
    )
    known = {key_of(each): each for each in command.params if key_of(each) not in APART}
    sections: dict[str, list[str]] = {}
    for title, group in GROUPS.get(command.name or "", {}).items():
        names = [name.replace("-", "_") for name in (*group.listed, *group.more)]
        sections[title.partition(" ")[0].lower()] = [name for name in names if name in known]
    told = {name for names in sections.values() for name in names}
    shown = {name for name, each in known.items() if name in given or not getattr(each, "hidden", False)}
    rest = [name for name in known if name in shown - told]
    for section, names in {"": rest, **sections}.items():
        if names and section:
            yield f"[{section}]\n"
        for name in names:
            yield from _setting(known[name], name, given)
        if names:
            yield "\n"


def _setting(parameter: click.Parameter, name: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a setting, its help before it."""
    text, choices = getattr(parameter, "help", None) or "", list(getattr(parameter.type, "choices", ()))
    if not all(choice in text for choice in choices):
        text += f" One of {', '.join(choices)}."
    yield from (f"# {line}\n" for line in textwrap.wrap(text, _WIDTH))
    if name in given:
        yield f"{name} = {_toml(given[name])}\n"
        return
    usual: Any = parameter.default
    if getattr(parameter, "is_flag", False):
        usual = False
    elif not isinstance(usual, int | float | str):
        alone = getattr(parameter, "flag_value", None)  # of an option that needs no value
        usual = (
            choices[0] if choices else alone if isinstance(alone, str) else parameter.metavar or name.upper()
        )
    yield f"# {name} = {_toml([usual] if _is_many(parameter) else usual)}\n"


def _is_many(parameter: click.Parameter) -> bool:
    return bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1


def _value(parameter: click.Parameter, value: Any, folder: Path, what: str) -> Any:  # noqa: ANN401 - what TOML has
    """Return a value as click takes it, paths from the file's folder."""
    many = _is_many(parameter)
    each = value if isinstance(value, list) else [value]
    if (isinstance(value, list) and not many) or any(isinstance(one, list | dict) for one in each):
        raise SourceDataError(f"{what} is {json.dumps(value, default=str)}. Give one value.")
    if getattr(parameter, "is_flag", False) and not isinstance(value, bool):
        raise SourceDataError(f"{what} is {value!r}. Give true or false.")
    made = [_moved(parameter, one, lambda path: folder / path) for one in each]
    return made if many else made[0]


def _written(parameter: click.Parameter, value: Any, folder: Path) -> Any:  # noqa: ANN401 - what click made
    """Return a value as a file in a folder has it."""

    def relative(path: str | Path) -> str:
        # Folders behind links are named as they are, as .. goes up from there; a file may stay a link.
        real = Path(path).parent.resolve() / Path(path).name
        try:
            return Path(os.path.relpath(real, folder.resolve())).as_posix()
        except ValueError:  # on another drive
            return Path(path).absolute().as_posix()

    if isinstance(value, tuple):
        return [_moved(parameter, one, relative) for one in value]
    return _moved(parameter, value, relative)


def _moved(parameter: click.Parameter, value: Any, move: Any) -> Any:  # noqa: ANN401 - one value
    """Return a value with its path moved; - is standard input."""
    if isinstance(parameter.type, click.Path):
        return "-" if str(value) == "-" else str(move(value))
    if key_of(parameter) == "budget":
        name, equals, rest = value.partition("=")
        what, colon, limit = rest.rpartition(":")
        if what.strip().endswith(ENDINGS):
            return f"{name}{equals}{move(what.strip())}{colon}{limit}"
    return value


def _toml(value: Any) -> str:  # noqa: ANN401 - a value that TOML has
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML, unlike JSON, forbids DEL

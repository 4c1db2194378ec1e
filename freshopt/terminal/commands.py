"""`Command`: grouped options, settings from a file, and --verbose."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from freshopt.errors import FreshoptError, ObjectiveError, guarded, suggestion
from freshopt.terminal.console import NOTES, plain
from freshopt.terminal.groups import GROUPS, RENAMED, command_help
from freshopt.terminal.settings_file import APART, key_of, read_settings, write_template

# Of these one stands in place of another: what the command line has wins over what a file has.
ALTERNATIVES = (
    ("log", "example"),
    ("bandwidth", "freshness"),
    ("min_interval", "max_rate"),
    ("max_interval", "min_rate"),
)
# Parameters that an objective's name may bring, power:0.5, by the option that they stand for.
PARAMETERS = {"power": "exponent", "deadline": "deadline"}


def not_for(option: str, owners: Iterable[str], chosen: object, of: str) -> str:
    """Return the refusal of an option of other choices."""
    return f"{option} is for {of} {', '.join(owners)}, not for {chosen}. Leave it out."


# Files of modules of one's own, and the options that they were imported for.
OWN_FILES: dict[str, str] = {}


class OneOf(click.Choice[str]):
    """Words to choose from; of another it says which is nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ANN401 - as in click
        """Return the refusal of a word."""
        return f"{super().get_invalid_choice_message(value, ctx)}{suggestion(str(value), self.choices)}"


class Command(click.Command):
    """A command whose help lists its most used options, in groups."""

    def __init__(self, *positional: Any, **named: Any) -> None:  # noqa: ANN401 - as in click
        """Add the options that all commands have."""
        super().__init__(*positional, **named)
        self.params = [*self.params, *_common(f"{self.name}.toml")]
        listed = [name for group in GROUPS.get(self.name or "", {}).values() for name in group.listed]
        for each in self.params:
            if isinstance(each, click.Option) and (listed or key_of(each) in ("config", "init")):
                each.hidden = key_of(each).replace("_", "-") not in listed
            if isinstance(each, click.Option) and each.is_bool_flag and key_of(each) not in APART:
                # Takes back what a file sets.
                each.secondary_opts = [f"--no-{key_of(each).replace('_', '-')}"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, of which some may have their earlier names."""
        return super().parse_args(ctx, [self._renamed(word) for word in args])

    def _renamed(self, word: str) -> str:
        old, sign, rest = word.partition("=")
        new = RENAMED.get(self.name or "", {}).get(old)
        if new is None:
            return word
        click.echo(f"Warning: {old} goes in 0.3.0. Write {new}.", err=True)
        return f"{new}{sign}{rest}"

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, its options in panels."""
        return command_help(self, ctx, GROUPS.get(self.name or "", {}))

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Run it; of alternatives the command line's alone is given."""
        for names in ALTERNATIVES:
            source = {name: ctx.get_parameter_source(name) for name in names}
            if ParameterSource.COMMANDLINE in source.values():
                for name in [name for name in names if source[name] is ParameterSource.DEFAULT_MAP]:
                    _unset(ctx, name)
        _split_objective(ctx)
        found = guarded(lambda: super(Command, self).invoke(ctx))
        if isinstance(found, BaseException):
            raise _told(found)
        if not (ctx.params.get("quiet") or ctx.params.get("as_json")):
            for text in ctx.meta.get(NOTES, ()):
                click.echo(plain(text), err=True)
        return found


def _told(error: BaseException) -> BaseException:
    """Return an error of a module of one's own in a line."""
    trace = traceback.walk_tb(error.__traceback__)
    own = [(frame.f_code.co_filename, line) for frame, line in trace if frame.f_code.co_filename in OWN_FILES]
    if not own or not isinstance(error, Exception) or isinstance(error, FreshoptError | click.ClickException):
        return error
    file, line = own[-1]
    said = " ".join(str(error).split()).rstrip(". ")
    where = f"{OWN_FILES[file]}: line {line} of {os.path.basename(file)}"
    return ObjectiveError(f"{where} raises {type(error).__name__}: {said}. Correct it.")


def _unset(context: click.Context, name: str) -> None:
    """Make a parameter one that is not given."""
    context.params[name] = () if isinstance(context.params[name], tuple) else None
    context.set_parameter_source(name, ParameterSource.DEFAULT)


def _split_objective(context: click.Context) -> None:
    """Take the parameter out of an objective's name."""
    name, colon, text = str(context.params.get("objective")).partition(":")
    option = PARAMETERS.get(name, "")
    if context.get_parameter_source("objective") is ParameterSource.COMMANDLINE:
        # A file's parameter belongs to the file's objective, unless this one needs it.
        for other in PARAMETERS.values():
            in_file = context.get_parameter_source(other) is ParameterSource.DEFAULT_MAP
            if in_file and (colon or other != option):
                _unset(context, other)
    if not colon or option not in context.params:
        return
    if context.params[option] is not None:
        raise click.UsageError(
            f"--objective {name}:{text} and --{option} both give it. Leave one out.", context
        )
    try:
        given: Any = float(text) if option == "exponent" else text
    except ValueError:
        raise click.UsageError(
            f"--objective {name}:{text} has no number. Write power:0.5.", context
        ) from None
    context.params |= {"objective": name, option: given}
    context.set_parameter_source(option, ParameterSource.COMMANDLINE)


command: Callable[..., Callable[[Callable[..., Any]], Command]] = partial(click.command, cls=Command)


def _common(file: str) -> Sequence[click.Option]:
    """Return the options that all commands have; `file` is of settings."""
    aside: dict[str, Any] = {"expose_value": False, "is_eager": True}
    return (
        click.Option(
            ["--config"],
            type=click.Path(),
            metavar="FILE",
            callback=_configure,
            help=f"Read settings from a TOML file such as {file}, which --init or an earlier run "
            "wrote; flags win.",
            **aside,
        ),
        click.Option(
            ["--init"],
            is_flag=True,
            callback=_begin,
            help=f"Write {file} here, with all settings explained, and end.",
            **aside,
        ),
        click.Option(
            ["--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_listen,
            help="Show steps with their times, and what solvers decide, on standard error.",
        ),
    )


def _configure(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Take the settings of a file for defaults."""
    if value is not None:
        context.default_map = {**(context.default_map or {}), **read_settings(context.command, value)}


def _begin(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Write a file of settings, and end."""
    if value:
        path = write_template(context.command)
        click.echo(f"wrote {path}; freshopt {context.command.name} --config {path} reads it")
        context.exit()


def _listen(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Print what the library logs until the command ends."""
    if not value:
        return
    logger, handler = logging.getLogger("freshopt"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def close() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    context.call_on_close(close)

"""The reference is made of the package while the site is built: a page a command, a page a package.

What is public says the package's ``__all__``; what a command takes says click. The gallery is made of a
notebook, whose outputs `.ci/notebooks.py` compares with its execution. Nothing is kept by hand, and the pages
are written beside the others, where git leaves them out.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import freshopt
from freshopt.cli import COMMANDS, main
from freshopt.terminal.groups import GROUPS, Group

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

# What an objective or a solver of one's own may need beyond the public names.
EXTENDING = (
    "autodiff.compiler.register",
    "numerics.arrays.Index",
    "separable.kernel.Kernel",
    "certificates.solution.Answer",
    "certificates.solver_protocol.SolveOptions",
    "certificates.solver_protocol.certified_solution",
)
PACKAGES = ("freshopt", *(f"freshopt.{name}" for name in freshopt._PACKAGES))
OPTION = re.compile(r"(?<![\w`-])(--[a-z][\w-]*)")
GALLERY = Path(__file__).resolve().parents[2] / "notebooks" / "12_problems_from_elsewhere.ipynb"
PLAIN = "Options"  # the group of a command that has none
SETTINGS = "Each may stand in the file that `--config` reads, and is an option of the same name."


def pages() -> dict[str, str]:
    """Return the generated pages by their paths below docs."""
    return dict([*commands(), *api(), gallery()])


def commands() -> Iterator[tuple[str, str]]:
    """Yield a page a command, and the list of them."""
    context = click.Context(main, info_name="freshopt")
    rows = []
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no command {name}")
        rows.append(f"| [`freshopt {name}`]({name}.md) | {cell(COMMANDS[name][1])} |")
        yield f"reference/commands/{name}.md", command_page(click.Context(command, context, name))
    table = "\n".join(["| command | what it does |", "| --- | --- |", *rows])
    tree = contents(COMMANDS)
    text = (
        f"# Commands\n\nExit codes, units and files: [files and columns](../files.md).\n\n{table}\n\n{tree}"
    )
    yield "reference/commands/index.md", text


def command_page(context: click.Context) -> str:
    """Return the page of a command: usage, options by group, further settings of its file."""
    command = context.command
    known = {
        option.opts[0].removeprefix("--"): option
        for option in command.get_params(context)
        if isinstance(option, click.Option) and option.help and option.name != "help"
    }
    groups = GROUPS.get(command.name or "", {PLAIN: Group(tuple(known))})
    usage = " ".join(command.collect_usage_pieces(context))
    told = [
        f"# {context.command_path}",
        prose(command.help or ""),
        f"```sh\n{context.command_path} {usage}\n```",
    ]
    for title, group in groups.items():
        if listed := [known[name] for name in group.listed if name in known]:
            told += [f"## {title}", table_of(listed, context)]
    if any(group.more for group in groups.values()):
        told += [f"## Settings of {command.name}.toml", SETTINGS]
    for title, group in groups.items():
        if more := [known[name] for name in group.more if name in known]:
            told += [f"### {title}, further", table_of(more, context)]
    return "\n\n".join(part for part in told if part) + "\n"


def table_of(options: list[click.Option], context: click.Context) -> str:
    """Return options as a table: how they are written, and their help with defaults."""
    rows = []
    for option in options:
        shown, option.hidden = option.hidden, False
        written, told = option.get_help_record(context) or ("", "")
        option.hidden = shown
        names = ", ".join(f"`{part}`" for part in written.replace("|", "\\|").split(", "))
        rows.append(f"| {names} | {cell(told)} |")
    return "\n".join(["| option | what it does |", "| --- | --- |", *rows])


def prose(text: str) -> str:
    """Return the help of a command as paragraphs; those that click keeps in their lines are printed so."""
    parts = inspect.cleandoc(text).split("\n\n")
    kept = (part.removeprefix("\b\n") for part in parts)
    return "\n\n".join(
        f"```text\n{text}\n```" if part.startswith("\b") else plain(text)
        for part, text in zip(parts, kept, strict=True)
    )


def cell(text: str) -> str:
    """Return text that keeps a row of a table in one piece."""
    return plain(text).replace("|", "\\|").replace("*", "\\*")


def plain(text: str) -> str:
    """Return text of a help for Markdown, with options as code: two hyphens would become a dash."""
    return OPTION.sub(r"`\1`", " ".join(text.split()).replace("<", "\\<"))


def api() -> Iterator[tuple[str, str]]:
    """Yield a page a package, that of what extensions need, and the list of them."""
    told: dict[int, str] = {}  # by identity: a public mapping has no hash
    rows = []
    for package in PACKAGES:
        name = package.rpartition(".")[2]
        home = importlib.import_module(package)
        rows.append(f"| [{package}]({name}.md) | {(home.__doc__ or '').partition(chr(10))[0]} |")
        yield f"api/{name}.md", package_page(package, told)
    rows.append("| [extending](extending.md) | What an objective or a solver of your own may need. |")
    text = "# Extending freshopt\n\nWhat an objective or a solver of your own may need besides.\n\n"
    yield "api/extending.md", text + names_of("freshopt", EXTENDING)
    table = "\n".join(["| package | what it holds |", "| --- | --- |", *rows])
    tree = contents([*(name.rpartition(".")[2] for name in PACKAGES), "extending"])
    yield "api/index.md", f"# Python\n\n`import freshopt as fo`; packages load on use.\n\n{table}\n\n{tree}"


def package_page(package: str, told: dict[int, str]) -> str:
    """Return the page of a package: its docstring, and its names by kind; none is told twice."""
    home = importlib.import_module(package)
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values": [], "Errors": []}
    for name in home.__all__:
        thing = getattr(home, name)
        if name.startswith("__") or id(thing) in told:
            continue
        told[id(thing)] = f"{package}.{name}"
        kinds[kind_of(thing)].append(name)
    elsewhere = [told[id(getattr(home, name))] for name in home.__all__ if name[:2] != "__"]
    elsewhere = [name for name in elsewhere if name.rpartition(".")[0] != package]
    parts = [f"# {package}", f"```{{eval-rst}}\n.. automodule:: {package}\n   :no-index:\n```"]
    for kind, names in kinds.items():
        if names:
            parts += [f"## {kind}", names_of(package, names)]
    if elsewhere:
        links = ", ".join(f"{{py:obj}}`{name}`" for name in elsewhere)
        parts.append(f"Also here: {links}.")
    return "\n\n".join(parts) + "\n"


def kind_of(thing: object) -> str:
    """Return under which heading a public name stands."""
    if inspect.isclass(thing):
        return "Errors" if issubclass(thing, Exception) else "Classes"
    return "Functions" if callable(thing) else "Values"


def names_of(module: str, names: list[str] | tuple[str, ...]) -> str:
    """Return the table of some names, each with a page of its own."""
    listed = "\n".join(f"   {name}" for name in names)
    head = f".. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: generated\n   :nosignatures:\n"
    return f"```{{eval-rst}}\n{head}\n{listed}\n```"


def contents(names: object) -> str:
    """Return the contents that the site's sidebar shows."""
    return "\n".join(["```{toctree}", ":hidden:", "", *names, "```"]) + "\n"  # type: ignore[misc]


def written(folder: Path) -> None:
    """Write the pages that are not there as they should be, and remove those of names that are gone."""
    made = {folder / path: text for path, text in pages().items()}
    for old in {*folder.glob("api/*.md"), *folder.glob("reference/commands/*.md")} - set(made):
        old.unlink()
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def gallery() -> tuple[str, str]:
    """Return the page of a notebook: what it tells and declares, what came out, and its pictures."""
    notebook = json.loads(GALLERY.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = re.sub(r"^%.*\n", "", "".join(cell["source"]), flags=re.MULTILINE)
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"^# \d+\. ", "# ", source))
            continue
        drawn = re.findall(r'title="([^"]+)"', source)
        if not drawn:
            parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text'])}```")
            for picture in [output["data"]["image/png"]] if "image/png" in output.get("data", {}) else []:
                data = "".join(picture).replace("\n", "")
                parts.append(f'<img src="data:image/png;base64,{data}" alt="{", ".join(drawn)}">')
    return f"gallery/{GALLERY.stem.partition('_')[2].replace('_', '-')}.md", "\n\n".join(parts) + "\n"


def homes() -> dict[str, str]:
    """Return for each public class and function the module where it is defined, which tells why it works."""
    found = {f"freshopt.{name}": f"freshopt.{name.rpartition('.')[0]}" for name in EXTENDING}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            home = getattr(getattr(module, name), "__module__", None)
            if home:
                found[f"{package}.{name}"] = home
    return found


def prepare(app: Sphinx, config: Config) -> None:
    """Write the pages before the site is read."""
    config.autosummary_context = {"homes": homes()}
    written(Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the pages."""
    app.connect("config-inited", prepare)
    return {"parallel_read_safe": True}

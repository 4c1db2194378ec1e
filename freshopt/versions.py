"""Versions of what freshopt runs on, and the state of its installation."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from freshopt.compiled.kept_code import kept_code_found
from freshopt.compiled.threads import threads
from freshopt.formatting import aligned

# Prints the state of the compiler's cache as another process finds it.
_PROBE = "from freshopt.compiled.kept_code import kept_code_found; print(kept_code_found()[1])"


def versions() -> dict[str, str]:
    """Return versions and the state of this installation.

    Machine code of a small loop is compiled, kept, and looked for by a second process: some 2 seconds.
    """
    needed, extras = _requirements()
    found = {
        "freshopt": f"{version('freshopt')} in {Path(__file__).parent}",
        "Python": f"{platform.python_version()} ({platform.python_implementation()}) in {sys.prefix}",
        "system": platform.platform(),
        "processor": f"{_processor()}, {threads()} thread{'' if threads() == 1 else 's'} used",
        **{name: _version(name) for name in needed},
    }
    for extra, names in extras.items():
        missing = [name for name in names if _version(name) == _MISSING]
        found[f"[{extra}]"] = f"missing: {', '.join(missing)}" if missing else "found"
    return {**found, "compiler cache": _cache()}


def show_versions() -> None:
    """Print versions and the state of this installation, for reports of errors.

    ``freshopt doctor`` prints the same.
    """
    print("\n".join(f"{label}  {text}" for label, text in aligned([*versions().items()])))


_MISSING = "not found"


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Return the packages that freshopt needs, and those of its extras."""
    needed: list[str] = []
    extras: dict[str, list[str]] = {name: [] for name in metadata("freshopt").get_all("Provides-Extra") or ()}
    for text in requires("freshopt") or ():
        name, extra = re.match(r"[\w.-]+", text), re.search(r"extra\s*==\s*['\"]([\w-]+)", text)
        if name is None or name[0] == "freshopt":
            continue
        (needed if extra is None else extras[extra[1]]).append(name[0])
    return needed, {name: own for name, own in extras.items() if name not in ("docs", "test", "dev")}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return _MISSING


def _processor() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    model = re.search(r"model name\s*:\s*(.+)", told)
    return model[1] if model else platform.processor() or platform.machine()


def _cache() -> str:
    """Return the folder of machine code; whether others find it."""
    folder, _ = kept_code_found()
    if folder is None:
        return "none: no folder for machine code can be written, and each process compiles anew"
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    hits = probe.stdout.strip() == "True"
    return f"{folder}: {'a second process finds it' if hits else 'a second process does NOT find it'}"

"""`Facts`: typed look-ups in ``summary.json``.

The file may be of an earlier version, cut short, or edited by hand. A part that is not there leaves its
section of the page out; a part of another kind raises an error of one line that names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshopt.errors import SourceDataError

SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """An object of ``summary.json``."""

    file: Path
    values: Mapping[str, Any]
    path: str = ""

    @classmethod
    def of(cls, folder: Path) -> Facts:
        """Read a folder's summary."""
        file = folder / SUMMARY
        if not folder.is_dir():
            raise SourceDataError(f"there is no folder {folder}. Name one that freshopt plan has written.")
        if not file.is_file():
            raise SourceDataError(f"{folder} holds no {SUMMARY}. Name a folder that freshopt plan wrote.")
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise SourceDataError(
                f"{file} cannot be read as JSON: {str(error).rstrip('.')}. Plan again, with --overwrite."
            ) from error
        if not isinstance(values, dict):
            raise SourceDataError(f"{file} is not a JSON object. Plan again, with --overwrite.")
        return cls(file, values)

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self.maybe(key)
        if value is None:
            raise self._refuse(key, "a number")
        return value

    def positive(self, key: str) -> float:
        """Return a finite number > 0."""
        value = self.maybe(key)
        if value is None or not value > 0.0:
            raise self._refuse(key, "a number > 0")
        return value

    def maybe(self, key: str) -> float | None:
        """Return a finite number, or None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._refuse(key, "a number")
        return float(value)

    def whole(self, key: str) -> int:
        """Return a whole number >= 0."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._refuse(key, "a whole number")
        return value

    def text(self, key: str) -> str:
        """Return a text."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._refuse(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        """Return the texts of a list, or an empty list."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._refuse(key, "a list of texts")
        return value

    def numbers(self, key: str, *, gaps: bool = False) -> list[float | None]:
        """Return the finite numbers of a list, with `gaps` None too."""
        values = self.values.get(key)
        listed = values if isinstance(values, list) else []
        inner = Facts(self.file, {str(k): each for k, each in enumerate(listed)}, self._path(key))
        return [inner.maybe(place) if gaps else inner.number(place) for place in inner.values]

    def name(self, key: str) -> str:
        """Return a name, written as a text or whole number."""
        value = self.values.get(key)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(key)

    def within(self, key: str) -> Facts | None:
        """Return the object there, or None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._refuse(key, "an object")
        return Facts(self.file, value, self._path(key))

    def rows(self, key: str) -> list[Facts]:
        """Return the objects of a list, or an empty list."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._refuse(key, "a list of objects")
        return [Facts(self.file, each, f"{self._path(key)}[{k}]") for k, each in enumerate(value)]

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _refuse(self, key: str, kind: str) -> SourceDataError:
        found = repr(self.values[key])[:40] if key in self.values else "missing"
        return SourceDataError(
            f"{self.file}: {self._path(key)} is {found}, not {kind}. Plan again, with --overwrite."
        )

"""A problem as plain values: built for freshopt in any layout of memory, and written as a script."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import freshopt as fo
import freshopt.problems
from benchmarks.adversary import declared
from benchmarks.adversary.cells import CELLS, Cell
from freshopt.compiled import backend as passes
from freshopt.cvx import cp
from tests.ground_truth.cell_truth import Wide, wide

DEFAULTS: dict[str, float] = {
    "importance": 1.0, "min_rate": 0.0, "max_rate": np.inf, "refresh_cost": 1.0, "signalled": 0.0,
}  # fmt: skip
# Loops are compiled from so many sources on.
COMPILED = 128
NAMES: dict[str, Any] = {"np": np, "fo": fo, "cp": cp} | {
    name: getattr(freshopt.problems, name) for name in freshopt.problems.__all__
}


@dataclass(frozen=True, eq=False)
class Case:
    """One problem, and how it is handed over.

    `kind` names a cell or is "declared", with the objective in x on `line`. Columns are change_rate, those of
    `DEFAULTS` and the cell's own; limits are of some hosts. `layout` is how arrays lie in memory, see
    `laid_out`; `solver` is as it is written, "None" is freshopt's own choice.
    """

    kind: str
    line: str
    columns: Mapping[str, Any]
    host: Any
    limits: Mapping[int, float]
    bandwidth: float
    layout: str = "plain"
    solver: str = "None"
    compiled: bool = True
    _wide: dict[str, Wide] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.columns["change_rate"])

    def __getitem__(self, key: str) -> Wide:
        """Return a column as freshopt gets it, in extended precision."""
        if key not in self._wide:
            given = np.asarray(self.columns[key])
            narrow = self.layout == "float32" and key in ("change_rate", "importance")
            self._wide[key] = wide(given.astype(np.float32) if narrow else given)
        return self._wide[key]

    @property
    def cell(self) -> Cell:
        """The named cell."""
        return CELLS[self.kind]

    @property
    def upper(self) -> Wide:
        """Largest rates: once per change of a signalled source, once per request of those refreshed on it."""
        most = self["max_rate"]
        if "request_rate" in self.columns:
            most = np.minimum(most, self["request_rate"])
        return np.where(self["signalled"] > 0, np.minimum(most, self["change_rate"]), most)

    def take(self, index: Any) -> Case:
        """Return the case of some sources, or of all in another order."""
        columns = {key: column[index] for key, column in self.columns.items()}
        host = self.host[index]
        limits = {h: limit for h, limit in self.limits.items() if h in set(host.tolist())}
        return replace(self, columns=columns, host=host, limits=limits, _wide={})

    def changed(self, **changes: Any) -> Case:
        """Return the case with other fields or columns."""
        columns = {key: changes.pop(key) for key in list(changes) if key in self.columns}
        return replace(self, columns={**self.columns, **columns}, **changes, _wide={})

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the columns that the sources have."""
        return ("change_rate", *DEFAULTS, *(() if self.line else self.cell.given))

    def used(self, rates: Wide) -> Wide:
        """Return the bandwidth that each source uses, where it is no product with the refresh cost."""
        with np.errstate(all="ignore"):
            return self.cell.used(rates, self["refresh_cost"], self["change_rate"], self)

    def per_bandwidth(self) -> Case:
        """Return the case over the bandwidth that each source uses, where that is no product; else itself."""
        if self.line or self.cell.used is None:
            return self
        columns = {
            **self.columns,
            "COST": self["refresh_cost"],
            "refresh_cost": np.ones(len(self)),
            "min_rate": self.used(self["min_rate"]),
            "max_rate": self.used(self["max_rate"]),
        }
        return replace(
            self, columns=columns, layout="plain", _wide={key: wide(x) for key, x in columns.items()}
        )

    def costs(self, rates: Wide) -> Wide:
        """Return w·J of each source, by formulas of the adversary's own."""
        return self._weighed(rates, slopes=False)

    def slopes(self, rates: Wide) -> Wide:
        """Return −w·J' of each source."""
        return self._weighed(rates, slopes=True)

    def _weighed(self, rates: Wide, *, slopes: bool) -> Wide:
        d, w = self["change_rate"], self["importance"]
        with np.errstate(all="ignore"):
            if self.line:
                dual = declared.evaluate(self.line, rates / d)
                found = -(dual.slope + 0 * rates) / d if slopes else dual.value + 0 * rates
            else:
                own = {key: self[key] for key in self.columns if key not in ("change_rate", *DEFAULTS)}
                found = (self.cell.slope if slopes else self.cell.cost)(rates, d, own)
                signal = self.cell.signal_slope if slopes else self.cell.signal_cost
                if signal is not None:
                    found = np.where(self["signalled"] > 0, signal(rates, d, own), found)
            return np.where(w > 0, w * found, 0)

    def value(self, cost: Any) -> Any:
        """Return what freshopt is to report for a total cost."""
        if self.line:
            return cost
        return self.cell.value(
            cost, np.sum(self["importance"]), np.sum(self["importance"] * self["change_rate"])
        )

    def objective(self) -> fo.Objective:
        """Build the objective from its text, as the script does."""
        names = {**NAMES, **{key: np.asarray(self.columns[key]) for key in self.columns if key.isupper()}}
        if self.line:
            exec(declared.SOURCE.format(text=self.line), names)
            found: fo.Objective = names["Declared"]()
            return found
        built: fo.Objective = eval(self.cell.text, names)
        return built

    def problem(self) -> fo.Problem:
        """Build the problem, its arrays laid out as the case says."""
        given: dict[str, Any] = {}
        for key in self.given:
            column = np.asarray(self.columns[key], dtype=float)
            # Each kind of column is compiled anew: those that are passed as loops see are all arrays.
            whole = self.compiled and self.layout != "scalar" and key != "signalled"
            if whole or self._must_be_given(key, column):
                given[key] = laid_out(column, self.layout, key)
        if self.limits:
            given["host"] = self.host.tolist() if self.layout == "list" else self.host
        return fo.Problem(self.objective(), fo.Sources(**given), self.bandwidth, dict(self.limits) or None)

    def solve(self) -> fo.Solution:
        """Solve it with the case's solver."""
        solver = eval(self.solver, NAMES)
        with backend(self.compiled):
            return fo.solve(self.problem(), solver, throw=False)

    def _must_be_given(self, key: str, column: Any) -> bool:
        """Return whether a column is no default: importance has another one where requests are known."""
        if key not in DEFAULTS or (key == "importance" and "request_rate" in self.given):
            return True
        return not bool(np.all(column == DEFAULTS[key]))

    def script(self, words: str = "") -> str:
        """Return a script that shows what was found."""
        lines = [f"# {line}" for line in words.splitlines()]
        lines += ["import numpy as np", "import freshopt as fo", "from freshopt.cvx import cp"]
        lines += ["from freshopt.problems import *"]
        lines += [] if self.layout == "plain" else ["from benchmarks.adversary.case import laid_out"]
        lines += (
            [
                "from freshopt.compiled import backend",
                f"backend.AT_HAND, backend.account.loads = {COMPILED}, True",
            ]
            if self.compiled
            else []
        )
        lines += [] if self.compiled else ["import os", 'os.environ["FRESHOPT_COMPILED"] = "0"']
        lines += [f"{key} = np.array({self.columns[key].tolist()})" for key in self.columns if key.isupper()]
        lines += [declared.SOURCE.format(text=self.line)] if self.line else []
        lines += ["sources = fo.Sources("]
        for key in self.given:
            column = np.asarray(self.columns[key], dtype=float)
            if (self.compiled and key != "signalled") or self._must_be_given(key, column):
                text = repr(column.tolist()).replace("inf", "np.inf")
                array = f"np.array({text})"
                laid = f"laid_out({array}, {self.layout!r}, {key!r})"
                lines.append(f"    {key}={array if self.layout == 'plain' else laid},")
        lines += [f"    host={self.host.tolist()},"] if self.limits else []
        objective = "Declared()" if self.line else self.cell.text
        limits = f", {dict(self.limits)}" if self.limits else ""
        lines += [")", f"problem = fo.Problem({objective}, sources, {self.bandwidth!r}{limits})"]
        lines += [f"solution = fo.solve(problem, {self.solver}, throw=False)"]
        lines += ["print(solution, solution.certificate, solution.rates, sep='\\n')"]
        return "\n".join(lines)


def laid_out(column: Any, layout: str, key: str) -> Any:
    """Return a column strided, reversed, as part of a Fortran array, a list, whole numbers or float32."""
    n = len(column)
    if layout == "strided":
        made = np.zeros(3 * n)
        made[::3] = column
        return made[::3]
    if layout == "reversed":
        return np.ascontiguousarray(column[::-1])[::-1]
    if layout == "fortran":
        table = np.asfortranarray(np.tile(column, (4, 1)))
        return table[1]
    if layout == "list":
        return column.tolist()
    if layout == "read-only":
        column = column.copy()
        column.flags.writeable = False
        return column
    if layout == "float32" and key in ("change_rate", "importance"):
        return column.astype(np.float32)
    if (
        layout == "whole"
        and np.all(np.isfinite(column))
        and np.all(column == np.rint(column))
        and np.all(column < 2**53)
    ):
        return column.astype(np.int64)
    if layout == "scalar" and np.all(column == column[0]) and key != "change_rate":
        return float(column[0])
    return column


LAYOUTS = ("plain", "strided", "reversed", "fortran", "list", "read-only", "float32", "whole", "scalar")


@contextlib.contextmanager
def backend(compiled: bool, least: int = COMPILED) -> Iterator[None]:
    """Switch compiled loops on, from so many sources on, or off for a while."""
    before, usual = os.environ.get("FRESHOPT_COMPILED"), passes.AT_HAND
    os.environ["FRESHOPT_COMPILED"] = str(int(compiled))
    passes.AT_HAND = least
    try:
        with passes.loading():
            yield
    finally:
        passes.AT_HAND = usual
        if before is None:
            os.environ.pop("FRESHOPT_COMPILED")
        else:
            os.environ["FRESHOPT_COMPILED"] = before

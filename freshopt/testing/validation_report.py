"""`Report`: results of a validation, with code that reproduces failures."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from freshopt.formatting import WIDTH, fitted
from freshopt.heavy import polars
from freshopt.testing.foreign_runs import Outcome, Verdict
from freshopt.testing.problem_families import Instance
from freshopt.testing.recipe import Recipe

COLUMNS = ("scale", "problems", "proved", "declined", "seconds", "shortfalls")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One problem and its outcome.

    - `scale`: "benign", "ill", or "given".
    """

    scale: str
    instance: Instance
    outcome: Outcome

    @property
    def objective(self) -> str:
        """The objective in one line."""
        return repr(self.instance.problem.objective)


@dataclass(frozen=True, slots=True, eq=False)
class Reproduction:
    """The smallest problem found that shows a kind of failure.

    - `origin`: The instance from which it was cut down.
    - `recipe`: ``recipe.problem()`` builds it, ``recipe.code()`` is that in Python.
    """

    origin: str
    recipe: Recipe
    outcome: Outcome

    def code(self, solver: str, tolerance: float) -> str:
        """Return Python that builds the problem and asserts what fails."""
        module, _, name = solver.partition(":")
        importable = name.isidentifier() and all(part.isidentifier() for part in module.split("."))
        name = name if importable else "solve"
        lines = [
            self.recipe.code(),
            "",
            "from freshopt.testing import assert_optimal",
            f"from {module} import {name}" if importable else f"{name} = ...  # {solver}",
            "",
            f"assert_optimal(problem, {name}(problem), tolerance={tolerance:g})",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report:
    """Report of a validation.

    Attributes
    ----------
    solver : str
        ``module:name`` of a function or class, or a solver's repr.
    tolerance : float
    runs : tuple of Run
    smallest : tuple of Reproduction
        One per kind of failure.
    """

    solver: str
    tolerance: float
    runs: tuple[Run, ...]
    smallest: tuple[Reproduction, ...]

    @property
    def shortfalls(self) -> tuple[Run, ...]:
        """The runs in which the solver fell short."""
        return tuple(run for run in self.runs if run.outcome.verdict.is_shortfall)

    @property
    def passed(self) -> bool:
        """Whether some answer is proved optimal and none falls short."""
        return not self.shortfalls and any(run.outcome.verdict is Verdict.PROVED for run in self.runs)

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        count = Counter(run.outcome.kind for run in self.runs)
        if self.passed:
            declined = count[Verdict.DECLINED.value]
            rest = f", {declined} declined" if declined else ""
            return f"No shortfall: {count[Verdict.PROVED.value]} answers are proved optimal{rest}."
        if not self.shortfalls:
            return "The solver declined every problem: nothing is shown."
        kinds = Counter(run.outcome.kind for run in self.shortfalls)
        named = ", ".join(f"{times} {kind}" for kind, times in kinds.most_common())
        return f"The solver falls short on {len(self.shortfalls)} of {len(self.runs)} problems: {named}."

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table with a row per run.

        Gaps are null where there was nothing to certify.
        """
        rows = [
            {
                "objective": run.objective,
                "scale": run.scale,
                "instance": run.instance.name,
                "sources": len(run.instance.problem.sources),
                "verdict": run.outcome.kind,
                "gap": certificate.gap if (certificate := run.outcome.certificate) else None,
                "relative_gap": certificate.relative_gap if certificate else None,
                "infeasibility": certificate.infeasibility if certificate else None,
                "seconds": run.outcome.seconds,
                "detail": run.outcome.detail,
            }
            for run in self.runs
        ]
        numbers = dict.fromkeys(("gap", "relative_gap", "infeasibility", "seconds"), polars.Float64)
        return polars.DataFrame(rows, schema_overrides=numbers)

    def __repr__(self) -> str:
        parts = [
            fitted(f"{self.solver}: {len(self.runs)} problems, tolerance {self.tolerance:g}"),
            _table(self.runs),
        ]
        for found in self.smallest:
            head = f"Smallest problem found: {found.outcome.kind}. From {found.origin}."
            parts.append(fitted(f"{head}\n{found.outcome.detail}"))
            parts.append(_indented(found.code(self.solver, self.tolerance)))
        return "\n\n".join([*parts, fitted(self.sentence)])


def _table(runs: Sequence[Run]) -> str:
    """Return each objective with a row per scale below it."""
    families: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        families.setdefault(run.objective, {}).setdefault(run.scale, []).append(run)
    rows = {
        (objective, scale): _row(scale, family)
        for objective, scales in families.items()
        for scale, family in scales.items()
    }
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows.values(), strict=True)][:-1]
    lines = _lines(COLUMNS, widths)
    for objective, scales in families.items():
        lines += ["", fitted(objective)]
        for scale in scales:
            lines += _lines(rows[objective, scale], widths)
    return "\n".join(lines)


def _row(scale: str, family: Sequence[Run]) -> tuple[str, ...]:
    """Return the cells of one objective and scale."""
    kinds: dict[str, list[Run]] = {}
    for run in family:
        kinds.setdefault(run.outcome.kind, []).append(run)
    good = [len(kinds.pop(verdict.value, [])) for verdict in (Verdict.PROVED, Verdict.DECLINED)]
    seconds = math.fsum(run.outcome.seconds for run in family)
    short = ", ".join(_worst(kind, group) for kind, group in kinds.items())
    return scale, str(len(family)), *map(str, good), f"{seconds:.2g}", short or "none"


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return a row as lines, its last column wrapped."""
    start = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
    return textwrap.wrap(
        row[-1], WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )


def _worst(kind: str, runs: Sequence[Run]) -> str:
    """Return a failure kind's count and largest gap or violation."""
    certificates = [run.outcome.certificate for run in runs if run.outcome.certificate is not None]
    text = f"{len(runs)} {kind}"
    if runs[0].outcome.verdict is Verdict.INFEASIBLE:
        text += f" (by {max(each.infeasibility for each in certificates):.1e})"
    elif certificates:
        text += f" (gap {max(each.relative_gap for each in certificates):.1e})"
    return text


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())

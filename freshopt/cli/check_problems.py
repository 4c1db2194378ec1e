"""Built-in problem instances of `freshopt check`, with every constraint kind.

They are few and small, so that all objectives in all disciplines take about a minute. Solvers that would take
longer are left out unless --solvers names them, and the command says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from freshopt.errors import InfeasibleProblemError, ObjectiveError
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.naming import Parameters
from freshopt.problems import AccumulatedDelay
from freshopt.terminal.own_objectives import made_objective
from freshopt.testing import instances
from freshopt.testing.problem_families import Scale

# Bandwidth of the built-in instances, in units of the sum of the change rates.
BUDGET = "0.5"
LARGE, ILL = "large", "ill-scaled"
# Name, the kind of the testing kit's family, number of sources, scale of the data.
FAMILY: tuple[tuple[str, str, int, Scale], ...] = (
    ("plain", "plain", 10, "benign"),
    ("bounds", "both bounds", 10, "benign"),
    ("hosts", "hosts", 10, "benign"),
    ("signals", "signals", 10, "benign"),
    ("unequal costs", "unequal costs", 10, "benign"),
    (ILL, "plain", 10, "ill"),
    (LARGE, "plain", 100, "benign"),
)
# Measured on one core: SCS takes up to 50 s a problem where a penalty is declared with 61 exponentials per
# source, and 268 s for the periodic age of 1000 sources; the descents 1-5 s on 16 decades.
LEFT_OUT = (
    "scs on penalties and on the large instance",
    "mirror-descent and projected-gradient on the ill-scaled one",
    "automata-tree (eight runs of up to a million polls on each problem)",
    "penalties on the ill-scaled one (their declared form serves 0.01 refreshes per change and more)",
    "penalty-log and penalty-square but for plain and signals",
)


class Case(NamedTuple):
    """All that a problem needs besides an objective."""

    name: str
    sources: Sources
    bandwidth: float
    host_limits: Mapping[Any, float] | None
    parameters: Parameters


class Task(NamedTuple):
    """Objective, discipline and case from which a problem is built."""

    objective: str
    refresh: str
    case: Case
    parameters: Parameters

    def goal(self) -> Objective:
        """Return the objective."""
        return made_objective(self.objective, self.refresh, self.parameters)

    def problem(self) -> Problem | ObjectiveError | InfeasibleProblemError:
        """Return the problem, or why there is none."""
        case = self.case
        try:
            return Problem(self.goal(), case.sources, case.bandwidth, case.host_limits)
        except (ObjectiveError, InfeasibleProblemError) as error:
            return error


def built_in() -> list[Case]:
    """Return the built-in instances, the same on every call.

    Examples
    --------
    >>> [(case.name, len(case.sources)) for case in built_in()][-2:]
    [('ill-scaled', 10), ('large', 100)]
    """
    found = []
    for name, kind, n, scale in FAMILY:
        wanted = f"{kind}, bandwidth {BUDGET}·ΣΔ"
        family = instances(AccumulatedDelay(Refresh.POISSON), n=n, seed=0, scale=scale)
        problem = next(problem for label, problem in family if label == wanted)
        rng = np.random.default_rng(n)
        share = problem.bandwidth / float(np.sum(problem.sources.refresh_cost))
        parameters = Parameters(
            exponent=rng.uniform(0.2, 1.0, n),
            # An even share of the bandwidth keeps some deadlines and misses others.
            deadline=10.0 ** rng.uniform(-0.5, 0.5, n) / share,
        )
        found.append(Case(name, problem.sources, problem.bandwidth, problem.host_limits, parameters))
    return found


def takes_long(case: str, objective: str, solver: str) -> bool:
    """Return whether the default run leaves a solver out.

    Examples
    --------
    >>> takes_long("plain", "penalty-log", "scs"), takes_long("plain", "harmonic", "scs")
    (True, False)
    """
    penalty = objective.startswith("penalty")
    if penalty and (case == ILL or (objective != "penalty-sqrt" and case not in ("plain", "signals"))):
        return True
    return {
        "scs": penalty or case == LARGE,
        "mirror-descent": case == ILL,
        "projected-gradient": case == ILL,
        "automata-tree": True,
        # Only this objective is a linear program; HiGHS takes 20 s to refuse the others.
        "highs": objective != "deadline",
    }.get(solver, False)

"""Runs of solvers in a process of their own, bounded in time.

A cone solver cannot be interrupted from Python, and not all have a time limit of their own; a user's solver
may do anything. The process is started once and serves all runs; one that had to be ended is replaced.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import (
    DEFAULT,
    SolveOptions,
    Solver,
    certified_solution,
    run_solver,
)
from freshopt.errors import FreshoptError
from freshopt.modelling.problem import Problem
from freshopt.sampled_gap import SampledSolver
from freshopt.solvers import AutomataTree, Conic, MirrorDescent, ProjectedGradient

# Solvers whose time depends on the scaling of the data; the others make some dozens of passes.
ITERATIVE = (Conic, MirrorDescent, ProjectedGradient, AutomataTree)
# Seconds; CLARABEL and ECOS take less than one for a thousand sources, SCS takes minutes where it takes more.
LIMIT = 60.0
# A month; what waits longer is for no one.
LONGEST = 30 * 86_400.0
# What pipes raise of values that they cannot send, one of them by the name of their library.
NOT_SENT: tuple[type[Exception], ...] = (AttributeError, TypeError, vars(reduction)["pickle"].PicklingError)


class NoAnswerError(Exception):
    """Run without an answer; the message says why."""


class TooLongError(NoAnswerError):
    """Run that was ended at its time limit."""


class NotSentError(NoAnswerError):
    """Run whose arguments no other process can be sent."""


class BoundedRuns:
    """Runs of a function in its own process, bounded in time.

    Examples
    --------
    >>> with BoundedRuns(solving, 10.0) as runs:
    ...     pass
    """

    def __init__(self, make: Callable[[], Callable[..., Any]], limit: float) -> None:
        self.make, self.limit = make, limit
        self._process: Any = None
        self._pipe: Connection[Any, Any] | None = None

    def __enter__(self) -> Self:
        """Return itself; the process starts with the first run."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process, whatever it does."""
        self._end()

    def run(self, *arguments: object) -> Any:  # noqa: ANN401 - what the function returns
        """Return what the function returns."""
        try:
            packed = reduction.ForkingPickler.dumps(arguments)
        except NOT_SENT as error:
            raise NotSentError(str(error)) from None
        try:
            pipe = self._pipe or self._start()
            pipe.send_bytes(packed)
            if not pipe.poll(self.limit):
                self._end()
                raise TooLongError(f"no answer within {self.limit:g} s")
            good, reply = pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self._end()
            raise NoAnswerError(f"it ended its process (exit code {code})") from None
        if not good:
            raise reply
        return reply

    def _start(self) -> Connection[Any, Any]:
        """Start the process and wait until it is ready."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self.make, theirs))
        self._process.start()
        theirs.close()
        self._pipe.recv()
        return self._pipe

    def _end(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._pipe = None


def _serve(make: Callable[[], Callable[..., Any]], pipe: Connection[Any, Any]) -> None:
    """Run the function for each message; ends with the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function = make()
    pipe.send(None)
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            return
        try:
            reply = True, function(*arguments)
        except FreshoptError as error:
            reply = False, error
        pipe.send(reply)


def _end_with_parent() -> None:
    """End this process where its parent was killed, and could not."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def solving() -> Callable[[Solver, Problem, SolveOptions], Solution]:
    """Return the function that runs a solver."""
    return run_solver


@dataclass(frozen=True, slots=True)
class Bounded:
    """Solver whose runs are bounded in time."""

    solver: Solver
    runs: BoundedRuns

    def supports(self, problem: Problem) -> str | None:
        """Return why the solver does not apply, or None."""
        return self.solver.supports(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Return the solver's solution, or one without an answer."""
        try:
            found: Solution = self.runs.run(self.solver, problem, options)
        except NotSentError:
            # Functions that a kernel's method defines are known here alone.
            return self.solver.solve(problem, options)
        except NoAnswerError as error:
            status = Status.TIME_LIMIT if isinstance(error, TooLongError) else Status.FAILED
            answer = Answer(None, status=status, note=str(error))
            found = certified_solution(self.solver, problem, options, lambda _problem, _start: answer)
            return replace(found, seconds=self.runs.limit)
        return replace(found, problem=problem)


@dataclass(frozen=True, slots=True)
class BoundedSamples(Bounded):
    """Sampled solver whose runs are bounded in time, one by one."""

    solver: SampledSolver

    def replica(self, number: int, shorter: int = 1) -> BoundedSamples:
        """Return the solver with another seed and a fraction of its samples."""
        return BoundedSamples(self.solver.replica(number, shorter), self.runs)

    def enough(self, problem: Problem) -> bool:
        """Return whether there are samples enough to judge."""
        return self.solver.enough(problem)


def bounded(solver: Solver, runs: BoundedRuns) -> Solver:
    """Return an iterative solver with bounded runs, any other itself."""
    if isinstance(solver, SampledSolver):
        return BoundedSamples(solver, runs)
    return Bounded(solver, runs) if isinstance(solver, ITERATIVE) else solver

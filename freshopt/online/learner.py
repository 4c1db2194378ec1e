"""`Learner`: protocol of all online policies.

A policy is a frozen record of its settings. Its one method runs it in a world, or with a crawler of one's
own, for a problem whose true change rates it does not know; it chooses crawls, updates its estimates, and
returns a `RunHistory`. With a checkpoint an interrupted run ends with the same bits.

The state of its run is a value: arrays by name. A round maps a state
to the next one, `run_rounds` repeats it. At a checkpoint the state, the records and (in a simulation) the
crawler are written atomically to one file; a resumed run continues exactly where it was, with the same bits
to the end. A real crawler keeps its own copies and is not saved: its run resumes with the state.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect, one_of
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.online.run_history import RunHistory, Sense
from freshopt.simulation import AgeCosts, Crawler, World
from freshopt.simulation.crawler import as_crawler

State: TypeAlias = dict[str, npt.NDArray[Any]]
Round: TypeAlias = Callable[[State, int], State]

# Rates that a journal keeps, 64 MB; beyond, every second round is dropped.
MOST_NUMBERS = 8_000_000
# Seconds between two checkpoints, so that saving costs little against what it saves.
SECONDS = 30.0


class Journal:
    """Records of a run, from which its history is made.

    Examples
    --------
    >>> journal = Journal("Tried()")
    >>> journal.add(1.0, [0.5, 0.5], value=3.0, best=2.0, spent=1, allowed=1.0)
    >>> journal.add(2.0, [0.4, 0.6], value=2.5, best=2.0, spent=1, allowed=1.0)
    >>> journal.history()
    RunHistory(Tried(): 2 rounds in 2 days, value 2.5, best 2, regret 1.5, 100.0% of the bandwidth spent)
    """

    def __init__(
        self, learner: str, sense: Sense = "minimise", *, exact: bool = True, time_unit: str = "day"
    ) -> None:
        self._learner, self._exact, self._time_unit = learner, exact, time_unit
        self._sense: Sense = one_of(sense, get_args(Sense), "sense")
        self._rows: dict[str, list[float]] = {}
        self._kept: list[int] = []
        self._rates: list[Array] = []
        self._last = np.empty(0)
        self._stride = 1

    def __len__(self) -> int:
        """Return the number of rounds recorded."""
        return len(self._rows.get("time", ()))

    def add(
        self,
        time: float,
        rates: npt.ArrayLike,
        *,
        value: float,
        spent: float,
        allowed: float,
        best: float | None = None,
        **extra: float,
    ) -> None:
        """Record a round that ended at `time`.

        The first began at 0.

        `extra` are further columns, the same in every round.
        """
        number = len(self)
        row = {"time": time, "value": value, "spent": spent, "allowed": allowed, **extra}
        if best is not None:
            row["best"] = best
        if number and row.keys() != self._rows.keys():
            raise SourceDataError(f"round {number} records {list(row)}, earlier ones {list(self._rows)}.")
        for key, number_ in row.items():
            self._rows.setdefault(key, []).append(float(number_))
        self._last = np.array(rates, dtype=np.float64)
        if number % self._stride == 0:
            self._kept.append(number)
            self._rates.append(self._last)
            if len(self._rates) > 1 and len(self._rates) * len(self._last) > MOST_NUMBERS:
                self._kept, self._rates, self._stride = self._kept[::2], self._rates[::2], 2 * self._stride

    def history(self, final: Array | None = None) -> RunHistory:
        """Return the run history so far, with the rates learnt."""
        columns = {key: np.array(column) for key, column in self._rows.items()}
        times = columns.pop("time", np.empty(0))
        kept, rates = list(self._kept), list(self._rates)
        if len(times) and kept[-1] != len(times) - 1:
            kept, rates = [*kept, len(times) - 1], [*rates, self._last]
        value, spent, allowed = (columns.pop(key, np.empty(0)) for key in ("value", "spent", "allowed"))
        return RunHistory(
            learner=self._learner,
            time=times,
            duration=np.diff(times, prepend=0.0),
            value=value,
            best=columns.pop("best", None),
            spent=spent,
            allowed=allowed,
            kept=np.array(kept, dtype=np.int64),
            rates=np.array(rates).reshape(len(rates), len(self._last)),
            final=np.array(self._last if final is None else final),
            sense=self._sense,
            exact=self._exact,
            time_unit=self._time_unit,
            extra=columns,
        )

    def state(self) -> State:
        """Return the records as arrays by name."""
        columns = {f"row {key}": np.array(column) for key, column in self._rows.items()}
        rates = np.array(self._rates).reshape(len(self._rates), len(self._last))
        fixed = {"kept": np.array(self._kept, dtype=np.int64), "stride": np.array(self._stride)}
        return {**columns, **fixed, "rates": rates, "last": self._last}

    def restore(self, state: State) -> None:
        """Restore the records of `state`."""
        self._rows = {key[4:]: column.tolist() for key, column in state.items() if key.startswith("row ")}
        self._kept = state["kept"].tolist()
        self._rates, self._last = list(state["rates"]), state["last"]
        self._stride = int(state["stride"])


def run_rounds(
    start: State,
    next_round: Round,
    rounds: int,
    journal: Journal,
    *,
    crawler: Crawler | None = None,
    checkpoint: str | Path | None = None,
    settings: str = "",
    progress: bool = False,
    seconds: float = SECONDS,
) -> State:
    """Run rounds from a state or a checkpoint.

    Returns the last state.

    - `start`: The state before the first round.
    - `next_round`: ``next_round(state, k)`` runs round k = 0, 1, ... with its crawler, adds it to the
      journal, and returns the next state. It must not change the arrays of the state that it is given.
    - `rounds`: How many there are in all, counting those before a checkpoint.
    - `crawler`: Saved and restored with the run if it has ``state()`` and ``restore(state)``.
    - `checkpoint`: A file to resume from if it is there, and to save to.
    - `settings`: What must be the same to resume: the learner and its world, as they print.
    - `progress`: Whether to show a bar.
    - `seconds`: Between two checkpoints; the last round is always saved.
    """
    state, done, path = start, 0, None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        saved = load_checkpoint(path, settings)
        done = int(saved["done"])
        if done > rounds:
            raise SourceDataError(
                f"{path} has {done} rounds but {rounds} are asked for. Ask for more, or use another file."
            )
        state = _part(saved, "state/")
        journal.restore(_part(saved, "journal/"))
        if crawler is not None and hasattr(crawler, "restore"):
            crawler.restore(_part(saved, "crawler/"))

    def save(done: int) -> None:
        if path is not None:
            keeps = crawler is not None and hasattr(crawler, "state")
            parts = {"state/": state, "journal/": journal.state()}
            parts |= {"crawler/": crawler.state()} if keeps else {}  # type: ignore[union-attr]
            arrays = {head + key: array for head, part in parts.items() for key, array in part.items()}
            save_checkpoint(path, {**arrays, "done": np.array(done)}, settings)

    last_saved = time.monotonic()
    with _bar(rounds, done, progress) as advance:
        for number in range(done, rounds):
            state = next_round(state, number)
            advance()
            if time.monotonic() - last_saved >= seconds and number + 1 < rounds:
                save(number + 1)
                last_saved = time.monotonic()
    if done < rounds:
        save(rounds)
    return state


def world_of(crawler: World | Crawler) -> World | None:
    """Return the simulated world in which a crawler is, if any."""
    inside = getattr(crawler, "world", crawler)
    return inside if isinstance(inside, World) else None


def settings_of(learner: object, problem: Problem, world: World | Crawler) -> str:
    """Return the settings that a resumed run must share.

    Learner, problem and world, as text.

    The data of the problem enter as a digest. A crawler that is not simulated enters by its class: it is the
    caller's.
    """
    sources, digest = problem.sources, hashlib.sha256()
    columns = (sources.change_rate, sources.importance, sources.refresh_cost, sources.signalled)
    for column in (*columns, problem.lower, problem.upper):
        digest.update(np.ascontiguousarray(column).tobytes())
    inside = world_of(world) or world
    name = repr(inside) if isinstance(inside, World | AgeCosts) else type(inside).__name__
    return f"{learner!r} on {problem!r} with data {digest.hexdigest()[:16]} in {name}"


def save_checkpoint(path: Path, arrays: State, settings: str) -> None:
    """Write arrays and settings to one file, atomically, without pickles."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            np.savez(file, settings=np.array(json.dumps(settings)), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load_checkpoint(path: Path, settings: str) -> State:
    """Read a checkpoint, or raise if its settings differ."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        found = json.loads(str(arrays.pop("settings")))
    except (ValueError, KeyError, OSError, EOFError, RecursionError, zipfile.BadZipFile) as error:
        raise SourceDataError(f"{path} is not a checkpoint ({error}). Choose another file.") from None
    if found != settings:
        raise SourceDataError(
            f"{path} is a checkpoint of {found}, not of {settings}. Resume with the same settings, or choose "
            "another file."
        )
    return arrays


def _part(saved: State, head: str) -> State:
    return {key.removeprefix(head): array for key, array in saved.items() if key.startswith(head)}


@contextlib.contextmanager
def _bar(rounds: int, done: int, shown: bool) -> Iterator[Callable[[], None]]:
    """Yield a callback for each round's end, with a bar if wanted."""
    if not shown:
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress() as progress:
        task = progress.add_task("rounds", total=rounds, completed=done)
        yield lambda: progress.advance(task)


class Learner(Protocol):
    """Online policy: it chooses crawls while estimating change rates."""

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> RunHistory:
        """Run the policy in a world until the horizon.

        Parameters
        ----------
        world : World or Crawler
            A simulation, or anything with the methods of `Crawler`: whether a source had changed, or what its
            copy cost at that moment.
        problem : Problem
            Problem to optimise. Its change rates are at most a first guess: each policy documents what it
            uses of them.
        horizon : float
            Time units from the beginning.
        truth : Problem, optional
            The true problem, for evaluation; a Poisson world has its own. Without it values are those
            under the estimates.
        checkpoint : path, optional
            A file to resume from and to save to.
        progress : bool
            Whether to show a bar.

        Returns
        -------
        RunHistory
            Rates, values and bandwidth used, round by round.

        Raises
        ------
        SourceDataError
            If the world, the problem and the truth are not of the same sources, or the horizon is not
            positive and finite or too short for a round.
        """
        ...


class Course(NamedTuple):
    """Rounds of a learner in a world.

    ``start`` is the state before the first; ``play(state, k, journal)`` runs round k, adds it to the journal,
    and returns the next state. ``exact``: whether values are under the true parameters. ``final``: the rates
    that a last state has learnt, if not those of the last round. ``sense``: that of the values, if not the
    objective's.
    """

    start: State
    play: Callable[[State, int, Journal], State]
    rounds: int
    exact: bool
    final: Callable[[State], Array | None] = lambda _: None
    sense: Sense | None = None


class RoundLearner(ABC):
    """Learner that is told by its course of rounds."""

    __slots__ = ()

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> RunHistory:
        """Learn until the horizon, round by round; see `Learner.run`."""
        expect(problem, Problem, "problem", "Pass a freshopt.Problem")
        _require_fetches(problem, type(self).__name__)
        crawler = as_crawler(world)
        _require_sources(world_of(crawler), problem)
        course = self._course(crawler, problem, horizon, truth)
        sense, unit = course.sense or problem.objective.sense, problem.sources.time_unit
        journal = Journal(repr(self), sense, exact=course.exact, time_unit=unit)
        last = run_rounds(
            course.start,
            lambda state, number: course.play(state, number, journal),
            course.rounds,
            journal,
            crawler=crawler,
            checkpoint=checkpoint,
            settings=settings_of(self, problem, crawler),
            progress=progress,
        )
        return journal.history(course.final(last))

    @abstractmethod
    def _course(self, crawler: Crawler, problem: Problem, horizon: float, truth: Problem | None) -> Course:
        """Return the rounds until the horizon.

        A problem that the learner cannot keep is refused.
        """


def _require_fetches(problem: Problem, learner: str) -> None:
    """Raise if fetches fail, cost what they bring, or wait for requests."""
    require_fixed_costs(problem.sources, learner)
    if problem.sources.failing is not None:
        raise SourceDataError(f"{learner} knows fetches that succeed, and these may fail. Drop success.")
    if problem.objective.refresh is Refresh.ON_REQUEST:
        raise SourceDataError(
            f"{learner} chooses when to crawl, and copies that are refreshed on request leave no choice. "
            "Pass an objective with refresh=Refresh.PERIODIC or POISSON."
        )


def _require_sources(world: World | None, problem: Problem) -> None:
    """Raise SourceDataError unless world and problem are of the same sources."""
    if world is None:
        return
    n, names, called = len(problem.sources), world.names, problem.sources.names
    if len(world) != n:
        raise SourceDataError(
            f"the world has {len(world)} sources but the problem {n}. Pass the world of its sources."
        )
    if names is not None and called is not None and not np.array_equal(names, called):
        k = int(np.flatnonzero(np.asarray(names) != np.asarray(called))[0])
        raise SourceDataError(
            f"source {k} is '{names[k]}' in the world but '{called[k]}' in the problem. Give both their "
            "sources in one order (World.from_events(..., names=...))."
        )
    if world.time_unit != problem.sources.time_unit:
        raise SourceDataError(
            f"the world's clock counts {world.time_unit}s but the problem's {problem.sources.time_unit}s. "
            "Give both one time_unit."
        )

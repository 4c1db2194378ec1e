"""Histories, their plots and tables, and runs that are interrupted and resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import freshopt as fo
from freshopt.online import RunHistory
from freshopt.online import learner as playing_module
from freshopt.online.learner import Journal, State, run_rounds, save_checkpoint, settings_of
from freshopt.problems import BinaryFreshness
from freshopt.simulation import SimulatedCrawler
from tests.ground_truth.refusals import refused

SOURCES = fo.Sources([1.0, 2.0, 3.0])


def played(
    rounds: int,
    checkpoint: Path | None = None,
    *,
    stop: int | None = None,
    settings: str = "",
    seconds: float = 30.0,
) -> tuple[RunHistory, State]:
    """A run whose state depends on all answers so far, interrupted after `stop` rounds."""
    crawler = SimulatedCrawler(fo.World.poisson(SOURCES, seed=1))
    journal = Journal("Tried()", time_unit="hour")

    def next_round(state: State, k: int) -> State:
        if k == stop:
            raise KeyboardInterrupt
        bits = crawler.refresh(np.arange(3), np.full(3, k + 1.0))
        rates = 0.9 * state["rates"] + 0.1 * bits
        journal.add(
            k + 1.0, state["rates"], value=float(rates.sum()), best=1.0, spent=3, allowed=4.0, odd=k % 2
        )
        return {"rates": rates}

    last = run_rounds(
        {"rates": np.ones(3)},
        next_round,
        rounds,
        journal,
        crawler=crawler,
        checkpoint=checkpoint,
        settings=settings,
        seconds=seconds,
    )
    return journal.history(last["rates"]), last


def same(one: RunHistory, other: RunHistory) -> bool:
    """Whether two histories have the same bits."""
    names = ("time", "duration", "value", "best", "spent", "allowed", "kept", "rates", "final")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


def test_a_history_adds_up() -> None:
    journal = Journal("Tried()")
    for time, value in ((1.0, 3.0), (3.0, 2.5), (4.0, 2.0)):
        journal.add(time, [value], value=value, best=2.0, spent=1.0, allowed=2.0, seen=7)
    history = journal.history(np.array([9.0]))
    assert history.duration.tolist() == [1.0, 2.0, 1.0]
    assert history.shortfall.tolist() == [1.0, 0.5, 0.0]
    assert history.regret.tolist() == [1.0, 2.0, 2.0]
    assert (history.rates[-1, 0], history.final[0], len(history)) == (2.0, 9.0, 3)
    frame = history.to_frame()
    assert frame.columns == ["round", "time", "value", "best", "regret", "spent", "allowed", "seen"]
    assert frame["regret"].to_list() == [1.0, 2.0, 2.0]
    assert repr(history) == (
        "RunHistory(Tried(): 3 rounds in 4 days, value 2, best 2, regret 2, 50.0% of the bandwidth spent)"
    )
    with pytest.raises(ValueError, match="read-only"):
        history.value[0] = 1.0


def test_a_history_that_maximises_or_knows_no_best() -> None:
    journal = Journal("Tried()", "maximise", exact=False)
    assert repr(journal.history()) == "RunHistory(Tried(): no rounds)"
    journal.add(1.0, [1.0, 2.0], value=3.0, best=5.0, spent=1.0, allowed=1.0)
    assert journal.history().regret.tolist() == [2.0]
    assert "estimated value 3" in repr(journal.history())
    assert journal.history().final.tolist() == [1.0, 2.0]
    refused("round 1 records", journal.add, 2.0, [1.0, 2.0], value=3.0, spent=1.0, allowed=1.0)
    blind = Journal("Tried()")
    blind.add(1.0, [1.0], value=3.0, spent=1.0, allowed=1.0)
    assert "regret" not in blind.history().to_frame().columns
    with pytest.raises(fo.SourceDataError, match="no regret"):
        _ = blind.history().regret


def test_lengths_that_do_not_fit_are_refused() -> None:
    one, two = np.ones(1), np.ones(2)
    with pytest.raises(fo.SourceDataError, match="1 rounds has other lengths in value"):
        RunHistory("X()", one, one, two, None, one, one, np.zeros(1, dtype=np.int64), np.ones((1, 2)), two)


def test_rates_of_many_rounds_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing_module, "MOST_NUMBERS", 30)

    def journal(rounds: range, state: State | None = None) -> Journal:
        kept = Journal("Tried()")
        if state is not None:
            kept.restore(state)
        for k in rounds:
            kept.add(k + 1.0, np.full(3, k), value=0.0, best=0.0, spent=1.0, allowed=1.0)
        return kept

    history = journal(range(100)).history()
    assert history.kept.tolist() == [*range(0, 100, 16), 99]
    assert history.rates[:, 0].tolist() == history.kept.tolist()
    for stop in (1, 11, 40, 97):  # wherever it is interrupted
        assert same(journal(range(stop, 100), journal(range(stop)).state()).history(), history)


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, seconds: float) -> None:
    whole, end = played(40)
    for first in (1, 17, 39, 40):
        path = tmp_path / f"{first}.npz"
        played(first, path, seconds=seconds)
        resumed, last = played(40, path, seconds=seconds)
        assert same(resumed, whole)
        assert last["rates"].tobytes() == end["rates"].tobytes()
        assert same(played(40, path)[0], whole)  # nothing is left to do


def test_an_interrupted_run_resumes_from_its_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        played(40, path, stop=23, seconds=0.0)
    with np.load(path) as saved:
        assert saved["done"] == 23
    assert same(played(40, path)[0], played(40)[0])
    assert [found.name for found in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_is_complete_or_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.npz"
    played(5, path)
    before = path.read_bytes()

    def broken(file: Any, **arrays: Any) -> None:  # noqa: ANN401, ARG001
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(path, {}, "")
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["run.npz"]


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    played(5, path, settings="one")
    refused("is a checkpoint of one, not of another", played, 5, path, settings="another")
    refused("has 5 rounds but 3 are asked for", played, 3, path, settings="one")
    for content in (b"", b"PK\x03\x04 nothing", b"text"):
        path.write_bytes(content)
        refused("is not a checkpoint", played, 5, path)
    np.savez(path, other=np.ones(1))
    refused("is not a checkpoint", played, 5, path)


def test_settings_tell_problems_and_worlds_apart() -> None:
    objective = BinaryFreshness(fo.Refresh.POISSON)
    problem = fo.Problem(objective, SOURCES, bandwidth=2.0)
    other = fo.Problem(objective, fo.Sources([1.0, 2.0, 3.5]), bandwidth=2.0)
    world = fo.World.poisson(SOURCES, seed=1)
    crawler = SimulatedCrawler(world)
    crawler.refresh([0], [3.0])
    texts = [settings_of("L", p, w) for p, w in ((problem, world), (other, world), (problem, crawler))]
    assert texts[0] != texts[1]
    assert texts[0] == texts[2]  # however far the crawler is
    assert settings_of("L", problem, fo.World.poisson(SOURCES, seed=2)) != texts[0]


def test_plots_are_drawn(tmp_path: Path) -> None:
    history, _ = played(12)
    path = history.draw(tmp_path / "run.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
    axes = history.plot(Figure().subplots())
    assert np.array_equal(axes.lines[0].get_xydata(), np.column_stack([history.time, history.value]))
    with pytest.warns(DeprecationWarning, match=r"RunHistory\.plot\(path\) is RunHistory\.draw\(path\) now"):
        history.plot(tmp_path / "again.png")  # type: ignore[arg-type]
    assert (tmp_path / "again.png").exists()


def test_a_bar_is_shown_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal("Tried()")

    def next_round(state: State, k: int) -> State:
        journal.add(k + 1.0, [1.0], value=0.0, spent=1.0, allowed=1.0)
        return state

    run_rounds({}, next_round, 3, journal, progress=False)
    assert capsys.readouterr().out == ""
    run_rounds({}, next_round, 3, journal, progress=True)
    assert "100%" in capsys.readouterr().out

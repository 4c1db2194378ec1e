"""The table of wishes: what comes from it agrees with it, and what does not go together is refused."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import freshopt as fo
from freshopt.cli.plan import plan as command
from freshopt.live.settings import SETTINGS, PlannerWishes
from freshopt.planning import request
from freshopt.planning.clashes import CLASHES, Clash, refuse_clashes
from freshopt.planning.wishes import WISHES, BackTestWishes, LifetimeWishes, PlanWishes, Wishes
from freshopt.problems import BinaryFreshness
from freshopt.terminal.wish_options import option_of
from tests.ground_truth.plans import crawls

TAKEN: list[tuple[Callable[..., Any], type]] = [
    (fo.plan, PlanWishes),
    (fo.backtest, BackTestWishes),
    (fo.plan_lifetimes, LifetimeWishes),
    (fo.Planner, PlannerWishes),
]


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


def described(function: Callable[..., Any]) -> set[str]:
    """Return the parameters that a docstring describes."""
    section = (inspect.getdoc(function) or "").split("Parameters\n----------\n")[1]
    section = re.split(r"\n\n[A-Z][a-z]+\n---", section)[0]
    heads = [line.partition(" : ")[0] for line in section.splitlines() if line and not line.startswith(" ")]
    return {name.strip() for head in heads for name in head.split(",")}


@pytest.mark.parametrize(("function", "takes"), TAKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_function_takes_is_in_its_signature_and_described(
    function: Callable[..., Any], takes: type
) -> None:
    shown = inspect.signature(function).parameters
    assert set(takes.__annotations__) <= set(shown)
    assert set(shown) == described(function)
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'hozirno'"):
        function("nowhere", "1/day", "7d", hozirno=1.0)


def test_every_wish_is_taken_by_a_function_or_by_position() -> None:
    taken = {name for _, takes in TAKEN[:3] for name in takes.__annotations__}
    assert taken | {"bandwidth", "horizon", "requests"} == set(WISHES)
    assert set(PlannerWishes.__annotations__) - {"time_unit", "objective"} == set(SETTINGS) - {"bandwidth"}


def test_options_are_those_of_the_table() -> None:
    options = {parameter.name: parameter for parameter in command.params}
    for name, one in WISHES.items():
        if one.help:
            assert options[name].opts == [option_of(name)]
            assert getattr(options[name], "help", None) == one.help


@pytest.mark.parametrize("clash", CLASHES, ids=lambda clash: f"{clash.first} {clash.others[0]}")
def test_clashes_are_refused_in_the_words_of_the_caller(clash: Clash) -> None:
    given = {clash.first} if clash.needs else {clash.first, clash.others[-1]}
    with pytest.raises(fo.SourceDataError) as refused:
        refuse_clashes(given, lambda name: f"<{name}>")
    said = str(refused.value)
    assert said.endswith(".")
    assert said.count("<") == len(re.findall(r"<[^<>]+>", said))
    refuse_clashes({clash.first, clash.others[0]} if clash.needs and clash.first != "a plan" else ())


def test_wishes_are_written_and_read_as_a_file(log: fo.CrawlLog, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'bandwidth = "9/day"\nhorizon = "2w"\nmax_rate = "1/hour"\nhost_gap = "6h"\ndraws = 0\nseed = 3\n'
        'objective = {name = "BinaryFreshness", refresh = "poisson"}\nretry_at_once = true\n'
        '[host_limits]\n"a\\"b" = "2/day"\n[hosts]\n' + "".join(f's{k:02d} = "h"\n' for k in range(12))
    )
    found = Wishes.from_toml(file, log)
    assert (found.bandwidth, found.horizon, found.max_rate, found.host_gap) == (9.0, 14.0, 24.0, 0.25)
    assert (found.draws, found.seed, found.retry_at_once) == (0, 3, True)
    assert repr(found.objective) == repr(BinaryFreshness(fo.Refresh.POISSON))
    with pytest.raises(fo.SourceDataError, match="no text holds hosts"):
        found.to_toml("day")
    file.write_text(replace(found, hosts=None).to_toml("day") + "[hosts]\ns00 = 'h'\n")
    again = Wishes.from_toml(file, log)
    kept = [name for name in WISHES if name not in ("objective", "hosts")]
    assert [getattr(again, name) for name in kept] == [getattr(found, name) for name in kept]
    for text, words in (("hozirno = 1", "asks for 'hozirno'"), ("= 1", "cannot be read as TOML")):
        file.write_text(text)
        with pytest.raises(fo.SourceDataError, match=words):
            Wishes.from_toml(file, log)


def test_the_earlier_name_of_wishes_is_told() -> None:
    with pytest.warns(DeprecationWarning, match=r"freshopt\.planning\.wishes\.Wishes"):
        assert request.PlanRequest is Wishes


def test_wishes_of_earlier_pickles_are_the_same(log: fo.CrawlLog) -> None:
    asked = Wishes.of(log, {"bandwidth": 3.0, "min_rate": 0.5, "host_limits": {"a": 2.0}}, PlanWishes)
    copy = pickle.loads(pickle.dumps(asked))
    # Earlier ones are a list, in which bounds come before hosts.
    first = ["objective", "bandwidth", "horizon", "importance", "min_rate", "max_rate", "hosts"]
    names = first + [name for name in WISHES if name not in first]
    earlier = Wishes.__new__(Wishes)
    earlier.__setstate__([getattr(asked, name) for name in names])
    for name in WISHES:
        if name != "hosts":
            assert getattr(copy, name) == getattr(earlier, name) == getattr(asked, name)
    assert earlier.hosts is asked.hosts


def test_a_horizon_and_a_bandwidth_that_are_not_given_are_named(log: fo.CrawlLog) -> None:
    with pytest.raises(fo.SourceDataError, match="horizon is None, not a number"):
        fo.plan(log, 8.0, None)  # type: ignore[arg-type]
    with pytest.raises(fo.SourceDataError, match=r'"200/day", or freshness=0\.99\.$'):
        fo.plan_lifetimes(log, 1.0, None)

"""Lifetimes that caches load: whole seconds within the bandwidth, names, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from freshopt.scheduling.rate_table import LifetimeTable, read_lifetimes
from freshopt.tools import CacheControl, Dns, Nginx, Redis, export
from freshopt.tools.table import LIFETIMES
from freshopt.tools.whole_lifetimes import LONGEST
from tests.ground_truth.tolerances import EXACT
from tests.tools.formats import FORMATS

DAY = 86_400.0


def solved(share: float, seed: int = 4) -> fo.Solution:
    """Sources whose rates differ by ten orders of magnitude, called by records of a zone."""
    rng = np.random.default_rng(seed)
    asked = 10.0 ** rng.uniform(-4.0, 6.0, 60)
    names = [f"h{k}.example.org. A 192.0.2.{k}" for k in range(60)]
    sources = fo.Sources(10.0 ** rng.uniform(-6.0, 4.0, 60), request_rate=asked, name=names)
    fresh = BinaryFreshness(fo.Refresh.ON_REQUEST)
    return fo.solve(fo.Problem(fresh, sources, bandwidth=share * float(asked.sum())))


@pytest.mark.parametrize("name", LIFETIMES)
@pytest.mark.parametrize("share", [1e-3, 0.4, 0.999])
def test_whole_seconds_within_the_bandwidth(name: str, share: float, tmp_path: Path) -> None:
    solution, own = solved(share), FORMATS[name]
    done = export(solution, own.target, tmp_path / "out")
    found = own.read(tmp_path / "out")
    sources = solution.problem.sources
    assert sources.name is not None
    life = dict(zip(sources.name.tolist(), solution.lifetimes.tolist(), strict=True))
    assert found.keys() == {name for name, each in life.items() if each < np.inf}
    for source, seconds in found.items():
        exact = life[source] * DAY
        assert seconds == LONGEST or exact * (1.0 - 1e-9) <= seconds < max(exact + 1.0, own.least + 1e-9)
        assert own.least <= seconds <= LONGEST
    whole = np.array([found.get(source, np.inf) for source in sources.name.tolist()]) / DAY
    used = float(np.sum(1.0 / (whole + 1.0 / sources.asked)))
    assert done.realised == pytest.approx(used, rel=EXACT)
    # A lifetime of 68 years instead of a longer one: one more fetch of each in that time.
    assert used <= solution.problem.bandwidth * (1.0 + EXACT) + len(life) * DAY / LONGEST
    assert (done.sources, done.never) == (len(found), len(life) - len(found))


def test_a_window_of_stale_while_revalidate(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"source": ["a", "b"], "lifetime": [10.0, 0.5], "stale_while_revalidate": [30.9, 0.0]}
    )
    export(frame, CacheControl(), tmp_path / "out", time_unit="second")
    assert (tmp_path / "out").read_text() == "a\tmax-age=10, stale-while-revalidate=30\nb\tmax-age=1\n"
    for target in (Nginx(), Redis(), Dns()):
        with pytest.raises(fo.SourceDataError, match=r"source 'a' has a window of stale-while-revalidate"):
            export(frame, target, tmp_path / repr(target), time_unit="second")


def test_what_is_never_fetched_has_no_line(tmp_path: Path) -> None:
    for name in LIFETIMES:
        own, path = FORMATS[name], tmp_path / name
        done = export({own.name(0): np.inf, own.name(1): 0.0}, own.target, path, time_unit="hour")
        assert (done.sources, done.never) == (1, 1)
        assert own.read(path) == {own.name(1): own.least}


def test_a_key_of_redis_may_be_a_zero_byte(tmp_path: Path) -> None:
    Redis().write(LifetimeTable(np.ones(2), ["\0", "ü"], "hour"), tmp_path / "out")
    assert (tmp_path / "out").read_text() == 'EXPIRE "\\x00" 3600\nEXPIRE "\\xc3\\xbc" 3600\n'


def test_records_of_a_zone(tmp_path: Path) -> None:
    records = [
        '@ TXT "v=spf1 -all; \\"x\\""',
        "*.a_b.example.org. AAAA 2001:db8::1",
        "www MX 10 mail.example.org.",
        f"{'.'.join(['a' * 62] * 4)}.b. A 1",
    ]
    export(dict.fromkeys(records, 1.0), Dns(), tmp_path / "zone", time_unit="minute")
    assert (tmp_path / "zone").read_text() == (
        '@ 60 IN TXT "v=spf1 -all; \\"x\\""\n'
        "*.a_b.example.org. 60 IN AAAA 2001:db8::1\n"
        "www 60 IN MX 10 mail.example.org.\n"
        f"{'.'.join(['a' * 62] * 4)}.b. 60 IN A 1\n"
    )


def test_other_solutions_have_no_lifetimes(tmp_path: Path) -> None:
    periodic = fo.solve(fo.Problem(BinaryFreshness(), fo.Sources([1.0, 2.0]), bandwidth=1.0))
    with pytest.raises(fo.ObjectiveError, match=r"refreshes no copies on request"):
        export(periodic, CacheControl(), tmp_path / "out")
    with pytest.raises(fo.SourceDataError, match=r"time_unit is 'hour'"):
        read_lifetimes(solved(0.5), "hour")
    unknown = export({"a": 1.0}, CacheControl(), tmp_path / "out")
    assert np.isnan(unknown.planned)

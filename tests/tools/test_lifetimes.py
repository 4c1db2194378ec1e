"""Lifetimes that caches load: whole seconds within the bandwidth, names, refusals."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from freshopt.scheduling.rate_table import LifetimeTable, read_lifetimes
from freshopt.tools import CacheControl, Dns, Nginx, Nutch, Redis, export
from freshopt.tools.whole_lifetimes import LONGEST, LifetimeFormat
from tests.ground_truth.hostile_names import HOSTILE, hostile_names
from tests.ground_truth.tolerances import EXACT

DAY = 86_400.0
NAMES = tuple(dict.fromkeys((*HOSTILE, *hostile_names(150))))
FORMATS: tuple[LifetimeFormat, ...] = (CacheControl(), Nginx(), Redis(), Dns())


def solved(share: float, seed: int = 4) -> fo.Solution:
    """Sources whose rates differ by ten orders of magnitude, called by records of a zone."""
    rng = np.random.default_rng(seed)
    asked = 10.0 ** rng.uniform(-4.0, 6.0, 60)
    names = [f"h{k}.example.org. A 192.0.2.{k}" for k in range(60)]
    sources = fo.Sources(10.0 ** rng.uniform(-6.0, 4.0, 60), request_rate=asked, name=names)
    fresh = BinaryFreshness(fo.Refresh.ON_REQUEST)
    return fo.solve(fo.Problem(fresh, sources, bandwidth=share * float(asked.sum())))


def read_back(target: LifetimeFormat, path: Path) -> dict[str, int]:
    """Return the seconds of each source, by a reader that shares no code with the exporter."""
    found = {}
    for line in path.read_bytes().decode().split("\n"):
        if isinstance(target, CacheControl) and line:
            name, _, value = line.partition("\t")
            found[name] = int(re.fullmatch(r"max-age=(\d+)", value)[1])  # type: ignore[index]
        elif isinstance(target, Redis) and line:
            verb, name, value = shlex.split(line)
            assert verb == "EXPIRE"
            found[name] = int(value)
        elif isinstance(target, Nginx) and line.startswith("    "):
            name, value = shlex.split(line.strip().rstrip(";"))
            found[name] = int(value)
        elif isinstance(target, Dns) and line:
            owner, ttl, kind, rest = line.split(" ", 3)
            assert kind == "IN"
            found[f"{owner} {rest}"] = int(ttl)
    return found


@pytest.mark.parametrize("target", FORMATS, ids=repr)
@pytest.mark.parametrize("share", [1e-3, 0.4, 0.999])
def test_whole_seconds_within_the_bandwidth(target: LifetimeFormat, share: float, tmp_path: Path) -> None:
    solution = solved(share)
    done = export(solution, target, tmp_path / "out")
    found = read_back(target, tmp_path / "out")
    sources = solution.problem.sources
    assert sources.name is not None
    life = dict(zip(sources.name.tolist(), solution.lifetimes.tolist(), strict=True))
    assert found.keys() == {name for name, each in life.items() if each < np.inf}
    least = 1 if isinstance(target, Redis) else 0
    for name, seconds in found.items():
        exact = life[name] * DAY
        assert seconds == LONGEST or exact * (1.0 - 1e-9) <= seconds < max(exact + 1.0, least + 1e-9)
        assert least <= seconds <= LONGEST
    whole = np.array([found.get(name, np.inf) for name in sources.name.tolist()]) / DAY
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
    for target in FORMATS[1:]:
        with pytest.raises(fo.SourceDataError, match=r"source 'a' has a window of stale-while-revalidate"):
            export(frame, target, tmp_path / repr(target), time_unit="second")


def test_what_is_never_fetched_has_no_line(tmp_path: Path) -> None:
    for target in FORMATS[:3]:
        path = tmp_path / repr(target)
        done = export({"a": np.inf, "b": 0.0}, target, path, time_unit="hour")
        assert (done.sources, done.never) == (1, 1)
        assert read_back(target, path) == {"b": 1 if isinstance(target, Redis) else 0}


@pytest.mark.parametrize("target", [CacheControl(), Nginx(), Dns()], ids=repr)
def test_hostile_names_come_back_or_are_refused(target: LifetimeFormat, tmp_path: Path) -> None:
    kept: list[str] = []
    words: list[str] = []
    for k, name in enumerate((*NAMES, *(f"{name} A 192.0.2.1" for name in NAMES))):
        try:
            target.write(LifetimeTable(np.ones(1), [name], "hour"), tmp_path / str(k))
        except fo.SourceDataError as error:
            words.append(str(error))
            continue
        kept.append(name)
        lines = (tmp_path / str(k)).read_bytes().decode().splitlines()
        assert len(lines) == (5 if isinstance(target, Nginx) else 1)
        if not isinstance(target, Nginx):  # whose names a real nginx reads back
            assert read_back(target, tmp_path / str(k)) == {name: 3600}
    assert kept
    assert words
    assert all(each.isprintable() and each.endswith(".") for each in words)


def test_redis_takes_every_name(tmp_path: Path) -> None:
    names = [name for name in NAMES if not any("\ud800" <= letter <= "\udfff" for letter in name)]
    Redis().write(LifetimeTable(np.ones(len(names)), names, "hour"), tmp_path / "out")
    text = (tmp_path / "out").read_bytes().decode("ascii")
    octets = {"\\\\": b"\\", '\\"': b'"'}
    found = []
    for line in text.splitlines():
        inside = re.fullmatch(r'EXPIRE "(.*)" 3600', line)
        assert inside is not None
        parts = re.findall(r"\\x..|\\.|.", inside[1])
        found.append(
            b"".join(
                bytes.fromhex(part[2:]) if part.startswith("\\x") else octets.get(part, part.encode())
                for part in parts
            ).decode()
        )
    assert found == names
    with pytest.raises(fo.SourceDataError, match=r"lone surrogate"):
        Redis().write(LifetimeTable(np.ones(1), ["\ud83d"], "hour"), tmp_path / "other")


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        (CacheControl(), {"a\nb": 1.0}, r"source 'a\\nb' has a line break"),
        (CacheControl(), {"a": -1.0}, r"lifetime out of range for 'a': -1"),
        (CacheControl(), {"a": float("nan")}, r"lifetime out of range for 'a'"),
        (CacheControl(), {}, r"there are no lifetimes"),
        (CacheControl(), pl.DataFrame({"source": ["a"], "rate": [1.0]}), r"no column 'lifetime'"),
        (
            CacheControl(),
            pl.DataFrame({"source": ["a", "a"], "lifetime": [1.0, 2.0]}),
            r"more than one lifetime",
        ),
        (Nginx(), {"": 1.0}, r"is empty"),
        (Nginx(), {"/A": 1.0, "/a": 2.0}, r"large and small letters only"),
        (Nginx(key="uri"), {"/a": 1.0}, r"names no variables of nginx"),
        (Nginx(key='$uri" {'), {"/a": 1.0}, r"names no variables of nginx"),
        (Dns(), {"example.org": 1.0}, r"no record of a zone file"),
        (Dns(), {"example.org. 60 IN A 192.0.2.1": 1.0}, r"no record of a zone file"),
        (Dns(), {"example.org. IN A 192.0.2.1": 1.0}, r"no record of a zone file"),
        (Dns(), {"example.org. A 192.0.2.1 ; a": 1.0}, r"no record of a zone file"),
        (Dns(), {"ü.example.org. A 192.0.2.1": 1.0}, r"no record of a zone file"),
        (Nutch(), pl.DataFrame({"source": ["a"], "rate": [1.0], "lifetime": [1.0]}), r"format of caches"),
    ],
)
def test_refusals(target: LifetimeFormat, given: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(fo.SourceDataError, match=words):
        export(given, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", [CacheControl(), Nginx(), Dns()], ids=repr)
def test_all_names_that_do_not_fit_are_named(target: LifetimeFormat, tmp_path: Path) -> None:
    names = ["a. A 1", "b\x00. A 1", "c. A 2", "d\ud83d. A 1", "e\x1f. A 1"]
    with pytest.raises(
        fo.SourceDataError, match=r"^source 'b\\x00. A 1', 'd\\ud83d. A 1', 'e\\x1f. A 1' "
    ) as told:
        target.write(LifetimeTable(np.ones(5), names, "hour"), tmp_path / "out")
    assert target.refusal in str(told.value)
    assert not (tmp_path / "out").exists()


def test_a_key_of_redis_may_be_a_zero_byte(tmp_path: Path) -> None:
    Redis().write(LifetimeTable(np.ones(2), ["\0", "ü"], "hour"), tmp_path / "out")
    assert (tmp_path / "out").read_text() == 'EXPIRE "\\x00" 3600\nEXPIRE "\\xc3\\xbc" 3600\n'


def test_owners_of_records_have_254_letters_at_most(tmp_path: Path) -> None:
    longest = ".".join(["a" * 62] * 4) + ".b."
    assert len(longest) == 254
    Dns().write(LifetimeTable(np.ones(1), [f"{longest} A 1"], "hour"), tmp_path / "out")
    with pytest.raises(fo.SourceDataError, match=r"no record of a zone file"):
        Dns().write(LifetimeTable(np.ones(1), [f"{longest[:-2]}bc. A 1"], "hour"), tmp_path / "other")


def test_records_of_a_zone(tmp_path: Path) -> None:
    records = [
        '@ TXT "v=spf1 -all; \\"x\\""',
        "*.a_b.example.org. AAAA 2001:db8::1",
        "www MX 10 mail.example.org.",
    ]
    export(dict.fromkeys(records, 1.0), Dns(), tmp_path / "zone", time_unit="minute")
    assert (tmp_path / "zone").read_text() == (
        '@ 60 IN TXT "v=spf1 -all; \\"x\\""\n'
        "*.a_b.example.org. 60 IN AAAA 2001:db8::1\n"
        "www 60 IN MX 10 mail.example.org.\n"
    )


def test_other_solutions_have_no_lifetimes(tmp_path: Path) -> None:
    periodic = fo.solve(fo.Problem(BinaryFreshness(), fo.Sources([1.0, 2.0]), bandwidth=1.0))
    with pytest.raises(fo.ObjectiveError, match=r"refreshes no copies on request"):
        export(periodic, CacheControl(), tmp_path / "out")
    with pytest.raises(fo.SourceDataError, match=r"time_unit is 'hour'"):
        read_lifetimes(solved(0.5), "hour")
    unknown = export({"a": 1.0}, CacheControl(), tmp_path / "out")
    assert np.isnan(unknown.planned)

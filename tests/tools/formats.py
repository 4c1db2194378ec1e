"""Formats of tools, each with names that it holds and a reader of its file that shares no code with it."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import freshopt as fo
from freshopt.scheduling.rate_table import LifetimeTable, RateTable
from freshopt.tools.export import Exported, ToolFormat
from freshopt.tools.whole_seconds import LifetimeFormat
from freshopt.units import SECONDS
from tests.ground_truth import export_parsers as parse

ODD = ("ü", "日本", "%41", "?a='1'&b=\"2\"", "#part", ";,\\", "$(x)`y`", "*")


def url(k: int) -> str:
    return f"https://host{k % 7}.example.org/{k}{ODD[k % len(ODD)]}"


def record(k: int) -> str:
    return f"h{k}.example.org. A 192.0.2.{k % 250}"


class Format(NamedTuple):
    """A format, the k-th name that it holds, and its reader: seconds by name, of what is refreshed."""

    target: ToolFormat[Any]
    name: Callable[[int], str]
    read: Callable[[Path], dict[str, float]]
    step: float = 1.0
    least: float = 1.0

    @property
    def of_lifetimes(self) -> bool:
        """Whether it takes lifetimes, not rates."""
        return isinstance(self.target, LifetimeFormat)

    def table(self, rates: Mapping[str, float], unit: str = "day") -> Any:  # noqa: ANN401
        """Return rates as what the format is written from; lifetimes are their reciprocals."""
        values, names = np.array(list(rates.values())), list(rates)
        if not self.of_lifetimes:
            return RateTable(values, np.array(names, dtype=object), unit, None, None)
        with np.errstate(divide="ignore"):
            return LifetimeTable(1.0 / values, names, unit)

    def given(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Return what `export` takes: rates by name, or lifetimes."""
        return {name: 1.0 / rate if self.of_lifetimes else rate for name, rate in rates.items()}

    def write(self, rates: Mapping[str, float], path: Path, unit: str = "day") -> Exported:
        if self.target.files:
            path.mkdir()
        done: Exported = self.target.write(self.table(rates, unit), path)
        return done

    def content(self, path: Path) -> list[bytes]:
        return [(path / name).read_bytes() for name in self.target.files] or [path.read_bytes()]


def nutch(path: Path) -> dict[str, float]:
    seeds = parse.tab_seeds((path / "seeds/seeds.tsv").read_bytes().decode())
    assert {key for metadata in seeds.values() for key in metadata} <= {"nutch.fetchInterval.fixed"}
    return {name: float(int(data["nutch.fetchInterval.fixed"])) for name, data in seeds.items()}


def stormcrawler(path: Path) -> dict[str, float]:
    seeds = parse.tab_seeds(path.read_bytes().decode())
    delays = {name: int(data["scheduler.delay.mins"]) for name, data in seeds.items()}
    return {name: 60.0 * delay for name, delay in delays.items() if delay != -1}


def changedetection(path: Path) -> dict[str, float]:
    units = {name: SECONDS[name[:-1]] for name in ("weeks", "days", "hours", "minutes", "seconds")}
    found = {}
    for watch in json.loads(path.read_bytes()):
        if watch.get("paused"):
            continue
        assert watch["time_between_check_use_default"] is False
        assert watch["time_between_check"].keys() == units.keys()
        found[watch["url"]] = float(sum(units[key] * n for key, n in watch["time_between_check"].items()))
    return found


def secrets(path: Path) -> dict[str, float]:
    found = {}
    for document in parse.yaml_documents(path.read_bytes().decode()):
        assert document["apiVersion"] == "external-secrets.io/v1"
        assert document["kind"] == "ExternalSecret"
        space = document.get("metadata.namespace")
        name = document["metadata.name"] if space is None else f"{space}/{document['metadata.name']}"
        found[name] = parse.go_duration(document["spec.refreshInterval"])
    return {name: seconds for name, seconds in found.items() if seconds}


def plain_url(k: int) -> str:
    return url(k).replace("\\", "%5C")


def freshrss(path: Path) -> dict[str, float]:
    line = re.compile(r"UPDATE feed SET ttl=(-?\d+) WHERE ttl>=0 AND url IN \('((?:[^']|'')*)', '.*'\);")
    head, *lines, end, nothing = path.read_bytes().decode().split("\n")
    assert (head, end, nothing) == ("BEGIN;", "COMMIT;", "")
    found = [line.fullmatch(each) for each in lines]
    ttl = {each[2].replace("''", "'"): float(each[1]) for each in found if each is not None}
    assert len(ttl) == len(lines)
    return {name: seconds for name, seconds in ttl.items() if seconds > 0.0}


def miniflux(path: Path) -> dict[str, float]:
    line = re.compile(
        r".* = checked_at \+ interval '(\d+) (s|years)' WHERE feed_url = '(.*)' AND NOT disabled;"
    )
    found = [line.fullmatch(each) for each in path.read_bytes().decode().split("\n")[1:-2]]
    return {
        each[3].replace("''", "'"): float(each[1]) for each in found if each is not None and each[2] == "s"
    }


def template(path: Path) -> dict[str, float]:
    lines = path.read_bytes().decode().split("\n")[:-1]
    return {json.loads(own): float(seconds) for seconds, own in (line.split(" ", 1) for line in lines)}


def cache_control(path: Path) -> dict[str, float]:
    lines = [line.partition("\t") for line in path.read_bytes().decode().split("\n")[:-1]]
    values = {name: re.fullmatch(r"max-age=(\d+)", value) for name, _, value in lines}
    return {name: float(value[1]) for name, value in values.items() if value is not None}


def nginx(path: Path) -> dict[str, float]:
    found = {}
    for line in path.read_bytes().decode().split("\n"):
        if line.startswith("    "):
            name, value = shlex.split(line.strip().rstrip(";"))
            # A backslash in front takes the meaning off an expression or a keyword.
            found[name.removeprefix("\\")] = float(value)
    return found


def redis(path: Path) -> dict[str, float]:
    octets = {"\\\\": b"\\", '\\"': b'"'}
    found = {}
    for line in path.read_bytes().decode("ascii").splitlines():
        inside = re.fullmatch(r'EXPIRE "(.*)" (\d+)', line)
        assert inside is not None
        parts = re.findall(r"\\x..|\\.|.", inside[1])
        known = (bytes.fromhex(p[2:]) if p.startswith("\\x") else octets.get(p, p.encode()) for p in parts)
        found[b"".join(known).decode()] = float(inside[2])
    return found


def dns(path: Path) -> dict[str, float]:
    found = {}
    for line in path.read_bytes().decode().split("\n")[:-1]:
        owner, ttl, kind, rest = line.split(" ", 3)
        assert kind == "IN"
        found[f"{owner} {rest}"] = float(ttl)
    return found


FORMATS = {
    "nutch": Format(fo.tools.Nutch(), url, nutch),
    "stormcrawler": Format(fo.tools.StormCrawler(), url, stormcrawler, step=60.0, least=60.0),
    "changedetection": Format(fo.tools.ChangeDetection(), url, changedetection, least=60.0),
    "external-secrets": Format(
        fo.tools.ExternalSecrets(), lambda k: f"{'prod/' * (k % 2)}{k}.b-{k}", secrets
    ),
    "freshrss": Format(fo.tools.FreshRss(), plain_url, freshrss, least=60.0),
    "miniflux": Format(fo.tools.Miniflux(), plain_url, miniflux, step=60.0, least=60.0),
    "template": Format(fo.tools.TextTemplate("{seconds} {source!j}"), url, template),
    "cache-control": Format(fo.tools.CacheControl(), url, cache_control, least=0.0),
    "nginx": Format(fo.tools.Nginx(), url, nginx, least=0.0),
    "redis": Format(fo.tools.Redis(), url, redis),
    "dns": Format(fo.tools.Dns(), record, dns, least=0.0),
}

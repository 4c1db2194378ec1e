"""Readers of the exported formats, each written from the format's documentation and from nothing else."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
JAVA_TRIMS = "".join(map(chr, range(33)))


def tab_seeds(text: str) -> dict[str, dict[str, str]]:
    """A URL a line, then key=value, separated by tabs; empty lines and those with # are skipped.

    Both readers are Java: a line ends at any of the three line ends, and trim() takes all up to the space.
    """
    found: dict[str, dict[str, str]] = {}
    for line in re.split("\r\n|\r|\n", text):
        url, *metadata = line.split("\t")
        url = url.strip(JAVA_TRIMS)
        if not url or url.startswith("#"):
            continue
        assert url not in found
        found[url] = dict(item.split("=", 1) for item in metadata)
    return found


def nutch_hosts(text: str) -> dict[str, tuple[float, float]]:
    """Host, shortest and longest interval separated by white space; "default" or 0 are 60 s and a year."""
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        host, low, high = line.split()
        bounds = [
            float(default if word in ("default", "0") else word)
            for word, default in ((low, 60), (high, 31_536_000))
        ]
        assert 60 <= bounds[0] <= bounds[1] <= 31_536_000
        found[host] = (bounds[0], bounds[1])
    return found


def go_duration(text: str) -> float:
    """Go's time.ParseDuration: numbers with units, in a row; in seconds."""
    assert re.fullmatch(r"(\d+(\.\d*)?(h|ms|m|s|us|µs|ns))+", text), text
    parts = re.findall(r"(\d+(?:\.\d*)?)(h|ms|m|s|us|µs|ns)", text)
    return sum(float(number) * GO_UNITS[unit] for number, unit in parts)


def yaml_documents(text: str) -> list[dict[str, str]]:
    """The part of YAML 1.2 that block mappings with plain and double-quoted scalars need: dotted keys."""
    found = []
    for document in text.split("---\n"):
        values: dict[str, str] = {}
        path: list[tuple[int, str]] = []
        for line in document.splitlines():
            indent = len(line) - len(line.lstrip(" "))
            key, colon, value = line.strip().partition(":")
            assert colon
            path = [*(step for step in path if step[0] < indent), (indent, key)]
            if value:
                value = value.strip()
                quoted = value.startswith('"')
                assert not quoted or (value.endswith('"') and "\\" not in value and '"' not in value[1:-1])
                # A plain scalar that YAML would take for something else must not stand here.
                assert quoted or re.fullmatch(r"[A-Za-z][-A-Za-z0-9./]*", value)
                assert quoted or value.lower() not in (
                    "null",
                    "true",
                    "false",
                    "yes",
                    "no",
                    "on",
                    "off",
                    "nan",
                )
                dotted = ".".join(step for _, step in path)
                assert dotted not in values
                values[dotted] = value.strip('"')
        found.append(values)
    return found


@dataclass(frozen=True)
class Event:
    """An event of a calendar."""

    uid: str
    stamp: datetime
    start: datetime
    summary: str


def calendar_events(octets: bytes) -> list[Event]:
    """RFC 5545: unfold, split into properties, check what each component must have, unescape text."""
    assert octets.endswith(b"\r\n")
    raw = octets[:-2].split(b"\r\n")
    assert all(len(line) <= 75 and b"\n" not in line and b"\r" not in line for line in raw)
    for line in raw:
        line.decode("utf-8")  # no character is cut in two
    lines = octets.decode("utf-8").replace("\r\n ", "").split("\r\n")[:-1]
    properties = [(name, value) for name, _, value in (line.partition(":") for line in lines)]
    assert properties[0] == ("BEGIN", "VCALENDAR")
    assert properties[-1] == ("END", "VCALENDAR")
    head = dict(properties[1 : properties.index(("BEGIN", "VEVENT"))])
    assert head["VERSION"] == "2.0"
    assert head["PRODID"]
    events: list[Event] = []
    event: dict[str, str] | None = None
    for name, value in properties[1:-1]:
        if (name, value) == ("BEGIN", "VEVENT"):
            assert event is None
            event = {}
        elif (name, value) == ("END", "VEVENT"):
            assert event is not None
            events.append(
                Event(event["UID"], _utc(event["DTSTAMP"]), _utc(event["DTSTART"]), _plain(event["SUMMARY"]))
            )
            event = None
        elif event is not None:
            assert name not in event
            event[name] = value
    assert len({event.uid for event in events}) == len(events)
    return events


def _utc(text: str) -> datetime:
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def _plain(text: str) -> str:
    """TEXT: a backslash stands before itself, a semicolon, a comma and n; and nowhere else."""
    assert re.fullmatch(r"(?:[^\\;,\x00-\x08\x0a-\x1f]|\\[\\;,nN])*", text)
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] in "nN" else found[1], text)

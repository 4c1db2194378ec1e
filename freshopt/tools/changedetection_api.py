"""`ChangeDetectionApi`: watches, histories and intervals of a running changedetection.io.

Its programming interface [1]_ is spoken with the standard library's HTTP. Each request has a time limit of
its own for all of it, so that a server that sends a byte now and then does not hold the caller for ever;
answers have a largest size; redirects are errors, as a key is sent to no other place.

What intervals come to where checks pause at night: a watch is checked when its interval is over since the
last check, if that is within the active hours of the day [2]_; else with the beginning of the next. The mean
time between checks is counted over some weeks of that, and grows with the interval. Weeks are those of the
watch's time zone, without changes of the clocks.

Cost: two requests for each watch to read it, one to change it; some thousand steps to find an interval.

References
----------
.. [1] https://changedetection.io/docs/api_v1/index.html
.. [2] https://github.com/dgtlmoon/changedetection.io, 0.55.8, ``time_handler.py`` (``is_within_schedule``),
   ``flask_app.py`` (``ticker_thread_check_time_launch_checks``)
"""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote, urlsplit

from freshopt.errors import SourceDataError
from freshopt.tools.changedetection import LIMITS, PARTS, ToldWatch, Watch, watch_time
from freshopt.tools.records import typed
from freshopt.tools.whole_seconds import Limits
from freshopt.units import SECONDS

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY, _WEEK = SECONDS["day"], SECONDS["week"]
# Weeks over which checks are counted, and intervals that they are long at least.
_WEEKS, _INTERVALS = 4, 12


class _Duration(TypedDict):
    hours: str | int
    minutes: str | int


class _Day(TypedDict):
    enabled: bool
    start_time: str
    duration: _Duration


class _Tag(TypedDict):
    title: str


class ActiveHours(NamedTuple):
    """Times of the week, in seconds, of checks; None for always."""

    times: tuple[tuple[float, float], ...] | None = None

    @classmethod
    def of(cls, told: dict[str, Any] | None, what: str) -> ActiveHours:
        """Return the hours that a ``time_schedule_limit`` tells."""
        if not told or not told.get("enabled"):
            return cls()
        found = []
        for number, name in enumerate(_DAYS):
            if not (told.get(name) or {}).get("enabled"):
                continue
            day = typed(told[name], _Day, f"{what}, {name}", "Correct its hours.")
            clock = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", day["start_time"])
            length = [str(day["duration"]["hours"]), str(day["duration"]["minutes"])]
            if clock is None or not all(re.fullmatch(r"\d{1,4}", each) for each in length):
                raise SourceDataError(f"{what}, {name}, has no hours such as 08:00 and 10 h. Correct them.")
            begin = 3600.0 * int(clock[1]) + 60.0 * int(clock[2])
            # Midnight is another day's.
            end = min(begin + 3600.0 * int(length[0]) + 60.0 * int(length[1]), _DAY - 1.0)
            found.append((number * _DAY + begin, number * _DAY + end))
        always = len(found) == len(_DAYS) and all(end - begin >= _DAY - 1.0 for begin, end in found)
        return cls(None if always else tuple(found))

    def mean(self, interval: float) -> float:
        """Return the mean time between checks at an interval.

        Examples
        --------
        >>> mondays = ActiveHours(((32_400.0, 61_200.0),))
        >>> ActiveHours().mean(3600.0), mondays.mean(3600.0) / 604_800.0 * 9  # checks from 9 to 17 o'clock
        (3600.0, 1.0)
        """
        if self.times is None:
            return interval
        if not self.times:
            return math.inf
        last, many = -math.inf, 0
        # From the first check to the first one of the last week that has one, and how many are between.
        told: list[tuple[float, int]] = []
        for week in range(1 + max(_WEEKS, math.ceil(_INTERVALS * interval / _WEEK))):
            before = many
            for begin, end in self.times:
                first, close = max(week * _WEEK + begin, last + interval), week * _WEEK + end
                if first <= close:
                    told += [(first, many)] if many == before else []
                    checks = math.floor((close - first) / interval)
                    last, many = first + checks * interval, many + checks + 1
        return (told[-1][0] - told[0][0]) / told[-1][1]

    def interval(self, mean: float, least: int) -> int:
        """Return the shortest interval with this mean time between checks, or more."""
        low, high = least - 1, max(least, math.ceil(mean))
        if self.times is None:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.mean(middle) >= mean * (1.0 - 1e-9) else (middle, high)
        return high


# Octets of an answer: ten thousand watches take a few million.
LARGEST = 1 << 28


class ServedWatch(NamedTuple):
    """Watch as the server has it.

    Whether it is paused; the keys of its tags; its hours, which hold where it has an interval of its own.
    """

    watch: Watch
    paused: bool
    tags: tuple[str, ...] = ()
    hours: ActiveHours = ActiveHours()

    @property
    def hours_today(self) -> ActiveHours:
        """Hours that hold today.

        At the default interval they are those of the server's settings, which its interface does not tell.
        """
        return ActiveHours() if self.watch.interval is None else self.hours


Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class JsonApi:
    """A server that answers in JSON, and asks for a key.

    A tool's has its name in messages, the header of the key, what stands before paths, where keys are found.
    """

    url: str
    key: str
    timeout: float = 20.0
    tool: ClassVar[str]
    header: ClassVar[str]
    prefix: ClassVar[str]
    keys: ClassVar[str]

    def told(self, path: str, kind: type[Told]) -> Told:
        """Return what is declared of an answer."""
        found = self.answer("GET", path)
        try:
            return typed(found, kind, path, "")
        except SourceDataError:
            raise self.nonsense(path) from None

    def answer(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of an answer."""
        status, reason, octets = self._exchange(method, path, body)
        if status in (401, 403):
            raise SourceDataError(f"{self.url} refuses the key. {self.keys}.")
        if status != 200:
            words = octets[:80].decode(errors="replace").strip() or reason
            raise SourceDataError(
                f"{self.url} answers {method} {self.prefix}/{path} with {status} ({words}). Check that it is "
                f"the address of {self.tool}, without /{self.prefix.partition('/')[0]}."
            )
        try:
            return json.loads(octets)
        except (ValueError, RecursionError):
            raise self.nonsense(path) from None

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, str, bytes]:
        """Return status, reason and content of the answer to a request."""
        connection, base = self._connection()
        headers = {self.header: self.key, "Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        late, held = threading.Event(), list[socket.socket]()
        alarm = threading.Timer(self.timeout, _hang_up, (held, late))
        alarm.daemon = True
        alarm.start()
        try:
            connection.connect()
            # The connection forgets its socket once an answer is to be read to its end.
            held.append(connection.sock)
            content = None if body is None else json.dumps(body)
            connection.request(method, f"{base}/{self.prefix}/{path}", content, headers)
            with connection.getresponse() as answer:
                octets = answer.read(LARGEST + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise self._too_late(method, path) from None
            raise SourceDataError(
                f"{self.url} cannot be reached: {_words(error)}. Check the address, and that the server runs."
            ) from None
        finally:
            alarm.cancel()
            connection.close()
        if late.is_set():
            raise self._too_late(method, path)
        if len(octets) > LARGEST:
            raise self.nonsense(path)
        return answer.status, answer.reason, octets

    def _connection(self) -> tuple[http.client.HTTPConnection, str]:
        """Return an unopened connection, and the path before /api."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise SourceDataError(
                f"--url {self.url!r} is no address of a server. Write it such as http://localhost:5000."
            )
        if not self.key.isascii() or not self.key.isprintable() or not self.key.strip():
            raise SourceDataError(
                "the key is empty or has characters that no key has. Copy it from the settings."
            )
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(host, port, timeout=self.timeout), parts.path.rstrip("/")

    def _too_late(self, method: str, path: str) -> SourceDataError:
        return SourceDataError(
            f"{self.url} has not answered {method} {self.prefix}/{path} within {self.timeout:g} s. Check the "
            "server, or give it more --timeout."
        )

    def nonsense(self, path: str) -> SourceDataError:
        """Return the error about an answer that is none of the tool's."""
        return SourceDataError(
            f"{self.url} answers {self.prefix}/{path} with what is no answer of {self.tool}. Check the "
            "address, and that nothing else answers there."
        )


@dataclass(frozen=True, slots=True)
class ChangeDetectionApi(JsonApi):
    """A server of changedetection.io."""

    tool: ClassVar[str] = "changedetection.io"
    header: ClassVar[str] = "x-api-key"
    prefix: ClassVar[str] = "api/v1"
    keys: ClassVar[str] = "Copy the API key from its settings, page API, and pass it as --key"
    limits: ClassVar[Limits] = LIMITS

    def watches(self) -> Iterator[ServedWatch]:
        """Yield all watches with their histories."""
        found = self.answer("GET", "watch")
        if not isinstance(found, dict):
            raise self.nonsense("watch")
        for key in sorted(found):
            yield self._watch(key)

    def _watch(self, key: str) -> ServedWatch:
        path = f"watch/{quote(key, safe='')}"
        told, history = self.answer("GET", path), self.answer("GET", f"{path}/history")
        times = [watch_time(stamp) for stamp in history or {}]
        known = [time for time in times if time is not None]
        # A watch without snapshots has an empty history, as an object or as a list.
        if not isinstance(history or {}, dict) or len(known) < len(times):
            raise self.nonsense(path)
        try:
            watch = typed(told, ToldWatch, path, "")
            hours = ActiveHours.of(watch.time_schedule_limit, path)
            tags = tuple(watch.tags or ())
            return ServedWatch(watch.watch(key, known, path, ""), bool(watch.paused), tags, hours)
        except SourceDataError:
            raise self.nonsense(path) from None

    def tags(self) -> dict[str, str]:
        """Return the titles of tags by their keys."""
        return {key: each["title"] for key, each in self.told("tags", dict[str, _Tag]).items()}

    def set_interval(self, key: str, seconds: int) -> None:
        """Set the time between checks of a watch."""
        parts = {}
        for name, whole in PARTS.items():
            parts[name], seconds = divmod(seconds, whole)
        body = {"time_between_check": parts, "time_between_check_use_default": False}
        self.answer("PUT", f"watch/{quote(key, safe='')}", body)


def _hang_up(held: list[socket.socket], late: threading.Event) -> None:
    """End a connection whose time is over, whatever its thread waits for."""
    late.set()
    for each in held:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _words(error: Exception) -> str:
    """Return what went wrong, in words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.removesuffix(".")
    return " ".join(str(error).split())[:120] or type(error).__name__

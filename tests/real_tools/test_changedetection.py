"""A real changedetection.io watches pages of a replayed history, and freshopt sets its intervals."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from freshopt.cli import main
from freshopt.tools.changedetection import read_changedetection
from freshopt.tools.changedetection_api import ChangeDetectionApi
from tests.real_tools.loopback import Pages, real_changes, served

START, PATIENCE, ROUNDS, PAGES = 90.0, 60.0, 8, 8
DAYS = 1200.0
UNITS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


@dataclass
class Server:
    """A running changedetection.io whose watches have been checked in rounds of a replayed history."""

    url: str
    key: str
    folder: Path
    pages: Pages
    seen: dict[str, list[int]]

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}",
            None if body is None else json.dumps(body).encode(),
            {"x-api-key": self.key, "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"null")

    def intervals(self) -> dict[str, int | None]:
        """Return the seconds between checks of each watch; None for the server's default."""
        found = {}
        for uuid, listed in self.call("GET", "watch").items():
            watch = self.call("GET", f"watch/{uuid}")
            own = watch["time_between_check"] or {}
            seconds = sum(UNITS[unit] * (many or 0) for unit, many in own.items())
            found[listed["url"]] = None if watch["time_between_check_use_default"] else seconds
        return found


def sync(
    server: Server, *options: str, code: int = 0, key: str | None = None, url: str | None = None
) -> Result:
    given = ["sync", "changedetection", "--url", url or server.url, "--key", key or server.key, *options]
    ran = CliRunner().invoke(main, given)
    assert ran.exit_code == code, ran.output
    return ran


def wait_for(what: Callable[[], bool], patience: float) -> None:
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, "the server took too long"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def server(program: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("changedetection")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(program("changedetection", "changedetection.io"))]
    command += ["-C", "-d", str(folder), "-h", "127.0.0.1", "-p", str(port)]
    more = {"DISABLE_VERSION_CHECK": "true", "ALLOW_IANA_RESTRICTED_ADDRESSES": "true"}
    outside = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_CURRENT_TEST")}
    log = (folder / "log").open("w")
    process = subprocess.Popen(command, env={**outside, **more}, stdout=log, stderr=log, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        with served(real_changes(PAGES, seed=3)) as pages:
            settings = folder / "changedetection.json"
            wait_for(lambda: settings.exists() and _answers(url), START)
            key = json.loads(settings.read_text())["settings"]["application"]["api_access_token"]
            made = Server(url, key, folder, pages, {})
            _watch(made)
            yield made
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/api/v1/systeminfo", timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == 403
    except OSError:
        return False
    return True


def _watch(server: Server) -> None:
    """Watch all pages and one that is paused, and let them be checked while the history goes on."""
    for uuid in server.call("GET", "watch"):
        server.call("DELETE", f"watch/{uuid}")
    often = {"hours": 1}
    uuids = {}
    for k, page in enumerate(server.pages.changes):
        body: dict[str, object] = {"url": server.pages.address(page)}
        if k % 2:
            body |= {"time_between_check_use_default": False, "time_between_check": often}
        uuids[page] = server.call("POST", "watch", body)["uuid"]
    server.call("POST", "watch", {"url": server.pages.address("paused"), "paused": True})
    for turn in np.linspace(0.0, DAYS, ROUNDS):
        server.pages.turn(float(turn))
        for page in uuids:
            server.seen.setdefault(page, []).append(server.pages.version(page))
        asked = len(server.pages.asked)
        # A check in the second of the one before it would share its time.
        time.sleep(1.0)
        for uuid in uuids.values():
            server.call("GET", f"watch/{uuid}?recheck=1")
        wait_for(partial(_all_asked, server, asked), PATIENCE)
        wait_for(lambda: server.call("GET", "systeminfo")["queue_size"] == 0, PATIENCE)
    time.sleep(2.0)


def _all_asked(server: Server, since: int) -> bool:
    return len({each.page for each in server.pages.asked[since:]}) == PAGES


def test_histories_are_what_was_served(server: Server) -> None:
    """What is read over the interface is what is read from the folder, and the changes of the pages."""
    watches = [
        each.watch for each in ChangeDetectionApi(server.url, server.key).watches() if each.watch.times
    ]
    found = {watch.url: len(watch.times) - 1 for watch in watches}
    assert found == {
        server.pages.address(page): len(set(versions)) - 1 for page, versions in server.seen.items()
    }
    assert sum(found.values()) >= PAGES
    log = read_changedetection(server.folder)
    many = np.add.reduceat(log.changed.astype(int), log.offsets[:-1])
    changes = dict(zip(log.names.tolist(), many.tolist(), strict=True))
    assert changes == found


def test_dry_run_changes_nothing_and_prints_what_would(server: Server) -> None:
    before = server.intervals()
    said = sync(server, "--dry-run", "--default-interval", "3h").output
    assert server.intervals() == before
    assert "would be set; nothing was changed" in said
    assert "8 planned" in said
    assert "left alone: 1 paused, 0 without history" in said
    # An interval that is nearly the planned one already is kept, and not in the table.
    kept = re.search(r"8 planned, (\d) of them as they are", said)
    assert kept is not None
    named = sum(server.pages.address(page)[:60] in said for page in server.pages.changes)
    assert named == PAGES - int(kept[1]) > PAGES // 2


def test_intervals_are_set_for_as_many_checks_as_today(server: Server) -> None:
    before = server.intervals()
    said = sync(server).output
    after = server.intervals()
    paused = server.pages.address("paused")
    assert after[paused] is before[paused] is None
    pages = [server.pages.address(page) for page in server.pages.changes]
    now = np.array([before[page] or 3 * 3600 for page in pages], dtype=float)
    then = np.array([after[page] or 0 for page in pages], dtype=float)
    # Whole seconds: at most as many checks, and hardly fewer, but for intervals that are kept.
    kept = sum(before[page] == after[page] for page in map(server.pages.address, server.pages.changes))
    more = 0.01 if kept else 1e-9
    assert (
        (1.0 / now).sum() * (1.0 - max(more, 0.001)) <= (1.0 / then).sum() <= (1.0 / now).sum() * (1.0 + more)
    )
    assert f"{PAGES - kept} intervals set" in said
    # The mean delay is least where intervals are as 1/√(change rate): faster watches have shorter ones. Rates
    # are learnt from checks at irregular times: only watches whose counts are well apart have an order.
    changes = np.array([len(set(server.seen[page])) - 1 for page in server.pages.changes])
    faster, slower = np.nonzero(changes[:, None] >= 2 * changes + 2)
    assert len(faster)
    assert np.all(then[faster] < then[slower])
    # Planned again from the same history, there is nothing to set.
    assert "0 intervals set" in sync(server).output
    assert server.intervals() == after
    half = sync(server, "--bandwidth", f"{0.5 * 86_400 * (1.0 / now).sum()}/day").output
    assert f"{PAGES} intervals set" in half


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"key": "0123456789abcdef"}, "refuses the key. Copy the API key"),
        ({"key": "Ω"}, "has characters that no key has"),
        ({"url": "http://127.0.0.1:9"}, "cannot be reached: Connection refused"),
        ({"url": "ftp://127.0.0.1"}, "is no address of a server"),
    ],
)
def test_what_goes_wrong_is_one_line_and_changes_nothing(
    server: Server, more: dict[str, str], words: str
) -> None:
    before = server.intervals()
    said = sync(server, code=2, **more).output
    assert words in said
    assert said.count("\n") == 1
    assert server.intervals() == before


def test_another_server_is_told_apart(server: Server) -> None:
    before = server.intervals()
    said = sync(server, code=2, url=server.pages.url).output
    assert "answers GET api/v1/watch with 404" in said
    assert server.intervals() == before


def test_tags_and_active_hours(server: Server) -> None:
    """Tags bound intervals, and a watch with hours keeps to its share within them."""
    tags = {title: server.call("POST", "tag", {"title": title})["uuid"] for title in ("fast", "slow")}
    uuids = {watch["url"]: uuid for uuid, watch in server.call("GET", "watch").items()}
    pages = [server.pages.address(page) for page in server.pages.changes]
    day = {"enabled": True, "start_time": "09:00", "duration": {"hours": "8", "minutes": "00"}}
    week = dict.fromkeys(("monday", "tuesday", "wednesday", "thursday", "friday"), day)
    off = {name: {**day, "enabled": False} for name in ("saturday", "sunday")}
    for k, page in enumerate(pages):
        body: dict[str, object] = {"tags": [tags["fast" if k % 2 else "slow"]]}
        if k == 0:
            body["time_schedule_limit"] = {"enabled": True, **week, **off}
        server.call("PUT", f"watch/{uuids[page]}", body)
    bounds = ["--tag-interval", "fast=10min..2h", "--tag-interval", "slow=3h..12h"]
    said = sync(server, *bounds, "--bandwidth", "60/day").output
    assert "8 planned" in said
    after = server.intervals()
    hours = [each.hours for each in ChangeDetectionApi(server.url, server.key).watches() if each.hours.times]
    assert len(hours) == 1
    for k, page in enumerate(pages):
        seconds = after[page]
        assert seconds is not None
        assert seconds >= (600 if k % 2 else 3 * 3600)
        assert k == 0 or seconds <= (2 * 3600 if k % 2 else 12 * 3600) * 1.01
    # Three checks a day in five days, of which hours allow as many as the bound of its tag asks for.
    assert hours[0].mean(after[pages[0]] or 0) >= hours[0].mean(3 * 3600.0)
    assert "0 intervals set" in sync(server, *bounds, "--bandwidth", "60/day").output

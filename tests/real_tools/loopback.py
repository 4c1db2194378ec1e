"""Pages of a replayed history, served on the loopback, and what was asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

import numpy as np

import freshopt as fo
from freshopt.datasets import load_example
from tests.ground_truth.http_servers import Answering, loopback


class Asked(NamedTuple):
    """A request: the page, the version that was served, whether it named an ETag, and the status."""

    page: str
    version: int
    conditional: bool
    status: int


@dataclass(eq=False)
class Pages:
    """Pages that change as a history tells, at the time to which it has been `turned`.

    Attributes
    ----------
    changes : mapping of str to sequence of float
        The times at which each page changes.
    untagged : set of str
        Pages that are served without an ETag.
    step : float
        Time that passes with each request.
    """

    changes: Mapping[str, Sequence[float]]
    url: str = ""
    time: float = -np.inf
    asked: list[Asked] = field(default_factory=list)
    untagged: set[str] = field(default_factory=set)
    step: float = 0.0

    def version(self, page: str) -> int:
        """Return how often a page has changed so far."""
        return int(np.searchsorted(self.changes[page], self.time, side="right"))

    def turn(self, time: float) -> None:
        """Let it be a time."""
        self.time = time

    def address(self, page: str) -> str:
        """Return the URL of a page."""
        return f"{self.url}/{page}"


def real_changes(many: int, seed: int) -> dict[str, list[float]]:
    """Return the changes of packages in the bundled history of Debian, by day; the seed picks them."""
    log = load_example("debian-uploads")
    assert isinstance(log, fo.CrawlLog)
    chosen = np.random.default_rng(seed).choice(len(log.names), many, replace=False)
    return {
        str(log.names[k]): log.time[(log.source_index == k) & log.changed.astype(bool)].tolist()
        for k in sorted(chosen.tolist())
    }


@contextmanager
def served(changes: Mapping[str, Sequence[float]]) -> Iterator[Pages]:
    """Serve pages on the loopback; each answer has an ETag, and If-None-Match is heeded."""
    pages = Pages(changes)
    lock = threading.Lock()

    class Handler(Answering, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = self.path.strip("/")
            if page not in pages.changes:
                self.answer(404)
                return
            with lock:
                pages.turn(pages.time + pages.step)
                version = pages.version(page)
                tag, known = f'"{version}"', self.headers.get("If-None-Match")
                tagged = page not in pages.untagged
                status = 304 if tagged and known == tag else 200
                pages.asked.append(Asked(page, version, known is not None, status))
            body = b"" if status == 304 else f"<html><body><p>{page} {version}</p></body></html>".encode()
            headers = {"ETag": tag} if tagged else {}
            self.answer(status, body, {**headers, "Content-Type": "text/html; charset=utf-8"})

    with loopback(Handler) as port:
        pages.url = f"http://127.0.0.1:{port}"
        yield pages

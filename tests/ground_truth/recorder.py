"""A crawler of a user's own: it passes on what it is asked, and writes it down."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.simulation.crawler import Crawler

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Asked(NamedTuple):
    """A batch of polls: refreshes or probes, of which sources, when, and the answers."""

    kind: str
    source: Ints
    time: Floats
    found: npt.NDArray[Any]


class Recorder:
    """Nothing but the protocol, so that it is no simulation to a learner."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.asked: list[Asked] = []

    def refresh(self, source: Ints, time: Floats) -> npt.NDArray[Any]:
        found = self.crawler.refresh(source, time)
        self.asked.append(Asked("refresh", source, time, found))
        return found

    def probe(self, source: Ints, time: Floats) -> npt.NDArray[Any]:
        found = self.crawler.probe(source, time)
        self.asked.append(Asked("probe", source, time, found))
        return found

    @property
    def visits(self) -> list[tuple[Ints, Floats, npt.NDArray[Any]]]:
        """The refreshes of one that was asked for nothing else."""
        assert {each.kind for each in self.asked} <= {"refresh"}
        return [(each.source, each.time, each.found) for each in self.asked]

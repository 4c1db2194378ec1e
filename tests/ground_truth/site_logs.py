"""Access logs of sites whose changes are known, with crawlers, browsers, scrapers and shared copies."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

SCRAPER, BROWSERS, SHARED = 100, 1_000, 500


@dataclass(frozen=True)
class Visitors:
    """Who comes to a site, in visits a day.

    `bots` come to each page at these rates and ask conditionally; `scraper` never does. To each page come
    `browsers`, which return at `returning` a day with probability .6 each time; `addresses` of them are told
    apart, or all. Eight machines share copies, and come `shared` times a day together.
    """

    bots: tuple[float, ...] = ()
    scraper: float = 0.0
    browsers: int = 0
    returning: float = 2.0
    addresses: int = 0
    shared: float = 0.0


BOTS = Visitors(bots=(6.0, 2.0, 0.7))
KINDS = {
    "crawlers": BOTS,
    "slow crawlers": Visitors(bots=(0.5, 0.8, 0.3)),
    "browsers": Visitors(browsers=200, returning=3.0),
    "crawlers, browsers and a scraper": Visitors(bots=(6.0, 2.0), scraper=4.0, browsers=60),
    "browsers behind few addresses": Visitors(bots=(6.0, 2.0), scraper=4.0, browsers=60, addresses=100),
    "machines that share copies": Visitors(bots=(2.0,), shared=6.0, scraper=3.0),
}


@dataclass
class Site:
    """Requests, and the changes of each page in seconds."""

    page: npt.NDArray[np.int64]
    client: npt.NDArray[np.int64]
    agent: npt.NDArray[np.str_]
    second: npt.NDArray[np.int64]
    status: npt.NDArray[np.float64]
    changes: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The log in the combined format, by time."""
        begin = datetime(2026, 9, 1, tzinfo=UTC)
        rows = zip(self.second, self.client, self.page, self.status, self.agent, strict=True)
        return [
            f"198.51.{client // 250}.{client % 250} - - "
            f"[{begin + timedelta(seconds=int(second)):%d/%b/%Y:%H:%M:%S} +0000] "
            f'"GET /{page} HTTP/1.1" {status:.0f} 512 "-" "{agent}"'
            for second, client, page, status, agent in sorted(rows)
        ]


def site(visitors: Visitors, rate: float, *, pages: int, days: float, seed: int) -> Site:
    """Return the log of a site whose pages change by Poisson processes of one rate, per day."""
    rng = np.random.default_rng(seed)
    made = [_page(visitors, rate, days, page, rng) for page in range(pages)]
    rows = [row for _, own in made for row in own]
    page, client, agent, second, status = map(np.array, zip(*rows, strict=True))
    return Site(page, client, agent, second, status.astype(float), [changes for changes, _ in made])


def _page(
    visitors: Visitors, rate: float, days: float, page: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], list[tuple[int, int, str, int, int]]]:
    """Return the changes of a page in seconds, and the requests of it."""
    changes = np.ceil(86_400.0 * np.sort(rng.uniform(0.0, days, rng.poisson(rate * days))))
    rows: list[tuple[int, int, str, int, int]] = []

    def visit(clients: list[int], agent: str, times: npt.NDArray[np.float64], *, asks: bool = True) -> None:
        seen = -1
        for client, second in zip(clients, (86_400.0 * np.sort(times)).astype(int).tolist(), strict=True):
            version = int(np.searchsorted(changes, second, side="right"))
            rows.append((page, client, agent, second, 304 if asks and version == seen else 200))
            seen = version

    def poisson(each: float) -> npt.NDArray[np.float64]:
        return rng.uniform(0.0, days, rng.poisson(each * days))

    for k, each in enumerate(visitors.bots):
        times = poisson(each)
        visit([k] * len(times), f"bot{k}", times)
    times = poisson(visitors.scraper)
    visit([SCRAPER] * len(times), "scraper", times, asks=False)
    times = poisson(visitors.shared)
    visit((SHARED + rng.integers(0, 8, len(times))).tolist(), "shared", times)
    for k in range(visitors.browsers):
        gaps = rng.exponential(1.0 / visitors.returning, rng.geometric(0.4) - 1)
        times = rng.uniform(0.0, days) + np.cumsum(np.append(0.0, gaps))
        who = int(rng.integers(visitors.addresses)) if visitors.addresses else page * visitors.browsers + k
        times = times[times < days]
        visit([BROWSERS + who] * len(times), "browser", times)
    return changes, rows

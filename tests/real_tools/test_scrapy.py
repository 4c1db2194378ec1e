"""A real Scrapy crawls pages of a replayed history as a live planner hands them out."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path

import pytest

import freshopt as fo
from tests.ground_truth.http_servers import Answering, loopback
from tests.real_tools.loopback import Pages, real_changes, served

PAGES = 8
SPIDER = """
import scrapy

class Spider(scrapy.Spider):
    name = "pages"
    custom_settings = {
        "ADDONS": {"freshopt.live.scrapy.FreshoptAddon": 500},
        "FRESHOPT_BANDWIDTH": "12/second",
        "RETRY_TIMES": 1,
        "RETRY_HTTP_CODES": [503],
    }

    def __init__(self, urls, **more):
        super().__init__(**more)
        self.start_urls = urls.split()

    def parse(self, response):
        yield {"url": response.url, "text": response.css("p::text").get()}
"""


@pytest.fixture
def pages() -> Iterator[Pages]:
    with served(real_changes(PAGES, seed=5)) as made:
        made.untagged = {sorted(made.changes)[0]}
        yield made


def crawl(program: Callable[[str, str], Path], folder: Path, urls: list[str], *options: str) -> str:
    (folder / "spider.py").write_text(SPIDER)
    command = [str(program("scrapy", "scrapy")), "runspider", "spider.py", "-a", f"urls={' '.join(urls)}"]
    ran = subprocess.run(
        [*command, "-O", "items.jsonl", *options],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def found_by(folder: Path) -> dict[str, list[bool]]:
    """Return what each crawl of each source found, in their order, by the planner's log."""
    with fo.Planner(folder / "freshopt-planner") as planner:
        log = planner.log()
    found: dict[str, list[bool]] = {}
    for k, changed in zip(log.source_index.tolist(), log.changed.tolist(), strict=True):
        found.setdefault(str(log.names[k]), []).append(bool(changed))
    return found


def asked_of(pages: Pages) -> dict[str, list[bool]]:
    """Return the same by what was served: a crawl finds a change where the version is another."""
    served_to: dict[str, list[int]] = {}
    for each in pages.asked:
        served_to.setdefault(pages.address(each.page), []).append(each.version)
    return {url: [a != b for a, b in pairwise(own)] for url, own in served_to.items()}


def test_the_planners_log_is_what_was_served(
    program: Callable[[str, str], Path], pages: Pages, tmp_path: Path
) -> None:
    urls = [pages.address(page) for page in pages.changes]
    missing = pages.address("missing")
    # Of 1306 days.
    pages.turn(0.0)
    pages.step = 15.0
    given = {"FRESHOPT_KEEP_GOING": 1, "CLOSESPIDER_PAGECOUNT": 80, "CLOSESPIDER_TIMEOUT": 60}
    options = [word for name, value in given.items() for word in ("-s", f"{name}={value}")]
    said = crawl(program, tmp_path, [*urls, missing], *options)
    assert "ERROR" not in said
    truth, found = asked_of(pages), found_by(tmp_path)
    assert set(truth) == set(urls)
    # The first crawl of a source is a baseline, of which nothing is learnt.
    assert {url: own[-len(truth[url]) :] for url, own in found.items()} == truth
    assert missing not in found
    assert sum(map(len, truth.values())) > 30
    assert sum(sum(own) for own in truth.values()) > 10
    # Every crawl but the first asks on condition, where there is an ETag; what has not changed is not parsed.
    for page in pages.changes:
        own = [each for each in pages.asked if each.page == page]
        assert [each.conditional for each in own] == [
            k > 0 and page not in pages.untagged for k in range(len(own))
        ]
    parsed = (tmp_path / "items.jsonl").read_text().count("\n")
    assert parsed == sum(each.status == 200 for each in pages.asked)
    assert any(each.status == 304 for each in pages.asked)


def test_a_host_that_is_busy_rests_and_is_slowed(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    """A 429 asks for three seconds of rest: no request of the host comes before."""
    asked: list[float] = []

    class Handler(Answering, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(time.monotonic())
            self.answer(429, headers={"Retry-After": "3"})

    with loopback(Handler) as port:
        urls = [f"http://127.0.0.1:{port}/{k}" for k in range(4)]
        given = {"FRESHOPT_KEEP_GOING": 1, "CLOSESPIDER_TIMEOUT": 10, "CONCURRENT_REQUESTS": 1}
        options = [word for name, value in given.items() for word in ("-s", f"{name}={value}")]
        crawl(program, tmp_path, urls, *options)
    assert len(asked) > 1
    assert all(other - one > 2.9 for one, other in pairwise(asked))
    with fo.Planner(tmp_path / "freshopt-planner") as planner:
        planner.replan()
        assert planner.status().slowed == 1


def test_a_second_crawl_goes_on_from_the_first(
    program: Callable[[str, str], Path], pages: Pages, tmp_path: Path
) -> None:
    urls = [pages.address(page) for page in pages.changes]
    pages.turn(100.0)
    crawl(program, tmp_path, urls, "-s", "FRESHOPT_KEEP_GOING=1", "-s", "CLOSESPIDER_PAGECOUNT=20")
    before = len(pages.asked)
    assert {each.page for each in pages.asked} == set(pages.changes)
    pages.turn(600.0)
    # Without waiting it crawls each source that is due once, and ends.
    crawl(program, tmp_path, urls)
    again = pages.asked[before:]
    assert 1 <= len(again) == len({each.page for each in again})
    assert [each.conditional for each in again] == [each.page not in pages.untagged for each in again]
    assert {url: own[-1] for url, own in found_by(tmp_path).items() if asked_of(pages)[url]} == {
        url: own[-1] for url, own in asked_of(pages).items() if own
    }


def test_an_objective_of_ones_own_is_crawled_by(
    program: Callable[[str, str], Path], pages: Pages, tmp_path: Path
) -> None:
    own = """
import cvxpy as cp, freshopt as fo

class Mine(fo.Objective):
    def per_source(self, rate, sources):
        return cp.multiply(sources.importance, cp.inv_pos(rate))
"""
    (tmp_path / "own.py").write_text(own)
    settings = "from own import Mine\n\nFRESHOPT_OBJECTIVE = Mine()\n"
    (tmp_path / "settings.py").write_text(settings)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    pages.turn(100.0)
    crawl(program, tmp_path, [pages.address(page) for page in pages.changes])
    with pytest.raises(fo.SourceDataError, match="one of your own"):
        fo.Planner(tmp_path / "freshopt-planner")

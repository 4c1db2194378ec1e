"""The recipes over HTTP, run as a reader would: pages on the loopback, a small vector store."""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from tests.ground_truth.http_servers import Answering, loopback
from tests.live.served import QUICK, TOKEN, Served, served
from tests.real_tools.loopback import served as pages_served

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"


def recipe(name: str, service: Served, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a recipe that calls this service."""
    monkeypatch.setenv("FRESHOPT_SERVICE", str(service.client.base_url).rstrip("/"))
    monkeypatch.setenv("FRESHOPT_TOKEN", TOKEN)
    monkeypatch.syspath_prepend(RECIPES)
    for each in ("crawler_over_http", "rag_indexer"):
        monkeypatch.delitem(sys.modules, each, raising=False)
    return importlib.import_module(name)


def test_a_crawler_follows_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"still": [0.0], "often": [0.5, 1.5, 2.5], "once": [1.5]}
    with served(tmp_path, *QUICK) as service, pages_served(changes) as pages:
        crawler = recipe("crawler_over_http", service, monkeypatch)
        addresses = [*map(pages.address, changes), pages.address("gone")]
        for day in (0.0, 1.0, 2.0, 3.0):
            pages.turn(day)
            had = len(pages.asked)

            def each_page_again(had: int = had) -> bool:
                return {asked.page for asked in pages.asked[had:]} == set(changes)

            crawler.crawl(addresses, each_page_again)
        status = service.client.get("/status").json()
        assert status["observations"] == len(pages.asked)
        # The first crawl of a page finds no change; each other version than before is one.
        seen: dict[str, list[int]] = {page: [] for page in changes}
        for asked in pages.asked:
            seen[asked.page].append(asked.version)
        assert status["changes_found"] == sum(len(set(versions)) - 1 for versions in seen.values()) == 4
        again = Counter((asked.page, asked.conditional) for asked in pages.asked)
        assert all(again[page, False] == 1 for page in changes)


def test_a_busy_host_is_left_alone_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One host answers 429 to more than two requests a second, and asks for a second of rest."""
    asked: dict[str, list[tuple[float, int]]] = {"busy": [], "free": []}

    class Handler(Answering, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now, name = time.monotonic(), self.headers["Host"].partition(":")[0].partition(".")[0]
            own = asked["busy" if name == "localhost" else "free"]
            recent = [at for at, status in own if status == 200 and at > now - 1.0]
            status = 429 if name == "localhost" and len(recent) >= 2 else 200
            own.append((now, status))
            self.answer(status, headers={"Retry-After": "1"} if status == 429 else None)

    with served(tmp_path, "--bandwidth", "20/second") as service, loopback(Handler) as port:
        crawler = recipe("crawler_over_http", service, monkeypatch)
        pages = [f"http://{host}:{port}/{k}" for host in ("localhost", "127.0.0.1") for k in range(20)]
        end = time.monotonic() + 12.0
        crawler.crawl(pages, lambda: time.monotonic() > end)
        status = service.client.get("/status").json()
    refusals = [at for at, code in asked["busy"] if code == 429]
    assert refusals
    # It is asked nothing for the second that it wants; others have what it leaves.
    for refused in refusals:
        assert not [at for at, _ in asked["busy"] if refused < at < refused + 0.99]
    assert len(asked["free"]) > 2 * len(asked["busy"])
    assert status["observations"] == sum(code == 200 for own in asked.values() for _, code in own)


def test_an_index_has_what_changed_and_a_budget_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    tokens = {f"doc{k}": 50 * 2 ** (k % 6) for k in range(18)}
    texts = {name: " ".join(f"{name}w{j}" for j in range(many)) for name, many in tokens.items()}
    with served(tmp_path / "index-state", *QUICK) as service:
        indexer = recipe("rag_indexer", service, monkeypatch)
        store = indexer.Store(tmp_path / "index.sqlite")
        indexer.add(texts)
        monkeypatch.setattr(indexer, "FOLDER", tmp_path / "index-state")
        monkeypatch.setattr(indexer, "TOKENS", 2_000)
        # A month of visits so far; all documents change alike.
        begin = datetime.now(UTC) - timedelta(days=30)
        found = rng.random((30, len(texts))) < 0.3
        service.report(
            *(
                {
                    "source": name,
                    "time": (begin + timedelta(days=day)).isoformat(),
                    "changed": bool(found[day, k]),
                }
                for day in range(29)
                for k, name in enumerate(texts)
            )
        ).raise_for_status()
        plan = indexer.budget(tokens)
        frame = plan.to_frame().with_columns(tokens=pl.col("source").replace_strict(tokens))
        # The expected tokens of a day are the budget: visits, and documents that are found changed.
        rate, change = frame["rate"].to_numpy(), frame["change_rate"].to_numpy()
        finds = rate * -np.expm1(-change / rate)
        assert rate @ np.full(len(rate), 10.0) + finds @ frame["tokens"].to_numpy() == pytest.approx(
            2_000, rel=1e-6
        )
        shortest, longest = (frame.filter(pl.col("tokens") == many)["rate"].mean() for many in (50, 1600))
        assert shortest > 2.0 * longest
        in_force = service.client.get("/status").json()
        assert in_force["sources"] == len(texts)

        # The rates are in force: of every document what is due is embedded once.
        service.put(*texts, max_rate=1e9)
        spent = 0
        while spent < sum(tokens.values()):
            spent += indexer.index(store, texts.__getitem__)
        assert spent == sum(tokens.values())
        texts["doc3"] = "a new paragraph about sturgeons"
        while not indexer.index(store, texts.__getitem__):
            pass
        assert store.search("sturgeons paragraph", many=1) == [("doc3", texts["doc3"])]
        held = dict(
            store.database.execute("SELECT document, COUNT(*) FROM chunk GROUP BY document").fetchall()
        )
        assert held == {name: -(-len(text.split()) // 200) for name, text in texts.items()}

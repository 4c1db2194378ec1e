"""Feed readers: histories against what was published, intervals against databases, bounds by tag.

FreshRSS's tables are those that its 1.25.0 makes (``app/SQL/install.sql.sqlite.php``); Miniflux's answers are
those of 2.3.3 (``internal/api/api.go``, ``entry_handlers.go``, ``internal/model/feed.go``), on the loopback.
"""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import polars as pl
import pytest

from freshopt.errors import SourceDataWarning
from freshopt.logs import ChangeHistory
from freshopt.tools import FreshRss, export
from freshopt.tools.feeds.freshrss import read_freshrss
from freshopt.tools.feeds.miniflux import read_miniflux
from freshopt.tools.feeds.opml import read_opml
from tests.ground_truth.command_lines import Run, refuse, unwrapped
from tests.ground_truth.http_servers import Answering, serving
from tests.ground_truth.refusals import present, refused
from tests.tools.formats import plain_url

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
FRESHRSS = """
CREATE TABLE category (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name VARCHAR(191) NOT NULL);
CREATE TABLE feed (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, url VARCHAR(32768) NOT NULL,
    category INTEGER DEFAULT 0, name VARCHAR(191) NOT NULL DEFAULT '', lastUpdate BIGINT DEFAULT 0,
    priority TINYINT(2) NOT NULL DEFAULT 10, error BOOLEAN DEFAULT 0,
    ttl INT NOT NULL DEFAULT 0, attributes TEXT);
CREATE TABLE entry (id BIGINT NOT NULL, guid VARCHAR(767), title VARCHAR(8192), link VARCHAR(16383),
    date BIGINT,
    lastSeen BIGINT DEFAULT 0, is_read BOOLEAN NOT NULL DEFAULT 0, is_favorite BOOLEAN NOT NULL DEFAULT 0,
    id_feed INTEGER, PRIMARY KEY (id));
"""


def freshrss(at: Path, feeds: dict[str, tuple[int, list[tuple[float, float, bool]]]]) -> Path:
    """Make a database: by escaped address, ttl and entries (published and found, days ago; starred)."""
    with closing(sqlite3.connect(at)) as database:
        database.executescript(FRESHRSS)
        for number, (url, (ttl, entries)) in enumerate(feeds.items(), start=1):
            database.execute(
                "INSERT INTO feed (id, url, lastUpdate, ttl) VALUES (?, ?, ?, ?)", (number, url, NOW, ttl)
            )
            for k, (published, found, starred) in enumerate(entries):
                key = int((NOW - found * DAY) * 1e6) + 100 * number + k
                row = (key, int(NOW - published * DAY), starred, number)
                database.execute(
                    "INSERT INTO entry (id, date, is_favorite, id_feed) VALUES (?, ?, ?, ?)", row
                )
        database.commit()
    return at


def days_ago(history: ChangeHistory, source: str) -> tuple[float, float, list[float]]:
    """Start, end and changes of a source."""
    k = history.names.tolist().index(source)
    shift = (NOW - present(history.origin).timestamp()) / DAY
    times = history.time[history.offsets[k] : history.offsets[k + 1]]
    return shift - history.start[k], shift - history.end[k], (shift - times).tolist()


def test_freshrss(tmp_path: Path) -> None:
    """The oldest entry begins; one second is one change; the future is when it was found; stars are old."""
    path = freshrss(
        tmp_path / "db.sqlite",
        {
            "https://a.org/f?x=1&amp;y=&quot;2": (
                900,
                [(9, 8.9, False), (5, 4.9, False), (5, 4.9, False), (-3, 2, False), (400, 8.9, True)],
            ),
            "https://b.org/f": (0, [(7, 6, False), (3, 2, True)]),
            "https://muted.org/": (-3600, [(7, 6, False), (3, 2, False)]),
            "https://empty.org/": (0, []),
        },
    )
    with pytest.warns(SourceDataWarning, match="1 feed not looked at, 1 without entries"):
        found = read_freshrss(path)
    assert found.names.tolist() == ['https://a.org/f?x=1&y="2', "https://b.org/f"]
    start, end, changes = days_ago(found, 'https://a.org/f?x=1&y="2')
    assert start == pytest.approx(9.0, abs=1e-4)
    assert end == pytest.approx(0.0, abs=1e-4)
    assert changes == pytest.approx([5.0, 2.0], abs=1e-4)
    assert days_ago(found, "https://b.org/f")[2] == pytest.approx([3.0], abs=1e-4)
    with pytest.warns(SourceDataWarning):
        late = read_freshrss(path, "hour", since="2026-05-16T12:00Z")
    assert late.changes.tolist() == [1, 1]
    np.testing.assert_allclose(late.end - late.start, 96.0, atol=1e-3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"SQLite format 3\x00" + bytes(99), "cannot be read as a database of FreshRSS"),
        (b"<opml/>", "cannot be read as a database of FreshRSS: file is not a database. Name data/users"),
        (None, "there is no file"),
    ],
)
def test_what_is_no_database_of_freshrss(folder: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        Path("db.sqlite").write_bytes(content)
    refuse(folder, ["import", "freshrss", "db.sqlite"], (words,))


def test_a_damaged_database_of_freshrss_is_refused(tmp_path: Path) -> None:
    """Names that are no text, and numbers that are none."""
    path = freshrss(tmp_path / "db.sqlite", {"https://a.org/": (0, [(9, 8, False), (3, 2, False)])})
    octets = path.read_bytes()
    assert octets.count(b"id_feed INTEGER") == 1
    path.write_bytes(octets.replace(b"id_feed INTEGER", b"id_f\xf7ed INTEGER"))
    refused("cannot be read as a database of FreshRSS", read_freshrss, path)
    path.write_bytes(octets)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE feed SET ttl = 'often', lastUpdate = 1e300")
        database.execute("INSERT INTO entry (id, date, id_feed) VALUES (9e18, -5, 1), (1, 'soon', 1)")
        database.commit()
    found = read_freshrss(path)
    assert len(found) == 2
    assert found.end[0] - found.start[0] > 1e6  # the year 9999, to which no feed was looked at


def test_intervals_in_the_database_of_freshrss(tmp_path: Path) -> None:
    """Escaped as it has them; those that are muted stay so, and those that are never looked at become so."""
    names = [plain_url(k) for k in range(16)] + ["https://x.org/?q=');DROP+TABLE+feed;--&<b>"]
    escaped = [
        name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
        for name in names
    ]
    path = freshrss(tmp_path / "db", {url: (-3600 if k == 2 else 0, []) for k, url in enumerate(escaped)})
    export({name: 0.0 if k == 3 else 1.0 + k for k, name in enumerate(names)}, FreshRss(), tmp_path / "sql")
    with closing(sqlite3.connect(path)) as database:
        database.executescript((tmp_path / "sql").read_text())
        told = dict(database.execute("SELECT url, ttl FROM feed").fetchall())
    expected = {url: int(np.ceil(86_400 / (1.0 + k))) for k, url in enumerate(escaped)}
    assert told == {**expected, escaped[2]: -3600, escaped[3]: -86_400}
    refused("is no name of a table", FreshRss, "feed; DROP")
    refused("has a backslash", export, {"https://a.org/\\": 1.0}, FreshRss(), tmp_path / "other")
    export({"https://a.org/": 1.0}, FreshRss("p_ann-x_feed"), tmp_path / "mysql")
    assert "UPDATE `p_ann-x_feed` SET ttl=86400 WHERE" in (tmp_path / "mysql").read_text()


class Miniflux(Answering, BaseHTTPRequestHandler):
    """The interface of Miniflux 2.3.3: four feeds, answers in pages of a hundred at most."""

    server: MinifluxServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.headers["X-Auth-Token"] != "key":
            self._say(401, {"error_message": "Access Unauthorized"})
        elif parts.path == "/v1/feeds":
            checked = datetime.fromtimestamp(NOW, UTC).isoformat().replace("+00:00", ".123456Z")
            self._say(
                200,
                [
                    {
                        "id": number,
                        "user_id": 1,
                        "feed_url": url,
                        "site_url": url,
                        "title": "<b>",
                        "checked_at": checked,
                        "next_check_at": checked,
                        "disabled": url.endswith("disabled"),
                        "category": {"id": 1, "title": "News", "user_id": 1},
                        "icon": None,
                    }
                    for number, url in enumerate(self.server.feeds, start=1)
                ],
            )
        elif parts.path.endswith("/entries"):
            query = {key: value[0] for key, value in parse_qs(parts.query).items()}
            self.server.asked.append(query)
            entries = list(self.server.feeds.values())[int(parts.path.split("/")[3]) - 1]
            first, many = int(query["offset"]), min(int(query["limit"]), 100)
            page = sorted(entries)[first : first + many]  # the latest first: days ago
            self._say(200, {"total": len(entries), "entries": [self._entry(*each) for each in page]})
        else:
            self._say(404, {"error_message": "Not Found"})

    def _entry(self, published: float, found: float, starred: bool) -> dict[str, object]:
        shown = [
            datetime.fromtimestamp(NOW - days * DAY, UTC).astimezone().isoformat()
            for days in (published, found)
        ]
        return {
            "id": 1,
            "published_at": shown[0],
            "created_at": shown[1],
            "changed_at": shown[1],
            "starred": starred,
            "status": "unread",
            "title": "t",
            "feed": {},
        }

    def _say(self, status: int, body: object) -> None:
        told = body if self.server.nonsense is None else self.server.nonsense
        self.answer(status, json.dumps(told).encode())


class MinifluxServer(ThreadingHTTPServer):
    nonsense: object = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Miniflux)
        self.asked: list[dict[str, str]] = []
        # Of the first it has had entries for long, and has removed what was read; the second is new.
        self.feeds: dict[str, list[tuple[float, float, bool]]] = {
            "https://old.org/f": [
                *[(0.25 * k + 0.1, 0.25 * k, False) for k in range(240)],
                (100, 100, False),
                (170, 169, False),
                (800, 500, True),
            ],
            "https://new.org/f": [(3, 2, False), (30, 10, False), (300, 10, False)],
            "https://x.org/disabled": [(3, 2, False), (4, 3, False)],
            "https://none.org/f": [],
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[MinifluxServer]:
    with serving(MinifluxServer()) as made:
        yield made


def test_miniflux(server: MinifluxServer) -> None:
    with pytest.warns(SourceDataWarning, match="1 feed not looked at, 1 without entries"):
        found = read_miniflux(server.url + "/", key="key")
    assert found.names.tolist() == ["https://new.org/f", "https://old.org/f"]
    # A history of 60 days where older entries may have been removed, else from the oldest on.
    start, end, changes = days_ago(found, "https://new.org/f")
    assert [start, end, *changes] == pytest.approx([300.0, 0.0, 30.0, 3.0], abs=1e-4)
    start, _, changes = days_ago(found, "https://old.org/f")
    assert start == pytest.approx(0.25 * 239 + 0.1, abs=1e-4)
    assert len(changes) == 239
    offsets = [int(query["offset"]) for query in server.asked if query["order"] == "published_at"]
    assert offsets == [0, 100, 200, 0, 0]
    with pytest.warns(SourceDataWarning):
        longer = read_miniflux(server.url, key="key", since="2025-12-01")
    assert days_ago(longer, "https://old.org/f")[2][:1] == pytest.approx([100.0], abs=1e-4)


@pytest.mark.usefixtures("folder")
def test_miniflux_on_the_command_line(
    run: Run, server: MinifluxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["import", "miniflux", server.url, "--out", "own.csv"]
    assert "asks for a key. Pass --key, or set MINIFLUX_KEY" in run(*command, code=2).output
    assert "refuses the key. Make an API key" in run(*command, "--key", "other", code=2).output
    monkeypatch.setenv("MINIFLUX_KEY", "key")
    assert "is no moment" in run(*command, "--since", "soon", code=2).output
    for nonsense in ({"entries": 3}, [{"id": 1}], "text", None):
        server.nonsense = nonsense
        if nonsense is not None:
            said = unwrapped(run(*command, code=2).output)
            assert "answers v1/feeds with what is no answer of Miniflux. Check the address" in said
            assert not Path("own.csv").exists()
    said = unwrapped(run(*command).output)
    assert f"{server.url}: 241 changes of 2 sources" in said
    assert "next: freshopt plan own.csv --bandwidth RATE" in said
    run("plan", "own.csv", "--bandwidth", "20/day", "--out", "plan", "--draws", "0")
    run("schedule", "plan", "--format", "miniflux", "--out", "intervals.sql")
    assert Path("intervals.sql").read_text().count("UPDATE feeds SET next_check_at = checked_at +") == 2


OPML = """<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0" xmlns:frss="https://freshrss.org/opml"><head><title>feeds</title></head><body>
<outline text="News"><outline text="World" >
  <outline text="a &amp; b" type="rss" xmlUrl="https://a.org/f?x=1&amp;y=2" frss:x="1"/>
</outline></outline>
<outline text="Blogs"><outline text="a again" type="rss" xmlUrl="https://a.org/f?x=1&amp;y=2"/>
  <outline text="b" title="b" xmlUrl="https://b.org/f"/></outline>
<outline text="c" type="rss" xmlUrl="https://c.org/f" category="/Tech/Python,Slow"/>
</body></opml>
"""


@pytest.mark.parametrize(
    "octets",
    [
        OPML.encode(),
        b"\xef\xbb\xbf" + OPML.encode(),
        OPML.encode("utf-16"),
        gzip.compress(OPML.encode()),
        OPML.replace("<?xml", "<!-- a list -->\n<?xml").encode(),
    ],
    ids=["plain", "BOM", "UTF-16", "gzip", "comment first"],
)
def test_opml(tmp_path: Path, octets: bytes) -> None:
    (tmp_path / "feeds.opml").write_bytes(octets)
    found = read_opml(tmp_path / "feeds.opml", intervals=["News/World=10min..6h", "Blogs=1h..", "*=..7d"])
    assert found.rows() == [
        ("https://a.org/f?x=1&y=2", "News/World; Blogs", "3600 s", "21600 s"),
        ("https://b.org/f", "Blogs", "3600 s", "604800 s"),
        ("https://c.org/f", "Tech/Python; Slow", None, "604800 s"),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--interval", "Blog=1h..2h"],
            ("no source has the tag 'Blog'. Did you mean 'Blogs'?", "Correct it"),
        ),
        (["--interval", "Blogs=1h"], ("has no TAG=TIME..TIME. Write it such as news=10min..6h",)),
        (["--interval", "Blogs=2h..1h"], ("2h is longer than 1h. Swap them",)),
        (["--interval", "Blogs=1h..", "--interval", "Blogs=2h.."], ("has 'Blogs' twice",)),
        (["--interval", "Blogs=soon.."], ("--interval 'Blogs'",)),
        (
            ["--interval", "Blogs=1h..", "--interval", "News/World=..10min"],
            ("'https://a.org/f?x=1&y=2', with the tags 'News/World', 'Blogs', has no interval", "Widen one"),
        ),
    ],
)
def test_bounds_by_tag_that_cannot_be(folder: Path, options: list[str], words: tuple[str, ...]) -> None:
    Path("feeds.opml").write_text(OPML)
    refuse(folder, ["import", "opml", "feeds.opml", *options], words)
    assert not Path("limits.parquet").exists()


@pytest.mark.parametrize("text", ["", "<html><body>404</body></html>", "\x00\x01", "a" * 999, "é"])
def test_what_is_no_opml(folder: Path, text: str) -> None:
    Path("feeds.opml").write_text(text, encoding="latin-1")
    refuse(folder, ["import", "opml", "feeds.opml"], ("feeds.opml cannot be read as OPML", "mend it"))


def test_entities_of_opml_do_not_grow(tmp_path: Path) -> None:
    """A billion laughs, and a file from elsewhere: neither is filled in."""
    (tmp_path / "secret").write_text("secret")
    laughs = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
    bomb = f'<!DOCTYPE opml [<!ENTITY a0 "ha">{laughs}<!ENTITY f SYSTEM "file://{tmp_path}/secret">]>'
    outline = '<outline text="&a9;"><outline text="&f;" type="rss" xmlUrl="https://a.org/&f;&a9;"/></outline>'
    (tmp_path / "f.opml").write_text(f'<?xml version="1.0"?>{bomb}<opml><body>{outline}</body></opml>')
    rows = read_opml(tmp_path / "f.opml").rows()
    assert len(str(rows)) < 200
    assert "secret" not in str(rows)


@pytest.mark.usefixtures("folder")
def test_a_list_bounds_the_plan_of_a_reader_by_tag(run: Run) -> None:
    """From the database and the list to the intervals: no feed leaves the bounds of its folder."""
    rng = random.Random(5)
    feeds = {}
    for k in range(12):
        rate = 0.1 * 2.0**k
        ages = [rng.uniform(0.0, 60.0) for _ in range(min(200, int(60 * rate) + 2))]
        feeds[f"https://{k}.org/f"] = (0, [(age, age - 0.001, False) for age in ages])
    freshrss(Path("db.sqlite"), feeds)
    outlines = "".join(
        f'<outline text="{("slow", "fast")[k % 2]}"><outline type="rss" text="f" xmlUrl="{url}"/></outline>'
        for k, url in enumerate(feeds)
    )
    Path("feeds.opml").write_text(f'<opml version="2.0"><body>{outlines}</body></opml>')
    run("import", "freshrss", "db.sqlite", "--out", "log.parquet")
    said = run("import", "opml", "feeds.opml", "--interval", "fast=20min..2h", "--interval", "slow=3h..2d")
    assert "limits of 12 sources in 12 rows" in said.output
    assert "next: freshopt plan LOG --limits limits.parquet" in said.output
    run("plan", "log.parquet", "--limits", "limits.parquet", "-b", "120/day", "--out", "plan", "--draws", "0")
    run("schedule", "plan", "--format", "freshrss", "--out", "intervals.sql")
    with closing(sqlite3.connect("db.sqlite")) as database:
        database.executescript(Path("intervals.sql").read_text())
        found = dict(database.execute("SELECT url, ttl FROM feed").fetchall())
    for k, url in enumerate(feeds):
        least, most = (1200, 7200) if k % 2 else (10_800, 172_800)
        assert least <= found[url] <= most + 1
    assert len(set(found.values())) > 4
    limits = pl.read_parquet("limits.parquet")
    assert limits["tags"].unique().sort().to_list() == ["fast", "slow"]

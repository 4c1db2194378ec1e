"""Signals as tables: odd forms of sitemaps and feeds, told and seen, logs of pushes, hostile files."""

import gzip
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from freshopt.errors import SourceDataWarning
from freshopt.tools import read_sitemap
from freshopt.tools.feeds.signals import feed_signals, push_signals, sitemap_signals
from freshopt.tools.records import LARGEST, octets_of
from tests.ground_truth.command_lines import Run, refuse, unwrapped
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix

SPACE = ' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
SITEMAP = f'<?xml version="1.0" encoding="UTF-8"?><urlset{SPACE}{{1}}>{{0}}</urlset>'
MEDIA = (
    ' xmlns:news="http://www.google.com/schemas/sitemap-news/0.9"'
    ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
    ' xmlns:video="http://www.google.com/schemas/sitemap-video/1.1"'
)


def page(url: str, date: str = "", before: str = "") -> str:
    return f"<url>{before}<loc>{url}</loc>{f'<lastmod>{date}</lastmod>' if date else ''}</url>"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def told(table: pl.DataFrame) -> dict[str, list[datetime]]:
    """The times of each source."""
    assert table.columns[:3] == ["source", "time", "kind"]
    assert table["time"].is_sorted()
    found: dict[str, list[datetime]] = {}
    for source, moment, _ in table.iter_rows():
        found.setdefault(source, []).append(moment)
    return found


def copies(folder: Path, days: dict[str, str], media: str = "") -> Path:
    """Write copies of a sitemap, by the moment in their names."""
    for moment, pages in days.items():
        (folder / f"sitemap-{moment}.xml").write_text(SITEMAP.format(pages, media))
    return folder


def test_a_page_signals_where_its_date_moves(tmp_path: Path) -> None:
    """Moments with zones, mails' dates, days, the future, pages that are new or go and come back."""
    url = "https://a.org/"
    copies(
        tmp_path,
        {
            "2026-05-01T0600": "".join(
                [
                    page(url + "zone", "2026-04-01T00:00:00Z"),
                    page(url + "same", "2026-04-01T02:00:00+02:00"),
                    page(url + "mail", "Wed, 01 Apr 2026 00:00:00 GMT"),
                    page(url + "day", "2026-04-01"),
                    page(url + "future", "2026-04-01T00:00:00Z"),
                    page(url + "gone", "2026-04-01"),
                    page(url + "words", "yesterday"),
                ]
            ),
            "2026-05-02T0600": "".join(
                [
                    page(url + "zone", "2026-05-02T01:00:00+02:00"),
                    page(url + "same", "2026-04-01T00:00:00Z"),  # another way to write it
                    page(url + "mail", "Fri, 01 May 2026 20:00:00 -0500"),
                    page(url + "day", "2026-05-01"),
                    page(url + "future", "2027-01-01T00:00:00Z"),
                    page(url + "words", "today"),
                    page(url + "new", "2026-05-01T23:00:00Z"),
                ]
            ),
            "2026-05-03T0600": page(url + "zone", "2026-05-01T23:00:00Z") + page(url + "gone", "2026-04-01"),
        },
    )
    found = told(sitemap_signals(tmp_path))
    copy = at("2026-05-02T06:00")
    assert found == {
        url + "zone": [at("2026-05-01T23:00")],
        url + "mail": [at("2026-05-02T01:00")],
        url + "day": [copy],
        url + "future": [copy],
        url + "words": [copy],
        url + "new": [at("2026-05-01T23:00")],
    }
    assert told(sitemap_signals(tmp_path, when="seen")) == {url: [copy] for url in found}


def prefixed(text: str) -> bytes:
    """Return a sitemap with a prefix at each of its elements."""
    text = re.sub(r"<(/?)([a-z])", r"<\1s:\2", text)
    return text.replace("xmlns=", "xmlns:s=").encode()


CODED: dict[str, Callable[[str], bytes]] = {
    "plain": lambda text: text.encode(),
    "BOM": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "blanks first": lambda text: b"\n\n  " + text.encode(),
    "UTF-16": lambda text: text.replace("UTF-8", "UTF-16").encode("utf-16"),
    "Latin-1": lambda text: text.replace("UTF-8", "ISO-8859-1").encode("latin-1"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "no namespace": lambda text: text.replace(SPACE, "").encode(),
    "prefix": prefixed,
}


@matrix(form=CODED, loc=["<![CDATA[ https://a.org/é?x=1&y=2 ]]>", "https://a.org/&#233;?x=1&amp;y=2"])
def test_odd_forms_of_sitemaps(tmp_path: Path, form: str, loc: str) -> None:
    """The same page in all encodings, with CDATA and entities in its address, and blanks around."""
    for day in (1, 2):
        pages = f"<url><loc>{loc}</loc><lastmod> 2026-05-0{day}T03:00:00Z\n</lastmod></url>"
        (tmp_path / f"s-2026-05-0{day}T0600.xml.gz").write_bytes(CODED[form](SITEMAP.format(pages, "")))
    assert told(sitemap_signals(tmp_path)) == {"https://a.org/é?x=1&y=2": [at("2026-05-02T03:00")]}
    assert read_sitemap(tmp_path).changed.tolist() == [False, True]


def test_images_videos_and_news(tmp_path: Path) -> None:
    image = "<image:image><image:loc>https://cdn.org/i.png</image:loc></image:image>"
    video = "<video:video><video:publication_date>2020-01-01</video:publication_date></video:video>"
    news = "<news:news><news:publication_date>{}</news:publication_date></news:news>"
    days = {
        f"2026-05-0{day}T0600": page("https://a.org/p", f"2026-05-0{day}T01:00:00Z", image + video)
        + f"<url><loc>https://a.org/n{day}</loc>{news.format(f'2026-05-0{day}T02:00:00Z')}</url>"
        for day in (1, 2, 3)
    }
    assert told(sitemap_signals(copies(tmp_path, days, MEDIA))) == {
        "https://a.org/p": [at("2026-05-02T01:00"), at("2026-05-03T01:00")],
        "https://a.org/n2": [at("2026-05-02T02:00")],
        "https://a.org/n3": [at("2026-05-03T02:00")],
    }


def test_an_index_alone_signals_its_sitemaps_and_beside_them_nothing(tmp_path: Path) -> None:
    for day in (1, 2):
        listed = (
            f"<sitemap><loc>https://a.org/s.xml</loc><lastmod>2026-05-0{day}T01:00:00Z</lastmod></sitemap>"
        )
        (tmp_path / f"index-2026-05-0{day}T0600.xml").write_text(f"<sitemapindex>{listed * 2}</sitemapindex>")
    assert told(sitemap_signals(tmp_path)) == {"https://a.org/s.xml": [at("2026-05-02T01:00")]}
    copies(tmp_path, {f"2026-05-0{day}T0600": page("https://a.org/", f"2026-05-0{day}") for day in (1, 2)})
    assert told(sitemap_signals(tmp_path)) == {"https://a.org/": [at("2026-05-02T06:00")]}


LAUGHS = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
BOMBS = {
    "laughs": (f'<!DOCTYPE u [<!ENTITY a0 "ha">{LAUGHS}]>', "&a9;"),
    "quadratic": (f'<!DOCTYPE u [<!ENTITY a "{"x" * 100_000}">]>', "&a;" * 20_000),
    "file": ('<!DOCTYPE u [<!ENTITY a SYSTEM "file:///etc/hostname">]>', "&a;"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_entity_bombs_and_files_of_others_are_refused(folder: Path, bomb: str) -> None:
    kind, inside = BOMBS[bomb]
    Path("s").mkdir()
    for day in (1, 2):
        Path(f"s/s-2026-05-0{day}.xml").write_text(
            f'<?xml version="1.0"?>{kind}<urlset>{page(inside, "2026-05-01")}</urlset>'
        )
    refuse(folder, ["import", "sitemap-signals", "s"], ("cannot be read as a sitemap", "Remove this copy"))


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LARGEST == 1 << 28
    monkeypatch.setattr("freshopt.tools.records.LARGEST", 1 << 16)
    for many, file in ((1 << 16, tmp_path / "fits"), ((1 << 16) + 1, tmp_path / "bomb")):
        file.write_bytes(gzip.compress(bytes(many)))
    assert len(octets_of(tmp_path / "fits", "a sitemap")) == 1 << 16
    refused(
        "bomb cannot be read as a sitemap: it has more than 0 MiB", octets_of, tmp_path / "bomb", "a sitemap"
    )
    (tmp_path / "cut").write_bytes(gzip.compress(b"x" * 999)[:-9])
    refused("cut cannot be read as a feed: Compressed file ended", octets_of, tmp_path / "cut", "a feed")


ATOM = """<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="en"><title type="html"><![CDATA[a & b]]></title>
<link rel="self" href="https://a.org/feed.atom"/><link href="https://a.org/"/>{}</feed>"""
RSS = """<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom">
<channel><title>t</title><link>https://a.org/</link><atom:link rel="self" href="https://a.org/feed.rss"/>{}
</channel></rss>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><channel rdf:about="https://a.org/feed.rdf"><title>t</title>
<link>https://a.org/</link></channel>{}</rdf:RDF>"""


def entry(key: str, dates: str, link: str = "") -> str:
    return f'<entry><id>tag:{key}</id><title>{key}</title><link href="{link or f"https://a.org/{key}"}"/>{dates}</entry>'


def item(key: str, dates: str) -> str:
    return f"<item><title>{key}</title><link>https://a.org/{key}</link>{dates}</item>"


def atom(dates: str, link: str = "") -> str:
    return ATOM.format(entry("x", dates, link))


def rss(dates: str) -> str:
    return RSS.format(item("x", dates))


UPDATED = "<published>2026-05-01T03:00:00Z</published><updated>{}</updated>"
# Each with the hours that its entry tells, in UTC.
FORMS = {
    "Atom without updated": (atom("<published>2026-05-01T10:00:00+02:00</published>"), ["08:00"]),
    "Atom with both": (atom(UPDATED.format("2026-05-01T10:00:00.25Z")), ["03:00", "10:00"]),
    "Atom with equal dates": (atom(UPDATED.format("2026-05-01T05:00:00+02:00")), ["03:00"]),
    "Atom with a relative link": (atom("<updated>2026-05-01T10:00:00Z</updated>", "/x"), ["10:00"]),
    "RFC 822 with an offset": (rss("<pubDate>Fri, 01 May 2026 10:00:00 +0200</pubDate>"), ["08:00"]),
    "RFC 822 with a name": (rss("<pubDate>Fri, 01 May 2026 03:00:00 EST</pubDate>"), ["08:00"]),
    "RFC 822 with two digits": (rss("<pubDate>01 May 26 08:00 GMT</pubDate>"), ["08:00"]),
    "CDATA": (rss("<pubDate><![CDATA[Fri, 01 May 2026 08:00:00 GMT]]></pubDate>"), ["08:00"]),
    "dc:date": (rss("<dc:date>2026-05-01T10:00:00+02:00</dc:date>"), ["08:00"]),
    "RSS 1.0": (
        RDF.format(
            '<item rdf:about="https://a.org/x"><title>x</title><link>https://a.org/x</link>'
            "<dc:date>2026-05-01T10:00:00+02:00</dc:date></item>"
        ),
        ["08:00"],
    ),
    "not well-formed": (rss("<pubDate>Fri, 01 May 2026 08:00:00 GMT</pubDate>") + "<p>&nbsp;", ["08:00"]),
}


@matrix(form=FORMS, packed=[False, True])
def test_odd_forms_of_feeds(tmp_path: Path, form: str, packed: bool) -> None:
    text, hours = FORMS[form]
    octets = b"\xef\xbb\xbf" + text.encode() if packed else text.encode()
    file = tmp_path / f"feed-2026-05-01T2000.xml{'.gz' if packed else ''}"
    file.write_bytes(gzip.compress(octets) if packed else octets)
    expected = [at(f"2026-05-01T{hour}") for hour in hours]
    assert told(feed_signals(tmp_path)) == {"https://a.org/x": expected}
    [(own, times)] = told(feed_signals(file, of="feed")).items()
    assert own.startswith("https://a.org/")
    assert times == expected


def test_entries_of_several_copies(tmp_path: Path) -> None:
    """Updates signal again; what has no moment does in the copy that has it first, but for the first copy."""
    days = {
        "2026-05-01T0600": entry("a", "<updated>2026-05-01T01:00:00Z</updated>") + entry("none", ""),
        "2026-05-02T0600": entry("a", "<updated>2026-05-01T09:00:00Z</updated>")
        + entry("none", "")
        + entry("new", "")
        + entry("day", "<updated>2026-05-02</updated>")
        + entry("ahead", "<updated>2030-01-01T00:00:00Z</updated>"),
        "2026-05-03T0600": entry("a", "<updated>2026-05-01T09:00:00Z</updated>") + entry("new", ""),
    }
    for moment, entries in days.items():
        (tmp_path / f"{moment}.atom").write_text(ATOM.format(entries))
    with pytest.warns(SourceDataWarning, match="1 date of entries left out"):
        found = told(feed_signals(tmp_path))
    copy = at("2026-05-02T06:00")
    assert found == {
        "https://a.org/a": [at("2026-05-01T01:00"), at("2026-05-01T09:00")],
        **{f"https://a.org/{name}": [copy] for name in ("new", "day", "ahead")},
    }
    with pytest.warns(SourceDataWarning):
        seen = told(feed_signals(tmp_path, when="seen"))
    assert seen == {f"https://a.org/{name}": [copy] for name in ("a", "ahead", "day", "new")}
    with pytest.warns(SourceDataWarning):
        own = told(feed_signals(tmp_path, of="feed"))
    assert own == {"https://a.org/feed.atom": [at("2026-05-01T01:00"), at("2026-05-01T09:00"), copy]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html><body>Not found</body></html>", "cannot be read as a feed"),
        ("", "cannot be read as a feed"),
        ('<?xml version="1.0" encoding="\udca8"?><rss/>', "cannot be read as a feed"),
        (ATOM.format(entry("x", "")), "no entry of"),
        (ATOM.format(entry("x", "<updated>2026-05-01T09:00:00Z</updated>", "http://[::1")), "no entry of"),
    ],
)
@pytest.mark.filterwarnings("ignore::freshopt.errors.SourceDataWarning")
def test_what_is_no_feed(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f-2026-05-01.xml").write_bytes(text.encode(errors="surrogateescape"))
    refused(words, feed_signals, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_feed_whose_text_is_a_path_or_an_address_is_no_other_file(tmp_path: Path) -> None:
    """Parsers that take names as well as text would open what the text names."""
    (tmp_path / "good.atom").write_text(ATOM.format(entry("x", "<updated>2026-05-01T09:00:00Z</updated>")))
    for text in (str(tmp_path / "good.atom"), "http://127.0.0.1:9/feed"):
        (tmp_path / "f-2026-05-01.rss").write_text(text)
        refused("cannot be read as a feed", feed_signals, tmp_path / "f-2026-05-01.rss")


TOPIC = "hub.topic=https%3A%2F%2Fa.org%2Ff"
ACCESS = [
    ("01/May/2026:06:00:00 +0200", f"GET /cb/17?hub.mode=subscribe&{TOPIC}&hub.challenge=1"),
    ("01/May/2026:07:00:00 +0200", "POST /cb/17"),
    ("01/May/2026:08:00:00 +0000", "GET /indexnow?url=https%3A%2F%2Fb.org%2Fx%3Fy&key=abc"),
    ("01/May/2026:08:30:00 +0000", "GET /robots.txt"),
    ("01/May/2026:08:30:00 +0000", "POST /cb/18"),
    ("01/May/2026:09:00:00 +0000", f"GET /cb/17?hub.mode=unsubscribe&{TOPIC}"),
    ("01/May/2026:09:30:00 +0000", "POST /cb/17"),
    ("01/May/2026:09:30:00 +0000", "GET //[x?url=https://c.org/"),
]


def test_access_logs_of_pushes(tmp_path: Path) -> None:
    """A hub is known by its subscription, until it ends; IndexNow by its address."""
    lines = (f'10.0.0.1 - - [{when}] "{request} HTTP/1.1" 200 5 "-" "hub"' for when, request in ACCESS)
    (tmp_path / "access.log").write_text("\n".join(lines) + "\n")
    table = push_signals(tmp_path)
    assert table.rows() == [
        ("https://a.org/f", at("2026-05-01T05:00"), "websub"),
        ("https://b.org/x?y", at("2026-05-01T08:00"), "indexnow"),
        ("https://c.org/", at("2026-05-01T09:30"), "indexnow"),
    ]


JSON = r"""
{"time": "2026-05-01T06:00:00Z", "body": {"host": "b.org", "urlList": ["https://b.org/1", "https://b.org/2"]}}
{"received_at": 1777597200, "payload": "{\"topic\": \"https://a.org/f\"}"}
{"ts": 1777597200500, "url": "https://c.org/", "kind": "cms"}

{"timestamp": "Fri, 01 May 2026 03:00:00 +0200", "source": "d"}
"""


def test_json_lines_of_pushes(tmp_path: Path) -> None:
    (tmp_path / "pushed.jsonl.gz").write_bytes(gzip.compress(JSON.encode()))
    one = at("2026-05-01T01:00")
    assert push_signals(tmp_path / "pushed.jsonl.gz").rows() == [
        ("d", one, "webhook"),
        ("https://a.org/f", one, "websub"),
        ("https://c.org/", one.replace(microsecond=500_000), "cms"),
        ("https://b.org/1", at("2026-05-01T06:00"), "indexnow"),
        ("https://b.org/2", at("2026-05-01T06:00"), "indexnow"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"url": "x"}', ("line 1 of p.jsonl has no moment", "Give it time")),
        ('{"time": "soon", "url": "x"}', ("line 1 of p.jsonl has no moment",)),
        ('{"time": 1777597200, "page": "x"}', ("line 1 of p.jsonl has no source", "Give it url, urlList")),
        ("[1", ("line 1 of p.jsonl", "Correct or remove it")),
        ('{"time": 1777597200, "body": "<x>"}', ("the body in line 1 of p.jsonl", "Correct or remove it")),
        ("", ("p.jsonl has no signal",)),
        ("\x00\x01", ("p.jsonl",)),
        ("[" * 9999, ("line 1 of p.jsonl",)),
    ],
)
def test_pushes_that_cannot_be_read(folder: Path, line: str, words: tuple[str, ...]) -> None:
    Path("p.jsonl").write_text(line)
    refuse(folder, ["import", "push-signals", "p.jsonl"], words)


@pytest.mark.usefixtures("folder")
def test_tables_of_signals_on_the_command_line(run: Run) -> None:
    Path("feeds").mkdir()
    hostile = entry("x", "<updated>2026-05-01T09:00:00Z</updated>", "https://a.org/=cmd|,&quot;")
    Path("feeds/f-2026-05-01T2000.atom").write_text(ATOM.format(hostile))
    said = unwrapped(run("import", "feed-signals", "feeds").output)
    assert "feeds: signals of 1 source in 1 row" in said
    assert "wrote signals.parquet; next: freshopt plan LOG --signals signals.parquet" in said
    written = pl.read_parquet("signals.parquet")
    ran = run("import", "feed-signals", "feeds", "--out", "-", "--when", "dated", "--of", "entries")
    assert (
        pl.read_csv(io.StringIO(ran.stdout), try_parse_dates=True)["time"].to_list()
        == written["time"].to_list()
    )
    assert "Pass 'dated' or 'seen'" in run("import", "feed-signals", "feeds", "--when", "saw", code=2).output
    assert "Pass 'entries' or 'feed'" in run("import", "feed-signals", "feeds", "--of", "x", code=2).output

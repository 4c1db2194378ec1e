"""Templates, commands and columns of names: what they write, read back by a shell, and what they refuse."""

import json
import random
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import polars
import pytest

import freshopt as fo
from freshopt.scheduling.rate_table import read_rates
from freshopt.tools import Crontab, PgCron, TextTemplate
from freshopt.tools.export import _PLAIN_URL, hosts_of, urls_of
from freshopt.tools.whole_seconds import IntervalFormat
from tests.ground_truth.command_lines import Run
from tests.ground_truth.cron_rules import CRONS, Cron, given_to_shell, load
from tests.ground_truth.refusals import refused

ODD = [
    "https://a.org/?x='1'&y=2",
    "$(touch x)",
    "`id`",
    'a "b"',
    "%41",
    "a\\b",
    "ü{cron}",
    "{source}",
    "!x",
    " ",
]
RATES = {name: 24.0 * (k + 1) for k, name in enumerate(ODD)}


def text_of(target: IntervalFormat, rates: dict[str, float], folder: Path) -> str:
    done = target.write(read_rates(rates), folder / "out")
    assert done.realised <= done.planned * (1.0 + 1e-9)
    return (folder / "out").read_bytes().decode()


def test_each_quoting_is_read_back_by_its_reader(tmp_path: Path) -> None:
    lines = text_of(TextTemplate("{source!j}"), RATES, tmp_path).splitlines()
    assert [json.loads(line) for line in lines] == ODD
    lines = text_of(TextTemplate("{source!u}"), RATES, tmp_path).splitlines()
    assert [unquote(line) for line in lines] == ODD
    script = text_of(TextTemplate(r"printf '%s\0' {source!q}"), RATES, tmp_path)
    shown = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, cwd=tmp_path).stdout
    assert shown.decode().split("\0")[:-1] == ODD
    assert text_of(TextTemplate("{source}"), RATES, tmp_path).split("\n")[:-1] == ODD


def test_intervals_hosts_and_cron_lines(tmp_path: Path) -> None:
    rates = {"https://A.org:8/x": 24.0, "http://b/": 3.3, "http://c/": 0.0}
    template = (
        '{"url": {source!j}, "host": {host!j}, "every": {seconds}, "minutes": {minutes}, "a": {"b": {}}}\n'
    )
    first, second = map(json.loads, text_of(TextTemplate(template), rates, tmp_path).splitlines())
    assert first == {
        "url": "https://A.org:8/x",
        "host": "a.org",
        "every": 3600,
        "minutes": 60,
        "a": {"b": {}},
    }
    # 86 400 s / 3.3 is 26 181.8 s, in whole minutes 437.
    assert (second["every"], second["minutes"]) == (26_220, 437)
    assert text_of(TextTemplate("{seconds} {source}"), {"b": 3.3}, tmp_path) == "26182 b\n"
    crontab = text_of(Crontab("get"), rates, tmp_path).splitlines()[1:]
    assert text_of(TextTemplate("{cron} get {source}"), rates, tmp_path).splitlines() == crontab


@pytest.mark.parametrize("cron", CRONS, ids=lambda cron: cron.name)
def test_names_stand_where_a_crontab_command_says(cron: Cron, tmp_path: Path) -> None:
    target = Crontab(r"printf '%s,%s;' {source} x={source} | sed 's/q{3}//'")
    jobs = load(text_of(target, RATES, tmp_path).encode(), cron)
    scripts = dict.fromkeys(given_to_shell(job.command, cron)[0] for job in jobs)
    shown = [
        subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, cwd=tmp_path).stdout
        for script in scripts
    ]
    assert [each.decode() for each in shown] == [f"{name},x={name};" for name in ODD]
    hosts = Crontab("echo {host} {source}").write(read_rates({"http://a.org/": 1.0}), tmp_path / "h")
    assert hosts.sources == 1
    assert (tmp_path / "h").read_text().endswith(" echo a.org http://a.org/\n")


def test_a_name_that_is_an_option_goes_where_no_option_is_read(tmp_path: Path) -> None:
    with pytest.raises(fo.SourceDataError, match=r"'-rf' begins with '-'.*write that before \{source\}"):
        text_of(Crontab("rm {source} x"), {"-rf": 1.0}, tmp_path)
    assert text_of(Crontab("rm -- {source} x"), {"-rf": 1.0}, tmp_path).endswith(" rm -- -rf x\n")
    assert text_of(Crontab("get --at={source}"), {"-rf": 1.0}, tmp_path).endswith(" get --at=-rf\n")


def test_a_script_of_sql(tmp_path: Path) -> None:
    text = text_of(PgCron("SELECT f({source}, '{1}')"), {"it's": 24.0, "a\\b": 7200.0}, tmp_path)
    assert "cron.schedule('freshopt 1.1 it''s', '" in text
    assert "* * * *', 'SELECT f(''it''''s'', ''{1}'')');\n" in text
    # The inner text is E'a\\b', and as a text within a text its quotes and backslashes are doubled again.
    assert "(E'freshopt 2.1 a\\\\b', '12 seconds', E'SELECT f(E''a\\\\\\\\b'', ''{1}'')');\n" in text
    assert "1.5" in text
    assert "1.5" not in text_of(PgCron(), {"a": 1440.0}, tmp_path)


def test_on_the_command_line(run: Run) -> None:
    Path("rates.csv").write_text("source,rate\nhttp://a/,24\n")
    said = run("schedule", "rates.csv", "--template", "{seconds} {source!q}", "--out", "jobs.txt").output
    assert Path("jobs.txt").read_text() == "3600 http://a/\n"
    assert "1 source with an interval" in said
    run("schedule", "rates.csv", "--format", "pg_cron", "--out", "jobs.sql")
    assert "'REFRESH MATERIALIZED VIEW \"http://a/\"'" in Path("jobs.sql").read_text()
    for given, words in (
        (["--template", "x"], "Error: the template has no {source}"),
        (["--format", "template"], "Add --template"),
        (
            ["--format", "nutch", "--template", "{source}"],
            "--template is for --format template, not for nutch",
        ),
    ):
        assert words in run("schedule", "rates.csv", *given, "--out", "n", code=2).output
        assert not Path("n").exists()


PIECES = (
    *("http", "HTTPS", "ftp", "://", ":", "//", "/", "?", "#", "@", "[", "]", "[::1]", "%", "%41", "\\"),
    *("'", '"', "a", "B", "ex.org", "-", "_", "~", ".", ":80", ":99999", ":0", ":x", "ü", "名", "\u0378"),
    *("\u00ad", "\u200b", " ", "\t", "\n", "\x00", "\x7f", "\u2028", "\ud800", "😀", "{", "}", "{{", "&"),
    *("=", "\u0661"),
)


def is_url(name: str) -> bool:
    """Return whether a name is a URL to fetch, by the standard library alone."""
    try:
        parts = urlsplit(name)
        _ = parts.port
    except ValueError:
        return False
    plain = all(letter.isprintable() and not letter.isspace() for letter in name)
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


@pytest.mark.exhaustive
def test_urls_are_those_of_the_standard_library() -> None:
    draw = random.Random(1)
    names = ["".join(draw.choices(PIECES, k=draw.randint(0, 4))) for _ in range(2000)]
    names += ["https://" + "".join(draw.choices(PIECES, k=draw.randint(0, 6))) for _ in range(4000)]
    right = [name for name in names if is_url(name)]
    wrong = [name for name in names if not is_url(name)]
    assert min(len(right), len(wrong)) > 500
    assert hosts_of(urls_of(right, "a tool")).to_list() == [urlsplit(name).hostname for name in right]
    for name in wrong:
        refused("is no URL", urls_of, [name], "a tool")


@pytest.mark.exhaustive
def test_plain_urls_have_no_letter_that_cannot_be_printed() -> None:
    letters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    plain = polars.Series([f"https://a.org/{letter}" for letter in letters]).str.contains(_PLAIN_URL)
    taken = [letter for letter, yes in zip(letters, plain.to_list(), strict=True) if yes]
    assert len(taken) > 20_000
    assert all(letter.isprintable() and not letter.isspace() for letter in taken)

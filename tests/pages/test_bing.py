"""The Bing data set: its documented layout, claims on it, and the one line that says what is not of it."""

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from freshopt.errors import SourceDataError
from freshopt.estimators import MaximumLikelihood
from tests.contracts.test_fuzzed_files import SETTINGS, damage, survive
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT
from tests.pages.measured import harness, module

FOLDER = Path(__file__).parents[2] / "benchmarks" / "reproduce"
N, DAYS = 60, 6
PUBLISHED = (
    "urlid_offset_history.txt",
    "urlid_imp.txt",
    "urlid_chrate_compl_obs_hist.txt",
    "url_urlid_hostid.txt",
    "host_hostid_isconstrained.txt",
)


@pytest.fixture(scope="module")
def frame() -> ModuleType:
    return module("reproduce.reproduce")


def write_published(folder: Path, importance: np.ndarray, rates: np.ndarray) -> Path:
    """Write a data set in which page k changed in its first k % DAYS days; NaN is a rate not announced."""
    pages = range(len(importance))
    history = ({k: [[1.0, int(day < k % DAYS)] for day in range(DAYS)]} for k in pages)
    texts = (
        (f"{k}\t0.5\t{json.dumps(crawls)}" for each in history for k, crawls in each.items()),
        (f"{k}\t{w}" for k, w in enumerate(importance.tolist())),
        (f"{k}\t{d}" for k, d in enumerate(rates.tolist()) if not np.isnan(d)),
        (f"http://a/{k}\t{k}\t7" for k in pages),
        ("http://a\t7\t0",),
    )
    for name, lines in zip(PUBLISHED, texts, strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def ran(folder: Path) -> None:
    harness.main(["bing", "--data", str(folder)])


def test_claims_that_need_the_data_are_decided_in_one_table(
    frame: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    importance, rates = rng.uniform(500.0, 1500.0, N), rng.uniform(0.1, 3.0, N)
    importance[5] = 0.0  # left out
    ran(write_published(tmp_path, importance, rates))
    printed = capsys.readouterr().out
    assert "59 pages, 100.0% of them signalled, 1 of no importance left out" in printed
    # All rates are announced, so that the heuristics' costs follow from the files by the paper's formulas.
    w, d = np.delete(importance, 5), np.delete(rates, 5)
    share = 0.2 * len(d) / d.sum()
    expected = {
        "UC": (np.mean(w * np.log1p(d / 0.2)), np.mean(w * d / (d + 0.2))),
        "CC": (np.mean(w) * np.log1p(1.0 / share), np.mean(w) / (1.0 + share)),
    }
    found = {
        line.split()[0]: line.split() for line in printed.splitlines() if " J_h " in line and " J_b " in line
    }
    for name, (harmonic, binary) in expected.items():
        shown = float(found[name][2]), float(found[name][4])
        np.testing.assert_allclose(shown, (harmonic, binary), rtol=1e-4)
    assert found["BLC"][2] == "inf" or float(found["BLC"][2]) > float(found["LC"][2])
    claims = frame.Table.read("lambdacrawl").claims.values()
    fitted, places = module("reproduce.bing").FITTED, {"Fig 1", "Fig 2", "Sec 7"}
    decided = {*fitted, "lc-axis"}
    wanted = [
        each for each in claims if each.id in decided or (each.place in places and each.origin != "own")
    ]
    rows = [line for line in printed.splitlines() if line.startswith(("Fig ", "Sec "))]
    assert len(rows) == len(wanted) >= 20
    assert all(line.endswith((" holds", " does not hold")) for line in rows)
    assert "UC costs 628 in J_b" in printed
    assert "stand-in" not in printed


def test_rates_of_silent_pages_are_learnt(tmp_path: Path) -> None:
    made = module("reproduce.bing")
    rates = np.where(np.arange(N) % 4 == 0, 1.25, np.nan)
    data = made.read_bing(write_published(tmp_path, np.ones(N), rates))
    sources, left_out = made.pages_of(data, tmp_path)
    assert left_out == 0
    assert sources.signalled.tolist() == (np.arange(N) % 4 == 0).tolist()
    assert set(sources.change_rate[::4].tolist()) == {1.25}
    # Of k changes in six days: k/(e^Δ − 1) + ½/(e^(Δ/2) − 1) = 6 − k + ½.
    d, k = sources.change_rate, np.arange(N) % DAYS
    left = k / np.expm1(d) + 0.5 / np.expm1(0.5 * d)
    np.testing.assert_allclose(left[~sources.signalled], (DAYS - k + 0.5)[~sources.signalled], rtol=1e-9)


@pytest.mark.parametrize("missing", PUBLISHED)
def test_a_missing_file_ends_in_one_line(tmp_path: Path, missing: str) -> None:
    write_published(tmp_path, np.ones(N), np.full(N, 0.5))
    (tmp_path / missing).unlink()
    with pytest.raises(SystemExit) as ended:
        ran(tmp_path)
    message = str(ended.value)
    assert missing in message
    assert "Unpack" in message
    assert "\n" not in message


_PLACE = Path(__file__).parents[2] / "benchmarks" / "reproduce" / "read_bing.py"
_SPEC = importlib.util.spec_from_file_location("benchmarks_read_bing", _PLACE)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _MODULE
_SPEC.loader.exec_module(_MODULE)
read_bing = _MODULE.read_bing
HISTORY = (
    "5\t5.5143055555555556\t[[1.10396990740741, 0], [1.47311342592593, 1], [0, 1], [2.0, 0], [0.0, 1]]\n"
    "12\t0.25\t[]\n"
    "9\t0\t[[1e-3, 1]]\n"
)
FILES = {
    "urlid_offset_history": HISTORY,
    "urlid_imp": "12\t3.5\n5\t100\n9\t0\n77\t1\n",
    "urlid_chrate_compl_obs_hist": "9\t0.7\n77\t2\n",
    "url_urlid_hostid": "http://a/1\t5\t31\nhttp://b/\t12\t4\nhttp://a/2\t9\t31\nhttp://c/\t77\t8\n",
    "host_hostid_isconstrained": "http://a\t31\t1\nhttp://b\t4\t0\nhttp://c\t8\t1\n",
}


def write(folder: Path, **changes: str | None) -> Path:
    for stem, text in {**FILES, **changes}.items():
        if text is not None:
            (folder / f"{stem}.txt").write_text(text)
    return folder


def test_pages_crawls_importances_and_announced_rates(tmp_path: Path) -> None:
    data = read_bing(write(tmp_path))
    log = data.log
    assert log.names.tolist() == [5, 9, 12]
    assert log.offsets.tolist() == [0, 4, 6, 7]
    # The record after 0 days belongs to the crawl before it; the last one turns that into a change.
    np.testing.assert_array_equal(
        log.interval, [np.nan, 1.10396990740741, 1.47311342592593, 2.0, np.nan, 1e-3, np.nan]
    )
    assert log.changed.tolist() == [False, False, True, True, False, True, False]
    expected = 5.5143055555555556 + np.cumsum([0.0, 1.10396990740741, 1.47311342592593, 2.0])
    np.testing.assert_allclose(log.time[:4], expected, rtol=EXACT)
    assert log.time[4:].tolist() == [0.0, 1e-3, 0.25]
    assert data.importance.tolist() == [100.0, 0.0, 3.5]
    np.testing.assert_array_equal(data.announced_rate, [np.nan, 0.7, np.nan])
    assert "1 of 3 announce their changes" in repr(data)


def test_they_become_sources_of_a_problem(tmp_path: Path) -> None:
    data = read_bing(write(tmp_path))
    learnt = MaximumLikelihood().fit(data.log).change_rate_
    sources = data.sources(learnt)
    assert sources.signalled.tolist() == [False, True, False]
    assert sources.change_rate.tolist() == [learnt[0], 0.7, learnt[2]]
    assert present(sources.names).tolist() == [5, 9, 12]
    assert present(sources.host).tolist() == [31, 31, 4]
    assert present(data.constrained_hosts).tolist() == [31]


def test_hosts_are_none_without_their_files(tmp_path: Path) -> None:
    data = read_bing(write(tmp_path, host_hostid_isconstrained=None))
    assert data.constrained_hosts is None
    assert data.host is not None
    (tmp_path / "url_urlid_hostid.txt").unlink()
    data = read_bing(tmp_path)
    assert data.host is None
    assert data.sources(1.0).host is None


def test_limit_headers_gzip_and_no_announcements(tmp_path: Path) -> None:
    write(
        tmp_path,
        urlid_chrate_compl_obs_hist=None,
        urlid_imp="URL_ID\tImportance_score\n" + FILES["urlid_imp"],
    )
    (tmp_path / "urlid_offset_history.txt").unlink()
    (tmp_path / "urlid_offset_history.txt.gz").write_bytes(gzip.compress(HISTORY.encode()))
    data = read_bing(tmp_path, limit=1)
    assert data.log.names.tolist() == [5]
    assert np.isnan(data.announced_rate).all()
    (tmp_path / "urlid_offset_history.txt.gz").write_bytes(gzip.compress(HISTORY.encode())[:-9])
    refused(r"urlid_offset_history.txt.gz cannot be read", read_bing, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"urlid_imp": None}, r"has no file urlid_imp.txt. Unpack"),
        ({"urlid_imp": "5\t1\n12\t1\n"}, r"no importance of 1 pages, the first being 9"),
        ({"urlid_imp": "5\t-1\n"}, r"importance is '-1' in line 1 of .*urlid_imp.txt"),
        ({"urlid_imp": "5,1\n"}, r"line 1|no importance"),
        ({"urlid_imp": "5\t1\n12 1\n"}, r"line 2 of .*urlid_imp.txt has 1 columns, not 2"),
        ({"urlid_chrate_compl_obs_hist": "9\t0\n"}, r"change rate is '0' in line 1"),
        ({"url_urlid_hostid": "http://a\t5\t31\n"}, r"no host of 2 pages, the first being 9"),
        ({"url_urlid_hostid": "http://a\t5\tx\n"}, r"the id is 'x' in line 1 of .*url_urlid_hostid.txt"),
        ({"host_hostid_isconstrained": "http://a\t31\t2\n"}, r"constrained is '2' in line 1"),
        (
            {"host_hostid_isconstrained": "http://a\t31\t1\n"},
            r"no line of 1 hosts of pages, the first being 4",
        ),
        ({"urlid_offset_history": ""}, r"urlid_offset_history.txt has no lines"),
        ({"urlid_offset_history": "5\t1\n"}, r"line 1 of .* has 2 columns, not 3"),
        ({"urlid_offset_history": "5\t0\t[]\nx\t0\t[]\n"}, r"the id is 'x' in line 2"),
        ({"urlid_offset_history": "5\tnan\t[]\n"}, r"first_crawl_time_offset is 'nan' in line 1"),
        ({"urlid_offset_history": "5\t0\t[[1, 0]\n"}, r"the history is .* in line 1"),
        (
            {"urlid_offset_history": "5\t0\t[[1, 0], [-1, 1]]\n"},
            r"crawl 2 of the history is .*-1, 1.* in line 1",
        ),
        ({"urlid_offset_history": "5\t0\t[[1, 2]]\n"}, r"crawl 1 of the history"),
        ({"urlid_offset_history": "5\t0\t[[1]]\n"}, r"crawl 1 of the history"),
        ({"urlid_offset_history": "5\t0\t[[NaN, 1]]\n"}, r"crawl 1 of the history"),
        ({"urlid_offset_history": "5\t0\t[]\n5\t0\t[]\n"}, r"has page 5 in more than one line"),
    ],
)
def test_unusable_files(tmp_path: Path, changes: dict[str, str | None], words: str) -> None:
    refused(words, read_bing, write(tmp_path, **changes))


def test_unusable_arguments(tmp_path: Path) -> None:
    refused("is not a folder", read_bing, tmp_path / "no")
    refused("limit is 0", read_bing, write(tmp_path), limit=0)


FIELD = st.sampled_from(
    [
        "5",
        "9",
        "0.5",
        "-1",
        "1e400",
        "nan",
        "",
        "[]",
        "[[1, 1]]",
        "[[0, 1], [2, 0]]",
        "[[1e-200, 1]]",
        "[1]",
        "9" * 30,
    ]
)
LINES = (
    st.lists(st.lists(FIELD, min_size=1, max_size=4).map("\t".join), max_size=3)
    .map("\n".join)
    .map(str.encode)
)


@pytest.mark.exhaustive
@example(b"5\t999999999999999999999999999999\t[[1, 1]]", b"")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES | st.binary(max_size=30), LINES)
def test_any_content_is_a_log_or_one_line(tmp_path: Path, history: bytes, importance: bytes) -> None:
    (tmp_path / "urlid_offset_history.txt").write_bytes(history)
    (tmp_path / "urlid_imp.txt").write_bytes(importance)
    message = "urlid_"
    try:
        assert len(read_bing(tmp_path).log) >= 1
    except SourceDataError as error:
        message = str(error)
    assert "urlid_" in message
    assert "\n" not in message


@SETTINGS
@given(
    damage(b"0\t0.5\t[[1.0, 0], [2.0, 1]]\n1\t0.25\t[[1.5, 1]]\n"),
    st.one_of(damage(b"0\t1.0\n1\t2.0\n"), st.just(b"0\t1.0\n1\t2.0\n")),
)
def test_damaged_files_are_read_or_refused(history: bytes, importance: bytes) -> None:
    names = {"urlid_imp.txt": importance}
    survive(lambda folder: read_bing(folder), "urlid_offset_history.txt", history, **names)

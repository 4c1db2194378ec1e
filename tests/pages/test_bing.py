"""`reproduce.py --bing`: claims on the published data, read from a folder of their documented layout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.pages.measured import module

FOLDER = Path(__file__).parents[2] / "benchmarks" / "reproduce"
N, DAYS = 60, 6
FILES = (
    "urlid_offset_history.txt",
    "urlid_imp.txt",
    "urlid_chrate_compl_obs_hist.txt",
    "url_urlid_hostid.txt",
    "host_hostid_isconstrained.txt",
)


@pytest.fixture(scope="module")
def frame() -> ModuleType:
    return module("reproduce.reproduce")


def write(folder: Path, importance: np.ndarray, rates: np.ndarray) -> Path:
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
    for name, lines in zip(FILES, texts, strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def ran(frame: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "--bing", str(folder)])
    frame.main()


def test_claims_that_need_the_data_are_decided_in_one_table(
    frame: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    importance, rates = rng.uniform(500.0, 1500.0, N), rng.uniform(0.1, 3.0, N)
    importance[5] = 0.0  # left out
    ran(frame, write(tmp_path, importance, rates), monkeypatch)
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


def test_rates_of_silent_pages_are_learnt(frame: ModuleType, tmp_path: Path) -> None:  # noqa: ARG001
    made = module("reproduce.bing")
    rates = np.where(np.arange(N) % 4 == 0, 1.25, np.nan)
    data = made.read_bing(write(tmp_path, np.ones(N), rates))
    sources, left_out = made.pages_of(data, tmp_path)
    assert left_out == 0
    assert sources.signalled.tolist() == (np.arange(N) % 4 == 0).tolist()
    assert set(sources.change_rate[::4].tolist()) == {1.25}
    # Of k changes in six days: k/(e^Δ − 1) + ½/(e^(Δ/2) − 1) = 6 − k + ½.
    d, k = sources.change_rate, np.arange(N) % DAYS
    left = k / np.expm1(d) + 0.5 / np.expm1(0.5 * d)
    np.testing.assert_allclose(left[~sources.signalled], (DAYS - k + 0.5)[~sources.signalled], rtol=1e-9)


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_ends_in_one_line(
    frame: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    write(tmp_path, np.ones(N), np.full(N, 0.5))
    (tmp_path / missing).unlink()
    with pytest.raises(SystemExit) as ended:
        ran(frame, tmp_path, monkeypatch)
    message = str(ended.value)
    assert missing in message
    assert "Unpack" in message
    assert "\n" not in message

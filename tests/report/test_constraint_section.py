"""The page's section of declared constraints: there under its condition, with the summary's numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.report import write_report
from tests.ground_truth.plans import PERIODIC, crawls

TIER = ["<b>gold</b>", "iron"] * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = fo.Target(BinaryFreshness(PERIODIC), at_least=0.5, by=TIER, name="fresh")
    kilobytes = fo.Budget(30.0, cost=[float(k + 1) for k in range(12)], name="kB")
    home = tmp_path_factory.mktemp("plans") / "plan"
    log = fo.CrawlLog(**crawls())
    plan = fo.plan(log, 9.0, 14.0, objective=HarmonicStaleness(PERIODIC), constraints=[kilobytes, target])
    plan.write(home, csv=True)
    return home


def section(page: str) -> str:
    found = re.search(r'<section id="constraints".*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


def test_it_shows_use_limit_and_price(folder: Path) -> None:
    told = section((folder / "report.html").read_text(encoding="utf-8"))
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["constraints"]
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", told)
    assert len(rows) == facts["rows"] == 4
    for row, shown in zip(facts["listed"], rows, strict=True):
        for key in ("used", "limit"):
            assert f'<data value="{row[key]!r}">' in shown
        assert ("at least" if row["at_least"] else "at most") in shown
        assert ("does not bind" in shown) == (row["price"] == 0.0)
        assert row["price"] == 0.0 or f'<data value="{row["price"]!r}">' in shown
    assert f"{facts['binding']} of 4 constraints bind" in told
    assert "fresh[&lt;b&gt;gold&lt;/b&gt;]" in told
    assert "Targets are met if the change rates are as estimated" in told
    assert "constraints.csv" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_summary_without_constraints_has_no_section(folder: Path, tmp_path: Path) -> None:
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for name in ("rates", "change_rates", "schedule"):
        (tmp_path / f"{name}.csv").write_bytes((folder / f"{name}.csv").read_bytes())
    facts["constraints"] = None
    (tmp_path / "summary.json").write_text(json.dumps(facts), encoding="utf-8")
    assert 'id="constraints"' not in write_report(tmp_path).read_text(encoding="utf-8")
    (tmp_path / "constraints.csv").write_bytes((folder / "constraints.csv").read_bytes())
    facts["constraints"] = {"rows": "many"}
    (tmp_path / "summary.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(fo.SourceDataError, match=r"constraints\.rows is 'many', not a whole number"):
        write_report(tmp_path)

"""Settings of a live planner that `freshopt serve` takes, told to a real process and seen over HTTP."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from tests.ground_truth.command_lines import refuse
from tests.live.served import Served, served

PAGES = [f"news/{k}" for k in range(4)] + ["docs/0", "docs/1"]
WISHES = ("--promise", "news/*: always younger than 6h", "--promise", "docs/0: 90% younger than 1d")


def planned(service: Served) -> dict[str, Any]:
    """Return the status after a plan."""
    service.due()
    status: dict[str, Any] = service.client.get("/status").json()
    return status


def test_promises_and_costs_are_kept_until_they_are_ended(tmp_path: Path) -> None:
    limits, costs = tmp_path / "limits.csv", tmp_path / "costs.csv"
    limits.write_text("host,limit\nb.org,20/h\n")
    costs.write_text("source,changed_cost\n" + "".join(f"{page},{3 * k}\n" for k, page in enumerate(PAGES)))
    begun = (
        "--bandwidth",
        "2000/day",
        "--host-limits",
        str(limits),
        "--hours",
        "not 2-3",
        "--objective",
        "delay",
        *WISHES,
    )
    state = tmp_path / "state"
    with served(state, *begun, "--changed-cost", "20") as service:
        service.put(*PAGES[:4], host="a.org")
        service.put(*PAGES[4:], host="b.org")
        told = planned(service)
        assert told["promises"][0].startswith("“news/*: always younger than 6h”")
        assert told["promises"][1].startswith("“docs/0: 90% younger than 1d”")
        assert not told["counted"]
        assert told["used"] <= 2000.0 * (1.0 + 1e-9)
    with fo.Planner(state) as planner:
        settings, problem = planner.settings, planner.solution().problem
        rates = dict(planner.to_frame().select("source", "rate").iter_rows())
    assert (settings.changed_cost, settings.host_limits["b.org"]) == (20.0, 480.0)
    assert settings.hours is not None
    assert min(rates[page] for page in PAGES[:4]) >= 4.0
    assert problem.used_by_source(np.array([rates[page] for page in PAGES]))[4:].sum() <= 480.0 * (1.0 + 1e-9)
    # Costs of each source take the place of one for all; the next start goes on with what was told.
    with served(state, "--source-columns", str(costs)) as service:
        assert len(planned(service)["promises"]) == 3
    with fo.Planner(state) as planner:
        costs_of = np.asarray(planner.solution().problem.sources.changed_cost)
    assert costs_of.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    with served(state, "--no-promise", "--changed-cost", "0") as service:
        told = planned(service)
        assert (told["promises"], told["counted"]) == ([], True)


MODULE = """
import cvxpy as cp, freshopt as fo
class Sized(fo.Objective):
    def per_source(self, rate, sources):
        return cp.multiply(sources["size"], cp.inv_pos(rate))
"""


def test_an_objective_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("servedobjective.py").write_text(MODULE)
    Path("sizes.csv").write_text("source,size\na,1\nb,9\n")
    own = ("-b", "8/day", "--objective", "servedobjective:Sized", "--source-columns", "sizes.csv")
    with served("state", *own) as service:
        service.put("a", "b")
        told = planned(service)
        assert (told["kind"], told["used"]) == ("Sized", pytest.approx(8.0))
        assert told["value"] == pytest.approx(1.0 / 2.0 + 9.0 / 6.0, rel=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--promise", "soon"], "--promise 'soon' cannot be read"),
        (["--promise", "always younger than 1d", "--no-promise"], "Leave one of them out"),
        (["--changed-cost", "-1"], "--changed-cost is -1"),
        (["--changed-cost", "3", "--source-columns", "costs.csv"], "costs.csv has a column changed_cost"),
        (["--hours", "late"], "--hours"),
        (["--host-limits", "costs.csv"], "costs.csv has no column 'host'"),
        (["--features", "none.csv"], "none.csv"),
    ],
)
def test_settings_that_cannot_be_used(here: Path, options: list[str], words: str) -> None:
    Path("costs.csv").write_text("source,changed_cost\na,3\n")
    refuse(here, ["serve", "state", "--bandwidth", "9/day", "--listen", "127.0.0.1:0", *options], [words])

"""Selectors, freshness and crontab of dbt: times against the rates, and names that dbt does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshopt.scheduling.rate_table import read_rates
from freshopt.tools import Dbt
from freshopt.tools.dbt import RUNGS
from tests.ground_truth.cron_rules import CRONIE, load


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_is_as_often_as_its_cron_times(rung: object) -> None:
    assert rung in RUNGS
    own = RUNGS[RUNGS.index(rung)]
    (job,) = load(f"{own.cron} x\n".encode(), CRONIE)
    minutes, hours, days, _, weekdays = job.fields
    per_day = len(minutes) * len(hours)
    share = len(weekdays - {7}) / 7 if not job.stars[4] else 1.0 if job.stars[2] else len(days) / 31
    assert 86_400 / own.seconds == pytest.approx(per_day * share, rel=0.04)
    # A source is late after its longest gap, which is the rung where cron's times are even.
    unit = {"minute": 60, "hour": 3600, "day": 86_400}[own.period]
    assert own.seconds <= own.amount * unit <= 1.15 * own.seconds


def test_sources_of_a_rung_share_a_selector(tmp_path: Path) -> None:
    rates = {
        f"source.shop.raw.{name}": rate for name, rate in (("a", 24.0), ("b", 20.0), ("c", 1.0), ("d", 0.0))
    }
    done = Dbt().write(read_rates(rates), tmp_path)
    assert (done.sources, done.never) == (3, 1)
    # b, 20 times a day, every 72 minutes, is refreshed every 2 hours: 24 + 12 + 1.
    assert done.realised == pytest.approx(37.0, rel=1e-12)
    assert (tmp_path / "crontab").read_text().splitlines() == [
        "7 */1 * * * dbt build --selector freshopt_1h",
        "7 */2 * * * dbt build --selector freshopt_2h",
        "7 3 * * * dbt build --selector freshopt_1d",
    ]
    text = (tmp_path / "sources.yml").read_text()
    assert 'name: "b"\n        config:\n          freshness: {warn_after: {count: 2, period: hour}' in text
    assert "error_after: {count: 4, period: hour}" in text
    assert '"d"' not in text
    assert 'value: "shop.raw.c"' in (tmp_path / "selectors.yml").read_text()

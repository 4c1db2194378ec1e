"""The command line's estimators: every name, every option, and what does not go together."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.estimators import GammaPrior, HostPriors, LawOfLargeNumbers, MaximumLikelihood, Naive
from freshopt.estimators.reset_filter import Resets
from freshopt.logs.last_modified import since_birth
from freshopt.planning.plan import make_plan
from freshopt.planning.request import default_estimate
from freshopt.planning.wishes import Wishes
from freshopt.terminal.estimator_options import ESTIMATORS
from tests.ground_truth.command_lines import Run, refusals, refuse, unwrapped
from tests.ground_truth.strata import matrix

ROWS: dict[str, Any] = {
    "source": ["a"] * 5 + ["b"] * 5 + ["c"] * 2,
    "time": [0, 1, 2, 3, 5, 0, 2, 4, 6, 8, 0, 3],
    "changed": [0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1],
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fo.CrawlLog:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(ROWS).write_csv("log.csv")
    pl.DataFrame({**ROWS, "changes": ROWS["changed"]}).write_csv("counted.csv")
    return fo.CrawlLog(ROWS["source"], ROWS["time"], ROWS["changed"])


def rates(run: Run, *options: str) -> Any:  # noqa: ANN401
    run("estimate", "log.csv", "--out", "rates.csv", "--overwrite", *options)
    return pl.read_csv("rates.csv")["change_rate"].to_numpy()


@matrix(name=list(ESTIMATORS), every=2)
def test_every_name_estimates_and_plans(name: str, log: fo.CrawlLog, run: Run) -> None:  # noqa: ARG001
    given = "counted.csv" if name == "full-observation" else "log.csv"
    run("estimate", given, "--out", "rates.csv", "--estimator", name)
    assert pl.read_csv("rates.csv")["change_rate"].is_finite().all()
    how = ("--bandwidth", "2/day", "--horizon", "7d", "--out", "plan", "--estimator", name, "--draws", "3")
    shown = unwrapped(run("plan", given, *how, "--details").output)
    assert "(3 samples of the change rates)" in shown
    told = json.loads(Path("plan/summary.json").read_text())
    assert told["uncertainty"]["draws"] == 3
    assert told["change_rate"]["estimator"].startswith(ESTIMATORS[name].make.__name__)


@pytest.mark.exhaustive
def test_a_value_outside_of_its_posterior_interval_is_corrected(run: Run) -> None:
    # Staleness is concave in the change rate. With few crawls of a source it is less on average over what the
    # rate may be than at the mean of that, by more than the spread of the total over 300 sources.
    rng, n, crawls = np.random.default_rng(0), 300, 11
    found = rng.random((n, crawls)) < -np.expm1(-0.02 * rng.gamma(2.0, 4.0, n))[:, None]
    time = np.tile(0.02 * np.arange(crawls), n)
    rows = {"source": np.repeat(np.arange(n), crawls), "time": time, "changed": found.ravel().astype(int)}
    pl.DataFrame(rows).write_csv("few.csv")
    how = ("--bandwidth", "20/day", "--horizon", "7d", "--prior", "gamma", "--out", "plan")
    shown = run("plan", "few.csv", *how, "--details").output
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["value"] > facts["uncertainty"]["value_90_percent"][1]
    # The expected value takes that into account, and so does its interval.
    low, high = facts["forecast"]["value_90_percent"]
    assert low < facts["forecast"]["expected"] < facts["uncertainty"]["value_90_percent"][1] < facts["value"]
    assert low < high
    assert "is expected; 90 % interval" in shown
    assert "is expected; 90" in Path("plan/report.html").read_text(encoding="utf-8")


def test_options_reach_the_estimator(log: fo.CrawlLog, run: Run) -> None:
    weak = GammaPrior.weak(log)
    np.testing.assert_allclose(rates(run), MaximumLikelihood(prior=weak).fit(log).change_rate_)
    np.testing.assert_allclose(rates(run, "--prior", "none"), MaximumLikelihood().fit(log).change_rate_)
    np.testing.assert_allclose(rates(run, "--smoothing", "2"), MaximumLikelihood(2.0).fit(log).change_rate_)
    drifting = MaximumLikelihood(prior=weak, half_life=14.0).fit(log).change_rate_
    np.testing.assert_allclose(rates(run, "--half-life", "2w"), drifting)
    resets: dict[str, Resets] = {"0.02": 0.02, "auto": "auto"}
    for written, reset in resets.items():
        anew = MaximumLikelihood(prior=weak, reset=reset).fit(log).change_rate_
        np.testing.assert_allclose(rates(run, "--reset", written), anew)
    prior = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).change_rate_
    np.testing.assert_allclose(rates(run, "--prior", "gamma"), prior)
    naive = Naive(half_life=0.5).fit(log).change_rate_
    np.testing.assert_allclose(rates(run, "--estimator", "naive", "--half-life", "12h"), naive)
    law = LawOfLargeNumbers().fit(log, [4 / 5, 4 / 8, 1 / 3]).change_rate_
    np.testing.assert_allclose(rates(run, "--estimator", "law-of-large-numbers"), law)


def test_resets_are_told(log: fo.CrawlLog, run: Run) -> None:
    assert len(log) == 12
    how = ("estimate", "log.csv", "--out", "rates.csv", "--overwrite")
    assert "each rate is drawn anew once in 50 days" in run(*how, "--reset", "0.02").output
    assert "none: rates last" in run(*how, "--reset", "0").output
    assert "resets" not in run(*how).output


@pytest.mark.exhaustive
def test_a_prior_by_host_needs_the_hosts(log: fo.CrawlLog, run: Run) -> None:
    pl.DataFrame({"source": ["a", "b", "c"], "host": ["x", "y", "y"]}).write_csv("hosts.csv")
    by_host = MaximumLikelihood(prior=HostPriors.from_log(log, ["x", "y", "y"])).fit(log).change_rate_
    np.testing.assert_allclose(rates(run, "--prior", "host", "--hosts", "hosts.csv"), by_host)
    how = ("--bandwidth", "2/day", "--horizon", "7d", "--out", "plan", "--prior", "host")
    run("plan", "log.csv", *how, "--hosts", "hosts.csv")
    np.testing.assert_allclose(pl.read_parquet("plan/change_rates.parquet")["change_rate"], by_host)
    output = run("plan", "log.csv", *how, "--overwrite", code=2).output
    assert "no host can be read from 'a', 'b', 'c': they are no URLs. Give" in output
    assert "--hosts" in output
    output = run("estimate", "log.csv", "--out", "more.csv", "--hosts", "hosts.csv", code=2).output
    assert "--hosts is for --prior host" in output


REFUSED = refusals(
    """
--estimator naive --prior gamma -> --prior is for --estimator maximum-likelihood, not for naive
--estimator momentum-stochastic-approximation --half-life 3d -> --half-life is for --estimator
--estimator moment-matching --smoothing 1 -> --smoothing is for --estimator maximum-likelihood,
--prior gamma --smoothing 1 -> --prior takes the place of --smoothing
--half-life soon -> --half-life: 'soon' cannot be read
--half-life 0d -> --half-life: '0d' is no time > 0
--estimator naive --reset auto -> --reset is for --estimator maximum-likelihood, not for
--reset often -> --reset: 'often' is no rate. Write auto, or resets per day such as 0.01
--reset -1 -> --reset: '-1' is no rate
--reset auto --half-life 3d -> --reset takes the place of --half-life
--reset auto --smoothing 1 -> --reset takes the place of --smoothing
--reset auto --prior none -> --reset needs a prior, from which rates are drawn anew
--estimator full-observation -> Full observation needs all counts
"""
)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_what_does_not_go_together_is_one_line(options: tuple[str, ...], words: tuple[str, ...]) -> None:
    refuse(Path(), ("estimate", "log.csv", "--out", "rates.csv", *options), words)


def test_no_draws_no_uncertainty(log: fo.CrawlLog, run: Run) -> None:  # noqa: ARG001
    how = ("--bandwidth", "2/day", "--horizon", "7d", "--out", "plan", "--draws", "0")
    assert "samples of the change rates" not in run("plan", "log.csv", *how, "--details").output
    assert json.loads(Path("plan/summary.json").read_text())["uncertainty"] is None


def test_a_log_of_many_sources_teaches_its_own_prior(run: Run) -> None:
    rng = np.random.default_rng(8)
    source = np.repeat(np.arange(30), 6)
    changed = rng.random(180) < np.repeat(rng.uniform(0.1, 0.9, 30), 6)
    table = pl.DataFrame(
        {"source": source, "time": np.tile(np.arange(6), 30), "changed": changed.astype(int)}
    )
    table.write_csv("log.csv")
    many = fo.CrawlLog(source, np.tile(np.arange(6.0), 30), changed)
    own = MaximumLikelihood(prior=GammaPrior.from_log(many)).fit(many).change_rate_
    np.testing.assert_allclose(rates(run), own)
    np.testing.assert_allclose(rates(run, "--prior", "none"), MaximumLikelihood().fit(many).change_rate_)
    np.testing.assert_allclose(rates(run, "--smoothing", "1"), MaximumLikelihood(1.0).fit(many).change_rate_)
    table.filter(pl.col("source") < 29).write_csv("log.csv")
    few = fo.CrawlLog(source[:174], np.tile(np.arange(6.0), 29), changed[:174])
    weak = MaximumLikelihood(prior=GammaPrior.weak(few)).fit(few).change_rate_
    np.testing.assert_allclose(rates(run), weak)
    table.with_columns(changed=pl.lit(0)).write_csv("log.csv")  # which tells nothing of how rates are spread
    never = fo.CrawlLog(source, np.tile(np.arange(6.0), 30), np.zeros(180))
    weak = MaximumLikelihood(prior=GammaPrior.weak(never)).fit(never).change_rate_
    np.testing.assert_allclose(rates(run), weak)


@matrix(sources=[1, 4, pytest.param(60, marks=pytest.mark.exhaustive)], dated=[False, True], every=2)
def test_python_and_the_command_line_estimate_alike(sources: int, dated: bool, run: Run) -> None:
    rng = np.random.default_rng(17)
    time = np.tile(np.arange(4.0), sources)
    changed = (rng.random(4 * sources) < 0.3) & (time > 0)
    told = np.where(
        changed, time - rng.random(4 * sources), np.where(time == 0, -9.0 * rng.random(1), np.nan)
    )
    table = {"source": np.repeat(np.arange(sources), 4), "time": time, "changed": changed.astype(int)}
    log = pl.DataFrame(table | ({"last_modified": told} if dated else {})).fill_nan(None)
    log.write_csv("log.csv")
    how = ("--bandwidth", "2/day", "--horizon", "7d", "--draws", "0", "--out", "plan")
    run("plan", "log.csv", *how)
    typed = pl.read_parquet("plan/change_rates.parquet")["change_rate"].to_numpy()
    for given in ("log.csv", log):
        made = fo.plan(given, bandwidth="2/day", horizon="7d", draws=0)
        np.testing.assert_array_equal(made.sources.change_rate, typed)
    request = Wishes(fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC), bandwidth=2.0, horizon=7.0)
    np.testing.assert_array_equal(make_plan(fo.read_log("log.csv"), request).sources.change_rate, typed)
    np.testing.assert_array_equal(rates(run), typed)


def test_births_come_from_a_table_of_sources(run: Run) -> None:
    Path("log.csv").write_text(
        "source,time,changed,last_modified\n"
        'a,2026-01-05,0,"Sun, 04 Jan 2026 00:00:00 GMT"\na,2026-01-06,0,\nb,2026-01-05,0,\nb,2026-01-06,1,\n'
    )
    Path("sources.csv").write_text("source,start\na,2026-01-01\nb,\n")
    how = ("--bandwidth", "2/day", "--horizon", "7d", "--csv", "--out")
    run("plan", "log.csv", *how, "plan", "--sources", "sources.csv")
    log = since_birth(fo.read_log("log.csv"), ["2026-01-01", None])
    assert log.interval[0] == 4.0
    expected = default_estimate(log).change_rate_
    np.testing.assert_allclose(pl.read_csv("plan/change_rates.csv")["change_rate"], expected, rtol=1e-12)
    Path("sources.csv").write_text("source,begin\na,2026-01-01\n")
    assert (
        "has no column 'start'"
        in run("plan", "log.csv", *how, "p", "--sources", "sources.csv", code=2).output
    )
    output = run("plan", "--example", "debian-uploads", *how, "p", "--sources", "sources.csv", code=2).output
    assert "--sources is for LOG" in output

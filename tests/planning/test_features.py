"""Plans with features of sources: new ones are planned for, and all is told."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.estimators import FeaturePriors, MaximumLikelihood

HOSTS = {"fast": 0.4, "slow": 0.02}


def log_and_features() -> tuple[fo.CrawlLog, pl.DataFrame]:
    """Return daily crawls of 40 pages of two hosts, and features of them and two new ones."""
    rng = np.random.default_rng(0)
    names = [f"https://{host}.org/{k}" for host in HOSTS for k in range(20)]
    changed = rng.random((40, 20)) < np.repeat([*HOSTS.values()], 20)[:, None]
    log = fo.CrawlLog(np.repeat(names, 20), np.tile(np.arange(20.0), 40), changed.ravel())
    every = [*names, "https://fast.org/new", "https://slow.org/new"]
    return log, pl.DataFrame({"source": every, "size": np.arange(42) % 5})


@pytest.fixture(scope="module")
def plan() -> fo.Plan:
    log, features = log_and_features()
    return fo.plan(log, features=features, draws=3)


def test_new_sources_are_planned_for_at_the_rates_of_their_like(plan: fo.Plan) -> None:
    frame = plan.to_frame()
    new = frame.filter(pl.col("flag") == "never crawled").sort("source")
    assert new["source"].to_list() == ["https://fast.org/new", "https://slow.org/new"]
    fast, slow = new["change_rate"].to_list()
    own = frame.filter(pl.col("flag") != "never crawled")
    host = own["source"].str.contains("fast")
    means = [np.mean(own.filter(each)["change_rate"].to_numpy()) for each in (host, ~host)]
    np.testing.assert_allclose([fast, slow], means, rtol=0.5)
    assert np.all(new["refreshes"].to_numpy() > 0)
    assert np.all(new["lower"].to_numpy() < new["change_rate"].to_numpy())
    assert plan.solution.status.value == "optimal"
    assert "2 not crawled yet" in " ".join(str(plan).split())
    # Samples are of rates about those that features expect.
    assert plan.uncertainty is not None
    drawn = plan.estimate.draws(200, 0)
    at = [plan.log.names.tolist().index(name) for name in new["source"].to_list()]
    middle = np.median(drawn[:, at], axis=0)
    assert middle[0] > 5.0 * middle[1]


def test_what_features_bring_is_told(plan: fo.Plan, tmp_path: Path) -> None:
    found = plan.summary()["features"]
    assert found["new"] == 2
    assert found["gain"] > 3.0
    assert found["columns"][0]["feature"] == "host"
    assert plan.features is not None
    assert found["sentence"] == plan.features.sentence
    assert "most by 'host'\n2 sources not crawled yet" in found["sentence"]
    plan.write(tmp_path / "plan")
    page = (tmp_path / "plan" / "report.html").read_text()
    assert "How far each feature moves change rates" in page


def test_features_do_not_go_with_another_estimator() -> None:
    log, features = log_and_features()
    with pytest.raises(fo.SourceDataError, match="estimator does not go with features"):
        fo.plan(log, features=features, estimator=MaximumLikelihood())


def signalled() -> tuple[fo.CrawlLog, dict[str, object], np.ndarray]:
    """Return crawls of 80 pages of two hosts, signals of seven changes in ten, false ones, and features."""
    rng = np.random.default_rng(4)
    names = [f"https://{host}.org/{k}" for host in HOSTS for k in range(40)]
    true = np.repeat([*HOSTS.values()], 40) * rng.gamma(8.0, 1.0 / 8.0, 80)
    end = 24.0
    changes = [np.sort(rng.random(rng.poisson(rate * end)) * end) for rate in true]
    heard = [
        np.append(own[rng.random(len(own)) < 0.7], rng.random(rng.poisson(0.05 * end)) * end)
        for own in changes
    ]
    signals = pl.DataFrame(
        {"source": np.repeat(names, [len(own) for own in heard]), "time": np.concatenate(heard)}
    )
    days = np.arange(0.0, end + 1.0, 4.0)
    found = np.array([np.diff(np.searchsorted(own, days), prepend=0) > 0 for own in changes])
    log = fo.CrawlLog(np.repeat(names, len(days)), np.tile(days, 80), found.ravel())
    features = pl.DataFrame({"source": [*names, "https://fast.org/new"], "size": np.arange(81) % 5})

    return log, {"signals": signals, "features": features}, true


def test_features_beside_signals_tell_more_than_either() -> None:
    log, told, true = signalled()
    signals, features = told.values()

    made = fo.plan(log, draws=0, signals=signals, features=features)

    def missed(made: fo.Plan) -> float:
        rates = dict(made.to_frame().select("source", "change_rate").iter_rows())
        assert made.solution.status is fo.Status.OPTIMAL
        found = np.array([rates[f"https://{host}.org/{k}"] for host in HOSTS for k in range(40)])
        return float(np.sqrt(np.mean(np.log(found / true) ** 2)))

    assert missed(made) < 0.95 * missed(fo.plan(log, draws=0, signals=signals))
    assert missed(made) < 0.95 * missed(fo.plan(log, draws=0, features=features))
    new = made.to_frame().filter(pl.col("flag") == "never crawled")
    assert new["source"].to_list() == ["https://fast.org/new"]
    assert 0.2 < new["change_rate"][0] < 0.8
    assert made.features is not None
    assert "most by 'host'" in made.summary()["features"]["sentence"]
    assert "signals" in made.summary()


@pytest.mark.exhaustive
def test_a_back_test_learns_from_signals_and_features() -> None:
    log, told, _ = signalled()
    tested = fo.backtest(log, **told, splits=1, every="6d")  # type: ignore[arg-type]
    assert {"with signals", "re-planned with signals"} <= {row.policy for row in tested.rows}


def test_a_back_test_learns_from_features_before_each_window() -> None:
    log, features = log_and_features()
    found = fo.backtest(log, features=features, splits=1)
    assert found.sources == 40
    plain = fo.backtest(log, splits=1)
    assert found.means[0].realised != plain.means[0].realised


def test_urls_alone_are_features() -> None:
    log, _ = log_and_features()
    plan = fo.plan(log, features="url", draws=0)
    assert isinstance(plan.estimate, MaximumLikelihood)
    assert isinstance(plan.estimate.prior, FeaturePriors)
    assert plan.estimate.prior.spread.keys() == {"host"}
    numbers = fo.CrawlLog([1, 1, 2, 2], [0.0, 1.0] * 2, [0, 1] * 2)
    with pytest.raises(fo.FreshoptError, match="url as features tells no source from another"):
        fo.plan(numbers, features="url")

"""The prior of rates that are drawn anew: recovered from simulated resets, the usual one without."""

from __future__ import annotations

import numpy as np
import pytest

from freshopt.errors import SourceDataError
from freshopt.estimators import GammaPrior, MaximumLikelihood, resetting_prior
from freshopt.estimators.default_prior import default_prior, in_windows
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.resetting_sources import resetting_log


@pytest.mark.exhaustive
@pytest.mark.parametrize("days", [50.0, 150.0])
def test_shape_mean_and_resets_are_recovered(days: float) -> None:
    """Bands set before the run: the mean within 20 %, resets and shape within a factor of 2."""
    log, rate = resetting_log(250, 700.0, 7.0, 1.0 / days, 0.6, 20.0, seed=11)
    prior, averaged = resetting_prior(log), GammaPrior.from_log(log)
    assert averaged.shape > 1.8
    assert 0.3 < prior.shape < 1.2
    assert prior.shape / prior.exposure == pytest.approx(0.03, rel=0.2)
    model, before = (MaximumLikelihood(prior=each, reset="auto").fit(log) for each in (prior, averaged))
    assert model.reset_ is not None
    assert 0.5 < model.reset_ * days < 2.0
    lasting = MaximumLikelihood(prior=averaged).fit(log).change_rate_
    rmse = [
        np.sqrt(np.mean((each - rate) ** 2)) for each in (model.change_rate_, before.change_rate_, lasting)
    ]
    assert rmse[0] < rmse[1] < rmse[2]
    assert default_prior(log, "auto") == prior


@pytest.mark.exhaustive
def test_a_given_rate_sets_the_windows() -> None:
    log, _ = resetting_log(250, 700.0, 7.0, 1.0 / 50.0, 0.6, 20.0, seed=12)
    assert 0.3 < resetting_prior(log, 0.02).shape < 1.2
    assert resetting_prior(log, 0.0) == GammaPrior.from_log(log)


def test_rates_that_last_have_the_usual_prior() -> None:
    log, _ = resetting_log(200, 350.0, 7.0, 0.0, 0.6, 20.0, seed=13)
    usual, own = GammaPrior.from_log(log), resetting_prior(log)
    assert own.shape == pytest.approx(usual.shape, rel=0.15)
    assert own.shape / own.exposure == pytest.approx(usual.shape / usual.exposure, rel=0.1)


def test_windows_keep_all_that_crawls_tell() -> None:
    log = CrawlLog(
        ["a"] * 4 + ["b"] * 2,
        [5.0, 6.0, 9.0, 16.0, 5.0, 25.0],
        [0, 1, 0, 1, 0, 1],
        changes=[np.nan, 3.0, 0.0, np.nan, np.nan, np.nan],
        last_modified=[np.nan, np.nan, np.nan, 14.0, np.nan, np.nan],
    )
    cut = in_windows(log, 5.0)
    assert len(cut.sources_) == 3
    assert cut.interval.tolist() == [1.0, 3.0, 2.0, 20.0]
    assert cut.changed.tolist() == [True, False, True, True]
    np.testing.assert_equal(cut.changes, [3.0, 0.0, 1.0, np.nan])


def test_logs_that_tell_nothing_are_refused() -> None:
    log = CrawlLog([0] * 3, [0.0, 1.0, 2.0], [0, 0, 0])
    with pytest.raises(SourceDataError, match="no source changed in this log"):
        resetting_prior(log)
    with pytest.raises(SourceDataError, match="reset is 'often'"):
        resetting_prior(log, "often")  # type: ignore[arg-type]

"""Estimators of the command line and their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.estimators.changes_per_time import FullObservation, Naive
from freshopt.estimators.default_prior import MANY, default_prior, resetting_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.estimators.host_prior import HostPriors
from freshopt.estimators.known_crawl_rate import LawOfLargeNumbers
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.estimators.moment_matching import MomentMatching
from freshopt.estimators.stochastic_approximation import (
    MomentumStochasticApproximation,
    StochasticApproximation,
)
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import LARGEST
from freshopt.terminal.commands import OneOf, not_for
from freshopt.terminal.wish_options import option_of, own_option, table_options
from freshopt.units import convert_time, duration_of

DEFAULT = "maximum-likelihood"


@dataclass(frozen=True, slots=True)
class Named:
    """A named estimator with its options."""

    make: Callable[..., Any]
    uses: tuple[str, ...] = ()
    needs_crawl_rate: bool = False


ESTIMATORS: dict[str, Named] = {
    DEFAULT: Named(MaximumLikelihood, ("smoothing", "prior", "half_life", "reset")),
    "moment-matching": Named(MomentMatching, ("half_life",)),
    "full-observation": Named(FullObservation, ("smoothing", "half_life")),
    "naive": Named(Naive, ("half_life",)),
    "law-of-large-numbers": Named(LawOfLargeNumbers, ("half_life",), needs_crawl_rate=True),
    "stochastic-approximation": Named(StochasticApproximation, needs_crawl_rate=True),
    "momentum-stochastic-approximation": Named(MomentumStochasticApproximation, needs_crawl_rate=True),
}
PRIORS = ("gamma", "host", "none")
Hosts: TypeAlias = Callable[[Any], npt.NDArray[Any]]  # of an array of names


@dataclass(frozen=True, slots=True)
class Estimation:
    """The estimator that the options ask for."""

    estimator: str = own_option(
        DEFAULT,
        type=OneOf(list(ESTIMATORS)),
        metavar="NAME",
        help=f"Estimator of the change rates: {', '.join(ESTIMATORS)}.",
    )
    smoothing: float | None = own_option(
        help="Length of a pseudo-observation added to each source, in days (default: none where there "
        "is a prior).",
    )
    half_life: str | None = own_option(
        metavar="TIME",
        help="Age at which a crawl counts half, such as 30d (default: none). For rates that drift, "
        "--reset is better.",
    )
    reset: str | None = own_option(
        metavar="auto|RATE",
        help="Let change rates jump this often per day; older crawls then count less. auto finds how "
        "often (default: rates last).",
    )
    prior: str | None = own_option(
        type=OneOf(PRIORS),
        help="What rarely crawled sources are taken for: gamma, like all others (the default of "
        f"maximum-likelihood; weak below {MANY} sources); host, like those of their host; none.",
    )
    time_unit: str = "day"
    settings: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        given: dict[str, Any] = {"smoothing": self.smoothing, "prior": self.prior, "half_life": None}
        given["reset"] = None if self.reset is None else _resets(self.reset)
        if self.half_life is not None:
            length = duration_of("--half-life", self.half_life, self.time_unit)
            given["half_life"] = convert_time(length, self.time_unit, "day")
        settings = self.settings
        settings |= {key: value for key, value in given.items() if value is not None}
        for key in settings:
            if key not in ESTIMATORS[self.estimator].uses:
                owners = [other for other, named in ESTIMATORS.items() if key in named.uses]
                raise SourceDataError(not_for(option_of(key), owners, self.estimator, "--estimator"))
        if settings.get("prior", "none") != "none" and "smoothing" in settings:
            raise SourceDataError("--prior takes the place of --smoothing. Leave one of them out.")
        if "reset" in settings:
            _check_resets(settings)

    @property
    def by_host(self) -> bool:
        """Whether the hosts of the sources are asked for."""
        return self.settings.get("prior") == "host"

    @property
    def is_default(self) -> bool:
        """Whether nothing but the default is asked for."""
        return self.estimator == DEFAULT and not self.settings

    def fit(self, log: CrawlLog, hosts: Hosts | None = None) -> Estimator:
        """Return the estimator fitted to a log, with its crawl rates."""
        named, settings = ESTIMATORS[self.estimator], dict(self.settings)
        if settings.get("prior") == "none":
            del settings["prior"]
        elif "prior" in settings:
            settings["prior"] = self._prior(log, hosts)
        elif self.estimator == DEFAULT and "smoothing" not in settings:
            settings["prior"] = default_prior(log, settings.get("reset"))
        rated = (log.crawl_rate,) if named.needs_crawl_rate else ()
        fitted: Estimator = named.make(**settings).fit(log, *rated)
        return fitted

    def _prior(self, log: CrawlLog, hosts: Hosts | None) -> GammaPrior | HostPriors:
        if not self.by_host:
            reset = self.settings.get("reset")
            return GammaPrior.from_log(log) if reset is None else resetting_prior(log, reset)
        if hosts is None:
            raise SourceDataError(
                "--prior host needs --hosts FILE, a table with columns source, host. Give it."
            )
        return HostPriors.from_log(log, hosts(log.names))


def _resets(text: str) -> float | str:
    """Return resets per day as they are written, or "auto"."""
    if text == "auto":
        return text
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate <= LARGEST:
        raise SourceDataError(f"--reset: {text!r} is no rate. Write auto, or resets per day such as 0.01.")
    return rate


def _check_resets(settings: dict[str, Any]) -> None:
    """Raise if other settings exclude resets."""
    for key in ("smoothing", "half_life"):
        if key in settings:
            raise SourceDataError(f"--reset takes the place of {option_of(key)}. Leave one of them out.")
    if settings.get("prior") == "none":
        raise SourceDataError("--reset needs a prior, from which rates are drawn anew. Leave --prior out.")


estimation_options = table_options("estimation", Estimation, ("time_unit", "settings"))

"""Estimators of the command line and their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import click
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
from freshopt.terminal.commands import OneOf
from freshopt.terminal.options import Decorator, bundled
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

    name: str
    settings: dict[str, Any]

    @classmethod
    def of(
        cls,
        estimator: str,
        smoothing: float | None,
        half_life: str | None,
        prior: str | None,
        reset: str | None,
        time_unit: str,
    ) -> Estimation:
        """Check that the options go with the estimator."""
        given: dict[str, Any] = {"smoothing": smoothing, "prior": prior, "half_life": None}
        given["reset"] = None if reset is None else _resets(reset)
        if half_life is not None:
            given["half_life"] = convert_time(
                duration_of("--half-life", half_life, time_unit), time_unit, "day"
            )
        settings = {key: value for key, value in given.items() if value is not None}
        for key in settings:
            if key not in ESTIMATORS[estimator].uses:
                owners = ", ".join(other for other, named in ESTIMATORS.items() if key in named.uses)
                option = "--" + key.replace("_", "-")
                raise SourceDataError(
                    f"{option} is for --estimator {owners}, not for {estimator}. Leave it out."
                )
        if settings.get("prior", "none") != "none" and "smoothing" in settings:
            raise SourceDataError("--prior takes the place of --smoothing. Leave one of them out.")
        if "reset" in settings:
            _check_resets(settings)
        return cls(estimator, settings)

    @property
    def by_host(self) -> bool:
        """Whether the hosts of the sources are asked for."""
        return self.settings.get("prior") == "host"

    @property
    def is_default(self) -> bool:
        """Whether nothing but the default is asked for."""
        return self.name == DEFAULT and not self.settings

    def fit(self, log: CrawlLog, hosts: Hosts | None = None) -> Estimator:
        """Return the estimator fitted to a log, with its crawl rates."""
        named, settings = ESTIMATORS[self.name], dict(self.settings)
        if settings.get("prior") == "none":
            del settings["prior"]
        elif "prior" in settings:
            settings["prior"] = self._prior(log, hosts)
        elif self.name == DEFAULT and "smoothing" not in settings:
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
            option = "--" + key.replace("_", "-")
            raise SourceDataError(f"--reset takes the place of {option}. Leave one of them out.")
    if settings.get("prior") == "none":
        raise SourceDataError("--reset needs a prior, from which rates are drawn anew. Leave --prior out.")


_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--estimator",
        type=OneOf(list(ESTIMATORS)),
        metavar="NAME",
        default=DEFAULT,
        show_default=True,
        help=f"Estimator of the change rates: {', '.join(ESTIMATORS)}.",
    ),
    click.option(
        "--smoothing",
        type=float,
        help="Length of a pseudo-observation added to each source, in days (default: none where there "
        "is a prior).",
    ),
    click.option(
        "--half-life",
        metavar="TIME",
        help="Age at which a crawl counts half, such as 30d (default: none). For rates that drift, "
        "--reset is better.",
    ),
    click.option(
        "--reset",
        metavar="auto|RATE",
        help="Let change rates jump this often per day; older crawls then count less. auto finds how "
        "often (default: rates last).",
    ),
    click.option(
        "--prior",
        type=OneOf(PRIORS),
        help="What rarely crawled sources are taken for: gamma, like all others (the default of "
        f"maximum-likelihood; weak below {MANY} sources); host, like those of their host; none.",
    ),
)


estimation_options = bundled("estimation", _OPTIONS, Estimation.of)

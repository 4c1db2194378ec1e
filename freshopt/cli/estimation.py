"""How the command line estimates change rates: the names of estimators, and the options of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

import click
import numpy as np
import numpy.typing as npt

from freshopt.cli import inputs
from freshopt.cli.options import Decorator
from freshopt.errors import SourceDataError
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.estimator import Estimator
from freshopt.learning.evidence import Observed
from freshopt.learning.full_observation import FullObservation
from freshopt.learning.gamma_prior import GammaPrior
from freshopt.learning.host_priors import HostPriors
from freshopt.learning.law_of_large_numbers import LawOfLargeNumbers
from freshopt.learning.maximum_likelihood import MaximumLikelihood
from freshopt.learning.moment_matching import MomentMatching
from freshopt.learning.momentum_stochastic_approximation import MomentumStochasticApproximation
from freshopt.learning.naive import Naive
from freshopt.learning.stochastic_approximation import StochasticApproximation
from freshopt.units import convert_time

DEFAULT = "maximum-likelihood"


@dataclass(frozen=True, slots=True)
class Named:
    """An estimator as the command line knows it."""

    make: Callable[..., Any]
    words: str
    uses: tuple[str, ...] = ()
    needs_crawl_rate: bool = False


ESTIMATORS: dict[str, Named] = {
    DEFAULT: Named(MaximumLikelihood, "right for gaps of any kind", ("smoothing", "prior", "half_life")),
    "moment-matching": Named(MomentMatching, "right for gaps of any kind", ("half_life",)),
    "full-observation": Named(FullObservation, "for logs with counted changes", ("smoothing", "half_life")),
    "naive": Named(Naive, "changes found per time, too small", ("half_life",)),
    "law-of-large-numbers": Named(
        LawOfLargeNumbers, "right for random gaps only", ("half_life",), needs_crawl_rate=True
    ),
    "stochastic-approximation": Named(
        StochasticApproximation, "right for random gaps only", needs_crawl_rate=True
    ),
    "momentum-stochastic-approximation": Named(
        MomentumStochasticApproximation, "right for random gaps only", needs_crawl_rate=True
    ),
}
PRIORS = ("gamma", "host", "none")
MANY = 30  # sources from which a prior of two numbers is learnt unasked
Hosts: TypeAlias = Callable[[Any], npt.NDArray[Any]]  # of an array of names


@dataclass(frozen=True, slots=True)
class Estimation:
    """The estimator that the options ask for.

    Parameters
    ----------
    name : str
        Of `ESTIMATORS`.
    settings : dict
        What was given of smoothing (days), half_life (days) and prior (of `PRIORS`).
    """

    name: str
    settings: dict[str, Any]

    @classmethod
    def of(
        cls, name: str, smoothing: float | None, half_life: str | None, prior: str | None, time_unit: str
    ) -> Estimation:
        """Check that the options go with the estimator.

        Raises
        ------
        SourceDataError
            If one does not, or the half-life is none.
        """
        given: dict[str, Any] = {"smoothing": smoothing, "prior": prior, "half_life": None}
        if half_life is not None:
            given["half_life"] = convert_time(
                inputs.duration_of("--half-life", half_life, time_unit), time_unit, "day"
            )
        settings = {key: value for key, value in given.items() if value is not None}
        for key in settings:
            if key not in ESTIMATORS[name].uses:
                owners = ", ".join(other for other, named in ESTIMATORS.items() if key in named.uses)
                option = "--" + key.replace("_", "-")
                raise SourceDataError(f"{option} is for --estimator {owners}, not for {name}. Leave it out.")
        if settings.get("prior", "none") != "none" and "smoothing" in settings:
            raise SourceDataError("--prior takes the place of --smoothing. Leave one of them out.")
        return cls(name, settings)

    @property
    def by_host(self) -> bool:
        """Whether the hosts of the sources are asked for."""
        return self.settings.get("prior") == "host"

    def fit(self, log: CrawlLog, hosts: Hosts | None = None) -> Estimator:
        """Return the estimator, fitted; crawl rates are those of the log, per source.

        Raises
        ------
        SourceDataError
            If the log or the hosts cannot be used.
        """
        named, settings = ESTIMATORS[self.name], dict(self.settings)
        if settings.get("prior") == "none":
            del settings["prior"]
        elif "prior" in settings:
            settings["prior"] = self._prior(log, hosts)
        elif self.name == DEFAULT and "smoothing" not in settings and _tells_a_prior(log):
            settings["prior"] = GammaPrior.of(log)
        rated = (log.crawl_rate,) if named.needs_crawl_rate else ()
        fitted: Estimator = named.make(**settings).fit(log, *rated)
        return fitted

    def _prior(self, log: CrawlLog, hosts: Hosts | None) -> GammaPrior | HostPriors:
        if not self.by_host:
            return GammaPrior.of(log)
        if hosts is None:
            raise SourceDataError(
                "--prior host needs --hosts FILE, a table with columns source, host. Give it."
            )
        return HostPriors.of(log, hosts(log.sources_))


def _tells_a_prior(log: CrawlLog) -> bool:
    """Tell whether a log has sources enough to learn how rates are spread, with changes and without."""
    rows = Observed.of(log)
    found = int(np.sum(rows.found))
    return int(np.count_nonzero(rows.crawls)) >= MANY and 0 < found < len(rows.row)


_EXPLAINED = "; ".join(f"{name}: {named.words}" for name, named in ESTIMATORS.items())
_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--estimator",
        type=click.Choice(list(ESTIMATORS)),
        metavar="NAME",
        default=DEFAULT,
        show_default=True,
        help=f"How change rates are learnt. {_EXPLAINED}.",
    ),
    click.option(
        "--smoothing",
        type=float,
        help="Imaginary observation of each source, in days; 0 for none. 0.5 where there is no prior.",
    ),
    click.option(
        "--half-life",
        metavar="TIME",
        help="Age at which a crawl counts half, such as 30d, for change rates that drift.",
    ),
    click.option(
        "--prior",
        type=click.Choice(PRIORS),
        help="Learn how rates are spread, for sources that were crawled rarely: over all sources (gamma; the "
        f"default for maximum-likelihood and {MANY} sources or more), or over those of each host (host, with "
        "--hosts); or none.",
    ),
)


def estimation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets one argument `estimation` in place of them."""

    @wraps(command)
    def with_estimation(**arguments: Any) -> Any:  # noqa: ANN401 - as in click
        name, smoothing, half_life, prior = (
            arguments.pop(key) for key in ("estimator", "smoothing", "half_life", "prior")
        )
        estimation = Estimation.of(name, smoothing, half_life, prior, arguments["time_unit"])
        return command(estimation=estimation, **arguments)

    wrapped: Callable[..., Any] = with_estimation
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped

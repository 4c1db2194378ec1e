"""What does not go together among the wishes of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from freshopt.errors import SourceDataError


class Clash(NamedTuple):
    """What one wish does not go with, or not without.

    `first` excludes each of the others, or `needs` one of them. Names beside those of wishes are options of
    the command line, as they are written.
    """

    first: str
    others: tuple[str, ...]
    words: str
    needs: bool = False


ON_REQUEST, DASK, LEARNT = "--refresh on-request", "--engine dask", "a learnt change model"
# Any wish that lifetimes do not take.
OF_TIMES = "a wish of refresh times"
# What those that are of the other discipline are told: plans of times, and of lifetimes.
DISCIPLINES = {
    False: "copies that are refreshed on request, which have lifetimes and no schedule. Use "
    "freshopt.plan_lifetimes with a log of the requests.",
    True: "{} refreshes, and lifetimes are of copies that are refreshed on request. Pass "
    "refresh=Refresh.ON_REQUEST, or use freshopt.plan.",
}
CLASHES = (
    Clash(
        ON_REQUEST,
        (OF_TIMES, "constraints", "--source-columns", "--replay", "--every", "--crawls", "--scheduler", DASK),
        "{1} does not go with {0}, whose copies have lifetimes and no schedule. Leave it out.",
    ),
    Clash(
        ON_REQUEST,
        ("freshness as today",),
        "a log of fetches does not tell the lifetimes of today, nor the freshness that they give. Pass "
        "freshness such as 0.99.",
    ),
    *(
        Clash(
            first,
            (ON_REQUEST,),
            "--requests, --format and --stale-while-revalidate are for freshopt lifetimes. Use that.",
            needs=True,
        )
        for first in ("--requests", "--format", "stale_while_revalidate")
    ),
    Clash("freshness", ("bandwidth",), "{0} stands in place of {1}. Leave one of them out."),
    Clash(
        "freshness",
        ("constraints",),
        "{0} alone finds the bandwidth, and does not go with {1}. Leave one out, or ask for targets among "
        "constraints: Target(BinaryFreshness(), at_least=...) with Spend() as objective, or --target 99% "
        "--cheapest.",
    ),
    Clash(
        "freshness",
        ("other objective",),
        "{0} finds the least bandwidth by planning for BinaryFreshness, and the objective is {1}. Leave it "
        "out, or pass a bandwidth.",
    ),
    Clash("freshness", (DASK,), "{0} is for --engine memory. Say --target 99% --cheapest there."),
    Clash(
        "changed_cost",
        ("constraints", "freshness", "max_churn", "signals", "--load-limit above 1", DASK),
        "{1} does not go with {0}, which is planned for under bandwidth, bounds and host limits alone. Leave "
        "one of them out.",
    ),
    Clash(
        "signals",
        ("--estimator", "--smoothing", "--half-life", "--reset", "--prior", "success", "statuses", DASK),
        "{1} does not go with {0}, from which change rates are learnt, too. Leave one of them out.",
    ),
    Clash(
        "features",
        ("estimator", "--estimator", "--smoothing", "--half-life", "--reset", "--prior"),
        "{1} does not go with {0}, which are the prior of maximum likelihood. Leave one of them out.",
    ),
    Clash(
        LEARNT,
        ("signals", "changed_cost"),
        "{1} does not go with {0}, as what it costs is derived for Poisson changes. Leave one of them out.",
    ),
    Clash("promise", ("signals", DASK), "{0} does not go with {1}. Leave one of them out."),
    Clash(
        "hours",
        ("signals", "--replay", DASK),
        "{0} does not go with {1}, which knows no closed hours. Leave one of them out.",
    ),
    Clash("max_churn", ("compare",), "{0} limits changes of earlier rates. Add {1}.", needs=True),
    *(
        Clash(first, ("constraints",), "{1} does not go with {0}, which " + why + ". Leave it out.")
        for first, why in (
            ("max_churn", "chooses within one bandwidth"),
            ("--replay", "compares rates within one bandwidth"),
        )
    ),
    Clash("--json", ("--details", "--quiet"), "{0} stands in place of {1}. Leave one of them out."),
    Clash("--quiet", ("--details",), "{0} stands in place of {1}. Leave one of them out."),
    Clash("min_interval", ("max_rate",), "{0} is a largest rate, and so is {1}. Leave one of them out."),
    Clash("max_interval", ("min_rate",), "{0} is a least rate, and so is {1}. Leave one of them out."),
    Clash("statuses", ("success",), "{0} stand in place of {1}, which they tell. Pass one of them."),
    Clash(
        DASK,
        (
            "--replay",
            "--every",
            "--crawls",
            "compare",
            "retry_at_once",
            "load_limit",
            "host_gap",
            "limits",
            "change_model",
        ),
        "{1} is for --engine memory. Leave it out.",
    ),
    Clash(
        DASK,
        ("bandwidth", "constraints"),
        "with {0} nothing tells the bandwidth of the log's own crawls. Pass --bandwidth, such as 200/day.",
        needs=True,
    ),
    Clash("--scheduler", (DASK,), "{0} is for {1}. Add that, or leave it out.", needs=True),
    Clash(
        "--host-limits of partitions",
        ("hosts",),
        "--host-limits needs --hosts with --engine dask. Give both or neither.",
        needs=True,
    ),
    Clash(
        "--hosts",
        ("host_limits", "host_gap", "--prior host", "constraints"),
        "--hosts is for --host-limits, --host-gap, --prior host and constraints. Give one.",
        needs=True,
    ),
    Clash(
        "--source-columns",
        ("constraints", "changed_cost", "own objective"),
        "--source-columns is for --budget, --nested, --target and your own objective, or has the column "
        "changed_cost. Give one of these, or leave it out.",
        needs=True,
    ),
    *(
        Clash(
            first, (other,), "--nested and --nested-limits need each other. Give both or neither.", needs=True
        )
        for first, other in (("--nested", "--nested-limits"), ("--nested-limits", "--nested"))
    ),
    Clash("--cheapest", ("--objective",), "{0} stands in place of {1}. Leave one of them out."),
    Clash(
        "--cheapest",
        ("--target",),
        "{0} has no target, and without one no refresh is needed. Add such as --target 95%.",
        needs=True,
    ),
)


def refuse_clashes(
    given: Collection[str],
    say: Callable[[str], str] = str,
    error: Callable[[str], Exception] = SourceDataError,
) -> None:
    """Raise if what is given, as `say` calls it, clashes."""
    for clash in CLASHES if given else ():
        if clash.first not in given:
            continue
        there = [name for name in clash.others if name in given]
        if bool(there) != clash.needs:
            other = clash.others[0] if clash.needs else there[0]
            raise error(clash.words.format(say(clash.first), say(other)))

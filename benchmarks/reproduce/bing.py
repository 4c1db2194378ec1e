"""Claims of LambdaCrawl decided on the published Bing data.

    python -m benchmarks bing --data FOLDER [--pages N]

FOLDER holds the five files that https://github.com/microsoft/Optimal-Freshness-Crawl-Scheduling describes, as
`read_bing.py` reads them. As in section 7 of the paper, change rates of silent pages are estimated from their
whole histories by Eq 10, with the half day of Algorithm 4 so that they are finite; signalled pages have
theirs from the data, and pages of no importance are left out. The claims, their bands and their statistics
are those of ``claims/lambdacrawl.toml``; Figure 3 needs no histories and is decided on the stand-in only.
--pages reads the first pages of the histories: all of them take some 20 µs a page, and 9 bytes a crawl,
sorting apart.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import freshopt as fo
from benchmarks.harness import Measurement, Row
from benchmarks.reproduce.claims import FAILS, Claim, Finding, Table
from benchmarks.reproduce.lambdacrawl_figures import FLOORS, Policies, by_floor, figure_1, figure_2, policies
from benchmarks.reproduce.read_bing import BingData, read_bing
from benchmarks.reproduce.reproduce import HEADINGS, counts, line
from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators import MaximumLikelihood

# What the claims need beside the histories and importances, which `read_bing` asks for itself.
ANNOUNCED = "urlid_chrate_compl_obs_hist"
HOSTS = ("url_urlid_hostid", "host_hostid_isconstrained")
# The paper's own numbers on these data; on a stand-in that was fitted to such numbers they are our addition.
FITTED = ("uc-harmonic", "uc-binary", "cc-harmonic", "cc-binary")


def decided(data: Path | None = None, pages: int = 0) -> list[Row]:
    """Read the data, decide, and print one table; a file that is missing ends in one line."""
    if data is None:
        raise SystemExit("--data is needed: the folder of the five files")
    try:
        read = read_bing(data, pages or None)
        sources, left_out = pages_of(read, data)
    except FreshoptError as error:
        raise SystemExit(str(error)) from None
    print(about(sources, left_out))
    found, ahead = policies(sources), by_floor(sources)
    print(bars(found))
    below = (f"{x:.1%} at {floor:g}" for floor, x in zip(FLOORS, ahead, strict=True))
    print(f"J_h of LC below that of BLCε, by ε as a share of the mean rate: {', '.join(below)}\n")
    print(" | ".join(HEADINGS))
    told = list(findings(figure_1(found) | figure_2(sources)))
    for each in told:
        print(line(each))
    print(f"{counts(told)} on these data")
    for each in told:
        if each.verdict == FAILS:
            print(f"  {each.verdict}: {each.claim.place}: {each.claim.claim}: {each.estimate:.4g}")
    return [each.record() for each in told]


def pages_of(data: BingData, folder: Path) -> tuple[fo.Sources, int]:
    """Return the pages as sources, and how many of no importance are left out."""
    missing = "no page announces its changes"
    if np.isnan(data.announced_rate).all():
        raise SourceDataError(
            f"{folder} has no {ANNOUNCED}.txt with any of these pages: {missing}. Unpack the file there."
        )
    for name, column in zip(HOSTS, (data.host, data.constrained_hosts), strict=True):
        if column is None:
            raise SourceDataError(
                f"{folder} has no file {name}.txt. Unpack all five files of the data set there."
            )
    sources = data.sources(MaximumLikelihood(smoothing=0.5).fit(data.log).change_rate_)
    important = sources.importance > 0.0
    if not (important & sources.signalled).any():
        raise SourceDataError(f"{folder}: of the pages of some importance {missing}. Read more pages.")
    rates = (sources.change_rate[important], sources.importance[important])
    kept = fo.Sources(*rates, signalled=sources.signalled[important])
    return kept, int(np.count_nonzero(~important))


def about(sources: fo.Sources, left_out: int) -> str:
    """Return a line on the data."""
    n, share = len(sources), float(np.mean(sources.signalled))
    return (
        f"{n:,} pages, {share:.1%} of them signalled, {left_out:,} of no importance left out; on average "
        f"{sources.change_rate.mean():.4g} changes a day and an importance of {sources.importance.mean():.4g}"
    )


def bars(found: Policies) -> str:
    """Return the bars of Figure 1."""
    return "\n".join(
        f"{name:10} J_h {each.harmonic:10.5g}   J_b {each.binary:10.5g}" for name, each in found.costs.items()
    )


def of_data(claim: Claim) -> Claim:
    """Return a claim as the paper has it, without the stand-in's name."""
    text = re.sub(r"^the stand-in meets the (\d+) that (\w+) costs", r"\2 costs \1", claim.claim)
    return replace(claim, claim=text.removesuffix(", first stand-in"), kind="exact", runs=1)


def findings(measured: dict[str, float]) -> Iterator[Finding]:
    """Yield the findings of the paper's claims that these data decide, in the order of the table."""
    for each in Table.read("lambdacrawl").claims.values():
        if each.id in measured and (each.origin != "own" or each.id in FITTED):
            claim, x = of_data(each), measured[each.id]
            yield Finding(claim, x, x, x, 1, claim)


BENCH = Measurement({"findings": decided})

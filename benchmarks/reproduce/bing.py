"""Claims of LambdaCrawl decided on the published Bing data, by `reproduce.py --bing FOLDER`.

    python -m benchmarks reproduce --bing FOLDER [--pages N]

FOLDER holds the five files that https://github.com/microsoft/Optimal-Freshness-Crawl-Scheduling describes, as
`read_bing.py` reads them. As in section 7 of the paper, change rates of silent pages are estimated from their
whole histories by Eq 10, with the half day of Algorithm 4 so that they are finite; signalled pages have
theirs from the data, and pages of no importance are left out. The claims, their bands and their statistics
are those of ``claims/lambdacrawl.toml``; Figure 3 needs no histories and is decided on the stand-in only.
--pages reads the first pages of the histories: all of them take some 20 µs a page, and 9 bytes a crawl,
sorting apart.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

import freshopt as fo
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


def main(folder: Path, pages: int | None = None) -> None:
    """Read the data, decide, and print one table; a file that is missing ends in one line."""
    try:
        data = read_bing(folder, pages)
        sources, left_out = pages_of(data, folder)
    except FreshoptError as error:
        raise SystemExit(str(error)) from None
    print(about(sources, left_out))
    found, ahead = policies(sources), by_floor(sources)
    print(bars(found))
    below = (f"{x:.1%} at {floor:g}" for floor, x in zip(FLOORS, ahead, strict=True))
    print(f"J_h of LC below that of BLCε, by ε as a share of the mean rate: {', '.join(below)}\n")
    print(" | ".join(HEADINGS))
    decided = findings(figure_1(found) | figure_2(sources))
    for each in decided:
        print(line(each))
    print(f"{counts(decided)} on these data")
    for each in decided:
        if each.verdict == FAILS:
            print(f"  {each.verdict}: {each.claim.place}: {each.claim.claim}: {each.estimate:.4g}")


def pages_of(data: BingData, folder: Path) -> tuple[fo.Sources, int]:
    """Return the pages as sources, and how many of no importance are left out."""
    missing = "no page announces its changes"
    if np.isnan(data.announced_rate).all():
        raise SourceDataError(
            f"{folder} has no {ANNOUNCED}.txt with any of these pages: {missing}. Unpack the file there."
        )
    absent = [
        f"{name}.txt"
        for name, column in zip(HOSTS, (data.host, data.constrained_hosts), strict=True)
        if column is None
    ]
    if absent:
        raise SourceDataError(
            f"{folder} has no file {absent[0]}. Unpack all five files of the data set there."
        )
    learnt = MaximumLikelihood(smoothing=0.5).fit(data.log).change_rate_
    important = data.importance > 0.0
    signalled = ~np.isnan(data.announced_rate)
    if not (important & signalled).any():
        raise SourceDataError(f"{folder}: of the pages of some importance {missing}. Read more pages.")
    rate = np.where(signalled, data.announced_rate, learnt)[important]
    sources = fo.Sources(rate, data.importance[important], signalled=signalled[important])
    return sources, int(np.count_nonzero(~important))


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
    return replace(claim, claim=text.removesuffix(", first stand-in"))


def findings(measured: dict[str, float]) -> list[Finding]:
    """Return the findings of the paper's claims that these data decide, in the order of the table."""
    table = Table.read("lambdacrawl").claims
    theirs = [each for each in table.values() if each.origin != "own" or each.id in FITTED]
    listed = [(of_data(each), measured[each.id]) for each in theirs if each.id in measured]
    computed = ((replace(claim, kind="exact", runs=1), x) for claim, x in listed)
    return [Finding(claim, x, x, x, 1, claim) for claim, x in computed]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, metavar="N")
    options = parser.parse_args()
    main(options.folder, options.pages)

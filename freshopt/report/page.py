"""`write_report`: a plan's folder as one self-contained web page.

All of it is read from the files of the folder, so that it does not matter where or when the plan was made.
Nothing on the page depends on when it was written: equal folders make equal pages.

Cost: the tables are read twice, a part at a time; 10⁶ sources take about a second.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from freshopt.errors import SourceDataError
from freshopt.formatting import count
from freshopt.logs.atomic_output import complete_file
from freshopt.report import lifetime_findings, overview, plan_findings, source_findings, source_rows
from freshopt.report import plan_tables as tables
from freshopt.report.context import Context
from freshopt.report.document import Page, render
from freshopt.report.finding import Finding
from freshopt.report.frontier import frontier
from freshopt.report.held_out_section import held_out
from freshopt.report.load_charts import Clock, HostLoad, load_edges
from freshopt.report.source_sample import POINTS, Survey, survey
from freshopt.report.summary_facts import Facts
from freshopt.report.value_words import FetchWords

PAGE = "report.html"
# Hosts that are drawn and listed, those with the highest load.
HOSTS = 12


def write_report(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, overwrite: bool = False
) -> Path:
    """Write the page of a plan.

    Parameters
    ----------
    folder : path
        What `freshopt plan` wrote: CSV or Parquet, in files or in parts; a schedule or lifetimes.
    out : path, optional
        The file to write. Default: ``report.html`` in the folder, in the place of an earlier one.
    overwrite : bool
        Whether a file at `out` may be replaced.

    Returns
    -------
    Path
        The file that was written, all of it or nothing.

    Raises
    ------
    SourceDataError
        If the folder holds no plan, or what cannot be read as one; if the file must not or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import freshopt as fo
    >>> log = fo.CrawlLog(source=["a"] * 4 + ["b"] * 4, time=[0, 1, 2, 3] * 2, changed=[0, 1, 1, 0] * 2)
    >>> target = Path(tempfile.mkdtemp()) / "plan"
    >>> files = fo.plan(log, bandwidth=2.0, horizon="7d", draws=0).write(target)
    >>> write_report(target).read_text(encoding="utf-8").count("<h2")
    10
    """
    home = Path(folder)
    target = home / PAGE if out is None else Path(out)
    text = page(home)
    with complete_file(target, overwrite=overwrite or out is None) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
    return target


def page(folder: Path) -> Page:
    """Return the page of the plan in a folder."""
    told = Context.of(Facts.of(folder))
    lifetimes = told.shares == "requests"
    planned = "lifetimes" if lifetimes else "rates"
    seen = survey(partial(tables.source_parts, folder, planned, listed=told.sources <= POINTS))
    if seen.n != told.sources:
        raise SourceDataError(
            f"{folder}: the tables have {seen.n:,} sources and the summary has {told.sources:,}. They are "
            "not of one plan. Plan again, with --overwrite."
        )
    found = lifetime_sections(folder, told, seen) if lifetimes else plan_sections(folder, told, seen)
    sources = count(told.sources, "source")
    return render(
        "plan",
        f"{'Lifetimes' if lifetimes else 'Refresh plan'} for {sources}",
        scripted=True,
        told=told,
        f=lifetime_findings.key_numbers(told) if lifetimes else overview.plan_numbers(told),
        lead=lifetime_findings.lead(told) if lifetimes else overview.lead(told),
        standing=overview.standing(told),
        answers=[] if lifetimes else overview.answers(told),
        findings=[each for each in found if each is not None],
    )


def plan_sections(folder: Path, told: Context, seen: Survey) -> list[Finding | None]:
    """Return what is found of refreshes, in order of telling."""
    edges = load_edges(told.facts.positive("horizon"), told.unit, told.counts.whole("refreshes"))
    clock = Clock(edges, told.unit, told.moment("end"), told.date("end"))
    by_host = tables.load_by_host(folder, edges, HOSTS)
    names = tables.names(folder)
    listed = names[:2] + [each for each in names if each.startswith("per_source")]
    crawled = (seen.crawled or None) if told.words == FetchWords() else None
    return [
        overview.comparison(told),
        held_out(told, folder),
        plan_findings.proof(told),
        plan_findings.constraints(told),
        frontier(told, crawled),
        source_findings.rates(told, seen),
        source_findings.changes(told, seen),
        plan_findings.earlier(told, folder),
        source_rows.sources(source_rows.source_rows(folder, told), told, listed),
        source_findings.never(told),
        plan_findings.load(told, clock, tables.load(folder, edges)),
        plan_findings.hosts(told, None if by_host is None else HostLoad(*by_host), clock),
        plan_findings.certainty(told, seen),
        source_findings.costly(told),
        plan_findings.made(told, names),
    ]


def lifetime_sections(folder: Path, told: Context, seen: Survey) -> list[Finding | None]:
    """Return what is found of lifetimes, in order of telling."""
    names = tables.names(folder, ("change_rates", "lifetimes"))
    return [
        lifetime_findings.comparison(told),
        plan_findings.proof(told),
        frontier(told),
        source_findings.lifetimes(told, tables.source_parts(folder, "lifetimes")),
        source_rows.sources(source_rows.source_rows(folder, told, "lifetimes"), told, names),
        plan_findings.certainty(told, seen),
        plan_findings.made(told, names),
    ]

"""`write_report`: a plan's folder as one self-contained web page.

All of it is read from the files of the folder, so that it does not matter where or when the plan was made.
Nothing on the page depends on when it was written: equal folders make equal pages.

Cost: the tables are read twice, a part at a time; 10⁶ sources take about a second.
"""

from __future__ import annotations

import os
from pathlib import Path

from freshopt.formatting import count
from freshopt.logs.atomic_output import complete_file
from freshopt.report import headline, lifetime_findings, plan_findings, saving, source_findings
from freshopt.report.context import Context, Facts
from freshopt.report.document import Page, render
from freshopt.report.finding import Finding
from freshopt.report.frontier import frontier, head_chart
from freshopt.report.headline import PAGE as PAGE
from freshopt.report.held_out import held_out
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.source_findings import sources


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
    opened = PlanFolder(folder, told)
    sections = [each for each in findings(told, opened) if each.title]
    return render(
        "plan",
        f"{'Lifetimes' if lifetimes else 'Refresh plan'} for {count(told.sources, 'source')}",
        scripted=True,
        told=told,
        numbers=lifetime_findings.key_numbers(told) if lifetimes else None,
        made=headline.made(told),
        warnings=told.facts.texts("warnings"),
        hero=lifetime_findings.lead(told) if lifetimes else headline.hero(told),
        size="" if lifetimes else headline.size(told),
        lines=[] if lifetimes else headline.lines(told),
        trust=headline.trust(told),
        picture=None if lifetimes else head_chart(told),
        findings=sections,
    )


def findings(
    told: Context, folder: PlanFolder | None = None, *, read: str = "", objective: str = ""
) -> list[Finding]:
    """Return what a plan found; without a folder what the terminal tells."""
    if told.shares == "requests":
        found = [
            plan_findings.log(told, read),
            plan_findings.warnings(told),
            plan_findings.change_rates(told),
            lifetime_findings.requests(told),
            plan_findings.objective(told),
            saving.saving(told),
            lifetime_findings.seen(told),
            lifetime_findings.comparison(told),
            lifetime_findings.expired(told),
            saving.bandwidth(told),
            frontier(told, folder),
            lifetime_findings.lifetimes(told, folder),
            sources(told, folder),
            plan_findings.certainty(told, folder),
            plan_findings.proof(told, folder),
            plan_findings.made(told, folder),
        ]
    else:
        found = [
            plan_findings.log(told, read),
            plan_findings.warnings(told),
            plan_findings.change_rates(told),
            plan_findings.objective(told, objective),
            saving.saving(told),
            saving.fresh(told),
            saving.comparison(told),
            saving.earlier(told, folder),
            saving.changes(told, folder),
            source_findings.rates(told, folder),
            plan_findings.phases(told),
            plan_findings.signals(told),
            plan_findings.features(told),
            saving.bandwidth(told),
            saving.fetches(told),
            frontier(told, folder),
            sources(told, folder),
            source_findings.never(told, folder),
            plan_findings.load(told, folder),
            plan_findings.hosts(told, folder),
            plan_findings.promises(told),
            plan_findings.constraints(told),
            held_out(told, folder),
            plan_findings.certainty(told, folder),
            plan_findings.proof(told, folder),
            plan_findings.made(told, folder),
        ]
    return [each for each in found if each is not None]

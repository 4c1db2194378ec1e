"""`write_report`: a plan's folder as one self-contained web page.

All of it is read from the files of the folder, so that it does not matter where or when the plan was made.
Nothing on the page depends on when it was written: equal folders make equal pages.

Cost: the tables are read twice, a part at a time; 10⁶ sources take about a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from freshopt.errors import SourceDataError
from freshopt.formatting import count
from freshopt.logs.atomic_output import complete_file
from freshopt.report import (
    bandwidth_section,
    constraint_section,
    held_out_section,
    host_section,
    overview,
    plan_sections,
    source_rows,
    source_sections,
    uncertainty_section,
)
from freshopt.report import plan_tables as tables
from freshopt.report.context import Context
from freshopt.report.document import assembled
from freshopt.report.host_section import HostLoad
from freshopt.report.lifetimes.lifetime_page import lifetime_page
from freshopt.report.markup import Markup
from freshopt.report.plan_charts import Clock, Load, load_edges
from freshopt.report.plan_tables import Part
from freshopt.report.source_sample import POINTS, survey
from freshopt.report.summary_facts import Facts
from freshopt.report.value_words import FetchWords

PAGE = "report.html"


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


def page(folder: Path) -> Markup:
    """Return the page of the plan in a folder."""
    facts = Facts.of(folder)
    told = Context.of(facts)
    if facts.text("discipline") == "on request":
        return lifetime_page(folder, told)
    seen = survey(partial(_sources, folder, told))
    if seen.n != told.sources:
        raise SourceDataError(
            f"{folder}: the tables have {seen.n:,} sources and the summary has {told.sources:,}. They are "
            "not of one plan. Plan again, with --overwrite."
        )
    edges = load_edges(told.facts.positive("horizon"), told.unit, told.counts.whole("refreshes"))
    clock = Clock(edges, told.unit, told.moment("end"), told.date("end"))
    load = Load(clock, tables.load(folder, edges))
    by_host = tables.load_by_host(folder, edges, host_section.LISTED)
    names = tables.names(folder)
    crawled = (seen.crawled or None) if told.words == FetchWords() else None
    sections = [
        overview.comparison(told),
        held_out_section.held_out(told, folder),
        plan_sections.proof(told),
        constraint_section.constraints(told),
        bandwidth_section.bandwidth(told, crawled),
        source_sections.rates(told, seen),
        source_sections.changes(told, seen),
        plan_sections.earlier(told, folder),
        source_rows.section(
            source_rows.source_rows(folder, told),
            told,
            names[:2] + [each for each in names if each.startswith("per_source")],
        ),
        source_sections.never(told),
        plan_sections.load(told, load),
        host_section.hosts(told, None if by_host is None else HostLoad(*by_host), clock),
        uncertainty_section.certainty(told, seen),
        source_sections.costly(told),
        plan_sections.made(told, names),
    ]
    title = f"Refresh plan for {count(told.sources, 'source')}"
    words = overview.lead(told), overview.standing(told)
    heard = facts.texts("warnings")
    return assembled(
        title, *words, overview.tiles(told), sections, answers=overview.answers(told), warnings=heard
    )


def _sources(folder: Path, told: Context) -> Iterable[Part]:
    return tables.parts(folder, names=told.sources <= POINTS)

"""Page of a plan of lifetimes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from freshopt.errors import SourceDataError
from freshopt.formatting import count, number, percent
from freshopt.report import (
    bandwidth_section,
    plan_sections,
    source_rows,
    uncertainty_section,
)
from freshopt.report import overview as plan_overview
from freshopt.report import plan_tables as tables
from freshopt.report.components import Column, Section, amount, facts_list, paragraph, table
from freshopt.report.context import Context, tidy
from freshopt.report.document import assembled
from freshopt.report.lifetimes import lifetime_charts
from freshopt.report.lifetimes.lifetime_charts import Lifetimes
from freshopt.report.markup import Child, Markup, element
from freshopt.report.source_sample import POINTS, survey
from freshopt.report.value_words import meaning
from freshopt.units import duration

TABLES = ("change_rates", "lifetimes")
# Of the rules' names in a summary.
PLAN, TIME = "plan", "over time"


def lifetime_page(folder: Path, told: Context) -> Markup:
    """Return the page of the lifetimes in a folder.

    Raises
    ------
    SourceDataError
        If a table is missing, or is not of the same plan.
    """
    known = Lifetimes.of(folder)
    if not len(known.names) == len(known.lifetime) == told.sources:
        raise SourceDataError(
            f"{folder}: the tables have {len(known.names):,} and {len(known.lifetime):,} sources and the "
            f"summary has {told.sources:,}. They are not of one plan. Plan again, with --overwrite."
        )
    seen = survey(partial(tables.parts, folder, names=told.sources <= POINTS, planned="lifetimes"))
    names = tables.names(folder, TABLES)
    sections = [
        _comparison(told),
        plan_sections.proof(told),
        bandwidth_section.bandwidth(told),
        _lifetimes(told, known),
        source_rows.section(source_rows.source_rows(folder, told, "lifetimes"), told, names),
        uncertainty_section.certainty(told, seen),
        _made(told, names),
    ]
    title = f"Lifetimes for {count(told.sources, 'source')}"
    heard, standing = told.facts.texts("warnings"), plan_overview.standing(told)
    return assembled(title, _lead(told), standing, _tiles(told), sections, warnings=heard)


def _fresh(told: Context) -> dict[str, float]:
    """Return the shares of plan, time, and simple rules."""
    found = told.facts.within("requests_see_fresh")
    return {} if found is None else {key: found.number(key) for key in found.values}


def _lead(told: Context) -> str:
    """Return what the plan is expected to achieve, in one sentence."""
    used, fresh = count(tidy(told.facts.number("bandwidth_used")), "fetch"), _fresh(told)
    begin = f"With {used} per {told.unit} for {count(told.sources, 'source')}"
    if PLAN not in fresh:
        return f"{begin}, this plan has an expected {told.goal.noun} of {number(told.value)}."
    other = [f"{percent(share)} with {name}" for name, share in fresh.items() if name not in (PLAN, TIME)]
    against = f", against {' and '.join(other)}" if other else ""
    return f"{begin}, {percent(fresh[PLAN])} of requests are expected to find a fresh copy{against}."


def _tiles(told: Context) -> Markup:
    """Return the key numbers with their descriptions."""
    facts, fresh = told.facts, _fresh(told)
    used, price = facts.number("bandwidth_used"), facts.maybe("price")
    cells: list[tuple[Child, Child]] = []
    if PLAN in fresh:
        cells.append((amount(fresh[PLAN], percent(fresh[PLAN])), "of requests find a fresh copy"))
    if TIME in fresh:
        words = "of the time copies are fresh: an expired one ages until somebody asks"
        cells.append((amount(fresh[TIME], percent(fresh[TIME])), words))
    better = "higher" if told.maximised else "lower"
    cells.append((amount(told.value), f"{told.goal.noun} ({better} is better)"))
    most = facts.positive("bandwidth")
    whole = abs(used - most) <= 1e-9 * most
    of: list[Child] = [", all of the bandwidth"] if whole else [", of ", amount(most)]
    cells.append((amount(used), [f"fetches per {told.unit}", of]))
    if price is not None:
        cells.append((amount(price), f"shadow price: {told.goal.noun} per one more fetch per {told.unit}"))
    often = {"never_fetched": "never fetched again", "fetched_at_each_request": "fetched at each request"}
    for key, words in often.items():
        many = told.counts.whole(key)
        cells.append((amount(many, f"{many:,}"), f"of {count(told.sources, 'source')} {words}"))
    return element(
        "ul",
        [element("li", element("b", head), element("span", below)) for head, below in cells],
        class_="tiles",
    )


def _comparison(told: Context) -> Section:
    """Return the comparison with the lifetimes that people give by hand."""
    rules, fresh = told.facts.within("baselines"), _fresh(told)
    values = {} if rules is None else {key: rules.number(key) for key in rules.values}
    rows = [("this plan", told.value, PLAN), *((name, value, name) for name, value in values.items())]
    longest = max(abs(value) for _, value, _ in rows) or 1.0
    columns = [Column("lifetimes"), Column(told.value_head, "number"), Column("", "bar")]
    cells: list[list[Child]] = [
        [name, amount(value), f"{abs(value) / longest:.4f}"] for name, value, _ in rows
    ]
    if all(key in fresh for _, _, key in rows):
        columns.append(Column("requests that find a fresh copy", "number"))
        for row, (_, _, key) in zip(cells, rows, strict=True):
            row.append(amount(fresh[key], percent(fresh[key], even=True)))
    what = meaning(told.facts.text("objective"))
    words = f"What counts: {what}. " if what else ""
    caption = f"Within the same bandwidth, for the {told.supposed}"
    return Section.of(
        "comparison",
        "Comparison with simple rules",
        paragraph(
            f"{words}The value is the mean over a source's requests, summed over all sources by their "
            f"importance. {_expired(told)}"
        ),
        table(caption, columns, cells, own=0),
    )


def _expired(told: Context) -> str:
    """Return what a request finds whose copy has expired."""
    windows = told.facts.within("stale_while_revalidate")
    if windows is None:
        return "A request that fetches finds a fresh copy."
    most = duration(windows.number("longest"), told.unit)
    return f"An expired copy is served as it is for up to {most} while it is fetched; then requests wait."


def _lifetimes(told: Context, known: Lifetimes) -> Section:
    """Return the section of lifetimes."""
    pictures = [
        lifetime_charts.by_change_rate(known, told.unit),
        lifetime_charts.by_request_rate(known, told.unit),
    ]
    text = (
        "A copy is kept for its lifetime, and the first request after that fetches it again. At ζ requests "
        f"per {told.unit} a lifetime T costs 1/(T + 1/ζ) fetches per {told.unit}. Requests and changes are "
        "taken to come at random."
    )
    return Section.of("lifetimes", "Lifetimes", paragraph(text), element("div", pictures, class_="figures"))


def _made(told: Context, files: list[str]) -> Section:
    """Return the section of settings that reproduce the plan."""
    facts, counts = told.facts, told.counts
    rows: list[tuple[Child, Child]] = []
    if "command" in facts.values:
        rows.append(("command", element("code", facts.text("command"))))
    fetches = f"{count(counts.whole('fetches'), 'fetch')} of {count(told.sources, 'source')}"
    rows.append(("log", f"{fetches}; {counts.whole('fetches_that_found_a_change'):,} found a change"))
    rows.append(("requests", [amount(facts.number("request_rate")), f" per {told.unit} in total"]))
    change, settings = facts.within("change_rate"), facts.within("settings")
    if change is not None:
        rows.append(("estimator", element("code", change.text("estimator"))))
        rows.append(("change rates", [amount(change.number("sum")), f" per {told.unit} in total"]))
    if settings is not None:
        rows.append(("objective", element("code", settings.text("objective"))))
        low, high = settings.maybe("min_rate"), settings.maybe("max_rate")
        bounds = [] if not low else [f"at least {number(low)}"]
        bounds += [] if high is None else [f"at most {number(high)}"]
        if bounds:
            rows.append(("fetch rates", f"{', '.join(bounds)} per {told.unit}"))
    versions = facts.within("versions")
    if versions is not None:
        rows.append(("versions", ", ".join(f"{key} {versions.text(key)}" for key in versions.values)))
    rows.append(("files beside this page", ", ".join([*files, "summary.json"])))
    return Section.of("made", "Settings and versions", facts_list(rows))

"""Sections about the sources: rates, starved sources, estimates, costs."""

from __future__ import annotations

from freshopt.formatting import count, percent
from freshopt.report import source_charts
from freshopt.report.components import Column, Section, amount, name, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child, element
from freshopt.report.source_sample import MOVED, Survey
from freshopt.report.summary_facts import Facts
from freshopt.units import duration

# Relative difference from the price up to which marginal values count as equal to it.
EQUAL = 1e-6
# Why freshness passes sources over: at rate 0 its marginal value is importance over change rate.
_OTHER = [
    ", or choose an objective under which a very old copy costs more and more, such as ",
    element("code", "--objective harmonic"),
]
_FRESHNESS = " For freshness it is importance over change rate: small for fast and for unimportant sources."


def rates(told: Context, seen: Survey) -> Section:
    """Return the section of refresh rates."""
    unit = told.unit
    pictures = [
        source_charts.by_change_rate(seen, unit, told.words),
        source_charts.by_importance(seen, unit, told.words),
        source_charts.gaps(seen, unit, told.words),
    ]
    bounds = [
        f"{told.counts.whole(key):,} of them at {option}"
        for key, option in (("at_min_rate", "--min-rate"), ("at_max_rate", "--max-rate"))
        if told.counts.values.get(key)
    ]
    refreshed = told.sources - told.counts.whole("never_refreshed")
    words = f"{count(refreshed, 'source')} of {told.sources:,} refreshed"
    text = f"{', '.join([words, *bounds])}.{_equal_marginals(told)}"
    body: list[Child] = [paragraph(text), _good_phases(told), element("div", pictures, class_="figures")]
    held = told.findings.rows("held_back")
    if held:
        body.append(_held_back(told, held))
    return Section.of("rates", f"{told.words.rate.capitalize()} rates", body)


def _equal_marginals(told: Context) -> str:
    """Return the optimality condition between the bounds, where it holds."""
    inside = told.findings.within("interior")
    deviation = None if inside is None else inside.maybe("deviation")
    if inside is None or inside.whole("sources") < 2 or deviation is None or deviation > EQUAL:
        return ""
    host = " plus that of its host's limit" if told.findings.within("hosts") else ""
    return (
        f" The marginal value per unit of bandwidth of each of the {inside.whole('sources'):,} sources "
        f"between their bounds{_elsewhere(told)} is the shadow price{host}."
    )


def _elsewhere(told: Context) -> str:
    """Return that sources at good phases are not meant."""
    return " that are not at good phases of the week" if told.facts.within("phases") else ""


def _good_phases(told: Context) -> Child:
    """Return what the weekly cycle saves, and at how many sources."""
    phases = told.facts.within("phases")
    if phases is None or "sentence" not in phases.values:
        return None
    many = phases.whole("sources")
    jumps = "its marginal value jumps" if many == 1 else "their marginal values jump"
    return paragraph(
        f"{phases.text('sentence')}. {count(many, 'source')} of {told.sources:,} refreshed at good phases, "
        f"at gaps of whole weeks or whole parts of one; {jumps} there, from above the price to below."
    )


def changes(told: Context, seen: Survey) -> Section | None:
    """Return the section of changes against today, or None where nobody crawled."""
    more, less, about, never = seen.moved.tolist()
    known = more + less + about + never
    if seen.by_crawl_rate is None or not known:
        return None
    words = told.words
    used = told.facts.number("bandwidth_used")
    if not words.alike:
        used = told.counts.whole("refreshes") / told.facts.positive("horizon")
    plans = "refreshes" if words.rate == "refresh" else "attempts a fetch"
    share = used / seen.crawled if seen.crawled > 0.0 else 1.0
    of = f", {percent(share)} of that" if share < 1.0 else ""
    text: list[Child] = [
        "The log's own crawls were ",
        amount(seen.crawled),
        f" per {told.unit}, as long as each source was crawled. This plan {plans} ",
        amount(used),
        f" times per {told.unit}{of}: {count(more, 'source')} more often than they were crawled, {less:,} "
        f"less often, {about:,} about as often (within {percent(MOVED - 1.0)})",
        f", and {never:,} no more" if never else "",
        ".",
    ]
    left = seen.n - known
    more_words = f" {count(left, 'source')} with a single crawl had no rate of their own." if left else ""
    pictures = [source_charts.by_crawl_rate(seen, told.unit, words), source_charts.ratios(seen, words)]
    below = (
        f"A crawl rate is the number of a source's crawl intervals over their sum. The table of sources "
        f"sorts by the change: × 2 is twice as often, ÷ 2 half as often.{more_words}"
    )
    return Section.of(
        "changes",
        "Changes against today",
        paragraph(*text),
        element("div", pictures, class_="figures"),
        paragraph(below, kind="small faint"),
    )


def never(told: Context) -> Section | None:
    """Return the section of sources never refreshed, or None."""
    found = told.findings.within("never_refreshed")
    if told.counts.whole("never_refreshed") == 0:
        return None
    head = (
        f"{count(told.counts.whole('never_refreshed'), 'source')} of {told.sources:,} get no refresh at all."
    )
    if found is None:
        return Section.of("never", "Sources never refreshed", paragraph(head))
    idle, dear = found.whole("no_importance"), found.whole("not_worth_it")
    barred = found.whole("max_rate_zero") if "max_rate_zero" in found.values else 0
    price = told.facts.number("price")
    reasons: list[Child] = []
    if dear:
        limits = "; more where the limit of a host binds" if told.findings.within("hosts") else ""
        reasons.append(
            element(
                "li",
                element("b", f"{dear:,}: marginal value below the shadow price."),
                " Even at rate 0 their marginal value is below the shadow price (",
                amount(price),
                f"{limits}), the marginal value of the same bandwidth elsewhere.",
                _FRESHNESS if told.facts.text("objective") == "BinaryFreshness" else "",
            )
        )
    if idle:
        reasons.append(
            element("li", element("b", f"{idle:,}: of no importance."), " Nothing is gained by fresh copies.")
        )
    if barred:
        reasons.append(element("li", element("b", f"{barred:,}: with a maximum rate of 0.")))
    body: list[Child] = [paragraph(head), element("ul", reasons) if reasons else None]
    rows = found.rows("sources")
    if rows:
        columns = [*_known(told, rows), Column("marginal value at 0", "number"), Column("price", "number")]
        columns.append(Column("marginal value, of the price", "number"))
        cells = [
            [*_own(told, row, rows), _maybe(row, "worth"), amount(row.number("price")), _of_price(row)]
            for row in rows
        ]
        body.append(table(_listed("Nearest to being refreshed", len(rows), dear), columns, cells))
        body.append(
            paragraph(
                "To refresh them all the same: give them more importance, or a least rate (",
                element("code", "--min-rate"),
                ")",
                _OTHER if told.facts.text("objective") != "HarmonicStaleness" else "",
                ".",
                kind="small faint",
            )
        )
    return Section.of("never", "Sources never refreshed", body)


def costly(told: Context) -> Section | None:
    """Return the section of the most costly sources."""
    rows = told.findings.rows("most_costly")
    if not rows:
        return None
    what = "stale part" if told.maximised else told.goal.noun
    columns = [*_known(told, rows), Column(f"{told.words.done} every", "number"), Column("cost", "number")]
    columns.append(Column(f"share of the {what}", "number"))
    cells = [
        [*_own(told, row, rows), _every(told, row), amount(row.number("cost")), _share(row, "share")]
        for row in rows
    ]
    together = sum(row.maybe("share") or 0.0 for row in rows)
    whole, makes = told.findings.maybe("cost"), "makes" if len(rows) == 1 else "make"
    text: list[Child] = []
    if whole is not None and together > 0.0:
        text = [f"{_some(len(rows))} {makes} up {percent(together)} of the {what}, ", amount(whole), "."]
    return Section.of(
        "costly",
        "Most costly sources",
        paragraph(text) if text else None,
        table(_listed("Most costly sources under this plan", len(rows), told.sources), columns, cells),
    )


def gains(told: Context, rows: list[Facts]) -> Child:
    """Return the sources that gain most from more bandwidth."""
    columns = [
        *_known(told, rows),
        Column(f"{told.words.done} every", "number"),
        Column("then every", "number"),
    ]
    columns.append(Column("gain", "number"))
    cells = [
        [
            *_own(told, row, rows),
            _every(told, row),
            _every(told, row, "rate_then"),
            amount(row.number("gain")),
        ]
        for row in rows
    ]
    return table(_listed("Sources that would gain most", len(rows), told.sources), columns, cells)


def _held_back(told: Context, rows: list[Facts]) -> list[Child]:
    """Return the sources held back by max_rate."""
    columns = [*_known(told, rows), Column("marginal value", "number"), Column("price", "number")]
    cells = [[*_own(told, row, rows), _maybe(row, "worth"), amount(row.number("price"))] for row in rows]
    return [
        element("h3", "Held back by the maximum rate"),
        table("Sources at --max-rate with the largest marginal value", columns, cells),
    ]


def _known(told: Context, rows: list[Facts]) -> list[Column]:
    """Return the columns of a source's data."""
    known = [Column("source"), Column(f"changes per {told.unit}", "number")]
    return [*known, Column("importance", "number")] if _weighed(told, rows) else known


def _own(told: Context, row: Facts, rows: list[Facts]) -> list[Child]:
    own: list[Child] = [name(row.name("source")), amount(row.number("change_rate"))]
    return [*own, amount(row.number("importance"))] if _weighed(told, rows) else own


def _weighed(told: Context, rows: list[Facts]) -> bool:
    """Return whether importances differ from 1 and need a column."""
    whole = told.findings.maybe("importance")
    return whole != float(told.sources) or any(row.number("importance") != 1.0 for row in rows)


def _every(told: Context, row: Facts, key: str = "rate") -> Child:
    rate = row.number(key)
    return amount(rate, duration(1.0 / rate, told.unit)) if rate > 0.0 else "never"


def _maybe(row: Facts, key: str) -> Child:
    value = row.maybe(key)
    return "∞" if value is None else amount(value)


def _of_price(row: Facts) -> Child:
    marginal, price = row.maybe("worth"), row.number("price")
    return None if marginal is None or not price > 0.0 else percent(marginal / price, even=True)


def _share(row: Facts, key: str) -> Child:
    value = row.maybe(key)
    return None if value is None else amount(value, percent(value, even=True))


def _listed(what: str, shown: int, of: int) -> str:
    return f"{what}: the first {shown:,} of {of:,}" if shown < of else what


def _some(many: int) -> str:
    return "This source" if many == 1 else f"These {many:,} sources"

"""Sections about the sources: rates, starved sources, estimates, costs."""

from __future__ import annotations

from freshopt.formatting import count, percent
from freshopt.report import source_charts
from freshopt.report.components import Column, Section, amount, name, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child, element
from freshopt.report.source_sample import Survey
from freshopt.report.summary_facts import Facts
from freshopt.units import duration


def rates(told: Context, seen: Survey) -> Section:
    """Return the section of refresh rates."""
    unit = told.unit
    pictures = [
        source_charts.by_change_rate(seen, unit),
        source_charts.by_importance(seen, unit),
        source_charts.gaps(seen, unit),
    ]
    bounds = [
        f"{told.counts.whole(key):,} of them at {option}"
        for key, option in (("at_min_rate", "--min-rate"), ("at_max_rate", "--max-rate"))
        if told.counts.values.get(key)
    ]
    refreshed = told.sources - told.counts.whole("never_refreshed")
    words = f"{count(refreshed, 'source')} of {told.sources:,} refreshed"
    free = " where no bound and no host limit is active" if bounds or told.findings.within("hosts") else ""
    equal = f" Their marginal values per unit of bandwidth are equal{free}." if refreshed else ""
    text = f"{', '.join([words, *bounds])}.{equal}"
    body: list[Child] = [paragraph(text), element("div", pictures, class_="figures")]
    held = told.findings.rows("held_back")
    if held:
        body.append(_held_back(told, held))
    return Section.of("rates", "Refresh rates", body)


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
                f"{limits}), the marginal value of the same bandwidth elsewhere. They change too fast, or "
                "their importance is too low: a copy would soon be out of date again.",
            )
        )
    if idle:
        reasons.append(
            element("li", element("b", f"{idle:,}: of no importance."), " Nothing is gained by fresh copies.")
        )
    body: list[Child] = [paragraph(head), element("ul", reasons)]
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
                "To refresh them all the same: give them more importance, a least rate (",
                element("code", "--min-rate"),
                "), or choose an objective under which a very old copy costs more and more, such as ",
                element("code", "--objective harmonic"),
                ".",
                kind="small faint",
            )
        )
    return Section.of("never", "Sources never refreshed", body)


def certainty(told: Context, seen: Survey) -> Section:
    """Return the section of estimation uncertainty and its cost."""
    settings = told.facts.within("settings")
    level = None if settings is None else settings.maybe("confidence")
    confidence = "95 %" if level is None else percent(level)
    text: list[Child] = []
    spread = told.facts.within("uncertainty")
    if spread is not None:
        ends = spread.values.get("value_90_percent")
        low, high = _pair(spread, ends)
        text.append(
            paragraph(
                "Change rates are estimates. The 90 % posterior interval of this plan's value is from ",
                amount(low),
                " to ",
                amount(high),
                f" ({count(spread.whole('draws'), 'sample')}). The expected regret of estimation error, "
                f"against rates "
                "that are optimal for the true change rates, is ",
                amount(spread.number("mean_regret")),
                f" ({percent(spread.number('relative_regret'))} of the value); the largest of all samples "
                f"is ",
                amount(spread.number("largest_regret")),
                ".",
            )
        )
        if not low <= told.facts.number("value") <= high:
            text.append(
                paragraph(
                    "The value that the plan itself states, ",
                    amount(told.facts.number("value")),
                    ", is at the estimates. It lies outside, as costs do not grow in proportion to change "
                    "rates: a source that may be slow or fast costs another amount on average than one in "
                    "between.",
                )
            )
    else:
        text.append(
            paragraph(
                "Change rates are estimates. The cost of their uncertainty was not computed for this plan."
            )
        )
    flags = told.counts.within("flags")
    odd = {} if flags is None else {key: flags.whole(key) for key in flags.values if key != "ok"}
    if odd:
        listed = ", ".join(f"{many:,} {flag}" for flag, many in odd.items())
        text.append(
            paragraph(
                f"Some have few data: {listed}. Their estimates depend on the prior or on the smoothing."
            )
        )
    text.append(
        paragraph(
            "Intervals assume that sources change at random, at a constant rate. ",
            element("code", "freshopt poisson-check"),
            " tests how far yours are from that.",
            kind="small faint",
        )
    )
    picture = source_charts.reach(seen, told.unit, confidence)
    body = element("div", picture, element("div", text), class_="figures")
    return Section.of("certainty", "Uncertainty of the change rates", body)


def costly(told: Context) -> Section | None:
    """Return the section of the most costly sources."""
    rows = told.findings.rows("most_costly")
    if not rows:
        return None
    what = "stale part" if told.maximised else "value"
    columns = [*_known(told, rows), Column("refreshed every", "number"), Column("cost", "number")]
    columns.append(Column(f"of the {what}", "number"))
    cells = [
        [*_own(told, row, rows), _every(told, row), amount(row.number("cost")), _share(row, "share")]
        for row in rows
    ]
    together = sum(row.maybe("share") or 0.0 for row in rows)
    text = f"{_some(len(rows))} {'makes' if len(rows) == 1 else 'make'} up {percent(together)} of the {what}."
    return Section.of(
        "costly",
        "Most costly sources",
        paragraph(text),
        table(_listed("Most costly sources under this plan", len(rows), told.sources), columns, cells),
    )


def gains(told: Context, rows: list[Facts]) -> Child:
    """Return the sources that gain most from more bandwidth."""
    columns = [*_known(told, rows), Column("refreshed every", "number"), Column("then every", "number")]
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


def _pair(spread: Facts, ends: object) -> tuple[float, float]:
    """Return the ends of an interval."""
    listed = ends if isinstance(ends, list) else []
    both = Facts(spread.file, {str(k): end for k, end in enumerate(listed)}, "uncertainty.value_90_percent")
    return both.number("0"), both.number("1")


def _listed(what: str, shown: int, of: int) -> str:
    return f"{what}: the first {shown:,} of {of:,}" if shown < of else what


def _some(many: int) -> str:
    return "This source" if many == 1 else f"These {many:,} sources"

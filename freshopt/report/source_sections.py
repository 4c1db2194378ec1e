"""Sections about the sources: rates, who is never refreshed and why, how sure the estimates are, costs."""

from __future__ import annotations

from freshopt.report import source_charts
from freshopt.report.blocks import Column, Section, amount, name, paragraph, table
from freshopt.report.context import Context
from freshopt.report.facts import Facts
from freshopt.report.markup import Child, element
from freshopt.report.survey import Survey
from freshopt.wording import count, duration, percent


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
    free = (
        " where no bound and no limit of a host is in the way"
        if bounds or told.findings.within("hosts")
        else ""
    )
    equal = f" Rates are such that the next refresh of each is worth the same{free}." if refreshed else ""
    text = f"{', '.join([words, *bounds])}.{equal}"
    body: list[Child] = [paragraph(text), element("div", pictures, class_="figures")]
    held = told.findings.rows("held_back")
    if held:
        body.append(_held_back(told, held))
    return Section.of("rates", "How often each source is refreshed", body)


def never(told: Context) -> Section | None:
    """Return why sources are never refreshed, where there are some."""
    found = told.findings.within("never_refreshed")
    if told.counts.whole("never_refreshed") == 0:
        return None
    head = (
        f"{count(told.counts.whole('never_refreshed'), 'source')} of {told.sources:,} get no refresh at all."
    )
    if found is None:
        return Section.of("never", "What is never refreshed, and why", paragraph(head))
    idle, dear = found.whole("no_importance"), found.whole("not_worth_it")
    price = told.facts.number("price")
    reasons: list[Child] = []
    if dear:
        limits = "; more where the limit of a host binds" if told.findings.within("hosts") else ""
        reasons.append(
            element(
                "li",
                element("b", f"{dear:,}: not worth it."),
                " Even the first refresh would bring less than its price (",
                amount(price),
                f"{limits}), which is what the same bandwidth brings elsewhere. They change too fast, or "
                "matter too little: a copy would soon be out of date again.",
            )
        )
    if idle:
        reasons.append(
            element("li", element("b", f"{idle:,}: of no importance."), " Nothing is gained by fresh copies.")
        )
    body: list[Child] = [paragraph(head), element("ul", reasons)]
    rows = found.rows("sources")
    if rows:
        columns = [*_known(told, rows), Column("first refresh worth", "number"), Column("price", "number")]
        columns.append(Column("worth, of the price", "number"))
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
    return Section.of("never", "What is never refreshed, and why", body)


def certainty(told: Context, seen: Survey) -> Section:
    """Return what the log leaves open, and what that costs."""
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
                "Change rates are estimates. If they are what the log leaves possible, the value of this "
                "plan is between ",
                amount(low),
                " and ",
                amount(high),
                f" in 90 % of {spread.whole('draws')} draws. Knowing them exactly would be worth ",
                amount(spread.number("mean_regret")),
                f" on average ({percent(spread.number('relative_regret'))} of the value), at most ",
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
                "Change rates are estimates. What their uncertainty costs was not worked out for this plan."
            )
        )
    flags = told.counts.within("flags")
    odd = {} if flags is None else {key: flags.whole(key) for key in flags.values if key != "ok"}
    if odd:
        listed = ", ".join(f"{many:,} {flag}" for flag, many in odd.items())
        text.append(
            paragraph(
                f"Little is known of some: {listed}. Their rates lean on the other sources or on smoothing."
            )
        )
    text.append(
        paragraph(
            "Intervals assume that sources change at random, at a constant rate. ",
            element("code", "freshopt poisson-check"),
            " tells how far yours are from that.",
            kind="small faint",
        )
    )
    picture = source_charts.reach(seen, told.unit, confidence)
    body = element("div", picture, element("div", text), class_="figures")
    return Section.of("certainty", "How sure the change rates are", body)


def costly(told: Context) -> Section | None:
    """Return the sources with the largest parts of the cost."""
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
        "What costs most",
        paragraph(text),
        table(_listed("Most costly sources under this plan", len(rows), told.sources), columns, cells),
    )


def gains(told: Context, rows: list[Facts]) -> Child:
    """Return the table of the sources that gain most from more bandwidth."""
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
    """Return the sources at their greatest rate that would be worth more."""
    columns = [*_known(told, rows), Column("next refresh worth", "number"), Column("price", "number")]
    cells = [[*_own(told, row, rows), _maybe(row, "worth"), amount(row.number("price"))] for row in rows]
    return [
        element("h3", "Held back by the greatest rate"),
        table("Sources at --max-rate whose next refresh is worth most", columns, cells),
    ]


def _known(told: Context, rows: list[Facts]) -> list[Column]:
    """Return the columns of what is known of a source."""
    known = [Column("source"), Column(f"changes per {told.unit}", "number")]
    return [*known, Column("importance", "number")] if _weighed(told, rows) else known


def _own(told: Context, row: Facts, rows: list[Facts]) -> list[Child]:
    own: list[Child] = [name(row.name("source")), amount(row.number("change_rate"))]
    return [*own, amount(row.number("importance"))] if _weighed(told, rows) else own


def _weighed(told: Context, rows: list[Facts]) -> bool:
    """Tell whether importances are worth a column: not where all sources weigh 1."""
    whole = told.findings.maybe("importance")
    return whole != float(told.sources) or any(row.number("importance") != 1.0 for row in rows)


def _every(told: Context, row: Facts, key: str = "rate") -> Child:
    rate = row.number(key)
    return amount(rate, duration(1.0 / rate, told.unit)) if rate > 0.0 else "never"


def _maybe(row: Facts, key: str) -> Child:
    value = row.maybe(key)
    return "∞" if value is None else amount(value)


def _of_price(row: Facts) -> Child:
    worth, price = row.maybe("worth"), row.number("price")
    return None if worth is None or not price > 0.0 else percent(worth / price, even=True)


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

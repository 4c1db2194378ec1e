"""Section about the estimates: intervals, posterior value, expected regret."""

from __future__ import annotations

from freshopt.formatting import count, percent
from freshopt.report import source_charts
from freshopt.report.components import Section, amount, paragraph
from freshopt.report.context import Context
from freshopt.report.markup import Child, Markup, element
from freshopt.report.source_sample import Survey
from freshopt.report.summary_facts import Facts


def certainty(told: Context, seen: Survey) -> Section:
    """Return the section of estimation uncertainty and its cost."""
    settings = told.facts.within("settings")
    level = None if settings is None else settings.maybe("confidence")
    intervals = "intervals" if level is None else f"{percent(level)} intervals"
    spread = told.facts.within("uncertainty")
    text: list[Child] = []
    forecast = told.facts.within("forecast")
    if forecast is not None:
        text.append(_forecast(told, forecast))
    if spread is not None:
        text += _regret(spread) if forecast is not None else _posterior(told, spread)
    else:
        words = "Change rates are estimates. The cost of their uncertainty was not computed for this plan."
        text.append(paragraph(words))
    flags = told.counts.within("flags")
    odd = {} if flags is None else {key: flags.whole(key) for key in flags.values if key != "ok"}
    if odd:
        listed = ", ".join(f"{many:,} {flag}" for flag, many in odd.items())
        text.append(
            paragraph(
                f"Of {count(told.sources, 'source')}: {listed}. Where crawls found nothing but one outcome, "
                "an estimate rests on the prior or on the smoothing too."
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
    picture = source_charts.reach(seen, told.unit, intervals)
    body = element("div", picture, element("div", text), class_="figures")
    return Section.of("certainty", "Uncertainty of the change rates", body)


def _forecast(told: Context, forecast: Facts) -> Markup:
    """Return the value that is to be expected, and its interval."""
    low, high = _interval(forecast)
    ratios = forecast.values.get("realised_over_predicted")
    tests = ratios if isinstance(ratios, list) else []
    known = Facts(
        forecast.file, {str(k): one for k, one in enumerate(tests)}, "forecast.realised_over_predicted"
    )
    cost = [known.number(str(k)) for k in range(len(tests))]
    reason: list[Child] = [
        ", if the model holds: the log is too short for back-tests inside it, or the objective has none."
    ]
    if cost:
        reason = [
            f", from {count(len(cost), 'back-test')} inside the log, in which plans cost ",
            amount(min(cost)),
            " to ",
            amount(max(cost)),
            " of what was predicted.",
        ]
    return paragraph(
        f"Change rates are estimates. Under their posterior the expected {told.goal.noun} of this plan is ",
        amount(forecast.number("expected")),
        "; its 90 % interval is ",
        *_ends(low, high),
        reason,
    )


def _regret(spread: Facts) -> list[Child]:
    """Return the expected regret of estimation error."""
    relative, mean = spread.maybe("relative_regret"), spread.maybe("mean_optimal_value")
    share: list[Child] = []
    if relative is not None and mean is not None:
        share = [f", {percent(relative)} of the mean optimal value ", amount(mean)]
    return [
        paragraph(
            "The expected regret of estimation error, against rates that are optimal for the true "
            "change rates, is ",
            amount(spread.number("mean_regret")),
            share,
            "; the largest of ",
            count(spread.whole("draws"), "posterior sample"),
            " is ",
            amount(spread.number("largest_regret")),
            ".",
        )
    ]


def _posterior(told: Context, spread: Facts) -> list[Child]:
    """Return posterior interval of the value and expected regret."""
    low, high = _interval(spread)
    samples = count(spread.whole("draws"), "posterior sample")
    relative, mean = spread.maybe("relative_regret"), spread.maybe("mean_optimal_value")
    share: list[Child] = []
    if relative is not None and mean is not None:
        share = [f", {percent(relative)} of the mean optimal value ", amount(mean)]
    text: list[Child] = [
        paragraph(
            f"Change rates are estimates. The 90 % posterior interval of this plan's {told.goal.noun} is ",
            *_ends(low, high),
            f" ({samples}). The expected regret of estimation error, against rates that are optimal for the "
            "true change rates, is ",
            amount(spread.number("mean_regret")),
            share,
            "; the largest of all samples is ",
            amount(spread.number("largest_regret")),
            ".",
        )
    ]
    below, above = low is not None and told.value < low, high is not None and told.value > high
    if below or above:
        text.append(
            paragraph(
                "The value at the point estimates, ",
                amount(told.value),
                f", lies {'below' if below else 'above'} this interval: the samples take the "
                "uncertainty of the estimates into account, and the value does not.",
            )
        )
    return text


def _interval(spread: Facts) -> tuple[float | None, float | None]:
    """Return the ends of the value's interval.

    None stands for one that no log gives.
    """
    ends = spread.values.get("value_90_percent")
    listed = ends if isinstance(ends, list) else []
    path = f"{spread.path}.value_90_percent"
    both = Facts(spread.file, {str(k): end for k, end in enumerate(listed)}, path)
    return both.maybe("0"), both.maybe("1")


def _ends(low: float | None, high: float | None) -> list[Child]:
    """Return the ends of an interval in words."""
    if low is not None and high is not None:
        return ["from ", amount(low), " to ", amount(high)]
    if low is not None:
        return [amount(low), " or more"]
    return ["open on either side"] if high is None else [amount(high), " or less"]

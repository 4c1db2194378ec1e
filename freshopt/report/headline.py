"""The ten lines of a plan: saving, changes, how sure.

The same lines head the page. All of them follow from ``summary.json``, so that a plan over partitions and
``freshopt report`` tell them too; a line whose facts are not there is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from freshopt.formatting import WIDTH, count, percent
from freshopt.report.context import Context, Facts
from freshopt.report.markup import unmarked
from freshopt.report.value_words import amount, less_fresh
from freshopt.units import convert_time, duration, per_unit, rate_unit

# The file of the page in a plan's folder.
PAGE = "report.html"
# Relative differences below this are equality: change rates from a log tell no less.
SAME = 5e-4
# Bandwidths nearer to each other than that are called the same.
_ALIKE = 5e-3
# Warnings that are told in full, and characters of a name.
_WARNINGS, _NAME = 3, 32
# Limits that are named.
_NAMED = 3

# What a log tells of some sources, in one wording.
_FLAGS = {
    "never changed": "never changed",
    "always changed": "changed at every crawl",
    "baseline only": "crawled only once",
    "never crawled": "not crawled yet",
}


class Line(NamedTuple):
    """A line of the headline: subject, finding and remark."""

    head: str
    text: str
    remark: str = ""


def warnings(told: Context) -> list[str]:
    """Return the run's warnings, the first of many."""
    given = [unmarked(each) for each in told.facts.texts("warnings")]
    rest = len(given) - _WARNINGS
    more = [f"and {count(rest, 'more warning')}; --details has all"] if rest > 0 else []
    return [*given[:_WARNINGS], *more]


def size(told: Context) -> str:
    """Return the log's size: sources, time and changes."""
    log = told.facts.within("log")
    what = "crawls" if log.values.get("crawled", True) else "known changes"
    span = _span(told, log)
    span = f", {span} of {what}" if span else ""
    median = told.facts.within("change_rate").maybe("median")
    parts = []
    if median and told.sources == 1:
        parts.append(f"It changes about once in {duration(1.0 / median, told.unit)}")
    elif median:
        parts.append(f"Half change less than once in {duration(1.0 / median, told.unit)}")
    parts += [f"{many:,} {_FLAGS.get(kind, kind)}" for kind, many in told.flags.items() if many]
    text = "; ".join(parts)
    return f"{count(told.sources, 'source')}{span}.{f' {text[:1].upper()}{text[1:]}.' if text else ''}"


def made(told: Context) -> str:
    """Return when the plan was made, and of which time."""
    log, when = told.facts.within("log"), told.facts.values.get("made")
    planned = f"Planned on {when}" if isinstance(when, str) else "Planned"
    if "end" not in log.values:
        return f"{planned}." if isinstance(when, str) else ""
    span = f"{told.moment('begin')} to {told.moment('end')}"
    return f"{planned} from a log of {span}, where the schedule begins."


def hero(told: Context) -> str:
    """Return the saving in a sentence, or what is reached."""
    first, fresh = next(_saving(told), None), told.fresh("plan")
    if first is None:
        first = next(_reached(told), None)
    elif first.remark.endswith(" fewer"):
        within = " within the limits" if told.today.within("cut") else ""
        return f"The same freshness{within} with {first.remark} {told.words.fetches}: {first.text}."
    if first is None or fresh is None:
        return "" if first is None else f"{first.head}: {first.text}."
    return f"Copies are {_up_to_date(fresh)} with {rate(told, told.facts.number('bandwidth_used'))}."


def lines(told: Context) -> list[Line]:
    """Return the saving, what is reached, what changes, and what comes next."""
    found = (_saving, _reached, _hours, _signals, _promises, _intervals, _moved, _limits, _next)
    return [line for each in found for line in each(told)]


def _saving(told: Context) -> Iterator[Line]:
    """Yield how few fetches are as fresh as today, or asked."""
    today, asked = told.today, told.facts.within("needed")
    needed = today.maybe("needed")
    if needed:
        cut = today.within("cut")
        now = cut or today
        used, fresh = now.positive("bandwidth"), percent(now.number("fresh"), space=" ")
        # More than they use is asked for by bounds and constraints, not by freshness.
        if needed <= used * (1.0 + SAME):
            text = f"{rate(told, needed)} instead of {rate(told, used, like=needed)}"
            where = "Your crawls, cut to the limits" if cut else "At your freshness"
            yield Line(f"{where} ({fresh})", text, fewer(needed, used))
    if asked and not (needed and asked.text("sentence").startswith("as fresh as today")):
        bandwidth = asked.positive("bandwidth")
        current = today.maybe("bandwidth")
        remark = f"{fewer(bandwidth, current)} than your crawls" if current else "the fewest that do it"
        share = percent(asked.number("freshness"), space=" ")
        yield Line(f"To be {share} up to date", rate(told, bandwidth), remark)


def _reached(told: Context) -> Iterator[Line]:
    """Yield what is reached at the plan's own bandwidth."""
    kind, fresh, asked = told.facts.text("objective"), told.fresh("plan"), told.facts.within("needed")
    used = told.facts.number("bandwidth_used")
    if asked and kind == "BinaryFreshness":
        return
    if kind == "Spend":
        yield Line(
            "Fewest within the constraints", rate(told, used), "" if fresh is None else _up_to_date(fresh)
        )
        return
    now = _now(told, used)
    own = told.facts.maybe("bandwidth") or used
    idle = used < own * (1.0 - _ALIKE)
    head = f"At your {rate(told, own if idle else used)}"
    if fresh is None or told.goal.noun == "objective":
        yield Line(head, f"{told.goal.noun} {amount(kind, told.value, told.unit)}", _than_alike(told))
        yield from _unused(told, used, own) if idle else ()
        return
    equal = told.fresh("uniform")
    remark = ""
    if now is not None:
        remark = f"(now: {percent(now, space=' ')})"
    elif equal is not None and abs(equal - fresh) >= SAME:
        remark = f"(all alike: {percent(equal, space=' ')})"
    yield Line(head, _up_to_date(fresh), remark)
    yield from _unused(told, used, own) if idle else ()
    shares = {"plan": fresh, "uniform": equal if now is None or equal is None else max(now, equal)}
    gain = told.better("uniform")
    if less_fresh(kind, shares) and gain is not None and gain > SAME:
        yield Line("", _than_alike(told), "(what is optimised)")


def _hours(told: Context) -> Iterator[Line]:
    """Yield the freshness within the hours of fetches."""
    fresh = told.facts.maybe("fresh_within_hours")
    if fresh is not None:
        yield Line("Within your hours", _up_to_date(fresh))


def _signals(told: Context) -> Iterator[Line]:
    """Yield what signals bring, and which of them are left out."""
    found = told.facts.within("signals")
    if not found:
        return
    saving, without = found.maybe("saving"), found.maybe("fresh_without")
    if without is not None:
        remark = "" if saving is None else f"{fewer(1.0 - saving, 1.0)} for the same"
        yield Line("Signals bring", found.text("headline"), remark)
    if found.text("left_out"):
        yield Line("Signals", found.text("left_out"))


def _promises(told: Context) -> Iterator[Line]:
    """Yield what promises cost."""
    for k, row in enumerate(told.facts.rows("promises")):
        yield Line("" if k else "Promised", f"{unmarked(row.text('text'))}: {row.text('price')}")


def _unused(told: Context, used: float, own: float) -> Iterator[Line]:
    """Yield that some of the bandwidth is unused, and why."""
    limits = told.findings.within("hosts"), told.facts.within("constraints")
    binding = sum(each.whole("binding") for each in limits if each)
    limited = bool(told.counts.maybe("at_max_rate") or binding)
    why = "your limits allow no more" if limited else "more would gain nothing"
    yield Line("", f"only {rate(told, used, like=own)} of them are used: {why}")


def _now(told: Context, used: float) -> float | None:
    """Return how fresh the log's own crawls are, if as many."""
    today = told.today
    if not today or today.within("cut"):
        return None
    return today.number("fresh") if abs(used - today.number("bandwidth")) <= _ALIKE * used else None


def _intervals(told: Context) -> Iterator[Line]:
    """Yield how far apart the refreshes of a source are."""
    found = told.facts.within("intervals")
    if not found.values:
        return
    ends = [found.within(key) for key in ("shortest", "longest")]
    low, high = (duration(end.positive("interval"), told.unit) for end in ends)
    never = told.counts.whole("never_refreshed")
    rest = f"; {never:,} never" if never else ""
    median = duration(found.positive("median"), told.unit)
    if low == high:
        yield Line(told.words.every, f"{low}{rest}")
        return
    first, last = (_whose(end) for end in ends)
    yield Line(told.words.every, f"{low}{first} to {high}{last}; median {median}{rest}")


def _moved(told: Context) -> Iterator[Line]:
    """Yield what changes against the earlier rates, or against the log's crawls."""
    earlier, moved = told.facts.within("changes"), told.facts.within("moved")
    if earlier:
        changed, new, gone = (earlier.whole(key) for key in ("changed", "new", "gone"))
        more = f", {count(new, 'new source')}" if new else ""
        more += f", {gone:,} gone" if gone else ""
        yield Line(
            "Against the old rates", f"{changed:,} of {count(told.sources - new, 'interval')} changed{more}"
        )
    elif moved:
        kinds = {"less often": "less", "more often": "more", "about as often": "about", "no more": "never"}
        parts = [f"{moved.whole(key):,} {words}" for words, key in kinds.items() if moved.whole(key)]
        yield Line("Against your crawls", f"{', '.join(parts)}")


def _limits(told: Context) -> Iterator[Line]:
    """Yield which host limits and constraints bind."""
    hosts, declared = told.findings.within("hosts"), told.facts.within("constraints")
    if hosts:
        names = [row.name("host") for row in hosts.rows("hosts")]
        yield Line("Host limits", _binding(hosts.whole("binding"), hosts.whole("limited"), names))
    if declared:
        names = [row.text("label") for row in declared.rows("listed") if row.maybe("price")]
        yield Line("Constraints", _binding(declared.whole("binding"), declared.whole("rows"), names))


def _binding(binding: int, of: int, names: list[str]) -> str:
    """Return how many limits bind, and the dearest of them."""
    named = ", ".join(unmarked(name) for name in names[:_NAMED])
    more = ", ..." if binding > _NAMED else ""
    return f"{binding:,} of {of:,} {'binds' if binding == 1 else 'bind'}{f': {named}{more}' if named else ''}"


def _next(told: Context) -> Iterator[Line]:
    """Yield the schedule."""
    horizon = told.facts.maybe("horizon")
    planned = told.counts.values.get("refreshes")
    if horizon is None or planned is None:
        return
    planned = told.counts.whole("refreshes")
    # Where fetches cost what they bring, the bandwidth is in units, and the schedule is of refreshes.
    noun = told.words.fetches if told.words.alike else told.words.rates
    text = f"{planned:,} {noun} in {duration(horizon, told.unit)}"
    yield Line("Next", f"{text}, about {rate(told, planned / horizon, '')}" if planned else text)


def trust(told: Context) -> str:
    """Return what is proved, and how predictions came out."""
    held, forecast = told.facts.within("held_out"), told.facts.within("forecast")
    if held.values.get("verdict"):
        verdict = held.text("verdict")
        return f"{_proof(told)} On your own past: {verdict[:1].lower()}{verdict[1:]}"
    ratios = [each for each in forecast.numbers("realised_over_predicted") if each]
    if not ratios:
        return _proof(told)
    low, high = (_percents(each) for each in (min(ratios), max(ratios)))
    ends = low if low == high else f"{low} to {high}"
    return f"{_proof(told)} Costs on your own past were {ends} % off the prediction."


def _percents(ratio: float) -> str:
    """Return how far a ratio is from 1, in percent."""
    points = round(100.0 * (ratio - 1.0))
    return f"{points:+d}" if points else "0"


def _proof(told: Context) -> str:
    """Return what is proved."""
    if told.proved:
        own = told.facts.text("objective") == "Expected"
        return f"Proved optimal for {'the change rates given' if own else 'these estimates'}."
    if told.facts.within("few_changes"):
        return "Most old intervals are kept; what that costs at most is proved, see --details."
    return f"Not proved optimal: {told.facts.text('status')}."


def rough(share: float) -> str:
    """Return a share in percent, whole from 10 % on.

    Examples
    --------
    >>> rough(0.2409), rough(0.0512), rough(0.9971), rough(1.203)
    ('24 %', '5.1 %', '99.7 %', '120 %')
    >>> rough(0.00641)
    '0.6 %'
    """
    if share < 0.01:
        return f"{100.0 * share:.1g} %"
    whole = share >= 0.1 and not 0.995 <= share < 1.0
    return f"{100.0 * share:,.0f} %" if whole else percent(share, space=" ")


def fewer(new: float, old: float, noun: str = "") -> str:
    """Return how many fewer fetches there are, in percent.

    Examples
    --------
    >>> fewer(261.1, 344.0), fewer(4.0, 4.0), fewer(5.0, 4.0)
    ('24 % fewer', 'as many', '25 % more')
    """
    saving = 1.0 - new / old
    if abs(saving) < SAME:
        return f"as many{noun}"
    return f"{rough(abs(saving))} {'fewer' if saving > 0.0 else 'more'}{noun}"


def rate(told: Context, value: float, noun: str | None = None, *, like: float | None = None) -> str:
    """Return a rate such as 261 fetches/day, short beside another."""
    unit = rate_unit(value if like is None else like, told.unit)
    each = per_unit(value, told.unit, unit)
    # Three digits, or all before the point.
    text = f"{each:,.0f}" if each >= 99.5 else f"{each:.3g}"
    if noun is None:
        noun = told.words.fetch if text == "1" else told.words.fetches
    return text if like is not None else f"{text}{noun and f' {noun}'}/{unit}"


def _up_to_date(fresh: float) -> str:
    return f"{percent(fresh, space=' ')} of the time up to date"


def _than_alike(told: Context) -> str:
    """Return how much better the value is than with equal rates."""
    gain = told.better("uniform")
    if gain is None or abs(gain) < SAME:
        return ""
    more = "more" if (gain > 0.0) == told.maximised else "less"
    # Of one's own only the class has a name.
    noun = "" if told.goal.noun == "objective" else f" {told.goal.noun}"
    return f"{rough(abs(gain))} {more}{noun} than all alike"


def _whose(end: Facts) -> str:
    """Return whose an interval is, in brackets."""
    whose = end.values.get("whose")
    if isinstance(whose, int):
        return f" ({count(whose, 'source')})"
    if isinstance(whose, str) and whose in _FLAGS:
        return f" ({_FLAGS[whose]})"
    text = unmarked(end.text("whose")).removeprefix("https://").removeprefix("http://")
    return f" ({text if len(text) <= _NAME else f'…{text[1 - _NAME :]}'})"


def _span(told: Context, log: Facts) -> str:
    """Return how long a log is, to two digits."""
    if not (log and log.values.get("timed", True)):
        return ""
    begin, end = told.date("begin"), told.date("end")
    if begin is not None and end is not None:
        length = convert_time((end - begin).total_seconds(), "second", told.unit)
    else:
        length = log.number("end") - log.number("begin")
    if not length > 0.0:
        return ""
    text, noun = duration(length, told.unit).split()
    return f"{float(text):.2g} {noun}" if "." in text else f"{text} {noun}"


def closing(told: Context, folder: Path, files: Sequence[str], *, details: bool, replayed: bool) -> str:
    """Return where the rest is, and what else may be asked for."""
    tables = sorted({Path(file).suffix for file in files} & {".csv", ".parquet"})
    first = next(_saving(told), None)
    spared = first is not None and first.remark.endswith(" fewer") and not told.facts.within("needed")
    # Others clash with a freshness, which is that of binary freshness; harmonic staleness is the default.
    spared &= told.facts.text("objective") in {"HarmonicStaleness", "BinaryFreshness"}
    more = ["--freshness today to plan with fewer fetches"] if spared else []
    # Refused beside signals.
    more += [] if replayed or told.facts.within("signals") else ["--replay to test it on your history"]
    more += [] if details else ["--details"]
    places = [f"Page: {folder / PAGE}", *(f"Tables: {folder / f'*{ending}'}" for ending in tables)]
    return "   ".join(places) + (f"\nMore: {', '.join(more)}" if more else "")


def headline(told: Context, *, width: int = WIDTH, warned: bool = False) -> str:
    """Return what a plan brings, in lines of at most `width` characters."""
    rows = lines(told)
    head, text = (max((len(row[k]) for row in rows), default=0) for k in (0, 1))
    short = [row for row in rows if row.remark]
    text = max((len(row.text) for row in short), default=text)
    made = [f"{row.head:<{head}}   {row.text:<{text}}   {row.remark}".rstrip() for row in rows]
    heard = [] if warned else [f"Warning: {each}" for each in warnings(told)]
    parts = [heard, [size(told)], made, [trust(told)]]
    blocks = (_folded(part, width, head + 3 if part is made else 0) for part in parts if part)
    return "\n\n".join("\n".join(block) for block in blocks)


def _folded(part: list[str], width: int, indent: int) -> list[str]:
    """Return lines folded at a width; a number stays with its sign."""
    room = " " * min(indent, width // 2)
    folded: list[str] = []
    for line in part:
        kept = line.replace(" %", "\xa0%")
        wrapped = textwrap.wrap(
            kept, width, subsequent_indent=room, break_long_words=False, break_on_hyphens=False
        )
        folded += [line] if len(line) <= width else [piece.replace("\xa0%", " %") for piece in wrapped]
    return folded

"""Findings of a plan in memory, in order of telling.

``freshopt plan`` and a notebook print their labels and sentences as rows; keys are those of ``summary.json``,
or of the section of the page that tells more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.certificates.certificate import Certificate
from freshopt.formatting import count, number, percent
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from freshopt.planning.declared import price_sentences
from freshopt.planning.plan_files import summary
from freshopt.report.finding import Finding
from freshopt.report.objective_names import goal_of
from freshopt.report.value_words import FetchWords, amount, less_fresh, mean_amount, meaning, price_text
from freshopt.units import duration, per_unit, rate_text, rate_unit

if TYPE_CHECKING:
    from freshopt.planning.plan import Plan

# Relative differences of values below this are lost in a sum of float64.
_RESOLVED = 1e-15
# Shares of the bandwidth below this are rounding.
_ROUNDING = 1e-9
# Relative difference of the value over the horizon from that of the long run that needs a word.
_FAR = 0.05
# Hosts that a row names.
_HOSTS = 3


def plan_rows(made: Plan, read: str | None = None, objective: str = "") -> list[tuple[str, str]]:
    """Return the labelled rows of a plan's summary."""
    return [(found.label, found.sentence) for found in plan_findings(made, read, objective)]


def plan_findings(made: Plan, read: str | None = None, objective: str = "") -> list[Finding]:
    """Return what a plan found, in order of telling."""
    facts = summary(made)
    size = f"{count(len(made.log), 'crawl')} of {count(len(made.sources), 'source')}"
    log = Finding("log", "log", f"{read or size}, {span_words(made.log)}", facts["log"])
    found = [
        log,
        *(Finding("warnings", "warning", text) for text in made.warnings),
        _change_rates(facts),
        _objective(facts, objective),
        _bandwidth(facts),
        _fetches(facts),
        _intervals(made, facts),
        _time_fresh(facts),
        _value(facts),
        _shadow_price(facts),
        _host_limits(facts),
        _needed(made),
        _today(made),
        *_changes(made, FetchWords.of(facts)),
        _forecast(made),
        _weekly_cycle(made, read),
        *_constraints(made),
        _schedule(facts, _ages(made)),
        _uncertainty(facts),
        _certificate(made, facts),
    ]
    return [each for each in found if each is not None]


def summary_findings(facts: dict[str, Any]) -> list[Finding]:
    """Return what follows from ``summary.json`` alone, in order of telling."""
    found = [
        _change_rates(facts),
        _objective(facts),
        _bandwidth(facts),
        _fetches(facts),
        _time_fresh(facts),
        _value(facts),
        _shadow_price(facts),
        _host_limits(facts),
        _schedule(facts),
    ]
    return [each for each in found if each is not None]


def _change_rates(facts: dict[str, Any]) -> Finding:
    """Return the change rates in all, and what is odd about some."""
    learnt, unit = facts["change_rate"], facts["time_unit"]
    often = f"; median source one in {duration(1.0 / learnt['median'], unit)}" if learnt.get("median") else ""
    flags = "".join(f"; {times:,} {flag}" for flag, times in facts["counts"]["flags"].items() if flag != "ok")
    words = f"{rate_text(learnt['sum'], unit, 'change')} in all{often}{flags}"
    return Finding("change_rate", "change rates", words, learnt)


def _bandwidth(facts: dict[str, Any]) -> Finding:
    """Return how much of the bandwidth is used."""
    used, most, unit = facts["bandwidth_used"], facts["bandwidth"], facts["time_unit"]
    scale = rate_unit(most or used, unit)
    limit = "" if most is None else f" of {number(per_unit(most, unit, scale))}"
    words = f"{number(per_unit(used, unit, scale))}{limit} {FetchWords.of(facts).uses} per {scale} used"
    return Finding("bandwidth", "bandwidth", words)


def _fetches(facts: dict[str, Any]) -> Finding | None:
    """Return fetches that fail, or cost what they bring."""
    told = []
    if "success" in facts:
        mean, least = (percent(facts["success"][key], space=" ") for key in ("mean", "least"))
        retried = facts["success"]["retry_at_once"]
        of = "retried at once; rates are of successes" if retried else "rates are of attempts"
        told.append(f"{mean} succeed in the mean source, {least} in the worst; {of}")
    used = facts["bandwidth_used"]
    if "changed_cost" in facts and used > 0.0:
        found = facts["changed_cost"]
        often = rate_text(found["fetches"], facts["time_unit"], "refresh")
        asking, downloads = (percent(found[key] / used, space=" ") for key in ("asking", "downloads"))
        told.append(f"{often}; asking uses {asking} of the bandwidth, downloads of what changed {downloads}")
    return Finding("success", "fetches", "; ".join(told)) if told else None


def _intervals(made: Plan, facts: dict[str, Any]) -> Finding:
    """Return how far apart refreshes are, and who has none."""
    never = count(facts["counts"]["never_refreshed"], "source")
    words = f"{spread(made.solution.rates, facts['time_unit'])}; {never} never refreshed"
    return Finding("rates", "intervals", words, facts["counts"])


def _value(facts: dict[str, Any]) -> Finding:
    """Return the value in the long run, beside that of simple rules."""
    kind, value, unit = facts["objective"], facts["value"], facts["time_unit"]
    cycle, found = facts.get("phases") or {}, facts.get("findings") or {}
    without = amount(kind, cycle["value_without"], unit) if cycle else ""
    others = _rules({rule: amount(kind, each, unit) for rule, each in facts["baselines"].items()}, without)
    mean = mean_amount(kind, value, found.get("importance"), unit)
    # Of a share of time the whole is the sum of importances.
    whole = f" of {number(found['importance'])}" if kind == "BinaryFreshness" and mean else ""
    words = f"{goal_of(kind).noun} {amount(kind, value, unit)}{whole} in the long run {_given(kind)}"
    words += f"{f', {mean} a source' if mean else ''}{others}"
    return Finding("comparison", "value", words, facts["baselines"])


def _schedule(facts: dict[str, Any], ages: str = "") -> Finding:
    """Return how many refreshes there are, and the value over that time."""
    kind, unit = facts["objective"], facts["time_unit"]
    many = count(facts["counts"]["refreshes"], FetchWords.of(facts).rate)
    over = f"{goal_of(kind).noun} over that time {amount(kind, facts['schedule_value'], unit)}{ages}"
    words = f"{many} in {duration(facts['horizon'], unit)} {_method(facts['method'])}, {over}"
    return Finding("load", "schedule", words)


def _certificate(made: Plan, facts: dict[str, Any]) -> Finding:
    """Return what is proved of the rates."""
    proof, words = made.solution.certificate, "none"
    if proof is not None and made.few is not None and facts["status"] != "optimal":
        gap = amount(facts["objective"], proof.gap, facts["time_unit"])
        words = f"old intervals are kept: no rates at all are better by more than the duality gap {gap}"
    elif proof is not None:
        words = certificate_text(facts["status"], gap_text(proof), facts["objective"])
    return Finding("proof", "certificate", words)


def _objective(facts: dict[str, Any], name: str = "") -> Finding:
    """Return the objective: name, sense, meaning, discipline."""
    kind, refreshes = facts["objective"], f"{facts['discipline']} {FetchWords.of(facts).rates}"
    if kind == "Spend":
        words = f"Spend, the least bandwidth that meets the constraints; {refreshes}"
        return Finding("objective", "objective", words)
    goal = f"{kind}, {name}" if name and kind == "SynchronizationCost" else kind
    sense = "higher is better" if facts["sense"] == "maximise" else "lower is better"
    told = f": {meaning(kind)}" if meaning(kind) else ""
    return Finding("objective", "objective", f"{goal} ({sense}){told}; {refreshes}")


def _time_fresh(facts: dict[str, Any]) -> Finding | None:
    """Return the time fresh, and what is optimised where it is less.

    Less than at equal rates; simple rules have no weekly cycle.
    """
    shares, without = (
        (facts.get("findings") or {}).get("fresh"),
        (facts.get("phases") or {}).get("fresh_without"),
    )
    if not shares:
        return None
    told = {rule: percent(share, space=" ") for rule, share in shares.items()}
    own = told.pop("plan")
    flat = "" if without is None else percent(without, space=" ")
    less = less_fresh(facts["objective"], shares)
    own = f"{own} of the time, by importance{f', {less}' if less else ''}"
    return Finding("fresh", "time fresh", f"{own}{_rules(told, flat)}", shares)


def _rules(told: dict[str, str], without: str) -> str:
    """Return what simple rules achieve, to be appended to the plan's own.

    First comes the plan `without` its weekly cycle, if it has one.
    """
    shown = (f"{rule}{'' if k else ' rates'} {text}" for k, (rule, text) in enumerate(told.items()))
    flat = [f"{without} at equal intervals"] if without else []
    return f"; {', '.join([*flat, *shown])}" if flat or told else ""


def _method(method: str) -> str:
    """Return how a schedule spreads refreshes, in words."""
    if method.startswith("Periodic"):
        return "at equal intervals" if method == "Periodic()" else "at good hours of the week"
    return "at random times" if method.startswith("PoissonArrivals") else f"by {method}"


def certificate_text(status: str, gap: str, objective: str = "") -> str:
    """Return what a certificate proves, and what that means."""
    told = f"{proved_words(status, objective)}: {gap}"
    return f"{told}; no feasible rates are better by more" if status == "optimal" else told


def proved_words(status: str, objective: str = "") -> str:
    """Return what a certificate of that status proves.

    Examples
    --------
    >>> proved_words("optimal"), proved_words("inaccurate")
    ('optimal for the estimated change rates', 'inaccurate')
    """
    which = "change rates of the objective" if objective == "Expected" else "estimated change rates"
    return f"optimal for the {which}" if status == "optimal" else status


def _given(objective: str) -> str:
    """Return what the value supposes."""
    return (
        "for the change rates of the objective" if objective == "Expected" else "if the estimates are right"
    )


def _shadow_price(facts: dict[str, Any]) -> Finding | None:
    """Return the bandwidth's shadow price; where it is 0, the reason."""
    price, used, bandwidth = facts["price"], facts["bandwidth_used"], facts["bandwidth"]
    if price is None:
        return None
    if price > 0.0:
        # Kept intervals are not what a bandwidth's price would choose.
        kept = facts.get("few_changes") is not None and facts["status"] != "optimal"
        words = price_text(
            facts["objective"],
            price,
            bandwidth,
            facts["value"],
            facts["time_unit"],
            maximised=facts["sense"] == "maximise",
            optimal=not kept,
            fetch=FetchWords.of(facts).bandwidth,
        )
        words += ", of which all may change" if kept else ""
    elif used >= (1.0 - _ROUNDING) * bandwidth:
        words = "0: more bandwidth gains nothing"
    else:
        other = "other constraints or maximum rates"
        limits = other if facts.get("constraints") else "maximum rates or host limits"
        words = f"0: {limits} are reached, or nothing is left to gain"
    return Finding("price", "shadow price", words)


def _host_limits(facts: dict[str, Any]) -> Finding | None:
    """Return the hosts' limits that bind, the dearest first."""
    found, unit = (facts.get("findings") or {}).get("hosts"), facts["time_unit"]
    if not found:
        return None
    limits = count(found["limited"], "limit")
    if not found["hosts"]:
        return Finding("hosts", "host limits", f"none of {limits} binds", found)
    kind, verb = facts["objective"], "raises" if facts["sense"] == "maximise" else "lowers"
    each = [f"{amount(kind, row['price'], unit)} for {row['host']!r}" for row in found["hosts"][:_HOSTS]]
    more = found["binding"] - len(each)
    rest = f"; {more:,} more bind" if more > 0 else ""
    higher = f"a limit higher by 1 {FetchWords.of(facts).bandwidth} per {unit}"
    words = f"{higher} {verb} {goal_of(kind).noun} by at most {', '.join(each)}{rest}"
    binds = "binds" if found["binding"] == 1 else "bind"
    return Finding("hosts", "host limits", f"{found['binding']:,} of {limits} {binds}: {words}", found)


def _constraints(made: Plan) -> list[Finding]:
    """Return the prices of declared constraints, a row each."""
    sentences = price_sentences(made.solution)
    return [Finding("constraints", "" if k else "constraints", text) for k, text in enumerate(sentences)]


def _needed(made: Plan) -> Finding | None:
    """Return what the freshness asked for needs, unless today's says it."""
    asked = made.needed
    if asked is None or (asked.today is not None and not asked.beyond):
        return None
    return Finding("needed", "freshness", asked.sentence)


def _today(made: Plan) -> Finding | None:
    """Return what today's freshness needs."""
    return None if made.today is None else Finding("today", "as today", made.today.sentence)


def _changes(made: Plan, counts: FetchWords) -> list[Finding]:
    """Return what changes of rates bring, and few of them cost."""
    found = made.changes
    if found is None:
        return []
    kind, unit = type(made.request.objective).__name__, made.log.time_unit
    noun, proof = goal_of(kind).noun, found.certificate
    used = rate_text(found.bandwidth, unit, counts.bandwidth)
    at = " at equal intervals" if made.few is not None and made.few.no_cycle else ""
    old = f"{used}; {noun} {amount(kind, found.value, unit)}{at} under today's estimates"
    before = f"{amount(kind, found.value, unit)}{at}"
    if found.cut is not None:
        cut, value = rate_text(found.cut[0], unit, counts.bandwidth), amount(kind, found.cut[1], unit)
        old += f"; beyond maximum rates or host limits, cut to which they are {cut}, {noun} {value}{at}"
        before = f"{value}{at} of old rates cut to the limits"
    if proof is not None:
        best = amount(kind, proof.bound, unit)
        old += f"; no rates of as many {counts.uses} do better than {best}{at} ({gap_text(proof)})"
    there = len(found.old) - found.new
    words = f"{np.count_nonzero(found.changed):,} of {count(there, 'interval')} changed"
    words += f"; {count(found.new, 'new source')}" if found.new else ""
    words += f"; {count(found.gone, 'source')} gone" if found.gone else ""
    words += f"; {noun} {amount(kind, made.solution.value, unit)}, not {before}"
    rows = [Finding("changes", "old rates", old), Finding("changes", "changes", words)]
    few = [] if made.few is None else [Finding("few_changes", "few changes", made.few.sentence)]
    return [*rows, *few]


def _forecast(made: Plan) -> Finding | None:
    """Return the expected value, where change rates matter to it."""
    found = made.forecast
    if found is None or not (found.spread > 0.0 or len(found.ratios)):
        return None
    kind, unit = type(made.request.objective).__name__, made.log.time_unit
    return Finding("forecast", "expected", found.words(lambda value: amount(kind, value, unit)))


def _uncertainty(facts: dict[str, Any]) -> Finding | None:
    """Return the expected regret of estimation error."""
    found = facts["uncertainty"]
    if found is None:
        return None
    kind, unit = facts["objective"], facts["time_unit"]
    relative = found["relative_regret"]
    loss = amount(kind, found["mean_regret"], unit)
    if relative is not None:
        base = f"the mean optimal value {amount(kind, found['mean_optimal_value'], unit)}"
        loss += f", {percent(relative, space=' ')} of {base}"
    words = f"expected regret of estimation error: {loss} ({found['draws']} samples)"
    words += "; plans that knew the change rates would gain so much"
    return Finding("uncertainty", "uncertainty", words, found)


def _weekly_cycle(made: Plan, read: str | None) -> Finding | None:
    """Return what the weekly cycle brings, if there is any."""
    words = "left out, as most intervals are kept: old and new rates are valued at equal intervals"
    if made.phases is not None:
        flat = "load_limit=1" if read is None else "--load-limit 1"
        words = f"{made.phases.sentence}; {flat} keeps the load flat"
    elif made.few is None or not made.few.no_cycle:
        return None
    return Finding("phases", "weekly cycle", words)


def spread(rates: Array, unit: str) -> str:
    """Return how far apart the refreshes of a source are.

    Examples
    --------
    >>> spread(np.array([0.25, 0.5, 48.0]), "day")
    'from 30 minutes to 4 days, median 2 days'
    """
    refreshed = rates[rates > 0.0]
    if len(refreshed) == 0:
        return "none"
    least, median, most = (
        duration(float(each), unit) for each in np.quantile(1.0 / refreshed, [0.0, 0.5, 1.0])
    )
    if least == most:
        return most
    if least.split()[1] == most.split()[1]:
        least = least.split()[0]
    return f"from {least} to {most}, median {median}"


def _ages(made: Plan) -> str:
    """Return the copies' initial ages in words.

    Empty where the value over the horizon is near that of the long run.

    Without it nobody could tell why it is not.
    """
    ages = made.log.age
    old = int(np.count_nonzero(ages > made.schedule.horizon))
    if old == 0:
        value = made.solution.value
        far = abs(made.schedule_value - value) > _FAR * abs(value)
        return " (copies begin at the ages that the log leaves)" if far else ""
    horizon, unit, oldest = made.schedule.horizon, made.log.time_unit, float(np.max(ages))
    if old == 1:
        return f" (1 source was last crawled {duration(oldest, unit)} before it begins)"
    over = f"{old:,} sources were last crawled over {duration(horizon, unit)} before it begins"
    return f" ({over}, the oldest {duration(oldest, unit)})"


def gap_text(proof: Certificate) -> str:
    """Return the relative duality gap, floored at float64 resolution.

    A smaller gap than float64 resolves in the value itself is given as a bound.
    """
    relative = proof.relative_gap
    if proof.vanishing and proof.gap > 0.0:
        return f"nothing beside the cost without refreshes, duality gap {proof.gap:.1e}"
    text = f"relative duality gap {f'{relative:.1e}' if relative > _RESOLVED else f'< {_RESOLVED:.0e}'}"
    return f"{text}; {proof.reason}" if proof.reason else text


def span_words(log: CrawlLog | ChangeHistory) -> str:
    """Return the time that a log covers, as dates or numbers."""
    if isinstance(log, ChangeHistory):
        begin, end = float(np.min(log.start)), float(np.max(log.end))
    else:
        begin, end = float(np.min(log.time)), log.end
        if not log.timed:
            return "without times"
    first, last = log.clock.date(begin), log.clock.date(end)
    if first is None or last is None:
        return f"times as plain numbers of {log.time_unit}s, from {number(begin)} to {number(end)}"
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"

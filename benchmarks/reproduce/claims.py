"""Claims of a paper, fixed before the runs, and the verdict that seeded runs give on each.

The table of a paper is ``claims/<paper>.toml``: what is claimed, where, in which setting, which statistic of
how many runs decides, and the band in which it must lie. The runs are made from the table: the modules of a
paper register functions that return the samples of one or several claims; ``reproduce_<paper>.py`` measures.

Rules
-----
1. A claim is entered before its runs. A changed band or number of runs makes the saved finding void: the
   page and the tests refuse it until it is measured again.
2. The number of runs is in the table. Nobody looks at the interval and adds runs.
3. The 95 % interval decides alone: inside the band "holds", outside "does not hold", else "undecided".
4. One number per independent run, never a pooled mean; differences where learners share their seeds.
5. A claim that is known to be false is entered as the paper has it.
6. A saved finding has the commit of the table from which it was run, and what of its claim was other there.
   What is written anew is for reading: no band, kind or number of runs. An origin judged anew says why.

Whose a claim is
----------------
* The paper's: the paper says it, in a sentence, a theorem, a formula, a line of an algorithm or by what a
  figure shows, and would need a correction where the row fails at the paper's setting.
* Our own: what the paper says stands whatever the row finds. The row checks our instruments (moments, code,
  stand-ins fitted to a number); asks for more than is said (a slope or a size where a bound is stated,
  another model than the theorem's); or asks how often repetitions show what the paper shows of one run.
* Where the paper can be read both ways, the origin that was written before the run stands.

The verdict is not looked at.
"""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, stdtrit

FOLDER = Path(__file__).with_name("claims")
CONFIDENCE = 0.95
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
ORIGINS = {
    "number": "the paper's number",
    "figure": "the paper's ordering or figure",
    "theorem": "its theorem",
    "own": "our own addition",
}
KINDS = {
    "mean": "mean of the runs, Student's interval",
    "root": "root of the mean of the runs: samples are squared errors",
    "two means": "difference of the means of two independent samples, Welch's interval",
    "share": "share of the runs, Clopper and Pearson's interval",
    "always": "share of the runs, all of which must agree",
    "exact": "computed, not sampled",
}
# What of a claim decides a verdict.
DECIDES = ("id", "kind", "runs", "at_least", "at_most")
Samples: TypeAlias = npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike]
Measured: TypeAlias = Iterator[tuple[str, "Samples | Beside"]]
Listed: TypeAlias = Sequence["Samples | Beside"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, in our words, with what will decide it: a statistic of each of so many runs, and its band.

    `theirs` and `ours` are the paper's setting and ours, with why it differs, where the paper's page does not
    say it for all claims; `band_from` tells where the band comes from, `judged` why the origin is another
    than before the run.
    """

    id: str
    place: str
    origin: str
    claim: str
    statistic: str
    kind: str
    runs: int
    at_least: float = -math.inf
    at_most: float = math.inf
    theirs: str = ""
    ours: str = ""
    band_from: str = ""
    judged: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for what could not be decided."""
        if self.origin not in ORIGINS or self.kind not in KINDS or self.runs < 1:
            raise ValueError(f"{self.id}: origin {self.origin!r}, kind {self.kind!r}, {self.runs} runs")
        if not self.at_least <= self.at_most or (self.at_least, self.at_most) == (-math.inf, math.inf):
            raise ValueError(f"{self.id}: a band from {self.at_least} to {self.at_most} decides nothing")

    @property
    def band(self) -> str:
        """The band in words."""
        low, high = self.at_least, self.at_most
        if self.kind == "always":
            return "always"
        if math.isinf(low):
            return f"≤ {high:g}"
        return f"≥ {low:g}" if math.isinf(high) else f"{low:g}" if low == high else f"{low:g} to {high:g}"


@dataclass(frozen=True, slots=True)
class Beside:
    """Samples of a claim, and the same statistic of rates that stay as they were at first."""

    samples: Samples
    never: npt.ArrayLike


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim as the table has it now and as it had it before the run, in a commit, and what the runs gave.

    `never` is what rates reach that stay as they were at first, in the mean, where that was measured.
    """

    claim: Claim
    estimate: float
    low: float
    high: float
    runs: int
    as_run: Claim
    commit: str = ""
    never: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the interval lies inside the band, outside of it, or across its edge."""
        if self.claim.at_least <= self.low and self.high <= self.claim.at_most:
            return HOLDS
        if self.high < self.claim.at_least or self.low > self.claim.at_most:
            return FAILS
        return UNDECIDED

    @property
    def is_of_its_table(self) -> bool:
        """Whether the table has still what decides, and an origin that is the same or judged anew."""
        now, then = self.claim, self.as_run
        same = all(getattr(now, each) == getattr(then, each) for each in DECIDES)
        return same and (now.origin != then.origin) == bool(now.judged)

    def record(self) -> dict[str, Any]:
        """Return what is saved, with what of the claim was other before the run; infinite numbers as null."""
        now, then = asdict(self.claim), asdict(self.as_run)
        own = {key: getattr(self, key) for key in ("estimate", "low", "high", "runs")}
        beside = {} if self.never is None else {"never": self.never}
        as_run = {key: then[key] for key in now if key != "judged" and then[key] != now[key]}
        kept = {key: _finite(value) for key, value in {**now, **own, **beside}.items()}
        return {**kept, "verdict": self.verdict, "commit": self.commit, "as_run": as_run}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Finding:
        """Return the finding that was saved; its verdict is computed anew."""
        absent = {"estimate": math.nan, "low": -math.inf, "high": math.inf}
        absent |= {"at_least": -math.inf, "at_most": math.inf}
        read = {
            key: absent[key] if value is None and key in absent else value for key, value in record.items()
        }
        claim = Claim(**{each.name: read[each.name] for each in fields(Claim)})
        as_run = replace(claim, judged="", **read["as_run"])
        numbers = (read[key] for key in ("estimate", "low", "high", "runs"))
        return cls(claim, *numbers, as_run, read["commit"], read.get("never"))


@dataclass(frozen=True, slots=True)
class Table:
    """What one paper claims, by id and in the order of the page, and what of it cannot be decided and why.

    `setting` are the settings that all claims share, as Markdown.
    """

    paper: str
    title: str
    place: str
    setting: str
    claims: dict[str, Claim]
    undecidable: list[dict[str, str]]

    @classmethod
    def read(cls, paper: str) -> Table:
        """Read the table of a paper."""
        given = tomllib.loads((FOLDER / f"{paper}.toml").read_text(encoding="utf-8"))
        listed = [Claim(**_folded(each)) for each in given["claim"]]
        claims = {each.id: each for each in listed}
        if len(claims) < len(listed):
            raise ValueError(f"{paper}: an id stands twice")
        missed = [_folded(each) for each in given.get("undecidable", [])]
        return cls(paper, given["title"], given["place"], given["setting"].strip(), claims, missed)


@dataclass(frozen=True, slots=True)
class Plan:
    """How many runs to make, and from which seed, by the table of a commit.

    `quick` is the most of each claim, for tests; `group` are the claims that are measured together.
    """

    claims: Mapping[str, Claim]
    seed: int = 0
    quick: int | None = None
    commit: str = ""
    group: tuple[str, ...] = ()

    def runs(self, *ids: str) -> int:
        """Return the number of runs of claims that share them, or of the group."""
        (number,) = {self.claims[each].runs for each in ids or self.group}
        return number if self.quick is None else min(number, self.quick)

    def rng(self, *stream: int) -> np.random.Generator:
        """Return the random numbers of a stream of this seed."""
        return np.random.default_rng([self.seed, *stream])

    def columns(self, one: Callable[[int], Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Return the samples of each claim of the group, from what one run measures of all."""
        return list(zip(*(one(run) for run in range(self.runs())), strict=True))


Function: TypeAlias = Callable[[Plan], Measured | Listed]


@dataclass(frozen=True, slots=True)
class Group:
    """A function that measures some claims together, and its runs in the quick form, None for not at all.

    It yields claims with their samples, or returns the samples in the order of the claims.
    """

    ids: tuple[str, ...]
    quick: int | None
    function: Function


@dataclass(frozen=True, slots=True)
class Measurements:
    """The functions that measure a paper's claims."""

    groups: list[Group] = field(default_factory=list)

    def of(self, *ids: str, quick: int | None = None) -> Callable[[Function], Function]:
        """Register the function that measures these claims."""

        def register(function: Function) -> Function:
            self.groups.append(Group(ids, quick, function))
            return function

        return register

    def check(self, table: Table) -> None:
        """Raise ValueError unless each claim of the table is measured once."""
        listed = [each for group in self.groups for each in group.ids]
        twice = {each for each in listed if listed.count(each) > 1}
        if twice or set(listed) != set(table.claims):
            missing, unknown = set(table.claims) - set(listed), set(listed) - set(table.claims)
            raise ValueError(f"{table.paper}: measured twice {twice}, never {missing}, unknown {unknown}")


def decide(group: Group, plan: Plan) -> tuple[list[Finding], float]:
    """Measure a group of claims; return the findings and the seconds."""
    start = time.perf_counter()
    plan = replace(plan, quick=plan.quick and group.quick, group=group.ids)
    told = group.function(plan)
    pairs = zip(group.ids, told, strict=True) if isinstance(told, Sequence) else told
    found = {name: decided(plan.claims[name], samples, plan) for name, samples in pairs}
    if set(found) != set(group.ids):
        raise ValueError(f"measured {sorted(found)} instead of {sorted(group.ids)}")
    return [found[name] for name in group.ids], time.perf_counter() - start


def decided(claim: Claim, samples: Samples | Beside, plan: Plan) -> Finding:
    """Return the finding that samples give, as many as the table has."""
    never = None
    if isinstance(samples, Beside):
        samples, never = samples.samples, float(np.mean(np.asarray(samples.never, dtype=np.float64)))
    values = samples if claim.kind == "two means" else (samples,)
    rows = [np.asarray(each, dtype=np.float64).reshape(-1) for each in values]  # type: ignore[union-attr]
    for each in rows:
        if len(each) != plan.runs(claim.id):
            raise ValueError(f"{claim.id}: {len(each)} runs instead of {plan.runs(claim.id)}")
    return Finding(claim, *interval(claim.kind, rows), len(rows[0]), claim, plan.commit, never)


def interval(kind: str, rows: Sequence[npt.NDArray[np.float64]]) -> tuple[float, float, float]:
    """Return an estimate and the ends of its interval, by kind."""
    if kind == "share":
        return share_interval(rows[0])
    if kind in {"always", "exact"}:
        value = float(np.mean(rows[0]))
        return value, value, value
    if kind == "two means":
        return welch_interval(*rows)
    mean, low, high = mean_interval(rows[0])
    if kind == "root":  # it increases, so the ends of an interval become the ends of its image
        mean, low, high = (math.sqrt(max(x, 0.0)) for x in (mean, low, high))
    return mean, low, high


def mean_interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean and the ends of its t-interval; infinitely wide for a single run."""
    mean = float(np.mean(values))
    if len(values) == 1:
        return mean, -math.inf, math.inf
    half = _quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def welch_interval(
    one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return the difference of two means and its interval, by Welch's degrees of freedom."""
    variances = [float(np.var(x, ddof=1)) / len(x) for x in (one, other)]
    error = math.sqrt(sum(variances))
    freedom = error**4 / sum(v**2 / (len(x) - 1) for v, x in zip(variances, (one, other), strict=True))
    mean, half = float(one.mean() - other.mean()), _quantile(freedom) * error
    return mean, mean - half, mean + half


def share_interval(outcomes: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the share of outcomes and Clopper and Pearson's interval."""
    n, hits, tail = len(outcomes), int(np.count_nonzero(outcomes)), 0.5 * (1.0 - CONFIDENCE)
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1.0 - tail)) if hits < n else 1.0
    return hits / n, low, high


def _quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's distribution."""
    return float(stdtrit(freedom, 0.5 * (1.0 + CONFIDENCE)))


def _folded(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose texts stand on one line."""
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in entry.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

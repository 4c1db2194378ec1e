"""Measure what a learnt change model brings on four real histories.

    python -m benchmarks learnt_changes --data FOLDER [--draws 6] [--save]

FOLDER is as `histories.py` has it. A log of 60 crawls per source at exponential gaps of a week teaches change
rates, and the shape of change where the log's own later crawls prefer one to a Poisson process. The plans, at
equal gaps and one refresh per source and week, meet the true changes of the next 26 weeks, exactly.

`STATEMENTS` were written before the first run, with their bands; they are left as they were. Two plans were
compared: cost saved by the learnt model, in percent of the other's, and the distance of the logarithm of
predicted over realised cost from 0, which it is to lessen. Predicted is under the posterior of the rates.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import bundled, read, sampled
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.planning.request import default_estimate
from freshopt.problems import Age, BinaryFreshness
from freshopt.questions.learnt_changes import with_learnt_changes
from freshopt.simulation.static_costs import ChangeWindow, static_costs

READ, BUNDLED = ("eol_releases", "scoop_packages"), ("debian-uploads", "gstreamer-plugins")
OBJECTIVES = {"binary": BinaryFreshness(), "age": Age()}
WEEK, LENGTH, CRAWLS, MOST = 7.0, 182.0, 60, 400
# (what, history, low, high): cost saved in percent on average over draws, binary; and by how much the error
# of the predicted cost falls on average, over histories and objectives where a shape was learnt.
STATEMENTS = (
    ("saved", "eol_releases", -1.0, 6.0),
    ("saved", "scoop_packages", -1.5, 1.5),
    ("saved", "debian-uploads", -1.5, 1.5),
    ("saved", "gstreamer-plugins", -2.0, 2.0),
    ("nearer", "", 0.0, 0.5),
)
# Failed in the run that is saved: where a shape was learnt, the predicted cost came no nearer.
FAILED = ("nearer",)


def rows(data: str = "", draws: int = 6) -> Iterator[Row]:
    """Yield each draw of sources, crawls and importances, under both objectives."""
    for name in (*(READ if data else ()), *BUNDLED):
        history = read(Path(data), name) if name in READ else bundled(name)
        last = float(np.max(history.stop))
        for draw in range(draws):
            rng = np.random.default_rng([38, draw])
            end = last - draw % 2 * LENGTH
            found = sampled(history, end - LENGTH, end, CRAWLS, MOST, rng)
            if found is None:
                continue
            log, world, weight = found
            estimate = default_estimate(log)
            sources, window = (
                fo.Sources(estimate.change_rate_, weight),
                ChangeWindow.of(world, end - LENGTH, end),
            )
            for kind, plain in OBJECTIVES.items():
                learnt = with_learnt_changes(plain, log, default_estimate)
                row: Row = {"history": name, "objective": kind, "draw": draw, "sources": len(weight)}
                row["nats"] = learnt.changes.evidence if learnt.changes is not None else 0.0
                for model, objective in (("poisson", plain), ("learnt", learnt)):
                    problem = fo.Problem(objective, sources, len(weight) / WEEK)
                    rates = fo.solve(problem, tolerance=1e-9).rates
                    real = float(weight @ static_costs(window, rates, plain))
                    expected = 0.0
                    for node, share in zip(*(each.T for each in estimate.nodes()), strict=True):
                        numerics = numerics_of(objective, sources.with_change_rate(node))[0]
                        expected += float(share @ numerics.cost(rates)) * LENGTH
                    row[f"{model} cost"], row[f"{model} ratio"] = real, expected / real
                row["saved"] = 100.0 * (1.0 - row["learnt cost"] / row["poisson cost"])
                yield row


def claims(record: Record) -> Claims:
    """Yield whether each statement held."""
    for what, name, low, high in STATEMENTS:
        if what == "saved":
            some = [r["saved"] for r in record["runs"] if (r["history"], r["objective"]) == (name, "binary")]
        else:
            off = [
                [abs(np.log(r[f"{m} ratio"])) for m in ("poisson", "learnt")]
                for r in record["runs"]
                if r["nats"]
            ]
            some = [before - after for before, after in off]
        if some:
            mean = float(np.mean(some))
            failed = ", which fails as in the first run" if what in FAILED else ""
            yield (
                f"{what} {name}: {mean:.3f}, from {low} to {high}{failed}",
                (low <= mean <= high) == (what not in FAILED),
            )


BENCH = Measurement({"runs": rows}, quick={"draws": 1}, facts=("draws",), claims=claims)

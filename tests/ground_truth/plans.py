"""What the tests of plans share: a simulated log, request, and the cost of rates recomputed."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import freshopt as fo
from freshopt.planning import plan_files
from freshopt.planning.wishes import Wishes
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth import curves
from tests.ground_truth.named import HARMONIC_PERIODIC
from tests.ground_truth.named import PERIODIC as PERIODIC
from tests.ground_truth.named import POISSON as POISSON

Floats = npt.NDArray[np.float64]
CURVE_OF: dict[type[fo.Objective], str] = {
    HarmonicStaleness: "harmonic",
    BinaryFreshness: "binary",
    AccumulatedDelay: "delay",
}
OBJECTIVES: list[fo.Objective] = [
    kind(refresh)
    for kind in (HarmonicStaleness, BinaryFreshness, AccumulatedDelay)
    for refresh in (PERIODIC, POISSON)
]
BEGIN = datetime(2024, 2, 27, 6, tzinfo=UTC)


def crawls(seed: int = 5, n: int = 12) -> dict[str, Any]:
    """Crawls at random times of sources with change rates from 0.05 to 3 per day, over about 40 days."""
    rng = np.random.default_rng(seed)
    source, time, changed = [], [], []
    for k, rate in enumerate(np.geomspace(0.05, 3.0, n)):
        at = np.sort(rng.uniform(0.0, 40.0 - k, 60))
        source += [f"s{k:02d}"] * len(at)
        time += at.tolist()
        changed += [False, *(rng.random(len(at) - 1) < -np.expm1(-rate * np.diff(at))).tolist()]
    return {"source": np.array(source), "time": np.array(time), "changed": np.array(changed)}


def dated(columns: dict[str, Any]) -> dict[str, Any]:
    """The same crawls with moments instead of numbers."""
    offset = np.rint(columns["time"] * 86400e6).astype("timedelta64[us]")
    return {**columns, "time": np.datetime64(BEGIN.replace(tzinfo=None), "us") + offset}


def plan_request(objective: fo.Objective | None = None, **changes: object) -> Wishes:
    settings: dict[str, Any] = {"bandwidth": 9.0, "horizon": 14.0, **changes}
    return Wishes(objective or HARMONIC_PERIODIC, **settings)


def read(folder: Path) -> tuple[dict[str, Any], pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """What was written: the summary, then the tables in the order of `plan_folder.TABLES`."""
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    ending = "csv" if (folder / "rates.csv").exists() else "parquet"
    reader: Callable[[Path], pl.DataFrame] = pl.read_csv if ending == "csv" else pl.read_parquet
    change_rates, rates, schedule = (reader(folder / f"{name}.{ending}") for name in plan_files.TABLES)
    return facts, change_rates, rates, schedule


def cell(objective: fo.Objective, change_rate: Floats, rate: Floats) -> Floats:
    """J(ρ) of the table of cost curves, sources of rate 0 apart; freshness where that is the objective."""
    curve = CURVE_OF[type(objective)] + (" periodic" if objective.refresh is PERIODIC else "")
    cost = curves.cost(curve, rate, change_rate)
    return 1.0 - cost if isinstance(objective, BinaryFreshness) else cost

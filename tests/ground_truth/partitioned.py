"""What the tests of solving in partitions share: instances and problems written as Parquet files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import freshopt as fo
from freshopt.distributed import DistributedSolution
from tests.ground_truth.cases import as_problem
from tests.ground_truth.truth import Instance

Floats = npt.NDArray[np.float64]


def write(folder: Path, frame: pl.DataFrame, parts: int) -> Path:
    """Write a table in files of about equal length, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    n = len(frame)
    for k in range(parts):
        frame[n * k // parts : n * (k + 1) // parts].write_parquet(folder / f"{k:03d}.parquet")
    return folder


def frame_of(problem: fo.Problem) -> pl.DataFrame:
    """Return every column of a problem's sources, hosts too."""
    sources = problem.sources
    names = ("change_rate", "importance", "signalled", "min_rate", "max_rate", "refresh_cost")
    columns: dict[str, Any] = {name: np.ascontiguousarray(getattr(sources, name)) for name in names}
    if sources.host is not None:
        columns["host"] = sources.host
    return pl.DataFrame({"source": [f"s{k}" for k in range(len(sources))], **columns})


def solved(instance: Instance, folder: Path, parts: int, **options: Any) -> DistributedSolution:  # noqa: ANN401
    """Solve an instance of the ground truth from files."""
    problem = as_problem(instance)
    files = write(folder, frame_of(problem), parts)
    return fo.distributed.solve(
        problem.objective, files, problem.bandwidth, problem.host_limits or None, **options
    )


def rates_of(solution: DistributedSolution) -> Floats:
    """Return all rates in the order of the sources."""
    rates: Floats = solution.rates().compute()["rate"].to_numpy()
    return rates


def web(n: int, seed: int, hosts: int = 0) -> tuple[pl.DataFrame, dict[str, float]]:
    """Return sources with every kind of column, and limits of most hosts, of which about a third bind."""
    rng = np.random.default_rng(seed)
    change_rate = rng.gamma(1.0, 1.0, n) + 1e-3
    cost = rng.uniform(0.5, 2.0, n)
    frame = pl.DataFrame(
        {
            "source": np.arange(n)[::-1].copy(),
            "change_rate": change_rate,
            "importance": rng.pareto(1.5, n) + 0.1,
            "min_rate": np.minimum(0.5 * change_rate, np.where(rng.random(n) < 0.2, 0.05, 0.0)),
            "max_rate": np.where(rng.random(n) < 0.2, 0.2, np.inf),
            "refresh_cost": cost,
        }
    )
    if not hosts:
        return frame, {}
    code = rng.integers(0, hosts, n)
    need = np.bincount(code, weights=cost * frame["min_rate"].to_numpy(), minlength=hosts)
    size = np.bincount(code, minlength=hosts)
    limits = np.maximum(1.3 * need + 1e-3, size * rng.uniform(0.02, 0.3, hosts))
    present = [h for h in range(1, hosts) if size[h]]  # host 0 has no limit
    return frame.with_columns(host=pl.Series([f"h{h}" for h in code])), {
        f"h{h}": float(limits[h]) for h in present
    }


def split(folder: Path, columns: dict[str, Any], files: int, *, ranges: bool = False) -> pl.DataFrame:
    """Write a log in files, each source within one; dealt out by turns, or by ranges of names."""
    folder.mkdir(parents=True, exist_ok=True)
    log = pl.DataFrame(columns)
    names = sorted(set(log["source"]))
    for k in range(files):
        own = names[len(names) * k // files : len(names) * (k + 1) // files] if ranges else names[k::files]
        log.filter(pl.col("source").is_in(own)).write_parquet(folder / f"{k}.parquet")
    return log


def featured_files(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Write a log of two hosts and a table of features for each file, with a new source in two of them."""
    rng = np.random.default_rng(7)
    names = [f"https://{host}.org/{k}" for k in range(30) for host in ("fast", "slow")]
    columns = {
        "source": np.repeat(names, 12),
        "time": np.tile(np.arange(12.0), 60),
        "changed": rng.random(720) < np.tile(np.repeat([0.4, 0.04], 12), 30),
    }
    log = split(folder / "in", columns, 3)
    new = {0: ["https://slow.org/new"], 2: ["https://fast.org/new", "https://other.org/new"]}
    (folder / "features").mkdir()
    tables = []
    for k in range(3):
        own = [*sorted(set(log["source"]))[k::3], *new.get(k, [])]
        tables.append(pl.DataFrame({"source": own, "size": [float(len(name) % 4) for name in own]}))
        tables[-1].write_parquet(folder / "features" / f"{k}.parquet")
    return log, pl.concat(tables)

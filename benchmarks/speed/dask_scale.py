"""Sources in Parquet, out of core, on Dask: passes, seconds, memory and the certified gap.

    python -m benchmarks dask_scale --n 10000000 --save
    python -m benchmarks dask_scale --n 10000000 --hosts 100000 --save
    python -m benchmarks dask_scale --n 100000000 --folder BIG_DISK --save

Writes n seeded sources (gamma change rates, Pareto importances, float64) as Parquet in partitions of a
million (hosts, if any, are spread over all of them, and some of their limits bind), solves for the harmonic
objective at a tenth of a refresh per source, with the rates written, on a `LocalCluster` of processes, and
removes the files. Memory is the largest resident set of each process, read from the system while the solve
runs; what the client holds before it (Dask, Arrow) is told apart.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record
from freshopt.modelling.objective import Refresh
from freshopt.problems import HarmonicStaleness

SEED, PARTITION = 20_240_601, 1_000_000
BYTES = 56  # of files per source: 24 read, 24 written, and some room
HOLD = 6  # passes


def write_partition(folder: str, k: int, rows: int, hosts: int) -> int:
    """Write one partition; the same numbers wherever and whenever it runs."""
    rng = np.random.default_rng([SEED, k])
    columns = {
        "source": np.arange(k * PARTITION, k * PARTITION + rows),
        "change_rate": rng.gamma(1.0, 1.0, rows) + 1e-3,
        "importance": rng.pareto(1.5, rows) + 0.1,
    }
    if hosts:
        columns["host"] = rng.integers(0, hosts, rows)
    table = pa.table(columns)
    pq.write_table(table, f"{folder}/{k:05d}.parquet", use_dictionary=False, compression="snappy")
    return rows


def resident(pid: int, field: str = "VmRSS") -> int:
    """Return the bytes of a process in memory; 0 once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field)), 0)


class Watch(threading.Thread):
    """Looks at the memory of processes ten times a second."""

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.pids, self.over = pids, threading.Event()
        self.peak = {name: resident(pid) for name, pid in pids.items()}

    def run(self) -> None:
        """Keep the largest resident set of each process."""
        while not self.over.wait(0.1):
            self.peak = {name: max(self.peak[name], resident(pid)) for name, pid in self.pids.items()}


def measure(n: int, hosts: int, folder: Path, workers: int) -> dict[str, object]:
    """Write, solve, check and remove."""
    free = shutil.disk_usage(folder).free
    if free < BYTES * n:
        raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free, {BYTES * n / 1e9:.1f} GB are needed.")
    place = Path(tempfile.mkdtemp(prefix="dask_scale.", dir=folder))
    try:
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            return solve(n, hosts, place, client)
    finally:
        shutil.rmtree(place)


def solve(n: int, hosts: int, place: Path, client: distributed.Client) -> dict[str, object]:
    """Write the sources and solve for them."""
    (place / "in").mkdir()
    begun = time.perf_counter()
    sizes = [min(PARTITION, n - first) for first in range(0, n, PARTITION)]
    parts = range(len(sizes))
    own = [str(place / "in")] * len(parts), parts, sizes, [hosts] * len(parts)
    client.gather(client.map(write_partition, *own, pure=False))
    share = np.random.default_rng(SEED).uniform(0.02, 0.3, hosts)  # refreshes per source of each host
    limits = {h: float(n / hosts * share[h]) for h in range(hosts)}
    written = time.perf_counter() - begun
    pids = {
        "client": os.getpid(),
        **{f"worker {k}": pid for k, pid in enumerate(client.run(os.getpid).values())},
    }
    before = resident(os.getpid())
    watch = Watch(pids)
    watch.start()
    begun = time.perf_counter()
    found = fo.distributed.solve(
        HarmonicStaleness(Refresh.POISSON), place / "in", 0.1 * n, limits, out=place / "out"
    )
    seconds = time.perf_counter() - begun
    watch.over.set()
    watch.join()
    rows = sum(pq.read_metadata(file).num_rows for file in (place / "out").glob("*.parquet"))
    files = sum(file.stat().st_size for file in (place / "in").iterdir())
    return {
        "n": n,
        "partitions": len(sizes),
        "host_limits": hosts,
        "binding": sum(price > 0.0 for price in found.host_prices.values()),
        "workers": len(pids) - 1,
        "input_bytes": files,
        "writing_input_seconds": written,
        "seconds": seconds,
        "passes": found.passes,
        "seconds_per_pass": [round(one, 3) for one in found.seconds],
        "rates_written": rows,
        "bandwidth_error": abs(found.used / found.bandwidth - 1.0),
        "relative_gap": found.relative_gap,
        "infeasibility": found.infeasibility,
        "status": found.status.value,
        "partition_bytes": PARTITION * 24,
        "client_before_bytes": before,
        "peak_bytes": watch.peak,
    }


def scale(n: int = 10**7, hosts: int = 0, folder: Path | None = None, workers: int = 2) -> Record:
    """Return the record of so many sources and limited hosts, by its size."""
    result = measure(n, hosts, folder or Path(tempfile.gettempdir()), workers)
    print(json.dumps(result, indent=2))
    return {f"{n} sources, {hosts} hosts": result}


def claims(record: Record) -> Claims:
    """Yield passes, and that all is written and proved."""
    for size, row in record.items():
        yield f"{size}: {row['passes']} passes", row["passes"] <= HOLD
        yield f"{size}: gap {row['relative_gap']:.0e}", row["relative_gap"] <= 1e-9
        yield f"{size}: {row['rates_written']} rates", row["rates_written"] == row["n"]


BENCH = Measurement({"": scale}, quick={"n": 1000}, merge=lambda old, new: old | new, claims=claims)

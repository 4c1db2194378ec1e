"""`NodeFreshness`: freshness of every node, by formula and simulated.

Where the product is a lower bound, the chance itself is sampled. Read backwards, a node h was refreshed a
wait E_h before it was last read, and of several reads the oldest counts; so a root r was read L_r ago, the
longest path of waits from r, and the node is fresh with probability E exp(−Σ_r Δ_r·L_r). The waits are
independent: exponential under Poisson refreshes, uniform over a period under independent phases. Nothing has
to settle, whatever the rates; the changes are averaged over exactly.

Cost: one evaluation for each sample, root and edge below it, compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import fast
from freshopt.errors import SourceDataError, check_seed, expect
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.modelling.objective import Refresh
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.pipelines import loops
from freshopt.pipelines.pipeline import Pipeline
from freshopt.renamed import Renamed

# Samples by default: of a chance near ½ the standard error is then at most .011.
SAMPLES = 2000
# Fewest, and so many evaluations by default: some seconds.
FEWEST, EVALUATIONS = 100, 5e8
# Numbers that are drawn at a time.
AT_ONCE = 2**23


@frozen_value(repr=False)
class NodeFreshness:
    """Freshness of each node of a pipeline; made by `node_freshness`.

    Attributes
    ----------
    names : ndarray of str, shape (n,)
    importance : ndarray, shape (n,)
    rate : ndarray, shape (n,)
        Refreshes per time unit, NaN of nodes that are not refreshed.
    fresh : ndarray, shape (n,)
        By the product.
    exact : ndarray of bool, shape (n,)
        Whether it is exact, or else a lower bound.
    sampled, error : ndarray, shape (n,)
        The simulated value, and its standard error.
    """

    names: npt.NDArray[Any]
    importance: Array
    rate: Array
    fresh: Array
    exact: BoolArray
    sampled: Array
    error: Array
    name = Renamed("names")

    def __repr__(self) -> str:
        weight = self.importance / max(float(self.importance.sum()), 1e-300)
        served = self.importance > 0.0
        bounds = int(np.sum(~self.exact[served]))
        kind = f"a lower bound for {bounds} of {int(served.sum())} of importance" if bounds else "exact"
        fresh, sampled = float(weight @ self.fresh), float(weight @ self.sampled)
        nodes = count(len(self.names), "node", "d")
        return f"NodeFreshness({nodes}: fresh {fresh:.4f}, {kind}; simulated {sampled:.4f})"

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table with one row per node.

        Its columns are ``node``, ``importance``, ``rate``, ``fresh``, ``formula`` ("exact" or "lower bound"),
        ``simulated`` and ``error``.
        """
        return polars.DataFrame(
            {
                "node": self.names.tolist(),
                "importance": self.importance,
                "rate": self.rate,
                "fresh": self.fresh,
                "formula": np.where(self.exact, "exact", "lower bound").tolist(),
                "simulated": self.sampled,
                "error": self.error,
            }
        )


def node_freshness(
    pipeline: Pipeline,
    rates: object,
    refresh: Refresh | None = None,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> NodeFreshness:
    """Return each node's freshness by formula, whether it is exact, and simulated.

    Parameters
    ----------
    pipeline : Pipeline
    rates : Solution, mapping, dataframe or array_like
        Of its sources; see `Pipeline.rates_of`.
    refresh : Refresh, optional
        As in `Pipeline.freshness`.
    samples : int, optional
        Samples of the waits, 2 or more. Default: 2000, fewer for large graphs.
    seed : int

    Raises
    ------
    SourceDataError
        If a rate is missing or out of range.

    Examples
    --------
    >>> import freshopt as fo
    >>> edges = [("root", "a"), ("root", "b"), ("a", "c"), ("b", "c")]
    >>> diamond = fo.pipeline(edges, change_rate={"root": 1.0})
    >>> found = node_freshness(diamond, {"a": 2.0, "b": 2.0, "c": 2.0}, samples=10000)
    >>> found
    NodeFreshness(4 nodes: fresh 0.2963, a lower bound for 1 of 1 of importance; simulated 0.3580)
    >>> found.exact
    array([ True,  True,  True, False])
    """
    expect(pipeline, Pipeline, "pipeline", "Pass what fo.pipeline returns")
    fresh = pipeline.freshness(rates, refresh)
    own = pipeline.discipline_of(rates) if refresh is None else refresh
    u = pipeline.rates_of(rates)
    roots = np.flatnonzero(pipeline.root_rate > 0.0)
    first, below = _below(pipeline, roots)
    if samples is None:
        samples = int(np.clip(EVALUATIONS / max(len(below), 1), FEWEST, SAMPLES))
    many = as_number(samples, "samples", "Pass a whole number, 2 or more.")
    if not (2 <= many <= 10**8 and many == int(many)):
        raise SourceDataError(f"samples is {samples}. Pass a whole number, 2 to 100000000.")
    random, n = np.random.default_rng(check_seed(seed)), len(pipeline)
    total, squares, left = np.zeros(n), np.zeros(n), int(many)
    rows = (pipeline.graph.first, pipeline.graph.parent, first, below)
    while left:
        now = min(left, max(AT_ONCE // n, 1))
        draw = random.standard_exponential if own is Refresh.POISSON else random.random
        wait = np.zeros((now, n))
        with np.errstate(divide="ignore", over="ignore"):
            wait[:, pipeline.position] = draw((now, len(u))) / u
        fast(loops.sample_paths)(wait, roots, pipeline.root_rate[roots], rows, total, squares)
        left -= now
    mean = total / many
    variance = np.maximum(squares / many - mean * mean, 0.0) * (many / (many - 1.0))
    rate = np.full(n, np.nan)
    rate[pipeline.position] = u
    return NodeFreshness(
        pipeline.names,
        pipeline.importance,
        rate,
        fresh,
        pipeline.exact,
        mean,
        np.sqrt(variance / many),
    )


def _below(pipeline: Pipeline, roots: IntArray) -> tuple[IntArray, IntArray]:
    """Return the nodes below each root, in order, in compressed rows."""
    first, child = (column.tolist() for column in pipeline.graph.children())
    found = []
    for root in roots.tolist():
        seen, left = {root}, [root]
        while left:
            node = left.pop()
            new = [each for each in child[first[node] : first[node + 1]] if each not in seen]
            seen.update(new)
            left += new
        found.append(np.array(sorted(seen - {root}), dtype=np.int64))
    many = [len(member) for member in found]
    return np.concatenate([[0], np.cumsum(many)]).astype(np.int64), np.concatenate(found)

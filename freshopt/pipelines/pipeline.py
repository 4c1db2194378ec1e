"""`Pipeline`: copies that are made of copies, as aggregated sources.

Changes happen at the roots of an acyclic graph; a refresh of a node copies the present state of its parents.
With independent Poisson refreshes at rates u a node is fresh with respect to all roots upstream with
probability

    Π_h u_h/(u_h + D_h),

over itself and the nodes h upstream of it that are refreshed, D_h the total change rate of the roots upstream
of h. Read backwards in time: the node was last refreshed an exponential time ago, its parent an exponential
time before that, and so on, and no root may have changed since it was read. So the weighted −log freshness is
Σ W_h·log(1 + D_h/u_h), W_h the total importance of what h serves: harmonic staleness of sources with change
rates D and importances W.

The product is exact where the nodes from each root to the node form one chain; edges past the chain do no
harm, as what is read first is oldest. Elsewhere it is a lower bound: let P(A) be the chance that the nodes of
A are fresh, A with every node all that is upstream of it. In equilibrium

    (D(A) + Σ_s u_s)·P(A) = Σ_s u_s·P(A − s),

over the sinks s of A. The total rate D(A) of its roots is at most Σ_s D_s, with equality where the sinks
share no root; so by induction P(A) is at least the product over A.

Cost: some ten microseconds a node of a tree; where branches meet again m²/8 bytes for m nodes on common
cycles, and a fraction of a second for 10 000 (`freshopt.pipelines.upstream`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, one_of, shown
from freshopt.formatting import count
from freshopt.modelling.objective import Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_vector
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.special_functions import log_freshness_loss
from freshopt.pipelines.graph import (
    Graph,
    Node,
    named_numbers,
    number_column,
    read_graph,
    refresh_costs,
    require_known,
)
from freshopt.pipelines.upstream import UpstreamSets, is_exact
from freshopt.renamed import Renamed, keywords
from freshopt.scheduling.rate_table import read_rates
from freshopt.tools.dbt_project import Manifest, read_manifest
from freshopt.units import check_time_unit


@frozen_value(repr=False)
class Pipeline:
    """Pipeline of n nodes, of which m are refreshed; made by `fo.pipeline`.

    Attributes
    ----------
    graph : Graph
        The nodes, parents before children.
    names : ndarray of str, shape (n,)
    root_rate : ndarray, shape (n,)
        Changes per time unit of the roots, 0 of other nodes.
    importance : ndarray, shape (n,)
    view : ndarray of bool, shape (n,)
        Nodes that are as fresh as their parents at all times, and never refreshed.
    change_rate : ndarray, shape (n,)
        D: total change rate of the roots upstream.
    exact : ndarray of bool, shape (n,)
        Whether the product formula is exact for a node, or else a lower bound.
    sources : Sources
        The m nodes that are refreshed, with their aggregated change rates D and importances W; left out are
        roots, views, and nodes upstream of which nothing changes.
    position : ndarray of int, shape (m,)
        Of the sources among the nodes.
    roots : Sources
        The roots that change, for `fo.World`.
    upstream : UpstreamSets
    """

    graph: Graph
    names: npt.NDArray[Any]
    root_rate: Array
    importance: Array
    view: BoolArray
    change_rate: Array
    exact: BoolArray
    sources: Sources
    position: IntArray
    roots: Sources
    upstream: UpstreamSets
    name = Renamed("names")
    sources_name = Renamed("source_names")

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.graph)

    def __repr__(self) -> str:
        kinds = [count(len(self.roots), "changing root", "d"), f"{len(self.sources)} refreshed"]
        if self.view.any():
            kinds.append(count(int(self.view.sum()), "view", "d"))
        bounds = int(np.sum(~self.exact))
        return (
            f"Pipeline({count(len(self), 'node', 'd')}: {', '.join(kinds)}; freshness "
            f"{'exact' if not bounds else f'a lower bound for {bounds}'})"
        )

    def rates_of(self, rates: object) -> Array:
        """Return the rates of the m sources, in their order.

        Parameters
        ----------
        rates : Solution, mapping of name to rate, dataframe, or array_like of shape (m,)

        Raises
        ------
        SourceDataError
            If a rate is missing, negative or not a number.
        """
        if not isinstance(rates, Mapping) and not hasattr(rates, "columns") and not hasattr(rates, "problem"):
            found: Any = rates
            rates = dict(
                zip(self.source_names, as_vector(found, len(self.sources), "rates").tolist(), strict=True)
            )
        table = read_rates(rates)
        given = [] if table.names is None else [str(name) for name in table.names.tolist()]
        known = dict(zip(given, table.rates.tolist(), strict=True)) if given else {}
        missing = [repr(name) for name in self.source_names if name not in known]
        if missing:
            raise SourceDataError(
                f"there is no rate of {list_offenders(missing)}. Pass a solution of the pipeline's sources, "
                "or a rate for each of them."
            )
        # A negative zero would have a quotient of −∞.
        return np.array([known[name] for name in self.source_names]) + 0.0

    @property
    def source_names(self) -> list[str]:
        """Names of the sources."""
        names: list[str] = self.names[self.position].tolist()
        return names

    def freshness(self, rates: object, refresh: Refresh | None = None) -> Array:
        """Return each node's chance of being fresh, for all roots upstream.

        Parameters
        ----------
        rates : Solution, mapping, dataframe or array_like
            As `rates_of` takes them.
        refresh : Refresh, optional
            ``POISSON``, or ``PERIODIC`` with independent phases. Default: that of a solution's objective,
            else ``POISSON``.

        Returns
        -------
        ndarray, shape (n,)
            Exact where `exact` says so, else a lower bound.
        """
        own = _discipline(self.discipline_of(rates) if refresh is None else refresh)
        u = self.rates_of(rates)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ratio = self.sources.change_rate / u
            lost = np.log1p(ratio) if own is Refresh.POISSON else log_freshness_loss(ratio)
        return np.exp(-self._total(lost))

    def missed_changes(self, rates: object, refresh: Refresh | None = None) -> Array:
        """Return the expected number of changes that each node lags behind.

        Parameters
        ----------
        rates, refresh
            As in `freshness`.

        Returns
        -------
        ndarray, shape (n,)
            Σ D_h/u_h over the node and what is upstream of it, half of it under periodic refreshes; where
            `exact` is false an upper bound.
        """
        own = _discipline(self.discipline_of(rates) if refresh is None else refresh)
        u = self.rates_of(rates)
        with np.errstate(divide="ignore", over="ignore"):
            return self._total(self.sources.change_rate / u * (0.5 if own is Refresh.PERIODIC else 1.0))

    def _total(self, cost: Array) -> Array:
        """Return sums of costs, perhaps infinite, over each upstream set."""
        column = np.zeros(len(self))
        column[self.position] = cost
        return self.upstream.sum_upstream(column)

    @staticmethod
    def discipline_of(rates: object) -> Refresh:
        """Return the discipline of a solution's objective; POISSON of other rates."""
        found = getattr(getattr(getattr(rates, "problem", None), "objective", None), "refresh", None)
        return found if isinstance(found, Refresh) else Refresh.POISSON


def _discipline(refresh: object) -> Refresh:
    """Return a discipline under which nodes are known."""
    return one_of(refresh, (Refresh.POISSON, Refresh.PERIODIC), "refresh of a pipeline's nodes")


@keywords()
def pipeline(
    graph: object,
    change_rate: Mapping[Any, float] | Any,  # noqa: ANN401 - or any fitted estimator
    importance: Mapping[Any, float] | None = None,
    cost: Mapping[Any, float] | str | os.PathLike[str] | None = None,
    *,
    views: Iterable[Any] = (),
    time_unit: str = "day",
) -> Pipeline:
    """Declare a pipeline of copies that are made of copies.

    Parameters
    ----------
    graph : DiGraph, iterable of pairs, path or Manifest
        A networkx.DiGraph; edges from upstream to downstream; or the path of dbt's ``manifest.json``, or what
        `freshopt.tools.dbt_project.read_manifest` read of it.
    change_rate : mapping of root to float, or estimates
        Changes per time unit of each root, ≥ 0; or a fitted estimator of `freshopt.estimators`, of whose
        sources those are taken that are nodes.
    importance : mapping of node to float, optional
        Weights ≥ 0; 0 for those left out. Default: 1 for each node of which nothing is made. Of a dbt
        project: 1 for each exposure, or the ``importance`` of its meta; where there are none, 1 for each
        model of which nothing is made.
    cost : mapping of node to float, or path, optional
        Bandwidth that a refresh of a node uses, > 0; 1 for those left out. Or the path of dbt's
        ``run_results.json``, whose run times are the costs, in seconds.
    views : iterable of nodes
        Nodes that are as fresh as their parents at all times. Of a dbt project: its views, ephemeral models
        and exposures, beside these.
    time_unit : str
        Of the change rates: "second", "minute", "hour", "day" or "week".

    Returns
    -------
    Pipeline
        With `sources` to be solved: under `HarmonicStaleness(Refresh.POISSON)` the optimum is that of the
        weighted −log freshness, under `AccumulatedDelay` that of the missed changes.

    Raises
    ------
    SourceDataError
        If the graph has a cycle, a root has no rate, a name is of no node, or a number is out of range; names
        it.

    Notes
    -----
    In a dbt project a node may also be named by the end of its ``unique_id``, such as ``raw.orders`` or
    ``orders``, where no other ends so. A model without parents never changes.

    Examples
    --------
    >>> import freshopt as fo
    >>> shop = fo.pipeline(
    ...     [("orders", "clean"), ("clean", "revenue"), ("rates", "revenue")],
    ...     change_rate={"orders": 10.0, "rates": 1.0},
    ... )
    >>> shop
    Pipeline(4 nodes: 2 changing roots, 2 refreshed; freshness exact)
    >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    >>> solution = fo.solve(fo.Problem(objective, shop.sources, bandwidth=40.0))
    >>> dict(zip(shop.names.tolist(), shop.freshness(solution).round(4).tolist()))
    {'orders': 1.0, 'rates': 1.0, 'clean': 0.6624, 'revenue': 0.4302}
    """
    check_time_unit(time_unit)
    silent: tuple[Node, ...] = ()
    short: Mapping[Node, Node] = {}
    project = read_manifest(graph) if isinstance(graph, str | os.PathLike) else graph
    if isinstance(project, Manifest):
        graph, views = project.edges, [*project.views, *views]
        silent, short = project.parentless, project.short_names()
        importance = project.importance if importance is None else importance
    read = read_graph(graph)
    place = {node: k for k, node in enumerate(read.nodes)}
    n = len(read)
    is_root = np.diff(read.first) == 0
    view = np.zeros(n, dtype=np.bool_)
    given = [short.get(node, node) for node in views]
    require_known(given, place, "views")
    view[[place[node] for node in given]] = True
    view &= ~is_root

    rates = {
        **dict.fromkeys(silent, 0.0),
        **named_numbers(change_rate, short, place, "change_rate", time_unit),
    }
    wrong = [shown(node) for node in rates if not is_root[place[node]]]
    if wrong:
        raise SourceDataError(
            f"change_rate names {list_offenders(wrong)}, which is made of other nodes. Only roots change; "
            "leave it out."
        )
    lacking = [shown(read.nodes[k]) for k in np.flatnonzero(is_root) if read.nodes[k] not in rates]
    if lacking:
        raise SourceDataError(
            f"root {list_offenders(lacking)} has no change rate. Give each root one, 0 if it never changes."
        )
    root_rate = number_column(rates, place, "change_rate", 0.0)
    if importance is None:
        weight = (np.bincount(read.parent, minlength=n) == 0).astype(np.float64)
    else:
        weight = number_column(
            named_numbers(importance, short, place, "importance", time_unit), place, "importance", 0.0
        )
    sets = UpstreamSets.of(read)
    total = sets.sum_upstream(root_rate)
    waits = (total > 0.0) & ~is_root & ~view
    where = np.flatnonzero(waits)
    if not len(where):
        raise SourceDataError(
            "nothing is to be refreshed: no node but roots and views has a root upstream that changes. "
            "Correct the change rates, or drop views."
        )
    price = refresh_costs(cost, short, place, [read.nodes[k] for k in where])[where]
    name = np.array([str(node) for node in read.nodes])
    served = sets.sum_downstream(weight)
    changing = np.flatnonzero(root_rate > 0.0)
    return Pipeline(
        read,
        name,
        root_rate,
        weight,
        view,
        total,
        is_exact(sets, root_rate, waits),
        Sources(total[where], served[where], name[where], refresh_cost=price, time_unit=time_unit),
        where,
        Sources(root_rate[changing], names=name[changing], time_unit=time_unit),
        sets,
    )

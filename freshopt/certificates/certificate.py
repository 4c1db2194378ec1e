"""`certify`: duality-gap certificates from rates and prices alone.

For any feasible primal ρ and any dual variables λ ≥ 0 of the bandwidth and μ_h ≥ 0 of the hosts' limits (the
prices of the API, in economics shadow prices), with ν_k = cost_k(λ + μ_h) the price that source k pays,
F = Σ f_k the concave objective (minus the cost, or the freshness), F* its maximum, B the bandwidth, L_h the
limit of host h and S_h what its sources use,

    F* − F(ρ)  ≤  Σ_k min(D_k, T_k) + λ(B − Σ cost ρ) + Σ_h μ_h(L_h − S_h),

    D_k = f_k(ρ̂_k) − f_k(ρ_k) − ν_k(ρ̂_k − ρ_k),    T_k = (ρ̂_k − ρ_k)(f_k'(ρ_k) − ν_k),

where f_k' is the marginal value and ρ̂_k the best response of source k to its price. The right-hand side is a
duality gap. With D_k it is the Lagrangian dual function's bound, and T_k ≥ D_k as f_k lies below its tangent
at ρ_k. It is 0 exactly where the KKT conditions hold: the first sum is stationarity, the other two terms are
complementary slackness. In T_k no large numbers are subtracted, so that a gap of 1e-15 is a gap, not noise;
D_k is the smaller one where rates are far from best, and has the rounding of costs added to it
(`freshopt.certificates.best_response`). Rounding of limits is added likewise, so that the bound holds for the
rates as stored. Whoever produced them is not trusted: not a solver's status, not its prices (poor ones make a
poor bound), nor slopes: costs at one more rate must lie above tangents (`freshopt.separable.tangents`). One
compiled pass by tangents proves good rates; what it leaves above `TIGHT` is proved by both, in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.certificates.dual_prices import best_prices
from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.price_search import LOOSE, dual_price
from freshopt.certificates.proof_pass import ProvedGap, Prover, proved_gap
from freshopt.certificates.relative_gap import NOTHING, PricedLimits, RelativeGap, priced_limits, relative_gap
from freshopt.certificates.row_certificate import (
    host_vector,
    labelled_prices,
    multipliers_by_label,
    row_multipliers,
    short_form,
    short_prices,
)
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_repair import (
    central_rates,
    excess,
    largest_distance,
    repair,
    repair_rows,
    within_bounds,
)
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.vanishing_cost import cost_without_refreshes, may_vanish
from freshopt.cvx import cp
from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.heavy import polars
from freshopt.modelling.constraints.usages import rates_of, usage_value, variables_of
from freshopt.modelling.declaration import declare_total
from freshopt.modelling.fetches.conditional_fetches import rates_of_bandwidth
from freshopt.modelling.host_limits import HostPrices
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, all_finite, as_vector, read_only, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.renamed import keywords
from freshopt.separable.conditional_hull import ConditionalHull
from freshopt.separable.program import Program

# Relative gaps above this are bounded once more, by best responses, which is tighter.
TIGHT = 1e-9


@frozen_value(late=("rows",), repr=False)
class Certificate:
    """Duality-gap certificate of given rates.

    Attributes
    ----------
    value : float
        The objective at `rates`, in the declared sense, Σ w_k(·).
    bound : float
        Dual bound: no feasible rates have a better value.
    gap : float
        Duality gap ``|bound − value|``, ≥ 0; inf where nothing is proved.
    relative_gap : float
        The gap over what is at stake, ``P + min(|cost|, H)``: P = λ(B − Σ cost·l) + Σ μ_h(L_h − Σ cost·l) is
        the price of what min_rate l leaves free, H what halving all rates would lose, and the cost of a
        freshness objective its stale part. A gap within rounding of the cost is over ``P + |cost|``.
    beyond_rounding : float
        The same; where min_rate nearly fills a limit, without what rounding of that limit explains.
    infeasibility : float
        Largest relative violation that the rates had before they were repaired; 0 for feasible rates.
    price : float
        Dual variable λ of the bandwidth that proves the bound.
    host_prices : mapping
        Dual variables μ_h of the limited hosts.
    rates : ndarray, shape (n,)
        The repaired rates to which all of this applies.
    reason : str
        Why nothing, or nothing finer than rounding, could be proved; or empty.
    vanishing : bool
        Whether cost and gap are below 1e-15 of the cost without refreshes: the relative gap is then 0.
    rows : RowTable or None
        Every constraint: what is used of its limit, its price, and its share of the gap.
    multipliers : ndarray, shape (m,), or None
        Dual variables of the rows of declared constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources([0.5, 2.0]), bandwidth=3.0)
    >>> fo.solve(problem).certificate.relative_gap < 1e-12
    True
    """

    value: float
    bound: float
    gap: float
    relative_gap: float
    beyond_rounding: float
    infeasibility: float
    price: float
    host_prices: Mapping[Any, float]
    rates: Array
    reason: str
    vanishing: bool
    rows: RowTable | None = None
    multipliers: Array | None = None

    def confirms(self, tolerance: float, absolute: float = 0.0) -> bool:
        """Return whether the duality gap proves optimality.

        It does where the relative gap is within `tolerance`, or the gap itself within `absolute`, in the
        objective's units. Rounding of a limit that min_rate nearly fills is no gap; `reason` then says so.
        """
        return self.beyond_rounding <= tolerance or self.gap <= absolute

    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe of polars with one row per constraint.

        Its columns are row, used, limit, slack, price and gap_share, as in `rows`; it is empty without those.
        """
        return (RowTable.of_nothing() if self.rows is None else self.rows).to_frame()

    def __repr__(self) -> str:
        return (
            f"Certificate(value={self.value:.9g}, bound={self.bound:.9g}, gap={self.gap:.3g}, "
            f"relative_gap={self.relative_gap:.3g}, infeasibility={self.infeasibility:.3g})"
        )


@keywords()
def certify(
    problem: Problem,
    rates: npt.ArrayLike,
    price: float | None = None,
    host_prices: Mapping[Any, float] | None = None,
    *,
    prices: Mapping[str, float] | None = None,
) -> Certificate:
    """Bound the duality gap of given rates.

    Parameters
    ----------
    problem : Problem
    rates : array_like, shape (n,)
        Refreshes per time unit, from anywhere. Infeasible rates are repaired first: clipped to their bounds,
        then shrunk towards min_rate by host and by bandwidth.
    price : float, optional
        Dual variable λ ≥ 0 of the bandwidth; None searches for the one with the smallest bound (for rates far
        from optimal, and without limits of hosts, for the one that minimises the dual function).
    host_prices : mapping, optional
        Dual variables μ_h ≥ 0 of limited hosts, on top of `price`; None derives them from the rates.
    prices : mapping of label to float, optional
        Dual variables ≥ 0 of the constraints by their labels, in place of the two before; constraints left
        out have none.

    Returns
    -------
    Certificate

    Raises
    ------
    SourceDataError
        If rates or prices are not numbers, negative, or of the wrong length.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.certify(problem, [1.5, 1.5], price=1.0)
    Certificate(value=3.33333333, bound=3, gap=0.333, relative_gap=0.0526, infeasibility=0)
    >>> fo.certify(problem, [1.0, 2.0]).relative_gap < 1e-15
    True
    >>> fo.certify(problem, [1.5, 1.5]).relative_gap > 0.05
    True
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    given = as_vector(rates, len(problem.sources), "rates")
    price = None if price is None else float(as_vector(price, 1, "price")[0])
    if prices is not None:
        expect(prices, Mapping, "prices", "Pass a mapping of labels to numbers")
    if host_prices is not None:
        expect(host_prices, Mapping, "host_prices", "Pass a mapping of hosts to numbers")
    if prices is not None and (price is not None or host_prices is not None):
        raise SourceDataError("prices are given twice. Pass prices=, or price= and host_prices=.")
    if problem.per_bandwidth is not None:
        # Fetches that cost what they bring are proved over the bandwidth that each source uses.
        _require_finite(problem, given)
        clipped, off = within_bounds(given, problem.lower, problem.upper)
        with np.errstate(all="ignore"):
            used = problem.used_by_source(clipped)
        proof = certify(problem.per_bandwidth, used, price, host_prices, prices=prices)
        repaired = read_only(rates_of_bandwidth(problem, proof.rates))
        return replace(proof, rates=repaired, infeasibility=max(proof.infeasibility, off))
    if problem.program is None and price is not None:
        proved = certify_in_one_pass(problem, given, price, host_prices)
        if proved is not None:
            return proved
    _require_finite(problem, given)
    with np.errstate(all="ignore"):  # what overflows proves nothing, and the certificate says so
        if problem.program is None:
            if prices is not None:
                price, host_prices = short_prices(problem, prices)
            return _certified(problem, given, price, host_prices)
        if prices is None and (price is not None or host_prices is not None):
            prices = labelled_prices(problem, price, host_prices)
        multipliers = None if prices is None else multipliers_by_label(problem.program, prices)
        return certify_rows(problem, problem.program, given, multipliers)


def _require_finite(problem: Problem, rates: Array) -> None:
    """Raise unless rates are finite."""
    if not all_finite(rates):
        bad = np.flatnonzero(~np.isfinite(rates))
        raise SourceDataError(
            f"rates are not finite for {list_offenders(map(problem.sources.label, bad))}. Pass numbers."
        )


def certify_in_one_pass(
    problem: Problem,
    rates: Array,
    price: float,
    host_prices: Mapping[Any, float] | None = None,
    prove: Prover | None = None,
) -> Certificate | None:
    """Return a certificate by one compiled pass, or None.

    None means that such a pass proves too little, or nothing: rates that are not feasible, sources too few,
    an objective without a cell for it, prices that are to be derived. `prove` makes the pass elsewhere.
    """
    known = host_prices is not None or not len(problem.hosts)
    if not (known and 0.0 <= price < math.inf):
        return None
    with np.errstate(all="ignore"):
        given = np.zeros(len(problem.hosts)) if host_prices is None else host_vector(problem, host_prices)
        proved = proved_gap(problem, rates, price, given, prove)
        if proved is None:
            return None
        return certificate_of_gap(proved, price, given)


def certificate_of_gap(proved: ProvedGap, price: float, host_prices: Array) -> Certificate | None:
    """Return the certificate of a tight gap, or None."""
    gap, gap_bound = proved.gap, proved.gap_bound
    limits = priced_limits(gap, price, host_prices)
    tight = gap_bound <= TIGHT * (abs(gap.cost) + limits.at_stake)
    if not tight and not may_vanish(gap.numerics, gap.rates, gap.cost, gap_bound):
        return None
    certificate = _summarise(gap, price, host_prices, 0.0, gap_bound, limits)
    return certificate if certificate.relative_gap <= TIGHT or not math.isfinite(certificate.gap) else None


def certify_rows(
    problem: Problem,
    program: Program,
    rates: Array,
    multipliers: Array | None = None,
    path: Sequence[Array] = (),
) -> Certificate:
    """Bound the duality gap of rates under declared constraints.

    - `program`: The problem's general form.
    - `rates` (n,)
    - `multipliers` (m,): Dual variables y ≥ 0 of its rows; None searches for those with a small bound.
    - `path`: Strictly feasible rates of the program's variables, for repairs.
    """
    if problem.couplings:
        return _coupled(problem, rates)
    if problem.numerics is None and not isinstance(problem.objective, Worst):
        return _unproved(problem, rates, 0.0, problem.unknown_atom)
    own = variables_of(problem, rates)
    untied = largest_distance(rates, rates_of(problem, own))
    repaired = repair_rows(program, own, path)
    if repaired is None:
        return _unrepaired(problem, program, rates, own)
    if problem.usages:  # mended rates may use less
        tight = variables_of(problem, rates_of(problem, repaired.rates))
        repaired = repaired._replace(rates=tight)
    gap, numerics = RowGap.of(program, repaired.rates), program.numerics
    y = row_multipliers(gap) if multipliers is None else multipliers
    gap_bound = gap.at(y) + problem.objective.interpolation_error(problem.sources, gap.cost)
    proved = math.isfinite(gap_bound) and math.isfinite(gap.cost)
    wrong, relative = gap.contradiction() if proved else None, NOTHING
    if wrong is not None:
        plain = len(program) == len(problem.sources)
        name = problem.sources.label(wrong.source) if plain else f"bundle {wrong.source}"
        proved, relative = False, replace(NOTHING, reason=wrong.sentence(name))
    elif proved:
        relative = relative_row_gap(gap, y, gap_bound, lambda: central_rates(program, repaired.rates))
        if numerics is not None and program.level is None:
            relative = relative.unless_nothing(
                gap.cost, gap_bound, lambda: cost_without_refreshes(numerics, repaired.rates)
            )
    kept = repaired.infeasibility == 0.0 and untied == 0.0
    feasible = rates if kept else read_only(rates_of(problem, repaired.rates))
    found = gap.admissible(y)
    return _assembled(
        problem,
        feasible,
        _value(problem, feasible, gap.cost),
        gap_bound if proved else math.inf,
        relative,
        max(repaired.infeasibility, untied),
        short_form(problem, found),
        RowTable.of(gap, y, gap_bound),
        found,
    )


def _value(problem: Problem, rates: Array, cost: float) -> float:
    """Return the value in the declared sense."""
    if problem.numerics is None:
        return cost if problem.objective.sense == "minimise" else -cost
    if problem.usages:
        cost = total(problem.numerics.cost(rates))
    own = value_at(problem.objective, problem.numerics, problem.sources, rates, cost)
    return own + usage_value(problem, rates)


def _unrepaired(problem: Problem, program: Program, rates: Array, own: Array) -> Certificate:
    """Return a certificate of nothing, for rates that stay infeasible."""
    over, size = excess(program, own)
    worst = int(np.argmax(over / np.abs(size)))
    share = float(over[worst] / abs(size[worst]))
    reason = (
        f"the rates exceed {program.rows.labels[worst]} by {share:.2g} of it, and no feasible rates near "
        "them were found."
    )
    unknown = np.full(len(program.rows), math.nan)
    nothing, prices = replace(NOTHING, reason=reason), short_form(problem, unknown)
    return _assembled(problem, rates, math.nan, math.inf, nothing, share, prices, None, unknown)


def _coupled(problem: Problem, rates: Array) -> Certificate:
    """Return a certificate without a bound, for constraints that have no rows."""
    rate = cp.Variable(len(rates), nonneg=True, name="rate")
    constraints = problem.constraints_on(rate)
    rate.save_value(np.array(rates))
    off = max((float(np.max(constraint.violation(), initial=0.0)) for constraint in constraints), default=0.0)
    return _unproved(problem, rates, off, problem.couplings[0])


def _certified(
    problem: Problem, given: Array, price: float | None, host_prices: Mapping[Any, float] | None
) -> Certificate:
    repaired, infeasibility = repair(problem, given)
    if problem.numerics is None:
        return _unproved(problem, repaired, infeasibility, problem.unknown_atom)
    if price is not None and not price >= 0.0:
        raise SourceDataError(f"price is {price!r}. A price is a number >= 0.")
    gap = Gap.of(problem, repaired, problem.numerics)
    given_hosts = None if host_prices is None else host_vector(problem, host_prices)
    found, host_dual = best_prices(gap, price, given_hosts)
    gap_bound = gap.at(found, host_dual)
    if price is None and LOOSE * abs(gap.cost) < gap_bound < math.inf and not len(problem.hosts):
        # The tangents' best price tells little of the dual function's.
        trial = dual_price(gap, found or 1.0)
        exact = gap.at(trial, host_dual) if trial else math.inf
        found, gap_bound = (trial, exact) if trial and exact < gap_bound else (found, gap_bound)
    if isinstance(gap.numerics, ConditionalHull):
        # What is bounded is the hull: rates where it is not attained cost more than it says.
        above = gap.numerics.above(repaired)
        cost = gap.cost + above
        value = problem.objective.value_from_cost(cost, problem.sources)
        gap_bound += above
        gap = replace(gap, cost=cost, value=value)
    gap_bound += problem.objective.interpolation_error(problem.sources, gap.cost)
    return _summarise(gap, found, host_dual, infeasibility, gap_bound)


def _summarise(
    gap: Gap,
    price: float,
    host_prices: Array,
    infeasibility: float,
    gap_bound: float,
    limits: PricedLimits | None = None,
) -> Certificate:
    """Return the certificate of a gap at its prices and `limits`."""
    finite = math.isfinite(gap_bound) and math.isfinite(gap.cost)
    wrong = gap.contradiction() if finite else None
    if wrong is not None:
        nothing = replace(NOTHING, reason=wrong.sentence(gap.problem.sources.label(wrong.source)))
        return _certificate(gap, price, host_prices, infeasibility, gap_bound, nothing, proved=False)
    relative = relative_gap(gap, price, host_prices, gap_bound, limits) if finite else NOTHING
    return _certificate(gap, price, host_prices, infeasibility, gap_bound, relative, proved=finite)


def _certificate(
    gap: Gap,
    price: float,
    host_prices: Array,
    infeasibility: float,
    gap_bound: float,
    relative: RelativeGap,
    *,
    proved: bool = True,
) -> Certificate:
    """Return the certificate of a gap and what it is relatively."""
    return _assembled(
        gap.problem,
        gap.rates,
        gap.value,
        gap_bound if proved else math.inf,
        relative,
        infeasibility,
        (price, gap.problem.hosts.named(host_prices)),
        RowTable.of_limits(gap, price, host_prices, gap_bound),
    )


def _unproved(problem: Problem, rates: Array, infeasibility: float, reason: str) -> Certificate:
    """Return a certificate without a bound, for unknown atoms.

    CVXPY evaluates such an objective at the rates; without derivatives nothing bounds the gap.
    """
    if problem.numerics is None:
        rate = cp.Variable(len(rates), nonneg=True, name="rate")
        declared, _ = declare_total(problem.objective, rate, problem.sources)
        rate.save_value(np.array(rates))
        value = float(declared.value)
    else:
        value = problem.objective.value_from_cost(total(problem.numerics.cost(rates)), problem.sources)
    prices = math.nan, problem.hosts.named(np.full(len(problem.hosts), math.nan))
    nothing = replace(NOTHING, reason=reason)
    return _assembled(problem, rates, value, math.inf, nothing, infeasibility, prices, None)


def _assembled(
    problem: Problem,
    rates: Array,
    value: float,
    gap: float,
    relative: RelativeGap,
    infeasibility: float,
    prices: tuple[float, HostPrices],
    rows: RowTable | None,
    multipliers: Array | None = None,
) -> Certificate:
    """Return a certificate; its bound is the value better by the gap."""
    better = -1.0 if problem.objective.sense == "minimise" else 1.0
    return Certificate(
        value=value,
        bound=value + better * gap if math.isfinite(gap) else better * math.inf,
        gap=gap,
        relative_gap=relative.relative,
        beyond_rounding=relative.beyond_rounding,
        infeasibility=infeasibility,
        price=prices[0],
        host_prices=prices[1],
        rates=rates,
        reason=relative.reason,
        vanishing=relative.vanishing,
        rows=rows,
        multipliers=multipliers,
    )

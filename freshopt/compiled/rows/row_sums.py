"""Best responses to multipliers, and what they add to rows.

Plain steps that compiled loops inline.

Source k pays θ = base price + Σ_j y_j a_jk per unit of rate over its rows of the rate, and weighs its cost
with W = w + Σ_j y_j a_jk over its curved rows. Its best response ρ is its demand at a = W/θ. At a rate
strictly between the bounds the Lagrangian's part φ has the curvature of which 1/φ'' = (dρ/d log a)/θ, and a
row's function the slope a_jk, or a_jk·J'(ρ) = −a_jk·θ/W if it is curved: that is all the Gram matrix
H = Σ_k g_k' g_k'ᵀ/φ_k'' needs. Imported by `freshopt.compiled.rows.row_loops` alone.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.column_access import at
from freshopt.compiled.column_passes import Rate, added
from freshopt.compiled.cost_functions import Value
from freshopt.compiled.rows.row_records import LANES, RowEntries, RowPrices, RowSums
from freshopt.compiled.source_columns import LARGEST_RATE, SourceColumns
from freshopt.numerics.arrays import Array

# Relative step of the difference quotients: off by its square, and by rounding over it.
STEP = 1e-5
# One-sided differences of a smooth demand are about equal. Where one is so much smaller than the other demand
# has a kink or jumps, and the smaller one is taken: 0 where demand is constant on that side.
KINK = 0.5
# Indices without a sign: loops over entries of sources take a third of the time.
place, ONE = np.uint64, np.uint64(1)


def of_block(sums: RowSums, block: int) -> RowSums:
    """Return the sums of a block, as views."""
    return RowSums(
        sums.dense[block],
        sums.sparse[block],
        sums.host[block],
        sums.dense_gram[block],
        sums.mixed_gram[block],
        sums.sparse_gram[block],
        sums.host_gram[block],
    )


def fill_base(columns: SourceColumns, price: Array, weight: Array) -> None:
    """Write θ and W of sources without rows."""
    for k in range(len(price)):
        price[k] = at(columns.cost, k)
        weight[k] = at(columns.importance, k)


def add_prices(rows: RowEntries, y: RowPrices, begin: int, n: int, theta: Array) -> None:
    """Add what n sources from `begin` on pay, kind by kind."""
    for j in range(len(rows.dense)):
        add_multiple(y.dense[j], rows.dense[j, begin : begin + n], theta[rows.dense_kind[j], :n])
    if len(rows.coefficient) > 0:
        if np.any(rows.sparse_kind):
            add_entry_prices(rows, y.sparse, begin, n, theta)
        else:
            add_rate_prices(rows, y.sparse, begin, theta[0, :n])
    if len(rows.host) > 0:
        host, share = rows.host[begin : begin + n], rows.share[begin : begin + n]
        for k in range(n):
            if host[k] >= 0:
                theta[place(rows.host_kind[host[k]]), k] += y.host[host[k]] * share[k]


def add_multiple(factor: float, terms: Array, into: Array) -> None:
    """Add a multiple of a vector to another."""
    for k in range(len(into)):
        into[k] += factor * terms[k]


def add_entry_prices(rows: RowEntries, y: Array, begin: int, n: int, theta: Array) -> None:
    """Add what sources pay for their sparse rows, of any kind."""
    first, row, coefficient, kind = rows.first, rows.row, rows.coefficient, rows.sparse_kind
    for k in range(n):
        for e in range(place(first[begin + k]), place(first[begin + k + 1])):
            j = place(row[e])
            theta[place(kind[j]), place(k)] += y[j] * coefficient[e]


def add_rate_prices(rows: RowEntries, y: Array, begin: int, into: Array) -> None:
    """Add what sources pay for their sparse rows, all of the rate."""
    first, row, coefficient = rows.first, rows.row, rows.coefficient
    for k in range(len(into)):
        paid = into[k]
        for e in range(place(first[begin + k]), place(first[begin + k + 1])):
            paid += y[place(row[e])] * coefficient[e]
        into[k] = paid


def fill_demand(
    rate: Rate, columns: SourceColumns, price: Array, weight: Array, factor: float, out: Array
) -> None:
    """Write unconstrained rates at a = factor·W/θ.

    A source that is paid for its rate takes all there is; one that neither pays nor gains takes none.
    """
    for k in range(len(out)):
        t, w = price[k], max(weight[k], 0.0)
        a = factor * (w / t) if t > 0.0 else np.inf
        found = min(rate(at(columns.signalled, k), (a,), at(columns.parameters, k)), LARGEST_RATE)
        idle = 0.0 if w == 0.0 else found
        out[k] = found if t > 0.0 else (LARGEST_RATE if t < 0.0 else idle)


def bound_rates(columns: SourceColumns, unconstrained: Array, out: Array) -> None:
    """Write rates within their bounds."""
    for k in range(len(out)):
        out[k] = min(max(unconstrained[k], at(columns.lower, k)), at(columns.upper, k))


def fill_curvature(
    columns: SourceColumns,
    rates: Array,
    unconstrained: Array,
    less: Array,
    more: Array,
    price: Array,
    inverse: Array,
) -> None:
    """Write 1/φ'' where a rate is strictly inside its bounds, else 0.

    `less` and `more` are the unconstrained rates at a·(1 − h) and a·(1 + h).
    """
    for k in range(len(rates)):
        forward, backward = more[k] - unconstrained[k], unconstrained[k] - less[k]
        least, most = min(forward, backward), max(forward, backward)
        rise = (0.5 / STEP) * (forward + backward) if least >= KINK * most else least / STEP
        inside = at(columns.lower, k) < unconstrained[k] < at(columns.upper, k)
        own = rise / price[k]
        # A curvature that underflows is none that Newton's method could use.
        usable = inside and 0.0 < own < LARGEST_RATE and unconstrained[k] < LARGEST_RATE
        inverse[k] = own if usable else 0.0


def fill_values(
    value: Value,
    columns: SourceColumns,
    rates: Array,
    price: Array,
    weight: Array,
    values: Array,
    tilt: Array,
) -> None:
    """Write J(ρ), and J'(ρ) = −θ/W of rates inside their bounds."""
    for k in range(len(rates)):
        values[k] = value(rates[k], at(columns.parameters, k))
        slope = -price[k] / weight[k]
        tilt[k] = slope if abs(slope) < LARGEST_RATE else 0.0


def add_used(rows: RowEntries, values: Array, begin: int, n: int, sums: RowSums) -> None:
    """Add what sources use of each row, with rounding errors apart.

    Each kind has a line of `values`.
    """
    for j in range(len(rows.dense)):
        amounts = values[rows.dense_kind[j], :n]
        add_lanes(rows.dense[j, begin : begin + n], amounts, sums.dense[j, 0], sums.dense[j, 1])
    if len(rows.coefficient) > 0:
        add_entries(rows, values, begin, n, sums.sparse)
    if len(rows.host) > 0:
        host, share = rows.host[begin : begin + n], rows.share[begin : begin + n]
        for k in range(n):
            h = host[k]
            if h >= 0:
                own = sums.host[h]
                amount = share[k] * values[place(rows.host_kind[h]), k]
                own[0], own[1] = added(own[0], own[1], amount)


def add_lanes(coefficient: Array, amounts: Array, sums: Array, lost: Array) -> None:
    """Add products to the lanes of a sum, one after the other."""
    for begin in range(0, len(amounts), LANES):
        end = min(len(amounts), begin + LANES)
        a, b = coefficient[begin:end], amounts[begin:end]
        for lane in range(end - begin):
            # A source that is not in the row adds nothing, even where its cost is infinite.
            amount = a[lane] * b[lane] if a[lane] != 0.0 else 0.0
            sums[lane], lost[lane] = added(sums[lane], lost[lane], amount)


def fold_lanes(sums: Array, lost: Array) -> None:
    """Add all lanes of a sum to the first one."""
    for lane in range(1, len(sums)):
        sums[0], lost[0] = added(sums[0], lost[0] + lost[lane], sums[lane])


def add_entries(rows: RowEntries, values: Array, begin: int, n: int, sums: Array) -> None:
    """Add what sources use of their sparse rows."""
    first, row, coefficient, kind = rows.first, rows.row, rows.coefficient, rows.sparse_kind
    for k in range(n):
        for e in range(place(first[begin + k]), place(first[begin + k + 1])):
            j = place(row[e])
            amount = coefficient[e] * values[place(kind[j]), place(k)]
            sums[j, 0], sums[j, 1] = added(sums[j, 0], sums[j, 1], amount)


def add_dense_gram(
    rows: RowEntries, inverse: Array, tilt: Array, begin: int, one: Array, other: Array, gram: Array
) -> None:
    """Add Σ g_i' g_j'/φ'' of dense rows; `one` and `other` are memory.

    Each kind has a line of `tilt`; that of the rate is 1.
    """
    n, dense, kind = len(inverse), rows.dense, rows.dense_kind
    for i in range(len(dense)):
        multiply(dense[i, begin : begin + n], inverse, one)
        if kind[i] > 0:
            multiply(one, tilt[kind[i], :n], one)
        last = 0
        for j in range(i + 1):
            if kind[j] > 0 and kind[j] != last:
                multiply(one, tilt[kind[j], :n], other)
                last = kind[j]
            gram[i, j] += product(other if kind[j] > 0 else one, dense[j, begin : begin + n])


def multiply(a: Array, b: Array, out: Array) -> None:
    """Write the products of two vectors' entries."""
    for k in range(len(out)):
        out[k] = a[k] * b[k]


def product(a: Array, b: Array) -> float:
    """Return the inner product of two vectors."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


def fill_slopes(rows: RowEntries, tilt: Array, begin: int, n: int, slopes: Array) -> None:
    """Write the slopes g' of sparse entries of consecutive sources."""
    first, row, coefficient, kind = rows.first, rows.row, rows.coefficient, rows.sparse_kind
    start = place(first[begin])
    for k in range(n):
        for e in range(place(first[begin + k]), place(first[begin + k + 1])):
            slopes[e - start] = coefficient[e] * tilt[place(kind[place(row[e])]), place(k)]


def add_sparse_gram(
    rows: RowEntries, slopes: Array, inverse: Array, tilt: Array, begin: int, sums: RowSums
) -> None:
    """Add Σ g_i' g_j'/φ'' of sparse rows with sparse and dense rows."""
    first, row, dense, kind = rows.first, rows.row, rows.dense, rows.dense_kind
    start, gram, mixed = place(first[begin]), sums.sparse_gram, sums.mixed_gram
    for k in range(len(inverse)):
        if inverse[k] == 0.0:
            continue
        a = place(first[begin + k])
        for e in range(a, place(first[begin + k + 1])):
            j = place(row[e])
            own = slopes[e - start] * inverse[k]
            line = (j * (j + ONE)) >> ONE
            gram[line + j] += own * slopes[e - start]
            for other in range(a, e):
                gram[line + place(row[other])] += own * slopes[other - start]
            for d in range(len(dense)):
                mixed[j, d] += own * dense[d, begin + k] * tilt[place(kind[d]), k]


def add_host_gram(
    rows: RowEntries, slopes: Array, inverse: Array, tilt: Array, begin: int, sums: RowSums
) -> None:
    """Add Σ g_i' g_j'/φ'' of host rows with themselves and all others."""
    first, row, dense, kind = rows.first, rows.row, rows.dense, rows.dense_kind
    start = place(first[begin])
    for k in range(len(inverse)):
        h = rows.host[begin + k]
        if inverse[k] == 0.0 or h < 0:
            continue
        slope = rows.share[begin + k] * tilt[place(rows.host_kind[h]), k]
        own, line = slope * inverse[k], sums.host[h]
        line[2] += own * slope
        for d in range(len(dense)):
            line[3 + d] += own * dense[d, begin + k] * tilt[place(kind[d]), k]
        for e in range(place(first[begin + k]), place(first[begin + k + 1])):
            sums.host_gram[h, place(row[e])] += own * slopes[e - start]

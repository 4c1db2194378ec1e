"""Python source of the loops over sources of declared expressions.

Three kinds of loop, each called ``run``: evaluations, inverse marginals, and best responses of a weighted sum
of costs. Names are those of `tape_source`, `atom_functions` and `marginal_search`.
"""

from __future__ import annotations

from collections.abc import Sequence

from freshopt.compiled.tapes.tape_source import ZERO, Part, cost_source, numbers_of


def loop_source(kind: str, parts: Sequence[Part], *, objective: bool = True) -> str:
    """Return the source of a loop, ``run``, and its callees.

    - `kind` {"jets", "inverse", "rows"}: Cost, marginal and curvature; inverse marginals; or best responses
      of a weighted sum.
    - `parts`: One function; of "rows" the objective, if there is one, and the curves.
    - `objective`: Whether the first of the parts of "rows" is the objective, whose weight is 1.
    """
    costs = [cost_source(f"part{t}", part) for t, part in enumerate(parts)]
    if kind == "rows":
        return "\n".join([*costs, _rows(parts, objective)])
    if kind == "inverse":
        return "\n".join([*costs, _inverse(parts)])
    names, columns, _ = _constants(parts)
    loop = (
        f"def run(rate, side, {_listed(names)}cost, slope, bend):\n    for k in range(rate.size):\n"
        f"        cost[k], slope[k], bend[k] = part0(rate[k], side, {_tuple(columns)})\n"
    )
    return "\n".join([*costs, loop])


# A search over blocks of sources. The columns of a block, as `price`, are slices; of the state, in one array
# so that a compiler sees that its rows do not overlap, row i is state[i·LANES:(i + 1)·LANES].
_SEARCH = """\
    state = np.empty(6 * LANES)
    for first in range({begin}, n, LANES):
        last = min(n, first + LANES)
        size = last - first
{slices}\
        for k in range(size):
            x, floor, ceiling = limits(start[k], {lower}, {upper})
            state[k] = x
            state[k + LANES] = -inf
            state[k + 2 * LANES] = inf
            state[k + 3 * LANES] = 1.0
            state[k + 4 * LANES] = floor
            state[k + 5 * LANES] = ceiling
        width, push = 1.0, ULP
        for turn in range(STEPS):
            halve = 1.0 if turn > PATIENT and turn % 3 > 0 else 0.0
            for k in range(size):
                x, low, high = state[k], state[k + LANES], state[k + 2 * LANES]
                live = state[k + 3 * LANES] > 0.0
                rate = exp_of(x)
                value, fall = marginal(rate, 1.0, {data})
                reached, low, high, going = advanced(
                    x, low, high, value, fall * rate, {price},
                    state[k + 4 * LANES], state[k + 5 * LANES], width, push, halve
                )
                state[k] = reached if live else x
                state[k + LANES] = low
                state[k + 2 * LANES] = high
                state[k + 3 * LANES] = going if live else 0.0
            going = 0.0
            for k in range(size):
                if state[k + 3 * LANES] > 0.0:
                    going = 1.0
                    break
            if going == 0.0:
                break
            width, push = 2.0 * width, HASTE * push
"""


def _listed(names: Sequence[str]) -> str:
    return "".join(f"{name}, " for name in names)


def _sliced(names: Sequence[str]) -> str:
    """Return the lines that cut columns to a block's."""
    return "".join(f"        {name} = {name}_[first:last]\n" for name in names)


def _inverse(parts: Sequence[Part]) -> str:
    """Return the source of inverse marginals."""
    names, columns, _ = _constants(parts)
    data = _tuple(columns)
    vectors = [name for name, entry in zip(names, columns, strict=True) if name != entry]
    whole = [f"{name}_" if name in vectors else name for name in names]
    search = _SEARCH.format(
        begin="0",
        slices=_sliced(["price", "start", "out", *vectors]),
        lower=ZERO,
        upper="inf",
        data=data,
        price="price[k]",
    )
    return (
        "def marginal(r, side, q):\n    _, s, c = part0(r, side, q)\n    return s, c\n\n"
        f"def run(price_, start_, {_listed(whole)}out_):\n    n = out_.size\n{search}"
        f"        for k in range(size):\n            out[k] = exp_of(state[k])\n"
        f"            value, _ = marginal(out[k], 1.0, {data})\n            state[k + LANES] = value\n"
        "        for k in range(size):\n"
        "            if out[k] == 0.0 or state[k + LANES] > BESIDE * price[k]:\n"
        f"                out[k] = off_zero_onto_jumps(marginal, {data}, price[k], out[k])\n"
    )


def _constants(parts: Sequence[Part]) -> tuple[list[str], list[str], list[list[int]]]:
    """Return a loop's arguments, a source's data, and its parts' places."""
    names: list[str] = []
    columns: list[str] = []
    own: list[list[int]] = []
    for part in parts:
        numbers = numbers_of(part.description)
        own.append([len(names) + j for j in range(len(numbers))])
        for _, vector in numbers:
            name = f"a{len(names)}"
            names.append(name)
            columns.append(f"{name}[k]" if vector else name)
    return names, columns, own


def _tuple(entries: Sequence[str]) -> str:
    """Return a tuple's source; an empty one would have no type."""
    return f"({''.join(f'{entry}, ' for entry in entries or [ZERO])})"


def _rows(parts: Sequence[Part], objective: bool) -> str:
    """Return the source of best responses of weighted sums."""
    names, columns, own = _constants(parts)
    vectors = [name for name, entry in zip(names, columns, strict=True) if name != entry]
    whole = [f"{name}_" if name in vectors else name for name in names]
    first = int(objective)
    curves = range(first, len(parts))
    # Weights stand behind the constants.
    weights = {t: len(names) + t - first for t in curves}
    paid = [f"theta{t - first + 1}" for t in curves]
    data = _tuple([*columns, *(f"{name}[k]" for name in paid)])
    sums, stores = "", ""
    for t in range(len(parts)):
        constants = _tuple([f"q[{j}]" for j in own[t]])
        call = f"part{t}(r, side, {constants})"
        s, c = (f"weighted(q[{weights[t]}], {e})" if t in weights else e for e in "sc")
        sums += f"    _, s, c = {call}\n    value = value + {s}\n    fall = fall + {c}\n"
        stores += f"            v, s, c = {call}\n            bend = bend + {c}\n"
        if t in weights:
            row = t - first + 1
            stores += f"            values[{row}, j] = v\n            slopes[{row}, j] = -s\n"
        else:
            stores += "            cost[j] = v\n"
    search = _SEARCH.format(
        begin="begin",
        slices=_sliced(["start", "lower", "upper", *vectors])
        + "".join(f"        theta{t} = theta_[{t}, first:last]\n" for t in range(len(paid) + 1)),
        lower="lower[k]",
        upper="upper[k]",
        data=data,
        price="theta0[k]",
    )
    return (
        f"def marginal(r, side, q):\n    value, fall = 0.0, 0.0\n{sums}    return value, fall\n\n"
        f"def run(begin, end, theta_, start_, lower_, upper_, {_listed(whole)}"
        "values, slopes, curvature, cost):\n"
        f"    n = end\n    side = 1.0\n{search}"
        f"        for k in range(size):\n            j = first + k\n            q = {data}\n"
        "            least, _ = marginal(lower[k], 1.0, q)\n"
        "            idle = (theta0[k] == 0.0) & (least == 0.0)\n"
        "            r = lower[k] if idle else bounded(exp_of(state[k]), lower[k], upper[k])\n"
        "            values[0, j] = r\n            slopes[0, j] = 1.0\n            bend = 0.0\n"
        f"{stores}            curvature[j] = bend\n"
    )

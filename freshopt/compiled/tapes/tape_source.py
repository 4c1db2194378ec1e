"""Python source of declared expressions: functions of one source.

What comes in is the neutral description of a tape (`freshopt.autodiff.tape_description`), what goes out is
text whose names are those of `atom_functions`. Constants stay out of the text: what differs between two
problems of one structure are arguments, so that one compilation serves both. As on the tape, a slope of 1 and
a curvature of 0 that are the same for all sources cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

Description: TypeAlias = tuple[tuple[Any, ...], tuple[str, ...]]

ZERO, ONE = "0.0", "1.0"
_POWERS = {-1.0: "inverse", 0.5: "root", 2.0: "square"}
_NONE = -1


class Part(NamedTuple):
    """One of the functions of the rate that a loop adds up.

    - `description`: Of its tape.
    - `maximised`: Whether its cost is the negative expression.
    """

    description: Description
    maximised: bool


class _Jet(NamedTuple):
    """Names of, or numbers for, value, slope and curvature."""

    value: str
    slope: str
    curvature: str


class _Writer:
    """Lines of one function's body."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def keep(self, expression: str, letter: str) -> str:
        """Assign an expression to a name, unless it is one."""
        if expression.isidentifier() or expression in (ZERO, ONE):
            return expression
        name = f"{letter}{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name


def numbers_of(description: Description) -> tuple[tuple[int, bool], ...]:
    """Return the places of the arguments, and whether each is a vector."""
    kinds = description[1]
    return tuple((k, kind == "vector") for k, kind in enumerate(kinds) if kind in ("number", "vector"))


def jet_source(name: str, description: Description) -> str:
    """Return the source of a jet, ``name(r, side, q)``.

    r is the rate, q holds the constants named by `numbers_of`, at one source.
    """
    steps, kinds = description
    places = {k: j for j, (k, _) in enumerate(numbers_of(description))}
    constants = [{"zero": ZERO, "one": ONE}.get(kind) or f"q[{places[k]}]" for k, kind in enumerate(kinds)]
    writer = _Writer()
    jets = [_Jet("r", ONE, ZERO)]
    for step in steps:
        kind, *fields = step
        made = _affine if kind == "affine" else _atom
        found = made(writer, jets, constants, *fields)
        jets.append(_Jet(*(writer.keep(e, letter) for e, letter in zip(found, "vsc", strict=True))))
    last = jets[-1]
    body = "".join(f"    {line}\n" for line in writer.lines)
    return f"def {name}(r, side, q):\n{body}    return {last.value}, {last.slope}, {last.curvature}\n"


def cost_source(name: str, part: Part) -> str:
    """Return the source of a part's cost, marginal and curvature."""
    jet = jet_source(f"{name}_jet", part.description)
    # Not −0 on a linear piece: its sign counts.
    signs = "-v, s, 0.0 - c" if part.maximised else "v, -s, c"
    return f"{jet}\ndef {name}(r, side, q):\n    v, s, c = {name}_jet(r, side, q)\n    return {signs}\n"


def _times(a: str, b: str) -> str:
    if ZERO in (a, b):
        return ZERO
    if a == ONE:
        return b
    return a if b == ONE else f"({a}) * ({b})"


def _plus(a: str, b: str) -> str:
    if a == ZERO:
        return b
    return a if b == ZERO else f"({a}) + ({b})"


def _weighted(constant: str, value: str, zeros: bool) -> str:
    return f"weighted({constant}, {value})" if zeros else f"({constant}) * ({value})"


def _affine(
    writer: _Writer,  # noqa: ARG001 - as of an atom
    jets: Sequence[_Jet],
    constants: Sequence[str],
    terms: tuple[tuple[int, int, int, bool], ...],
    intercept: int,
    slope: int,
    slope_zeros: bool,
) -> _Jet:
    def added(values: Sequence[str]) -> str:
        total = ZERO
        for (_, sign, constant, zeros), value in zip(terms, values, strict=True):
            if value == ZERO:
                continue
            if sign < 0:
                total = f"-({value})" if total == ZERO else f"({total}) - ({value})"
            else:
                total = _plus(total, value if sign else _weighted(constants[constant], value, zeros))
        return total

    used = [jets[slot] for slot, *_ in terms]
    value, first = added([jet.value for jet in used]), added([jet.slope for jet in used])
    if slope != _NONE:
        b = constants[slope]
        value = _plus(value, "r" if b == ONE else _weighted(b, "r", slope_zeros))
        first = _plus(first, b)
    if intercept != _NONE:
        value = _plus(value, constants[intercept])
    return _Jet(value, first, added([jet.curvature for jet in used]))


def _atom(
    writer: _Writer,
    jets: Sequence[_Jet],
    constants: Sequence[str],
    name: str,
    slots: tuple[int, ...],
    held: tuple[int, ...],
    exponent: float | None,
    edge: tuple[float, tuple[float, float, float], bool] | None,
) -> _Jet:
    given, parameters = [jets[slot] for slot in slots], [constants[k] for k in held]
    several = _SEVERAL.get(name)
    if several is not None:
        return several(writer, given, parameters)
    (x,) = given
    if exponent is not None:
        name = _POWERS.get(exponent) or ("high_power" if exponent > 2.0 else "low_power")
        parameters = [] if exponent in _POWERS else [repr(exponent)]
    tag = len(writer.lines)
    found = [f"f{tag}", f"g{tag}", f"h{tag}"]
    writer.lines.append(f"{', '.join(found)} = {name}({', '.join([x.value, *parameters])})")
    if edge is not None:
        at, limits, convex = edge
        far = ("inf", "-inf", "nan") if convex else ("-inf", "inf", "nan")
        for entry, limit, outside in zip(found, limits, far, strict=True):
            writer.lines.append(f"{entry} = mended({x.value}, {at!r}, {entry}, {limit!r}, {outside})")
    value, first, second = found
    if name == "exp":
        bend = _times(first, _plus(_times(x.slope, x.slope), x.curvature))
    else:
        bend = _plus(_times(_times(second, x.slope), x.slope), _times(first, x.curvature))
    return _Jet(value, _times(first, x.slope), bend)


def _chosen(function: str, ahead: str, upwards: str) -> Callable[..., _Jet]:
    """Return the rule of a maximum or minimum, ties by side."""

    def rule(writer: _Writer, branches: list[_Jet], _parameters: list[str]) -> _Jet:
        a = branches[0]
        for b in branches[1:]:
            leads = f"({b.slope} > {a.slope} if {upwards}side > 0.0 else {b.slope} < {a.slope})"
            second = writer.keep(f"({b.value} {ahead} {a.value}) | (({a.value} == {b.value}) & {leads})", "t")
            value = writer.keep(f"{function}({a.value}, {b.value})", "v")
            slope = writer.keep(f"{b.slope} if {second} else {a.slope}", "s")
            bend = a.curvature
            if bend != b.curvature:
                bend = writer.keep(f"{b.curvature} if {second} else {bend}", "c")
            a = _Jet(value, slope, bend)
        return a

    return rule


def _absolute(writer: _Writer, given: list[_Jet], _parameters: list[str]) -> _Jet:
    (x,) = given
    sign = writer.keep(f"side * sign_of({x.slope}) if {x.value} == 0.0 else sign_of({x.value})", "t")
    return _Jet(f"abs({x.value})", _times(sign, x.slope), _times(sign, x.curvature))


def _entropy(name: str) -> Callable[..., _Jet]:
    """Return the rule of a relative entropy."""

    def rule(writer: _Writer, given: list[_Jet], parameters: list[str]) -> _Jet:
        tag = len(writer.lines)
        arguments = [*(jet.value for jet in given), *(jet.slope for jet in given), *parameters]
        writer.lines.append(f"f{tag}, g{tag}, h{tag} = {name}({', '.join(arguments)})")
        return _Jet(f"f{tag}", f"g{tag}", f"h{tag}")

    return rule


def _same(_writer: _Writer, given: list[_Jet], _parameters: list[str]) -> _Jet:
    return given[0]


_SEVERAL: dict[str, Callable[..., _Jet]] = {
    "same": _same,
    "maximum": _chosen("larger", ">", ""),
    "minimum": _chosen("smaller", "<", "-"),
    "abs": _absolute,
    "rel_entr": _entropy("rel_entr"),
    "kl_div": _entropy("kl_div"),
}

"""Exceptions and warnings, and how messages name the offending inputs.

Every message reads ``<what: name, index, value>. <why refused>. <what to do>.``, so that the last line of a
traceback, or the only line of the command line, is enough to mend the input.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from difflib import get_close_matches
from itertools import islice
from numbers import Real
from typing import Any, TypeVar

Choice = TypeVar("Choice")
Given = TypeVar("Given")

# Offenders listed by name; a longer list hides the remedy.
SHOWN = 5
# Settings that are declared so take one number, or None if that is declared too.
NUMBERS = frozenset(["float", "int", "bool"])
# Bits of a whole number; from 1024 on numbers are beyond all floats.
BITS = 1000
# Characters of an offender: a URL with its place fits, a field of ten megabytes does not.
LONGEST = 320


class FreshoptError(Exception):
    """Base class of the errors that freshopt raises on purpose.

    The message is always one line, whatever value it quotes.

    Examples
    --------
    >>> import freshopt as fo
    >>> try:
    ...     fo.Sources(change_rate=[1.0, -2.0])
    ... except fo.FreshoptError as error:
    ...     print(str(error)[:38])
    change_rate out of range for source 1:
    """

    def __str__(self) -> str:
        return " ".join(super().__str__().split("\n"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to remake the error from its attributes.

        Python's own way calls the constructor with the message alone, and a pool of processes breaks where
        that fails.
        """
        return _remade, (type(self), self.args), self.__dict__


class SourceDataError(FreshoptError, ValueError):
    """Unusable data about sources.

    A rate, an importance, a crawl log, a file.
    """


class SourceDataWarning(UserWarning):
    """Data about sources that are used as they stand and look wrong.

    A clock that jumps, times with and without offset in one column. The message is one line, as an error's.
    """


class ObjectiveError(FreshoptError, ValueError):
    """Unusable declared objective.

    It is not convex, not separable, of the wrong shape, or unusable here.

    Examples
    --------
    >>> import freshopt as fo
    >>> try:
    ...     fo.Problem("binry", fo.Sources([1.0]), bandwidth=1.0)
    ... except fo.ObjectiveError as error:
    ...     print(str(error)[:41])
    there is no objective 'binry'. Did you me
    """


class InfeasibleProblemError(FreshoptError, ValueError):
    """Infeasible constraints, shown by arithmetic before any solver runs.

    Attributes
    ----------
    conflict : Conflict or None
        Which declared rows cannot hold together, with the multipliers that prove it, where there are rows.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 2.0], min_rate=1.0)
    >>> try:
    ...     fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=1.5)
    ... except fo.InfeasibleProblemError:
    ...     print("least rates need more bandwidth")
    least rates need more bandwidth
    """

    def __init__(self, message: str, conflict: Any = None) -> None:  # noqa: ANN401 - of a room above
        super().__init__(message)
        self.conflict = conflict


class SolverRefusedError(FreshoptError):
    """Solver that does not apply to a problem, with its reason."""


class CertificateError(FreshoptError):
    """Solver's answer that its certificate does not confirm.

    Attributes
    ----------
    solution : Solution or DistributedSolution
        The answer all the same, with its certificate.
    """

    def __init__(self, message: str, solution: Any) -> None:  # noqa: ANN401 - either kind
        super().__init__(message)
        self.solution = solution


class Heard(str):
    """Text of a warning that was given.

    - `of_rates`: Whether change rates may be wrong by as much as matters, and with them what a plan promises.
    """

    of_rates: bool

    def __new__(cls, text: str, *, of_rates: bool = False) -> Heard:
        """Return the text."""
        heard = super().__new__(cls, text)
        heard.of_rates = of_rates
        return heard


_HEARD: ContextVar[list[Heard] | None] = ContextVar("heard", default=None)


@contextmanager
def hearing() -> Iterator[list[Heard]]:
    """Collect the warnings of a run, whatever filters say of showing them.

    Within another run it is that one's list.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"), hearing() as heard:
    ...     warn("a clock jumps", of_rates=True)
    >>> heard
    ['a clock jumps']
    """
    outer = _HEARD.get()
    if outer is not None:
        yield outer
        return
    own: list[Heard] = []
    token = _HEARD.set(own)
    try:
        yield own
    finally:
        _HEARD.reset(token)


def by_weight(heard: Iterable[Heard]) -> tuple[Heard, ...]:
    """Return warnings, each once, those of change rates first.

    Examples
    --------
    >>> by_weight([Heard("b"), Heard("a", of_rates=True), Heard("b")])
    ('a', 'b')
    """
    return tuple(sorted(dict.fromkeys(heard), key=lambda each: not each.of_rates))


def warn(message: str, *, of_rates: bool = False) -> None:
    """Warn once, at the line outside freshopt that led here.

    `of_rates` says that change rates may be wrong by as much as matters: reports tell it first.
    """
    text = " ".join(message.split("\n"))
    heard = _HEARD.get()
    if heard is not None:
        heard.append(Heard(text, of_rates=of_rates))
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "freshopt":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, SourceDataWarning, stacklevel=depth)


def _remade(kind: type[FreshoptError], arguments: tuple[object, ...]) -> FreshoptError:
    """Return an error that its constructor has not seen."""
    return kind.__new__(kind, *arguments)


def expect(value: object, kind: type | tuple[type, ...], what: str, remedy: str) -> None:
    """Raise TypeError unless a value is of an expected type.

    - raises TypeError: naming the argument, what it is and what to pass.

    Examples
    --------
    >>> expect(3, str, "name", "Pass text")
    Traceback (most recent call last):
    TypeError: name is of type int. Pass text.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{what} is of type {type(value).__name__}. {remedy}.")


def expect_settings(record: Any) -> None:  # noqa: ANN401 - any frozen dataclass
    """Raise TypeError unless numeric settings are single numbers.

    A setting that is declared as a number takes a number, true or false. A seed is checked too.

    - raises TypeError: naming the setting.
    - raises SourceDataError if a whole number is beyond all floats, or a seed cannot be one.
    """
    for each in fields(record):
        if not each.init:
            continue
        value, declared = getattr(record, each.name), str(each.type).split(" | ")
        if each.name == "seed":
            check_seed(value)
        if value is None and "None" in declared:
            continue
        plain = isinstance(value, Real) or getattr(value, "shape", None) == ()
        if NUMBERS.intersection(declared) and NUMBERS.issuperset(set(declared) - {"None"}) and not plain:
            what = f"{each.name} of {type(record).__name__}"
            raise TypeError(f"{what} is of type {type(value).__name__}. Pass one number, True or False.")
        if declared == ["bool"] and type(value).__name__ not in ("bool", "bool_"):  # NumPy's may be either
            what = f"{each.name} of {type(record).__name__}"
            raise TypeError(f"{what} is of type {type(value).__name__}. Pass True or False.")
        if isinstance(value, int) and value.bit_length() > BITS:
            raise SourceDataError(f"{each.name} has {value.bit_length()} bits. Pass a smaller number.")


def one_of(
    value: object, choices: Sequence[Choice], what: str, error: type[FreshoptError] = SourceDataError
) -> Choice:
    """Return the choice that a value is; raise if it is none.

    Words in -ise are also read as they are spelled in -ize.

    Examples
    --------
    >>> one_of("maximize", ("minimise", "maximise"), "sense")
    'maximise'
    >>> one_of("max", ("minimise", "maximise"), "sense")
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: sense is 'max'. Pass 'minimise' or 'maximise'.
    >>> one_of("maximse", ("maximise",), "sense")
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: sense is 'maximse'. Did you mean 'maximise'? Pass 'maximise'.
    """
    meant = value.replace("ize", "ise") if isinstance(value, str) else value
    for choice in choices:
        if meant is choice or (isinstance(meant, str) and meant == choice):
            return choice
    *others, last = map(repr, choices)
    known = f"{', '.join(others)} or {last}" if others else last
    meant = suggestion(value, map(str, choices)) if isinstance(value, str) else ""
    raise error(f"{what} is {shown(value)}.{meant} Pass {known}.")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a question for the known word that is nearest, or nothing.

    Examples
    --------
    >>> suggestion("horizn", ["bandwidth", "horizon"]), suggestion("colour", ["horizon"])
    (" Did you mean 'horizon'?", '')
    """
    nearest = get_close_matches(word, list(known), n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


def refuse_unknown(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError if a function does not take a keyword.

    Examples
    --------
    >>> refuse_unknown("plan", ["horizn"], ["bandwidth", "horizon"])
    Traceback (most recent call last):
    TypeError: plan() got an unexpected keyword argument 'horizn'. Did you mean 'horizon'?
    """
    for name in given:
        if name not in known:
            words = f"{function}() got an unexpected keyword argument {name!r}."
            raise TypeError(f"{words}{suggestion(name, known)}")


def check_seed(seed: object) -> int:
    """Return the seed; raise unless it is an integer in 0..2⁶⁴−1.

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: seed is -1. Pass an integer from 0 to 2**64 - 1.
    """
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= operator.index(seed) < 2**64:
        raise SourceDataError(f"seed is {shortened(repr(seed))}. Pass an integer from 0 to 2**64 - 1.")
    return operator.index(seed)


def shortened(text: str) -> str:
    """Return a text without its middle if it is too long.

    Examples
    --------
    >>> shortened("a" * 1000 + " in row 7")
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaa in row 7'
    """
    return text if len(text) <= LONGEST else f"{text[:64]}...{text[-32:]}"


def shown(value: object) -> str:
    """Return a value's repr for a message, on one line.

    Examples
    --------
    >>> shown([1.0, None]), len(shown("a" * 1000))
    ('[1.0, None]', 99)
    """
    return shortened(" ".join(repr(value).split()))


def guarded(call: Callable[[], Given]) -> Given | BaseException:
    """Return what foreign code returns or raises.

    The one place where anything may be caught: foreign code may raise anything, and that it did, with what,
    is a result to report and hides nothing. Besides exceptions that means an exit (a solver must not end its
    caller) and a panic of a Rust extension, a BaseException of no importable type. Interrupts, and whatever
    else is meant for the caller, pass.

    Examples
    --------
    >>> guarded(lambda: 1), guarded(lambda: 1 / 0)
    (1, ZeroDivisionError('division by zero'))
    """
    try:
        return call()
    except BaseException as error:
        if not isinstance(error, Exception | SystemExit) and type(error).__name__ != "PanicException":
            raise
        return error


def list_offenders(offenders: Iterable[str], many: int | None = None) -> str:
    """Join offenders for a message: at most five, then how many more.

    Where it is known how `many` there are, no more than those that are shown are asked for.

    Examples
    --------
    >>> list_offenders(["a", "b"])
    'a, b'
    >>> list_offenders(str(k) for k in range(17))
    '0, 1, 2, 3, 4 and 12 more'
    """
    names = list(offenders if many is None else islice(offenders, SHOWN))
    rest = (len(names) if many is None else many) - SHOWN
    return ", ".join(map(shortened, names[:SHOWN])) + (f" and {rest} more" if rest > 0 else "")

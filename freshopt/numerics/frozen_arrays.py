"""`frozen_arrays`: values whose arrays are read-only, also in copies and pickles.

NumPy forgets in pickles and deep copies that an array is read-only and that a scalar's vector has stride 0.
A copy of a frozen value could then be changed in place, a constant column of n sources would take n numbers
instead of one, and tables would show it as a column that was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache, partial, wraps
from operator import is_
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import is_scalar, read_only

Kind = TypeVar("Kind")


def frozen_arrays(kind: type[Kind]) -> type[Kind]:
    """Make a class keep its arrays read-only in copies and pickles.

    The arrays of a dataclass, also those in its tuples and mappings, become read-only views at construction;
    the caller's own stay writable. Of a class with state, or of a named tuple, what is read-only stays so.

    - `kind`: Above ``@dataclass``, as a decorator.

    Examples
    --------
    >>> import pickle
    >>> import freshopt as fo
    >>> sources = pickle.loads(pickle.dumps(fo.Sources([1.0, 2.0])))
    >>> sources.change_rate.flags.writeable, sources.importance.strides
    (False, (0,))
    """
    members: Any = kind
    if issubclass(kind, tuple):
        members.__reduce__ = _entries
        return kind
    members.__getstate__, members.__setstate__ = _state, _restore
    if is_dataclass(kind):
        own = vars(kind)
        names = tuple(each.name for each in fields(kind) if not isinstance(own.get(each.name), _Late))
        members.__init__ = _freezing(members.__init__, names)
    return kind


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen_value(late: Sequence[str] = (), **settings: bool) -> Callable[[type[Kind]], type[Kind]]:
    """Return the decorator of frozen dataclasses of read-only arrays, compared by identity.

    - `late`: Attributes that may be given by `later`; their values hold no arrays but frozen ones.

    Examples
    --------
    >>> @frozen_value()
    ... class Pair:
    ...     numbers: np.ndarray
    >>> Pair(np.zeros(2)).numbers.flags.writeable
    False
    """

    def made(kind: type[Kind]) -> type[Kind]:
        members: Any = dataclass(frozen=True, slots=True, eq=False, **settings)(kind)
        for name in late:
            setattr(members, name, _Late(vars(members)[name]))
        return frozen_arrays(members)

    return made


class _Later(partial[Any]):
    """How an attribute is made once it is asked for."""


def later(make: Callable[..., object], *arguments: object) -> Any:  # noqa: ANN401 - stands for its value
    """Return what stands for an attribute until it is asked for.

    Copies and pickles hold the value itself.

    - `make`: Called with the arguments, once.

    Examples
    --------
    >>> @frozen_value(late=("name",))
    ... class Named:
    ...     name: str
    >>> Named(later("{}{}".format, "a", 1)).name
    'a1'
    """
    return _Later(make, *arguments)


class _Late:
    """A slot whose value may be given by `later`."""

    __slots__ = ("slot",)

    def __init__(self, slot: Any) -> None:  # noqa: ANN401 - a member descriptor has no type
        self.slot = slot

    def __get__(self, value: object, kind: type | None = None) -> Any:  # noqa: ANN401 - any attribute
        if value is None:
            return self
        found = self.slot.__get__(value, kind)
        if type(found) is _Later:
            found = found()
            self.slot.__set__(value, found)
        return found

    def __set__(self, value: object, given: object) -> None:
        self.slot.__set__(value, given)


def _freezing(construct: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    @wraps(construct)
    def constructed(self: object, *arguments: object, **settings: object) -> None:
        construct(self, *arguments, **settings)
        freeze(self, names)

    return constructed


def altered(value: Kind, **changed: object) -> Kind:
    """Return a frozen dataclass with other attributes, without constructing it.

    Nothing is checked, and it is sooner done.

    Examples
    --------
    >>> @frozen_value()
    ... class Pair:
    ...     numbers: np.ndarray
    ...     name: str
    >>> altered(Pair(np.zeros(2), "a"), name="b")
    Pair(numbers=array([0., 0.]), name='b')
    """
    other = object.__new__(type(value))
    names: Mapping[str, object] = vars(type(value))["__dataclass_fields__"]
    for name in names:
        own = _frozen(changed[name]) if name in changed else getattr(value, name)
        object.__setattr__(other, name, own)
    return other


def freeze(value: object, names: Iterable[str]) -> None:
    """Make the arrays among an object's attributes read-only."""
    for name in names:
        attribute = getattr(value, name)
        # This is asked of every value that is made, and most attributes are none of these.
        if _is_searched(type(attribute)):  # type: ignore[arg-type] # mypy takes a type for unhashable
            frozen = _frozen(attribute)
            if frozen is not attribute:
                object.__setattr__(value, name, frozen)


# What begins and ends a tuple of labels.
_PLAIN = (str, int)
# What is an array, or what arrays are found in.
_HOLDERS = (np.ndarray, tuple, dict, MappingProxyType)


@lru_cache(maxsize=256)
def _is_searched(kind: type) -> bool:
    """Return whether values of a type are arrays, or may hold some."""
    return issubclass(kind, _HOLDERS)


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any attribute
    """Return a value with its arrays read-only; itself if they are."""
    if isinstance(value, np.ndarray):
        return read_only(value) if value.flags.writeable else value
    return _each(value, _frozen) if isinstance(value, _HOLDERS) else value


class _Packed:
    """An attribute in a state, and how it is made again."""

    __slots__ = ("parts", "remake")

    def __init__(self, remake: Callable[..., Any], *parts: object) -> None:
        self.remake, self.parts = remake, parts

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        """Return the attribute itself to whoever loads or copies deeply."""
        return self.remake, self.parts


# What a mapping that is searched for arrays holds.
_ENTRIES = (np.ndarray, _Packed)


def _state(self: object) -> dict[str, Any]:
    """Return the attributes by name, read-only arrays as such."""
    state = object.__getstate__(self)
    parts = state if isinstance(state, tuple) else (state,)
    return {name: _pack(value) for part in parts if part for name, value in part.items()}


def _entries(self: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[object, ...]]:
    """Return how a named tuple is made again."""
    return _made_again, (type(self), *map(_pack, self))


def _made_again(kind: Any, *entries: object) -> Any:  # noqa: ANN401 - a named tuple
    return kind._make(map(_unpack, entries))


def _restore(self: object, state: dict[str, Any]) -> None:
    """Set the attributes; a shallow copy's arrive as they were packed."""
    for name, value in state.items():
        object.__setattr__(self, name, _unpack(value))


def _pack(value: Any) -> Any:  # noqa: ANN401 - any attribute
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            return value
        scalar = is_scalar(value) and len(value)
        return _Packed(_repeated, value[:1].copy(), len(value)) if scalar else _Packed(_sealed, value)
    if isinstance(value, MappingProxyType):
        return _Packed(_mapping, _each(dict(value), _pack))
    return _each(value, _pack)


def _unpack(value: Any) -> Any:  # noqa: ANN401 - any attribute
    return value.remake(*value.parts) if isinstance(value, _Packed) else _each(value, _unpack)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - any attribute
    """Return a tuple or a mapping to arrays with its entries changed."""
    if isinstance(value, tuple):
        # A million labels of rows, or keys of groups, are not searched, at every slice of the rows.
        if not value or (isinstance(value[0], _PLAIN) and isinstance(value[-1], _PLAIN)):
            return value
        changed = [change(entry) for entry in value]
        same = all(map(is_, changed, value))
        return value if same else getattr(type(value), "_make", tuple)(changed)
    # The first entry decides: a mapping of a million hosts to numbers is not searched.
    if type(value) in (dict, MappingProxyType) and isinstance(next(iter(value.values()), None), _ENTRIES):
        return type(value)({key: change(entry) for key, entry in value.items()})
    return value


def _sealed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that was just made, read-only.

    Itself, not a view: an array that several attributes share stays one.
    """
    array.flags.writeable = False
    return array


def _repeated(one: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Return a vector of one number, without memory."""
    return np.broadcast_to(one.reshape(()), (n,))


def _mapping(entries: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only mapping; its own type has no name for pickles."""
    return MappingProxyType(_unpack(entries))

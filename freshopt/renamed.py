"""Old names of keywords and attributes, for a release.

`keywords` takes old keywords of a function or a class for the new ones, and says of a wrong one which was
meant; `Renamed` is an attribute by its old name. `exports` tells what a package has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from freshopt.errors import refuse_unknown
from freshopt.moved import warn_renamed

F = TypeVar("F", bound=Callable[..., Any])


def keywords(**renamed: str) -> Callable[[F], F]:
    """Return the decorator that takes old keywords, `old="new"`, for new ones.

    Of a class they are those of its constructor. Of a keyword that is none it says which is nearest.

    Examples
    --------
    >>> @keywords(name="names")
    ... def size(names=()):
    ...     return len(names)
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as heard:
    ...     warnings.simplefilter("always")
    ...     size(name=["a", "b"]), str(heard[0].message)
    (2, 'size(name=) is size(names=) now. The old name goes with the next release.')
    """

    def taking(owner: F) -> F:
        function: Callable[..., Any] = vars(owner)["__init__"] if isinstance(owner, type) else owner
        known = inspect.signature(function).parameters

        @wraps(function)
        def called(*positional: Any, **given: Any) -> Any:  # noqa: ANN401 - as the function
            if not given.keys() <= known.keys():
                for old in renamed.keys() & given.keys():
                    new = renamed[old]
                    if new in given:
                        raise TypeError(f"{owner.__name__}() got {new} twice, as {old} too")
                    warn_renamed(f"{owner.__name__}({old}=)", f"{owner.__name__}({new}=)")
                    given[new] = given.pop(old)
                refuse_unknown(owner.__name__, given, known)
            return function(*positional, **given)

        if not isinstance(owner, type):
            return cast(F, called)
        owner.__init__ = called  # type: ignore[misc]
        return owner

    return taking


class Renamed:
    """An attribute by its old name."""

    def __init__(self, new: str) -> None:
        self._new, self._old = new, ""

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the old name."""
        self._old = name

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - as the attribute
        """Return the attribute, with a warning."""
        if instance is None:
            return self
        warn_renamed(f"{owner.__name__}.{self._old}", f"{owner.__name__}.{self._new}")
        return getattr(instance, self._new)


def exports(own: Mapping[str, Any]) -> list[str]:
    """Return the names that a package's `__init__` imports from its own files."""
    home = f"{own['__name__']}."
    return sorted(name for name, each in own.items() if getattr(each, "__module__", "").startswith(home))

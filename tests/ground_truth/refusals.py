"""Refusals, in one line that says what the caller did wrong; and values that must be there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from freshopt.errors import SourceDataError

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that must not be None."""
    assert value is not None
    return value


def refused(
    pattern: str,
    call: Callable[..., object],
    /,
    *arguments: Any,  # noqa: ANN401
    error: type[BaseException] | tuple[type[BaseException], ...] = SourceDataError,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Check that a call is refused in one line that matches a pattern."""
    with pytest.raises(error, match=pattern) as refusal:
        call(*arguments, **settings)
    assert "\n" not in str(refusal.value)


@contextmanager
def refusing(*words: str, error: type[Exception] = SourceDataError) -> Iterator[None]:
    """Check that what is done within is refused in one line with these words."""
    with pytest.raises(error) as refusal:
        yield
    message = str(refusal.value)
    assert all(word in message for word in words), message
    assert "\n" not in message

"""Array types, validated inputs, chunked passes and reproducible sums.

Everything that a caller hands over passes `as_vector` exactly once; behind it, code may rely on float64
vectors of length n. A scalar stays a scalar: it becomes a read-only view of stride 0, so that a default
importance of a hundred million sources costs eight bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shortened

Array: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
Formula: TypeAlias = Callable[..., Array]
Index: TypeAlias = slice | npt.NDArray[Any]
Scalar = TypeVar("Scalar", bound=np.generic)

# Magnitudes that are accepted: products of three such numbers and one square stay inside float64.
SMALLEST, LARGEST = 1e-100, 1e100
_NO_NUMBERS = {"M": "dates", "m": "durations", "c": "complex numbers"}
# Sources of a chunk in compiled loops: five columns of it are 320 KiB.
CACHED = 8192
# Relative: demand above a limit by less is the limit but for the order in which it was added. Added one after
# the other, 512 equal terms are off by this at worst; longer sums are added in pieces of no more.
ROUNDED = 64 * float(np.finfo(np.float64).eps)
# DLPack's kinds of devices whose memory is CUDA's: its own, and managed.
CUDA_KINDS = (2, 13)
# So many terms are added one after the other.
IN_TURN = 512
# So many terms of rates that are written are added one after the other: equal ones lose 4e-15 at worst.
PIECE = 64
# Labels have a fixed width where that takes at most so many times the memory of their text, or so many bytes.
WIDE, LITTLE = 4, 2**24
# Sources of a chunk, 128 KiB of float64: the temporaries of a pass stay in the second-level cache.
CHUNK = 16_384


def as_vector(value: npt.ArrayLike, n: int, what: str) -> Array:
    """Return `value` as a read-only float64 vector of length n.

    - `value` scalar or (n,): Numbers. A float64 array is viewed, not copied; a scalar is broadcast without
      memory.
    - `n`: The length asked for.
    - `what`: The name used in messages.
    - raises SourceDataError if the values are not numbers or the shape is neither () nor (n,).
    """
    # What has nothing to be refused is most of what is given: the checks take several times as long.
    if type(value) is float:
        return repeated(value, n)
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n,):
        return read_only(value)
    if is_on_device(value):  # NumPy would copy what some libraries have there, and say nothing
        raise SourceDataError(
            f"{what} is on a CUDA device. Give it to fo.cuda.DeviceProblem, or copy it to the host."
        )
    try:
        array = np.asarray(value)
        kind, masked = array.dtype.kind, np.ma.is_masked(value)
        array = array if kind in _NO_NUMBERS else np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SourceDataError(f"{what} must be numbers, got {_describe(value)}. Pass floats.") from None
    if masked or kind in _NO_NUMBERS:  # NumPy would pass what is behind the mask, and dates as numbers
        found = "masked entries" if masked else _NO_NUMBERS[kind]
        raise SourceDataError(f"{what} must be numbers, and has {found}. Pass floats.")
    if array.ndim == 0:
        return np.broadcast_to(array.copy(), (n,))  # a copy, or a later change of the caller's would show
    if array.shape != (n,):
        raise SourceDataError(
            f"{what} has shape {array.shape} but there are {n} sources. Pass a scalar or one each."
        )
    return read_only(array)


@lru_cache(maxsize=256, typed=True)
def repeated(number: float, n: int) -> npt.NDArray[Any]:
    """Return a shared read-only vector of one number, without memory.

    Zero has no sign: to what is shared −0 and 0 are one.
    """
    one = np.array(number if number else type(number)())
    one.flags.writeable = False
    return np.broadcast_to(one, (n,))


def is_on_device(value: object) -> bool:
    """Return whether an array lives on a CUDA device.

    Examples
    --------
    >>> is_on_device(np.ones(3))
    False
    """
    if hasattr(value, "__cuda_array_interface__"):
        return True
    where = getattr(value, "__dlpack_device__", None)
    return callable(where) and where()[0] in CUDA_KINDS


def as_number(value: object, what: str, remedy: str) -> float:
    """Return a single number; raise SourceDataError otherwise.

    - `what`: The name used in messages.
    - `remedy`: What to do, as a sentence.

    Examples
    --------
    >>> as_number("7d", "horizon", "Pass a number of days.")
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: horizon is '7d', not a number. Pass a number of days.
    """
    if isinstance(value, float):
        return float(value)
    try:
        one = np.ndim(value) == 0  # type: ignore[arg-type] # NumPy takes an array of one number for it too
        number = math.nan if value is np.ma.masked else float(value if one else "")  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise SourceDataError(f"{what} is {_describe(value)}, not a number. {remedy}") from None
    return number


def as_positive(value: object, what: str, remedy: str, *, zero: bool = False) -> float:
    """Return a positive number, or 0 where that counts, or raise."""
    number = as_number(value, what, remedy)
    if not (SMALLEST <= number <= LARGEST or (zero and number == 0)):
        raise SourceDataError(f"{what} is {number}. {remedy}")
    return number


def as_numbers(value: npt.ArrayLike, what: str) -> Array:
    """Return numbers of any shape as float64; raise SourceDataError otherwise.

    Examples
    --------
    >>> as_numbers(["x"], "recall")
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: recall must be numbers, got ['x']. Pass floats.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in _NO_NUMBERS and not np.ma.is_masked(value):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise SourceDataError(f"{what} must be numbers, got {_describe(value)}. Pass floats.")


def as_whole(value: object, what: str, least: int, most: int) -> int:
    """Return a whole number within bounds; raise SourceDataError otherwise.

    Examples
    --------
    >>> as_whole(1e300, "draws", 1, 1000)
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: draws is 1e+300. Pass a whole number from 1 to 1000.
    """
    whole = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not least <= value <= most:  # type: ignore[operator]
        raise SourceDataError(f"{what} is {_describe(value)}. Pass a whole number from {least} to {most}.")
    return int(value)  # type: ignore[call-overload, no-any-return]


def as_column(value: npt.ArrayLike, n: int, what: str, *, narrow: bool) -> npt.NDArray[Any]:
    """Return `as_vector`, or a float32 array itself where `narrow`."""
    if narrow and isinstance(value, np.ndarray) and value.dtype == np.float32 and value.shape == (n,):
        return read_only(value)
    return as_vector(value, n, what)


def as_float64(column: npt.NDArray[Any]) -> Array:
    """Return a column in float64; itself if it is.

    Examples
    --------
    >>> as_float64(np.array([0.5], dtype=np.float32)).dtype
    dtype('float64')
    """
    return column if column.dtype == np.float64 else read_only(column.astype(np.float64))


def shape_of(value: object, what: str) -> tuple[int, ...]:
    """Return the shape of an array_like; raise for ragged rows.

    Examples
    --------
    >>> shape_of([1.0, 2.0], "rates")
    (2,)
    """
    try:
        shape = (as_objects(value) if is_listed_text(value) else np.asarray(value)).shape
    except ValueError:
        raise SourceDataError(f"{what} has rows of different lengths. Pass one entry each.") from None
    return shape


def label_array(labels: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - any array_like
    """Return labels as an array of about their text's memory.

    An array stays what it is. Text has a fixed width; where a few labels are much longer than most, and in
    `labels_of`, labels are objects, each held once.

    Examples
    --------
    >>> label_array(["a", "bc"]).dtype, label_array(["a"] * 20_000 + ["b" * 10_000]).dtype
    (dtype('<U2'), dtype('O'))
    """
    if is_listed_text(labels) and all(isinstance(each, str) for each in labels):
        sizes = [len(each) for each in labels]
        fixed = max(sizes) * len(sizes)
        if 4 * fixed > LITTLE and fixed > WIDE * sum(sizes):
            return as_objects(labels)
    return np.asarray(labels)


def common_length(arguments: dict[str, npt.ArrayLike | None]) -> int:
    """Return the common length of the array arguments.

    Scalars have none.
    """
    lengths: dict[str, int] = {}
    for key, value in arguments.items():
        if value is None or type(value) in (float, bool, int):
            continue
        try:
            shape = as_objects(value).shape if is_listed_text(value) else np.shape(value)
        except ValueError:
            raise SourceDataError(f"{key} has entries of different lengths. Give one per source.") from None
        if shape:
            lengths[key] = int(shape[0])
    if not lengths:
        return 1
    key, n = max(lengths.items(), key=lambda item: item[1])
    if n == 0:
        raise SourceDataError("there are no sources (length 0). Pass at least one.")
    for other, length in lengths.items():
        if length != n:
            raise SourceDataError(
                f"{other} has length {length} but {key} has {n}. Give one entry per source."
            )
    return n


def own_columns(
    given: Mapping[str, npt.ArrayLike] | None, n: int, taken: Collection[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return further columns by name, read-only, shape (n,): finite numbers or text.

    Examples
    --------
    >>> own_columns({"size": [1, 2], "kind": "page"}, 2, ())
    {'size': array([1., 2.]), 'kind': array(['page', 'page'], dtype='<U4')}
    """
    if not isinstance(given or {}, Mapping):
        raise SourceDataError(f"columns is {_describe(given)}. Pass a mapping such as {{'size': sizes}}.")
    found = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not name or name in taken:
            raise SourceDataError(
                f"columns has {_describe(name)}, which is no name that is free. Rename it, or pass it as the "
                "argument of that name."
            )
        column = label_array(value) if is_listed_text(value) or isinstance(value, str) else np.asarray(value)
        if column.dtype.kind not in "USO":
            column = as_vector(value, n, f"column {name!r}")
            if not all_finite(once(column)):
                raise SourceDataError(f"column {name!r} has entries that are not finite. Correct them.")
        elif column.dtype.kind == "O" and not all(isinstance(each, str) for each in column.ravel().tolist()):
            raise SourceDataError(f"column {name!r} has entries of several kinds. Pass numbers, or text.")
        elif column.shape not in ((), (n,)):
            raise SourceDataError(
                f"column {name!r} has shape {column.shape} but there are {n} sources. Pass one entry each."
            )
        found[name] = read_only(column if column.ndim else np.broadcast_to(column, (n,)))
    return found


def is_listed_text(labels: object) -> bool:
    """Return whether labels are a list that begins with text."""
    return isinstance(labels, list | tuple) and len(labels) > 0 and isinstance(labels[0], str)


def as_objects(labels: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - any array_like
    """Return an array of the very objects that a list has."""
    objects: npt.NDArray[Any] = np.asarray(labels, dtype=object)
    return objects


def require_unique(names: npt.NDArray[Any] | None) -> None:
    """Raise SourceDataError if a name, which results match, occurs twice."""
    # Names of a log are sorted: no two that stand side by side are equal then, and no others.
    if names is None:
        return
    alike = names.dtype.kind in "iuU" or all(isinstance(name, str) for name in names.tolist())
    if alike and bool(np.all(names[1:] > names[:-1])):
        return
    seen: set[object] = set()
    twice: list[str] = []
    for name in names.tolist():
        if isinstance(name, list | dict | set | np.ndarray):
            raise SourceDataError(f"a name is {shortened(repr(name))}. Names are text or integers.")
        if name in seen:
            twice.append(repr(name))
        seen.add(name)
    if twice:
        raise SourceDataError(f"a name occurs more than once: {list_offenders(twice)}. Names must be unique.")


def are_text(labels: npt.NDArray[Any]) -> bool:
    """Return whether sorted labels of sources are text, not integers."""
    return labels.dtype.kind not in "iu"


def labels_of(labels: npt.NDArray[Any], codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return each row's label; text is held once, whatever its length.

    Examples
    --------
    >>> labels_of(np.array(["a", "b"]), np.array([1, 0, 1])).tolist()
    ['b', 'a', 'b']
    """
    once = labels.astype(object) if labels.dtype.kind == "U" else labels
    rows: npt.NDArray[Any] = once[codes]
    return rows


def read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return a read-only view; the caller's own array stays writable."""
    view = array.view()
    view.setflags(write=False)
    return view


def is_scalar(array: npt.NDArray[Any]) -> bool:
    """Return whether a vector is one number of stride 0."""
    return array.strides == (0,)


def once(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return a column, or of one number for all sources that number."""
    return column[:1] if is_scalar(column) else column


def extremes(column: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the least and the largest entry; NaN where an entry is."""
    if is_scalar(column):
        only = float(column[0])
        return only, only
    return float(np.minimum.reduce(column)), float(np.maximum.reduce(column))


def chunks(n: int, size: int = CHUNK) -> Iterator[slice]:
    """Yield slices that cover 0..n in order.

    Examples
    --------
    >>> list(chunks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def all_finite(array: Array) -> bool:
    """Return whether no entry is NaN or infinite."""
    return all(bool(np.all(np.isfinite(array[part]))) for part in chunks(len(array)))


def total(array: Array) -> float:
    """Sum a vector with the same bits on every run."""
    with np.errstate(over="ignore"):  # a sum beyond all floats is inf
        return exact_sum(float(np.sum(array[part], dtype=np.float64)) for part in chunks(len(array)))


def sum_of_one_sign(values: Array) -> float:
    """Sum numbers of one sign, right to an ulp in any order.

    Split at the last bit of the sum, heads are added without rounding, and that of tails does not matter.
    """
    with np.errstate(all="ignore"):
        split = np.ldexp(1.0, math.frexp(float(np.sum(values)))[1] + 1)
        heads = (split + values) - split
        found = float(np.sum(heads)) + float(np.sum(values - heads))
    return found if math.isfinite(found) else float(np.sum(values))


def median(values: Array) -> float:
    """Return the median of numbers, none of them NaN.

    NumPy's own imports masked arrays, which every first solve would wait for.

    Examples
    --------
    >>> median(np.array([3.0, 1.0, 2.0])), median(np.array([4.0, 1.0]))
    (2.0, 2.5)
    """
    k = len(values) // 2
    least = np.partition(values, (k - 1, k) if k else 0)
    return float(least[k] if len(values) % 2 else np.mean(least[k - 1 : k + 1]))


def exact_sum(parts: Iterable[float]) -> float:
    """Sum partial sums, exactly rounded, infinities as IEEE arithmetic says."""
    values = parts.tolist() if isinstance(parts, np.ndarray) else list(parts)
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)


def _describe(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

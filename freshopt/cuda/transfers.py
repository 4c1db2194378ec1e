"""Copies between the host's memory and the device's.

The driver copies what the operating system may move by way of a buffer of its own, at a fifth of the bus's
speed. A large array is therefore held in place while it is copied, part by part: one part is held or let go
while another is on its way. Memory that cannot be held, as that of a file opened to be read, is copied the
slow way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.cuda.device import DeviceArray, empty

# Bytes of a part, which are pages of any size, and how many parts are at work.
PART, AT_WORK = 64 * 2**20, 4
# Bytes of the smallest page: new memory is there once one byte of each page is written.
PAGE = 4096


def uploaded(array: npt.NDArray[Any]) -> DeviceArray:
    """Return a copy of an array on the device."""
    array = np.ascontiguousarray(array)
    there = empty(array.shape, array.dtype)
    if array.ndim != 1 or not array.flags.writeable:
        there.copy_to_device(array)
        return there

    def copy(begin: int, end: int, stream: object) -> None:
        there[begin:end].copy_to_device(array[begin:end], stream=stream)

    _in_parts(array, copy)
    return there


def on_host(array: DeviceArray) -> npt.NDArray[Any]:
    """Return a copy of a device array on the host."""
    here: npt.NDArray[Any] = np.empty(array.shape, array.dtype)
    if array.ndim != 1:
        array.copy_to_host(here)
        return here
    pages = here.view(np.uint8)

    def copy(begin: int, end: int, stream: object) -> None:
        array[begin:end].copy_to_host(here[begin:end], stream=stream)

    def touch(begin: int, end: int) -> None:
        pages[begin * here.itemsize : end * here.itemsize : PAGE] = 0

    _in_parts(here, copy, touch)
    return here


def _in_parts(
    array: npt.NDArray[Any],
    copy: Callable[[int, int, object], None],
    touch: Callable[[int, int], None] | None = None,
) -> None:
    """Copy an array of the host, whole if it is small."""
    parts = parts_of(array.ctypes.data, array.itemsize, len(array), PART)
    if len(parts) == 1:
        copy(0, len(array), 0)
        return
    from numba import cuda
    from numba.cuda.cudadrv.driver import CudaAPIError

    def part(ends: tuple[int, int]) -> None:
        begin, end = ends
        if touch is not None:
            touch(begin, end)
        try:
            held = cuda.pinned(array[begin:end])
            with held:
                stream = cuda.stream()
                copy(begin, end, stream)
                stream.synchronize()  # type: ignore[no-untyped-call]
        except CudaAPIError:
            copy(begin, end, 0)

    with ThreadPoolExecutor(AT_WORK) as workers:
        for _ in workers.map(part, parts):
            pass


def parts_of(address: int, itemsize: int, n: int, size: int) -> list[tuple[int, int]]:
    """Return the ends of an array's parts.

    They are at addresses that are multiples of a size, so that no page is in two.

    Examples
    --------
    >>> parts_of(address=16, itemsize=8, n=20, size=64)
    [(0, 6), (6, 14), (14, 20)]
    """
    first = -address % size // itemsize
    ends = [0, *range(first or size // itemsize, n, size // itemsize), n]
    return list(itertools.pairwise(ends))

"""The device: whether there is one, and memory on it.

Nothing here imports numba.cuda before it is needed.
"""

from __future__ import annotations

import importlib.util
import os
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SolverRefusedError, SourceDataError

# An array on the device: numba's, with ``__cuda_array_interface__``.
DeviceArray: TypeAlias = Any
# DLPack's number of CUDA's default stream, on which all kernels run.
DEFAULT_STREAM = 1


def why_no_device() -> str | None:
    """Return why nothing can run on a CUDA device here, or None."""
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        return None
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: pip install 'freshopt[cuda]'"
    from numba import cuda

    if cuda.is_available():  # type: ignore[no-untyped-call]
        return None
    return (
        "there is no CUDA device, or no driver for it: install NVIDIA's driver, and see that nvidia-smi runs"
    )


def loops() -> Any:  # noqa: ANN401 - a module as a module
    """Return `freshopt.cuda.kernel_loops`, imported now."""
    import freshopt.cuda.kernel_loops as found  # noqa: PLC0415 - numba.cuda loads only if needed

    return found


def require_device() -> None:
    """Raise SolverRefusedError where there is no device."""
    reason = why_no_device()
    if reason is not None:
        raise SolverRefusedError(f"no CUDA device can be used: {reason}.")


def adopted(value: Any, what: str) -> DeviceArray:  # noqa: ANN401 - any library's array
    """Return an array on the device as numba's, without a copy.

    - `value`: With ``__cuda_array_interface__``, or with ``__dlpack__`` on a CUDA device.
    - `what`: The name used in messages.
    """
    from numba import cuda

    shown = value if hasattr(value, "__cuda_array_interface__") else _from_dlpack(value)
    description = dict(shown.__cuda_array_interface__)
    kind, shape = np.dtype(description["typestr"]), tuple(description["shape"])
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)) or len(shape) != 1:
        raise SourceDataError(
            f"{what} on the device is {kind} of shape {shape}. Pass float32 or float64, one entry per source."
        )
    if description.get("strides") not in (None, (kind.itemsize,)):
        raise SourceDataError(f"{what} on the device is not contiguous. Pass a contiguous copy.")
    if shape[0] == 0:
        raise SourceDataError("there are no sources (length 0). Pass at least one.")
    if loops().SIMULATED:  # its memory is the host's
        return cuda.to_device(np.asarray(SimpleNamespace(__array_interface__=description)))
    return cuda.as_cuda_array(shown)  # type: ignore[no-untyped-call]


def _from_dlpack(value: Any) -> Any:  # noqa: ANN401 - any library's array
    """Return an array that speaks DLPack alone through the other protocol."""
    from cuda.core.utils import StridedMemoryView  # noqa: PLC0415 - of the extra, which numba-cuda needs

    view = StridedMemoryView.from_dlpack(value, stream_ptr=DEFAULT_STREAM)
    kind = np.dtype(view.dtype)
    strides = None if view.strides is None else tuple(kind.itemsize * step for step in view.strides)
    description = {
        "shape": tuple(view.shape),
        "typestr": kind.str,
        "data": (view.ptr, view.readonly),
        "strides": strides,
        "version": 3,
    }
    # The view keeps the producer's memory alive.
    return SimpleNamespace(__cuda_array_interface__=description, view=view)


def empty(shape: int | tuple[int, ...], kind: npt.DTypeLike) -> DeviceArray:
    """Return memory on the device."""
    from numba import cuda

    return cuda.device_array(shape, np.dtype(kind))

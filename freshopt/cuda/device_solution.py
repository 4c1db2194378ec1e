"""`DeviceSolution`: rates on the device, price and certificate on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freshopt.certificates.certificate import Certificate
from freshopt.certificates.solution import Status, closing_lines
from freshopt.cuda.device import DeviceArray
from freshopt.cuda.transfers import on_host
from freshopt.numerics.arrays import Array

if TYPE_CHECKING:
    from freshopt.cuda.device_problem import DeviceProblem


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeviceSolution:
    """Primal rates on a device, with their dual price and certificate.

    Attributes
    ----------
    problem : DeviceProblem
    status : Status
    rates : device array, shape (n,), or None
        With ``__cuda_array_interface__``, which ``cupy.asarray`` or ``torch.as_tensor`` view without a copy.
    value, price : float
        As those of `Solution`.
    certificate : Certificate or None
        Its `rates` are those on the device; None with ``certify=False``, or where there are no rates.
    iterations : int
        Passes over all sources, but for the proof.
    seconds : float
    solver : object
    note : str
    conflict : None
    """

    problem: DeviceProblem
    status: Status
    rates: DeviceArray | None
    value: float
    price: float
    certificate: Certificate | None
    iterations: int
    seconds: float
    solver: object
    note: str = ""
    conflict: None = None

    def rates_on_host(self) -> Array:
        """Return a copy of the rates on the host, shape (n,)."""
        return on_host(self.rates)

    def __repr__(self) -> str:
        rows = [
            ("solution", f"{self.status.value}, by {self.solver}"),
            ("problem", repr(self.problem)),
            ("value", f"{self.value:.9g} ({self.problem.objective.sense}d)"),
            ("price", f"{self.price:.6g} per refresh/{self.problem.time_unit}"),
        ]
        rows += closing_lines(self.status, self.certificate, self.note, self.iterations, self.seconds)
        return "\n".join(f"{key:>8}: {value}" for key, value in rows)

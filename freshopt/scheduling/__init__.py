"""Refresh times from refresh rates."""

from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.schedule import Schedule

__all__ = ["Periodic", "PoissonArrivals", "Schedule"]

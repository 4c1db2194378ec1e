"""When in the week sources change; what good hours save."""

from freshopt.weekly.peak_hours import peak_hours
from freshopt.weekly.profile import WeeklyProfile

__all__ = ["WeeklyProfile", "peak_hours"]

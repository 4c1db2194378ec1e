"""When in the week sources change; what good hours save."""

from freshopt.weekly.profile import WeeklyProfile

__all__ = ["WeeklyProfile"]

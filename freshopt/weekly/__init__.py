"""When within the week sources change, and what crawling at good hours saves."""

from freshopt.weekly.profile import WeeklyProfile

__all__ = ["WeeklyProfile"]

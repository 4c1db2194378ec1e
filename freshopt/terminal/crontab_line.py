"""Line of a crontab that plans again after each period.

cron knows no intervals: a period must divide an hour or a day, or be a day or a week. The command is written
out as it was given, from the folder in which it was given, by this very interpreter: cron knows no other.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from freshopt.errors import SourceDataError
from freshopt.units import parse_duration

# Minutes of an hour, and hours of a day, that whole numbers of periods fill.
_MINUTES = tuple(m for m in range(1, 60) if 60 % m == 0)
_HOURS = tuple(h for h in range(1, 24) if 24 % h == 0)


def cron_fields(period: str) -> str:
    """Return the time fields of a period.

    Examples
    --------
    >>> cron_fields("7d"), cron_fields("1d"), cron_fields("6h"), cron_fields("15min")
    ('0 0 * * 1', '0 0 * * *', '0 */6 * * *', '*/15 * * * *')
    """
    try:
        minutes = parse_duration(period, "minute")
    except SourceDataError as error:
        raise SourceDataError(f"--every: {error}") from None
    whole = round(minutes)
    if abs(minutes - whole) < 1e-9 * max(minutes, 1.0):
        if whole in _MINUTES:
            return f"*/{whole} * * * *" if whole > 1 else "* * * * *"
        if whole % 60 == 0 and whole // 60 in _HOURS:
            return f"0 */{whole // 60} * * *" if whole > 60 else "0 * * * *"
        if whole == 1440:
            return "0 0 * * *"
        if whole == 7 * 1440:
            return "0 0 * * 1"
    raise SourceDataError(
        f"--every {period}: cron does not repeat that. Choose 7d, 1d, or hours or minutes that divide a day "
        "or an hour, such as 6h."
    )


def crontab_line(period: str, command: str, folder: Path | None = None) -> str:
    r"""Return the line that runs a freshopt command after each period.

    Examples
    --------
    >>> line = crontab_line("1d", "freshopt plan log.csv --out 100%", Path("/srv"))
    >>> line.replace(sys.executable, "python")
    '0 0 * * * cd /srv && python -m freshopt plan log.csv --out 100\\%'
    """
    where = shlex.quote(str(Path(os.getcwd()) if folder is None else folder))
    program = shlex.join([sys.executable, "-m", "freshopt"])
    rest = command.removeprefix("freshopt")
    # cron takes a percent sign for the end of the line.
    job = f"cd {where} && {program}{rest}".replace("%", "\\%")
    return f"{cron_fields(period)} {job}"

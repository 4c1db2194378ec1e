"""`export`: rates as an atomic file or folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from freshopt.errors import expect
from freshopt.exporters.whole_intervals import Exported, IntervalFormat
from freshopt.io.atomic_output import complete_file, complete_folder
from freshopt.scheduling.rate_table import read_rates

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution


def export(
    rates: Solution | Mapping[Any, float] | Any,  # noqa: ANN401 - any dataframe library's frame
    target: IntervalFormat,
    path: str | os.PathLike[str],
    *,
    time_unit: str | None = None,
    overwrite: bool = False,
) -> Exported:
    r"""Write each source's interval for a crawler.

    Parameters
    ----------
    rates : Solution, mapping or dataframe
        As `fo.schedule` takes them.
    target : IntervalFormat
        For example ``Nutch()``.
    path : path
        A file; a folder if the format has several files.
    time_unit : str, optional
        The unit of the rates. A solution brings its own; otherwise the default is "day".
    overwrite : bool
        Whether an earlier result may be replaced.

    Returns
    -------
    Exported
        With the total rate that comes of intervals in whole seconds or minutes.

    Raises
    ------
    SourceDataError
        If a source has a name or an interval that the format cannot hold, or waits for signals; or the path
        cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from freshopt.exporters import StormCrawler
    >>> path = Path(tempfile.mkdtemp()) / "seeds.txt"
    >>> done = export({"https://example.org/": 7.0}, StormCrawler(), path)
    >>> path.read_text(), round(done.realised, 3)
    ('https://example.org/\tscheduler.delay.mins=206\n', 6.99)
    """
    if isinstance(target, type) or not hasattr(target, "files"):
        kind = type(target).__name__
        raise TypeError(f"target is of type {kind}. Pass an instance, such as freshopt.exporters.Crontab().")
    expect(overwrite, bool, "overwrite", "Pass True or False")
    table = read_rates(rates, time_unit)
    if not target.files:
        with complete_file(path, overwrite) as file:
            return target.write(table, file)
    with complete_folder(path, overwrite, marker=target.files[0], files=target.files) as folder:
        return target.write(table, folder)

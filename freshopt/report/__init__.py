"""Self-contained web page of a plan's folder.

`write_report` makes the page of a folder that `freshopt plan` wrote, from its files alone. From the bottom
up: `markup` escapes; `axis` and `charts` hold pictures as data and draw them; `context`, `plan_tables`
and `source_sample` read; functions of what was read return each a `Finding`; and ``templates`` tell them on a
page of one file (`document`, also of ``freshopt check``). Nothing is solved here: what needs the problem,
`freshopt.planning` has written before.
"""

from freshopt.report.page import write_report as write_report

__all__ = ["write_report"]

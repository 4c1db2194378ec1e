"""Self-contained web page of a plan's folder.

`write_report` makes the page of a folder that `freshopt plan` wrote, from its files alone. Below it, from the
bottom up: `markup` escapes by construction, `document` is the frame and the stylesheet (also of the page of
``freshopt check``), `axis` and `chart` draw, `summary_facts`, `plan_tables` and `source_sample` read, and a
function makes each section. Nothing is solved here: what needs the problem, `freshopt.planning` has written
before.
"""

from freshopt.report.page import write_report as write_report

__all__ = ["write_report"]

"""A plan's folder as one web page that needs nothing else.

`write_report` makes the page of a folder that `freshopt plan` wrote, from its files alone. Below it, from the
bottom up: `markup` escapes by construction, `document` is the frame and the stylesheet (also of the page of
``freshopt check``), `scale` and `chart` draw, `facts`, `folder` and `survey` read, and a function makes each
section. `findings` is what a plan works out for its page while the problem is at hand.
"""

from freshopt.report.page import write_report as write_report

__all__ = ["write_report"]

"""What `freshopt check` found, as one HTML page that needs nothing else."""

from __future__ import annotations

import html

from freshopt import __version__
from freshopt.cli.digest import HEAD, Checked, Digest

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; background: #fff; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .4rem 0; }
caption { color: #59636e; padding: .2rem 0; white-space: nowrap; }
th, td { padding: .15rem .8rem .15rem 0; border-bottom: 1px solid #d1d9e0;
  font-variant-numeric: tabular-nums; }
th { font-weight: 600; text-align: left; }
td.number, th.number { text-align: right; }
summary { cursor: pointer; padding: .15rem 0; }
details > div { margin: .2rem 0 1rem 1.2rem; overflow-x: auto; }
.outcome { font-size: 1.1rem; padding: .6rem 1rem; border-left: .3rem solid; }
.good { border-color: #1a7f37; background: #f0f9f2; } .bad { border-color: #c62828; background: #fdf1f0; }
.short { color: #9a6700; } .failed { color: #c62828; } .faint { color: #59636e; }
""".strip()


def page(digest: Digest, *, about: list[str]) -> str:
    """Return the page: outcome, solvers, what was left out, and a section per problem.

    Parameters
    ----------
    digest : Digest
    about : list of str
        What was run, a paragraph each.
    """
    mark = "good" if digest.passed() else "bad"
    skipped = "".join(f"<li>{html.escape(line)}</li>" for line in digest.skips())
    idle = html.escape(", ".join(digest.idle()))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>freshopt check</title><style>{STYLE}</style></head><body>",
            "<h1>freshopt check</h1>",
            f'<p class="outcome {mark}">{html.escape(digest.outcome())}</p>',
            *(f"<p>{html.escape(line)}</p>" for line in about),
            "<h2>Solvers</h2>",
            _table(digest),
            f'<p class="faint">Applied to none of these problems: {idle}.</p>' if idle else "",
            "<h2>Problems</h2>",
            *(_section(checked) for checked in digest.checked),
            f"<h2>Problems that do not exist</h2><ul>{skipped}</ul>" if skipped else "",
            f'<p class="faint">freshopt {__version__}. A certified gap is relative to the cost plus what the '
            "bandwidth is worth; it is computed from the rates alone, whoever found them.</p>",
            "</body></html>",
            "",
        ]
    )


def _table(digest: Digest) -> str:
    """Return the rows per solver."""
    kinds = ["", *["number"] * 5, ""]
    head = "".join(f'<th class="{kind}">{name}</th>' for kind, name in zip(kinds, HEAD, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{html.escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in digest.solvers()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _section(checked: Checked) -> str:
    """Return a problem's table, open where somebody falls short."""
    short, proved = checked.agreement.short(), checked.agreement.proved
    mark = "failed" if not proved else "short" if short else "faint"
    text = html.escape(checked.cells()[-1])
    head = f'{html.escape(checked.label)} <span class="{mark}">({text})</span>'
    notes = "".join(
        f'<div class="faint">{html.escape(checked.agreement.names[k])}: '
        f"{html.escape(checked.agreement.solutions[k].note)}</div>"
        for k in short
    )
    table = checked.agreement._repr_html_()
    return f"<details{' open' if short else ''}><summary>{head}</summary><div>{table}{notes}</div></details>"

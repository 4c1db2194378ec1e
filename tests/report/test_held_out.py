"""Notes below a table of held-out costs."""

from __future__ import annotations

from freshopt.report.held_out import PolicyRow, notes


def test_notes_say_when_a_change_counts_from() -> None:
    rows = [PolicyRow(name, 1.0, 2.0, 0.1, 0.9) for name in ("plan", "current")]
    assert notes(rows)[-1].startswith("A change counts from the middle of the crawl interval")
    assert notes(rows, dated=True)[-1].startswith("A change counts from its date, or from the middle")
    assert notes(rows[:1], dated=True) == []

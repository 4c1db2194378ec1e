"""Notes below a table of held-out costs."""

from __future__ import annotations

from freshopt.report.held_out import PolicyRow, notes


def test_notes_say_what_is_measured_and_how_much_of_it_crawls_hid() -> None:
    def rows(hidden: float | None) -> list[PolicyRow]:
        return [
            PolicyRow("plan", 1.0, 2.0, 0.1, 0.9, hidden=hidden),
            PolicyRow("current", 1.0, 2.0, 0.1, 0.9),
        ]

    some, most = (notes(rows(hidden))[-1] for hidden in (0.22, 0.6))
    assert some.startswith("Costs are those of all changes.")
    assert "22 % of the plan's cost; half of it counts as a standard error." in some
    assert "60 % of the plan's cost, too much to decide between policies." in most
    # All changes are known, or an earlier version did not tell.
    assert notes(rows(0.0)) == notes(rows(None)) == []

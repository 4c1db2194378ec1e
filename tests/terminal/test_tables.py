"""Tables that cannot be used end in one line that names file, row and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ground_truth.command_lines import PLAN, SCHEDULE, SOLVE, refuse


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,importance\na,1\nb,1\n", ("weights.csv has no importance for 'c'", "Add a row")),
        ("source,importance\na,1\nb,-2\nc,1\n", ("weights.csv", "'b': -2", "Correct")),
        ("source,importance\na,1\nb,nan\nc,1\n", ("weights.csv", "'b': nan", "Correct")),
        ("source,importance\na,1\nb,inf\nc,1\n", ("importance out of range for 'b': inf", "Correct")),
        ("source,importance\na,1\nb,1\nc,1\nb,2\n", ("weights.csv names 'b' more than once", "Keep one")),
        (
            "source,importance\na,1\nb,high\nc,1\n",
            ("importance in weights.csv is 'high'", "line 3", "a number"),
        ),
        ("source,importance\na,1\nb,\nc,1\n", ("'importance' of weights.csv has 1 empty cell.", "Fill")),
        ("source,importance\na,1\n,1\nc,1\n", ("'source' of weights.csv has 1 empty cell.", "Fill")),
        ("source,weight\na,1\n", ("weights.csv has no column 'importance'", "source, weight", "Rename")),
        ("", ("weights.csv is empty", "column names")),
    ],
    ids=["lacking", "negative", "nan", "inf", "twice", "word", "empty", "no name", "no column", "no table"],
)
def test_importances(table: str, words: tuple[str, ...], folder: Path) -> None:
    Path("weights.csv").write_text(table)
    refuse(folder, ["plan", "log.csv", *PLAN, "--importance", "weights.csv"], words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,change_rate\na,1\nb,-1\n", ("bad.csv", "'b': -1", "Correct")),
        ("source,change_rate\na,1\nb,0\n", ("bad.csv", "'b': 0", "It must be > 0")),
        ("source,change_rate\na,1\nb,nan\n", ("bad.csv", "'b': nan", "Correct")),
        ("source,change_rate\na,1\nb,fast\n", ("bad.csv", "'fast' in row 2, line 3", "Write a number")),
        ("source,change_rate\na,1\nb,\n", ("bad.csv", "'change_rate' has 1 empty cell.", "Fill")),
        ("source,change_rate\na,1\na,2\n", ("bad.csv", "'a'", "unique")),
        ("source,change_rate,min_rate,max_rate\na,1,2,1\n", ("bad.csv", "exceeds max_rate for 'a'", "widen")),
        (
            "source,change_rate,importance\na,1,-1\n",
            ("bad.csv", "importance out of range for 'a'", "Correct"),
        ),
        (
            "source,change_rate,signalled\na,1,maybe\n",
            ("bad.csv", "'maybe' in row 1, line 2", "true or false"),
        ),
        ("source,change_rate,signalled\na,1,1\n", ("'a' is signalled", "signalled=False")),
        ("source,rate\na,1\n", ("bad.csv", "no column 'change_rate'", "Add it")),
        ("source,change_rate\n", ("bad.csv", "no sources", "Pass at least one")),
    ],
    ids=[
        *("negative", "zero", "nan", "word", "empty", "twice", "bounds"),
        *("importance", "flag", "signalled", "no column", "no rows"),
    ],
)
@pytest.mark.parametrize("command", ["solve", "check"])
def test_sources(command: str, table: str, words: tuple[str, ...], folder: Path) -> None:
    Path("bad.csv").write_text(table)
    options = (
        SOLVE
        if command == "solve"
        else ("--bandwidth", "2", "--objective", "harmonic", "--refresh", "periodic")
    )
    refuse(folder, [command, "bad.csv", *options], words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,rate\na,1\nb,-1\n", ("'b': -1", "Correct")),
        ("source,rate\na,1\nb,inf\n", ("'b': inf", "Correct")),
        ("source,rate\na,1\nb,often\n", ("rate in bad.csv is 'often' in row 2, line 3", "Write a number")),
        ("source,rate\na,1\nb,\n", ("'rate' has 1 empty cell.", "Fill")),
        ("source,rate\na,1\n,2\n", ("'source' has 1 empty", "Fill")),
        ("source,rate\na,1\na,1\n", ("more than one rate for 'a'", "one row per source")),
        ("source,change_rate\na,1\n", ("no column 'rate'", "Add or rename")),
        ("source,rate\n", ("there are no rates", "Pass at least one")),
        (
            "source,rate\na,1e12\n",
            ("1e+12 refreshes per day", "GiB until they are written", "Choose a horizon"),
        ),
    ],
    ids=["negative", "inf", "word", "empty", "no name", "twice", "no column", "no rows", "too many"],
)
def test_rates(table: str, words: tuple[str, ...], folder: Path) -> None:
    Path("bad.csv").write_text(table)
    refuse(folder, ["schedule", "bad.csv", *SCHEDULE], words)

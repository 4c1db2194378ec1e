"""Tables that cannot be used end in one line that names file, row and remedy."""

from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import freshopt as fo
from tests.ground_truth.command_lines import ESTIMATE, PLAN, SCHEDULE, SOLVE, Run, refuse
from tests.ground_truth.refusals import present


class Kind(NamedTuple):
    """A kind of table: the command that reads t.csv, its columns, good cells, and what else it has."""

    command: tuple[str, ...]
    key: str | None
    column: str
    rows: tuple[tuple[str, str], ...]
    numbers: bool = True
    amounts: bool = False
    complete: bool = False
    units: bool = False


OF_LOG = ("plan", "log.csv", *PLAN)
OF_SOURCES = ("solve", "sources.csv", *SOLVE)
PIPELINE = ("pipeline", *ESTIMATE, "--bandwidth", "9")
NUMBERS = (("a", "1"), ("b", "2"), ("c", "3"))
KINDS = {
    "importances": Kind(
        (*OF_LOG, "--importance", "t.csv"), "source", "importance", NUMBERS, amounts=True, complete=True
    ),
    "costs of changes": Kind(
        (*OF_LOG, "--source-columns", "t.csv"), "source", "changed_cost", NUMBERS, amounts=True, complete=True
    ),
    "hosts": Kind(
        (*OF_LOG, "--host-limits", "limits.csv", "--hosts", "t.csv"),
        "source",
        "host",
        (("a", "x"), ("b", "x"), ("c", "x")),
        numbers=False,
        complete=True,
    ),
    "births": Kind(
        (*OF_LOG, "--sources", "t.csv"),
        "source",
        "start",
        (("a", "0"), ("b", "0"), ("c", "0")),
        numbers=False,
    ),
    "host limits": Kind(
        ("solve", "hosted.csv", *SOLVE, "--host-limits", "t.csv"), "host", "limit", NUMBERS[:2], units=True
    ),
    "budget": Kind((*OF_SOURCES, "--budget", "kB=t.csv:9"), "source", "cost", NUMBERS[:2], complete=True),
    "nested limits": Kind(
        ("solve", "hosted.csv", *SOLVE, "--nested", "host", "--nested-limits", "t.csv"),
        "group",
        "at_most",
        (("x", "1"), ("y", "2")),
        amounts=True,
        units=True,
    ),
    "times": Kind(
        ("replay", "t.csv", "--sources", "sources.csv"),
        None,
        "time",
        NUMBERS[:2],
        amounts=True,
    ),
    "graph": Kind(
        (*PIPELINE, "t.csv", "--change-rates", "sources.csv"),
        None,
        "downstream",
        NUMBERS,
        numbers=False,
    ),
    "roots": Kind(
        (*PIPELINE, "edges.csv", "--change-rates", "t.csv"),
        "source",
        "change_rate",
        NUMBERS,
    ),
    "node importances": Kind(
        (*PIPELINE, "edges.csv", "--change-rates", "sources.csv", "--importance", "t.csv"),
        "source",
        "importance",
        NUMBERS,
        amounts=True,
    ),
    "node costs": Kind(
        (*PIPELINE, "edges.csv", "--change-rates", "sources.csv", "--cost", "t.csv"),
        "source",
        "refresh_cost",
        NUMBERS,
    ),
}


def faulty(kind: Kind, fault: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a table with a fault and what is said of it, None where this is none."""
    key, column = kind.key or ("upstream" if column_of_edges(kind) else "source"), kind.column
    head, rows = f"{key},{column}", [list(row) for row in kind.rows]
    where = "row 2, line 3 of t.csv"
    number = {"nan": "nan", "inf": "inf", "negative": "-2"}
    if fault == "no table":
        return "", ("t.csv is empty", "column names")
    if fault == "no column" and column != "changed_cost":  # without it the table is for something else
        head = f"{key},other"
        words: tuple[str, ...] = (
            f"t.csv has no column '{column}'; it has '{key}', 'other'",
            "add the columns",
        )
    elif fault == "no key":
        rows[1][0], words = "", (f"{key} is empty in {where}", "Fill it in")
    elif fault == "empty" and column == "limit":
        rows[1][1], words = "", (f"t.csv has no limit of '{rows[1][0]}'", "Fill it in")
    elif fault == "empty" and column not in ("at_most", "start"):
        rows[1][1], words = "", (f"{column} is empty in {where}", "Fill it in")
    elif fault == "twice" and kind.key:
        rows.append(rows[0])
        named = f"'{rows[0][0]}'" if key == "source" else f"{key} '{rows[0][0]}'"
        words = (f"t.csv names {named} more than once", "Keep one row each")
    elif kind.units and (fault == "word" or (fault in number and kind.amounts)):
        rows[1][1] = number.get(fault, "much")
        words = (f"{column} in {where}", rows[1][1], "Write a")
    elif fault == "word" and kind.numbers:
        rows[1][1], words = "much", (f"{column} is 'much' in {where}. Write a number, without a unit",)
    elif fault in number and kind.amounts:
        rows[1][1] = number[fault]
        named = f"'{rows[1][0]}'" if kind.key else where
        words = (f"{column} in t.csv is no finite number >= 0 for {named}: {number[fault]}", "Correct")
    elif fault == "lacking" and kind.complete:
        words = (f"t.csv has no {column} for '{rows.pop()[0]}'", "Add a row for each")
    else:
        return None
    return "\n".join([head, *map(",".join, rows)]) + "\n", words


def column_of_edges(kind: Kind) -> bool:
    return kind.column == "downstream"


FAULTS = ("no table", "no column", "no key", "empty", "twice", "word", "negative", "nan", "inf", "lacking")
CASES = [(name, fault) for name, kind in KINDS.items() for fault in FAULTS if faulty(kind, fault)]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_each_fault_of_each_kind_of_table(name: str, fault: str, folder: Path) -> None:
    found = present(faulty(KINDS[name], fault))
    text, words = found
    Path("t.csv").write_text(text)
    Path("limits.csv").write_text("host,limit\nx,1\n")
    Path("hosted.csv").write_text("source,change_rate,host\na,1,x\nb,2,y\n")
    Path("edges.csv").write_text("upstream,downstream\na,c\nb,c\n")
    refuse(folder, KINDS[name].command, words)


def test_tables_are_read_by_what_others_call_their_columns(run: Run, folder: Path) -> None:
    Path("t.csv").write_text("URL,Host Name,Change Rate,IMPORTANCE\na,x,1,2\nb,y,2,1\n")
    Path("weights.csv").write_text("Page URL,Weight\na,1\nb,2\nc,0\n")
    run("solve", "t.csv", *SOLVE)
    found = pl.read_csv("out.csv")
    assert found["source"].to_list() == ["a", "b"]
    run("plan", "log.csv", "--importance", "weights.csv", "--csv", *PLAN)
    rates = pl.read_csv("out/rates.csv")["rate"].to_list()
    assert [rate > 0.0 for rate in rates] == [True, True, False]
    Path("t.csv").write_text("URL,url,change_rate\na,x,1\n")
    refuse(folder, ["solve", "t.csv", *SOLVE, "--overwrite"], ("2 columns that may be the source",))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("host,limit\nx,6\ny,12\n", "t.csv has limits without a unit, such as 6: they are read per day"),
        ("host,limit\nx,6/day\ny,1/2h\n", ""),
        ("host,limit,time_unit\nx,0.25,hour\ny,0.5,hour\n", ""),
        ("Hostname,limit,min_interval\nx,,4h\ny,1/h,2h\n", ""),
    ],
)
def test_limits_of_hosts_have_units(table: str, told: str, run: Run) -> None:
    Path("t.csv").write_text(table)
    Path("s.csv").write_text("source,change_rate,host\na,9,x\nb,9,y\n")
    shown = run("solve", "s.csv", "--bandwidth", "99", "--out", "out.csv", "--host-limits", "t.csv")
    assert ("without a unit" in shown.output, told in shown.output) == (bool(told), True)
    assert pl.read_csv("out.csv")["rate"].to_list() == pytest.approx([6.0, 12.0])


def test_limits_without_a_unit_are_told_unless_quiet(run: Run, log: Path) -> None:
    hosts = {f"page/{k}": "x" for k in range(8)}
    Path("hosts.csv").write_text("source,host\n" + "".join(f"{name},x\n" for name in hosts))
    Path("t.csv").write_text("host,limit\nx,0.1\n")
    asked = ["plan", str(log), "--hosts", "hosts.csv", "--host-limits", "t.csv", *PLAN]
    assert "such as 0.1: they are read per day" in run(*asked).output
    bare = pl.read_parquet("out/rates.parquet")["rate"].to_list()
    for quietly in ("--quiet", "--json"):
        assert "without a unit" not in run(*asked, "--overwrite", quietly).output
    for limit in (0.1, "0.1/day"):  # as documented, a number in Python is per time unit
        made = fo.plan(fo.read_log(log), 1.0, 7.0, draws=0, hosts=hosts, host_limits={"x": limit})
        assert made.solution.rates.tolist() == bare


def test_rows_of_parquet_have_no_lines(folder: Path) -> None:
    pl.DataFrame({"source": ["a", "b"], "importance": [1.0, None]}).write_parquet("t.parquet")
    refuse(folder, [*OF_LOG, "--importance", "t.parquet"], ("importance is empty in row 2 of t.parquet",))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,change_rate\na,1\nb,-1\n", ("bad.csv", "'b': -1", "Correct")),
        ("source,change_rate\na,1\nb,0\n", ("bad.csv", "'b': 0", "It must be > 0")),
        ("source,change_rate\na,1\nb,nan\n", ("bad.csv", "'b': nan", "Correct")),
        ("source,change_rate\na,1\nb,fast\n", ("bad.csv", "'fast' in row 2, line 3", "Write a number")),
        ("source,change_rate\na,1\nb,\n", ("bad.csv", "change_rate is empty in row 1", "Fill")),
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
        ("source,rate\na,1\n", ("bad.csv", "no column 'change_rate'", "add the columns")),
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
    if words[0] == "'a' is signalled":  # a cost without a form for signals
        options = (*options, "--objective", "binary-cost")
    refuse(folder, [command, "bad.csv", *options], words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,rate\na,1\nb,-1\n", ("'b': -1", "Correct")),
        ("source,rate\na,1\nb,inf\n", ("'b': inf", "Correct")),
        ("source,rate\na,1\nb,often\n", ("rate is 'often' in row 2, line 3 of bad.csv", "Write a number")),
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

"""Commands on logs as people have them: other names of columns, hosts from URLs, access logs, progress."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result

from freshopt.cli import main
from tests.ground_truth.command_lines import crawl_log, fields, refuse, unwrapped

Run = Callable[..., Result]
JOB = ("--bandwidth", "6/day", "--horizon", "7d", "--draws", "0")
NAMES = ("--columns", "url=source,fetched_at=time,sha256=hash")


def with_urls() -> pl.DataFrame:
    """The generated log with URLs on two hosts."""
    url = pl.format("https://{}.example/{}", pl.col("source").str.slice(-1).replace("1", "0"), "source")
    return crawl_log().with_columns(url.alias("source"))


def as_people_have_it(frame: pl.DataFrame) -> pl.DataFrame:
    """Names of a crawler, and a hash of the content for each crawl in place of the verdict."""
    state = pl.col("changed").cast(pl.Int64).cum_sum().over("source", order_by="time")
    return frame.select(
        pl.col("source").alias("url"),
        pl.col("time").dt.to_string("iso:strict").alias("fetched_at"),
        pl.concat_str([pl.lit("sha-"), state.cast(pl.String)]).alias("sha256"),
    )


def test_a_crawlers_own_log_gives_the_same_plan(run: Run) -> None:
    with_urls().write_parquet("log.parquet")
    as_people_have_it(with_urls()).sample(fraction=1.0, shuffle=True, seed=3).write_ndjson("crawls.jsonl")
    run("plan", "log.parquet", *JOB, "--out", "plain")
    run("plan", "crawls.jsonl", *NAMES, *JOB, "--out", "own")
    for name in ("change_rates", "rates", "schedule"):
        assert Path("plain", f"{name}.parquet").read_bytes() == Path("own", f"{name}.parquet").read_bytes()
    estimated = run("estimate", "crawls.jsonl", *NAMES, "--out", "rates.csv").output
    assert "320 crawls of 8 sources" in unwrapped(estimated)
    assert "8 sources" in unwrapped(run("poisson-check", "crawls.jsonl", *NAMES).output)


@pytest.mark.parametrize("way", ["names", "two files", "a folder", "standard input"])
def test_a_log_is_planned_for_however_it_is_handed_over(way: str, run: Run) -> None:
    with_urls().write_parquet("log.parquet")
    run("plan", "log.parquet", *JOB, "--out", "plain")
    told = as_people_have_it(with_urls()).rename({"fetched_at": "Fetched At"})
    Path("logs").mkdir()
    told.head(100).write_csv("logs/1.csv", separator=";")
    told.tail(-100).write_ndjson("logs/2.jsonl")
    told.write_csv("all.csv", separator="\t")
    given = {"names": ["all.csv"], "two files": ["logs/2.jsonl", "logs/1.csv"], "a folder": ["logs"]}
    text = Path("all.csv").read_bytes() if way == "standard input" else None
    run("plan", *given.get(way, ["-"]), *JOB, "--out", "own", told=text)
    for name in ("change_rates", "rates", "schedule"):
        assert Path("plain", f"{name}.parquet").read_bytes() == Path("own", f"{name}.parquet").read_bytes()


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--columns", "url"), ("'url' is no pair of names", "url=source")),
        (("--columns", "uri=source"), ("no column 'uri'", "'url'")),
        (("--columns", "url=name"), ("'name' is no column of a log",)),
    ],
)
def test_wrong_names_are_refused(options: tuple[str, ...], words: tuple[str, ...]) -> None:
    as_people_have_it(with_urls()).write_csv("crawls.csv")
    refuse(Path(), ["plan", "crawls.csv", *options, *JOB, "--out", "plan"], words)
    refuse(
        Path(),
        ["plan", "--example", "debian-uploads", "--columns", "a=b", *JOB, "--out", "plan"],
        ("--columns",),
    )


def used(host: str) -> float:
    """The bandwidth of a host by the plan's table of rates."""
    rates = pl.read_parquet("plan/rates.parquet")
    return float(rates.filter(pl.col("source").str.contains(f"//{host}.example/"))["rate"].sum())


@pytest.mark.exhaustive
def test_hosts_come_from_urls_or_from_a_column(run: Run) -> None:
    frame = with_urls()
    frame.write_parquet("log.parquet")
    every = pl.DataFrame(
        {"host": [f"{k}.example" for k in (0, 2, 3, 4, 5, 6, 7)], "limit": [9.0] * 6 + [0.25]}
    )
    every.write_csv("limits.csv")
    run("plan", "log.parquet", *JOB, "--host-limits", "limits.csv", "--out", "plan")
    assert used("7") == pytest.approx(0.25, rel=1e-9)
    by_url = pl.read_parquet("plan/rates.parquet")
    hosted = frame.with_columns(pl.col("source").str.extract("//([^/]+)/").alias("server"))
    hosted.write_parquet("hosted.parquet")
    names = ("--columns", "server=host")
    run("plan", "hosted.parquet", *names, *JOB, "--host-limits", "limits.csv", "--out", "plan", "--overwrite")
    np.testing.assert_array_equal(pl.read_parquet("plan/rates.parquet")["rate"], by_url["rate"])
    summary = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    assert summary["findings"]["hosts"]["hosts"][0]["host"] == "7.example"


@pytest.mark.usefixtures("run")
def test_a_source_of_two_hosts_is_refused() -> None:
    Path("log.csv").write_text("source,time,changed,host\na,0,0,x\na,1,0,y\n")
    Path("limits.csv").write_text("host,limit\nx,1\n")
    job = ["plan", "log.csv", *JOB, "--host-limits", "limits.csv", "--out", "plan"]
    refuse(Path(), job, ("source 'a' of log.csv has the hosts x, y",))


def test_a_log_of_the_standard_input_is_planned(folder: Path) -> None:
    line = '192.0.2.1 - - [{:02}/Nov/2025:06:00:00 +0000] "GET /a HTTP/1.1" {} 9 "-" "bot"\n'
    text = "".join(line.format(day, 200 if day % 3 == 1 else 304) for day in range(1, 20))
    ran = CliRunner().invoke(main, ["plan", "-", "--details"], input=text)
    assert ran.exit_code == 0, ran.output
    assert fields(ran.stdout)["log"].startswith("standard input: 19 crawls of 1 source")
    assert 'log = ["-"]' in (folder / "plan" / "plan.toml").read_text()


def test_an_access_log_is_planned(run: Run) -> None:
    # Three pages, asked for every six hours with If-None-Match: one changes daily, one never, one at random.
    lines = []
    rng = np.random.default_rng(4)
    for k in range(120):
        stamp = f"{1 + k // 4:02d}/Nov/2025:{6 * (k % 4):02d}:00:0"
        for page, changed in enumerate((k % 4 == 0, False, rng.random() < 0.3)):
            status = 200 if changed or k == 0 else 304
            lines.append(f'192.0.2.1 - - [{stamp}{page} +0000] "GET /{page} HTTP/1.1" {status} 9 "-" "bot"')
    Path("access.log").write_text("\n".join([*lines, "garbage"]) + "\n")
    ran = run("plan", "--details", "access.log", *JOB, "--out", "plan", "--csv")
    assert "1 line of 361 left out" in ran.stderr
    assert fields(ran.stdout)["log"].startswith("access.log: 360 crawls of 3 sources, 2025-11-01 to")
    learnt = dict(pl.read_csv("plan/change_rates.csv").select("source", "change_rate").iter_rows())
    assert learnt["/1"] < 0.1 < learnt["/0"] < 1.5


def statuses(*, failing: bool) -> pl.DataFrame:
    """Fetches of three pages on 60 days, of which the third answers every other time."""
    rng = np.random.default_rng(5)
    rows = [
        (f"p{k}", float(day), 200 if day == 0 or rng.random() < 0.3 else 304)
        for k in range(3)
        for day in range(0, 60, 1 + (k == 2))
    ]
    failed = [("p2", day + 1.0, 503 if day % 4 else 0) for day in range(0, 60, 2)]
    schema = {"source": pl.String, "time": pl.Float64, "status": pl.Int64}
    return pl.DataFrame(rows + (failed if failing else []), schema=schema, orient="row")


def test_failures_in_statuses_are_planned_for(run: Run) -> None:
    for name, failing in (("some", True), ("none", False)):
        statuses(failing=failing).write_csv(f"{name}.csv")
    ran = run("plan", "--details", "some.csv", *JOB, "--objective", "delay", "--out", "some", "--csv")
    rows = fields(ran.stdout)
    assert rows["bandwidth"] == "6 of 6 attempts per day used"
    assert "rates are of attempts" in rows["fetches"]
    assert rows["statuses"].startswith("180 attempts of 3 sources, 83.3 % succeed")
    learnt = pl.read_csv("some/change_rates.csv")
    found = learnt.join(pl.read_csv("some/rates.csv"), on="source")
    d, s, u = (found[name].to_numpy() for name in ("change_rate", "success", "rate"))
    assert 0.4 < s[2] < 0.7 < s[:2].min()
    # Of delay the best rates are as the square roots of Δ(2 − s)/s, within the bandwidth.
    shape = np.sqrt(d * (2.0 - s) / s)
    np.testing.assert_allclose(u, 6.0 * shape / shape.sum(), rtol=1e-6)
    facts = json.loads(Path("some/summary.json").read_text())
    assert facts["value"] == pytest.approx(float(np.sum(d * (2.0 - s) / (2.0 * s * u))), rel=1e-9)
    assert facts["relative_gap"] < 1e-9
    # The same log without its failures is planned for as one of changes alone.
    ran = run("plan", "none.csv", *JOB, "--objective", "delay", "--out", "none", "--csv")
    assert not {"fetches", "statuses"} & set(fields(ran.stdout))
    assert "success" not in pl.read_csv("none/change_rates.csv").columns


def test_retries_at_once_are_planned_for(run: Run) -> None:
    statuses(failing=True).write_csv("some.csv")
    retried = ("--objective", "delay", "--retry-at-once", "--csv")
    rows = fields(run("plan", "--details", "some.csv", *JOB, *retried, "--out", "some").stdout)
    assert rows["bandwidth"] == "6 of 6 attempts per day used"
    assert rows["fetches"].endswith("retried at once; rates are of successes")
    assert "refreshes in" in rows["schedule"]
    learnt = pl.read_csv("some/change_rates.csv")
    found = learnt.join(pl.read_csv("some/rates.csv"), on="source")
    d, s, u = (found[name].to_numpy() for name in ("change_rate", "success", "rate"))
    # The least Σ Δ/(2u) with Σ u/s = 6 is where u ∝ √(Δs).
    shape = np.sqrt(d * s)
    np.testing.assert_allclose(u, 6.0 * shape / np.sum(shape / s), rtol=1e-6)
    assert "--retry-at-once" in json.loads(Path("some/summary.json").read_text())["command"]
    # The same of a table of sources; what it writes is of successes, and so are its intervals.
    learnt.select("source", "change_rate", "success").write_csv("sources.csv")
    solving = (
        "solve",
        "sources.csv",
        "--objective",
        "delay",
        "--refresh",
        "periodic",
        "--bandwidth",
        "6/day",
    )
    assert "rates are of successes" in run(*solving, "--retry-at-once", "--out", "own.csv").stdout
    np.testing.assert_allclose(pl.read_csv("own.csv")["rate"].to_numpy(), u, rtol=1e-6)
    run(*solving, "--out", "attempts.csv")
    template = ("--template", "{source} {seconds}", "--retry-at-once", "--out")
    told = fields(run("schedule", "attempts.csv", *template, "intervals").stdout)
    assert told["retries"].startswith("at once")
    attempts = pl.read_csv("attempts.csv")
    expected = 86_400.0 / (attempts["rate"] * attempts["success"]).to_numpy()
    seconds = [float(line.split()[1]) for line in Path("intervals").read_text().splitlines()]
    assert np.all((expected <= np.array(seconds) * (1.0 + 1e-9)) & (np.array(seconds) < expected + 1.0))
    refuse(Path(), ("schedule", "own.csv", *template, "x"), ["no column 'success'"])
    plain = ("solve", "plain.csv", *solving[2:], "--retry-at-once", "--out", "y.csv")
    learnt.select("source", "change_rate").write_csv("plain.csv")
    refuse(Path(), plain, ["no column 'success'"])


def test_a_plan_without_a_cell_of_attempts_says_so(run: Run) -> None:
    statuses(failing=True).write_csv("some.csv")
    rows = fields(run("plan", "--details", "some.csv", *JOB, "--changed-cost", "9", "--out", "plan").stdout)
    assert "rates are planned as if all succeeded: " in rows["statuses"]
    assert rows["statuses"].endswith("but with --retry-at-once")
    assert rows["bandwidth"].endswith("units per day used")


def test_a_source_that_has_ended_gets_no_fetches(run: Run) -> None:
    gone = pl.DataFrame({"source": ["p1", "p1", "p8"], "time": [60.5, 61.0, 61.0], "status": [404, 410, 404]})
    pl.concat([statuses(failing=True), gone]).write_csv("some.csv")
    rows = fields(run("plan", "some.csv", *JOB, "--objective", "delay", "--out", "plan", "--csv").stdout)
    assert rows["statuses"].endswith(
        "2 sources ended ('p1', 'p8'), to be fetched no more; left out, as they never answered: 'p8'"
    )
    rates = dict(pl.read_csv("plan/rates.csv").select("source", "rate").iter_rows())
    assert rates["p1"] == 0.0
    assert rates["p0"] + rates["p2"] == pytest.approx(6.0)


def test_sources_that_never_answered_are_named(run: Run) -> None:
    silent = pl.DataFrame({"source": ["p9"] * 3, "time": [1.0, 2.0, 3.0], "status": [503, 0, 500]})
    pl.concat([statuses(failing=True), silent]).write_csv("some.csv")
    rows = fields(run("plan", "some.csv", *JOB, "--objective", "delay", "--out", "plan", "--csv").stdout)
    assert rows["statuses"].endswith("left out, as they never answered: 'p9'")
    assert pl.read_csv("plan/rates.csv")["source"].to_list() == ["p0", "p1", "p2"]
    told = fields(run("estimate", "some.csv", "--out", "sources.csv").stdout)
    assert told["statuses"].endswith("left out, as they never answered: 'p9'")


def test_estimated_tables_have_the_chances_of_success(run: Run) -> None:
    """So that the steps of a plan, one by one, are those of the plan."""
    for name, failing in (("some", True), ("none", False)):
        statuses(failing=failing).write_csv(f"{name}.csv")
    told = fields(run("estimate", "some.csv", "--out", "sources.csv").stdout)
    assert told["statuses"].startswith("180 attempts of 3 sources, 83.3 % succeed")
    solving = ("solve", "sources.csv", "--objective", "delay", "--bandwidth", "6/day")
    run(*solving, "--out", "rates.csv")
    run("plan", "some.csv", *JOB, "--objective", "delay", "--out", "plan", "--csv")
    planned, found = pl.read_csv("plan/rates.csv"), pl.read_csv("rates.csv")
    assert found["rate"].to_list() == pytest.approx(planned["rate"].to_list(), rel=1e-9)
    run("estimate", "none.csv", "--out", "plain.csv")
    assert "success" not in pl.read_csv("plain.csv").columns


def test_deadlines_are_planned_for_in_attempts(run: Run) -> None:
    statuses(failing=True).write_csv("some.csv")
    late = ("--objective", "deadline", "--deadline", "2d", "--csv")
    rows = fields(run("plan", "--details", "some.csv", *JOB, *late, "--out", "plan").stdout)
    assert rows["bandwidth"].endswith("attempts per day used")
    found = pl.read_csv("plan/change_rates.csv").join(pl.read_csv("plan/rates.csv"), on="source")
    s, u = (found[name].to_numpy() for name in ("success", "rate"))
    k = np.floor(2.0 * u)
    facts = json.loads(Path("plan/summary.json").read_text())
    # P(age > d) of attempts with a random phase, of which k or k + 1 fall into the last d days.
    assert facts["value"] == pytest.approx(float(np.sum((1 - s) ** k * (1 - s * (2.0 * u - k)))), rel=1e-9)
    assert facts["relative_gap"] < 1e-9


@pytest.mark.exhaustive
def test_a_back_test_of_failures_says_how_they_fail(run: Run) -> None:
    statuses(failing=True).write_csv("some.csv")
    job = ("plan", "some.csv", *JOB, "--objective", "binary", "--replay", "--details", "--out", "plan")
    shown = unwrapped(run(*job).stdout)
    assert "attempts per day" in shown
    assert "Fetches fail as recorded" in shown
    facts = json.loads(Path("plan/summary.json").read_text())["held_out"]
    rows = {row["policy"]: row for row in facts["policies"]}
    assert facts["failures"].startswith("Fetches fail as recorded")
    assert rows["current"]["refreshes"] == pytest.approx(3.0, rel=0.1)  # one attempt a day each
    assert "best static in hindsight" not in rows
    page = Path("plan/report.html").read_text()
    assert "Fetches fail as recorded" in page
    assert "attempts per day" in page
    assert "refreshes per day" not in page


@pytest.mark.exhaustive
def test_costs_of_what_has_changed_are_planned_for(run: Run) -> None:
    statuses(failing=False).write_csv("some.csv")
    costs = pl.DataFrame({"source": ["p0", "p1", "p2"], "changed_cost": [0.0, 20.0, 80.0]})
    costs.write_csv("costs.csv")
    asked = ("--objective", "binary", "--source-columns", "costs.csv", "--csv", "--out", "plan")
    rows = fields(run("plan", "--details", "some.csv", *JOB, *asked).stdout)
    found = pl.read_csv("plan/change_rates.csv").join(pl.read_csv("plan/rates.csv"), on="source")
    found = found.filter(pl.col("rate") > 0.0)
    d, c, u = (found[name].to_numpy() for name in ("change_rate", "changed_cost", "rate"))
    downloads = float(np.sum(c * u * -np.expm1(-d / u)))
    assert float(np.sum(u)) + downloads == pytest.approx(6.0, rel=1e-9)
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["changed_cost"]["downloads"] == pytest.approx(downloads, rel=1e-9)
    assert facts["bandwidth_used"] == pytest.approx(6.0, rel=1e-9)
    assert facts["units"]["bandwidth"] == "units of what asking uses per day"
    assert f"asking uses {100 * np.sum(u) / 6.0:.1f} % of the bandwidth" in rows["fetches"]
    assert rows["bandwidth"] == "6 of 6 units per day used"
    assert facts["baselines"]["uniform"] <= facts["value"]
    page = Path("plan/report.html").read_text()
    assert "bandwidth, units per day" in page
    assert "refreshes per day" in page  # rates are of fetches


@pytest.mark.usefixtures("run")
def test_costs_of_what_has_changed_do_not_go_with_everything() -> None:
    statuses(failing=False).write_csv("some.csv")
    pl.DataFrame({"source": ["p0"], "changed_cost": [20.0]}).write_csv("costs.csv")
    pl.DataFrame({"source": ["p0"], "rate": [1.0]}).write_csv("old.csv")
    plan = ("plan", "some.csv", *JOB, "--out", "other")
    column = ("--source-columns", "costs.csv")
    for wrong, words in (
        ((*column, "--changed-cost", "3"), ["has a column changed_cost", "Give one"]),
        (("--changed-cost", "-3"), ["--changed-cost -3 is no number >= 0"]),
        (
            (*column, "--budget", "bytes=changed_cost:9"),
            ["--budget does not go with the column changed_cost"],
        ),
        (("--changed-cost", "3", "--target", "50%"), ["--target does not go with --changed-cost"]),
        (("--changed-cost", "3", "--load-limit", "3"), ["--load-limit does not go with --changed-cost"]),
        (("--changed-cost", "3", "--signals", "old.csv"), ["--signals does not go with --changed-cost"]),
        (("--changed-cost", "3", "--engine", "dask"), ["--engine dask does not go with --changed-cost"]),
        (("--changed-cost", "3", "--compare", "old.csv", "--max-churn", "10%"), ["--max-churn does not go"]),
    ):
        refuse(Path(), (*plan, *wrong), words)
    refuse(Path(), (*plan, *column), ["costs.csv has no changed_cost for 'p1', 'p2'"])

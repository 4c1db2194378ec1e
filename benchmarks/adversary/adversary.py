"""An adversary: random problems, damaged files and disturbed processes, judged by an oracle of its own.

    python -m benchmarks adversary problems --minutes 30 --seed 1 --jobs 1
    python -m benchmarks adversary files --minutes 10 --seed 1
    python -m benchmarks adversary processes --minutes 10 --seed 1

`problems` draws problems from the whole grammar of inputs and judges every answer in extended precision, with
formulas of its own; `files` damages what the command line reads; `processes` kills commands and takes their
surroundings away. What it finds is shrunk and printed as a script to paste; with --save the counts are kept.
"""

from benchmarks.adversary import files, problems, processes
from benchmarks.harness import Claims, Measurement, Record

# Kinds of findings that CONTRIBUTING.md tells as open.
OPEN = {"problems": {"not proved"}, "files": {"code n, n lines on standard error"}, "processes": set[str]()}


def claims(record: Record) -> Claims:
    """Yield that nothing was found but what is open."""
    for part, each in record.items():
        yield f"{part}: {each['instances']} instances, {each['findings']}", {*each["findings"]} <= OPEN[part]


BENCH = Measurement(
    {"problems": problems.run, "files": files.run, "processes": processes.run},
    quick={"minutes": 0.05},
    claims=claims,
    apiece=True,
)

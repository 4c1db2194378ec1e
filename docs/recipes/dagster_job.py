"""Dagster: every ten minutes, ask a live planner what is due, and refresh each source in a step of its own.

The planner's folder was made once, by ``freshopt.Planner(FOLDER, bandwidth="2000/day")`` and ``add_many``.
A step that fails reports nothing; its source is due again when the lease ends. Run it by
``dagster dev -f dagster_job.py``.
"""

import hashlib
import urllib.request
from datetime import UTC, datetime

import dagster as dg

import freshopt as fo

FOLDER = "planner"


@dg.op(out=dg.DynamicOut(str))
def due():
    with fo.Planner(FOLDER) as planner:
        visits = list(planner.due(datetime.now(UTC)))
    for k, visit in enumerate(visits):
        yield dg.DynamicOutput(visit.source, mapping_key=str(k))


@dg.op
def refresh(source: str):
    with urllib.request.urlopen(source, timeout=60) as answer:
        content = hashlib.sha256(answer.read()).hexdigest()
    with fo.Planner(FOLDER) as planner:
        planner.observed(source, datetime.now(UTC), content=content)


@dg.job
def freshopt_refresh():
    due().map(refresh)


defs = dg.Definitions(
    jobs=[freshopt_refresh],
    schedules=[dg.ScheduleDefinition(job=freshopt_refresh, cron_schedule="*/10 * * * *")],
)

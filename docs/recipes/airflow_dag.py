"""Airflow 3: every ten minutes, ask a live planner what is due, and refresh each source in a task of its own.

The planner's folder (or a PostgreSQL database, where workers are on several machines) was made once, by
``freshopt.Planner(FOLDER, bandwidth="2000/day")`` and ``add_many``. A task reports a digest of what came:
another one than before is a change. A task that fails reports nothing; its source is due again when the lease
ends. Put the file into the folder of DAGs, and try it by ``airflow dags test freshopt_refresh``.
"""

import hashlib
import urllib.request
from datetime import UTC, datetime

from airflow.sdk import dag, task

import freshopt as fo

FOLDER = "planner"


@dag(schedule="*/10 * * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def freshopt_refresh():
    @task
    def due():
        with fo.Planner(FOLDER) as planner:
            return [visit.source for visit in planner.due(datetime.now(UTC))]

    @task
    def refresh(source):
        with urllib.request.urlopen(source, timeout=60) as answer:
            content = hashlib.sha256(answer.read()).hexdigest()
        with fo.Planner(FOLDER) as planner:
            planner.observed(source, datetime.now(UTC), content=content)

    refresh.expand(source=due())


freshopt_refresh()

"""APScheduler: each source of a plan becomes a job with its interval.

``freshopt plan LOG`` has written ``plan/rates.parquet``. Jobs begin at random phases, so that the load is
even.
"""

import random
from datetime import datetime, timedelta

import polars
from apscheduler.schedulers.background import BackgroundScheduler


def refresh(source):
    print("refresh", source)


scheduler = BackgroundScheduler(job_defaults={"coalesce": True, "misfire_grace_time": 3600})
for source, rate in polars.read_parquet("plan/rates.parquet").select("source", "rate").iter_rows():
    if rate > 0:  # per day
        seconds = 86_400 / rate
        begin = datetime.now() + timedelta(seconds=seconds * random.random())
        scheduler.add_job(refresh, "interval", seconds=seconds, args=[source], id=source, next_run_time=begin)
scheduler.start()

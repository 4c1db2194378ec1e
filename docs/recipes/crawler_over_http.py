"""A crawler in plain HTTP: ask ``freshopt serve`` what is due, fetch it, report what was found.

The two calls are all that a crawler in Java, Go or TypeScript needs, too. Start the service by
``freshopt serve crawl-state --bandwidth 2000/day``, and this by ``python crawler_over_http.py urls.txt``.
"""

import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

SERVICE = os.environ.get("FRESHOPT_SERVICE", "http://127.0.0.1:8765")
HEADERS = {"Content-Type": "application/json"}
if "FRESHOPT_TOKEN" in os.environ:
    HEADERS["Authorization"] = f"Bearer {os.environ['FRESHOPT_TOKEN']}"


def call(method, path, body=None):
    """Return the service's answer; a call that was lost is made again, which is safe."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVICE + path, data, HEADERS, method=method)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise SystemExit(f"{path}: {json.load(error)['error']}") from None
        except OSError:
            pass
        time.sleep(1.0)


def fetch(visit):
    """Return the report of a visit."""
    begin = time.perf_counter()
    report = {"source": visit["source"], "time": datetime.now(UTC).isoformat()}
    request = urllib.request.Request(visit["source"])
    if (visit["content"] or "").startswith('"'):
        request.add_header("If-None-Match", visit["content"])
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()  # here: hand it to whatever uses the pages
            report["content"] = answer.headers["ETag"] or hashlib.sha256(body).hexdigest()
            told = answer
    except urllib.error.HTTPError as error:
        error.close()
        told = error  # 304 is no change, others are failures: the service knows by the status
    except OSError:
        return report | {"failed": True}
    # A host that is asked too often is then asked less.
    report |= {"status": told.status, "latency": time.perf_counter() - begin}
    return report | {"retry_after": told.headers["Retry-After"]}


def visited(visits):
    """Return the reports of visits, and the names of those that were left out.

    What a host is handed out besides is left out when it answers that it is busy.
    """
    reports, busy, left = [], set(), []
    for visit in visits:
        if visit["host"] in busy:
            left.append(visit["source"])
            continue
        reports.append(fetch(visit))
        if reports[-1].get("status") in (429, 503):
            busy.add(visit["host"])
    return reports, left


def crawl(pages, until=lambda: False):
    """Crawl what is due until it is enough."""
    rows = [{"source": page, "host": urlsplit(page).hostname} for page in pages]
    for begin in range(0, len(rows), 1000):
        call("PUT", "/sources", rows[begin : begin + 1000])
    while not until():
        due = call("GET", "/due?limit=20")
        if due["visits"]:
            reports, left = visited(due["visits"])
            call("POST", "/observed", reports)
            if left:
                call("POST", "/released", left)
        else:
            following = (
                datetime.fromisoformat(due["next"]) if due["next"] else datetime.max.replace(tzinfo=UTC)
            )
            time.sleep(min(max((following - datetime.now(UTC)).total_seconds(), 0.1), 30.0))


if __name__ == "__main__":
    crawl(Path(sys.argv[1]).read_text(encoding="utf-8").split())

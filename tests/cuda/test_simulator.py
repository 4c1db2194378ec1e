"""The device's tests, in a process in which numba simulates one: the switch is read at its import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("on_device.py")


@pytest.mark.exhaustive
def test_everything_that_runs_on_a_device_in_the_simulator() -> None:
    """The file tests what `fo.solve` does there, cell by cell, against the host's solver."""
    # The options of the suite itself: no workers, and files of other names.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(FILE)],
        cwd=FILE.parents[2],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout

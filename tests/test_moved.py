"""Old import paths: each name is found, is what the new one is, and says where that is."""

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from freshopt import tools
from freshopt.moved import MOVED

# What documentation named before.
DOCUMENTED = {
    "freshopt.exporters": [name for name in tools.__all__ if not name.startswith("read_")],
    "freshopt.exporters.nginx": ["Nginx"],
    "freshopt.exporters.cron_lines": ["cron_lines"],
    "freshopt.io": [
        *("read_changedetection", "read_dbt", "read_git", "read_history", "read_log", "read_nutch"),
        "read_requests",
    ],
    "freshopt.io.read_log": ["read_log"],
    "freshopt.live.clock": ["Clock"],
    "freshopt.io.read_dbt": ["read_dbt"],
    "freshopt.io.dbt_artifacts": ["read_manifest", "read_run_times", "Manifest"],
    "freshopt.adapters.scrapy": ["FreshoptAddon"],
    "freshopt.weekly": ["WeeklyProfile", "peak_hours"],
    "freshopt.weekly.peak_hours": ["peak_hours"],
    "freshopt.inference.gamma_prior": ["GammaPrior"],
    "freshopt.inference.interval_methods": ["Posterior", "check_confidence"],
    "freshopt.estimators.naive": ["Naive"],
    "freshopt.bounds": ["sensitivity_bound", "etc_regret_bound", "mirror_sync_regret_bound", "price_bracket"],
}


@pytest.mark.parametrize(("module", "name"), [(m, own) for m, names in DOCUMENTED.items() for own in names])
def test_old_names_are_the_new_ones(module: str, name: str) -> None:
    words = rf"^{module}\.{name} is freshopt\.[\w.]+\.{name} now\. "
    # An old module of that name is bound there once another test has imported it.
    vars(import_module(module)).pop(name, None)
    with pytest.warns(DeprecationWarning, match=words) as told:
        found = getattr(import_module(module), name)
    assert found.__module__.startswith("freshopt.")
    place, _, own = str(told[0].message).split()[2].rpartition(".")
    assert found is getattr(import_module(place), own)
    assert told[0].filename == __file__


@pytest.mark.parametrize("old", MOVED)
def test_every_old_module_is_found_and_has_no_other_names(old: str) -> None:
    module = import_module(old)
    assert isinstance(import_module(MOVED[old]), ModuleType)
    with pytest.raises(AttributeError, match=rf"there is no {old}\.nothing"):
        module.nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import_module(f"{old}.nothing")


def test_a_module_that_was_a_function_of_its_package_is_called_as_one() -> None:
    code = (
        "import freshopt.io.read_git, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "try: freshopt.io.read_git('nowhere')\n"
        "except freshopt.SourceDataError as error: print(error)\n"
        "import freshopt as fo\n"
        "print(fo.exporters.Crontab())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "nowhere is not a folder. Name a git repository, or a folder in one.",
        "Crontab(command='refresh')",
    ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from freshopt.io import read_log", 1),
        ("from freshopt.io.tables import read_table", 1),
        ("import freshopt.io\nfreshopt.io.atomic_output.complete_file", 1),
        ("import freshopt.exporters\nfreshopt.exporters.crontab.Crontab", 1),
        ("from freshopt.exporters import *\nCrontab", None),
        ("from freshopt.io import *\nread_log", None),
    ],
)
def test_old_names_are_told_once_in_every_way_to_import_them(code: str, said: int | None) -> None:
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        f"    exec(compile({code!r}, 'user', 'exec'), {{}})\n"
        "print(len(told), *{one.filename for one in told})\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count, *places = ran.stdout.split()
    assert places == ["user"]
    assert said is None or int(count) == said

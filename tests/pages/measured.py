"""The measurements of `benchmarks/`, which is no package: imported from the checkout."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


def module(name: str) -> ModuleType:
    """Return a module by its path below `benchmarks`, as accuracy.replay."""
    return importlib.import_module(f"benchmarks.{name}")


harness = module("harness")

"""Libraries that are imported on first use."""

import pickle
import subprocess
import sys

from freshopt.heavy import Lazy


def test_a_library_is_imported_by_its_first_use_alone() -> None:
    code = (
        "import sys; from freshopt.heavy import Lazy; colour = Lazy('colorsys'); repr(colour); "
        "hasattr(colour, '__wrapped__'); before = 'colorsys' in sys.modules; "
        "print(before, colour.rgb_to_hsv(0, 0, 0), 'colorsys' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False (0.0, 0.0, 0) True"


def test_it_is_in_pickles_by_its_name() -> None:
    lazy = Lazy("colorsys")
    assert lazy.ONE_SIXTH == 1.0 / 6.0
    found = pickle.loads(pickle.dumps(lazy))
    assert found.ONE_SIXTH == lazy.ONE_SIXTH
    assert repr(found) == "<colorsys, imported on first use>"

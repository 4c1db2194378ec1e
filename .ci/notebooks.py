"""Execute every notebook in a fresh kernel, two at a time, and hold what they print against what is kept.

    python .ci/notebooks.py [--save] [NOTEBOOK ...]

Fails on an error; on outputs that are missing, hold a warning, an error or a path of one machine; on a plot
without a picture; and on text that is not what is kept. Words must be equal. Numbers may differ by one unit
of their last place or by 1e-6 of their size, whole numbers not at all, and below 1e-6 any two are equal:
those are rounding, gaps of certificates for instance. The line "effort:" of a solution is not compared, of
a cell tagged "timing" only the words, and nothing of one tagged "foreign", whose text is that of another
library. ``--save`` keeps what was executed instead of comparing it, without what differs from run to run.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).parent.parent / "notebooks"
AT_ONCE = 2
SECONDS = 120  # a cell may take
ROUNDING = 1e-6
BAD = {
    "a warning": re.compile(r"\b\w*Warning\b|\bwarnings\.warn\b"),
    "an error": re.compile(r"\bTraceback \(most recent"),
    "a path of one machine": re.compile(
        r"(?<![\w.])/(?:home|tmp|work|root|usr|opt|var|mnt|srv|private|Users)/|\b[A-Z]:\\\\|site-packages"
    ),
    "an address in memory": re.compile(r"\bat 0x[0-9a-f]{6,}"),
}
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def texts(output: Any) -> list[str]:  # noqa: ANN401 - nbformat has no types
    """Return every text of an output: a stream's, or that of each text type."""
    if output.output_type == "stream":
        return [output.text]
    data = output.get("data", {})
    return [value for kind, value in data.items() if kind.startswith("text/") and isinstance(value, str)]


def faults(notebook: Any) -> list[str]:  # noqa: ANN401
    """Return what is wrong with a notebook's outputs, each as a sentence that names the cell."""
    found = []
    cells = [(k, cell) for k, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    if not any(cell.outputs for _, cell in cells):
        found.append("it has no outputs")
    for k, cell in cells:
        kinds = {output.output_type for output in cell.outputs}
        if "error" in kinds:
            found.append(f"cell {k} ended in an error")
        if any(output.get("name") == "stderr" for output in cell.outputs):
            found.append(f"cell {k} wrote to stderr")
        drawn = any("image/png" in output.get("data", {}) for output in cell.outputs)
        if re.search(r"\bplt\.(show|subplots|figure)\(", cell.source) and not drawn:
            found.append(f"cell {k} plots and has no picture")
        for text in (text for output in cell.outputs for text in texts(output)):
            found += [f"cell {k} shows {what}" for what, pattern in BAD.items() if pattern.search(text)]
    return found


def differences(kept: Any, fresh: Any) -> list[str]:  # noqa: ANN401
    """Return which cells of the same notebook printed something else than is kept."""
    found = []
    for k, (old, new) in enumerate(zip(kept.cells, fresh.cells, strict=True)):
        tags = old.metadata.get("tags", [])
        if old.cell_type != "code" or "foreign" in tags:
            continue
        before, after = shown(old), shown(new)
        equal = words(before) == words(after) if "timing" in tags else same(before, after)
        if not equal:
            found.append(f"cell {k} printed\n{after}\nand kept is\n{before}")
    return found


def shown(cell: Any) -> str:  # noqa: ANN401
    """Return a code cell's text as a reader sees it, what took how long left out."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        parts.append(output.text if output.output_type == "stream" else data.get("text/plain", ""))
        parts.append(data.get("text/markdown", ""))
    return re.sub(r"effort: .*", "", "\n".join(parts)).replace("< 1e", "1e")


def words(text: str) -> list[str]:
    """Return a text's words, a number being one whatever it is; widths of tables do not count."""
    return re.sub(r"[─═=-]{2,}", "-", NUMBER.sub(" # ", text)).split()


def same(one: str, other: str) -> bool:
    """Tell whether two texts have the same words and, but for rounding, the same numbers."""
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return words(one) == words(other) and all(close(a, b) for a, b in pairs)


def close(one: str, other: str) -> bool:
    """Tell whether two printed numbers differ by no more than rounding."""
    a, b = (Decimal(text.replace(",", "")) for text in (one, other))
    if all(re.fullmatch(r"[-+]?[\d,]+", text) for text in (one, other)):
        return a == b
    x, y = float(a), float(b)
    size = max(abs(x), abs(y))
    place = min(math.pow(10.0, int(value.as_tuple().exponent)) for value in (a, b))
    return size <= ROUNDING or abs(x - y) <= max(1.01 * place, ROUNDING * size)


def clean(notebook: Any) -> None:  # noqa: ANN401
    """Drop what differs from run to run and from machine to machine, and number the cells."""
    notebook.metadata.clear()
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {"name": "python"}
    for k, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags")
        cell.metadata.clear()
        cell["id"] = f"cell-{k:02}"
        if tags:
            cell.metadata["tags"] = tags


def check(path: Path, save: bool) -> tuple[str, list[str], float]:
    """Execute a notebook; return its name, what is wrong with it and the seconds that it took."""
    begun = time.perf_counter()
    kept = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(
        fresh,
        timeout=SECONDS,
        resources=where,
        extra_arguments=["--log-level=ERROR"],
        # How a stream is cut differs from run to run.
        coalesce_streams=True,
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        told = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        return path.name, [told], time.perf_counter() - begun
    clean(fresh)
    found = faults(fresh)
    if save and not found:
        nbformat.write(fresh, path)
    elif not save:
        found += [f"as kept, {fault}" for fault in faults(kept)] + differences(kept, fresh)
    return path.name, found, time.perf_counter() - begun


def main() -> None:
    """Execute, compare or save, and tell."""
    parser = argparse.ArgumentParser(description="Execute notebooks and compare or save what they print.")
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--save", action="store_true", help="keep the outputs instead of comparing them")
    options = parser.parse_args()
    paths = [path.resolve() for path in options.notebooks] or sorted(FOLDER.glob("*.ipynb"))
    if not paths:
        sys.exit("there are no notebooks")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # two kernels on two cores
    wrong = 0
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for name, found, seconds in pool.map(check, paths, [options.save] * len(paths)):
            wrong += len(found)
            print(f"{name}: {seconds:.0f} s{''.join(f'{chr(10)}  {fault}' for fault in found)}", flush=True)
    if wrong:
        sys.exit(f"{wrong} faults in {len(paths)} notebooks")


if __name__ == "__main__":
    main()

"""Execute every notebook in a fresh kernel; fail on an error, or if the committed one holds no outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

folder = Path(__file__).parent.parent / "notebooks"
paths = sorted(folder.glob("*.ipynb"))
if not paths:
    sys.exit("there are no notebooks")
for path in paths:
    notebook = nbformat.read(path, as_version=4)
    if not any(cell.get("outputs") for cell in notebook.cells):
        sys.exit(f"{path.name} was committed without outputs")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    print(f"{path.name}: {len(notebook.cells)} cells executed")

"""`read_manifest`, `read_run_times`: a dbt project's graph and run times.

dbt leaves both behind in ``target``: ``manifest.json`` when it parses, ``run_results.json`` when it runs
[1]_.

Cost: reading the files.

References
----------
.. [1] https://docs.getdbt.com/reference/artifacts/dbt-artifacts
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshopt.errors import SourceDataError

# Nodes that are copies, and among them the materializations that keep nothing.
COPIES = ("model", "snapshot")
KEEP_NOTHING = ("view", "ephemeral")
# Status of a node that was run to its end.
SUCCESS = "success"
# The shortest run, in seconds, of what takes less than the clock tells.
SHORTEST = 1e-3


@dataclass(frozen=True, slots=True)
class Manifest:
    """Graph of a dbt project, by ``unique_id``.

    Attributes
    ----------
    edges : tuple of pairs
        From upstream to downstream; of sources and seeds only those of which something is made.
    views : tuple of str
        What keeps nothing: views, ephemeral models, exposures.
    parentless : tuple of str
        Models that are made of nothing.
    importance : dict of str to float, or None
        Of exposures; None if there are none.
    selectors : dict of str to str
        dbt's fully qualified name of each model and snapshot that is a table.
    """

    edges: tuple[tuple[str, str], ...]
    views: tuple[str, ...]
    parentless: tuple[str, ...]
    importance: dict[str, float] | None
    selectors: dict[str, str]

    def short_names(self) -> Mapping[object, str]:
        """Return nodes by endings of a ``unique_id`` that are unique."""
        found: dict[object, list[str]] = {}
        for node in dict.fromkeys(node for edge in self.edges for node in edge):
            parts = node.split(".")
            for k in range(1, len(parts)):
                found.setdefault(".".join(parts[k:]), []).append(node)
        return {short: nodes[0] for short, nodes in found.items() if len(nodes) == 1}


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read the graph of a dbt project.

    Parameters
    ----------
    path : path
        ``target/manifest.json``, or the folder that holds it.

    Raises
    ------
    SourceDataError
        If the file is no manifest, or its project makes nothing; names it.
    """
    file = _artifact(path, "manifest.json")
    document = read_document(file)
    groups = [document.get(key) for key in ("nodes", "sources", "exposures")]
    if not all(isinstance(group, dict) for group in groups):
        raise SourceDataError(f"{file} has no nodes, sources and exposures. Pass a manifest.json of dbt.")
    nodes, sources, exposures = (group for group in groups if isinstance(group, dict))
    kinds = {key: str(_of(node, "resource_type")) for key, node in nodes.items()}
    copies = [key for key, kind in kinds.items() if kind in COPIES]
    known = {*copies, *sources, *(key for key, kind in kinds.items() if kind == "seed")}
    edges = [
        (up, key)
        for key, node in [*((key, nodes[key]) for key in copies), *exposures.items()]
        for up in _parents(node)
        if up in known
    ]
    if not edges:
        raise SourceDataError(
            f"{file} has no model with a parent. Pass the manifest of a project with models."
        )
    linked = {node for edge in edges for node in edge}
    made = {down for _, down in edges}
    kept = {key: str(_of(nodes[key], "config", "materialized")) not in KEEP_NOTHING for key in copies}
    return Manifest(
        tuple(edges),
        (
            *(key for key in copies if not kept[key] and key in linked),
            *(key for key in exposures if key in linked),
        ),
        tuple(key for key in copies if key in linked and key not in made),
        {key: _importance(node, key, file) for key, node in exposures.items() if key in linked} or None,
        {key: ".".join(map(str, _of(nodes[key], "fqn") or ())) for key in copies if kept[key]},
    )


def read_run_times(path: str | os.PathLike[str]) -> dict[str, float]:
    """Read how long each node of a dbt run took, in seconds.

    Parameters
    ----------
    path : path
        ``target/run_results.json``, or the folder that holds it.

    Returns
    -------
    dict of str to float
        Of nodes that were run with success, at least a millisecond.

    Raises
    ------
    SourceDataError
        If the file has no results, or a time is no number; names the node.
    """
    file = _artifact(path, "run_results.json")
    results = read_document(file).get("results")
    if not isinstance(results, list):
        raise SourceDataError(f"{file} has no list 'results'. Pass a run_results.json of dbt.")
    times: dict[str, float] = {}
    for result in results:
        if _of(result, "status") != SUCCESS:
            continue
        node, time = str(_of(result, "unique_id")), _of(result, "execution_time")
        if isinstance(time, bool) or not isinstance(time, int | float) or not 0.0 <= time < float("inf"):
            raise SourceDataError(
                f"execution_time of {node!r} is {shown_value(time)} in {file}. Write the artifact anew."
            )
        times[node] = max(float(time), SHORTEST)
    return times


def read_document(file: Path) -> dict[str, Any]:
    """Return an artifact's content."""
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise SourceDataError(f"{file} cannot be read: {error.strerror or error}. Check the path.") from error
    except UnicodeDecodeError as error:
        raise SourceDataError(f"{file} is not UTF-8 (byte {error.start}). Write the artifact anew.") from None
    except json.JSONDecodeError as error:
        raise SourceDataError(
            f"{file} is not JSON: {error.msg} in line {error.lineno}. Write the artifact anew, or remove it."
        ) from None
    except (RecursionError, ValueError):  # or a number of thousands of digits
        raise SourceDataError(f"{file} holds JSON that no artifact has. Remove it.") from None
    if not isinstance(document, dict):
        raise SourceDataError(f"{file} holds {shown_value(document)}, not an object. Pass artifacts of dbt.")
    return document


def shown_value(value: object) -> str:
    """Return a value of an artifact for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _artifact(path: str | os.PathLike[str], name: str) -> Path:
    """Return the file, which may be named by its folder."""
    file = Path(path)
    return file / name if file.is_dir() else file


def _of(value: object, *keys: str) -> Any:  # noqa: ANN401 - anything that JSON holds
    """Return what nested objects hold, None where there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _parents(node: object) -> Iterator[str]:
    """Yield the parents of a node, each once."""
    found = _of(node, "depends_on", "nodes")
    if isinstance(found, list):
        yield from dict.fromkeys(str(up) for up in found)


def _importance(node: object, key: str, file: Path) -> float:
    """Return the importance of an exposure, 1 if its meta says nothing."""
    for keys in (("config", "meta", "importance"), ("meta", "importance")):
        value = _of(node, *keys)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1e100:
                raise SourceDataError(
                    f"importance of {key!r} is {shown_value(value)} in {file}. Write a number >= 0 in "
                    "its meta."
                )
            return float(value)
    return 1.0

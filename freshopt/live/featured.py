"""Features of a planner's sources, and the priors that they tell.

Priors are learnt anew at each full re-solve, from the sources that were crawled twice, and kept for the
updates in between and for other processes. While these are too few, all sources have the pooled prior.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.estimators.features.feature_priors import LEAST, FeaturePriors
from freshopt.estimators.features.source_features import FROM_URL, SourceFeatures
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.live.database import Database, keep, kept
from freshopt.live.evidence import Evidence
from freshopt.live.source_table import FEATURE, Columns, SourceTable, columns_in, kept_names
from freshopt.logs.clock import Clock
from freshopt.numerics.arrays import BoolArray
from freshopt.questions.features_bring import FeaturesBring, explained

_NONE = np.empty(0, dtype=np.str_)


def told_features(given: Any) -> Columns:  # noqa: ANN401 - a path, a dataframe or "url"
    """Return features by column and source; of URLs their mark alone."""
    if isinstance(given, str | Path) and Path(given).name == FROM_URL and not Path(given).exists():
        return {f"{FEATURE}{FROM_URL}": {}}
    told = SourceFeatures.of(_NONE, given)
    names = told.names.tolist()
    own = told.columns.items()
    return {f"{FEATURE}{name}": dict(zip(names, column.tolist(), strict=True)) for name, column in own}


def features_in(database: Database, table: SourceTable) -> SourceFeatures | None:
    """Return the features of a planner's sources, named by their numbers."""
    names = kept_names(database, features=True)
    if not names or not len(table):
        return None
    if f"{FEATURE}{FROM_URL}" in names:
        try:
            found = SourceFeatures.of(table.name.astype(np.str_), FROM_URL)
        except SourceDataError:  # URLs that are alike so far
            return None
    else:
        kept_ones = columns_in(database, table.name.tolist(), features=True)
        columns = {name.removeprefix(FEATURE): own for name, own in kept_ones.items()}
        found = SourceFeatures(_NONE, columns, _NONE)
    return replace(found, names=table.id.astype(np.str_), new=_NONE)


def learnt_priors(
    features: SourceFeatures, evidence: Evidence, table: SourceTable, unit: str
) -> tuple[FeaturePriors | None, str]:
    """Return the priors that features tell, and that in words."""
    log = evidence.log(Clock(unit), table.id)
    known = int(np.count_nonzero(evidence.crawls(table.id) > 1))
    if log is None or known < LEAST:
        return None, f"to be learnt once {LEAST} sources were crawled twice ({known} were)"
    try:
        found = FeaturePriors.from_log(log, features)
    except SourceDataError as error:
        return None, f"not used, as {error}"
    return found, FeaturesBring(found, explained(found), 0, (0.0, 0.0), unit).sentence


def keep_priors(database: Database, found: FeaturePriors | None, words: str) -> None:
    """Keep what features tell, within a transaction."""
    told: dict[str, Any] = {"words": words}
    if found is not None:
        told["source"] = [*map(int, found.table.names.tolist())]
        told |= {key: getattr(found, key).tolist() for key in ("mean", "shape", "birth_rate")}
    keep(database, "features", json.dumps(told))


def kept_priors(
    database: Database, table: SourceTable, pooled: GammaPrior | None
) -> tuple[FeaturePriors | None, BoolArray]:
    """Return the priors kept, and which sources are new to them.

    New ones have the pooled prior until they are learnt again.
    """
    told = json.loads(kept(database, "features") or "{}")
    if "source" not in told or pooled is None:
        return None, np.zeros(len(table), dtype=np.bool_)
    place = {number: k for k, number in enumerate(told["source"])}
    at = np.array([place.get(number, -1) for number in table.id.tolist()], dtype=np.int64)
    usual = (pooled.shape / pooled.exposure, pooled.shape, pooled.birth_rate)
    mean, shape, births = (
        np.append(told[key], own)[at] for key, own in zip(("mean", "shape", "birth_rate"), usual, strict=True)
    )
    names = SourceFeatures(table.id.astype(np.str_), {}, _NONE)
    return FeaturePriors(names, mean, shape, births, {}, 0.0, pooled, pooled.shape), at < 0


def features_in_words(database: Database) -> str:
    """Return what features tell, for the status; empty without any."""
    words: str = json.loads(kept(database, "features") or "{}").get("words", "")
    return words

"""External Secrets Operator: the ``refreshInterval`` of each ExternalSecret.

As YAML to apply.

An ExternalSecret in Kubernetes is a copy of a secret that is kept elsewhere. ``spec.refreshInterval`` is a Go
duration such as ``1h30m0s``; with ``0s`` it is fetched once [1]_. Each document names one resource and sets
nothing but that field, for ``kubectl apply --server-side --force-conflicts -f FILE``, which leaves all other
fields to whom they belong.

Names and intervals are written in quotes: YAML would read a resource called ``1e3`` or ``null`` as something
else [2]_.

References
----------
.. [1] https://external-secrets.io/latest/api/externalsecret/
.. [2] https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.whole_intervals import Exported, Limits, exported, labels, whole_intervals
from freshopt.scheduling.rate_table import RateTable

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?:(?P<namespace>{_LABEL})/)?(?P<name>{_LABEL}(?:\.{_LABEL})*)")
# Characters of DNS names and labels.
_MOST_NAME, _MOST_NAMESPACE = 253, 63
# A Go duration counts nanoseconds in 64 bits.
_LIMITS = Limits(
    "a refreshInterval", step=1, longest=2**63 // 10**9, shortest=1, remedy="Raise their min_rate."
)


@dataclass(frozen=True, slots=True)
class ExternalSecrets:
    """YAML file with one document per source.

    A source is called ``name`` or ``namespace/name``.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """No folder: it is one file."""
        return ()

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `IntervalFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is none that Kubernetes has, an interval does not fit, or a source waits for signals.
        """
        names, seconds = labels(table), whole_intervals(table, _LIMITS)
        places = [_place(name) for name in names]
        wrong = [repr(name) for name, place in zip(names, places, strict=True) if place is None]
        if wrong:
            raise SourceDataError(
                f"source {list_offenders(wrong)} is no name of a Kubernetes resource. Those have lower-case "
                "letters, digits, '-' and '.'. Name it as the ExternalSecret is called, or namespace/name."
            )
        documents = [
            _document(*place, duration(interval))
            for place, interval in zip(places, seconds.tolist(), strict=True)
            if place is not None
        ]
        path.write_bytes("---\n".join(documents).encode())
        return exported(table, seconds, 'with refreshInterval "0s"')


def duration(seconds: int) -> str:
    """Return a Go duration, as Go itself prints it.

    Examples
    --------
    >>> duration(0), duration(59), duration(600), duration(90_061)
    ('0s', '59s', '10m0s', '25h1m1s')
    """
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _place(name: str) -> tuple[str | None, str] | None:
    found = _NAME.fullmatch(name)
    if found is None or len(found["name"]) > _MOST_NAME or len(found["namespace"] or "") > _MOST_NAMESPACE:
        return None
    return found["namespace"], found["name"]


def _document(namespace: str | None, name: str, interval: str) -> str:
    place = "" if namespace is None else f'  namespace: "{namespace}"\n'
    return (
        "apiVersion: external-secrets.io/v1\nkind: ExternalSecret\nmetadata:\n"
        f'  name: "{name}"\n{place}spec:\n  refreshInterval: "{interval}"\n'
    )

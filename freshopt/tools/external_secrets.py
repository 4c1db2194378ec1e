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

from dataclasses import dataclass
from typing import ClassVar

from freshopt.heavy import polars
from freshopt.tools.export import refuse, text_of
from freshopt.tools.whole_seconds import IntervalFormat, Limits

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = rf"^(?:{_LABEL}/)?{_LABEL}(?:\.{_LABEL})*$"
# Namespace and name.
_PLACE = r"^(?:([^/]*)/)?([^/]*)$"
# Characters of DNS names and labels.
_MOST_NAME, _MOST_NAMESPACE = 253, 63
# A Go duration counts nanoseconds in 64 bits.
_LIMITS = Limits("a refreshInterval", step=1, longest=2**63 // 10**9, shortest=1)


@dataclass(frozen=True, slots=True)
class ExternalSecrets(IntervalFormat):
    """YAML file with one document per source.

    A source is called ``name`` or ``namespace/name``.
    """

    limits: ClassVar[Limits] = _LIMITS
    never: ClassVar[str] = 'with refreshInterval "0s"'
    around: ClassVar[tuple[str, str, str]] = ("", "---\n", "")

    def text(self, names: list[str]) -> polars.Series:
        """Return names that Kubernetes has."""
        text = text_of(names)
        # Lengths are of ASCII letters where the name is one that Kubernetes has.
        fits = text.str.contains(_NAME)
        fits &= text.str.extract(_PLACE, 2).str.len_bytes() <= _MOST_NAME
        fits &= text.str.extract(_PLACE, 1).str.len_bytes().fill_null(0) <= _MOST_NAMESPACE
        refuse(
            names,
            (~fits).arg_true(),
            "is no name of a Kubernetes resource. Those have lower-case letters, digits, '-' and '.'. Name "
            "it as the ExternalSecret is called, or namespace/name.",
        )
        return text

    def line(self) -> polars.Expr:
        """Return the YAML of a resource."""
        namespace, name = (polars.col("name").str.extract(_PLACE, part) for part in (1, 2))
        return polars.concat_str(
            polars.lit('apiVersion: external-secrets.io/v1\nkind: ExternalSecret\nmetadata:\n  name: "'),
            name,
            polars.lit('"\n'),
            polars.format('  namespace: "{}"\n', namespace).fill_null(""),
            polars.lit('spec:\n  refreshInterval: "'),
            duration(polars.col("seconds")),
            polars.lit('"\n'),
        )


def duration(seconds: polars.Expr) -> polars.Expr:
    """Return a Go duration, as Go itself prints it.

    Examples
    --------
    >>> import polars
    >>> polars.select(duration(polars.Series([0, 59, 600, 90_061]))).to_series().to_list()
    ['0s', '59s', '10m0s', '25h1m1s']
    """
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    return (
        polars.when(seconds >= 3600)
        .then(polars.format("{}h{}m{}s", hours, minutes, rest))
        .when(seconds >= 60)
        .then(polars.format("{}m{}s", minutes, rest))
        .otherwise(polars.format("{}s", rest))
    )

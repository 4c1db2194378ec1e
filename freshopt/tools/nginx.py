r"""nginx: lifetimes of a proxy's cache as a ``map``.

``proxy_cache_valid`` takes no variables [1]_: a lifetime per URL cannot stand there. What nginx obeys before
it, and before Cache-Control and Expires, is the response header ``X-Accel-Expires``, in seconds. So the file
is a map [2]_ from the request to its lifetime, and a server between cache and origin sets the header by it::

    http {
        include lifetimes.conf;                      # this file
        proxy_cache_path /var/cache/nginx keys_zone=fresh:100m inactive=365d;
        server {                                     # between cache and origin
            listen unix:/run/nginx-origin.sock;
            location / {
                proxy_pass http://origin;
                add_header X-Accel-Expires $freshopt_lifetime always;
            }
        }
        server {
            listen 80;
            location / {
                proxy_pass http://unix:/run/nginx-origin.sock;
                proxy_set_header Host $host;
                proxy_cache fresh;
                proxy_cache_valid 200 301 404 365d;  # what has no line: never fetched again
            }
        }
    }

A source's name is the text of its request, ``/path?query`` as the client sends it; `key` says otherwise, such
as ``$host$request_uri``. A lifetime of 0 is not cached. Names stand in quotes; what begins like a keyword or
an expression of a map gets a backslash, and any other backslash and quote its own.

References
----------
.. [1] https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_valid
.. [2] https://nginx.org/en/docs/http/ngx_http_map_module.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.tools.cache_control import UNWRITABLE
from freshopt.tools.whole_seconds import LifetimeFormat

VARIABLE = "$freshopt_lifetime"
_KEY = re.compile(r"(?:\$[a-z_]+|[A-Za-z0-9:/._-])+")
# Octets of a name beyond which nginx would not read the line: its buffer of a token holds 4096.
_LONGEST = 2000
_KEYWORDS = ("default", "hostnames", "include", "volatile")


@dataclass(frozen=True, slots=True)
class Nginx(LifetimeFormat):
    """File with a map from requests to lifetimes, in seconds.

    Parameters
    ----------
    key : str
        What of a request is the source's name, in nginx's variables.
    """

    key: str = "$request_uri"
    tool: ClassVar[str] = "nginx's X-Accel-Expires"
    file: ClassVar[str] = "lifetimes.conf"
    refusal: ClassVar[str] = (
        f"is empty, longer than {_LONGEST} octets, or has a control character. No request in nginx is called "
        "so. Rename it."
    )

    def holds(self, names: polars.Series) -> polars.Series:
        """Return whether requests can be called so."""
        return ~names.str.contains(UNWRITABLE) & names.str.len_bytes().is_between(1, _LONGEST)

    def line(self) -> polars.Expr:
        """Return entries of the map."""
        return polars.format("    {} {};\n", _quoted(polars.col("name")), "seconds")

    def around(self, names: polars.Series, lines: int) -> tuple[str, str]:
        """Return the begin and the end of the map."""
        if not _KEY.fullmatch(self.key) or "$" not in self.key:
            raise SourceDataError(
                f"the key {self.key!r} names no variables of nginx. Write such as $request_uri or "
                "$host$request_uri."
            )
        # A map compares strings in lower case, of ASCII.
        alike = names.filter(names.str.to_lowercase().is_duplicated())
        if len(alike):
            raise SourceDataError(
                f"source {list_offenders(map(repr, alike))} differ in large and small letters only, which a "
                "map of nginx does not tell apart. Keep one of them."
            )
        longest: Any = names.str.len_bytes().max()
        bucket = 64 * -(-(longest + 32) // 64)
        head = f"map_hash_bucket_size {bucket};\nmap_hash_max_size {max(2048, 4 * lines)};\n"
        return f"{head}map {self.key} {VARIABLE} {{\n", "}\n"


def _quoted(name: polars.Expr) -> polars.Expr:
    r"""Return names as source values of a map.

    Examples
    --------
    >>> import polars
    >>> names = polars.Series(['/a "b"?c=$1', "~x", "default", "a\\b"])
    >>> print(*polars.select(_quoted(polars.lit(names))).to_series().to_list())
    "/a \"b\"?c=$1" "\\~x" "\\default" "a\\b"
    """
    marked = polars.when(name.str.contains(r"^[~\\]") | name.is_in(_KEYWORDS)).then(
        polars.format("\\{}", name)
    )
    escaped = marked.otherwise(name).str.replace_all("\\", r"\\", literal=True)
    return polars.format('"{}"', escaped.str.replace_all('"', r"\"", literal=True))

"""Formats of access logs, and patterns of any other.

A pattern is written as the server's own configuration has it: log_format of nginx [1]_, or LogFormat of
Apache [2]_, which Varnish [3]_ understands too. The known formats are patterns as well, and so is the line
``#Fields`` of a W3C log (CloudFront, IIS). Of JSON the keys tell: nested ones are written with dots, as in
Caddy's ``request.uri``. What a variable, directive, field or key holds stands once, in `HELD`.

References
----------
.. [1] https://nginx.org/en/docs/http/ngx_http_log_module.html
.. [2] https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#formats
.. [3] https://varnish-cache.org/docs/trunk/reference/varnishncsa.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from freshopt.errors import SourceDataError

# What may be read of a line, and how it looks in text.
_QUOTED = r'(?:[^"\\]|\\.)*'
LOOKS: Mapping[str, str] = {
    "host": r"[^\s:\[]+|\[[0-9A-Fa-f:]+\]",
    "port": r"[0-9]+",
    "client": r"\S+",
    "local": r'[^\]"]+',
    "moment": r"\S+",
    "day": r"[0-9-]{10}",
    "clock": r"[0-9:.]{8,}",
    "request": _QUOTED,
    "method": r"\S+",
    "url": r"\S+",
    "query": r"\S*",
    "status": r"-?[0-9]+",
    "bytes": r"[0-9]+|-",
    "agent": _QUOTED,
    "cache": r"\w+|-",
    "edge": r"\S+",
    "hash": r"\S+",
    # Anything may follow; the second of the texts in quotes is the agent.
    "rest": rf' "{_QUOTED}" "(?P<agent>{_QUOTED})".*| .*|',
}
# Its names: of nginx's variables, Apache's directives, W3C fields and keys of JSON. Where a log has several,
# the first is read.
_NAMES = {
    "host": "host http_host server_name v V {Host}i x-host-header cs(Host) cs-host request.host RequestHost",
    "port": "server_port p",
    "client": (
        "remote_addr h a {c}a c-ip request.remote_ip remote_ip client_ip ClientHost httpRequest.remoteIp"
    ),
    "local": "time_local t",
    "moment": "time_iso8601 msec {sec}t {msec}t {usec}t timestamp @timestamp ts StartUTC time",
    "day": "date",
    "request": "request r",
    "method": "request_method m cs-method request.method method RequestMethod httpRequest.requestMethod",
    "url": (
        "request_uri uri U cs-uri-stem request.uri request.url RequestPath url path httpRequest.requestUrl"
    ),
    "query": "q cs-uri-query",
    "status": "status s sc-status DownstreamStatus httpRequest.status",
    "bytes": "body_bytes_sent bytes_sent b B O",
    "agent": (
        "http_user_agent {User-Agent}i {User-agent}i cs(User-Agent) user_agent request.headers.User- "
        "Agent.0 request_User-Agent httpRequest.userAgent"
    ),
    "cache": "upstream_cache_status cache_status x-edge-result-type",
    "edge": "x-edge-location",
    "hash": "digest",
    "rest": "rest",
}
HELD: Mapping[str, tuple[str, ...]] = {field: tuple(names.split()) for field, names in _NAMES.items()}
_FIELD = {name: field for field, names in HELD.items() for name in names}
_IN_TEXT_ONLY = ("day", "hash", "port", "bytes", "rest")
_BLANKS = r"\s+"
# A variable of nginx's; a directive of Apache's, with its modifiers.
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})|%[!0-9,]*[<>]?(\{[^}]*\}\^?)?([A-Za-z])")


_REQUEST = '$remote_addr $user[$time_local] "$request" $status $body_bytes_sent$rest'
# Patterns of known formats. A line is read by the first that it matches.
FORMATS = (
    # Common or combined, with the host and without.
    f"$host:$server_port {_REQUEST}",
    _REQUEST,
    # Squid.
    "$msec $duration $remote_addr $cache_status/$status $bytes_sent $request_method $uri $more",
    # Heritrix.
    "$time_iso8601 $status $size $uri $path $via $type $thread $began $digest $more",
)
KNOWN = "of nginx or Apache (common, combined, JSON), Caddy, Squid, Varnish, CloudFront (W3C) or Heritrix"


def expression(pattern: str) -> str:
    r"""Return the regular expression of a pattern.

    It has a named group for each thing that is read.

    Examples
    --------
    >>> expression("%h %t %U")
    '^(?P<client>\\S+)\\s+\\[(?P<local>[^\\]"]+)\\]\\s+(?P<url>\\S+)(?:\\s.*)?$'
    """
    text = re.sub(r"%[<>]?t", r"[\g<0>]", _pasted(pattern.strip()))
    made, at, told = "", 0, set[str]()
    for found in _VARIABLE.finditer(text):
        name = found[1] or found[2] or f"{(found[3] or '').rstrip('^')}{found[4]}"
        field = "local" if name.startswith("{%") else _FIELD.get(name)
        made += _literal(text[at : found.start()]) + _group(field, told, ".*?")
        at = found.end()
    if not tells_requests(told):
        raise SourceDataError(
            f"the pattern {pattern!r} does not say where the request stands ($request or $request_uri; %r "
            "or %U), or when it was ($time_local; %t). Copy the one of the server, log_format of nginx or "
            "LogFormat of Apache."
        )
    return f"^{made}{_literal(text[at:])}(?:\\s.*)?$"


def w3c_expression(line: str) -> str | None:
    """Return the expression of lines below a line ``#Fields``, or None."""
    names = line.partition(":")[2].split()
    first: dict[str, str] = {}
    for name in names:
        field = "clock" if name == "time" else _FIELD.get(name)
        if field and (field not in first or HELD[field].index(name) < HELD[field].index(first[field])):
            first[field] = name
    fields = {name: field for field, name in first.items()}
    told = set[str]()
    groups = [_group(fields.get(name), told, r"\S+") for name in names]
    return rf"^{_BLANKS.join(groups)}\s*$" if tells_requests(told) else None


def json_places(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the keys to each thing that is read of objects.

    Examples
    --------
    >>> json_places([{"ts": 1.5, "request": {"uri": "/a"}, "status": 200}])
    {'moment': ['ts'], 'url': ['request', 'uri'], 'status': ['status']}
    """
    found = {}
    for name, field in _FIELD.items():
        if field in found or field in _IN_TEXT_ONLY:
            continue
        path = [name] if any(name in each for each in objects) else name.split(".")
        if any(isinstance(held_at(each, path), str | int | float) for each in objects):
            found[field] = path
    return found


def held_at(value: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - what JSON holds
    """Return what stands at a path of keys, None where nothing does."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        else:
            value = value[0] if isinstance(value, list) and value and key == "0" else None
    return value


def tells_requests(fields: Collection[str]) -> bool:
    """Return whether what lines hold are requests with their times."""
    timed = "moment" in fields or "local" in fields or {"day", "clock"} <= {*fields}
    return timed and ("url" in fields or "request" in fields)


def _group(field: str | None, told: set[str], other: str) -> str:
    """Return the group of what is read, added to what is told.

    A thing is read once; of all else it is the `other` expression.
    """
    look = LOOKS.get(field or "", "")
    groups = {field, *re.findall(r"\?P<(\w+)>", look)}
    if field is None or groups & told:
        return other
    told.update(each for each in groups if each)
    return f"(?P<{field}>{look})"


def _literal(text: str) -> str:
    """Return the expression of text, whose blanks may be wider."""
    return _BLANKS.join(re.escape(part) for part in re.split(r"\s+", text))


def _pasted(text: str) -> str:
    """Return the pattern of a whole directive, without name and quotes."""
    if text.startswith("log_format"):
        return "".join(re.findall(r"'((?:[^'\\]|\\.)*)'", text))
    if text.startswith("LogFormat"):
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)[:1])
    return text.replace('\\"', '"')

"""Validation of the parameters of federation: upstreams and upstream sets (RabbitMQ, Federation Reference)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from leveret.control.validation import rules
from leveret.control.validation.erlang import term
from leveret.control.validation.rules import Rule, complaints

SCHEMES: Final = ("amqp", "amqps")


def upstream(name: str, value: object) -> list[str]:
    """Validate a parameter of the component federation-upstream; return complaints."""
    return complaints(name, {"uri": Rule(_uri, mandatory=True), **_SHARED}, value)


def upstream_set(name: str, value: object) -> list[str]:
    """Validate a parameter of the component federation-upstream-set: a list of upstreams, each with its overrides.

    An empty table counts as an empty list.
    """
    if value == {}:
        return []
    if not isinstance(value, list):
        return [f"{name} should be list, actually was {term(value)}"]
    fields = {"upstream": Rule(rules.text, mandatory=True), **_SHARED}
    return [complaint for item in value for complaint in complaints(name, fields, item)]


def _uri(name: str, value: object) -> str:
    if isinstance(value, list):
        return next((complaint for item in value if (complaint := _uri(name, item))), "")
    if not isinstance(value, str):
        return f"{name} should be list, actually was {term(value)}"
    trouble = _trouble(value)
    return f'"{value}" not a valid URI: {{{trouble},{_characters(value)}}}' if trouble else ""


def _trouble(uri: str) -> str:
    """Return why a text is not a broker's URI, in RabbitMQ's words where they are short, "" if it is one."""
    scheme, mark, _ = uri.partition("://")
    if not mark:
        return "{unable_to_parse_uri,no_scheme}"
    if scheme not in SCHEMES:
        return f"{{unexpected_uri_scheme,{_characters(scheme)}}}"
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        found = re.search(r":(\d+)(?:[/?]|$)", uri)
        return f"{{port_out_of_range,{found[1]}}}" if found else f'{{unable_to_parse_uri,"{error}"}}'
    if port == 0:
        return "{port_out_of_range,0}"
    path = parts.path.removeprefix("/")
    if "/" in path:
        return f"{{invalid_vhost,{_characters(path)}}}"
    if any(not _is_escaped(part) for part in (path, parts.username or "", parts.password or "")):
        return f"{{invalid_entity,{_characters(path)}}}"
    return _query_trouble(parse_qsl(parts.query, keep_blank_values=True), scheme == "amqps")


def _query_trouble(query: list[tuple[str, str]], has_tls: bool) -> str:
    """Return what is wrong with the query part of a URI; unknown parameters are ignored."""
    known = [("invalid_amqp_params_parameter", _PARAMETERS), ("invalid_ssl_parameter", _TLS if has_tls else {})]
    for kind, fields in known:
        for name, value in query:
            trouble = fields[name](value) if name in fields else ""
            if trouble:
                said = ",".join(f"{{{_characters(each)},{_characters(text)}}}" for each, text in query)
                return f"{{{kind},{name},{_characters(value)},[{said}],{trouble}}}"
    return ""


def _integer(value: str) -> str:
    return "" if re.fullmatch(r"[+-]?\d+", value, re.ASCII) else f"{{not_an_integer,{_characters(value)}}}"


def _boolean(value: str) -> str:
    return "" if value in ("true", "false") else f"{{require_boolean,{value}}}"


def _is_escaped(part: str) -> bool:
    """Return whether each % is followed by two hexadecimal digits."""
    return b"%" not in unquote_to_bytes(part.replace("%25", ""))


def _characters(text: str) -> str:
    return f'"{text}"' if text else "[]"


_PARAMETERS: Final = {"heartbeat": _integer, "connection_timeout": _integer, "channel_max": _integer}
_TLS: Final = {"depth": _integer, "fail_if_no_peer_cert": _boolean}
_SHARED: Final[dict[str, Rule]] = {
    "exchange": Rule(rules.text),
    "queue": Rule(rules.text),
    "consumer-tag": Rule(rules.text),
    "prefetch-count": Rule(rules.number),
    "reconnect-delay": Rule(rules.number),
    "max-hops": Rule(rules.number),
    "expires": Rule(rules.number),
    "message-ttl": Rule(rules.number),
    "trust-user-id": Rule(rules.boolean),
    "ack-mode": Rule(rules.one_of("no-ack", "on-publish", "on-confirm")),
    "resource-cleanup-mode": Rule(rules.one_of("default", "never")),
    "ha-policy": Rule(rules.text),
    "bind-nowait": Rule(rules.boolean),
    "channel-use-mode": Rule(rules.one_of("multiple", "single")),
    "queue-type": Rule(rules.one_of("classic", "quorum")),  # from 3.13.1 on
}

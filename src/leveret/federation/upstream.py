"""An upstream: the settings of its runtime parameter, in effect for one exchange (RabbitMQ, Federation Reference)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from leveret.client.protocol.url import Address, parse_url
from leveret.wire.table import Value

ON_CONFIRM: Final = "on-confirm"
ON_PUBLISH: Final = "on-publish"
NO_ACK: Final = "no-ack"
MULTIPLE: Final = "multiple"
SINGLE: Final = "single"
NEVER: Final = "never"
DAY_S: Final = 86400
# Values that no field of the protocol can hold become the nearest possible one. Times below zero stay so: the upstream
# refuses them, and no message counts as overdue.
_PREFETCH_MAX: Final = 65535
_NUMBER_MAX: Final = (1 << 31) - 1
_SECRETS: Final = re.compile(r"(?<=[?&])password=[^&#]*&?")


class UpstreamAddress(NamedTuple):
    """An address of an upstream. shown: its URI without credentials."""

    address: Address
    shown: str


@dataclass(frozen=True)
class Upstream:
    """The settings of an upstream for one exchange.

    Attributes:
        name: Of the parameter.
        uris: One is chosen at random for each connection; kept out of repr because of their passwords.
        exchange: Its name on the upstream.
        expires_ms, message_ttl_ms: Of the upstream queue, None = not set.
    """

    name: str
    uris: tuple[str, ...] = field(repr=False)
    exchange: str
    prefetch_count: int = 1000
    reconnect_delay_s: float = 5
    ack_mode: str = ON_CONFIRM
    trust_user_id: bool = False
    max_hops: int = 1
    expires_ms: int | None = None
    message_ttl_ms: int | None = None
    queue_type: str = "classic"
    bind_nowait: bool = False
    resource_cleanup_mode: str = "default"
    channel_use_mode: str = MULTIPLE


def upstream_of(name: str, settings: dict[str, Value], exchange: str) -> Upstream:
    """The upstream that a validated parameter describes, for a federated exchange of this name.

    settings: the parameter's value, overridden by what a set says.
    """
    uri = settings.get("uri", [])
    uris = tuple(str(each) for each in uri) if isinstance(uri, list) else (str(uri),)

    def number(key: str, default: int, least: int = 0, most: int = _NUMBER_MAX) -> int:
        value = settings.get(key)
        return max(least, min(int(value), most)) if isinstance(value, int | float) else default

    def text(key: str, default: str) -> str:
        value = settings.get(key)
        return value if isinstance(value, str) else default

    delay = settings.get("reconnect-delay")
    return Upstream(
        name=name,
        uris=uris,
        exchange=text("exchange", exchange),
        prefetch_count=number("prefetch-count", 1000, most=_PREFETCH_MAX),
        reconnect_delay_s=max(0.0, min(float(delay), DAY_S)) if isinstance(delay, int | float) else 5.0,
        ack_mode=text("ack-mode", ON_CONFIRM),
        trust_user_id=settings.get("trust-user-id") is True,
        max_hops=number("max-hops", 1),
        expires_ms=number("expires", 0, -1) if "expires" in settings else None,
        message_ttl_ms=number("message-ttl", 0, -1) if "message-ttl" in settings else None,
        queue_type=text("queue-type", "classic"),
        bind_nowait=settings.get("bind-nowait") is True,
        resource_cleanup_mode=text("resource-cleanup-mode", "default"),
        channel_use_mode=text("channel-use-mode", MULTIPLE),
    )


def places(uris: tuple[str, ...], vhost: str) -> tuple[list[UpstreamAddress], str]:
    """The places that these URIs lead to, and what is wrong with the first unusable URI, "" if all are usable.

    vhost: used where a URI names none; that of the federated exchange.
    """
    found: list[UpstreamAddress] = []
    trouble = ""
    for uri in uris:
        shown = without_credentials(uri)
        try:
            address = parse_url(uri)
        except ValueError as error:
            trouble = trouble or f"{shown}: {error}"
            continue
        if urlsplit(uri).path in ("", "/"):
            address = replace(address, vhost=vhost)
        found.append(UpstreamAddress(address, shown))
    return found, trouble or ("" if uris else "the upstream has no URI")


def without_credentials(uri: str) -> str:
    """A URI without user, password and the password of a key, so that it may be shown."""
    scheme, mark, rest = uri.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    at = rest.rfind("@", 0, end)
    if at < 0 and "@" in rest:
        at = rest.rfind("@")  # a password with an unescaped slash: better to show too little than a part of it
    return _SECRETS.sub("", f"{scheme}{mark}{rest[at + 1 :]}").rstrip("?&")

"""What a link's things are called, on the upstream and here (as RabbitMQ's links call theirs)."""

from __future__ import annotations

from hashlib import blake2s
from typing import Final

QUEUE_PURPOSE: Final = "x-internal-purpose"
PURPOSE: Final = "federation"
UPSTREAM_KIND: Final = "x-federation-upstream"
BOUND_FROM: Final = "x-bound-from"
RECEIVED_FROM: Final = "x-received-from"


def upstream_queue(upstream_exchange: str, upstream_vhost: str, cluster: str, vhost: str, exchange: str) -> str:
    """The upstream queue of a federated exchange. cluster: the name of the downstream; vhost: the downstream's."""
    name = f"federation: {upstream_exchange} -> {cluster}"
    if upstream_vhost != vhost:
        return f"{name}:{vhost}:{exchange}"
    return name if upstream_exchange == exchange else f"{name}:{exchange}"


def internal_exchange(queue: str, suffix: str) -> str:
    """The exchange between the upstream exchange and the upstream queue; suffix: A or B, in turns."""
    return f"{queue} {suffix}"


def connection_name(upstream: str, policy: str) -> str:
    """What the link's connections are called, on both sides."""
    return f"Federation link (upstream: {upstream}, policy: {policy})"


def link_id(vhost: str, exchange: str, upstream: str) -> str:
    """Eight hexadecimal digits that stay the same as long as the three do."""
    text = "\0".join((vhost, exchange, upstream))
    return blake2s(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()

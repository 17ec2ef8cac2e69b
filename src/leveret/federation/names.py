"""Names of a link's objects, upstream and here (the same as RabbitMQ's)."""

from __future__ import annotations

from hashlib import blake2s
from typing import Final

QUEUE_PURPOSE: Final = "x-internal-purpose"
PURPOSE: Final = "federation"
UPSTREAM_KIND: Final = "x-federation-upstream"
BOUND_FROM: Final = "x-bound-from"
RECEIVED_FROM: Final = "x-received-from"


def upstream_queue(upstream_exchange: str, upstream_vhost: str, cluster: str, vhost: str, exchange: str) -> str:
    """The upstream queue of a federated exchange. cluster, vhost: of the downstream."""
    name = f"federation: {upstream_exchange} -> {cluster}"
    if upstream_vhost != vhost:
        return f"{name}:{vhost}:{exchange}"
    return name if upstream_exchange == exchange else f"{name}:{exchange}"


def internal_exchange(queue: str, suffix: str) -> str:
    """The exchange between the upstream exchange and the upstream queue; suffix: A or B, in turns."""
    return f"{queue} {suffix}"


def connection_name(upstream: str, policy: str) -> str:
    """The name of the link's connections, on both sides."""
    return f"Federation link (upstream: {upstream}, policy: {policy})"


def link_id(vhost: str, exchange: str, upstream: str) -> str:
    """A link's id: eight hexadecimal digits that depend on these three only."""
    text = "\0".join((vhost, exchange, upstream))
    return blake2s(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()

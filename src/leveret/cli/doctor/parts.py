"""The table of what is requested from a broker, by RabbitMQ's HTTP API or leveret's control socket.

The answers of both have the same form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

CERTIFICATE_DAYS: Final = 30
STATISTICS: Final = "statistics"
"""A pseudo-part that checks need if they use message counts: RabbitMQ can run without statistics."""


@dataclass(frozen=True)
class StatePart:
    """A part of the broker's state.

    Attributes:
        path: in the HTTP API, below /api.
        command, fields: on the control socket; "" if it has no such command.
        columns: the fields needed of each row; () for all.
        is_paged: whether RabbitMQ returns it in pages.
        is_counted: whether it is sampled twice, for rates.
    """

    path: str
    command: str
    fields: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    is_paged: bool = False
    is_counted: bool = False


_STATS: Final = (
    "message_stats.publish",
    "message_stats.confirm",
    "message_stats.ack",
    "message_stats.deliver_get",
    "message_stats.redeliver",
    "message_stats.drop_unroutable",
    "message_stats.return_unroutable",
    "message_stats.publish_in",
    "message_stats.publish_out",
)

PARTS: Final[dict[str, StatePart]] = {
    "overview": StatePart("overview", "overview", is_counted=True),
    "nodes": StatePart("nodes", "list_nodes"),
    "vhosts": StatePart("vhosts", "list_vhosts", columns=("name", *_STATS)),
    "queues": StatePart("queues", "list_queues", is_paged=True, is_counted=True, columns=(
        "name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "policy",
        "effective_policy_definition", "consumers", "messages", "messages_ready", "messages_unacknowledged",
        "message_bytes", "message_bytes_persistent", *_STATS)),
    "exchanges": StatePart("exchanges", "list_exchanges", is_paged=True, columns=(
        "name", "vhost", "type", "durable", "internal", "arguments", "policy", *_STATS)),
    "bindings": StatePart("bindings", "list_bindings", columns=(
        "source", "vhost", "destination", "destination_type", "routing_key")),
    "connections": StatePart("connections", "list_connections", is_paged=True, columns=(
        "name", "user", "user_provided_name", "peer_host", "ssl", "state", "channels", "channel_max", "timeout", "type",
        "vhost")),
    "channels": StatePart("channels", "list_channels", is_paged=True, is_counted=True, columns=(
        "name", "vhost", "user", "confirm", "transactional", "consumer_count", "global_prefetch_count", "idle_since",
        "messages_unacknowledged", "messages_unconfirmed", "oldest_unacknowledged_ms", "connection_details.name",
        "connection_details.peer_host", *_STATS)),
    "consumers": StatePart("consumers", "list_consumers", columns=(
        "consumer_tag", "queue", "ack_required", "prefetch_count", "exclusive", "arguments", "channel_details.name",
        "channel_details.user", "channel_details.peer_host")),
    "policies": StatePart("policies", "list_policies"),
    "operator_policies": StatePart("operator-policies", "list_operator_policies"),
    "users": StatePart("users", "list_users"),
    "permissions": StatePart("permissions", "list_permissions"),
    "parameters": StatePart("parameters", "list_parameters"),
    "links": StatePart("federation-links", "federation_status", is_counted=True),
    "feature_flags": StatePart("feature-flags", "list_feature_flags"),
    "deprecated": StatePart("deprecated-features/used", ""),
    "delayed": StatePart("delayed", "list_delayed"),
    "certificates": StatePart(f"health/checks/certificate-expiration/{CERTIFICATE_DAYS}/days", "health_check",
                         {"check": "certificate-expiration", "argument": CERTIFICATE_DAYS, "unit": "days"}),
}  # fmt: skip

"""Commands that list queues, exchanges, bindings, connections, channels, consumers and virtual hosts.

The columns are rabbitmqctl's; the answers' fields are the HTTP API's. Columns without meaning in leveret are empty.
"""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import AnswerTable, Option, PositionalArgument, Row, Spec, TableColumn, columns
from leveret.cli.ctl.times import local_time

GROUP: Final = "Monitoring and health checks"
COLUMNS: Final = (PositionalArgument("column", "columns", "columns", is_optional=True),)


def _empty(row: Row) -> object:
    """Return the value of a rabbitmqctl column that has no meaning in leveret."""
    return ""


def _zero(row: Row) -> object:
    return 0


def _protocol(row: Row) -> object:
    """Return the protocol as an Erlang tuple."""
    return "{0,9,1}" if row.get("protocol") == "AMQP 0-9-1" else row.get("protocol")


QUEUES: Final = columns(
    "name", "durable", "auto_delete", "arguments", "policy", "pid", "owner_pid", "state", "type",
    "exclusive_consumer_tag", "messages", "messages_ready", "messages_unacknowledged", "messages_ram",
    "messages_ready_ram", "messages_unacknowledged_ram", "messages_persistent", "message_bytes", "message_bytes_ready",
    "message_bytes_unacknowledged", "message_bytes_ram", "message_bytes_persistent", "head_message_timestamp",
    "consumers", "memory", "members", "online", "leader",
    consumer_utilisation=lambda row: row.get("consumer_utilisation") or 0,
    consumer_capacity=lambda row: row.get("consumer_capacity") or row.get("consumer_utilisation") or 0,
    exclusive=lambda row: "" if row["type"] == "stream" else row["exclusive"],
    disk_reads=_zero, disk_writes=_zero, exclusive_consumer_pid=_empty, slave_pids=_empty,
    synchronised_slave_pids=_empty,
)  # fmt: skip
STREAMS: Final = columns(
    "name", "messages", "first_offset", "next_offset", "committed_offset", "sealed_offset", "retention_offset",
    "octets", "file_octets", "tail_octets", "segments", "oldest_ms", "newest_ms", "consumers", "unacknowledged", "lag",
    "policy", "operator_policy", "max_length_bytes", "max_age_s", "max_segment_size_bytes", "arguments",
    "write_errors", "creation", "state",
    oldest=lambda row: local_time(row["oldest_ms"]), newest=lambda row: local_time(row["newest_ms"]),
)
EXCHANGES: Final = columns("name", "type", "durable", "auto_delete", "internal", "arguments", "policy")
BINDINGS: Final = columns(
    source_name="source", source_kind=lambda row: "exchange", destination_name="destination",
    destination_kind="destination_type", routing_key="routing_key", arguments="arguments",
)  # fmt: skip
CONNECTIONS: Final = columns(
    "pid", "name", "port", "host", "peer_port", "peer_host", "auth_mechanism", "user", "vhost", "timeout",
    "frame_max", "channel_max", "client_properties", "recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend",
    "connected_at", "state", "channels", ssl=lambda row: bool(row.get("ssl", False)), protocol=_protocol,
    ssl_protocol="ssl_protocol", ssl_key_exchange="ssl_key_exchange",
    ssl_cipher="ssl_cipher", ssl_hash="ssl_hash", peer_cert_subject="peer_cert_subject",
    peer_cert_issuer="peer_cert_issuer", peer_cert_validity="peer_cert_validity",
)  # fmt: skip
CHANNELS: Final = columns(
    "pid", "name", "number", "user", "vhost", "transactional", "confirm", "consumer_count", "messages_unacknowledged",
    "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed", "prefetch_count", "global_prefetch_count",
    connection="connection",
)  # fmt: skip
CONSUMERS: Final = (
    TableColumn("queue_name", "queue.name"),
    *columns(
        "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "activity_status", "arguments",
    ),
)  # fmt: skip
VHOSTS: Final = columns(
    "name", "description", "tags", "tracing",
    default_queue_type=lambda row: row.get("default_queue_type", "undefined"),
    cluster_state=lambda row: row.get("cluster_state", {}),
)  # fmt: skip

SPECS: Final = (
    Spec(
        "list_queues", GROUP, "List queues and their properties.", COLUMNS,
        (Option("online", "", "flag"), Option("local", "", "flag")),
        takes_vhost=True, banner="Timeout: {timeout_s} seconds ...\nListing queues for vhost {vhost} ...",
        show=AnswerTable(QUEUES, ("name", "messages"), is_streamed=True, takes_columns=True),
    ),
    Spec(
        "list_streams", GROUP, "List streams: offsets, files, timestamps and consumer lag.", COLUMNS,
        takes_vhost=True, banner="Listing streams for vhost {vhost} ...",
        show=AnswerTable(
            STREAMS, ("name", "messages", "first_offset", "next_offset", "octets", "segments", "consumers", "lag"),
            is_streamed=True, takes_columns=True,
        ),
        is_ours=True,
    ),
    Spec(
        "list_exchanges", GROUP, "List exchanges.", COLUMNS, takes_vhost=True,
        banner="Listing exchanges for vhost {vhost} ...",
        show=AnswerTable(EXCHANGES, ("name", "type"), is_streamed=True, takes_columns=True),
    ),
    Spec(
        "list_bindings", GROUP, "List bindings.", COLUMNS, takes_vhost=True,
        banner="Listing bindings for vhost {vhost}...",
        show=AnswerTable(BINDINGS, tuple(column.name for column in BINDINGS), is_streamed=True, takes_columns=True),
    ),
    Spec(
        "list_connections", GROUP, "List connections.", COLUMNS, banner="Listing connections ...",
        show=AnswerTable(
            CONNECTIONS, ("user", "peer_host", "peer_port", "state"), is_streamed=True, takes_columns=True
        ),
    ),
    Spec(
        "list_channels", GROUP, "List channels.", COLUMNS, banner="Listing channels ...",
        show=AnswerTable(
            CHANNELS, ("pid", "user", "consumer_count", "messages_unacknowledged"), is_streamed=True,
            takes_columns=True,
        ),
    ),
    Spec(
        "list_consumers", GROUP, "List consumers.", COLUMNS, takes_vhost=True,
        banner="Listing consumers in vhost {vhost} ...",
        show=AnswerTable(
            CONSUMERS,
            ("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments"),
            is_streamed=True, takes_columns=True, has_own_order=True,
        ),
    ),
    Spec(
        "list_vhosts", GROUP, "List virtual hosts.", COLUMNS, banner="Listing vhosts ...",
        show=AnswerTable(VHOSTS, ("name",)),
    ),
    Spec(
        "list_unresponsive_queues", GROUP, "List unresponsive queues: always empty, because all queues share the "
                                           "broker's process.",
        COLUMNS, (Option("queue-timeout", "", metavar="ms"),), takes_vhost=True,
        banner="Listing unresponsive queues for vhost {vhost} ...",
        show=AnswerTable(columns("name"), ("name",), is_streamed=True),
    ),
)  # fmt: skip

"""Metrics of the node as a whole that RabbitMQ has, too, under its names (3.10)."""

from __future__ import annotations

from typing import Final

from leveret.control.metrics.metric import MetricGroup, counter, gauge

PROTOCOL: Final = ("protocol",)
BY_TYPE: Final = ("protocol", "queue_type")
BY_STRATEGY: Final = ("queue_type", "dead_letter_strategy")

BUILD: Final = MetricGroup("build_info", ("rabbitmq_version", "leveret_version", "core", "python_version"), (
    gauge("rabbitmq_build_info", "1; the labels say which version this is, and of which RabbitMQ it plays the part."),
))  # fmt: skip

IDENTITY: Final = MetricGroup(
    "identity_info", ("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"), (
        gauge("rabbitmq_identity_info", "1; the labels say the names of node and cluster."),
))  # fmt: skip

ALARMS: Final = MetricGroup("alarms", (), (
    gauge("rabbitmq_alarms_file_descriptor_limit", "1 while all file descriptors are in use."),
    gauge(
        "rabbitmq_alarms_free_disk_space_watermark",
        "1 while the disk is short of room, and publishers are blocked.",
    ),
    gauge("rabbitmq_alarms_memory_used_watermark", "1 while memory is short, and publishers are blocked."),
))  # fmt: skip

TOTALS: Final = MetricGroup("totals", (), (
    gauge("rabbitmq_connections", "Connections that are open."),
    gauge("rabbitmq_channels", "Channels that are open."),
    gauge("rabbitmq_consumers", "Consumers."),
    gauge("rabbitmq_queues", "Queues."),
))  # fmt: skip

CHURN: Final = MetricGroup("connection_churn_metrics", (), (
    counter("rabbitmq_connections_opened_total", "Connections that were opened."),
    counter("rabbitmq_connections_closed_total", "Connections that ended."),
    counter("rabbitmq_channels_opened_total", "Channels that were opened."),
    counter("rabbitmq_channels_closed_total", "Channels that ended."),
    counter("rabbitmq_queues_declared_total", "Declarations of queues, repeated ones included."),
    counter("rabbitmq_queues_created_total", "Queues that came to be."),
    counter("rabbitmq_queues_deleted_total", "Queues that were deleted."),
))  # fmt: skip

NODE_COARSE: Final = MetricGroup("node_coarse_metrics", (), (
    gauge("rabbitmq_process_open_fds", "Open file descriptors of the broker."),
    gauge("rabbitmq_process_open_tcp_sockets", "Sockets: connections and listeners."),
    gauge("rabbitmq_process_resident_memory_bytes", "Memory that the broker has in use."),
    gauge("rabbitmq_disk_space_available_bytes", "Room on the disk of the data directory."),
))  # fmt: skip

NODE: Final = MetricGroup("node_metrics", (), (
    gauge("rabbitmq_process_max_fds", "File descriptors that the broker may have."),
    gauge("rabbitmq_process_max_tcp_sockets", "Sockets that it may have: as many as file descriptors."),
    gauge("rabbitmq_resident_memory_limit_bytes", "Memory from which on publishers are blocked."),
    gauge("rabbitmq_disk_space_available_limit_bytes", "Room on the disk below which publishers are blocked."),
    gauge(
        "rabbitmq_erlang_uptime_seconds",
        "Since the broker began to serve. The name is RabbitMQ's; there is no Erlang.",
    ),
))  # fmt: skip

PERSISTER: Final = MetricGroup("node_persister_metrics", (), (
    counter("rabbitmq_io_sync_ops_total", "Batches of the journal that were synced."),
    counter("rabbitmq_io_sync_time_seconds_total", "What these took."),
    counter("rabbitmq_io_write_ops_total", "Batches of the journal that were written: each is synced."),
    counter("rabbitmq_io_write_bytes_total", "What was in them."),
))  # fmt: skip

ATTEMPTS: Final = MetricGroup("auth_attempt_metrics", PROTOCOL, (
    counter("rabbitmq_auth_attempts_total", "Attempts to log in."),
    counter("rabbitmq_auth_attempts_succeeded_total", "Those that succeeded."),
    counter("rabbitmq_auth_attempts_failed_total", "Those that failed."),
))  # fmt: skip

VHOSTS: Final = MetricGroup("vhost_status", ("vhost",), (
    gauge("rabbitmq_cluster_vhost_status", "1: this virtual host is served."),
))  # fmt: skip

GLOBAL: Final = MetricGroup("global_counters", PROTOCOL, (
    counter("rabbitmq_global_messages_received_total", "Messages that publishers sent."),
    counter("rabbitmq_global_messages_received_confirm_total", "Of these, those to be confirmed."),
    counter("rabbitmq_global_messages_routed_total", "Copies of messages that went to queues."),
    counter("rabbitmq_global_messages_unroutable_dropped_total", "Messages without a route that were dropped."),
    counter("rabbitmq_global_messages_unroutable_returned_total", "Messages without a route that went back."),
    counter("rabbitmq_global_messages_confirmed_total", "Messages that were confirmed."),
    gauge("rabbitmq_global_publishers", "Channels that have published."),
    gauge("rabbitmq_global_consumers", "Consumers."),
))  # fmt: skip

GLOBAL_BY_TYPE: Final = MetricGroup("global_counters_by_type", BY_TYPE, (
    counter("rabbitmq_global_messages_delivered_total", "Messages that went to consumers, by basic.get, too."),
    counter("rabbitmq_global_messages_delivered_consume_manual_ack_total", "To consumers that acknowledge."),
    counter("rabbitmq_global_messages_delivered_consume_auto_ack_total", "To consumers that do not acknowledge."),
    counter("rabbitmq_global_messages_delivered_get_manual_ack_total", "By basic.get, to be acknowledged."),
    counter("rabbitmq_global_messages_delivered_get_auto_ack_total", "By basic.get without acknowledgement."),
    counter("rabbitmq_global_messages_get_empty_total", "Times that basic.get found nothing."),
    counter("rabbitmq_global_messages_redelivered_total", "Deliveries that were not the first of their message."),
    counter("rabbitmq_global_messages_acknowledged_total", "Messages that were acknowledged."),
))  # fmt: skip

DEAD: Final = MetricGroup("global_counters_dead", BY_STRATEGY, (
    counter(
        "rabbitmq_global_messages_dead_lettered_expired_total",
        "Messages whose time in a queue ended; dropped where the strategy is disabled.",
    ),
    counter("rabbitmq_global_messages_dead_lettered_maxlen_total", "Messages that a queue had no room for."),
    counter("rabbitmq_global_messages_dead_lettered_rejected_total", "Messages that consumers rejected."),
    counter("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "Messages that came back too often."),
))  # fmt: skip

NODES: Final = (
    BUILD, IDENTITY, ALARMS, TOTALS, CHURN, NODE_COARSE, NODE, PERSISTER, ATTEMPTS, VHOSTS, GLOBAL, GLOBAL_BY_TYPE,
    DEAD,
)  # fmt: skip

"""Metrics of the node as a whole that RabbitMQ has, too, under its names (3.10)."""

from __future__ import annotations

from typing import Final

from leveret.control.metrics.metric import MetricGroup, counter, gauge

PROTOCOL: Final = ("protocol",)
BY_TYPE: Final = ("protocol", "queue_type")
BY_STRATEGY: Final = ("queue_type", "dead_letter_strategy")

BUILD: Final = MetricGroup("build_info", ("rabbitmq_version", "leveret_version", "core", "python_version"), (
    gauge("rabbitmq_build_info", "Always 1; the labels hold leveret's version and the RabbitMQ version it reports."),
))  # fmt: skip

IDENTITY: Final = MetricGroup(
    "identity_info", ("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"), (
        gauge("rabbitmq_identity_info", "Always 1; the labels hold the names of node and cluster."),
))  # fmt: skip

ALARMS: Final = MetricGroup("alarms", (), (
    gauge("rabbitmq_alarms_file_descriptor_limit", "1 while the broker is out of file descriptors."),
    gauge(
        "rabbitmq_alarms_free_disk_space_watermark",
        "1 while free disk space is too low and publishers are blocked.",
    ),
    gauge("rabbitmq_alarms_memory_used_watermark", "1 while memory use is too high and publishers are blocked."),
))  # fmt: skip

TOTALS: Final = MetricGroup("totals", (), (
    gauge("rabbitmq_connections", "Open connections."),
    gauge("rabbitmq_channels", "Open channels."),
    gauge("rabbitmq_consumers", "Consumers."),
    gauge("rabbitmq_queues", "Queues."),
))  # fmt: skip

CHURN: Final = MetricGroup("connection_churn_metrics", (), (
    counter("rabbitmq_connections_opened_total", "Connections opened."),
    counter("rabbitmq_connections_closed_total", "Connections closed."),
    counter("rabbitmq_channels_opened_total", "Channels opened."),
    counter("rabbitmq_channels_closed_total", "Channels closed."),
    counter("rabbitmq_queues_declared_total", "Queue declarations, including repeated ones."),
    counter("rabbitmq_queues_created_total", "Queues created."),
    counter("rabbitmq_queues_deleted_total", "Queues deleted."),
))  # fmt: skip

NODE_COARSE: Final = MetricGroup("node_coarse_metrics", (), (
    gauge("rabbitmq_process_open_fds", "Open file descriptors of the broker."),
    gauge("rabbitmq_process_open_tcp_sockets", "Open sockets: connections and listeners."),
    gauge("rabbitmq_process_resident_memory_bytes", "Memory used by the broker."),
    gauge("rabbitmq_disk_space_available_bytes", "Free disk space for the data directory."),
))  # fmt: skip

NODE: Final = MetricGroup("node_metrics", (), (
    gauge("rabbitmq_process_max_fds", "Limit of open file descriptors."),
    gauge("rabbitmq_process_max_tcp_sockets", "Limit of open sockets, equal to that of file descriptors."),
    gauge("rabbitmq_resident_memory_limit_bytes", "Memory use above which publishers are blocked."),
    gauge("rabbitmq_disk_space_available_limit_bytes", "Free disk space below which publishers are blocked."),
    gauge(
        "rabbitmq_erlang_uptime_seconds",
        "Time since the broker started serving. The name is RabbitMQ's; leveret has no Erlang.",
    ),
))  # fmt: skip

PERSISTER: Final = MetricGroup("node_persister_metrics", (), (
    counter("rabbitmq_io_sync_ops_total", "Journal batches synced."),
    counter("rabbitmq_io_sync_time_seconds_total", "Time spent syncing the journal."),
    counter("rabbitmq_io_write_ops_total", "Journal batches written; each is synced."),
    counter("rabbitmq_io_write_bytes_total", "Size of the journal batches written."),
))  # fmt: skip

ATTEMPTS: Final = MetricGroup("auth_attempt_metrics", PROTOCOL, (
    counter("rabbitmq_auth_attempts_total", "Login attempts."),
    counter("rabbitmq_auth_attempts_succeeded_total", "Successful login attempts."),
    counter("rabbitmq_auth_attempts_failed_total", "Failed login attempts."),
))  # fmt: skip

VHOSTS: Final = MetricGroup("vhost_status", ("vhost",), (
    gauge("rabbitmq_cluster_vhost_status", "1 if the virtual host is running."),
))  # fmt: skip

GLOBAL: Final = MetricGroup("global_counters", PROTOCOL, (
    counter("rabbitmq_global_messages_received_total", "Messages published."),
    counter("rabbitmq_global_messages_received_confirm_total", "Messages published on channels in confirm mode."),
    counter("rabbitmq_global_messages_routed_total", "Messages routed to queues, counted once per queue."),
    counter("rabbitmq_global_messages_unroutable_dropped_total", "Unroutable messages dropped."),
    counter("rabbitmq_global_messages_unroutable_returned_total", "Unroutable messages returned to publishers."),
    counter("rabbitmq_global_messages_confirmed_total", "Messages confirmed to publishers."),
    gauge("rabbitmq_global_publishers", "Channels on which messages were published."),
    gauge("rabbitmq_global_consumers", "Consumers."),
))  # fmt: skip

GLOBAL_BY_TYPE: Final = MetricGroup("global_counters_by_type", BY_TYPE, (
    counter("rabbitmq_global_messages_delivered_total", "Messages delivered to consumers, including basic.get."),
    counter("rabbitmq_global_messages_delivered_consume_manual_ack_total", "Messages delivered to consumers with "
                                                                           "acknowledgements."),
    counter("rabbitmq_global_messages_delivered_consume_auto_ack_total", "Messages delivered to consumers without "
                                                                         "acknowledgements."),
    counter("rabbitmq_global_messages_delivered_get_manual_ack_total", "Messages fetched with basic.get, to be "
                                                                       "acknowledged."),
    counter("rabbitmq_global_messages_delivered_get_auto_ack_total", "Messages fetched with basic.get, without "
                                                                     "acknowledgement."),
    counter("rabbitmq_global_messages_get_empty_total", "Calls of basic.get that found an empty queue."),
    counter("rabbitmq_global_messages_redelivered_total", "Redelivered messages."),
    counter("rabbitmq_global_messages_acknowledged_total", "Messages acknowledged by consumers."),
))  # fmt: skip

DEAD: Final = MetricGroup("global_counters_dead", BY_STRATEGY, (
    counter(
        "rabbitmq_global_messages_dead_lettered_expired_total",
        "Messages that expired in a queue; with strategy disabled, they were dropped.",
    ),
    counter("rabbitmq_global_messages_dead_lettered_maxlen_total", "Messages removed because of a queue's length "
                                                                   "limit."),
    counter("rabbitmq_global_messages_dead_lettered_rejected_total", "Messages rejected by consumers."),
    counter("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "Messages that exceeded the delivery "
                                                                           "limit."),
))  # fmt: skip

NODES: Final = (
    BUILD, IDENTITY, ALARMS, TOTALS, CHURN, NODE_COARSE, NODE, PERSISTER, ATTEMPTS, VHOSTS, GLOBAL, GLOBAL_BY_TYPE,
    DEAD,
)  # fmt: skip

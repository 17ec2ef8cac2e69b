"""Metrics that RabbitMQ does not have: leveret_..., and process_... with the names of all Prometheus clients."""

from __future__ import annotations

from typing import Final

from leveret.broker.histogram import NUMBERS, OCTETS, TIMES_US
from leveret.control.metrics.metric import MetricGroup, counter, gauge, histogram

S: Final = 1_000_000
STREAM: Final = ("vhost", "stream")
LINK: Final = ("vhost", "exchange", "upstream", "id")

TIMES: Final = MetricGroup("leveret_times", (), (
    histogram(
        "leveret_confirm_latency_seconds",
        "Time from publish to confirm of messages that wait for the disk; messages of one channel in one batch all "
        "count with the time of the oldest.",
        TIMES_US, S,
    ),
    histogram("leveret_journal_batch_bytes", "Size of a journal batch; each batch is one sync.", OCTETS),
    histogram(
        "leveret_journal_batch_events",
        "Durable events per journal batch: publishes and settlements.",
        NUMBERS,
    ),
    histogram("leveret_journal_sync_seconds", "Time to write and sync a journal batch.", TIMES_US, S),
    histogram(
        "leveret_turn_seconds",
        "Time to handle one read of a connection, including routing, deliveries and writes.",
        TIMES_US, S,
    ),
    histogram(
        "leveret_loop_lag_seconds",
        "Delay of the event loop's timers, sampled five times a second.",
        TIMES_US, S,
    ),
    histogram(
        "leveret_delayed_lateness_seconds",
        "Lateness of messages leaving delayed exchanges.",
        TIMES_US, S,
    ),
    histogram(
        "leveret_delay_level_lateness_seconds",
        "Lateness of messages leaving level queues of delay layouts, per level.",
        TIMES_US, S,
    ),
))  # fmt: skip

STORE: Final = MetricGroup("leveret_store", (), (
    gauge("leveret_journal_files", "Journal files."),
    gauge("leveret_journal_bytes", "Size of the journal files, including preallocated space."),
    gauge("leveret_journal_current_bytes", "Bytes written to the current journal file."),
    gauge("leveret_journal_spare_files", "Spare journal files kept for reuse."),
    gauge("leveret_journal_live_messages", "Messages whose only durable copy is in the journal."),
    gauge("leveret_journal_pending_bytes", "Bytes in memory waiting for the next journal batch."),
    gauge("leveret_segment_files", "Page files: messages moved out of memory and journal."),
    gauge("leveret_segment_bytes", "Size of the page files."),
    gauge("leveret_stream_tail_memory_bytes", "Stream data only in memory and the journal."),
))  # fmt: skip

PRESSURE: Final = MetricGroup("leveret_pressure", ("reason",), (
    counter(
        "leveret_pressure_seconds_total",
        "Time that publishers were blocked, by reason: disk (journal, pages), a slow consumer (slow), crowded "
        "queues (fairness), an alarm. docs/reference/back-pressure.md explains them.",
    ),
))  # fmt: skip

PAUSED: Final = MetricGroup("leveret_paused", (), (
    gauge("leveret_paused_connections", "Connections that the broker is not reading from."),
    gauge(
        "leveret_disk_wait_alarm",
        "1 while the disk is too slow: publishers or confirms have waited for it for more than 5 s.",
    ),
))  # fmt: skip

CUT: Final = MetricGroup("leveret_cut", ("reason",), (
    counter(
        "leveret_connections_cut_total",
        "Connections that the broker closed because the client was silent (heartbeat), read nothing (send_timeout), "
        "or let too much data pile up (unread).",
    ),
))  # fmt: skip

REFUSED: Final = MetricGroup("leveret_refused", ("reason",), (
    counter(
        "leveret_connections_refused_total",
        "Connections refused, by reason: not AMQP (protocol), TLS failure (tls), too slow (timeout), failed login, "
        "a limit, unknown virtual host (vhost), no access to it (access).",
    ),
))  # fmt: skip

DISCARDED: Final = MetricGroup("leveret_discarded", ("vhost", "reason"), (
    counter(
        "leveret_messages_discarded_total",
        "Messages discarded, by reason: the cause of death without a dead letter exchange, or the reason why the "
        "dead letter was not routed; unroutable_dropped: published without a route.",
    ),
))  # fmt: skip

REPLIES: Final = MetricGroup("leveret_replies", ("vhost",), (
    counter("leveret_direct_replies_delivered_total", "Direct replies delivered to requesters."),
    counter("leveret_direct_replies_dropped_total", "Direct replies dropped because the requester was gone."),
))  # fmt: skip

PENDING: Final = MetricGroup("leveret_delayed", ("vhost", "layout", "type"), (
    gauge("leveret_delayed_messages", "Messages that are not due yet, in delayed exchanges and level queues."),
    gauge("leveret_delayed_parked_messages", "Delayed messages that are due but have no route."),
))  # fmt: skip

CERTIFICATES: Final = MetricGroup("leveret_certificates", ("file",), (
    gauge("leveret_certificate_expiry_timestamp_seconds", "Expiry time of the TLS listeners' certificate."),
))  # fmt: skip

LINKS: Final = MetricGroup("leveret_federation_states", ("status",), (
    gauge("rabbitmq_federation_links", "Federation links by state; the name is that of RabbitMQ 4."),
))  # fmt: skip

LINK_NUMBERS: Final = MetricGroup("leveret_federation", LINK, (
    gauge("leveret_federation_link_up", "1 while the link is running."),
    counter("leveret_federation_link_messages_total", "Messages received over the link."),
    counter("leveret_federation_link_looped_total", "Messages dropped because they had been here before, or "
                                                    "exceeded max-hops."),
    counter("leveret_federation_link_known_total", "Messages dropped as duplicates after a crash or a broken "
                                                   "connection."),
    counter("leveret_federation_link_buried_total", "Messages dropped because they could not be published here."),
    counter("leveret_federation_link_reconnects_total", "Reconnects of the link."),
    gauge("leveret_federation_link_unacknowledged", "Messages in transit."),
    gauge("leveret_federation_link_lag_messages", "Messages waiting in the upstream queue."),
    gauge("leveret_federation_link_bindings", "Bindings that the link needs upstream."),
    gauge("leveret_federation_link_unbound", "Bindings needed upstream but not created yet."),
))  # fmt: skip

STAGES: Final = MetricGroup("leveret_stages", ("vhost",), (
    gauge("leveret_staged_messages", "Messages in stages, released or not; they are in no queue."),
    gauge("leveret_staged_bytes", "Size of message bodies in stages."),
))  # fmt: skip

QUERIES: Final = MetricGroup("leveret_queries", ("vhost", "query", "title"), (
    gauge("leveret_query_released_batch", "Last batch that the query has released."),
    counter("leveret_query_released_messages_total", "Messages in batches that the query has released."),
    counter("leveret_query_released_bytes_total", "Size of these messages' bodies."),
    gauge("leveret_query_reported_batch", "Last batch that the query has reported."),
    gauge("leveret_query_lag_messages", "Messages of the streams that it reads which the query has not read yet."),
    gauge("leveret_query_report_age_seconds", "Time since the query's last report."),
))  # fmt: skip

STREAMS: Final = MetricGroup("leveret_streams", STREAM, (
    gauge("leveret_stream_messages", "Messages in the stream."),
    gauge("leveret_stream_next_offset", "Offset of the next message."),
    gauge("leveret_stream_committed_offset", "Offset up to which consumers may read."),
    gauge("leveret_stream_file_bytes", "Size of the stream's files."),
    gauge("leveret_stream_tail_bytes", "Stream data only in memory and the journal."),
    gauge("leveret_stream_segments", "Number of the stream's files."),
    gauge("leveret_stream_consumers", "Consumers of the stream."),
    gauge("leveret_stream_lag_messages", "Lag of the slowest consumer, in messages."),
    counter("leveret_stream_write_errors_total", "Failed writes to the stream's files."),
))  # fmt: skip

STREAM_NAMES: Final = MetricGroup("leveret_stream_names", (*STREAM, "consumer"), (
    gauge(
        "leveret_stream_consumer_lag_messages",
        "Messages that the named consumers have not acknowledged yet, whether connected or not.",
    ),
))  # fmt: skip

PROCESS: Final = MetricGroup("process", (), (
    counter("process_cpu_seconds_total", "Processor time of the broker, user and system."),
    gauge("process_resident_memory_bytes", "Memory of the broker."),
    gauge("process_virtual_memory_bytes", "Address space of the broker."),
    gauge("process_open_fds", "Open file descriptors."),
    gauge("process_max_fds", "Limit of open file descriptors."),
    gauge("process_threads", "Threads."),
    gauge("process_start_time_seconds", "Time at which the broker started serving, since 1970."),
))  # fmt: skip

OWN: Final = (
    TIMES, STORE, PRESSURE, PAUSED, CUT, REFUSED, DISCARDED, REPLIES, PENDING, CERTIFICATES, LINKS, LINK_NUMBERS,
    STAGES, QUERIES, STREAMS, STREAM_NAMES, PROCESS,
)  # fmt: skip

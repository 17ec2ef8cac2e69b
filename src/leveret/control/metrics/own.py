"""The metrics that RabbitMQ has not: leveret_..., and process_... as every Prometheus client names them."""

from __future__ import annotations

from typing import Final

from leveret.broker.histogram import NUMBERS, OCTETS, TIMES_US
from leveret.control.metrics.metric import Group, counter, gauge, histogram

S: Final = 1_000_000
STREAM: Final = ("vhost", "stream")
LINK: Final = ("vhost", "exchange", "upstream", "id")

TIMES: Final = Group("leveret_times", (), (
    histogram(
        "leveret_confirm_latency_seconds",
        "From a publish to its confirm, of messages that wait for the disk; of one channel's in one batch all "
        "count with the oldest one's time.",
        TIMES_US, S,
    ),
    histogram("leveret_journal_batch_bytes", "Size of a batch of the journal, which is one sync.", OCTETS),
    histogram(
        "leveret_journal_batch_events",
        "Durable events in a batch of the journal: publishes and settlements.",
        NUMBERS,
    ),
    histogram("leveret_journal_sync_seconds", "Writing and syncing one batch of the journal.", TIMES_US, S),
    histogram(
        "leveret_turn_seconds",
        "One read of a connection with all that follows: routing, deliveries, writes.",
        TIMES_US, S,
    ),
    histogram(
        "leveret_loop_lag_seconds",
        "How late the event loop is for a timer, asked five times a second.",
        TIMES_US, S,
    ),
    histogram(
        "leveret_delayed_lateness_seconds",
        "How long after their time messages left delayed exchanges.",
        TIMES_US, S,
    ),
    histogram(
        "leveret_delay_level_lateness_seconds",
        "The same of the level queues of delay layouts, of each step.",
        TIMES_US, S,
    ),
))  # fmt: skip

STORE: Final = Group("leveret_store", (), (
    gauge("leveret_journal_files", "Files of the journal."),
    gauge("leveret_journal_bytes", "Their lengths; what is written ahead included."),
    gauge("leveret_journal_current_bytes", "What is written in the current file."),
    gauge("leveret_journal_spare_files", "Files kept to be overwritten."),
    gauge("leveret_journal_live_messages", "Messages whose only durable copy is in the journal's files."),
    gauge("leveret_journal_pending_bytes", "What waits in memory to be the next batch."),
    gauge("leveret_segment_files", "Files of messages that were moved out of memory and journal."),
    gauge("leveret_segment_bytes", "Their lengths."),
    gauge("leveret_stream_tail_memory_bytes", "What streams have in memory and in the journal only."),
))  # fmt: skip

PRESSURE: Final = Group("leveret_pressure", ("reason",), (
    counter(
        "leveret_pressure_seconds_total",
        "How long publishers had to wait, by reason: the disk (journal, pages), a consumer that reads slowly "
        "(slow), crowded queues (fairness), an alarm. docs/reference/back-pressure.md tells them apart.",
    ),
))  # fmt: skip

PAUSED: Final = Group("leveret_paused", (), (
    gauge("leveret_paused_connections", "Connections that are not read from at this moment."),
    gauge(
        "leveret_disk_wait_alarm",
        "1 while the disk does not keep up: publishers or confirms have waited for it for more than 5 s.",
    ),
))  # fmt: skip

CUT: Final = Group("leveret_cut", ("reason",), (
    counter(
        "leveret_connections_cut_total",
        "Connections that the broker cut: their client was silent (heartbeat), took nothing of what it was sent "
        "(send_timeout), or had too much waiting (unread).",
    ),
))  # fmt: skip

REFUSED: Final = Group("leveret_refused", ("reason",), (
    counter(
        "leveret_connections_refused_total",
        "Connections that were turned away: no AMQP (protocol), no TLS (tls), too slow (timeout), a wrong login, "
        "a limit, an unknown virtual host (vhost), no permission for it (access).",
    ),
))  # fmt: skip

DISCARDED: Final = Group("leveret_discarded", ("vhost", "reason"), (
    counter(
        "leveret_messages_discarded_total",
        "Messages that are gone, with nobody to have them: by why they died without a dead letter exchange, or "
        "why their dead letter went nowhere; unroutable_dropped: published without a route.",
    ),
))  # fmt: skip

REPLIES: Final = Group("leveret_replies", ("vhost",), (
    counter("leveret_direct_replies_delivered_total", "Direct replies that their requesters got."),
    counter("leveret_direct_replies_dropped_total", "Direct replies that were dropped: their requester was gone."),
))  # fmt: skip

PENDING: Final = Group("leveret_delayed", ("vhost", "layout", "type"), (
    gauge("leveret_delayed_messages", "Messages that wait for their time, in delayed exchanges and level queues."),
    gauge("leveret_delayed_parked_messages", "Of these, those whose time has come and that have no way to go."),
))  # fmt: skip

CERTIFICATES: Final = Group("leveret_certificates", ("file",), (
    gauge("leveret_certificate_expiry_timestamp_seconds", "Until when the certificate of the TLS listeners is valid."),
))  # fmt: skip

LINKS: Final = Group("leveret_federation_states", ("status",), (
    gauge("rabbitmq_federation_links", "Federation links in a state; the name is that of RabbitMQ 4."),
))  # fmt: skip

LINK_NUMBERS: Final = Group("leveret_federation", LINK, (
    gauge("leveret_federation_link_up", "1 while the link is running."),
    counter("leveret_federation_link_messages_total", "Messages that came over the link."),
    counter("leveret_federation_link_looped_total", "Messages dropped since they had been here, or went too far."),
    counter("leveret_federation_link_known_total", "Messages dropped since a crash or a cut brought them twice."),
    counter("leveret_federation_link_buried_total", "Messages dropped since they could not be published here."),
    counter("leveret_federation_link_reconnects_total", "Times that the link connected anew."),
    gauge("leveret_federation_link_unacknowledged", "Messages on their way."),
    gauge("leveret_federation_link_lag_messages", "Messages that wait in the upstream queue."),
    gauge("leveret_federation_link_bindings", "Bindings that the link wants upstream."),
    gauge("leveret_federation_link_unbound", "Of these, those that are not made yet."),
))  # fmt: skip

STAGES: Final = Group("leveret_stages", ("vhost",), (
    gauge("leveret_staged_messages", "Messages in stages, released or not, and so in no queue."),
    gauge("leveret_staged_bytes", "Their bodies."),
))  # fmt: skip

STREAMS: Final = Group("leveret_streams", STREAM, (
    gauge("leveret_stream_messages", "Messages in the stream."),
    gauge("leveret_stream_next_offset", "Offset of the next message."),
    gauge("leveret_stream_committed_offset", "Up to this offset consumers may read."),
    gauge("leveret_stream_file_bytes", "The stream's files."),
    gauge("leveret_stream_tail_bytes", "What is in memory and in the journal only."),
    gauge("leveret_stream_segments", "Files of the stream."),
    gauge("leveret_stream_consumers", "Consumers of the stream."),
    gauge("leveret_stream_lag_messages", "Messages behind its slowest consumer."),
    counter("leveret_stream_write_errors_total", "Writes to the stream's files that failed."),
))  # fmt: skip

STREAM_NAMES: Final = Group("leveret_stream_names", (*STREAM, "consumer"), (
    gauge(
        "leveret_stream_consumer_lag_messages",
        "Messages behind what the consumers of a name have acknowledged, whether one is there or not.",
    ),
))  # fmt: skip

PROCESS: Final = Group("process", (), (
    counter("process_cpu_seconds_total", "Processor time of the broker, user and system."),
    gauge("process_resident_memory_bytes", "Memory of the broker."),
    gauge("process_virtual_memory_bytes", "Address space of the broker."),
    gauge("process_open_fds", "Open file descriptors."),
    gauge("process_max_fds", "File descriptors that it may have."),
    gauge("process_threads", "Threads."),
    gauge("process_start_time_seconds", "When the broker began to serve, since 1970."),
))  # fmt: skip

OWN: Final = (
    TIMES, STORE, PRESSURE, PAUSED, CUT, REFUSED, DISCARDED, REPLIES, PENDING, CERTIFICATES, LINKS, LINK_NUMBERS,
    STAGES, STREAMS, STREAM_NAMES, PROCESS,
)  # fmt: skip

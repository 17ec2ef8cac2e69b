"""Metrics of clients' objects: queues, exchanges, channels, connections. Names are RabbitMQ's (3.10)."""

from __future__ import annotations

from typing import Final

from leveret.control.metrics.metric import MetricGroup, counter, gauge

QUEUE: Final = ("vhost", "queue")

QUEUE_COARSE: Final = MetricGroup("queue_coarse_metrics", QUEUE, (
    gauge("rabbitmq_queue_messages_ready", "Messages ready for delivery."),
    gauge("rabbitmq_queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged."),
    gauge("rabbitmq_queue_messages", "Messages in queues, ready and unacknowledged."),
), of_objects=True)  # fmt: skip

QUEUE_CONSUMERS: Final = MetricGroup("queue_consumer_count", QUEUE, (
    gauge("rabbitmq_queue_consumers", "Consumers of queues."),
), of_objects=True)  # fmt: skip

QUEUE_DETAILS: Final = MetricGroup("queue_metrics", QUEUE, (
    gauge("rabbitmq_queue_consumer_capacity", "1 if consumers can receive messages immediately, 0 if messages wait."),
    gauge("rabbitmq_queue_consumer_utilisation", "Same as consumer capacity, under its older name."),
    gauge("rabbitmq_queue_process_memory_bytes", "Approximate memory used by queues and their messages."),
    gauge("rabbitmq_queue_messages_ram", "Messages in memory."),
    gauge("rabbitmq_queue_messages_ram_bytes", "Size of message bodies in memory."),
    gauge("rabbitmq_queue_messages_ready_ram", "Ready messages in memory."),
    gauge("rabbitmq_queue_messages_unacked_ram", "Unacknowledged messages in memory."),
    gauge("rabbitmq_queue_messages_persistent", "Persistent messages, estimated from the oldest ones."),
    gauge("rabbitmq_queue_messages_persistent_bytes", "Size of persistent message bodies, estimated."),
    gauge("rabbitmq_queue_messages_bytes", "Size of message bodies in queues, estimated from the oldest ones."),
    gauge("rabbitmq_queue_messages_ready_bytes", "Size of ready message bodies, estimated."),
    gauge("rabbitmq_queue_messages_unacked_bytes", "Size of unacknowledged message bodies, estimated."),
    gauge("rabbitmq_queue_messages_paged_out", "Messages only on disk, in pages or in a stream's files."),
    gauge("rabbitmq_queue_messages_paged_out_bytes", "Size of message bodies only on disk, estimated."),
), of_objects=True)  # fmt: skip

QUEUE_PUBLISHED: Final = MetricGroup("channel_queue_exchange_metrics", QUEUE, (
    counter("rabbitmq_queue_messages_published_total", "Messages routed to queues."),
), of_objects=True)  # fmt: skip

QUEUE_DELIVERY: Final = MetricGroup("queue_delivery_metrics", QUEUE, (
    counter("rabbitmq_queue_get_ack_total", "Messages fetched with basic.get, to be acknowledged."),
    counter("rabbitmq_queue_get_total", "Messages fetched with basic.get, without acknowledgement."),
    counter("rabbitmq_queue_messages_delivered_ack_total", "Messages delivered to consumers with acknowledgements."),
    counter("rabbitmq_queue_messages_delivered_total", "Messages delivered to consumers without acknowledgements."),
    counter("rabbitmq_queue_messages_redelivered_total", "Redelivered messages."),
    counter("rabbitmq_queue_messages_acked_total", "Messages acknowledged by consumers."),
    counter("rabbitmq_queue_get_empty_total", "Calls of basic.get that found an empty queue."),
), of_objects=True)  # fmt: skip

CHANNEL: Final = MetricGroup("channel_metrics", ("channel",), (
    gauge("rabbitmq_channel_consumers", "Consumers on channels."),
    gauge("rabbitmq_channel_messages_unacked", "Messages delivered on channels but not yet acknowledged."),
    gauge("rabbitmq_channel_messages_unconfirmed", "Messages published on channels but not yet confirmed."),
    gauge("rabbitmq_channel_messages_uncommitted", "Messages in open transactions."),
    gauge("rabbitmq_channel_acks_uncommitted", "Acknowledgements in open transactions."),
    gauge(
        "rabbitmq_consumer_prefetch",
        "Prefetch limit of new consumers, summed over channels; 0 = no limit.",
    ),
    gauge("rabbitmq_channel_prefetch", "Prefetch limit of channels, summed over channels; 0 = no limit."),
), of_objects=True)  # fmt: skip

CHANNEL_PUBLISHED: Final = MetricGroup("channel_exchange_metrics", ("channel", "vhost"), (
    counter("rabbitmq_channel_messages_published_total", "Messages published."),
    counter("rabbitmq_channel_messages_confirmed_total", "Messages confirmed to publishers."),
    counter(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "Unroutable mandatory messages returned to publishers.",
    ),
    counter("rabbitmq_channel_messages_unroutable_dropped_total", "Unroutable messages dropped."),
), of_objects=True)  # fmt: skip

CHANNEL_DELIVERED: Final = MetricGroup("channel_queue_metrics", ("channel", "vhost"), (
    counter("rabbitmq_channel_get_ack_total", "Messages fetched with basic.get, to be acknowledged."),
    counter("rabbitmq_channel_get_total", "Messages fetched with basic.get, without acknowledgement."),
    counter("rabbitmq_channel_messages_delivered_ack_total", "Messages delivered to consumers with acknowledgements."),
    counter("rabbitmq_channel_messages_delivered_total", "Messages delivered to consumers without acknowledgements."),
    counter("rabbitmq_channel_messages_redelivered_total", "Redelivered messages."),
    counter("rabbitmq_channel_messages_acked_total", "Messages acknowledged by consumers."),
    counter("rabbitmq_channel_get_empty_total", "Calls of basic.get that found an empty queue."),
), of_objects=True)  # fmt: skip

CONNECTION_COARSE: Final = MetricGroup("connection_coarse_metrics", ("connection",), (
    counter("rabbitmq_connection_incoming_bytes_total", "Bytes received over connections."),
    counter("rabbitmq_connection_outgoing_bytes_total", "Bytes sent over connections."),
), of_objects=True)  # fmt: skip

CONNECTION: Final = MetricGroup("connection_metrics", ("connection",), (
    counter("rabbitmq_connection_incoming_packets_total", "Reads from connections."),
    counter("rabbitmq_connection_outgoing_packets_total", "Writes to connections."),
    gauge("rabbitmq_connection_pending_packets", "Bytes waiting to be sent."),
    gauge("rabbitmq_connection_channels", "Channels on connections."),
), of_objects=True)  # fmt: skip

EXCHANGE: Final = MetricGroup("leveret_exchange", ("vhost", "exchange"), (
    counter("leveret_exchange_messages_in_total", "Messages published to exchanges."),
    counter("leveret_exchange_messages_out_total", "Messages routed from exchanges to queues, counted once per queue."),
), of_objects=True)  # fmt: skip

EXCHANGE_BINDINGS: Final = MetricGroup("exchange_bindings", ("vhost", "exchange", "type"), (
    gauge("rabbitmq_cluster_exchange_bindings", "Bindings whose source is the exchange."),
), of_objects=True)  # fmt: skip

OBJECTS: Final = (
    QUEUE_COARSE, QUEUE_CONSUMERS, QUEUE_DETAILS, QUEUE_PUBLISHED, QUEUE_DELIVERY, CHANNEL, CHANNEL_PUBLISHED,
    CHANNEL_DELIVERED, CONNECTION_COARSE, CONNECTION, EXCHANGE, EXCHANGE_BINDINGS,
)  # fmt: skip

"""Metrics of clients' objects: queues, exchanges, channels, connections. Names are RabbitMQ's (3.10)."""

from __future__ import annotations

from typing import Final

from leveret.control.metrics.metric import MetricGroup, counter, gauge

QUEUE: Final = ("vhost", "queue")

QUEUE_COARSE: Final = MetricGroup("queue_coarse_metrics", QUEUE, (
    gauge("rabbitmq_queue_messages_ready", "Messages that wait for a consumer."),
    gauge("rabbitmq_queue_messages_unacked", "Messages that consumers have and have not acknowledged."),
    gauge("rabbitmq_queue_messages", "Messages in queues: ready and unacknowledged ones."),
), of_objects=True)  # fmt: skip

QUEUE_CONSUMERS: Final = MetricGroup("queue_consumer_count", QUEUE, (
    gauge("rabbitmq_queue_consumers", "Consumers of queues."),
), of_objects=True)  # fmt: skip

QUEUE_DETAILS: Final = MetricGroup("queue_metrics", QUEUE, (
    gauge("rabbitmq_queue_consumer_capacity", "1: consumers take all there is at this moment; 0: messages wait."),
    gauge("rabbitmq_queue_consumer_utilisation", "The same under its older name."),
    gauge("rabbitmq_queue_process_memory_bytes", "Memory of queues and of the messages in them, roughly."),
    gauge("rabbitmq_queue_messages_ram", "Messages in memory."),
    gauge("rabbitmq_queue_messages_ram_bytes", "Bodies of messages in memory."),
    gauge("rabbitmq_queue_messages_ready_ram", "Ready messages in memory."),
    gauge("rabbitmq_queue_messages_unacked_ram", "Unacknowledged messages in memory."),
    gauge("rabbitmq_queue_messages_persistent", "Messages that are in the journal, estimated from the oldest ones."),
    gauge("rabbitmq_queue_messages_persistent_bytes", "Their bodies, estimated."),
    gauge("rabbitmq_queue_messages_bytes", "Bodies of messages in queues, estimated from the oldest ones."),
    gauge("rabbitmq_queue_messages_ready_bytes", "Bodies of ready messages, estimated."),
    gauge("rabbitmq_queue_messages_unacked_bytes", "Bodies of unacknowledged messages, estimated."),
    gauge("rabbitmq_queue_messages_paged_out", "Messages that are on disk only, in pages or in a stream's files."),
    gauge("rabbitmq_queue_messages_paged_out_bytes", "Their bodies, estimated."),
), of_objects=True)  # fmt: skip

QUEUE_PUBLISHED: Final = MetricGroup("channel_queue_exchange_metrics", QUEUE, (
    counter("rabbitmq_queue_messages_published_total", "Messages that were routed to queues."),
), of_objects=True)  # fmt: skip

QUEUE_DELIVERY: Final = MetricGroup("queue_delivery_metrics", QUEUE, (
    counter("rabbitmq_queue_get_ack_total", "Messages that basic.get took, to be acknowledged."),
    counter("rabbitmq_queue_get_total", "Messages that basic.get took without acknowledgement."),
    counter("rabbitmq_queue_messages_delivered_ack_total", "Messages delivered to consumers, to be acknowledged."),
    counter("rabbitmq_queue_messages_delivered_total", "Messages delivered to consumers without acknowledgement."),
    counter("rabbitmq_queue_messages_redelivered_total", "Deliveries that were not the first of their message."),
    counter("rabbitmq_queue_messages_acked_total", "Messages that were acknowledged."),
    counter("rabbitmq_queue_get_empty_total", "Times that basic.get found nothing."),
), of_objects=True)  # fmt: skip

CHANNEL: Final = MetricGroup("channel_metrics", ("channel",), (
    gauge("rabbitmq_channel_consumers", "Consumers on channels."),
    gauge("rabbitmq_channel_messages_unacked", "Messages delivered on channels and not acknowledged."),
    gauge("rabbitmq_channel_messages_unconfirmed", "Messages published on channels and not confirmed yet."),
    gauge("rabbitmq_channel_messages_uncommitted", "Messages of transactions that are open."),
    gauge("rabbitmq_channel_acks_uncommitted", "Acknowledgements of transactions that are open."),
    gauge(
        "rabbitmq_consumer_prefetch",
        "What new consumers may have unacknowledged, 0 = no limit; added up over channels.",
    ),
    gauge("rabbitmq_channel_prefetch", "What channels may have unacknowledged, 0 = no limit; added up over channels."),
), of_objects=True)  # fmt: skip

CHANNEL_PUBLISHED: Final = MetricGroup("channel_exchange_metrics", ("channel", "vhost"), (
    counter("rabbitmq_channel_messages_published_total", "Messages that publishers sent."),
    counter("rabbitmq_channel_messages_confirmed_total", "Messages that were confirmed to their publishers."),
    counter(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "Messages without a route that went back: mandatory ones.",
    ),
    counter("rabbitmq_channel_messages_unroutable_dropped_total", "Messages without a route that were dropped."),
), of_objects=True)  # fmt: skip

CHANNEL_DELIVERED: Final = MetricGroup("channel_queue_metrics", ("channel", "vhost"), (
    counter("rabbitmq_channel_get_ack_total", "Messages that basic.get took, to be acknowledged."),
    counter("rabbitmq_channel_get_total", "Messages that basic.get took without acknowledgement."),
    counter("rabbitmq_channel_messages_delivered_ack_total", "Messages delivered to consumers, to be acknowledged."),
    counter("rabbitmq_channel_messages_delivered_total", "Messages delivered to consumers without acknowledgement."),
    counter("rabbitmq_channel_messages_redelivered_total", "Deliveries that were not the first of their message."),
    counter("rabbitmq_channel_messages_acked_total", "Messages that were acknowledged."),
    counter("rabbitmq_channel_get_empty_total", "Times that basic.get found nothing."),
), of_objects=True)  # fmt: skip

CONNECTION_COARSE: Final = MetricGroup("connection_coarse_metrics", ("connection",), (
    counter("rabbitmq_connection_incoming_bytes_total", "Octets that came over connections."),
    counter("rabbitmq_connection_outgoing_bytes_total", "Octets that went over connections."),
), of_objects=True)  # fmt: skip

CONNECTION: Final = MetricGroup("connection_metrics", ("connection",), (
    counter("rabbitmq_connection_incoming_packets_total", "Reads from connections."),
    counter("rabbitmq_connection_outgoing_packets_total", "Writes to connections."),
    gauge("rabbitmq_connection_pending_packets", "Octets that the network has not taken yet."),
    gauge("rabbitmq_connection_channels", "Channels on connections."),
), of_objects=True)  # fmt: skip

EXCHANGE: Final = MetricGroup("leveret_exchange", ("vhost", "exchange"), (
    counter("leveret_exchange_messages_in_total", "Messages that were published to exchanges."),
    counter("leveret_exchange_messages_out_total", "Copies of them that went on to queues."),
), of_objects=True)  # fmt: skip

EXCHANGE_BINDINGS: Final = MetricGroup("exchange_bindings", ("vhost", "exchange", "type"), (
    gauge("rabbitmq_cluster_exchange_bindings", "Bindings that begin at an exchange."),
), of_objects=True)  # fmt: skip

OBJECTS: Final = (
    QUEUE_COARSE, QUEUE_CONSUMERS, QUEUE_DETAILS, QUEUE_PUBLISHED, QUEUE_DELIVERY, CHANNEL, CHANNEL_PUBLISHED,
    CHANNEL_DELIVERED, CONNECTION_COARSE, CONNECTION, EXCHANGE, EXCHANGE_BINDINGS,
)  # fmt: skip

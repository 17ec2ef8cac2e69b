"""A stream: its messages in memory and in files, the positions of its consumers, and its limits."""

from __future__ import annotations

from leveret.broker.queues.consumer import Consumer
from leveret.broker.streams.stream import Stream
from leveret.control.node import BrokerNode
from leveret.control.tables import plain_table
from leveret.control.views.consumer import consumer_view
from leveret.control.views.view import View
from leveret.net.disk.archive import Archive


def stream_view(node: BrokerNode, stream: Stream) -> View:
    """Return an item of list_streams. An offset of an end is that of the first message after it."""
    archive = node.host.streams.archives[int(stream.number)]
    effect, kept = stream.effect, stream.kept
    octets_in_files, octets_in_tail = archive.files.octets, int(stream.tail_octets)
    return {
        "name": stream.name,
        "vhost": stream.vhost.name,
        "creation": stream.creation,
        "messages": int(stream.count()),
        "first_offset": int(stream.first),
        "next_offset": int(stream.next_offset),
        "committed_offset": int(stream.committed),
        "sealed_offset": node.host.streams.sealed_offset(stream),
        "retention_offset": node.host.streams.retained_from(archive),
        "octets": octets_in_files + octets_in_tail,
        "file_octets": octets_in_files,
        "tail_octets": octets_in_tail,
        "segments": len(archive.files.segments),
        "oldest_ms": _oldest_us(stream, archive) // 1000 or None,
        "newest_ms": _newest_us(stream, archive) // 1000 or None,
        "consumers": int(stream.consumers.count),
        "unacknowledged": int(stream.unacked),
        "lag": largest_lag(stream),
        "policy": effect.policy or None,
        "operator_policy": effect.operator_policy or None,
        "arguments": plain_table(stream.arguments),
        "max_length_bytes": int(kept.max_octets) if kept.max_octets >= 0 else None,
        "max_age_s": int(kept.max_age_us) // 1_000_000 if kept.max_age_us >= 0 else None,
        "max_segment_size_bytes": int(kept.segment_octets),
        "write_errors": archive.errors,
        "state": "running",
        "node": node.name,
    }


def stream_details(node: BrokerNode, stream: Stream) -> View:
    """Return the item of list_streams with the stream's consumers and their positions, for get_stream."""
    view = stream_view(node, stream)
    view["consumer_details"] = [_reading(node, consumer) for consumer in stream.consumers.all()]
    return view


def _reading(node: BrokerNode, consumer: Consumer) -> View:
    reader = consumer.reader
    assert reader is not None
    return consumer_view(node, consumer) | {
        "next_offset": int(reader.next),
        "lag": lag(consumer),
        "messages_unacknowledged": int(consumer.unacked),
    }


def lag(consumer: Consumer) -> int:
    """Return how many messages of the stream the consumer has not been sent yet."""
    reader = consumer.reader
    assert reader is not None
    return max(0, int(reader.stream.committed - max(reader.next, reader.stream.first)))


def largest_lag(stream: Stream) -> int | None:
    """Return the lag of the slowest consumer; None if there are no consumers."""
    return max((lag(consumer) for consumer in stream.consumers.all()), default=None)


def _oldest_us(stream: Stream, archive: Archive) -> int:
    if archive.files.segments:
        return archive.files.oldest_us()
    return int(stream.tail[0].time_us) if stream.tail else 0


def _newest_us(stream: Stream, archive: Archive) -> int:
    return int(stream.tail[-1].time_us) if stream.tail else archive.files.newest_us()

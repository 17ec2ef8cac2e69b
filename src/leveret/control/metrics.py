"""Numbers as monitoring systems take them: a name, labels that tell whose number it is, and the value.

Names are Prometheus': units and what they count last, ..._total for what only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from leveret.broker.streams.naming import standings
from leveret.broker.streams.stream import Stream
from leveret.control.node import Node
from leveret.control.tables import sayable
from leveret.control.views.stream import largest_lag
from leveret.federation.status import ERROR, PAUSED, REFUSED, RUNNING, STARTING, LinkStatus
from leveret.net.archive import Archive


class Sample(msgspec.Struct, frozen=True):
    """One number. labels: names and values."""

    name: str
    labels: dict[str, str]
    value: float


LINKS: Final = "rabbitmq_federation_links"
"""How many links are in a state: the name is that of RabbitMQ 4's plugin."""

# of one link; None: not known
OF_LINK: Final[dict[str, Callable[[LinkStatus], float | None]]] = {
    "leveret_federation_link_up": lambda link: int(link.status == RUNNING),
    "leveret_federation_link_messages_total": lambda link: link.messages,
    "leveret_federation_link_looped_total": lambda link: link.looped,
    "leveret_federation_link_known_total": lambda link: link.known,
    "leveret_federation_link_buried_total": lambda link: link.buried,
    "leveret_federation_link_reconnects_total": lambda link: link.reconnects,
    "leveret_federation_link_unacknowledged": lambda link: link.unacknowledged,
    "leveret_federation_link_lag_messages": lambda link: link.lag,
    "leveret_federation_link_bindings": lambda link: link.bindings,
    "leveret_federation_link_unbound": lambda link: link.unbound,
}


STAGED_MESSAGES: Final = "leveret_staged_messages"
STAGED_BYTES: Final = "leveret_staged_bytes"
"""Of a virtual host: what is in stages, released or not, and so in no queue; bodies only."""
CONSUMER_LAG: Final = "leveret_stream_consumer_lag_messages"
"""How many messages are behind what the consumers of a name have acknowledged, whether one is there or not."""

# of one stream; None: there is nothing to say
OF_STREAM: Final[dict[str, Callable[[Archive], float | None]]] = {
    "leveret_stream_messages": lambda archive: int(archive.stream.count()),
    "leveret_stream_next_offset": lambda archive: int(archive.stream.next_offset),
    "leveret_stream_committed_offset": lambda archive: int(archive.stream.committed),
    "leveret_stream_file_bytes": lambda archive: archive.files.octets,
    "leveret_stream_tail_bytes": lambda archive: int(archive.stream.tail_octets),
    "leveret_stream_segments": lambda archive: len(archive.files.segments),
    "leveret_stream_consumers": lambda archive: int(archive.stream.consumers.count),
    "leveret_stream_lag_messages": lambda archive: largest_lag(archive.stream),
    "leveret_stream_write_errors_total": lambda archive: archive.errors,
}


def samples(node: Node) -> Iterator[Sample]:
    """All numbers there are: those of federation links, of stages and of streams."""
    yield from _of_links(node)
    yield from of_stages(node)
    archives = [archive for archive in node.host.streams.archives.values() if not archive.stream.is_deleted]
    for name, value_of in OF_STREAM.items():
        for archive in archives:
            value = value_of(archive)
            if value is not None:
                yield Sample(name, _labels_of(archive.stream), value)
    for archive in archives:
        for standing in standings(archive.stream):
            labels = _labels_of(archive.stream) | {"consumer": sayable(standing.name)}
            yield Sample(CONSUMER_LAG, labels, standing.lag)


def of_stages(node: Node) -> Iterator[Sample]:
    """Of each virtual host where somebody publishes by stages."""
    for vhost in node.broker.vhosts.values():
        stages = vhost.queries.stages()
        if vhost.queries.by_name or stages:
            labels = {"vhost": sayable(vhost.name)}
            yield Sample(STAGED_MESSAGES, labels, sum(int(stage.count()) for stage in stages))
            yield Sample(STAGED_BYTES, labels, sum(int(stage.octets) for stage in stages))


def _labels_of(stream: Stream) -> dict[str, str]:
    return {"vhost": sayable(stream.vhost.name), "stream": sayable(stream.name)}


def _of_links(node: Node) -> Iterator[Sample]:
    statuses = node.host.federator.statuses()
    for state in (STARTING, RUNNING, ERROR, PAUSED, REFUSED):
        yield Sample(LINKS, {"status": state}, sum(status.status == state for status in statuses))
    links = [status for status in statuses if status.id]
    for name, value_of in OF_LINK.items():
        for link in links:
            value = value_of(link)
            if value is not None:
                yield Sample(name, _labels(link), value)


def _labels(link: LinkStatus) -> dict[str, str]:
    labels = {"vhost": link.vhost, "exchange": link.exchange, "upstream": link.upstream, "id": link.id}
    return {name: sayable(value) for name, value in labels.items()}

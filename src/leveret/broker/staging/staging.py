"""Handles the publishes of a channel that is attached to a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.exchanges.route import Route
from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.messages.unroutable import return_message
from leveret.broker.queues.overflow import refusing_queues
from leveret.broker.queues.ready import ITEM_OCTETS
from leveret.broker.staging.query import Producer
from leveret.broker.staging.stage import Stage
from leveret.session.confirms import HANDLED, JOURNALLED, REFUSED
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.peer import Peer


class Staging:
    """A channel's attachment to a stage."""

    def __init__(self, tag: str, query: Producer, batch: int, stage: Stage | None) -> None:
        self.tag = tag  # of the basic.consume that attached the channel
        self.query = query
        self.batch = batch
        self.stage = stage  # None = the batch is released, so publishes are repetitions: checked, and dropped

    def publish(self, peer: Peer, channel: BrokerChannel, route: Route, content: bytes) -> i64:
        """Stage a message. Returns the state of its confirm; raises 406 if the stage is gone.

        A queue that refuses messages when it is full does so now, by its present length; the others get the message.
        """
        peer.count(channel, route)
        if not route.queues:
            return_message(peer, channel, route, content)
            return HANDLED
        stage = self._open_stage()
        refusing = refusing_queues(peer.vhost, route, content, peer.now_us)
        if refusing:
            route = route.to([queue for queue in route.queues if queue not in refusing])
        if stage is not None and route.queues:
            peer.cost += len(content) + ITEM_OCTETS
            stage.take(route, content, peer.now_us)
        return REFUSED if refusing else (HANDLED if stage is None else JOURNALLED)

    def publish_more(self, route: Route, buffer: BatchBuffer, now_us: i64) -> i64:
        """Stage messages that differ in their bodies only, on a route whose queues refuse none."""
        stage = self._open_stage()
        if stage is None:
            return HANDLED
        stage.take_batch(route, buffer, now_us)
        return JOURNALLED

    def _open_stage(self) -> Stage | None:
        stage = self.stage
        if stage is None or stage.is_open:
            return stage
        if stage.turn == 0 and not self.query.is_forgotten and self.batch <= self.query.last_batch:
            self.stage = None  # another attempt was released instead
            return None
        why = "is released" if stage.turn else "has expired, was aborted, or its query was forgotten"
        raise ProtocolError(PRECONDITION_FAILED, f"the {stage.what()} {why}", 60, 40)

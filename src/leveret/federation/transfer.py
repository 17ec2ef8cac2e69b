"""The hot path of a link: deliveries from the upstream in, publishes for the own broker out, acknowledgements back.

It takes the place of the DeliveryReader in ConnectionCore, and is the sink of its consumer as well: deliveries that are
whole in the buffer are parsed here, others (bodies in several frames) come as objects. Both ways must lead to the same
publishes: a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i32_be
from mypy_extensions import i32, i64

from leveret.broker.link_peer import CHANNEL, FRAME_OCTETS_MAX, LinkPeer
from leveret.federation.rewriting import LinkOrigin, Rewriter
from leveret.federation.window import Window
from leveret.wire import grammar
from leveret.wire.errors import FRAME_ERROR, ProtocolError, quoted
from leveret.wire.frames import FRAME_BODY, FRAME_METHOD, FRAME_OVERHEAD, frame
from leveret.wire.method import decode_method, method_frame
from leveret.wire.table import encode_short

if TYPE_CHECKING:
    from leveret.client.protocol.channel_core import ChannelCore
    from leveret.client.protocol.errors import ClientError
    from leveret.client.protocol.model import Delivery

# limit of the routes whose publish method is cached
ROUTES_MAX: Final = 4096
# bytes of a body in one frame
ROOM: Final = FRAME_OCTETS_MAX - FRAME_OVERHEAD
_DELIVER: Final[i64] = 0x003C003C
_ACK: Final[i64] = 0x003C0050
_NACK: Final[i64] = 0x003C0078
_QOS_OK: Final[i64] = 0x003C000B
_HEADER_CLASS: Final[i64] = 0x003C0000


class Transfer:
    """Turns deliveries into publishes, and confirms into acknowledgements.

    has_acks: the consumer acknowledges. acks_on_publish: at once, not when the own broker has confirmed the message.
    max_hops: for the whole way of a message. cluster, vhost, exchange: where messages are published. origin: where they
    come from. has_positions: the upstream sends positions, and messages are acknowledged when confirmed. consumer_tag,
    channel: of the consumer on the upstream.
    """

    def __init__(
        self,
        has_acks: bool,
        acks_on_publish: bool,
        max_hops: int,
        cluster: str,
        vhost: str,
        exchange: str,
        origin: LinkOrigin,
        trusts_user_id: bool,
        peer: LinkPeer,
        has_positions: bool,
        consumer_tag: str,
        channel: int,
    ) -> None:
        self.messages: i64 = 0  # published, whatever became of them
        self.looped: i64 = 0  # dropped, since they had been here or had gone far enough
        self.known: i64 = 0  # dropped, since they had come before a crash or a lost connection
        self.rejected: i64 = 0  # dropped, since they could never be published (too large, or malformed)
        self.failure = ""  # why the broker has closed the channel, "" if it has not
        self._has_acks = has_acks
        self._has_confirms = has_acks and not acks_on_publish
        self._peer = peer
        self._position = peer.position
        self._channel: i64 = channel
        self._consumer_tag = encode_short(consumer_tag)
        self._exchange = encode_short(exchange)
        self._routes: dict[bytes, bytes] = {}
        self._rewriter = Rewriter(origin, cluster, vhost, max_hops, trusts_user_id, has_positions)
        self._window = Window(channel)
        self._out = BytesWriter()
        self._head = BytesWriter()  # of the last publish: everything before its body
        self._answer = b""
        # A known message may be known from a batch that is not synced yet. It is acknowledged only after an answer that
        # comes after that batch, or a crash here would lose it.
        self._is_synced = not has_positions
        if has_positions:
            peer.hold_until_synced()
            self._out.write(method_frame(CHANNEL, grammar.BASIC_QOS, prefetch_count=0))

    @property
    def unacknowledged(self) -> int:
        """How many deliveries came and are not acknowledged."""
        return int(self._window.unacknowledged()) if self._has_acks else 0

    # -- deliveries --------------------------------------------------------------------------------------------------

    def read(self, channels: Mapping[int, ChannelCore[Any]], data: bytes, start: int) -> int:
        """Take the deliveries that begin at `start`; returns the offset of the first byte that was not used.

        ProtocolError or IndexError for frames whose fields contradict their lengths.
        """
        channel = channels.get(int(self._channel))
        if channel is None or not channel.is_between_contents:
            return start
        end: i64 = len(data)
        at: i64 = start
        while end - at > 20:
            after = self._take(data, at, end)
            if after == at:
                break
            at = after
        return int(at)

    def deliver(self, delivery: Delivery) -> None:
        """Take a delivery that was not whole in the buffer."""
        route = encode_short(delivery.exchange) + encode_short(delivery.routing_key)
        header = delivery.header
        if self._begin(delivery.delivery_tag, delivery.redelivered, route, header, 0, len(header)):
            self._out.write(self._head.getvalue())
            body = delivery.body
            for start in range(0, len(body), ROOM):
                self._out.write(frame(FRAME_BODY, CHANNEL, body[start : start + ROOM]))

    def ended(self, error: ClientError) -> None:
        """Do nothing: the link gets the error from its channel."""

    def _take(self, data: bytes, at: i64, end: i64) -> i64:
        """Take the delivery that begins here, if there is a whole one; returns where it ends, else `at`."""
        if (
            data[at] != 1
            or i64(read_i16_be(data, at + 1)) & 0xFFFF != self._channel
            or i64(read_i32_be(data, at + 7)) != _DELIVER
        ):
            return at
        head = at + i64(read_i32_be(data, at + 3)) + 8
        if head < at or head + 22 > end or data[head] != 2 or i64(read_i32_be(data, head + 7)) != _HEADER_CLASS:
            return at
        body = head + i64(read_i32_be(data, head + 3)) + 8
        size = read_i64_be(data, head + 11)
        stop = body
        if size != 0:
            if body < head or body + 8 > end or data[body] != 3 or i64(read_i32_be(data, body + 3)) != size:
                return at
            stop = body + size + 8
        if stop < head or stop > end or not (data[head - 1] == data[body - 1] == data[stop - 1] == 0xCE):
            return at
        tag_at = at + 12 + i64(data[at + 11])
        if tag_at + 12 > head or body < head + 22 or data[at + 11 : tag_at] != self._consumer_tag:
            return at
        route = data[tag_at + 9 : head - 1]
        if self._begin(read_i64_be(data, tag_at), data[tag_at + 8] != 0, route, data, head + 7, body - 1):
            content = body
            if size != 0:
                content = body + 7
                self._head.write(b"\x03\x00\x01")
                write_i32_be(self._head, i32(size))
            self._out.write(self._head.getvalue())
            self._out.write(data[content:stop])
            stride = stop - at
            if (
                stop + stride <= end
                and data[stop + stride - 1] == 0xCE
                and read_i64_be(data, head + stride + 11) == size
            ):
                return self._repeats(data, at, stop, end, content)
        return stop

    def _repeats(self, data: bytes, first: i64, stop: i64, end: i64, content: i64) -> i64:
        """Publish the deliveries from `stop` on that differ from data[first:stop] only in tag, position and body.

        content: where the body of the first begins. Returns where the last of them ends.
        """
        stride = stop - first
        tag_at = first + 11 + i64(len(self._consumer_tag))
        position_at = self._rewriter.position_at
        middle_end = position_at if position_at != 0 else content
        rest_at = position_at + 16 if position_at != 0 else content
        start_octets = data[first:tag_at]
        middle_octets = data[tag_at + 8 : middle_end]
        rest_octets = data[rest_at:content]
        published = self._head.getvalue()
        epoch: i64 = 0
        id: i64 = 0
        on: i64 = stride  # distance from the first
        while (
            first + on + stride <= end
            and data[tag_at + 8 + on : middle_end + on] == middle_octets
            and data[rest_at + on : content + on] == rest_octets
            and data[first + on : tag_at + on] == start_octets
            and data[stop + on - 1] == 0xCE
        ):
            if position_at != 0:
                epoch = read_i64_be(data, position_at + on)
                id = read_i64_be(data, position_at + 8 + on)
            if self._admits(read_i64_be(data, tag_at + on), epoch, id):
                self._out.write(published)
                self._out.write(data[content + on : stop + on])
            on += stride
        return first + on

    def _begin(self, tag: i64, redelivered: bool, route: bytes, data: bytes, start: i64, end: i64) -> bool:
        """Put method and header frame of a publish into `_head`; False if the message is not published.

        route: exchange and routing key, as in basic.deliver; data[start:end]: the payload of its header.
        """
        method = self._routes.get(route)
        if method is None:
            method = self._publish_method(route)
        rewriter = self._rewriter
        try:
            goes_on = rewriter.look(data, start, end, redelivered)
        except ProtocolError as error:
            self._dead_letter(tag, route, error.text)
            return False
        if not goes_on:
            self.looped += 1
            self._window.drop(tag)
            return False
        size = rewriter.size
        if size + FRAME_OVERHEAD > FRAME_OCTETS_MAX:
            self._dead_letter(tag, route, f"its header of {size} octets does not fit into a frame")
            return False
        if not self._admits(tag, rewriter.epoch, rewriter.id):
            return False
        head = self._head
        head.truncate(0)
        head.write(method)
        head.write(b"\x02\x00\x01")
        write_i32_be(head, i32(size))
        rewriter.write(head, data)
        head.append(0xCE)
        return True

    def _admits(self, tag: i64, epoch: i64, id: i64) -> bool:
        """Count a delivery that can be published; False if it is here already. id: 0 = it has no position."""
        if id != 0:
            if self._position.has(epoch, id):
                self.known += 1
                self._window.drop(tag)
                return False
            self._peer.stand(self._window.published + 1, epoch, id)
        if self._has_confirms:
            self._window.publish(tag)
        else:
            self._window.drop(tag)
        self.messages += 1
        return True

    def _publish_method(self, route: bytes) -> bytes:
        middle = 1 + route[0]
        if middle + 1 + route[middle] != len(route):
            raise ProtocolError(FRAME_ERROR, "a delivery whose fields contradict its length")
        payload = b"\x00\x3c\x00\x28\x00\x00" + self._exchange + route[middle:] + b"\x00"
        method = frame(FRAME_METHOD, CHANNEL, payload)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[route] = method
        return method

    def _dead_letter(self, tag: i64, route: bytes, reason: str) -> None:
        """Reject a message that would stop the link forever; the upstream queue dead-letters it."""
        self.rejected += 1
        if self._has_acks:
            self._window.reject(tag)
        key = route[2 + route[0] :].decode("utf-8", "replace")
        self._peer.complain(f"a message with routing key {quoted(key)} was dropped: {reason}")

    # -- the own broker ----------------------------------------------------------------------------------------------

    def take_publishes(self) -> bytes:
        """The bytes to write to the direct connection."""
        data = self._out.getvalue()
        if data:
            self._out.truncate(0)
        return data

    def answered(self, data: bytes) -> None:
        """Handle frames of the own broker: confirms, of which there are few, or a close (see failure)."""
        if self._answer:
            data = self._answer + data
        at: i64 = 0
        end: i64 = len(data)
        while end - at >= 8:
            after = at + i64(read_i32_be(data, at + 3)) + 8
            if after > end:
                break
            self._answered(data, at, after)
            at = after
        self._answer = data[at:]

    def _answered(self, data: bytes, at: i64, after: i64) -> None:
        if data[at] != FRAME_METHOD:
            return
        method = i64(read_i32_be(data, at + 7))
        is_ack = method == _ACK
        if is_ack or method == _NACK:
            if self._peer.hopeless:
                self._condemn()
            self._window.settle(read_i64_be(data, at + 11), data[at + 19] & 1 != 0, is_ack)
        elif method == _QOS_OK:
            self._is_synced = True
        else:
            end = decode_method(data[at + 7 : after - 1])
            if end.spec is grammar.CHANNEL_CLOSE or end.spec is grammar.CONNECTION_CLOSE:
                self.failure = f"{end.number('reply_code')} {end.text('reply_text')}"

    def _condemn(self) -> None:
        """Reject the messages that the own broker will never accept, for the reasons it gave."""
        hopeless = self._peer.hopeless
        for number in sorted(hopeless):
            self._window.condemn(number)
        self.rejected += len(hopeless)
        hopeless.clear()

    # -- the upstream ------------------------------------------------------------------------------------------------

    def take_acks(self) -> bytes:
        """Acknowledgements for the upstream's channel. Call it after writing the result of `take_publishes`."""
        if not self._has_acks or not self._is_synced:
            return b""
        return self._window.take()

    @property
    def has_refused(self) -> bool:
        """Whether the own broker has refused messages (a queue is full and rejects): `requeue` them after a while."""
        return self._window.has_refused()

    def requeue(self) -> None:
        """Return refused messages to the upstream queue with the next `take_acks`; it delivers them again at once."""
        self._window.requeue()

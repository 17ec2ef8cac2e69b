"""The broker's side of one connection: its turns, its publishes, and the handlers of all other methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.access import handshake
from leveret.broker.access.access import NOBODY, OPERATOR, Access, check_channel, check_copies
from leveret.broker.access.login import Login
from leveret.broker.access.security import Security
from leveret.broker.broker import Broker
from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Octets
from leveret.broker.exchange_types.federation_upstream import first_hops, may_have_come
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.lookup import Seeker, Share
from leveret.broker.exchanges.publish_route import published_route
from leveret.broker.exchanges.route import QUEUES_MAX, Route
from leveret.broker.exchanges.spread import Spread
from leveret.broker.messages import carbon_copies
from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.messages.properties import check_user_id, expiration_us, with_reply_name
from leveret.broker.messages.unroutable import return_message
from leveret.broker.methods import (
    basic_methods,
    binding_methods,
    exchange_methods,
    publisher_methods,
    queue_methods,
    stage_methods,
    tx_methods,
)
from leveret.broker.names import REPLY_TO, STAGE
from leveret.broker.queues.ack_timeout import timed_out
from leveret.broker.queues.acknowledgement import acknowledge
from leveret.broker.queues.overflow import expire_untaken
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.ready import ITEM_OCTETS
from leveret.broker.storage.log import SETTLED_AT_ONCE
from leveret.broker.streams.numbers import Number, accept_numbered, number_in
from leveret.session import lifecycle
from leveret.session.channel import Channel
from leveret.session.confirms import HANDLED, JOURNALLED, REFUSED, SYNCING
from leveret.session.connection import Connection, Unfinished
from leveret.session.output import Buffer, part
from leveret.wire import grammar
from leveret.wire.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
    ProtocolError,
)
from leveret.wire.frames import FRAME_MIN_SIZE
from leveret.wire.method import Method
from leveret.wire.scan import HeaderScan
from leveret.wire.table import Value

METHODS: Final[dict[int, Callable[[Peer, BrokerChannel, Method], None]]] = {
    grammar.EXCHANGE_DECLARE.key: exchange_methods.declare,
    grammar.EXCHANGE_DELETE.key: exchange_methods.delete,
    grammar.EXCHANGE_BIND.key: binding_methods.bind_exchange,
    grammar.EXCHANGE_UNBIND.key: binding_methods.unbind_exchange,
    grammar.QUEUE_DECLARE.key: queue_methods.declare,
    grammar.QUEUE_DELETE.key: queue_methods.delete,
    grammar.QUEUE_PURGE.key: queue_methods.purge,
    grammar.QUEUE_BIND.key: binding_methods.bind_queue,
    grammar.QUEUE_UNBIND.key: binding_methods.unbind_queue,
    grammar.BASIC_QOS.key: basic_methods.qos,
    grammar.BASIC_CONSUME.key: basic_methods.consume,
    grammar.BASIC_CANCEL.key: basic_methods.cancel,
    grammar.BASIC_GET.key: basic_methods.get,
    grammar.BASIC_REJECT.key: basic_methods.reject,
    grammar.BASIC_NACK.key: basic_methods.nack,
    grammar.BASIC_RECOVER.key: basic_methods.recover,
    grammar.BASIC_RECOVER_ASYNC.key: basic_methods.recover,
    grammar.CONFIRM_SELECT.key: basic_methods.confirm_select,
    grammar.CHANNEL_FLOW.key: basic_methods.flow,
    grammar.ACCESS_REQUEST.key: basic_methods.access,
    grammar.TX_SELECT.key: tx_methods.select,
    grammar.TX_COMMIT.key: tx_methods.commit,
    grammar.TX_ROLLBACK.key: tx_methods.rollback,
}
CONNECTION_METHODS: Final[dict[int, Callable[[Peer, Method], None]]] = {
    grammar.CONNECTION_START_OK.key: handshake.start_ok,
    grammar.CONNECTION_TUNE_OK.key: handshake.tune_ok,
    grammar.CONNECTION_OPEN.key: handshake.open_vhost,
    grammar.CONNECTION_UPDATE_SECRET.key: handshake.update_secret,
}
COST_WORTH_A_LOOK: Final[i64] = 1 << 18
# Work of one turn when exclusive queues are deleted with their connection, and how many messages cost as much as a
# queue.
EXCLUSIVE_COST_MAX: Final[i64] = 256
MESSAGES_COST: Final[i64] = 64
# how long a client may take to close its socket or to answer connection.close, as in RabbitMQ; the second for a client
# that is not told why its login failed
CLOSE_DELAY_US: Final = 30_000_000
SILENCE_US: Final = 3_000_000


class Peer(Connection):
    """The broker's side of one connection."""

    def __init__(self, broker: Broker, address: str, is_loopback: bool) -> None:
        super().__init__(FRAME_MIN_SIZE, broker.settings.max_message_octets)
        self.broker = broker
        broker.connections_opened += 1
        self.number = broker.connections_opened  # number of the connection in this broker, from 1
        self.vhost = broker.nowhere  # until connection.open names one
        self.address = self.name = address  # for the log
        self.host = address.rpartition(":")[0]  # its IP address
        self.is_loopback = is_loopback  # guest may log in
        self.security: Security | None = None  # None without TLS
        self.octets = Octets()
        self.mechanism = ""  # of its login
        self.connected_us: i64 = 0  # when it opened its virtual host
        self.channel_max = broker.settings.channel_max
        self.must_cut = self.hears_refusal = False
        # the broker closes the socket so long after the last frame, unless the client does
        self.close_delay_us = CLOSE_DELAY_US
        self.client_properties: dict[str, Value] = {}
        self.channels: dict[int, BrokerChannel] = {}
        self.exclusive: dict[str, Queue] = {}
        # it has published, so it may be paused while the journal or consumers fall behind
        self.is_publisher = False
        self.login: Login | None = None
        self.is_counted = self.is_link = self._is_leaving = False
        self._access = NOBODY
        self._confirming: list[BrokerChannel] = []
        self._scan_header = HeaderScan()
        self._ttl_us: i64 = -1  # of the last publish
        self.seeker = Seeker(Share(0))

    # -- turns -------------------------------------------------------------------------------------------------------

    def turn(self, data: bytes, now_us: int) -> bool:
        """Handle bytes that arrived, and everything that follows from them.

        Returns whether the caller has to check the connection: it may have to be paused, or has cost much.
        """
        size: i64 = len(data)
        if size > 0:
            self.octets.received += size
            self.octets.reads += 1
        self.now_us = now_us
        self.seeker.share.renew()
        self.broker.catch_up(now_us)
        if self.broker.block_reason and self.state < lifecycle.CLOSING:
            self.receive_unless_content(data, self.broker.block_reason)
        else:
            self.receive(data)
        for channel in self._confirming:
            channel.is_confirming = False
            if channel.publisher is not None:
                channel.publisher.record()
            confirms = channel.confirms
            if confirms is not None and not channel.is_closed and confirms.flush(self.output.writer, channel.number):
                self.mark()
                if confirms.told is not None:
                    self.answered(channel)
        self._confirming.clear()
        self.broker.end_turn(now_us)
        if self.is_publisher and (self.cost > COST_WORTH_A_LOOK or self.vhost.crowded):
            return True
        return self.is_blocked or self.is_flooded or self.has_more or self.is_held or self.state >= lifecycle.CLOSING

    def take(self, synced: int) -> list[Buffer]:
        buffers = super().take(synced)
        for buffer in buffers:
            self.octets.sent += len(buffer)
        if buffers:
            self.octets.writes += 1
        return buffers

    def lost(self, now_us: int) -> None:
        """Handle the loss of the socket: requeue everything."""
        self.now_us = now_us
        self.state = lifecycle.CLOSED
        self.close_all_channels()
        self.drop_input()
        if self.connected_us != 0:
            self.vhost.tally.octets.add(self.octets)
            self.broker.churn.connection_closed += 1
        self.broker.end_turn(now_us)

    def check_ack_timeouts(self, now_us: int) -> None:
        """Close channels with an overdue unacknowledged delivery; to be called about once a second."""
        self.now_us = now_us
        has_closed = False
        for channel in list(self.channels.values()):
            if channel.state == lifecycle.OPEN and (channel.unacked.count > 0 or channel.notes):
                timeout_ms = self.broker.ack_timeout.overdue_ms(channel, now_us)
                if timeout_ms > 0:
                    self._fail(timed_out(channel, timeout_ms), channel)
                    has_closed = True
        if has_closed:
            self.broker.end_turn(now_us)

    def drained(self, now_us: int) -> None:
        """Continue when the network takes bytes again: wake consumers, and allow input that was held up."""
        self.is_full = self.is_flooded = False
        self.now_us = now_us
        for channel in self.channels.values():
            self.touch_consumed(channel)
        self.broker.end_turn(now_us)

    def answered(self, channel: BrokerChannel) -> bool:
        tracing, confirms = self.vhost.tracing, channel.confirms
        if confirms is None or not confirms.told:
            return False
        if tracing is None or not tracing.hears_answers:
            confirms.told = None
            return False
        told, confirms.told = confirms.told, []
        tracing.answered(self, channel, told)
        return True

    def mark(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self.broker.dirty.append(self)

    def hold_until_synced(self) -> None:
        """Hold back everything that is sent from now on until all records so far are on disk."""
        log = self.broker.log
        log.is_awaited = True
        # an empty batch is never written, so waiting for it could last forever
        self.gate(log.batch if log.size() else log.batch - 1)

    def access(self) -> Access:
        """Return what the user may do in this virtual host now."""
        if self._access.is_stale:
            self._access = self.broker.access(self.user, self.vhost.name)
        return self._access

    def may_do_all(self) -> None:
        """Grant all permissions: the connection belongs to an operator."""
        self._access = OPERATOR

    def touch_consumed(self, channel: BrokerChannel) -> None:
        """Touch the queues of the channel's consumers, which may take more, beginning with another one each time."""
        consumers = list(channel.consumers.values())
        if channel.limit != 0 and consumers:
            channel.turn = (channel.turn + 1) % len(consumers)
            consumers = consumers[channel.turn :] + consumers[: channel.turn]
        for consumer in consumers:
            queue = consumer.queue
            if queue is not None and not queue.is_touched:
                queue.touch()
        channel.line_up(True)

    def last_routes(self) -> list[Route]:
        """Return the last route of each channel."""
        found: list[Route] = []
        for channel in self.channels.values():
            if channel.last_way is not None:
                found.append(channel.last_way)
        return found

    # -- the session's Handler -----------------------------------------------------------------------------------------

    def start(self) -> None:
        handshake.start(self)

    def open_channel(self, number: int) -> BrokerChannel:
        if len(self.channels) >= self.channel_max:
            most = self.channel_max
            text = f"number of channels opened ({most}) has reached the negotiated channel_max ({most})"
            raise ProtocolError(NOT_ALLOWED, text)
        check_channel(self)
        channel = self.channels[number] = BrokerChannel(self, number)
        self.vhost.channels.add(channel)
        self.broker.churn.channel_created += 1
        return channel

    def find_channel(self, number: i64) -> Channel | None:
        return self.channels.get(int(number))

    def all_channels(self) -> list[Channel]:
        found: list[Channel] = list(self.channels.values())
        return found

    def remove_channel(self, channel: Channel) -> None:
        del self.channels[int(channel.number)]

    def channel_closed(self, channel: BrokerChannel) -> None:
        if not self._is_leaving:
            self._serve_touched()
        self.vhost.forget_channel(channel, self.now_us)
        self.broker.churn.channel_closed += 1

    def close_all_channels(self) -> None:
        # messages that one closing channel requeues must not go to the next one
        self._is_leaving = True
        self.is_suspended = False
        self.seeker.give_up()
        super().close_all_channels()
        self.drop_exclusive()
        if self.is_counted:
            self.is_counted = False
            self.broker.disconnected(self, self.vhost)

    def drop_exclusive(self) -> None:
        """Delete the exclusive queues of this connection; many are deleted in several turns."""
        room = EXCLUSIVE_COST_MAX
        while self.exclusive and room > 0:
            _, queue = self.exclusive.popitem()
            room -= 1 + min(queue.count(), SETTLED_AT_ONCE) // MESSAGES_COST
            self.vhost.delete_queue(queue)
        if self.exclusive and self not in self.broker.leavers:
            self.broker.leavers.append(self)

    def has_left(self) -> bool:
        return len(self.exclusive) == 0

    def failed(self, error: ProtocolError, channel: Channel | None) -> None:
        where = f" channel {channel.number}" if channel is not None and not error.is_hard else ""
        hint = ""
        if error.text == "fast reply consumer does not exist":
            hint = f" (consume from {REPLY_TO} on the SAME channel that publishes the request, before publishing it)"
        self.broker.tell(self, f"{self.address}:{where} closed: {error}{hint}")

    def unknown_protocol(self, data: bytes) -> None:
        handshake.unknown_protocol(self, data)

    def after_failure(self, error: ProtocolError) -> int:
        if self.state < lifecycle.OPENING and error.code == ACCESS_REFUSED and not self.hears_refusal:
            self.close_delay_us = SILENCE_US  # not at once, as in RabbitMQ
            return lifecycle.DRAINING
        return lifecycle.CLOSING

    def handle_on_connection(self, method: Method) -> None:
        CONNECTION_METHODS[method.spec.key](self, method)

    def handle(self, channel: BrokerChannel, method: Method) -> None:
        handler = METHODS.get(method.spec.key)
        if handler is None:
            raise ProtocolError(COMMAND_INVALID, "unimplemented method", method.spec.class_id, method.spec.method_id)
        self._serve_touched()
        handler(self, channel, method)

    def _serve_touched(self) -> None:
        """Serve the publishes and acknowledgements of this read before the method that follows them."""
        if self.vhost.touched:
            self.vhost.settle_turn(self.now_us)

    def acknowledge(self, channel: BrokerChannel, tag: i64, multiple: bool) -> None:
        acknowledge(self, channel, tag, multiple)

    # -- publish -------------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        seeker = self.seeker
        channel = seeker.channel
        if channel is None or channel.is_closed:
            self.is_suspended = False
            seeker.give_up()
            return
        if not seeker.go_on():
            raise Unfinished
        self._current = channel
        if seeker.spread is not None:
            if channel.confirms is not None:
                self._confirm(channel, 1, seeker.spread.standing())
            self.is_suspended = False
            seeker.clear()
            return
        try:
            self.publish(channel, seeker.method, seeker.content, 0, len(seeker.content))
        except Unfinished:
            raise
        except ProtocolError:
            self.is_suspended = False
            seeker.give_up()
            raise
        self.is_suspended = False
        seeker.clear()

    def pass_on(
        self,
        channel: BrokerChannel,
        method: bytes,
        data: bytes,
        start: i64,
        stop: i64,
        pieces: list[Buffer] | None = None,
    ) -> bool:
        """Deliver a large message to a waiting consumer without a copy; False if it needs any closer examination."""
        route = channel.last_route
        if route is None or route.generation != self.vhost.generation or method != channel.last_method:
            return False
        scan = self._scan_header
        if (
            not route.passes
            or route.is_per_message
            or not scan.scan(data, start + 7, start + 7 + i64(read_i32_be(data, start + 3)))
        ):
            return False
        if scan.reply_to_at != 0 or scan.expiration_at != 0 or scan.user_id_at != 0:
            return False
        mode = scan.delivery_mode
        if mode == 0 or mode > 2 or channel.is_kept_back:
            return False
        if scan.headers_at != 0 and carbon_copies.may_have(data, scan.headers_at):
            return False
        consumer = self.vhost.taker(route, mode == 2)
        if consumer is None or (pieces is not None and not consumer.takes_as_is(data, start)):
            return False
        consumer.pass_on(route.key, data, start, stop, pieces)
        self.is_publisher = True
        self.count(channel, route)
        if pieces is not None:
            for piece in pieces:
                self.cost += len(piece)
        else:
            self.cost += stop - start
        if channel.confirms is not None:
            self._confirm(channel, 1, HANDLED)
        channel.last_way = channel.last_route
        return True

    def publish(self, channel: BrokerChannel, method: bytes, data: bytes, start: i64, stop: i64) -> bool:
        """Check a message and publish it as its route says. Returns and raises what ChannelHandler.publish does.

        What most messages need is here, since a call costs them half a percent; rare kinds have their own functions.
        """
        vhost = self.vhost
        route = channel.last_route
        if route is None or route.generation != vhost.generation or method != channel.last_method:
            route = published_route(self, method)
            channel.last_route = route
            channel.last_method = method
        scan = self._scan_header
        if not scan.scan(data, start + 7, start + 7 + i64(read_i32_be(data, start + 3))):
            raise ProtocolError(SYNTAX_ERROR, "malformed content header", 60, 40)
        # of several errors the first is reported, in RabbitMQ's order
        content = part(data, start, stop)
        self._ttl_us = -1
        if scan.reply_to_at != 0 or scan.user_id_at != 0 or scan.expiration_at != 0:
            content = self._checked(channel, data, start, content)
        if scan.headers_at != 0 and carbon_copies.may_have(data, scan.headers_at):
            route, content = self._copied(route, content)
        mode = scan.delivery_mode
        if mode == 0 or mode > 2:
            raise ProtocolError(PRECONDITION_FAILED, f"invalid message: {{delivery_mode_unknown,{mode}}}", 60, 40)
        standing = HANDLED
        if route.is_per_message:
            route, standing = self._looked_up(channel, route, data, content)
        for requester in route.replies:
            if channel.staging is not None:
                raise ProtocolError(NOT_IMPLEMENTED, "a direct reply cannot be staged", 60, 40)
            vhost.reply(requester, content, route.key)
        channel.reply_to_dropped += route.lost_replies
        self.is_publisher = True
        number = number_in(data, scan.headers_at) if route.has_stream and scan.headers_at != 0 else None
        if channel.is_kept_back and not route.is_order:
            return self._keep_back(channel, route, content, number)
        if number is not None:
            standing = accept_numbered(self, channel, route, content, mode == 2, self._ttl_us, number, standing)
        else:
            self.count(channel, route)
            consumer = vhost.taker(route, mode == 2)
            if consumer is not None:
                self.cost += stop - start + ITEM_OCTETS
                consumer.pass_on(route.key, content, 0, len(content))
            elif route.queues:
                standing = self._enqueue(route, content, mode == 2, standing)
            elif not route.is_order:
                return_message(self, channel, route, content)
        if channel.confirms is not None:
            self._confirm(channel, 1, standing)
        channel.last_way = route
        return route.is_repeatable and scan.reply_to_at == 0 and number is None

    def _checked(self, channel: BrokerChannel, data: bytes, start: i64, content: bytes) -> bytes:
        """Check the user id and the expiration, and keep that. Returns the content, with the name of a direct reply."""
        scan = self._scan_header
        if scan.reply_to_at != 0 and data[scan.reply_to_at] == 21:
            content = with_reply_name(channel, content, scan.reply_to_at - start)
        if scan.user_id_at != 0:
            check_user_id(self, data, scan.user_id_at)
        if scan.expiration_at != 0:
            self._ttl_us = expiration_us(data, scan.expiration_at)
        return content

    def _copied(self, route: Route, content: bytes) -> tuple[Route, bytes]:
        """Return the route of a message that may have CC or BCC, and its content without BCC."""
        found = carbon_copies.CarbonCopies(content)
        if not found.has_any:
            return route, content
        route = routing.copied(self.vhost, route, found, self.seeker)
        check_copies(self, route)
        self.cost += ITEM_OCTETS * len(route.keys)
        return route, found.content

    def _looked_up(self, channel: BrokerChannel, route: Route, data: bytes, content: bytes) -> tuple[Route, i64]:
        """Return where this message goes on a route that is_per_message, and the state of its confirm so far.

        Raises Unfinished if it goes to more than QUEUES_MAX queues.
        """
        vhost, scan, plain = self.vhost, self._scan_header, route.plain
        standing = HANDLED
        if plain is not None and (scan.headers_at == 0 or not may_have_come(data, scan.headers_at)):
            route = plain
        else:
            hops = first_hops(data, scan.headers_at) if plain is not None else b""
            if hops:
                route = routing.travelled(vhost, route, hops, content, self.seeker)
            elif not route.is_order:
                standing = routing.look(vhost, route, content, channel.staging is not None, self.seeker)
            elif route.keys[0] == STAGE:
                standing = stage_methods.order(self, channel, content)
            else:
                standing = publisher_methods.order(self, channel, content)
        if vhost.tracing is not None:
            vhost.tracing.published(self, channel, route, content)
        if len(route.queues) > QUEUES_MAX and not channel.is_kept_back:
            self._spread(channel, route, data, content, standing)
        return route, standing

    def _spread(self, channel: BrokerChannel, route: Route, data: bytes, content: bytes, standing: i64) -> None:
        """Begin a publish to more than QUEUES_MAX queues; always raises Unfinished."""
        scan = self._scan_header
        number: Number | None = None
        if route.has_stream and scan.headers_at != 0:
            number = number_in(data, scan.headers_at)
        for requester in route.replies:
            self.vhost.reply(requester, content, route.key)
        channel.reply_to_dropped += route.lost_replies
        self.is_publisher = True
        self.count(channel, route)
        channel.last_way = route
        self.seeker.spread = Spread(self, route, content, scan.delivery_mode == 2, self._ttl_us, number, standing)
        raise Unfinished

    def _keep_back(self, channel: BrokerChannel, route: Route, content: bytes, number: Number | None) -> bool:
        """Publish to the channel's transaction or stage. Returns whether messages like this one may be one batch."""
        if channel.tx is not None:
            # only direct replies do not wait for the commit, as in RabbitMQ
            channel.tx.publish(route, content, self._scan_header.delivery_mode == 2, self._ttl_us, number)
            return False
        assert channel.staging is not None
        standing = channel.staging.publish(self, channel, route, content)
        if channel.confirms is not None:
            self._confirm(channel, 1, standing)
        channel.last_way = route
        return route.is_repeatable and self._scan_header.reply_to_at == 0 and number is None

    def _enqueue(self, route: Route, content: bytes, is_persistent: bool, standing: i64) -> i64:
        """Pass a message to the queues of a route. standing: the state of its confirm so far. Returns the new state."""
        self.cost += len(content) + ITEM_OCTETS * len(route.queues)
        accepted = self.vhost.accept(route, content, is_persistent, self._ttl_us, self.now_us)
        if self._ttl_us == 0 or route.is_brief:
            expire_untaken(self.vhost, route.queues, self.now_us)
        return standing if accepted == HANDLED else accepted

    def publish_more(self, channel: BrokerChannel, data: bytes, start: i64, stop: i64, stride: i64, size: i64) -> None:
        route = channel.last_way
        assert route is not None
        count = (stop - start + stride - 1) // stride
        persistent = self._scan_header.delivery_mode == 2
        route.published += count  # the message before them has put the route on the list
        channel.counters.publish += count
        self.cost += stop - start + ITEM_OCTETS * len(route.queues)
        consumer = self.vhost.taker(route, persistent) if channel.staging is None else None
        if consumer is not None and consumer.takes_batches():
            consumer.deliver_alike(route.key, data, start, stop, stride, size, False)
            standing = HANDLED
        else:
            buffer = BatchBuffer(data[start:stop], stride, size, count, route.key)
            if channel.staging is not None:
                standing = channel.staging.publish_more(route, buffer, self.now_us)
            else:
                standing = self.vhost.accept_batch(route, buffer, persistent, self._ttl_us, self.now_us)
                if self._ttl_us == 0 or route.is_brief:
                    expire_untaken(self.vhost, route.queues, self.now_us)
        if channel.confirms is not None:
            self._confirm(channel, count, standing)

    def _confirm(self, channel: BrokerChannel, count: i64, standing: i64) -> None:
        """Count publishes on a channel in confirm mode."""
        confirms = channel.confirms
        assert confirms is not None
        confirms.add(count, standing)
        if standing == JOURNALLED and not channel.is_waiting:
            self.broker.log.wait(self, channel)
        elif standing == SYNCING:
            self.broker.log.wait_synced(self, channel)
        elif standing == REFUSED and channel.publisher is not None:
            for ahead in range(count):
                channel.publisher.refuse(-ahead)
        if not channel.is_confirming:
            channel.is_confirming = True
            self._confirming.append(channel)

    def count(self, channel: BrokerChannel, route: Route) -> None:
        """Count one publish."""
        channel.counters.publish += 1
        if route.published == 0:
            self.vhost.tally.will_count(route)
        route.published += 1

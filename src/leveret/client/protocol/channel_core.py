"""The state of one channel, without sockets: requests that await answers, unfinished contents, consumers, confirms."""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from leveret.client.protocol import requests
from leveret.client.protocol.arguments import WRONG, check_fields, raise_explained, raise_publish_explained
from leveret.client.protocol.codecs import EncodedBody
from leveret.client.protocol.confirms import Confirms, nobody_waits
from leveret.client.protocol.errors import (
    ChannelClosed,
    ClientError,
    ConsumerCancelled,
    PublishError,
    TransactionLost,
    Unroutable,
)
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.client.protocol.publisher import TAG, AttachedPublisher
from leveret.client.protocol.publishing import PublishEncoder, cut_again
from leveret.client.protocol.recovery import TAGS, ChannelRecovery, ConsumerSpec
from leveret.client.protocol.requests import Arguments, Request
from leveret.client.protocol.unclaimed import Unclaimed
from leveret.client.protocol.waiter import Waiter
from leveret.wire import grammar
from leveret.wire.errors import COMMAND_INVALID, UNEXPECTED_FRAME, ProtocolError
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties
from leveret.wire.table import encode_short

log: Final = logging.getLogger("leveret.client")

T = TypeVar("T")
Answer = Method | Delivery


UNRECORDED: Final = -1
"""In place of the tag of the first delivery that is not settled; no delivery has it."""


class FrameOutbox(Protocol):
    """Takes the frames that a channel sends; implemented by its connection."""

    frame_max: int

    def send(self, data: bytes | bytearray) -> None: ...

    def ends_with(self, data: bytearray) -> bool: ...


class _Awaited(NamedTuple):
    """A request without an answer. own: the client's own, to restore the channel, and not its user's."""

    request: Request
    waiter: Waiter[Answer]
    own: bool


class _Content:
    """A message whose header or body has not arrived completely."""

    __slots__ = ("body", "header", "method", "missing")

    def __init__(self, method: Method) -> None:
        self.method = method
        self.header: bytes | None = None
        self.body: list[bytes] = []
        self.missing = 0  # bytes of the body that have not arrived


class ChannelCore(Generic[T]):
    """The protocol of one channel. T: the type of the token that the API keeps per unconfirmed publish, see Confirms.

    on_settled is called with the token and the outcome of each publish, on_failed once, when the channel has ended.
    recovery: The channel outlives its connection. After interrupt() it keeps what it is asked to do until restore().
    """

    def __init__(
        self,
        number: int,
        outbox: FrameOutbox,
        on_settled: Callable[[T, PublishError | None], None],
        on_failed: Callable[[ClientError], None],
        recovery: ChannelRecovery | None = None,
    ) -> None:
        self.number = number
        self.error: ClientError | None = None  # why the channel ended; None while it is open
        self.confirms: Confirms[T] | None = None  # None while confirms are off
        self.sinks: dict[bytes, DeliverySink] = {}  # by consumer tag, as encoded on the wire
        self.on_return: Callable[[Unroutable], None] = _log_return
        self.on_acknowledged: Callable[[int, bool], None] | None = None  # gets tag and multiple; also nacked, rejected
        self._outbox = outbox
        self._on_settled = on_settled
        self._on_failed = on_failed
        self._encoder = PublishEncoder(number, outbox.frame_max)
        self.on_interrupted: Callable[[], None] = _ignore
        self.on_restored: Callable[[], None] = _ignore
        self._awaited: deque[_Awaited] = deque()  # the oldest first
        self._recovery = recovery
        self.is_interrupted: bool = False  # the connection is lost and will be restored
        self._holds = False  # publishes with confirms wait until the channel is restored
        self._publisher: AttachedPublisher | None = None
        self._sent_last = 0  # number of the last publish that was sent when the connection was lost
        self.tag_base: int = 0  # added to the delivery tags of the present connection
        # the delivery tag, as the user has it, of the first delivery that is not settled
        self._next_tag = 1
        self._last_ack = bytearray()  # the frame that acknowledged those before it
        self._content: _Content | None = None
        self._closing: Waiter[None] | None = None  # set once channel.close is sent
        self._unclaimed = Unclaimed()

    # requests of the user

    def request(self, request: Request) -> Waiter[Answer]:
        """Send a synchronous method; the waiter gets its answer. Raises ClientError if the channel is closed.

        The caller need not wait: answers come in the order of the requests, so each finds its own waiter.
        """
        self.check_open()
        check_fields(request.spec, request.values)
        if request.spec is grammar.TX_SELECT:
            self._next_tag = UNRECORDED  # a rollback unsettles deliveries
        waiter: Waiter[Answer] = Waiter()
        recovery = self._recovery
        if recovery is not None and request.spec is not grammar.BASIC_GET:
            recovery.prepare(request)
            waiter.when_succeeded(lambda answer: recovery.record(request, _method(answer)))
        self._ask(_Awaited(request, waiter, own=False))
        return waiter

    def publish(
        self,
        token: T,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: Properties | None,
        mandatory: bool,
    ) -> int:
        """Send a message and return its sequence number, or 0 while confirms are off.

        Raises ClientError if the channel is closed, OutboxFull if it may keep no further message, TypeError or
        ValueError for an argument that cannot be encoded.
        """
        if self.error is not None or self._closing is not None:
            self.check_open()
        if type(body) is EncodedBody:
            properties = properties or Properties()
            if properties.content_type is None:
                properties = replace(properties, content_type=body.content_type)
        if not exchange and self._recovery is not None and self._recovery.topology.names:
            routing_key = self._recovery.topology.names.get(routing_key, routing_key)
        try:
            frames = self._encoder.encode(body, exchange, routing_key, properties, mandatory)
        except (*WRONG, struct.error) as error:
            raise_publish_explained(body, exchange, routing_key, properties, error)
        confirms = self.confirms
        if confirms is None:
            self._send_unconfirmed(frames)
            return 0
        # counted before it is sent: an interrupt in between (KeyboardInterrupt) leaves a number that is never
        # confirmed; if it were sent and not counted, its confirm would be taken for the next message's
        number = confirms.add(token, frames)
        if mandatory:
            confirms.expect_return(number, exchange, routing_key, body, properties)
        if not self._holds:
            self._outbox.send(frames)
        return number

    @property
    def is_outbox_full(self) -> bool:
        """Whether publish() would raise OutboxFull."""
        if self._recovery is None or self.error is not None:
            return False
        return self.confirms.is_full if self.confirms is not None else self._recovery.is_full

    def withdraw(self, number: int) -> bool:
        """Do not send a publish again whose caller no longer waits. Returns whether it was sent, perhaps, before."""
        confirms = self.confirms
        if not self.is_interrupted or confirms is None or number not in confirms.outstanding:
            return True
        confirms.withdraw(number)
        return number <= self._sent_last

    def publish_frames(self, tokens: Sequence[T], frames: bytes) -> int:
        """Send messages that are encoded already, one per token; return the first's number, or 0 without confirms.

        Raises ValueError on a connection that reconnects, which could not send them again one by one.
        """
        if self._recovery is not None:
            raise ValueError("publish_frames needs a connection that was opened with reconnect=False")
        self.check_open()
        number = self.confirms.add_run(tokens) if self.confirms is not None else 0  # before: see publish
        self._outbox.send(frames)
        return number

    def confirm_select(self) -> Waiter[Answer]:
        """Turn confirms on. The broker counts publishes from confirm.select on, not from its answer on."""
        self.check_open()
        self.start_confirms()
        return self.request(requests.confirm_select())

    def attach_publisher(self, name: str) -> Waiter[int]:
        """Attach the channel to a publisher reference; the result is the id of the last publish that the broker has.

        Turns confirms on.
        """
        self.confirm_select()
        self._publisher = AttachedPublisher(name)
        self._holds = True  # until it is known which id comes next
        self._attach(self._publisher)
        return self._publisher.known

    @property
    def last_publishing_id(self) -> int:
        """The id of the last publish under the channel's publisher reference; 0 without one."""
        if self._publisher is None or self.confirms is None:
            return 0
        return self._publisher.base + self.confirms.last_place

    def start_confirms(self) -> None:
        """Start to count publishes; called as confirm.select is sent. No effect the second time."""
        if self.confirms is None:
            self.confirms = Confirms(self._on_settled, self._recovery.policy if self._recovery is not None else None)

    def consume(
        self, sink: DeliverySink, queue: str, no_ack: bool, exclusive: bool, arguments: Arguments
    ) -> Waiter[Answer]:
        """Start a consumer. Its sink is registered when the answer arrives, since deliveries follow the answer."""
        answer = self.request(requests.consume(queue, sink.tag, no_ack, exclusive, arguments))
        spec = ConsumerSpec(queue, no_ack, exclusive, arguments or {})
        answer.when_succeeded(lambda _: self._start_consumer(sink, spec))
        return answer

    def cancel(self, tag: str) -> Waiter[Answer]:
        """End a consumer. Its sink gets what the broker sends before the answer, and is removed with the answer."""
        answer = self.request(requests.cancel(tag))
        answer.when_succeeded(lambda _: self._consumer_ended(tag))
        return answer

    def get(self, queue: str, no_ack: bool) -> Waiter[Delivery | None]:
        """Fetch a message; the result is None if the queue is empty."""
        self.check_open()
        fetched: Waiter[Delivery | None] = Waiter()
        kept = self._unclaimed.take(queue) if no_ack and self._unclaimed else None
        if kept is not None:
            fetched.succeed(kept)
            return fetched
        answer = self.request(requests.get(queue, no_ack))

        def arrived() -> None:
            if answer.error is not None:
                fetched.fail(answer.error)
                return
            came = answer.result()
            delivery = came if isinstance(came, Delivery) else None
            fetched.succeed(self._unclaimed.exchange(queue, delivery) if no_ack else delivery)

        answer.when_done(arrived)
        return fetched

    def add_sink(self, sink: DeliverySink) -> None:
        """Register a consumer; the caller sends its basic.consume afterwards."""
        self.sinks[encode_short(sink.tag)] = sink

    def remove_sink(self, tag: str) -> None:
        """Forget a consumer, if it is registered."""
        self.sinks.pop(encode_short(tag), None)

    def acknowledge(self, spec: MethodSpec, delivery_tag: int, **flags: bool) -> bool:
        """Send basic.ack, nack or reject; False if the delivery came over a connection that is lost.

        Raises ClientError if the channel is closed.
        """
        self.check_open()
        values: dict[str, object] = {"delivery_tag": delivery_tag, **flags}
        try:
            present = self._present_tag(delivery_tag, flags.get("multiple", False))
            if present is None:
                return False
            self._send(spec, {**values, "delivery_tag": present})
        except WRONG as error:
            raise_explained(spec, values, error)
        self._settle(delivery_tag, flags.get("multiple", False))
        return True

    def ack(self, delivery_tag: int, multiple: bool) -> bool:
        """Send basic.ack; False if the delivery came over a connection that is lost.

        The frame is packed here, without the general encoder, because acks are as many as messages. Acks in the order
        of the deliveries that are still in the outbox are sent as one, with multiple: this costs the broker less.
        Raises ClientError if the channel is closed.
        """
        if self.error is not None or self._closing is not None:
            self.check_open()
        try:
            if delivery_tag == self._next_tag and not multiple:
                self._ack_next(delivery_tag)
                return True
            present = self._present_tag(delivery_tag, multiple)
            if present is None:
                return False
            frame = _pack_ack(1, self.number, 13, grammar.BASIC_ACK.key, present, multiple, 0xCE)
        except (struct.error, TypeError) as error:
            raise_explained(grammar.BASIC_ACK, {"delivery_tag": delivery_tag, "multiple": multiple}, error)
        self._outbox.send(frame)
        self._settle(delivery_tag, multiple)
        return True

    def begin_tags(self, base: int) -> None:
        """Number deliveries from `base` + 1 on: lower delivery tags are of a connection or channel that is lost."""
        self.tag_base = base
        if self._next_tag != UNRECORDED:
            self._next_tag = base + 1

    def _ack_next(self, delivery_tag: int) -> None:
        present = delivery_tag - self.tag_base
        if self._outbox.ends_with(self._last_ack):
            _pack_tag(self._last_ack, TAG_AT, present)
        else:
            self._last_ack = bytearray(_pack_ack(1, self.number, 13, grammar.BASIC_ACK.key, present, True, 0xCE))
            self._outbox.send(self._last_ack)
        self._next_tag += 1
        if self.on_acknowledged is not None:
            self.on_acknowledged(delivery_tag, False)

    def _settle(self, delivery_tag: int, multiple: bool) -> None:
        """Record that a delivery is settled, or with multiple all up to it."""
        if delivery_tag == self._next_tag or (multiple and delivery_tag > self._next_tag > 0):
            self._next_tag = delivery_tag + 1

    def _present_tag(self, delivery_tag: int, multiple: bool) -> int | None:
        """Return the broker's delivery tag for one that the user has, None if it is of a connection that is lost."""
        if delivery_tag is None:
            raise TypeError  # which the callers explain
        if self.on_acknowledged is not None:
            self.on_acknowledged(delivery_tag, multiple)
        if self._recovery is not None:
            self._recovery.is_tx_used = True
        if not self.tag_base:
            return delivery_tag
        if delivery_tag > self.tag_base or (delivery_tag == 0 and not self.is_interrupted):
            return delivery_tag and delivery_tag - self.tag_base
        log.info(_STALE)
        return None

    def close(self) -> Waiter[None]:
        """Send channel.close once. The waiter is done when the broker has answered; then the channel's number is free.

        The caller need not wait for it.
        """
        if self._closing is None:
            self._closing = Waiter()
            if self.error is not None:
                self._closing.succeed(None)
            elif self.is_interrupted:
                self.fail(_CLOSED_HERE)
            else:
                self._send(grammar.CHANNEL_CLOSE, {"reply_code": 200, "reply_text": "done"})
        return self._closing

    def check_open(self) -> None:
        """Raise ClientError if the channel is closed or closing."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._closing is not None:
            raise ChannelClosed(200, "the channel is being closed by this client")

    # requests whose caller was cancelled: the broker carries them out all the same, so they are undone

    def abandon(self) -> None:
        """Close a channel that nobody uses, once all its requests are answered and undone."""
        if self._awaited:
            self._awaited[-1].waiter.when_done(self.abandon)
        else:
            self.close()

    def abandon_consumer(self, sink: DeliverySink, answer: Waiter[Answer], queue: str, no_ack: bool) -> None:
        """End a consumer whose consume call was cancelled. Deliveries that arrive before the end are put back."""
        key = encode_short(sink.tag)
        if not self.is_open or (answer.done and key not in self.sinks):
            return  # the broker has ended it already
        rest = DeliverySink(sink.tag, lambda delivery: self.put_back(delivery, queue, no_ack), lambda _error: None)
        answer.when_succeeded_instead(lambda _: self._register(rest))
        self.cancel(sink.tag)  # at once, not after the answer, so that few messages are delivered

    def abandon_get(self, fetched: Waiter[Delivery | None], queue: str, no_ack: bool) -> None:
        """Put back the message of a get call that was cancelled."""
        fetched.when_succeeded(lambda delivery: self.put_back(delivery, queue, no_ack) if delivery else None)

    def abandon_queue(self, answer: Waiter[Answer]) -> None:
        """Delete the queue of a cancelled declare call whose name the broker generates: nobody learns its name."""
        answer.when_succeeded(lambda declared: self._delete_queue(declared) if isinstance(declared, Method) else None)

    def put_back(self, delivery: Delivery, queue: str, no_ack: bool) -> None:
        """Requeue a delivery that nobody takes; with no_ack keep it for the channel's next get or consume."""
        if no_ack:
            self._unclaimed.add(queue, delivery)
        elif self.is_open:  # else requeued by the broker when the channel closes
            self.acknowledge(grammar.BASIC_REJECT, delivery.delivery_tag, requeue=True)

    @property
    def is_kept(self) -> bool:
        """Whether the channel outlives its socket."""
        return self._recovery is not None

    @property
    def is_open(self) -> bool:
        """Whether the channel is neither closed nor closing."""
        return self.error is None and self._closing is None

    # frames of the broker

    def receive_method(self, payload: bytes) -> None:
        """Handle a method frame of this channel. Raises ProtocolError if the method is not allowed now."""
        if payload[:4] == _ACK and len(payload) == 13 and self._content is None and self.confirms is not None:
            # basic.ack is decoded here, without the general decoder: a broker may send one per message
            self.confirms.answer(int.from_bytes(payload[4:12], "big"), payload[12] & 1 == 1, accepted=True)
            return
        method = decode_method(payload)
        if self._content is not None:
            raise ProtocolError(UNEXPECTED_FRAME, f"{method.name} within a content")
        if method.spec.has_content:
            self._content = _Content(method)
            return
        handler = _HANDLERS.get(method.spec.key)
        if handler is not None:
            handler(self, method)
        else:
            self._answer(method.spec, method)

    def receive_header(self, payload: bytes) -> None:
        """Handle a content header frame. Raises ProtocolError 505 if no method announced a content."""
        content = self._content
        if content is None or content.header is not None or len(payload) < 14:
            raise ProtocolError(UNEXPECTED_FRAME, "content header without its method")
        content.header = payload
        content.missing = int.from_bytes(payload[4:12], "big")
        if not content.missing:
            self._finish(content, payload)

    def receive_body(self, payload: bytes) -> None:
        """Handle a content body frame. Raises ProtocolError 505 if it is more than the header announced."""
        content = self._content
        if content is None or content.header is None or len(payload) > content.missing:
            raise ProtocolError(UNEXPECTED_FRAME, "content body that was not announced")
        content.body.append(payload)
        content.missing -= len(payload)
        if not content.missing:
            self._finish(content, content.header)

    @property
    def is_between_contents(self) -> bool:
        """Whether no content is incomplete, so that the next frame is a method."""
        return self._content is None

    def fail(self, error: ClientError) -> None:
        """End the channel: waiters, consumers and unconfirmed publishes get the error. No effect the second time."""
        if self.error is not None:
            return
        self.error = error
        self._content = None
        awaited, self._awaited = self._awaited, deque()
        for each in awaited:
            each.waiter.fail(error)
        sinks, self.sinks = self.sinks, {}
        if self._recovery is not None:
            sinks |= self._recovery.end()
        for sink in sinks.values():
            sink.ended(error)
        if self._closing is not None:
            self._closing.succeed(None)
        if self._unclaimed:
            log.warning(_LOST, len(self._unclaimed))
            self._unclaimed = Unclaimed()
        if self._publisher is not None:
            self._publisher.known.fail(error)
            self._publisher = None
        self._on_failed(error)
        # drop the references to the API's channel, so that it is freed as soon as its user drops it
        self._on_settled, self._on_failed, self.on_return = nobody_waits, _nobody_hears, _log_return
        self.on_interrupted = self.on_restored = _ignore
        if self.confirms is not None:
            self.confirms.close()

    # the end of a connection that will be restored

    def interrupt(self) -> None:
        """Learn that the connection is lost and will be restored. Until restore() nothing is sent."""
        if self._closing is not None:
            self.fail(_CLOSED_HERE)
            return
        assert self._recovery is not None
        self._content = None
        self.sinks = {}
        if not self._holds and self.confirms is not None:
            self._sent_last = self.confirms.last
        self.is_interrupted = self._holds = True
        self.begin_tags(self.tag_base + TAGS)
        self._recovery.interrupt()
        self.on_interrupted()
        users = [each for each in self._awaited if not each.own]
        self._awaited = deque(each for each in users if each.request.spec is not grammar.TX_COMMIT)
        for each in users:
            if each.request.spec is grammar.TX_COMMIT:
                self._recovery.is_tx_lost = False
                each.waiter.fail(TransactionLost(is_unknown=True))

    def restore(self) -> list[Waiter[Answer]]:
        """Open the channel on a new connection, with all that it had, and send what it was asked to do meanwhile.

        Returns the answers to wait for until the channel is as it was. If one is refused, the channel ends.
        """
        recovery = self._recovery
        assert recovery is not None
        self.is_interrupted = False
        self._encoder = PublishEncoder(self.number, self._outbox.frame_max)
        users = deque(each for each in self._awaited if not each.own)
        self._awaited.clear()
        if users and users[0].request.spec is grammar.CHANNEL_OPEN:
            self._ask(users.popleft())
        else:
            self._ask(_Awaited(requests.open_channel(), Waiter(), own=True))
        for request, sink in recovery.requests(self.confirms is not None):
            answer: Waiter[Answer] = Waiter()
            if sink is not None:
                answer.when_succeeded(partial(self._register, sink))
            self._ask(_Awaited(request, answer, own=True))
        if self._publisher is not None:
            self._attach(self._publisher)
        restored = [each.waiter for each in self._awaited]
        for each in users:
            self._ask(each)
        if self.confirms is None:
            self._send_all(recovery.release())
        elif self._publisher is None:
            self._send_again(self.confirms)
        self.on_restored()
        return restored

    def _attach(self, publisher: AttachedPublisher) -> None:
        assert self.confirms is not None
        answer: Waiter[Answer] = Waiter()
        sink = DeliverySink(TAG, self._publisher_known, lambda error: None)
        answer.when_succeeded(lambda _: self.add_sink(sink))
        self._ask(_Awaited(publisher.request(self.confirms.first), answer, own=True))

    def _publisher_known(self, state: Delivery) -> None:
        """Settle the publishes that the broker has, and send those behind them."""
        assert self._publisher is not None
        assert self.confirms is not None
        self.confirms.known(*self._publisher.attached(state))
        self._send_again(self.confirms)

    def _send_again(self, confirms: Confirms[T]) -> None:
        self._holds = False
        self._send_all(confirms.send_again())

    def _send_all(self, publishes: Sequence[bytes]) -> None:
        for frames in publishes:
            self._outbox.send(cut_again(frames, self._outbox.frame_max))

    def _ask(self, asked: _Awaited) -> None:
        """Send a request, or keep it until the connection is restored."""
        if not self.is_interrupted:
            values = asked.request.values
            if self._recovery is not None and self._recovery.topology.names:
                values = self._recovery.topology.translated(values)
            self._send(asked.request.spec, values)
        self._awaited.append(asked)

    def _send(self, spec: MethodSpec, values: dict[str, object]) -> None:
        self._outbox.send(method_frame(self.number, spec, **values))

    def _send_unconfirmed(self, frames: bytes) -> None:
        """Send a message without confirms, or keep it until the connection is restored."""
        recovery = self._recovery
        if recovery is not None:
            if recovery.is_tx_lost:
                return  # its transaction is lost, as the commit will tell
            recovery.is_tx_used = True
            if self.is_interrupted:
                recovery.hold(frames)
                return
        self._outbox.send(frames)

    def _register(self, sink: DeliverySink, _answer: Answer | None = None) -> None:
        """Add the sink of a consumer, which gets delivery tags that no other connection had."""
        base = self.tag_base
        if base:

            def deliver(delivery: Delivery) -> None:
                delivery.delivery_tag += base
                sink.deliver(delivery)

            self.add_sink(sink._replace(deliver=deliver))
        else:
            self.add_sink(sink)

    def _start_consumer(self, sink: DeliverySink, spec: ConsumerSpec) -> None:
        self._register(sink)
        if self._recovery is not None:
            self._recovery.consumer_began(spec, sink)
        if spec.no_ack and self._unclaimed:
            for delivery in self._unclaimed.take_all(spec.queue):
                delivery.consumer_tag = sink.tag
                sink.deliver(delivery)

    def _consumer_ended(self, tag: str) -> None:
        self.remove_sink(tag)
        if self._recovery is not None:
            self._recovery.consumer_ended(tag)

    def _delete_queue(self, declared: Method) -> None:
        if self.is_open:
            self.request(requests.delete_queue(declared.text("queue"), False, False))

    def _finish(self, content: _Content, header: bytes) -> None:
        self._content = None
        method = content.method
        body = content.body[0] if len(content.body) == 1 else b"".join(content.body)
        if method.spec is grammar.BASIC_RETURN:
            self._returned(method, header, body)
            return
        is_delivery = method.spec is grammar.BASIC_DELIVER
        delivery = Delivery(
            body,
            header,
            method.text("exchange"),
            method.text("routing_key"),
            method.number("delivery_tag"),
            method.flag("redelivered"),
            method.text("consumer_tag") if is_delivery else "",
        )
        if not is_delivery:
            delivery.delivery_tag += self.tag_base
            self._answer(method.spec, delivery)
            return
        sink = self.sinks.get(encode_short(delivery.consumer_tag))
        if sink is not None:  # else cancelled while the message was under way; the broker requeues it at close
            delivery.consumer_tag = sink.tag
            sink.deliver(delivery)

    def _returned(self, method: Method, header: bytes, body: bytes) -> None:
        exchange, routing_key = method.text("exchange"), method.text("routing_key")
        returned = Delivery(body, header, exchange, routing_key, 0, False, "")
        error = Unroutable(
            method.number("reply_code"), method.text("reply_text"), exchange, routing_key, body, returned.properties
        )
        if self.confirms is None or not self.confirms.returned(error):
            self.on_return(error)

    def _answer(self, spec: MethodSpec, answer: Answer) -> None:
        if not self._awaited or spec.key not in self._awaited[0].request.replies:
            raise ProtocolError(COMMAND_INVALID, f"{spec.name} has no reply", spec.class_id, spec.method_id)
        self._awaited.popleft().waiter.succeed(answer)

    def _on_answer(self, method: Method) -> None:
        if self.confirms is not None:
            accepted = method.spec is grammar.BASIC_ACK
            self.confirms.answer(method.number("delivery_tag"), method.flag("multiple"), accepted)

    def _on_cancel(self, method: Method) -> None:
        tag = method.text("consumer_tag")
        sink = self.sinks.get(encode_short(tag))
        self._consumer_ended(tag)
        if sink is not None:
            sink.ended(ConsumerCancelled(tag))
        if not method.flag("no_wait"):
            self._send(grammar.BASIC_CANCEL_OK, {"consumer_tag": tag})

    def _on_flow(self, method: Method) -> None:
        self._send(grammar.CHANNEL_FLOW_OK, {"active": method.flag("active")})

    def _on_close(self, method: Method) -> None:
        self._send(grammar.CHANNEL_CLOSE_OK, {})
        self.fail(
            ChannelClosed(
                method.number("reply_code"),
                method.text("reply_text"),
                method.number("class_id"),
                method.number("method_id"),
            )
        )

    def _on_close_ok(self, _method: Method) -> None:
        self.fail(_CLOSED_HERE)


# methods that are no answer; every other one is the answer to the oldest request
_HANDLERS: Final[dict[int, Callable[[ChannelCore[Any], Method], None]]] = {
    grammar.BASIC_ACK.key: ChannelCore._on_answer,
    grammar.BASIC_NACK.key: ChannelCore._on_answer,
    grammar.BASIC_CANCEL.key: ChannelCore._on_cancel,
    grammar.CHANNEL_FLOW.key: ChannelCore._on_flow,
    grammar.CHANNEL_CLOSE.key: ChannelCore._on_close,
    grammar.CHANNEL_CLOSE_OK.key: ChannelCore._on_close_ok,
}

_LOST: Final = (
    "%d messages are lost: the broker sent them without acknowledgement for a get or consume that was cancelled, and "
    "the channel closed before another call asked for them; use acknowledgements where no message may be lost"
)
_STALE: Final = (
    "an acknowledgement has no effect, because it came after the connection of its delivery was lost: the broker"
    " delivers the message again"
)
_CLOSED_HERE: Final = ChannelClosed(200, "the channel was closed by this client")
_ACK: Final = grammar.BASIC_ACK.key.to_bytes(4, "big")
_pack_ack: Final = struct.Struct(">BHIIQBB").pack
_pack_tag: Final = struct.Struct(">Q").pack_into
TAG_AT: Final = 11
"""Where the delivery tag is in the frame of an ack."""


def _method(answer: Answer) -> Method:
    assert isinstance(answer, Method)
    return answer


def _log_return(error: Unroutable) -> None:
    log.warning("message returned: %s", error)


def _nobody_hears(error: ClientError) -> None:
    """Ignore the error: on_failed was called already."""


def _ignore() -> None:
    """Ignore that the connection is lost, or restored."""

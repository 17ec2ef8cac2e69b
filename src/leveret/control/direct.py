"""AMQP without a socket, for commands that do what a client could do (RabbitMQ's direct client).

The user's permissions apply as to a client, and errors have the same texts.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from leveret.broker.peer import Peer
from leveret.broker.vhost import VHost
from leveret.control.methods import method_of, refusal_of
from leveret.control.node import BrokerNode
from leveret.control.refusal import NOT_AUTHORISED, Refused, bad_request, not_found
from leveret.session import lifecycle
from leveret.session.confirms import Confirms
from leveret.wire import errors, grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import FRAME_METHOD, Frame, FrameReader, content_frames
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method, decode_method, method_frame

CHANNEL: Final = 1
FRAME_OCTETS_MAX: Final = 131072
# confirms every record: all output may be taken now, as the command waits until everything recorded so far is on disk
_SENT: Final = 1 << 62


class DirectChannel:
    """A channel of a connection inside the process, for use in a with block, in which no time passes.

    The permissions of `user` count; None is an operator, who may do everything. Raises Refused if the virtual host does
    not exist or a limit of the user is reached.
    """

    def __init__(self, node: BrokerNode, vhost: str, user: str | None) -> None:
        self.vhost = _vhost(node, vhost)
        self._node = node
        self._peer = Peer(node.broker, "direct", True)
        self._peer.now_us = node.host.now_us()
        self._peer.vhost, self._peer.user, self._peer.state = self.vhost, user or "", lifecycle.RUNNING
        self._peer.frame_max = FRAME_OCTETS_MAX
        if user is None:
            self._peer.may_do_all()
        try:
            self._channel = self._peer.open_channel(CHANNEL)
        except ProtocolError as error:  # a limit of the user
            raise refusal_of(error) from None
        self._reader = FrameReader(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._peer.lost(self._node.host.now_us())

    def ask(self, spec: MethodSpec, **fields: str | bool | int | bytes) -> Method:
        """Call a method and return its answer. An AMQP error raises Refused with the text of RabbitMQ's HTTP API."""
        try:
            return self.call(spec, **fields)[0]
        except ProtocolError as error:
            raise refusal_of(error) from None

    def call(self, spec: MethodSpec, **fields: str | bool | int | bytes) -> tuple[Method, list[Frame]]:
        """Call a method and return its answer and the frames of the content after it. Raises ProtocolError."""
        self._peer.now_us = self._node.host.now_us()
        self.tell(spec, **fields)
        answer, *content = self._frames()
        return decode_method(answer.payload), content

    def tell(self, spec: MethodSpec, **fields: str | bool | int | bytes) -> None:
        """Call a method that has no answer. Work that would take several turns is done in this one."""
        method = method_of(spec, **fields)
        self._peer.handle(self._channel, method)
        while self._peer.is_unfinished:
            self._peer.is_unfinished = False
            self._node.broker.requeue_jobs.step(self._peer.now_us)
            self._peer.handle(self._channel, method)

    def publish(self, exchange: str, key: str, header: bytes, body: bytes) -> bool:
        """Publish a message and return whether it was routed; `header` is the payload of its header frame.

        Raises ProtocolError, and Refused if a queue rejects the message.
        """
        self._peer.now_us = now_us = self._node.host.now_us()
        try:
            method = method_frame(CHANNEL, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key, mandatory=True)
        except ValueError as error:  # a name that is too long
            raise bad_request(str(error)) from None
        content = content_frames(CHANNEL, header, body, int(self._peer.frame_max))
        channel = self._peer.channels[CHANNEL]
        channel.confirms = Confirms()
        self._peer.publish(channel, method, content, 0, len(content))
        self._peer.turn(b"", now_us)
        said = [decode_method(frame.payload).spec for frame in self._frames() if frame.kind == FRAME_METHOD]
        if grammar.BASIC_NACK in said:
            raise bad_request("rejected Unable to publish message. Check queue limits.")
        return grammar.BASIC_RETURN not in said

    def _frames(self) -> list[Frame]:
        self._reader.feed(b"".join(self._peer.take(_SENT)))
        frames: list[Frame] = []
        while (frame := self._reader.next()) is not None:
            frames.append(frame)
        return frames


def reply_refusal(error: ProtocolError) -> Refused:
    """Return the HTTP API's error for a channel that was closed by the broker, with the whole reply text."""
    if error.code == errors.NOT_FOUND:
        return not_found(error.reply_text)
    if error.code == errors.ACCESS_REFUSED:
        return Refused(NOT_AUTHORISED, error.reply_text)
    # as in RabbitMQ, which includes the code's name only if the channel is closed, not the connection
    return bad_request(f"{error.code} {error.text if error.is_hard else error.reply_text}")


def _vhost(node: BrokerNode, name: str) -> VHost:
    vhost = node.broker.vhosts.get(name)
    if vhost is None:
        raise not_found("vhost_not_found")
    return vhost

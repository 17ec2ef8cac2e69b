"""What the session asks of the broker: the whole border between them, as two abstract classes.

`Connection` cuts the received bytes into messages and methods and calls these. The broker's channel and its Peer
implement them. All are called within a turn, with the connection's now_us set.

They are no generic classes, because mypyc compiles the attributes of those to slower code. Instead the broker keeps the
channels, so each side knows their exact class: the session calls methods of a channel, and never hands one over.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.session.assembly import Assembly
from leveret.wire.errors import ProtocolError
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.session.channel import Channel


class ChannelHandler(metaclass=ABCMeta):
    """What happens on a channel. Each method raises ProtocolError."""

    @abstractmethod
    def publish(self, method: bytes, data: bytes, start: i64, stop: i64) -> bool:
        """Handle a whole message: data[start:stop] is its header frame and its body frames, as the publisher cut them.

        method: the raw frame of its basic.publish. Returns True if messages that differ from it only in their bodies
        may follow by `publish_more`. Raises Unfinished if it goes on in another turn, by ConnectionHandler.resume.
        """

    @abstractmethod
    def publish_more(self, data: bytes, start: i64, stop: i64, stride: i64, size: i64) -> None:
        """Handle more messages like the last, in data[start:stop]: each of `size` bytes, starting every `stride` bytes.
        """

    @abstractmethod
    def publish_pieces(self, assembly: Assembly) -> None:
        """Handle a whole message that came in pieces. Raises Unfinished as `publish` does."""

    @abstractmethod
    def acknowledge(self, tag: i64, multiple: bool) -> None:
        """Handle basic.ack; sets the connection's is_unfinished if it needs another turn."""

    @abstractmethod
    def handle(self, method: Method) -> None:
        """Handle any other method; sets the connection's is_unfinished if it needs another turn."""

    @abstractmethod
    def closed(self) -> None:
        """Release what the channel holds; it is closed, or about to be after an error."""


class ConnectionHandler(metaclass=ABCMeta):
    """What happens on a connection, and its channels by number."""

    @abstractmethod
    def start(self) -> None:
        """Send connection.start: the client speaks AMQP 0-9-1."""

    @abstractmethod
    def unknown_protocol(self, data: bytes) -> None:
        """Log that the client does not speak AMQP 0-9-1, but began with this."""

    @abstractmethod
    def handle_on_connection(self, method: Method) -> None:
        """Handle a method of the connection: its login, its limits, its virtual host. Raises ProtocolError."""

    @abstractmethod
    def open_channel(self, number: int) -> Channel:
        """Make and keep a channel with this number. Raises ProtocolError if the client may have no more."""

    @abstractmethod
    def find_channel(self, number: i64) -> Channel | None:
        """Return the channel that `open_channel` has made, until `remove_channel`; else None."""

    @abstractmethod
    def all_channels(self) -> list[Channel]:
        """Return a list of all of them."""

    @abstractmethod
    def remove_channel(self, channel: Channel) -> None:
        """Forget a channel that is closed on both sides: its number is free again."""

    @abstractmethod
    def resume(self) -> None:
        """Continue the suspended publish, and make its channel the current one. Raises Unfinished or ProtocolError."""

    @abstractmethod
    def has_left(self) -> bool:
        """Whether everything that ends with the connection is removed; else its close is handled again in another turn.
        """

    @abstractmethod
    def failed(self, error: ProtocolError, channel: Channel | None) -> None:
        """Log an error that is about to be sent."""

    @abstractmethod
    def after_failure(self, error: ProtocolError) -> int:
        """Return the state after an error that ends the connection: CLOSING if connection.close is to be sent, DRAINING
        if the client is told nothing.
        """

    @abstractmethod
    def mark(self) -> None:
        """Note that there is output to be taken."""

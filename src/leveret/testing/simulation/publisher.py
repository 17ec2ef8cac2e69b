"""A client that publishes with confirms, and records the fate of each message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.errors import ClientError
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.network import Network, SimulatedHost
from leveret.wire.properties import Properties
from leveret.wire.table import Value

WAITING: Final = "waiting"  # for a channel
SENT: Final = "sent"
CONFIRMED: Final = "confirmed"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"  # the channel has ended before the confirm


@dataclass
class Sent:
    """A message of a publisher.

    Attributes:
        state: one of WAITING, SENT, CONFIRMED, REFUSED, UNKNOWN.
        sent_us: the time of its publish; 0 before.
    """

    id: str
    key: str
    body: bytes
    properties: Properties
    state: str = WAITING
    sent_us: int = 0


class Publisher(Client):
    """A publisher; `messages` has all its messages by message id."""

    def __init__(
        self,
        network: Network,
        host: SimulatedHost,
        broker: str,
        exchange: str,
        reference: str | None = None,
        repeats: bool = True,
    ) -> None:
        """Begin to connect; the arguments are those of Node.publisher()."""
        self.exchange = exchange
        self.messages: dict[str, Sent] = {}
        self._reference = reference
        self._numbers: list[Sent] = []
        self._waiting: list[Sent] = []
        super().__init__(network, host, broker, repeats)

    def publish(
        self, key: str, body: bytes = b"", headers: dict[str, Value] | None = None, persistent: bool = True
    ) -> str:
        """Publish a message as soon as there is a connection. Return its message id, which is unique.

        Raises ClientError if the channel has ended for good.
        """
        id = f"{self.name} {len(self.messages) + 1}"
        mode = 2 if persistent else 1
        message = Sent(id, key, body or id.encode(), Properties(message_id=id, delivery_mode=mode, headers=headers))
        if self.channel is None:
            self._waiting.append(message)
        else:
            self._send(self.channel, message)
            self.flush()
        self.messages[id] = message
        return id

    def publish_every(self, interval_s: float, count: int, *keys: str, body_octets: int = 0) -> None:
        """Publish `count` messages from now on, one every `interval_s` virtual seconds, cycling through the keys."""
        if count > 0 and not self.is_stopped:
            self.publish(keys[0], bytes(body_octets))
            rest = (*keys[1:], keys[0])
            more = lambda: self.publish_every(interval_s, count - 1, *rest, body_octets=body_octets)  # noqa: E731
            self.clock.later(int(interval_s * 1e6), more)

    def ids(self, *states: str) -> list[str]:
        """Return the ids of the messages in these states."""
        return [message.id for message in self.messages.values() if message.state in states]

    @property
    def confirmed(self) -> list[str]:
        """The ids of the confirmed messages, which the broker must never lose."""
        return self.ids(CONFIRMED)

    @property
    def is_done(self) -> bool:
        """Whether every message was sent, and was answered or has lost its channel."""
        return not self.ids(WAITING, SENT)

    def _send(self, channel: ChannelCore[int], message: Sent) -> None:
        channel.publish(len(self._numbers), message.body, self.exchange, message.key, message.properties, False)
        self._numbers.append(message)
        message.state = SENT
        message.sent_us = self.clock.now_us

    def on_open(self, channel: ChannelCore[int]) -> None:
        if self._reference is None:
            channel.confirm_select()
        else:
            channel.attach_publisher(self._reference)
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._send(channel, message)

    def on_settled(self, number: int, error: Exception | None) -> None:
        message = self._numbers[number]
        assert message.state == SENT, f"{message.id} is {message.state} and was settled again"
        message.state = CONFIRMED if error is None else REFUSED
        self.network.trace.note(self.name, message.state, message.id)

    def on_ended(self, error: ClientError) -> None:
        for message in self._numbers:
            if message.state == SENT:
                message.state = UNKNOWN

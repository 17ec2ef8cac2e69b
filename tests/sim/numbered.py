"""A client that keeps the protocol of publisher references by itself, as docs/guides/exactly-once.md describes it.

leveret's client does so, too, for channels that outlive their connection (client/protocol/publisher.py). This one takes
a new channel after each reconnect, and knows the outcome of every publish.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore, DeliverySink
from leveret.client.protocol.errors import ClientError
from leveret.client.protocol.model import Delivery
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.network import Network
from leveret.testing.simulation.node import Node
from leveret.wire.properties import Properties
from leveret.wire.table import Value

PUBLISHER = "amq.leveret.publisher"
STORED, REFUSED = "stored", "refused"
TAKEN_OVER = ("was taken over", "another publisher has taken it over")
PERSISTENT = Properties(delivery_mode=2)
CUT_US = 1_500
"""An attachment takes about so long."""


@dataclass
class Numbered:
    """A message; its outcome is "" until its client knows it."""

    exchange: str
    key: str
    body: bytes
    outcome: str = ""


class NumberedPublisher(Client):
    """A publisher that holds a reference. `messages` has all its messages in their order."""

    def __init__(self, network: Network, node: Node, name: str, reference: str) -> None:
        self.messages: list[Numbered] = []
        self.epoch = 0
        self.heard: list[tuple[int, int]] = []  # epoch and last id, each time that the broker told them
        self.is_fenced = False  # another publisher has taken the reference over
        self.hits: Counter[str] = Counter()
        self.cuts = 0  # how many of its next attachments are cut short
        self._reference = reference
        self._unsettled: dict[int, Numbered] = {}  # by publishing id
        self._next_id = 1
        self._base = -1  # publishing id of the channel's first publish, minus one; -1 = the broker has not told it yet
        self._sent = 0  # on this channel
        self._waiting: list[Numbered] = []
        super().__init__(network, network.host(name), node.name, is_kept=False)

    def publish(self, exchange: str, key: str, *bodies: bytes) -> None:
        """Publish messages, in one write, as soon as the broker has told what it has."""
        added = [Numbered(exchange, key, body) for body in bodies]
        self.messages += added
        self._waiting += added
        self._send()

    @property
    def is_done(self) -> bool:
        """Whether the outcome of every message is known."""
        return not self._waiting and not self._unsettled

    def _send(self) -> None:
        channel = self.channel
        if channel is None or self._base < 0:
            return
        for message in self._waiting:
            self._sent += 1
            self._unsettled[self._next_id] = message
            self._next_id += 1
            channel.publish(self._sent, message.body, message.exchange, message.key, PERSISTENT, True)
        self._waiting = []
        self.flush()

    def on_open(self, channel: ChannelCore[int]) -> None:
        self._base, self._sent = -1, 0
        channel.confirm_select()
        channel.add_sink(DeliverySink("publisher", self._told, lambda error: None))
        arguments: dict[str, Value] = {"x-leveret-publisher": self._reference}
        if self.epoch:
            arguments |= {"x-leveret-epoch": self.epoch, "x-leveret-first-id": self._first_id()}
        self.ask(channel, requests.consume(PUBLISHER, "publisher", True, False, arguments))
        if self.cuts:
            self.cuts -= 1
            broker = self.core.address.host
            self.clock.later(self.network.random.randrange(CUT_US), lambda: self.network.reset(self.name, broker))

    def _first_id(self) -> int:
        return min(self._unsettled, default=self._next_id)

    def _told(self, delivery: Delivery) -> None:
        told = json.loads(delivery.body)
        self.hits["attached again unheard"] += 0 < self.epoch < told["epoch"] - 1
        self.epoch = told["epoch"]
        last_id, refused = int(told["last_id"]), set(told["refused"])
        self.heard.append((self.epoch, last_id))
        again = []
        for id, message in self._unsettled.items():
            if id > last_id:
                again.append(message)
            else:
                message.outcome = REFUSED if id in refused else STORED
                self.hits[f"heard late: {message.outcome}"] += 1
        self.hits["sent again"] += len(again)
        self._base = max(last_id, self._first_id() - 1 if self.heard[1:] else 0)
        self._next_id = self._base + 1
        self._unsettled = {}
        self._waiting = again + self._waiting
        self._send()

    def on_settled(self, number: int, error: Exception | None) -> None:
        message = self._unsettled.pop(self._base + number)
        message.outcome = STORED if error is None else REFUSED
        self.hits[message.outcome] += 1

    def on_ended(self, error: ClientError) -> None:
        self._base = -1
        if self.error is not None:
            assert any(text in str(error) for text in TAKEN_OVER), error
            self.is_fenced = True
            self.clock.later(0, self.stop)

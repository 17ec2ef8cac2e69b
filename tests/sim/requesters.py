"""Clients of the simulation that do what applications do besides publishing and consuming: requests, and calls."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.client.protocol.waiter import Waiter
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.network import SimulatedHost
from leveret.testing.simulation.node import Node
from leveret.testing.simulation.simulation import Simulation
from leveret.wire.properties import Properties

CALLS = "calls"


@dataclass
class Call:
    """A request without a reply, or with as many as came."""

    id: str
    is_sent: bool = False
    replies: int = 0


def _new(sim: Simulation, node: Node, name: str) -> SimulatedHost:
    return sim.network.host(f"{node.name} {name}")


class Requester(Client):
    """Asks for declarations and the like; `answers` has all that it has asked."""

    def __init__(self, sim: Simulation, node: Node) -> None:
        self.answers: list[Waiter[Answer]] = []
        self._declared = 0
        super().__init__(sim.network, _new(sim, node, "requester"), node.name)

    def on_open(self, channel: ChannelCore[int]) -> None:
        """Do nothing: it asks later."""

    def request(self) -> None:
        """Declare a queue, bind it, look at it and delete it, in one go. No effect before the first connection."""
        channel = self.channel
        if channel is None:
            return
        self._declared += 1
        name = f"asked {self._declared}"
        self.answers += [
            channel.request(requests.declare_queue(name, True, False, False, False, None)),
            channel.request(requests.bind_queue(name, "amq.topic", "a.*", None)),
            channel.request(requests.declare_queue(name, True, False, False, True, None)),
        ]
        if self._declared % 3:
            self.answers.append(channel.request(requests.delete_queue(name, False, False)))
        self.flush()


class Caller(Client):
    """Makes idempotent calls, and sends them again as Rpc does.

    queue: the name of its exclusive queue for replies; "" lets the broker name it.
    """

    def __init__(self, sim: Simulation, node: Node, queue: str) -> None:
        self.calls: dict[str, Call] = {}
        self.repeated = 0
        self._queue = queue
        super().__init__(sim.network, _new(sim, node, "caller"), node.name)

    def call(self) -> None:
        """Send a request, now or when there is a connection."""
        id = f"call {len(self.calls) + 1}"
        self.calls[id] = Call(id)
        if self._queue and self.channel is not None and not self.channel.is_interrupted:
            self._send(self.channel, self.calls[id])
            self.flush()

    @property
    def is_done(self) -> bool:
        """Whether every call has a reply."""
        return all(call.replies for call in self.calls.values())

    def on_open(self, channel: ChannelCore[int]) -> None:
        answer = channel.request(requests.declare_queue(self._queue, False, True, False, False, None))
        answer.when_succeeded(lambda declared: self._declared(channel, declared))
        channel.on_restored = lambda: self._send_all(channel)

    def _declared(self, channel: ChannelCore[int], declared: Answer) -> None:
        self._queue = declared.text("queue")  # type: ignore[union-attr]
        channel.consume(DeliverySink("replies", self._replied, lambda error: None), self._queue, True, True, None)
        self._send_all(channel)

    def _send_all(self, channel: ChannelCore[int]) -> None:
        for call in self.calls.values():
            if not call.replies:
                self.repeated += call.is_sent
                self._send(channel, call)

    def _send(self, channel: ChannelCore[int], call: Call) -> None:
        call.is_sent = True
        reply_to = self.core.topology.names.get(self._queue, self._queue)
        properties = Properties(delivery_mode=2, correlation_id=call.id, reply_to=reply_to)
        channel.publish(0, b"", "", CALLS, properties, False)

    def _replied(self, delivery: Delivery) -> None:
        self.calls[delivery.properties.correlation_id or ""].replies += 1


class Answerer(Client):
    """Answers the calls, and acknowledges each behind its reply."""

    def __init__(self, sim: Simulation, node: Node) -> None:
        super().__init__(sim.network, _new(sim, node, "answerer"), node.name)

    def on_open(self, channel: ChannelCore[int]) -> None:
        def answer(delivery: Delivery) -> None:
            properties = delivery.properties
            reply = Properties(correlation_id=properties.correlation_id)
            channel.publish(0, b"", "", properties.reply_to or "", reply, False)
            channel.ack(delivery.delivery_tag, False)

        channel.consume(DeliverySink("calls", answer, lambda error: None), CALLS, False, False, None)

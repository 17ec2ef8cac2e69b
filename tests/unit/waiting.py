"""A site with a small delay layout beside its delayed exchange, its destinations, and operators' commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.control.command import COMMANDS
from leveret.control.host import Host
from leveret.control.node import BrokerNode
from leveret.control.refusal import Refused
from leveret.control.sliced import Sliced
from leveret.delay import Declaration, ExchangeBinding, ExchangeDeclaration, Layout, QueueBinding, QueueDeclaration
from leveret.delay.named import DELAY_HEADER
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

from .asking import listed
from .delays import Site
from .rig import FILE_SIZE
from .support import SECOND_US, Client

LAYOUT = Layout("t", levels=6, delay_header=DELAY_HEADER)
DESTINATIONS = ("a", "b.c")


class Clock:
    """The part of a Host that the commands use."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def now_us(self) -> int:
        return self._office.now_us


class Office(Site):
    """A site with destinations for delayed messages, and an operator."""

    def __init__(
        self, octets_max: int = 1 << 30, file_size: int = 20 * FILE_SIZE, disk: MemoryDisk | None = None
    ) -> None:
        super().__init__(octets_max, file_size, disk)
        self.arrived: list[tuple[bytes, int]] = []  # bodies of all deliveries, with their times
        declare_all(self.client)
        self.save()
        self.consume()

    def consume(self) -> None:
        """Consume from every destination."""
        for queue in (*DESTINATIONS, "q"):
            self.client.send(1, grammar.BASIC_CONSUME, queue=queue, no_ack=True, consumer_tag=queue)
        self.save()

    def save(self) -> None:
        self.rig.write()
        for frame in self.client.frames():
            if frame.kind == 3:
                self.arrived.append((frame.payload, self.now_us))

    def restart(self, is_orderly: bool = False, after_us: int = 0) -> None:
        super().restart(is_orderly, after_us)
        self.consume()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, body: bytes, units: int, destination: str = "a", count: int = 1, **values: Any) -> int:
        """Publish equal messages in one read; return when they are due (µs)."""
        headers: dict[str, Value] = {**values.pop("headers", {})}
        properties = Properties(**{"delivery_mode": 2, **values}, headers=headers or None)
        self._publish(LAYOUT.entrance(units), LAYOUT.routing_key(units, destination), body, properties, count)
        return self.now_us + units * SECOND_US

    def hold(self, body: bytes, units: int, **values: Any) -> int:
        """Publish one message to the delayed exchange; return when it is due (µs)."""
        headers: dict[str, Value] = {"x-delay": units * 1000}
        self._publish("d", "k", body, Properties(**{"delivery_mode": 2, **values}, headers=headers), 1)
        return self.now_us + units * SECOND_US

    def _publish(self, exchange: str, key: str, body: bytes, properties: Properties, count: int) -> None:
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
        header = encode_header(properties, len(body))
        self.client.raw((method + content_frames(1, header, body, 131072)) * count)

    # -- an operator ---------------------------------------------------------------------------------------------------

    def do(self, command: str, between: Callable[[], None] = lambda: None, **fields: Any) -> Any:
        """Return a command's answer; call `between` after each of its steps."""
        node = BrokerNode(self.bench.broker, cast(Host, Clock(self)), "leveret@test", "/data", "1", "interpreted")
        result = msgspec.convert({"command": command, **fields}, COMMANDS[command]).run(node)
        while isinstance(result, Sliced):
            try:
                next(result.steps)
                between()
            except StopIteration as end:
                result = end.value
        answer = listed(result)
        self.bench.broker.end_turn(self.now_us)
        return msgspec.json.decode(msgspec.json.encode(answer))

    def refusal(self, command: str, **fields: Any) -> tuple[str, str]:
        before = self.bench.broker.log.events
        try:
            self.do(command, **fields)
        except Refused as refused:
            assert self.bench.broker.log.events == before
            return refused.kind, refused.reason
        raise AssertionError("not refused")

    def rows(self, **fields: Any) -> dict[str, tuple[int, int | None, int | None]]:
        """Run list_delayed; return for each destination the count, and the first and last due time (ms)."""
        return {
            row["destination"]: (row["messages"], row["next_due_ms"], row["last_due_ms"])
            for row in self.do("list_delayed", **fields)
        }


def carry_out(client: Client, declarations: Iterable[Declaration]) -> None:
    """Declare and bind, as any client can."""
    for one in declarations:
        match one:
            case ExchangeDeclaration(name):
                client.send(1, grammar.EXCHANGE_DECLARE, exchange=name, type="topic", durable=True)
            case QueueDeclaration(name, arguments):
                client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=True, arguments=arguments)
            case QueueBinding(queue, exchange, key):
                client.send(1, grammar.QUEUE_BIND, queue=queue, exchange=exchange, routing_key=key)
            case ExchangeBinding(destination, source, key):
                client.send(1, grammar.EXCHANGE_BIND, destination=destination, source=source, routing_key=key)


def declare_all(client: Client) -> None:
    """Declare the layout and its destinations."""
    for name in DESTINATIONS:
        client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=True)
    carry_out(client, [*LAYOUT.topology(), *map(LAYOUT.destination_binding, DESTINATIONS)])

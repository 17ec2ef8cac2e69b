"""A simulated broker, with the interface that tests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from leveret.broker.broker import Broker
from leveret.broker.storage.definitions import PARAMETER, POLICY
from leveret.federation.status import LinkStatus
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.consumer import Consumer
from leveret.testing.simulation.machine import Machine
from leveret.testing.simulation.network import SimulatedHost
from leveret.testing.simulation.publisher import Publisher
from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, FrameReader
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import decode_method, method_frame
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.testing.simulation.simulation import Simulation

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
Arguments = Mapping[str, Value]


class BrokerDown(Exception):
    """The broker was asked for something while it is down, or went down meanwhile."""


class Node:
    """A simulated broker; `name` is also the name of its machine and its cluster.

    Calls that change something return when the change is on the broker's disk; no virtual time passes. They raise
    BrokerDown while the broker is down, and ValueError, with the broker's error text, if it refuses.
    """

    def __init__(self, simulation: Simulation, machine: Machine) -> None:
        self.name = machine.name
        self.machine = machine
        self._simulation = simulation
        self.clients: list[Client] = []

    def __repr__(self) -> str:
        return f"<broker {self.name}>"

    @property
    def is_up(self) -> bool:
        """Whether the broker's process is running."""
        return self.machine.life is not None

    @property
    def core(self) -> Broker:
        """The broker object, to inspect its virtual hosts, exchanges, queues and definitions."""
        life = self.machine.life
        if life is None:
            raise BrokerDown(f"{self.name} is down")
        return life.broker

    # -- topology ------------------------------------------------------------------------------------------------------

    def declare_exchange(
        self, name: str, type: str = "topic", durable: bool = True, arguments: Arguments | None = None
    ) -> None:
        """Declare an exchange (exchange.declare)."""
        values = _with_arguments(arguments, exchange=name, durable=durable)
        self._operate(grammar.EXCHANGE_DECLARE, {**values, "type": type})

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange (exchange.delete)."""
        self._operate(grammar.EXCHANGE_DELETE, {"exchange": name})

    def declare_queue(self, name: str, durable: bool = True, arguments: Arguments | None = None) -> None:
        """Declare a queue (queue.declare)."""
        self._operate(grammar.QUEUE_DECLARE, _with_arguments(arguments, queue=name, durable=durable))

    def delete_queue(self, name: str) -> None:
        """Delete a queue (queue.delete)."""
        self._operate(grammar.QUEUE_DELETE, {"queue": name})

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Arguments | None = None) -> None:
        """Bind a queue (queue.bind)."""
        self._operate(grammar.QUEUE_BIND, _with_arguments(arguments, queue=queue, exchange=exchange, routing_key=key))

    def unbind(self, queue: str, exchange: str, key: str = "", arguments: Arguments | None = None) -> None:
        """Unbind a queue (queue.unbind)."""
        self._operate(grammar.QUEUE_UNBIND, _with_arguments(arguments, queue=queue, exchange=exchange, routing_key=key))

    def _operate(self, spec: MethodSpec, values: dict[str, object]) -> None:
        """Send one method on a direct connection of its own, and raise ValueError if it is refused."""
        answers: list[str] = []

        def call() -> None:
            life = self.machine.life
            assert life is not None
            connection = life.environment.enter(life.broker.vhosts["/"], "simulation", False, _Operator())
            connection.write(method_frame(1, spec, **values))
            life.sync()
            answers.extend(_errors(connection.take()))
            connection.close()

        self._within(call)
        if answers:
            raise ValueError(answers[0])

    def _within(self, call: Callable[[], object]) -> None:
        life = self.machine.life
        if life is None:
            raise BrokerDown(f"{self.name} is down")
        life.run(call)
        if not life.is_alive:
            raise BrokerDown(f"{self.name} went down")

    # -- federation ----------------------------------------------------------------------------------------------------

    def federate(self, exchange: str, upstream: Node, **settings: Value) -> None:
        """Federate an exchange with the exchange of the same name on another broker.

        May be called for several upstreams of one exchange, and again for the same one with different settings: those
        of RabbitMQ's federation-upstream parameter, with _ for - (max_hops=1, ack_mode="on-confirm").
        """
        value = {name.replace("_", "-"): setting for name, setting in settings.items()}
        value.setdefault("uri", f"amqp://{upstream.name}")
        value.setdefault("reconnect-delay", 1)
        self.set_parameter(UPSTREAM, f"{upstream.name} {exchange}", value)
        members = [*self._members(exchange), f"{upstream.name} {exchange}"]
        self._link(exchange, list(dict.fromkeys(members)))

    def unfederate(self, exchange: str, upstream: Node) -> None:
        """Remove one upstream of an exchange, with its link and the messages in its upstream queue."""
        name = f"{upstream.name} {exchange}"
        self._link(exchange, [each for each in self._members(exchange) if each != name])
        self.set_parameter(UPSTREAM, name, None)

    def _members(self, exchange: str) -> list[str]:
        found = self.core.definitions.get(PARAMETER, "/", UPSTREAM_SET, exchange)
        value = found["value"] if found is not None else []
        assert isinstance(value, list)
        return [str(each["upstream"]) for each in value if isinstance(each, dict)]

    def _link(self, exchange: str, members: list[str]) -> None:
        upstreams: list[Value] = [{"upstream": name} for name in members]
        self.set_parameter(UPSTREAM_SET, exchange, upstreams if members else None)
        definition = {UPSTREAM_SET: exchange} if members else None
        self.set_policy(f"federate {exchange}", f"^{exchange}$", definition)

    def set_parameter(self, component: str, name: str, value: Value) -> None:
        """Set a runtime parameter of virtual host /, or remove it (None). It is not validated."""
        definitions = self.core.definitions
        if value is None:
            self._define(lambda: definitions.remove(PARAMETER, "/", component, name))
            return
        parameter: dict[str, Value] = {"vhost": "/", "component": component, "name": name, "value": value}
        self._define(lambda: definitions.put(PARAMETER, parameter))

    def set_policy(self, name: str, pattern: str, definition: Arguments | None, apply_to: str = "exchanges") -> None:
        """Set a policy of virtual host /, or remove it (None). It is not validated."""
        definitions = self.core.definitions
        if definition is None:
            self._define(lambda: definitions.remove(POLICY, "/", name))
            return
        policy: dict[str, Value] = {"vhost": "/", "name": name, "pattern": pattern, "definition": dict(definition)}
        self._define(lambda: definitions.put(POLICY, {**policy, "priority": 0, "apply-to": apply_to}))

    def _define(self, change: Callable[[], object]) -> None:
        def call() -> None:
            life = self.machine.life
            assert life is not None
            change()
            while life.broker.enforce_policies(life.now_us()):
                life.broker.end_turn(life.now_us())
            life.broker.log.is_awaited = True
            life.sync()

        self._within(call)

    def links(self) -> list[LinkStatus]:
        """Return the status of its federation links."""
        life = self.machine.life
        return life.federator.statuses() if life is not None else []

    def restart_link(self, id: str) -> None:
        """Restart a link, as `leveret ctl restart_federation_link` does. ValueError if it does not exist."""
        life = self.machine.life
        found: list[bool] = []
        self._within(lambda: found.append(life is not None and life.federator.restart(id)))
        if found != [True]:
            raise ValueError(f"{self.name} has no link {id!r}")

    # -- messages ------------------------------------------------------------------------------------------------------

    def messages(self, queue: str) -> int:
        """Return the number of messages in a queue, ready and unacknowledged."""
        found = self.core.vhosts["/"].queues[queue]
        return int(found.count() + found.unacked)

    def publisher(self, exchange: str, reference: str | None = None, repeats: bool = True) -> Publisher:
        """Create a client that publishes to an exchange here, with confirms, and reconnects by itself.

        Messages that are unconfirmed when the connection is lost are sent again: they are there at least once.

        Args:
            exchange: Where it publishes.
            reference: Publish under this publisher reference: each message is there exactly once, in its order
                (docs/guides/exactly-once.md).
            repeats: False sends each message once: those that are unconfirmed when the connection is lost are unknown.
                Any copy of a message that a test finds is then the brokers' doing.
        """
        network = self._simulation.network
        client = Publisher(network, self._client_host("publisher"), self.name, exchange, reference, repeats)
        self.clients.append(client)
        return client

    def consumer(self, queue: str, prefetch: int = 10, work_ms: int = 2) -> Consumer:
        """Create a client that consumes from a queue here, and reconnects by itself.

        It acknowledges each message after `work_ms` virtual milliseconds.
        """
        network = self._simulation.network
        client = Consumer(network, self._client_host("consumer"), self.name, queue, prefetch, work_ms)
        self.clients.append(client)
        return client

    def _client_host(self, what: str) -> SimulatedHost:
        return self._simulation.network.host(f"{self.name} {what} {len(self.clients) + 1}")


def _with_arguments(arguments: Arguments | None, **values: object) -> dict[str, object]:
    return {**values, "arguments": dict(arguments or {})}


class _Operator:
    """The user of a direct connection who takes the answers himself."""

    def answered(self, data: bytes) -> None:
        """Ignore answers: they were taken."""

    def held(self, is_held: bool) -> None:
        """Ignore that publishers wait."""

    def shut(self, reason: str) -> None:
        """Ignore the end of the connection."""


def _errors(data: bytes) -> list[str]:
    """Return the error texts of channel.close and connection.close."""
    reader = FrameReader(0)
    reader.feed(data)
    found: list[str] = []
    while (frame := reader.next()) is not None:
        method = decode_method(frame.payload) if frame.kind == FRAME_METHOD else None
        if method is not None and method.spec in (grammar.CHANNEL_CLOSE, grammar.CONNECTION_CLOSE):
            found.append(method.text("reply_text"))
    return found

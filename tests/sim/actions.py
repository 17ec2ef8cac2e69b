"""The operations of simulated clients: each tells the model what happens, and sends the bytes to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.methods.queue_methods import make_queue
from leveret.broker.storage.definitions import GLOBAL_PARAMETER, PARAMETER, VHOST
from leveret.wire import grammar
from leveret.wire.method import method_frame

from .model import ModelQueue, ModelReader
from .topology import BINDINGS, EXCHANGES, QUEUES, STREAMS

if TYPE_CHECKING:
    from .world import World


class Actions:
    """The operations of a script, by name."""

    def __init__(self, world: World) -> None:
        self._world = world

    def time(self, us: int) -> None:
        """Advance the clock; timers fire when they are due."""
        end_us = self._world.now_us + us
        ahead_us = self._world.broker_us - self._world.now_us
        while 0 < (next_us := self._world.broker.timers.next_us()) <= end_us + ahead_us:
            self._world.now_us = max(self._world.now_us, next_us - ahead_us)
            self._world.run_timers()
        self._world.now_us = end_us

    def declare(self, name: str) -> None:
        durable, arguments = QUEUES[name]
        is_new = name not in self._world.model.queues
        if is_new:
            ttl, exchange, key = (
                arguments.get(f"x-{n}") for n in ("message-ttl", "dead-letter-exchange", "dead-letter-routing-key")
            )
            ttl_us = ttl * 1000 if isinstance(ttl, int) else -1
            rank_max = arguments.get("x-max-priority", 0)
            queue = ModelQueue(name, durable, ttl_us, exchange, key, rank_max)  # type: ignore[arg-type]
            self._world.model.queues[name] = self._world.declared[name] = queue
        self._ask(durable, is_new, grammar.QUEUE_DECLARE, queue=name, durable=durable, arguments=arguments)

    def exchange(self, name: str) -> None:
        durable, is_new = EXCHANGES[name], name not in self._world.model.exchanges
        self._world.model.exchanges[name] = durable
        self._ask(durable, is_new, grammar.EXCHANGE_DECLARE, exchange=name, type="direct", durable=durable)

    def bind(self, *binding: str) -> None:
        is_new = binding not in self._world.model.bindings
        self._world.model.bindings.add(binding)  # type: ignore[arg-type]
        self._ask_binding(grammar.QUEUE_BIND, is_new, *binding)

    def unbind(self, *binding: str) -> None:
        is_there = binding in self._world.model.bindings
        self._world.model.bindings.discard(binding)  # type: ignore[arg-type]
        self._ask_binding(grammar.QUEUE_UNBIND, is_there, *binding)

    def _ask_binding(self, spec: grammar.MethodSpec, changes: bool, source: str, key: str, queue: str) -> None:
        durable = self._world.model.exchanges[source] and self._world.model.queues[queue].durable
        self._ask(durable, changes, spec, queue=queue, exchange=source, routing_key=key)

    def delete(self, name: str) -> None:
        self._world.await_return(name)
        durable = self._world.model.queues[name].durable
        count = self._world.model.delete_queue(name)
        self._ask(durable, True, grammar.QUEUE_DELETE, None if name in STREAMS else count, queue=name)

    def delete_exchange(self, name: str) -> None:
        durable = self._world.model.exchanges[name]
        self._world.model.delete_exchange(name)
        self._ask(durable, True, grammar.EXCHANGE_DELETE, exchange=name)

    def purge(self, name: str) -> None:
        self._world.await_return(name)
        queue = self._world.model.queues[name]
        changes = any(queue.keeps(copy) and copy.holder is None for copy in queue.copies)
        self._ask(queue.durable, changes, grammar.QUEUE_PURGE, self._world.model.purge(name), queue=name)

    def vhost(self, name: str) -> None:
        """Add a virtual host, or delete it with its contents and definitions, as an operator does."""
        broker, model = self._world.broker, self._world.model
        if name in broker.vhosts:
            broker.delete_vhost(name)
            model.delete_vhost(name)
        else:
            broker.definitions.put(VHOST, {"name": name})
            model.definitions[VHOST, (name,)] = "None"
            other = make_queue(broker.vhosts[name], "q", True, False, {})
            broker.vhosts[name].add_queue(other, 0, self._world.now_us)
        self._world.settle()

    def parameter(self, vhost: str, name: str, value: str) -> None:
        """Set a parameter, or remove it if there is no value; without a virtual host it is a global parameter."""
        kind, key = (PARAMETER, (vhost, "test", name)) if vhost else (GLOBAL_PARAMETER, (name,))
        if vhost and vhost not in self._world.broker.vhosts:
            return
        if value:
            scope = {"vhost": vhost, "component": "test"} if vhost else {}
            self._world.broker.definitions.put(kind, {**scope, "name": name, "value": value})
            self._world.model.definitions[kind, key] = value
        else:
            self._world.broker.definitions.remove(kind, *key)
            self._world.model.definitions.pop((kind, key), None)
        self._world.settle()

    def setup(self) -> None:
        """Declare all queues, exchanges and bindings that do not exist."""
        for name in QUEUES:
            self.declare(name)
        for name in EXCHANGES:
            self.exchange(name)
        for binding in BINDINGS:
            self.bind(*binding)

    def publish(
        self, exchange: str, key: str, count: int = 1, persistent: bool = True, ttl_ms: int | None = None
    ) -> None:
        """Publish with confirms, `count` messages in one read.

        Messages that expire on arrival are published in one read each: each must be gone before the next arrives, and
        the
        model learns of it only at the end of a turn.
        """
        if ttl_ms == 0 and count > 1:
            for _ in range(count):
                self.publish(exchange, key, 1, persistent, ttl_ms)
            return
        client = self._world.clients.get("publisher")
        if client is None:
            client = self._world.client("publisher")
            self._world.turn(client, method_frame(1, grammar.CONFIRM_SELECT))
        data = b""
        for _ in range(count):
            id = self._world.next_id
            self._world.next_id += 1
            client.published += 1
            is_durable = self._world.model.publish(id, exchange, key, persistent, ttl_ms, self._world.now_us)
            client.unconfirmed[client.published] = (id, self._world.model.batch if is_durable else 0)
            data += client.publish(id, exchange, key, persistent, ttl_ms)
        self._world.turn(client, data)

    def consume(self, name: str, queue: str, no_ack: bool = False, prefetch: int = 0) -> None:
        client = self._world.client(name)
        tag = f"{queue} {len(client.queues)} {self._world.next_id}"
        client.queues[tag] = (queue, no_ack)
        qos = method_frame(1, grammar.BASIC_QOS, prefetch_count=prefetch)
        consume = method_frame(1, grammar.BASIC_CONSUME, queue=queue, consumer_tag=tag, no_ack=no_ack)
        self._world.turn(client, qos + consume)

    def read(self, name: str, stream: str, offset: str | int, prefetch: int) -> None:
        """Consume from a stream."""
        client = self._world.client(name)
        tag = f"{stream} {len(client.queues)} {self._world.next_id}"
        client.queues[tag] = (stream, False)
        first = self._world.model.queues[stream].end if offset == "next" else offset if isinstance(offset, int) else 0
        self._world.model.readers[name, tag] = ModelReader(stream, first, prefetch)
        qos = method_frame(1, grammar.BASIC_QOS, prefetch_count=prefetch)
        arguments = {"x-stream-offset": offset}
        consume = method_frame(1, grammar.BASIC_CONSUME, queue=stream, consumer_tag=tag, arguments=arguments)
        self._world.turn(client, qos + consume)

    def get(self, name: str, queue: str, no_ack: bool = False) -> None:
        client = self._world.client(name)
        client.got.append((queue, no_ack))
        self._world.turn(client, method_frame(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack))

    def _answer_delivery(self, name: str, place: int, multiple: bool, requeue: bool | None) -> None:
        """Ack (requeue None), requeue or reject the delivery at index `place` of those that the client holds."""
        tags = self._world.model.held_tags(name)
        if not -len(tags) <= place < len(tags):
            return
        tag = tags[place]
        if requeue is None:
            self._world.model.ack(name, tag, multiple)
            data = method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)
        else:
            if requeue:
                self._world.model.requeue(name, tag, multiple)
            else:
                self._world.model.reject(name, tag, multiple, self._world.now_us)
            data = method_frame(1, grammar.BASIC_NACK, delivery_tag=tag, multiple=multiple, requeue=requeue)
        self._world.turn(self._world.clients[name], data)

    def ack(self, name: str, place: int = 0, multiple: bool = False) -> None:
        self._answer_delivery(name, place, multiple, None)

    def nack(self, name: str, place: int = 0, multiple: bool = False) -> None:
        self._answer_delivery(name, place, multiple, True)

    def reject(self, name: str, place: int = 0, multiple: bool = False) -> None:
        self._answer_delivery(name, place, multiple, False)

    def lose(self, name: str) -> None:
        """Break a connection without a close; its unacknowledged messages are requeued."""
        if name in self._world.clients:
            self._world.lose(name)

    def _ask(
        self, is_kept: bool, changes: bool, spec: grammar.MethodSpec, count: int | None = None, **values: object
    ) -> None:
        """Send a method from the client "control"; its answer promises that a durable change survives a crash."""
        client = self._world.client("control")
        batch = self._world.model.batch if changes or self._world.broker.log.size() else self._world.model.batch - 1
        client.waiting.append((f"{spec.name}-ok", batch if is_kept else 0, count))
        self._world.turn(client, method_frame(1, spec, **values))

"""A virtual host as one end of links: what is set there, who publishes and who consumes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError

from leveret.testing.processes import RabbitMQProcess

from ...conformance.http.api import Answer, segment
from ...waiting import until
from .inbox import Inbox

if TYPE_CHECKING:
    from .node import Node

X = "fed.x"


class Site:
    """node: where it is; name: of the virtual host."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None

    # -- links

    def uri(self, user: str = "guest", port: int | None = None) -> str:
        """For others, to link to it. The password is the user's name."""
        return f"amqp://{user}:{user}@127.0.0.1:{port or self.node.process.port}/{segment(self.name)}"

    def upstream(self, name: str, uri: str | list[str], **settings: object) -> None:
        """Set a federation-upstream; underscores stand for hyphens. What does not count goes quickly for a test."""
        value = {"uri": uri, "reconnect-delay": 1, **dashed(settings)}
        self.node.call("PUT", f"/parameters/federation-upstream/{self.name}/{name}", {"value": value})

    def upstream_set(self, name: str, *upstreams: dict[str, object]) -> None:
        """Set a federation-upstream-set."""
        self.node.call("PUT", f"/parameters/federation-upstream-set/{self.name}/{name}", {"value": list(upstreams)})

    def clear(self, name: str, component: str = "federation-upstream") -> None:
        """Clear an upstream, or a set."""
        self.node.call("DELETE", f"/parameters/{component}/{self.name}/{name}")

    def policy(self, pattern: str = r"^fed\.", name: str = "p", priority: int = 0, **definition: object) -> None:
        """Set a policy for exchanges."""
        body = {"pattern": pattern, "apply-to": "exchanges", "priority": priority, "definition": dashed(definition)}
        self.node.call("PUT", f"/policies/{self.name}/{name}", body)

    def unpolicy(self, name: str = "p") -> None:
        """Clear a policy."""
        self.node.call("DELETE", f"/policies/{self.name}/{name}")

    def unfederate(self) -> None:
        """Clear the policy, if there is one, and wait until no link is left."""
        self.node.call("DELETE", f"/policies/{self.name}/p", None, 404)
        until(lambda: not self.links(), lambda: f"{self.links()}")

    def links(self) -> list[dict[str, Any]]:
        """What the HTTP API says of the links. RabbitMQ's fails while one is going, and is asked again."""
        allowed = [500] if isinstance(self.node.process, RabbitMQProcess) else []

        def ask() -> Answer | None:
            answer = self.node.call("GET", f"/federation-links/{self.name}", None, *allowed)
            return answer if answer.status != 500 else None

        return list(until(ask, f"{self} fails to list its links").json or [])

    def running(self, count: int = 1, exchange: str = "") -> list[dict[str, Any]]:
        """The links, once so many of them run."""

        def probe() -> list[dict[str, Any]]:
            found = [each for each in self.links() if not exchange or each["exchange"] == exchange]
            return found if sum(each["status"] == "running" for each in found) == count else []

        return until(probe, lambda: f"{count} links of {self} run: {self.links()}")

    def federate(self, *upstreams: Site, **settings: object) -> None:
        """Links from these to all exchanges of which the name begins with "fed."."""
        for upstream in upstreams:
            self.upstream(f"to-{upstream.name}", upstream.uri(), **settings)
        self.policy(federation_upstream_pattern="^to-")

    # -- what is there

    def exchanges(self, prefix: str = "") -> list[dict[str, Any]]:
        """Exchanges that have names like this."""
        return [e for e in self.node.get(f"/exchanges/{self.name}") if e["name"].startswith(prefix)]

    def queues(self, prefix: str = "federation: ") -> list[dict[str, Any]]:
        """Queues that have names like this: those of links."""
        return [q for q in self.node.get(f"/queues/{self.name}") if q["name"].startswith(prefix)]

    def bindings(self, source: str = X) -> list[dict[str, Any]]:
        """The bindings that links made from an exchange."""
        found = self.node.get(f"/exchanges/{self.name}/{segment(source)}/bindings/source")
        return [each for each in found if each["destination_type"] == "exchange"]

    def keys(self, source: str = X) -> set[str]:
        """The routing keys of these."""
        return {each["routing_key"] for each in self.bindings(source)}

    def bound(self, *keys: str, source: str = X) -> None:
        """Wait until links have bound exactly these keys, each once."""

        def there() -> list[str]:
            return sorted(each["routing_key"] for each in self.bindings(source))

        until(lambda: there() == sorted(keys), lambda: f"{keys} are bound to {source} of {self}: {there()}")

    # -- clients

    @property
    def channel(self) -> BlockingChannel:
        """A channel with confirms. Opened anew when its connection has gone."""
        if self._channel is None or not self._channel.is_open:
            if self._connection is None or not self._connection.is_open:
                self._connection = pika.BlockingConnection(pika.URLParameters(f"{self.uri()}?heartbeat=0"))
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
        return self._channel

    def exchange(self, name: str = X, kind: str = "topic", **more: Any) -> None:
        """Declare a durable exchange."""
        self.channel.exchange_declare(name, kind, durable=True, **more)

    def inbox(self, *keys: str, exchange: str = X, queue: str = "", arguments: dict[str, Any] | None = None) -> Inbox:
        """A new queue with bindings, and its consumer. queue: a durable one of this name; else it has no name."""
        declared = self.channel.queue_declare(queue, durable=bool(queue), exclusive=not queue).method.queue
        for key in keys:
            self.channel.queue_bind(declared, exchange, key, arguments)
        return Inbox(declared, self.channel)

    def publish(self, key: str, body: bytes | str = b"", exchange: str = X, **properties: Any) -> None:
        """Publish a persistent message, and wait for the confirm."""
        text = body if isinstance(body, bytes) else body.encode()
        self.channel.basic_publish(exchange, key, text, pika.BasicProperties(**{"delivery_mode": 2, **properties}))

    def read(self, queue: str, last: str) -> list[str]:
        """All bodies of a queue up to this one, which is waited for."""
        found: list[str] = []
        for _, _, body in self.channel.consume(queue, auto_ack=True):
            found.append(body.decode())
            if found[-1] == last:
                break
        self.channel.cancel()
        return found

    def replies(self) -> Inbox:
        """Where answers to requests come in that are published on the channel."""
        return Inbox("amq.rabbitmq.reply-to", self.channel)

    def through(self, port: int, queue: str, count: int) -> None:
        """Consume so many messages by another way than usual."""
        with pika.BlockingConnection(pika.URLParameters(f"{self.uri(port=port)}?heartbeat=0")) as connection:
            channel = connection.channel()
            for _ in zip(range(count), channel.consume(queue, auto_ack=True), strict=False):
                pass
            channel.cancel()

    def leave(self) -> None:
        """Close the clients' connection, or forget it, since its broker was away."""
        if self._connection is not None and self._connection.is_open:
            with contextlib.suppress(AMQPError):
                self._connection.close()
        self._connection = self._channel = None

    def remove(self) -> None:
        """Delete the virtual host."""
        self.leave()
        self.node.call("DELETE", f"/vhosts/{self.name}", None, 404)

    def __repr__(self) -> str:
        return f"{self.name} ({self.node.kind})"


def dashed(settings: dict[str, object]) -> dict[str, object]:
    """Keys as federation writes them."""
    return {key.replace("_", "-"): value for key, value in settings.items()}

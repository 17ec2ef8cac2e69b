"""A virtual host as one end of links: its parameters and policies, and its clients."""

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
    """A virtual host on a node."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None

    # -- links

    def uri(self, user: str = "guest", port: int | None = None) -> str:
        """Return the URI for links to this site. The password is the user's name."""
        return f"amqp://{user}:{user}@127.0.0.1:{port or self.node.process.port}/{segment(self.name)}"

    def upstream(self, name: str, uri: str | list[str], **settings: object) -> None:
        """Set a federation-upstream; underscores stand for hyphens. The default reconnect-delay is 1 s."""
        value = {"uri": uri, "reconnect-delay": 1, **dashed(settings)}
        self.node.call("PUT", f"/parameters/federation-upstream/{self.name}/{name}", {"value": value})

    def upstream_set(self, name: str, *upstreams: dict[str, object]) -> None:
        self.node.call("PUT", f"/parameters/federation-upstream-set/{self.name}/{name}", {"value": list(upstreams)})

    def clear(self, name: str, component: str = "federation-upstream") -> None:
        """Clear an upstream, or a set."""
        self.node.call("DELETE", f"/parameters/{component}/{self.name}/{name}")

    def policy(self, pattern: str = r"^fed\.", name: str = "p", priority: int = 0, **definition: object) -> None:
        """Set a policy for exchanges."""
        body = {"pattern": pattern, "apply-to": "exchanges", "priority": priority, "definition": dashed(definition)}
        self.node.call("PUT", f"/policies/{self.name}/{name}", body)

    def unpolicy(self, name: str = "p") -> None:
        self.node.call("DELETE", f"/policies/{self.name}/{name}")

    def unfederate(self) -> None:
        """Clear the policy, if there is one, and wait until there are no links."""
        self.node.call("DELETE", f"/policies/{self.name}/p", None, 404)
        until(lambda: not self.links(), lambda: f"{self.links()}")

    def links(self) -> list[dict[str, Any]]:
        """Return the links in the HTTP API. RabbitMQ's fails while a link stops, and is asked again."""
        allowed = [500] if isinstance(self.node.process, RabbitMQProcess) else []

        def ask() -> Answer | None:
            answer = self.node.call("GET", f"/federation-links/{self.name}", None, *allowed)
            return answer if answer.status != 500 else None

        return list(until(ask, f"{self} fails to list its links").json or [])

    def running(self, count: int = 1, exchange: str = "") -> list[dict[str, Any]]:
        """Return the links, once `count` of them run."""

        def probe() -> list[dict[str, Any]]:
            found = [each for each in self.links() if not exchange or each["exchange"] == exchange]
            return found if sum(each["status"] == "running" for each in found) == count else []

        return until(probe, lambda: f"{count} links of {self} run: {self.links()}")

    def federate(self, *upstreams: Site, **settings: object) -> None:
        """Link from these to all exchanges whose name begins with "fed."."""
        for upstream in upstreams:
            self.upstream(f"to-{upstream.name}", upstream.uri(), **settings)
        self.policy(federation_upstream_pattern="^to-")

    # -- state

    def exchanges(self, prefix: str = "") -> list[dict[str, Any]]:
        """Return the exchanges with this prefix."""
        return [e for e in self.node.get(f"/exchanges/{self.name}") if e["name"].startswith(prefix)]

    def queues(self, prefix: str = "federation: ") -> list[dict[str, Any]]:
        """Return the queues with this prefix: by default those of links."""
        return [q for q in self.node.get(f"/queues/{self.name}") if q["name"].startswith(prefix)]

    def bindings(self, source: str = X) -> list[dict[str, Any]]:
        """Return the bindings that links made from an exchange."""
        found = self.node.get(f"/exchanges/{self.name}/{segment(source)}/bindings/source")
        return [each for each in found if each["destination_type"] == "exchange"]

    def keys(self, source: str = X) -> set[str]:
        """Return their routing keys."""
        return {each["routing_key"] for each in self.bindings(source)}

    def bound(self, *keys: str, source: str = X) -> None:
        """Wait until links have bound exactly these keys, each once."""

        def there() -> list[str]:
            return sorted(each["routing_key"] for each in self.bindings(source))

        until(lambda: there() == sorted(keys), lambda: f"{keys} are bound to {source} of {self}: {there()}")

    # -- clients

    @property
    def channel(self) -> BlockingChannel:
        """A channel with confirms, reopened when its connection is gone."""
        if self._channel is None or not self._channel.is_open:
            if self._connection is None or not self._connection.is_open:
                self._connection = pika.BlockingConnection(pika.URLParameters(f"{self.uri()}?heartbeat=0"))
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
        return self._channel

    def exchange(self, name: str = X, kind: str = "topic", **more: Any) -> None:
        self.channel.exchange_declare(name, kind, durable=True, **more)

    def inbox(self, *keys: str, exchange: str = X, queue: str = "", arguments: dict[str, Any] | None = None) -> Inbox:
        """Declare a queue with bindings and consume from it. With `queue` it is durable and has this name."""
        declared = self.channel.queue_declare(queue, durable=bool(queue), exclusive=not queue).method.queue
        for key in keys:
            self.channel.queue_bind(declared, exchange, key, arguments)
        return Inbox(declared, self.channel)

    def publish(self, key: str, body: bytes | str = b"", exchange: str = X, **properties: Any) -> None:
        """Publish a persistent message, and wait for the confirm."""
        text = body if isinstance(body, bytes) else body.encode()
        self.channel.basic_publish(exchange, key, text, pika.BasicProperties(**{"delivery_mode": 2, **properties}))

    def read(self, queue: str, last: str) -> list[str]:
        """Return all bodies of a queue up to `last`, waiting for it."""
        found: list[str] = []
        for _, _, body in self.channel.consume(queue, auto_ack=True):
            found.append(body.decode())
            if found[-1] == last:
                break
        self.channel.cancel()
        return found

    def replies(self) -> Inbox:
        """Return an inbox for replies to requests that are published on the channel."""
        return Inbox("amq.rabbitmq.reply-to", self.channel)

    def through(self, port: int, queue: str, count: int) -> None:
        """Consume `count` messages through another port."""
        with pika.BlockingConnection(pika.URLParameters(f"{self.uri(port=port)}?heartbeat=0")) as connection:
            channel = connection.channel()
            for _ in zip(range(count), channel.consume(queue, auto_ack=True), strict=False):
                pass
            channel.cancel()

    def leave(self) -> None:
        """Close the clients' connection, or forget it if its broker was down."""
        if self._connection is not None and self._connection.is_open:
            with contextlib.suppress(AMQPError):
                self._connection.close()
        self._connection = self._channel = None

    def remove(self) -> None:
        self.leave()
        self.node.call("DELETE", f"/vhosts/{self.name}", None, 404)

    def __repr__(self) -> str:
        return f"{self.name} ({self.node.kind})"


def dashed(settings: dict[str, object]) -> dict[str, object]:
    """Return settings with keys as federation writes them."""
    return {key.replace("_", "-"): value for key, value in settings.items()}

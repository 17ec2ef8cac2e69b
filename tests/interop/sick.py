"""Situations that `leveret doctor` must find, caused on a broker, and for each of them how to avoid it."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.delay import LAYOUTS

PERSISTENT = Properties(delivery_mode=2)


class Patient:
    """A broker with a problem; connections stay open until the end of the test."""

    def __init__(self, amqp_url: str, api_url: str, vhost: str = "/") -> None:
        self.amqp_url = amqp_url.rpartition("/")[0] + "/" + quote(vhost, safe="")
        self.api_url = api_url
        self.vhost = vhost
        self.open = contextlib.ExitStack()
        self.connection = self.connect()
        self.channel = self.connection.channel()  # for declarations only
        self.confirming = self.connection.channel()
        self.confirming.confirm_select()

    def connect(self, **options: Any) -> BlockingConnection:
        return self.open.enter_context(BlockingConnection(self.amqp_url, **options, reconnect=False))

    def consumer(self, queue: str, **options: Any) -> BlockingChannel:
        """Return a channel with a consumer that acknowledges nothing."""
        channel = self.connection.channel()
        channel.consume(queue, **options)
        return channel

    def fill(self, queue: str, count: int, body: bytes = b"x", **declared: Any) -> None:
        """Declare a queue with `count` messages."""
        self.channel.declare_queue(queue, **declared)
        self.publish("", queue, count, body)

    def publish(self, exchange: str, key: str, count: int = 1, body: bytes = b"x") -> None:
        for _ in range(count):
            self.confirming.publish(body, exchange, key, PERSISTENT)
        self.confirming.wait_for_confirms(30)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        login = b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.api_url}/api/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    @property
    def place(self) -> str:
        """The virtual host in a URL path."""
        return quote(self.vhost, safe="")

    def policy(
        self, name: str, pattern: str, definition: dict[str, Any], apply_to: str = "queues", priority: int = 0
    ) -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": apply_to, "priority": priority}
        self.api("PUT", f"policies/{self.place}/{name}", body)

    def parameter(self, component: str, name: str, value: Any) -> None:
        self.api("PUT", f"parameters/{component}/{self.place}/{name}", {"value": value})


Doing = Callable[[Patient], object]


def stuck(patient: Patient, queue: str, count: int, prefetch: int) -> None:
    patient.fill(queue, count)
    patient.consumer(queue, prefetch_count=prefetch)


def unread(patient: Patient) -> None:
    """Start a consumer without acknowledgements that does not read its socket."""
    patient.channel.declare_queue("auto")
    connection = patient.connect(heartbeat_s=0)
    connection.channel().consume("auto", no_ack=True)
    patient.publish("", "auto", 6_000, bytes(4096))


def churn(patient: Patient, kind: str) -> None:
    """Create a dozen of these; the doctor watches for a fraction of a second."""
    for number in range(12):
        if kind == "connection":
            BlockingConnection(patient.amqp_url, reconnect=False).close()
        elif kind == "channel":
            for _ in range(2):
                patient.connection.channel().close()
        else:
            patient.channel.declare_queue(f"reply-{number}", exclusive=True, durable=False)
            patient.channel.delete_queue(f"reply-{number}")


def redeliver(patient: Patient, channel: BlockingChannel) -> None:
    for _ in range(20):
        delivery = channel.next_delivery(10)
        assert delivery is not None
        channel.nack(delivery.delivery_tag)
    channel.flush()


def levels(patient: Patient, is_whole: bool) -> None:
    layout = LAYOUTS["milliseconds"]
    layout.declare_blocking(patient.channel)
    if not is_whole:
        patient.channel.delete_queue(layout.level_name(3))


# fmt: off
# check -> how to cause the problem on a broker
SICK: dict[str, Doing] = {
    "publish-without-confirms": lambda it: it.connection.channel().publish(b"x", "amq.fanout"),
    "unroutable-dropped": lambda it: it.publish("amq.direct", "nobody"),
    "many-channels": lambda it: [many.channel() for many in [it.connect()] for _ in range(200)],
    "no-heartbeat": lambda it: it.connect(heartbeat_s=0),
    "auto-ack-backlog": unread,
    "prefetch-unlimited": lambda it: (it.fill("greedy", 1), it.consumer("greedy")),
    "prefetch-absurd": lambda it: stuck(it, "absurd", 1, 20_000),
    "queue-without-consumers": lambda it: it.fill("orphan", 3),
    "dead-letters-waiting": lambda it: (
        it.fill("morgue", 2), it.channel.declare_exchange("dead", "fanout"), it.channel.bind_queue("morgue", "dead"),
        it.channel.declare_queue("work", arguments={"x-dead-letter-exchange": "dead"})),
    "unacked-huge": lambda it: stuck(it, "hoard", 11_000, 11_000),
    "consumers-stalled": lambda it: stuck(it, "stalled", 5, 2),
    "queue-near-limit": lambda it: it.fill("full", 95, arguments={"x-max-length": 100}),
    "transient-queue": lambda it: it.channel.declare_queue("fleeting", durable=False),
    "persistent-in-transient": lambda it: (
        it.fill("kept", 1), it.channel.declare_queue("lossy", durable=False),
        [it.channel.bind_queue(queue, "amq.topic", "#") for queue in ("kept", "lossy")]),
    "many-priorities": lambda it: it.channel.declare_queue("ranks", arguments={"x-max-priority": 100}),
    "retired-argument": lambda it: it.channel.declare_queue("idle", arguments={"x-queue-mode": "lazy"}),
    "unknown-argument": lambda it: it.channel.declare_queue("slip", arguments={"x-max-lenght": 5}),
    "mirrored-queues": lambda it: it.policy("mirrors", "^nothing-is-mirrored", {"ha-mode": "all"}),
    "global-prefetch": lambda it: it.connection.channel().qos(5, shared=True),
    "exchange-unbound": lambda it: (it.channel.declare_exchange("void"), it.publish("void", "k")),
    "dead-letter-exchange-missing": lambda it: (
        it.channel.declare_queue("no-dlx", arguments={"x-dead-letter-exchange": "never-declared"})),
    "dead-letters-lost": lambda it: (
        it.channel.declare_queue("no-dead-queue", arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "gone"})),
    "dead-letter-cycle": lambda it: [
        it.channel.declare_queue(one, arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other, "x-message-ttl": 60_000})
        for one, other in (("round-1", "round-2"), ("round-2", "round-1"))],
    "alternate-exchange": lambda it: it.channel.declare_exchange("leaky", arguments={"alternate-exchange": "no-ae"}),
    "policy-matches-nothing": lambda it: it.policy("typo", "^ordres$", {"max-length": 5}),
    "policy-shadowed": lambda it: (
        it.channel.declare_queue("two-policies"), it.policy("weak", "^two-pol", {"max-length": 5}),
        it.policy("strong", "^two-policies$", {"max-length": 7}, priority=3)),
    "policy-ambiguous": lambda it: (
        it.channel.declare_queue("toss"), it.policy("heads", "^toss", {"max-length": 5}, priority=1),
        it.policy("tails", "toss$", {"max-length": 7}, priority=1)),
    "federation-link-down": lambda it: (
        it.parameter("federation-upstream", "nowhere", {"uri": "amqp://guest:guest@127.0.0.1:1/%2F"}),
        it.channel.declare_exchange("fed.down"),
        it.policy("fed-down", r"^fed\.down$", {"federation-upstream": "nowhere"}, "exchanges")),
    "federation-no-upstream": lambda it: it.policy("fed-none", "^fed", {"federation-upstream": "who"}, "exchanges", -1),
    "federation-ack-mode": lambda it: it.parameter(
        "federation-upstream", "careless", {"uri": it.amqp_url, "ack-mode": "no-ack"}),
    "federation-same-cluster": lambda it: it.channel.declare_queue(
        f"federation: fed.self -> {it.api('GET', 'overview')['cluster_name']}"),
    "federation-loop": lambda it: it.channel.declare_queue("federation: fed.down -> rabbit@elsewhere"),
    "delay-layout-damaged": lambda it: levels(it, is_whole=False),
    "delay-over-limit": lambda it: it.channel.declare_queue("slow", arguments={"x-message-ttl": 5_000_000_000}),
    "weak-password": lambda it: user(it, "app", "app", ""),
    "user-without-permissions": lambda it: user(it, "lost", "x7-long-secret", ""),
    "administrator-at-work": lambda it: None,  # the patient's own connection is by the user guest
}

# check -> the same thing done right, if that is more than not doing it
WELL: dict[str, Doing] = {
    "publish-without-confirms": lambda it: it.fill("orders", 3),
    "unroutable-dropped": lambda it: it.confirming.on_return(lambda _: None) or it.publish("amq.direct", "nobody", 0),
    "many-channels": lambda it: [it.connection.channel() for _ in range(10)],
    "prefetch-unlimited": lambda it: it.consumer("orders", prefetch_count=100),
    "auto-ack-backlog": lambda it: (it.channel.declare_queue("quick"), it.consumer("quick", no_ack=True)),
    "queue-without-consumers": lambda it: it.channel.declare_queue("empty"),
    "dead-letter-exchange-missing": lambda it: (
        it.channel.declare_exchange("dlx", "fanout"), it.channel.declare_queue("dead"),
        it.channel.bind_queue("dead", "dlx"),
        it.channel.declare_queue("retry", arguments={
            "x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "worked"}),
        it.channel.declare_queue("worked", arguments={
            # dead-lettered on rejection only: a retry loop
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"}),
        it.channel.declare_queue("guarded", arguments={"x-dead-letter-exchange": "dlx"})),
    "queue-near-limit": lambda it: it.fill("roomy", 5, arguments={"x-max-length": 100, "x-message-ttl": 600_000,
                                                                "x-dead-letter-exchange": "dlx"}),
    "transient-queue": lambda it: it.channel.declare_queue("mine", durable=False, exclusive=True),
    "many-priorities": lambda it: it.channel.declare_queue("ranks", arguments={"x-max-priority": 4}),
    "exchange-unbound": lambda it: (
        it.channel.declare_exchange("events"), it.channel.bind_queue("orders", "events", "order.*")),
    "alternate-exchange": lambda it: it.channel.declare_exchange("kept", arguments={"alternate-exchange": "dlx"}),
    "policy-matches-nothing": lambda it: it.policy("fits", "^orders$", {"max-length": 5_000}),
    "policy-shadowed": lambda it: it.policy("default", "^(orders|empty)$", {"max-length": 9_000}, priority=-1),
    "delay-layout-damaged": lambda it: levels(it, is_whole=True),
    "user-without-permissions": lambda it: (
        user(it, "app", "x7-long-secret", ""),
        it.api("PUT", f"permissions/{it.place}/app", {"configure": "^app", "write": "^app", "read": "^app"})),
}
# fmt: on


def user(patient: Patient, name: str, password: str, tags: str) -> None:
    patient.api("PUT", f"users/{name}", {"password": password, "tags": tags})


def done(patient: Patient, doings: dict[str, Doing]) -> None:
    """Run all of these; return when the clients' buffers are empty."""
    for doing in doings.values():
        doing(patient)
    patient.confirming.wait_for_confirms(30)
    for connection in (patient.connection,):
        connection.flush()

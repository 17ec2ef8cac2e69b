"""A user whose permissions match nothing changes nothing: the rows of docs/reference/required-permissions.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.access.users import hash_password
from leveret.broker.storage.definitions import PERMISSION, USER
from leveret.broker.streams.stream import Stream
from leveret.control.refusal import ACCESS_REFUSED, NOT_AUTHORISED
from leveret.wire import grammar
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import method_frame
from leveret.wire.table import Value

from .admin import Browser
from .asking import Operator
from .stages import attach, stage
from .support import STREAM, Bench, Client
from .test_logins import login
from .test_topic_permissions import rows

REPLY_TO = "amq.rabbitmq.reply-to"
PASSWORD = hash_password("p", lambda count: b"s" * count)


def publisher(name: str) -> dict[str, Any]:
    """Return the fields of the basic.consume that attaches a channel to a publisher reference."""
    return {"queue": "amq.leveret.publisher", "no_ack": True, "arguments": {"x-leveret-publisher": name}}


class Rig:
    """A broker with guest's objects and a user u.

    guest: queue q, exchanges x and d (delayed, with a message), stream s, query Q, publisher reference P. u: tag
    management, access to the virtual host, permissions ^$ ^$ ^$.
    """

    def __init__(self) -> None:
        self.bench = Bench()
        guest = self.bench.connect()
        guest.queue("q", durable=True)
        guest.queue("s", durable=True, arguments=STREAM)
        guest.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="fanout", durable=True)
        delayed: dict[str, Value] = {"x-delayed-type": "fanout"}
        guest.call(1, grammar.EXCHANGE_DECLARE, exchange="d", type="x-delayed-message", arguments=delayed, durable=True)
        guest.call(1, grammar.QUEUE_BIND, queue="q", exchange="d")
        guest.publish("q", exchange="d", headers={"x-delay": 60_000}, delivery_mode=2)
        guest.publish("q", delivery_mode=2)
        stage(guest, 0, "a", b"1")
        guest.call(2, grammar.CHANNEL_OPEN)
        guest.send(2, grammar.CONFIRM_SELECT)
        guest.send(2, grammar.BASIC_CONSUME, **publisher("P"))
        definitions = self.bench.broker.definitions
        definitions.put(USER, {"name": "u", "tags": ["management"], "password_hash": PASSWORD})
        definitions.put(PERMISSION, {"user": "u", "vhost": "/", "configure": "^$", "write": "^$", "read": "^$"})
        self.bench.sync()
        self.before = self.state()

    def state(self) -> tuple[object, ...]:
        """Return the durable and the transient state."""
        vhost = self.bench.broker.vhosts["/"]
        counts = {name: int(queue.count()) for name, queue in vhost.queues.items()}
        bindings, pending = int(vhost.binding_count), self.bench.broker.log.size()
        stream = vhost.queues["s"]
        assert isinstance(stream, Stream)
        return (
            self.bench.broker.definitions.snapshot(), vhost.queries.snapshot(), vhost.publishers.snapshot(),
            sorted(vhost.exchanges), counts,
            bindings, pending, sorted(vhost.replies), len(vhost.queries.by_number), stream.record(),
            stream.leases.snapshot(),
        )  # fmt: skip

    def operator(self) -> Operator:
        return Operator(self.bench)

    def client(self) -> Client:
        client = login(self.bench, "u", "p")
        client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
        client.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
        client.call(1, grammar.CHANNEL_OPEN)
        return client

    def refuses(self, spec: MethodSpec, **values: object) -> None:
        """Check that the user gets 403."""
        client = self.client()
        client.send(1, spec, **values)
        self.refused(client)

    def refused(self, client: Client) -> None:
        self.bench.sync()
        closed = client.methods()[-1]
        assert (closed.name, closed.number("reply_code")) == ("channel.close", 403)
        assert "refused for user 'u'" in closed.text("reply_text")

    def publishes(self, exchange: str, key: str = "k", body: bytes = b"x") -> None:
        """Check that the user's publish gets 403."""
        client = self.client()
        client.publish(key, body, exchange=exchange)
        self.refused(client)

    def allows(self, spec: MethodSpec, **values: object) -> None:
        """Check that the method succeeds and leaves nothing behind."""
        client = self.client()
        assert client.call(1, spec, **values).name != "channel.close"
        client.peer.lost(self.bench.now_us)

    def denies(self, command: str, **fields: Any) -> None:
        """Check that the command is refused when the HTTP API runs it in the user's name."""
        kind, reason = self.operator().refusal(command, vhost="/", user="u", **fields)
        assert kind in (NOT_AUTHORISED, ACCESS_REFUSED) or reason.startswith("403 ACCESS_REFUSED"), reason


def forbidden(method: str, path: str, user: str) -> None:
    """Check that the HTTP API requires another tag and sends nothing to the broker."""
    browse = Browser()
    answer = asyncio.run(browse(method, path, user, json={"value": {}}))
    assert (answer.status_code, browse.control.asked) == (401, [])


def declare_queue(rig: Rig) -> None:
    for durable, exclusive in ((True, False), (False, True)):
        rig.refuses(grammar.QUEUE_DECLARE, queue="new", durable=durable, exclusive=exclusive)
        rig.refuses(grammar.QUEUE_DECLARE, queue="", exclusive=exclusive)
    rig.refuses(grammar.QUEUE_DECLARE, queue="new", durable=True, arguments=STREAM)
    rig.refuses(grammar.QUEUE_DELETE, queue="q")


def declare_exchange(rig: Rig) -> None:
    for kind in ("fanout", "x-federation-upstream", "x-recent-history"):
        rig.refuses(grammar.EXCHANGE_DECLARE, exchange="new", type=kind, durable=True)
    rig.refuses(grammar.EXCHANGE_DELETE, exchange="x")


def bind(rig: Rig) -> None:
    for spec in (grammar.QUEUE_BIND, grammar.QUEUE_UNBIND):
        rig.refuses(spec, queue="q", exchange="x", routing_key="k")
        rig.refuses(spec, queue="q", exchange="amq.rabbitmq.trace", arguments={"x-leveret-audit": True})
    for spec in (grammar.EXCHANGE_BIND, grammar.EXCHANGE_UNBIND):
        rig.refuses(spec, destination="x", source="d", arguments={"x-bound-from": []})


def publish(rig: Rig) -> None:
    for exchange in ("x", "d", "amq.topic", "amq.rabbitmq.trace", "missing"):
        rig.publishes(exchange)


def publish_by_default(rig: Rig) -> None:
    for key in ("q", "s", "amq.leveret.stage", f"{REPLY_TO}.abc", "missing"):
        rig.publishes("", key, b'{"op": "release", "query": "new", "batch": 0, "attempts": []}')
    rig.publishes("", "amq.leveret.publisher", b'{"op": "forget", "publisher": "P"}')


def read(rig: Rig) -> None:
    rig.refuses(grammar.BASIC_CONSUME, queue="q")
    rig.refuses(grammar.BASIC_CONSUME, queue="q", arguments={"x-leveret-positions": True})
    rig.refuses(grammar.BASIC_CONSUME, queue="s", arguments={"x-leveret-consumer": "name"})
    rig.refuses(grammar.BASIC_GET, queue="q")
    rig.refuses(grammar.QUEUE_PURGE, queue="q")


def attach_stage(rig: Rig) -> None:
    for name in ("new", "Q"):
        client = rig.client()
        attach(client, 0, "b", name, expires_ms=315_360_000_000)
        rig.refused(client)


def ask_for_query(rig: Rig) -> None:
    rig.refuses(grammar.BASIC_GET, queue="amq.leveret.query.Q", no_ack=True)
    rig.allows(grammar.BASIC_GET, queue="amq.leveret.query.new", no_ack=True)


def attach_publisher(rig: Rig) -> None:
    for name in ("new", "P"):
        client = rig.client()
        client.send(1, grammar.CONFIRM_SELECT)
        client.send(1, grammar.BASIC_CONSUME, **publisher(name))
        rig.refused(client)


def ask_for_publisher(rig: Rig) -> None:
    rig.refuses(grammar.BASIC_GET, queue="amq.leveret.publisher.P", no_ack=True)
    rig.allows(grammar.BASIC_GET, queue="amq.leveret.publisher.new", no_ack=True)


def look(rig: Rig) -> None:
    for name in ("q", "s"):
        rig.allows(grammar.QUEUE_DECLARE, queue=name, passive=True)
    rig.allows(grammar.EXCHANGE_DECLARE, exchange="x", passive=True)


def reply_to(rig: Rig) -> None:
    rig.allows(grammar.BASIC_CONSUME, queue=REPLY_TO, no_ack=True)
    rig.allows(grammar.QUEUE_DECLARE, queue=REPLY_TO)
    client = rig.client()
    client.send(1, grammar.BASIC_CONSUME, queue=REPLY_TO, no_ack=True)
    client.send(1, grammar.BASIC_CONSUME, queue=REPLY_TO, no_ack=True)
    assert client.methods()[-1].name == "channel.close"
    client.peer.lost(rig.bench.now_us)


def own_channel(rig: Rig) -> None:
    for spec in (grammar.CONFIRM_SELECT, grammar.TX_SELECT, grammar.BASIC_QOS):
        rig.allows(spec)
    client = rig.client()
    client.raw(method_frame(1, grammar.TX_SELECT))
    client.publish("k", exchange="x")
    rig.refused(client)


def over_http(rig: Rig) -> None:
    rig.denies("declare_queue", name="new", durable=True)
    rig.denies("delete_queue", name="q")
    rig.denies("purge_queue", name="q")
    rig.denies("declare_exchange", name="new", type="fanout")
    rig.denies("delete_exchange", name="x")
    ends = {"source": "x", "destination": "q", "destination_type": "queue"}
    rig.denies("bind", routing_key="k", **ends)
    rig.denies("publish", exchange="x", routing_key="k", payload="m")
    rig.denies("get_messages", queue="q", count=1, ackmode="ack_requeue_false", encoding="auto")
    rig.denies("add_super_stream", name="new", partitions=3)


def delayed(rig: Rig) -> None:
    rig.denies("cancel_delayed", all=True)
    rig.denies("retime_delayed", all=True, in_ms=1)


def stream_files(rig: Rig) -> None:
    rig.denies("get_stream_files", name="s")
    rig.denies("grant_stream_lease", name="s", holder="u", duration_ms=60_000)


def policies(rig: Rig) -> None:
    for path in ("/api/policies/mine/p", "/api/parameters/federation-upstream/mine/p", "/api/global-parameters/p"):
        forbidden("PUT", path, "plain")


def administration(rig: Rig) -> None:
    for path in (
        "/api/vhosts/new", "/api/users/new", "/api/permissions/mine/plain", "/api/topic-permissions/mine/plain",
        "/api/vhost-limits/mine/max-queues", "/api/user-limits/plain/max-channels",
    ):  # fmt: skip
        for user in ("plain", "rules", "watch"):
            forbidden("PUT", path, user)
    for user in ("plain", "rules", "watch"):
        forbidden("POST", "/api/definitions", user)
        forbidden("DELETE", "/api/queries/mine/Q", user)
        forbidden("DELETE", "/api/publishers/mine/P", user)


ROWS: dict[str, Callable[[Rig], None]] = {
    "queue.declare, queue.delete; also exclusive ones, and names that the broker makes": declare_queue,
    "exchange.declare, exchange.delete; also those that links declare (`x-federation-upstream`)": declare_exchange,
    "queue.bind, exchange.bind and their unbinds; also to `amq.rabbitmq.trace` (`x-leveret-audit`)": bind,
    "basic.publish": publish,
    "basic.publish to the default exchange: to queues, direct replies, release of stages, forgetting a publisher "
    "reference": publish_by_default,
    "basic.consume, basic.get, queue.purge; also by name (`x-leveret-consumer`) or as a link": read,
    "basic.get from `amq.leveret.stream.NAME`": lambda rig: rig.refuses(
        grammar.BASIC_GET, queue="amq.leveret.stream.s", no_ack=True
    ),
    "basic.consume from `amq.leveret.stage`": attach_stage,
    "basic.consume from `amq.leveret.publisher`": attach_publisher,
    "basic.get from `amq.leveret.publisher.NAME`": ask_for_publisher,
    "basic.get from `amq.leveret.query.NAME`": ask_for_query,
    "passive declarations": look,
    "basic.consume from `amq.rabbitmq.reply-to`": reply_to,
    "confirm.select, tx.select, basic.qos, acknowledgements": own_channel,
    "HTTP: queues, exchanges, bindings, super streams, publish, get": over_http,
    "HTTP: cancel or retime delayed messages": delayed,
    "HTTP: files and leases of a stream": stream_files,
    "HTTP: policies, parameters, global parameters": policies,
    "HTTP: users, permissions, virtual hosts, limits, definitions, forgetting a query or a publisher reference": (
        administration
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_who_may_do_nothing_makes_nothing(row: str) -> None:
    rig = Rig()
    ROWS[row](rig)
    rig.bench.sync()
    assert rig.state() == rig.before


def test_the_document_has_a_row_for_each_of_them_and_no_others() -> None:
    assert rows("What needs which permission") == list(ROWS)

"""Topic permissions cover every routing key of a message: each row of docs/reference/required-permissions.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.broker.storage.definitions import PERMISSION, POLICY, TOPIC_PERMISSION, USER
from leveret.wire import grammar
from leveret.wire.grammar import MethodSpec
from leveret.wire.table import Value

from .asking import Operator
from .stages import attach
from .support import Bench, Client
from .test_link import linked

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "required-permissions.md"
DLX, DLK = "x-dead-letter-exchange", "x-dead-letter-routing-key"
DELAYED = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "topic"}}
PUBLISH = (60, 40)
Refusal = tuple[int, str, tuple[int, int]]
"""Code, text, class and method of a channel.close."""


def restricted(write: str = "^ok", read: str = ".*", *, before: Callable[[Client], None] = lambda _: None) -> Client:
    """Return a client with all permissions but a topic permission on topic exchange t and delayed exchange d."""
    bench = Bench()
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="t", type="topic", durable=True)
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="own", type="topic", durable=True)
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="d", **DELAYED)
    client.queue("all", durable=True)
    for exchange in ("t", "d"):
        client.call(1, grammar.QUEUE_BIND, queue="all", exchange=exchange, routing_key="#")
    before(client)
    for exchange in ("t", "d", "later"):
        topics = {"user": "guest", "vhost": "/", "exchange": exchange, "write": write, "read": read}
        bench.broker.definitions.put(TOPIC_PERMISSION, topics)
    return client


def refusal(client: Client) -> Refusal | None:
    """Return the channel.close, if any, and reopen the channel."""
    client.bench.sync()
    for method in client.methods():
        if method.name == "channel.close":
            client.send(1, grammar.CHANNEL_CLOSE_OK)
            client.call(1, grammar.CHANNEL_OPEN)
            about = method.number("class_id"), method.number("method_id")
            return method.number("reply_code"), method.text("reply_text"), about
    return None


def topic(key: str, about: tuple[int, int], exchange: str = "t") -> Refusal:
    text = f"access to topic '{key}' in exchange '{exchange}' in vhost '/' refused for user 'guest'"
    return 403, f"ACCESS_REFUSED - {text}", about


def said(client: Client, spec: MethodSpec, **values: object) -> Refusal | None:
    client.send(1, spec, **values)
    return refusal(client)


def waiting(client: Client) -> int:
    return int(client.bench.broker.vhosts["/"].queues["all"].count())


def published(client: Client, key: str, exchange: str = "t", **values: object) -> Refusal | None:
    client.publish(key, exchange=exchange, **values)
    return refusal(client)


# -- the rows ----------------------------------------------------------------------------------------------------------


def publish_key() -> None:
    client = restricted()
    assert published(client, "ok.1") is None
    assert published(client, "no") == topic("no", PUBLISH)
    assert waiting(client) == 1


def copies(header: str) -> None:
    client = restricted()
    assert published(client, "ok", headers={header: ["ok.1", "ok.2"]}) is None
    for _ in range(2):  # also when the route is cached
        assert published(client, "ok", headers={header: ["ok.1", "no", "no.2"]}) == topic("no", PUBLISH)
    assert published(client, "no", headers={header: ["ok"]}) == topic("no", PUBLISH)
    assert published(client, "k", "own", headers={header: ["whatever"]}) is None
    assert published(client, "k", "amq.direct", headers={header: ["whatever"]}) is None
    assert waiting(client) == 1


def dead_letter_key() -> None:
    client = restricted()
    declare = grammar.QUEUE_DECLARE
    assert said(client, declare, queue="q1", arguments={DLX: "t", DLK: "ok.dead"}) is None
    assert said(client, declare, queue="q2", arguments={DLX: "t", DLK: "no"}) == topic("no", (50, 10))
    assert said(client, declare, queue="q3", arguments={DLX: "own", DLK: "no"}) is None
    # the exchange does not exist yet; once it does, a check would be too late
    assert said(client, declare, queue="q4", arguments={DLX: "later", DLK: "no"}) == topic("no", (50, 10), "later")
    assert sorted(client.bench.broker.vhosts["/"].queues) == ["all", "q1", "q3"]


def dead_letters_with_their_own_keys() -> None:
    client = restricted()
    assert said(client, grammar.QUEUE_DECLARE, queue="no", arguments={DLX: "t"}) == topic("#", (50, 10))
    client = restricted(write=".*")
    assert said(client, grammar.QUEUE_DECLARE, queue="no", arguments={DLX: "t"}) is None


def alternate_exchange() -> None:
    for exchange in ("t", "d", "later"):
        client = restricted()
        values = {"exchange": "mine", "type": "fanout", "arguments": {"alternate-exchange": exchange}}
        assert said(client, grammar.EXCHANGE_DECLARE, **values) == topic("#", (40, 10), exchange)
        assert "mine" not in client.bench.broker.vhosts["/"].exchanges
        assert said(restricted(write=".*"), grammar.EXCHANGE_DECLARE, **values) is None


def exchange_as_destination() -> None:
    bind: dict[str, object] = {"destination": "t", "source": "own", "routing_key": "ok"}
    client = restricted()
    assert said(client, grammar.EXCHANGE_BIND, **bind) == topic("#", (40, 30))
    assert published(client, "ok", "own", headers={"CC": ["no"]}) is None
    assert waiting(client) == 0
    # an existing binding may be declared again, as applications do when they start, and removed
    client = restricted(before=lambda client: client.send(1, grammar.EXCHANGE_BIND, **bind))
    assert said(client, grammar.EXCHANGE_BIND, **bind) is None
    assert said(client, grammar.EXCHANGE_UNBIND, **bind) is None
    assert said(restricted(write=".*"), grammar.EXCHANGE_BIND, **bind) is None


def binding_key() -> None:
    for source in ("t", "d"):
        client = restricted(read="^ok")
        bind: dict[str, object] = {"queue": "all", "exchange": source}
        assert said(client, grammar.QUEUE_BIND, **bind, routing_key="ok.#") is None
        assert said(client, grammar.QUEUE_BIND, **bind, routing_key="#") == topic("#", (50, 20), source)
        assert said(client, grammar.QUEUE_UNBIND, **bind, routing_key="#") == topic("#", (50, 50), source)
        onward: dict[str, object] = {"destination": "own", "source": source}
        assert said(client, grammar.EXCHANGE_BIND, **onward, routing_key="no") == topic("no", (40, 30), source)


def delayed_exchange() -> None:
    client = restricted()
    delay = {"x-delay": 60_000}
    assert published(client, "ok", "d", headers=delay) is None
    assert published(client, "no", "d", headers=delay) == topic("no", PUBLISH, "d")
    assert published(client, "ok", "d", headers=delay | {"CC": ["no"]}) == topic("no", PUBLISH, "d")
    client.bench.pass_time(60_000_000)
    assert waiting(client) == 1


def staged_publish() -> None:
    client = restricted()
    attach(client, 0, "a")
    assert published(client, "ok") is None
    assert published(client, "no") == topic("no", PUBLISH)
    attach(client, 0, "b")
    assert published(client, "ok", headers={"BCC": ["no"]}) == topic("no", PUBLISH)


def transaction() -> None:
    client = restricted()
    client.call(1, grammar.TX_SELECT)
    assert published(client, "ok", headers={"CC": ["no"]}) == topic("no", PUBLISH)


def http_publish() -> None:
    operator = Operator()
    broker = operator.node.broker
    broker.definitions.put(USER, {"name": "u", "tags": []})
    broker.definitions.put(PERMISSION, {"user": "u", "vhost": "/", "configure": "", "write": ".*", "read": ""})
    topics = {"user": "u", "vhost": "/", "exchange": "amq.topic", "write": "^ok", "read": ""}
    broker.definitions.put(TOPIC_PERMISSION, topics)
    for key, properties in (("no", {}), ("ok", {"headers": {"CC": ["no"]}})):
        asked = {"exchange": "amq.topic", "routing_key": key, "properties": properties, "user": "u", "payload": "m"}
        assert "topic 'no' in exchange 'amq.topic'" in operator.refusal("publish", vhost="/", **asked)[1]
    blind = {"headers": {"BCC": ["ok.1", "no"]}}
    explained = operator.ask("explain_route", exchange="amq.topic", routing_key="ok", user="u", properties=blind)
    assert "topic 'no' in exchange 'amq.topic'" in explained["refusals"][0]


def mandatory_return() -> None:
    unbind = {"queue": "all", "exchange": "t", "routing_key": "#"}
    client = restricted(before=lambda client: client.send(1, grammar.QUEUE_UNBIND, **unbind))
    client.bench.sync()
    client.frames()
    client.publish("ok", exchange="t", mandatory=True, headers={"CC": ["ok.1"]})
    assert [method.name for method in client.methods()] == ["basic.return"]
    client.publish("ok", exchange="t", mandatory=True, headers={"CC": ["no"]})
    assert [method.name for method in client.methods()] == ["channel.close"]


def policies() -> None:
    client = restricted()
    keys: dict[str, Value] = {"dead-letter-exchange": "t", "dead-letter-routing-key": "no"}
    policy: dict[str, Value] = {"vhost": "/", "name": "p", "pattern": "^q$", "priority": 0, "apply-to": "queues"}
    client.bench.broker.definitions.put(POLICY, policy | {"definition": keys})
    client.queue("q", arguments={"x-message-ttl": 1})
    assert published(client, "q", "") is None
    client.bench.pass_time(10_000)
    assert waiting(client) == 1


def federation() -> None:
    world, up, down, reader = linked()
    topics = {"user": "guest", "vhost": "/", "exchange": "x", "write": "^ok", "read": ""}
    down.broker.definitions.put(TOPIC_PERMISSION, topics)
    up.publish("x", "no", b"m")
    world.until(lambda: reader.take() == [b"m"])


# first column of the table -> test of the row
ROWS: dict[str, Callable[[], None]] = {
    "routing key of a publish": publish_key,
    "keys of `CC`": lambda: copies("CC"),
    "keys of `BCC`": lambda: copies("BCC"),
    "`x-dead-letter-routing-key`": dead_letter_key,
    "`x-dead-letter-exchange` without a key": dead_letters_with_their_own_keys,
    "`alternate-exchange`": alternate_exchange,
    "exchange.bind, destination": exchange_as_destination,
    "binding key, exchange as source": binding_key,
    "delayed exchange (`x-delayed-type`: `topic`)": delayed_exchange,
    "publish into a stage": staged_publish,
    "publish in a transaction": transaction,
    "publish over HTTP": http_publish,
    "basic.return": mandatory_return,
    "`dead-letter-exchange`, `alternate-exchange` of a policy": policies,
    "link of federation": federation,
}


def rows(heading: str) -> list[str]:
    """Return the first cells of the first table below a heading of the document."""
    below = DOCUMENT.read_text().split(f"\n## {heading}\n", 1)[1]
    table = [line for line in below.split("\n## ", 1)[0].splitlines() if line.startswith("|")]
    return [line.split("|")[1].strip() for line in table[2:]]


@pytest.mark.parametrize("row", ROWS)
def test_what_the_document_says_of_routing_keys_holds(row: str) -> None:
    ROWS[row]()


def test_the_document_has_a_row_for_each_of_them_and_no_others() -> None:
    assert rows("Which routing keys topic permissions cover") == list(ROWS)


def test_who_may_do_everything_is_not_asked_for_keys() -> None:
    client = Bench().connect()
    access = client.peer.access()
    assert access.may_all
    assert not access.topics
    assert published(client, "k", "amq.topic", headers={"CC": ["whatever"]}) is None

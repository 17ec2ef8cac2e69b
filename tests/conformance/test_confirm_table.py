"""When a publish is acked, nacked, returned or an error: the cases with more than one queue or message.

Other cases: `test_confirms.py` has those with one queue, and numbering; `test_limits.py` full queues; `test_errors.py`
bad properties; `test_direct_reply_to.py` direct replies; `test_cc.py` CC and BCC. That a confirm waits for the slowest
queue can only be seen at the disk: `tests/unit/test_broker_core.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .collect import answers, confirmed, content, exclusive, fanout
from .raw import RawClient, encode_method

MODES = pytest.mark.parametrize("mode", [1, 2])


@pytest.fixture
def alternate(raw: RawClient, other: RawClient, unique: str) -> Iterator[str]:
    """The name of an exchange to declare as alternate exchange; exchanges of this test are deleted afterwards."""
    yield f"{unique}-alternate"
    for name in (f"{unique}-main", f"{unique}-alternate"):
        other.call("exchange.delete", exchange=name)


def declare(client: RawClient, name: str, alternate: str, kind: str = "direct") -> str:
    arguments = {"alternate-exchange": alternate} if alternate else {}
    client.call("exchange.declare", exchange=name, type=kind, arguments=arguments)
    return name


def outcome(client: RawClient, exchange: str, mode: int) -> list[str]:
    """Publish a mandatory message; return the names of the frames up to its confirm, which must be the last one."""
    client.publish(b"x", exchange=exchange, routing_key="nowhere", mandatory=True, delivery_mode=mode)
    names = [client.read().name]
    while names[-1] == "basic.return":
        names.append(client.read("basic.return", "basic.ack").name)
    client.quiet()
    return names


# -- alternate exchanges -----------------------------------------------------------------------------------------------


@MODES
def test_only_the_alternate_exchange_routes(raw: RawClient, unique: str, alternate: str, mode: int) -> None:
    queue = exclusive(raw)
    declare(raw, alternate, "", "fanout")
    raw.call("queue.bind", queue=queue, exchange=alternate)
    main = declare(raw, f"{unique}-main", alternate)
    raw.call("confirm.select")
    assert outcome(raw, main, mode) == ["basic.ack"]
    assert content(raw, queue) == [b"x"]


@MODES
def test_the_alternate_exchange_is_missing(raw: RawClient, unique: str, alternate: str, mode: int) -> None:
    main = declare(raw, f"{unique}-main", alternate)
    raw.call("confirm.select")
    assert outcome(raw, main, mode) == ["basic.return", "basic.ack"]


@MODES
def test_the_alternate_exchange_routes_nowhere(raw: RawClient, unique: str, alternate: str, mode: int) -> None:
    declare(raw, alternate, "")
    main = declare(raw, f"{unique}-main", alternate)
    raw.call("confirm.select")
    assert outcome(raw, main, mode) == ["basic.return", "basic.ack"]


@MODES
def test_alternate_exchanges_in_a_circle(raw: RawClient, unique: str, alternate: str, mode: int) -> None:
    main = f"{unique}-main"
    declare(raw, alternate, main)
    declare(raw, main, alternate)
    raw.call("confirm.select")
    assert outcome(raw, main, mode) == ["basic.return", "basic.ack"]


def test_an_exchange_that_is_its_own_alternate(raw: RawClient, unique: str, alternate: str) -> None:
    declare(raw, alternate, alternate)
    raw.call("confirm.select")
    assert outcome(raw, alternate, 2) == ["basic.return", "basic.ack"]


def test_an_alternate_exchange_that_comes_later_counts(raw: RawClient, unique: str, alternate: str) -> None:
    """It need not exist when the other exchange names it, and a cached route is dropped when it is declared."""
    main = declare(raw, f"{unique}-main", alternate)
    raw.call("confirm.select")
    assert outcome(raw, main, 1) == ["basic.return", "basic.ack"]
    queue = exclusive(raw)
    declare(raw, alternate, "", "fanout")
    raw.call("queue.bind", queue=queue, exchange=alternate)
    assert outcome(raw, main, 1) == ["basic.ack"]
    raw.call("queue.unbind", queue=queue, exchange=alternate)
    assert outcome(raw, main, 1) == ["basic.return", "basic.ack"]


@MODES
def test_an_internal_exchange_may_be_the_alternate_one(raw: RawClient, unique: str, alternate: str, mode: int) -> None:
    """An internal exchange refuses publishers, but accepts messages from other exchanges."""
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=alternate, type="fanout", internal=True)
    raw.call("queue.bind", queue=queue, exchange=alternate)
    main = declare(raw, f"{unique}-main", alternate)
    raw.call("confirm.select")
    assert outcome(raw, main, mode) == ["basic.ack"]
    assert content(raw, queue) == [b"x"]
    raw.publish(b"x", exchange=alternate, delivery_mode=mode)
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{alternate}' in vhost '/'"
    assert raw.closed() == (403, text, 60, 40)


# -- several queues ----------------------------------------------------------------------------------------------------


@MODES
def test_queues_of_all_kinds_give_one_ack(raw: RawClient, unique: str, mode: int) -> None:
    """Durable, transient, dropping and expiring queues: one answer, after the last of them is done."""
    durable = f"{unique}-durable"
    raw.call("queue.declare", queue=durable, durable=True)
    others = [exclusive(raw), exclusive(raw, x_max_length=0), exclusive(raw, x_message_ttl=0)]
    exchange = fanout(raw, unique, durable, *others)
    raw.call("confirm.select")
    for _ in range(100):
        raw.publish(b"x", exchange=exchange, delivery_mode=mode)
    assert answers(raw, 100) == "a" * 100
    raw.quiet()
    assert raw.call("queue.delete", queue=durable)["message_count"] == 100


def test_transient_and_persistent_by_turns(raw: RawClient, unique: str) -> None:
    """Answers may come in any order, but a cumulative one never covers an unconfirmed publish."""
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("confirm.select")
    for number in range(200):
        raw.publish(b"x", routing_key=unique, delivery_mode=1 + number % 2)
    assert answers(raw, 200) == "a" * 200
    raw.quiet()
    raw.call("queue.delete", queue=unique)


def test_acks_and_nacks_by_turns(raw: RawClient, unique: str) -> None:
    """Publishes to a full queue and to a durable queue alternate on one channel."""
    full = exclusive(raw, x_max_length=0, x_overflow="reject-publish")
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("confirm.select")
    for number in range(200):
        raw.publish(b"x", routing_key=full if number % 2 else unique, delivery_mode=2)
    assert answers(raw, 200) == "an" * 100
    raw.quiet()
    raw.call("queue.delete", queue=unique)


@MODES
def test_a_deleted_queue_settles_what_is_open(raw: RawClient, unique: str, mode: int) -> None:
    """This includes messages that another queue still has to write."""
    durable = f"{unique}-durable"
    raw.call("queue.declare", queue=durable, durable=True)
    gone = exclusive(raw)
    exchange = fanout(raw, unique, durable, gone)
    raw.call("confirm.select")
    for _ in range(50):
        raw.publish(b"x", exchange=exchange, delivery_mode=mode)
    raw.send("queue.delete", 2, queue=gone)
    open_tags, deleted = set(range(1, 51)), False
    while open_tags or not deleted:
        got = raw.read("basic.ack", "queue.delete-ok")
        if got.name == "basic.ack":
            open_tags -= set(range(1, got["delivery_tag"] + 1)) if got["multiple"] else {got["delivery_tag"]}
        deleted = deleted or got.name == "queue.delete-ok"
    raw.call("queue.delete", queue=durable)


# -- the channel's end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["missing exchange", "internal exchange", "bad property"])
@MODES
def test_an_error_ends_the_confirms(raw: RawClient, unique: str, what: str, mode: int) -> None:
    """Nothing follows channel.close, and the next channel counts from 1 again."""
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("confirm.select")
    publish = encode_method("basic.publish", routing_key=unique)
    stream = raw.content(1, publish, b"x", {"delivery_mode": mode})
    if what == "missing exchange":
        bad = raw.content(1, encode_method("basic.publish", exchange=unique), b"x", {})
    elif what == "internal exchange":
        bad = raw.content(1, encode_method("basic.publish", exchange="amq.rabbitmq.trace"), b"x", {})
    else:
        bad = raw.content(1, publish, b"x", {"expiration": "soon"})
    raw.socket.sendall(stream + bad + stream)
    while (got := raw.read("basic.ack", "channel.close")).name == "basic.ack":
        assert got["delivery_tag"] == 1
    assert got["reply_code"] == {"missing exchange": 404, "internal exchange": 403, "bad property": 406}[what]
    raw.send("channel.close-ok")
    raw.call("channel.open")
    raw.quiet()
    raw.call("confirm.select")
    assert confirmed(raw, unique, b"x", first=1, delivery_mode=mode) == "a"
    raw.call("queue.delete", queue=unique)


@MODES
def test_closing_the_channel_ends_the_confirms(raw: RawClient, unique: str, mode: int) -> None:
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("confirm.select")
    for _ in range(20):
        raw.publish(b"x", routing_key=unique, delivery_mode=mode)
    raw.send("channel.close")
    while raw.read("basic.ack", "channel.close-ok").name != "channel.close-ok":
        pass
    raw.call("basic.qos", 2)
    raw.call("channel.open")
    raw.quiet()
    assert raw.call("queue.delete", queue=unique)["message_count"] == 20


def test_select_on_a_channel_that_has_published(raw: RawClient) -> None:
    """Select without waiting, and twice: what was published before has no number."""
    queue = exclusive(raw)
    raw.publish(b"before", routing_key=queue)
    raw.send("confirm.select", no_wait=True)
    assert confirmed(raw, queue, b"first", first=1) == "a"
    raw.send("confirm.select", no_wait=True)
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"second", first=2) == "a"

"""Exclusive queues: locked for all other connections, and deleted as soon as their connection ends (raw)."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .raw import Eof, RawClient, encode_method

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("flags", [{}, {"durable": True}, {"auto_delete": True}, {"exclusive": True}])
def test_others_cannot_declare_it(
    raw: RawClient, other: RawClient, unique: str, durable: bool, flags: dict[str, bool]
) -> None:
    """The error is always about the lock, whatever else differs."""
    other.call("queue.declare", queue=unique, exclusive=True, durable=durable)
    given = {**flags, "arguments": {"x-expires": -1}}
    assert raw.fail("queue.declare", queue=unique, **given) == (405, LOCKED.format(unique), 50, 10)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_it_is_never_durable(raw: RawClient, unique: str, durable: bool, again: bool) -> None:
    """The queue ends with its connection, so the flag has no effect."""
    raw.call("queue.declare", queue=unique, exclusive=True, durable=durable)
    raw.call("queue.declare", queue=unique, exclusive=True, durable=again)


@pytest.mark.parametrize("others", [{}, {"durable": True}, {"auto_delete": True}, {"arguments": {"x-max-length": 1}}])
@pytest.mark.parametrize("exclusive", [False, True])
def test_exclusivity_is_compared_first(raw: RawClient, unique: str, exclusive: bool, others: dict[str, object]) -> None:
    raw.call("queue.declare", 2, queue=unique, exclusive=exclusive)
    assert raw.fail("queue.declare", queue=unique, exclusive=not exclusive, **others) == (
        405, LOCKED.format(unique), 50, 10)
    raw.call("queue.delete", 2, queue=unique)


def test_others_may_publish_to_it(raw: RawClient, other: RawClient) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    other.call("confirm.select")
    other.publish(b"x", routing_key=queue, mandatory=True)
    other.read("basic.ack")
    assert raw.call("basic.get", queue=queue, no_ack=True).body == b"x"


def test_others_may_unbind_what_is_not_bound(raw: RawClient, other: RawClient) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    raw.call("queue.bind", queue=queue, exchange="amq.direct", routing_key="here")
    other.call("queue.unbind", queue=queue, exchange="amq.direct", routing_key="elsewhere")
    assert other.fail("queue.unbind", queue=queue, exchange="amq.direct", routing_key="here") == (
        405, LOCKED.format(queue), 50, 50)


def test_it_is_free_once_its_connection_has_closed(url: str, raw: RawClient, unique: str) -> None:
    with RawClient.open(url) as owner:
        owner.call("queue.declare", queue=unique, exclusive=True)
        owner.call("connection.close", 0)
        owner.socket.close()
    until(lambda: is_free(raw, unique))


def test_many_of_them_come_and_go(raw: RawClient, unique: str) -> None:
    """What is left of a queue that was deleted before its connection ended must not affect the next one."""
    for _ in range(3):
        raw.call("queue.declare", queue=unique, exclusive=True, auto_delete=True)
        raw.call("basic.consume", queue=unique, consumer_tag="c")
        raw.call("basic.cancel", consumer_tag="c")
    raw.call("queue.declare", queue=unique, exclusive=True)
    raw.call("queue.delete", queue=unique)


def is_free(client: RawClient, queue: str) -> bool:
    client.send("queue.declare", queue=queue, exclusive=True)
    got = client.read("queue.declare-ok", "channel.close")
    if got.name == "channel.close":
        assert got.error == (405, LOCKED.format(queue), 50, 10)
        client.send("channel.close-ok")
        client.call("channel.open")
    return got.name == "queue.declare-ok"


# A client that lost its connection and is back at once. RabbitMQ may answer 405 for a moment; leveret does not.

@pytest.mark.parametrize("is_half", [False, True])
def test_back_at_once(broker: str, unique: str, is_half: bool) -> None:
    for _ in range(20):
        with RawClient.open(broker) as lost, RawClient.open(broker) as back:
            lost.call("queue.declare", queue=unique, exclusive=True)
            hang_up(lost, is_half)
            back.call("queue.declare", queue=unique, exclusive=True)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("method", ["queue.declare", "queue.delete", "basic.consume", "queue.bind"])
def test_the_next_connection_is_heard_first(
    broker: str, leveret_process: LeveretProcess, unique: str, is_half: bool, method: str
) -> None:
    """The new connection's method has arrived before the broker noticed the end of the old connection."""
    with RawClient.open(broker) as lost, RawClient.open(broker) as back:
        lost.call("queue.declare", queue=unique, exclusive=True)
        back.call("basic.qos", prefetch_count=0)  # epoll's list of ready sockets has no longer `lost`, and `back` first
        os.kill(leveret_process.pid, signal.SIGSTOP)
        try:
            back.send(method, queue=unique, **({"exchange": "amq.direct"} if method == "queue.bind" else {}))
            hang_up(lost, is_half)
        finally:
            os.kill(leveret_process.pid, signal.SIGCONT)
        got = back.read()
        if method.startswith("queue.de"):
            assert got.name == f"{method}-ok"
        else:
            assert got.error[:2] == (404, f"NOT_FOUND - no queue '{unique}' in vhost '/'")


def test_a_client_that_only_listens_is_gone(broker: str, unique: str) -> None:
    """It has closed its sending end and does not read what is waiting for it: its consumers and queues end at once."""
    with RawClient.open(broker) as lost, RawClient.open(broker) as back:
        lost.call("queue.declare", queue=unique, auto_delete=True)
        lost.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lost.send("basic.consume", queue=unique, no_ack=True)
        lost.read("basic.consume-ok")
        back.call("confirm.select")
        for _ in range(40):
            back.publish(bytes(1 << 20), routing_key=unique)
        lost.socket.shutdown(socket.SHUT_WR)
        until(lambda: is_gone(broker, unique))


@pytest.mark.parametrize("is_half", [False, True])
def test_what_was_said_before_is_heard(broker: str, unique: str, is_half: bool) -> None:
    """A publisher without confirms closes its socket only; its messages take the broker more than one turn."""
    count = 1000
    with RawClient.open(broker) as raw, RawClient.open(broker) as lost:
        queues = [raw.call("queue.declare", exclusive=True)["queue"] for _ in range(40)]
        raw.call("exchange.declare", exchange=unique, type="fanout", auto_delete=True)
        for queue in queues:
            raw.call("queue.bind", queue=queue, exchange=unique)
        method = encode_method("basic.publish", exchange=unique)
        lost.socket.sendall(b"".join(lost.content(1, method, b"x" * 90, {"type": str(n)}) for n in range(count)))
        hang_up(lost, is_half)
        for queue in queues:
            until(lambda queue=queue: waiting(raw, queue) == count)  # type: ignore[misc]


def waiting(client: RawClient, queue: str) -> int:
    return int(client.call("queue.declare", queue=queue, passive=True)["message_count"])


def is_gone(url: str, queue: str) -> bool:
    with RawClient.open(url) as probe:
        probe.send("queue.declare", queue=queue, passive=True)
        return probe.read("queue.declare-ok", "channel.close").name == "channel.close"


def hang_up(client: RawClient, is_half: bool) -> None:
    if is_half:
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.socket.close()


def test_half_closing_ends_the_connection(raw: RawClient) -> None:
    raw.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(Eof):
        raw.read()


# Exclusive consumers

@pytest.mark.parametrize("end", ["basic.cancel", "channel.close", "hang up"])
def test_the_next_consumer_may_come_when_an_exclusive_one_has_gone(
    url: str, raw: RawClient, unique: str, end: str
) -> None:
    raw.call("queue.declare", queue=unique)
    with RawClient.open(url) as first:
        first.call("basic.consume", queue=unique, consumer_tag="c", exclusive=True)
        assert not may_consume(raw, unique, exclusive=False)
        assert not may_consume(raw, unique, exclusive=True)
        if end == "hang up":
            first.socket.close()
        else:
            first.call(end, **({"consumer_tag": "c"} if end == "basic.cancel" else {}))
        until(lambda: may_consume(raw, unique, exclusive=True))
        assert not may_consume(raw, unique, exclusive=False)
    raw.call("basic.cancel", consumer_tag="mine")
    assert may_consume(raw, unique, exclusive=False)
    raw.call("basic.cancel", consumer_tag="mine")
    raw.call("queue.delete", queue=unique)


def may_consume(client: RawClient, queue: str, *, exclusive: bool) -> bool:
    """Return whether consuming is allowed; if so, consumer "mine" stays on channel 1.

    Tries on channel 2 first, because a refusal closes the channel.
    """
    client.send("basic.consume", 2, queue=queue, consumer_tag="probe", exclusive=exclusive)
    got = client.read("basic.consume-ok", "channel.close")
    if got.name == "channel.close":
        assert got.error == (403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use", 60, 20)
        client.send("channel.close-ok", 2)
        client.call("channel.open", 2)
        return False
    client.call("basic.cancel", 2, consumer_tag="probe")
    client.call("basic.consume", queue=queue, consumer_tag="mine", exclusive=exclusive)
    return True


def test_an_exclusive_consumer_does_not_lock_the_queue(raw: RawClient, other: RawClient, unique: str) -> None:
    """Other clients may publish, fetch, purge, and even delete it."""
    raw.call("queue.declare", queue=unique)
    raw.call("basic.qos", prefetch_count=1)
    raw.call("basic.consume", queue=unique, consumer_tag="c", exclusive=True)
    for body in (b"0", b"1", b"2"):
        other.publish(body, routing_key=unique)
    assert raw.read("basic.deliver").body == b"0"
    until(lambda: other.call("queue.declare", queue=unique, passive=True)["message_count"] == 2)
    assert other.call("basic.get", queue=unique, no_ack=True).body == b"1"
    assert other.call("queue.purge", queue=unique)["message_count"] == 1
    other.call("queue.delete", queue=unique)
    assert raw.read("basic.cancel")["consumer_tag"] == "c"

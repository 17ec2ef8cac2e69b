"""Clients that do not read, request too much, or are very many: memory stays bounded, and others are served.

Each test has its own broker and checks its resident memory. The bounds are far above what is measured, and far below
what a broker that keeps everything would need.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leveret.testing.processes import LeveretProcess

from .raw import BODY, HEADER, METHOD, Eof, RawClient, encode_header, encode_method, frame

MIB = 1 << 20


def rss_octets(broker: LeveretProcess) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def grows_no_more(broker: LeveretProcess, thousand: Callable[[], None]) -> None:
    """Call `thousand` until three calls in a row have left less than 300 octets for each of their 1,000 actions.

    A heap grows in steps until its holes fit the load; a leak grows every time.
    """
    highest: list[int] = []
    for _ in range(20):
        thousand()
        highest.append(max([rss_octets(broker), *highest]))
        if len(highest) > 3 and highest[-1] - highest[-4] < 3 * 300_000:
            return
    pytest.fail(f"resident memory grows on: {highest}")


@pytest.fixture
def alone() -> Iterator[LeveretProcess]:
    with LeveretProcess() as broker:
        yield broker


def push(client: RawClient, data: bytes, octets_max: int) -> int:
    """Write repeatedly until the broker has accepted nothing for a while, or `octets_max` is reached; never read."""
    client.socket.settimeout(1.5)
    sent = 0
    while sent < octets_max:
        try:
            sent += client.socket.send(data[sent % len(data) :])
        except TimeoutError:
            return sent
    return sent


def message(key: str, body: bytes, mandatory: bool = False) -> bytes:
    method = encode_method("basic.publish", routing_key=key, mandatory=mandatory)
    return frame(METHOD, 1, method) + frame(HEADER, 1, encode_header(len(body), {})) + frame(BODY, 1, body)


def small_buffers(url: str) -> RawClient:
    """Open a client with a small receive buffer, so that the broker soon notices that it does not read."""
    client = RawClient.open(url)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    return client


def test_a_consumer_that_stops_reading_costs_little_and_hurts_nobody(alone: LeveretProcess, unique: str) -> None:
    """Its messages stay in the queue, which goes to disk; other clients are served as usual."""
    body, count = bytes(100_000), 4000
    with small_buffers(alone.url) as deaf, RawClient.open(alone.url) as publisher, RawClient.open(alone.url) as other:
        publisher.call("queue.declare", queue=unique, durable=True)
        deaf.call("basic.consume", queue=unique, no_ack=True)
        own = other.call("queue.declare", exclusive=True)["queue"]
        other.call("basic.consume", queue=own, no_ack=True)
        publisher.call("confirm.select")
        before, largest = rss_octets(alone), 0
        content = publisher.content(1, encode_method("basic.publish", routing_key=unique), body, {"delivery_mode": 2})
        waits = []
        for sent in range(1, count + 1):
            publisher.socket.sendall(content)
            if sent % 100 == 0:
                while publisher.read("basic.ack")["delivery_tag"] < sent:
                    pass
                largest = max(largest, rss_octets(alone) - before)
                started = time.monotonic()
                other.publish(b"x", routing_key=own)
                assert other.read("basic.deliver").body == b"x"
                waits.append(time.monotonic() - started)
        assert largest < 200 * MIB, "of 381 MiB that were published"
        print(f"RSS +{largest / MIB:.0f} MiB; others waited {sorted(waits)[len(waits) // 2] * 1e3:.1f} ms (median)")
        taken = [len(deaf.read("basic.deliver").body) for _ in range(count)]
        assert taken == [len(body)] * count


def test_who_reads_no_answers_is_not_read_any_more(alone: LeveretProcess) -> None:
    """Each answer is nearly as long as its request; a confirm has 21 octets."""
    name = "q" * 255
    before = rss_octets(alone)
    with small_buffers(alone.url) as deaf:
        deaf.call("queue.declare", queue=name)
        ask = frame(METHOD, 1, encode_method("queue.declare", queue=name, passive=True))
        sent = push(deaf, ask * 1000, 400 * MIB)
        assert sent < 100 * MIB
        with RawClient.open(alone.url) as other:
            other.quiet()
        grown = rss_octets(alone) - before
        assert grown < 64 * MIB
        # when the client reads again, it gets all answers completely
        answer = len(frame(METHOD, 1, encode_method("queue.declare-ok", queue=name)))
        deaf.socket.settimeout(60)
        unread = sent // len(ask) * answer
        while unread:
            unread -= len(deaf.socket.recv(min(unread, MIB)))
        deaf.socket.sendall(ask[sent % len(ask) :])
        deaf.read("queue.declare-ok")
        deaf.quiet()


def test_returns_that_nobody_reads_stop_their_publisher(alone: LeveretProcess) -> None:
    before = rss_octets(alone)
    with small_buffers(alone.url) as deaf:
        sent = push(deaf, message("nowhere", bytes(60_000), mandatory=True) * 4, 400 * MIB)
        assert sent < 100 * MIB
        assert rss_octets(alone) - before < 64 * MIB


def test_many_gets_at_once_do_not_fill_the_memory(alone: LeveretProcess) -> None:
    """A few octets of basic.get request a message of 10 MiB, 1,000 times in one segment."""
    body = bytes(10 * MIB)
    with small_buffers(alone.url) as deaf, RawClient.open(alone.url) as other:
        other.call("queue.declare", queue="q")
        other.publish(body, routing_key="q")
        other.quiet()
        before = rss_octets(alone)
        deaf.socket.sendall(b"".join(
            frame(METHOD, 1, encode_method("basic.get", queue="q"))
            + frame(METHOD, 1, encode_method("basic.nack", delivery_tag=tag, requeue=True))
            for tag in range(1, 1001)))
        for _ in range(20):
            other.quiet()
        assert rss_octets(alone) - before < 100 * MIB
        for tag in range(1, 6):
            got = deaf.read("basic.get-ok")
            assert (got["delivery_tag"], len(got.body)) == (tag, len(body))


def test_who_writes_much_before_he_reads_is_heard(alone: LeveretProcess) -> None:
    """A large message is on its way to this single-threaded client: both would wait for each other."""
    body = bytes(12 * MIB)
    with small_buffers(alone.url) as busy, RawClient.open(alone.url) as other:
        other.call("queue.declare", queue="q")
        other.publish(body, routing_key="q")
        other.quiet()
        consume = frame(METHOD, 1, encode_method("basic.consume", queue="q", no_ack=True))
        qos = frame(METHOD, 1, encode_method("basic.qos"))
        publish = busy.content(1, encode_method("basic.publish", routing_key="nowhere"), body, {})
        busy.socket.settimeout(60)
        busy.socket.sendall(consume + qos + qos + publish * 3)
        seen = [busy.read().name for _ in range(4)]
        assert sorted(seen) == ["basic.consume-ok", "basic.deliver", "basic.qos-ok", "basic.qos-ok"]


def test_a_requester_that_does_not_read_its_replies_goes(alone: LeveretProcess) -> None:
    """Replies are not stored in a queue; with 128 MiB of them unread the connection ends, and the responder goes on."""
    reply = bytes(MIB)
    with small_buffers(alone.url) as deaf, RawClient.open(alone.url) as server:
        server.call("queue.declare", queue="rpc")
        deaf.call("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
        deaf.publish(b"", "", "rpc", reply_to="amq.rabbitmq.reply-to")
        server.call("basic.consume", queue="rpc", no_ack=True)
        name = server.read("basic.deliver").properties["reply_to"]
        before = rss_octets(alone)
        for _ in range(300):
            server.publish(reply, "", name)
            assert rss_octets(alone) - before < 300 * MIB
        server.quiet()
        with pytest.raises(Eof):
            deaf.deliveries(300)


def test_channels_opened_and_closed_leave_nothing(alone: LeveretProcess, unique: str) -> None:
    with RawClient.open(alone.url, channels=0) as client:
        def rounds(count: int) -> None:
            for _ in range(count):
                client.call("channel.open", 7)
                client.call("confirm.select", 7)
                queue = client.call("queue.declare", 7, exclusive=True)["queue"]
                client.call("basic.consume", 7, queue=queue)
                client.call("queue.bind", 7, queue=queue, exchange="amq.topic", routing_key=unique)
                client.publish(bytes(1000), "amq.topic", unique, channel=7)
                client.send("queue.delete", 7, queue=queue)
                client.send("channel.close", 7)
                while client.read().name != "channel.close-ok":
                    pass

        grows_no_more(alone, lambda: rounds(1000))


def test_idle_connections_are_cheap(alone: LeveretProcess) -> None:
    before = rss_octets(alone)
    count = 1000
    clients = [RawClient.open(alone.url) for _ in range(count)]
    each = (rss_octets(alone) - before) / count
    print(f"{each / 1024:.1f} KiB for a connection with a channel")
    assert each < 25 * 1024
    clients[-1].quiet()
    for client in clients:
        client.socket.close()
    with RawClient.open(alone.url) as last:
        last.quiet()


def test_connections_that_come_and_go_leave_nothing(alone: LeveretProcess, unique: str) -> None:
    """Each has a consumer and a message on its way; half of them drop the connection without closing it."""
    def rounds(count: int) -> None:
        for number in range(count):
            with RawClient.open(alone.url) as client:
                queue = client.call("queue.declare", exclusive=True)["queue"]
                client.call("basic.consume", queue=queue)
                client.publish(bytes(5000), "", queue)
                client.read("basic.deliver")
                if number % 2:
                    client.call("connection.close", 0)

    grows_no_more(alone, lambda: rounds(1000))


def test_thousands_of_unacknowledged_messages_come_back(alone: LeveretProcess, unique: str) -> None:
    count = 50_000
    with RawClient.open(alone.url) as client:
        client.call("queue.declare", queue=unique, durable=True)
        client.socket.sendall(message(unique, b"x") * count)
        client.call("basic.consume", queue=unique)
        assert [each["delivery_tag"] for each in client.deliveries(count)] == list(range(1, count + 1))
        client.call("basic.qos")
    with RawClient.open(alone.url) as client:
        client.call("basic.consume", queue=unique)
        assert all(each["redelivered"] for each in client.deliveries(count))


def test_a_header_table_of_the_whole_frame_goes_through(alone: LeveretProcess, unique: str) -> None:
    headers = {f"name-{n:05}": "x" * 20 for n in range(3000)}
    with RawClient.open(alone.url) as client:
        client.call("queue.declare", queue=unique, exclusive=True)
        client.publish(b"x", "", unique, headers=headers)
        assert client.call("basic.get", queue=unique).properties["headers"] == headers


def test_a_broken_connection_takes_its_unread_output_along(alone: LeveretProcess) -> None:
    with RawClient.open(alone.url) as other:
        for _ in range(20):
            deaf = small_buffers(alone.url)
            push(deaf, message("nowhere", bytes(60_000), mandatory=True) * 4, 12 * MIB)
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            deaf.socket.close()
        other.quiet()
        assert rss_octets(alone) < 200 * MIB
    assert os.path.exists(f"/proc/{alone.pid}")


@pytest.mark.needs("glibc")  # other libraries keep freed memory by their own rules
def test_buffers_do_not_go_back_to_the_system_in_between(alone: LeveretProcess, unique: str) -> None:
    """Each page of 4 KiB that is returned to the system causes a page fault when it is used again."""

    def faults() -> int:
        return int(Path(f"/proc/{alone.pid}/stat").read_text().rpartition(")")[2].split()[7])

    def rounds(count: int) -> None:
        for _ in range(count):
            client.socket.sendall(messages)
            client.deliveries(100)

    with RawClient.open(alone.url) as client:
        queue = client.call("queue.declare", exclusive=True)["queue"]
        client.call("basic.consume", queue=queue, no_ack=True)
        messages = message(queue, bytes(5000)) * 100
        rounds(20)
        before = faults()
        rounds(200)
        assert faults() - before < 200 * 20

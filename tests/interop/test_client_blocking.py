"""The blocking client on live brokers: the same tests on leveret and on a RabbitMQ."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from leveret.client import (
    AuthenticationFailed,
    BlockingChannel,
    BlockingConnection,
    ChannelClosed,
    ConnectionClosed,
    ConsumerCancelled,
    Nacked,
    Properties,
    RpcTimeout,
    Unroutable,
)


@pytest.fixture
def connection(url: str) -> Iterator[BlockingConnection]:
    with BlockingConnection(url, reconnect=False) as connection:
        yield connection


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel) -> str:
    """An exclusive queue."""
    return channel.declare_queue(f"client.{uuid.uuid4().hex[:12]}", durable=False, exclusive=True).name


@pytest.fixture
def service(url: str) -> Iterator[str]:
    """The queue of a server thread that answers with the body and an exclamation mark."""
    name = f"client.service.{uuid.uuid4().hex[:12]}"
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue(name, durable=False, exclusive=True)
        thread = threading.Thread(target=serve, args=(channel, name))
        thread.start()
        yield name
        with BlockingConnection(url, reconnect=False) as stopper:
            stopper.channel().publish(b"stop", "", name)
        thread.join(60)
        assert not thread.is_alive()


def serve(channel: BlockingChannel, queue: str) -> None:
    channel.consume(queue, no_ack=True)
    while True:
        for request in channel.deliveries(100, 30):
            if request.body == b"stop":
                return
            correlation = Properties(correlation_id=request.properties.correlation_id)
            channel.publish(request.body + b"!", "", str(request.properties.reply_to), correlation)
        channel.flush()


def test_publish_confirm_consume_and_acknowledge(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_select()
    numbers = [channel.publish(b"%d" % number, "", queue) for number in range(10_000)]
    assert numbers == list(range(1, 10_001))
    assert channel.outstanding <= channel.confirm_window
    channel.wait_for_confirms(30)
    assert channel.outstanding == 0
    channel.consume(queue, prefetch_count=1000)
    bodies: list[bytes] = []
    while len(bodies) < 10_000:
        run = channel.deliveries(300, 10)
        assert 0 < len(run) <= 300
        bodies.extend(delivery.body for delivery in run)
        channel.ack(run[-1].delivery_tag, multiple=True)
    assert bodies == [b"%d" % number for number in range(10_000)]
    assert channel.next_delivery(0.01) is None
    assert channel.deliveries(10, 0) == []


def test_transactions(channel: BlockingChannel, queue: str) -> None:
    channel.tx_select()
    channel.publish(b"one", "", queue)
    channel.tx_rollback()
    channel.publish(b"two", "", queue)
    assert channel.get(queue) is None
    channel.tx_commit()
    delivery = channel.get(queue)
    assert delivery is not None
    assert delivery.body == b"two"
    channel.ack(delivery.delivery_tag)
    channel.tx_rollback()
    channel.nack(delivery.delivery_tag)
    assert channel.get(queue) is None
    channel.tx_commit()
    again = channel.get(queue)
    assert again is not None
    assert (again.body, again.redelivered) == (b"two", True)
    with pytest.raises(ChannelClosed, match="cannot switch from tx to confirm mode"):
        channel.confirm_select()


def test_get_nack_reject_and_recover(channel: BlockingChannel, queue: str) -> None:
    assert channel.get(queue) is None
    channel.publish(b"one", "", queue, Properties(message_id="m", headers={"n": 1}))
    first = channel.get(queue)
    assert first is not None
    assert (first.body, first.redelivered, first.properties.headers) == (b"one", False, {"n": 1})
    channel.nack(first.delivery_tag)
    second = channel.get(queue)
    assert second is not None
    assert second.redelivered
    channel.recover()
    third = channel.get(queue)
    assert third is not None
    channel.reject(third.delivery_tag, requeue=False)
    assert channel.declare_queue(queue, passive=True).message_count == 0


def test_an_unroutable_message_is_told_by_the_wait(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_select()
    channel.publish(b"fine", "", queue, mandatory=True)
    channel.publish(b"lost", "", f"{queue}.missing", Properties(message_id="m"), mandatory=True)
    with pytest.raises(Unroutable, match="missing") as caught:
        channel.wait_for_confirms(10)
    assert (caught.value.body, caught.value.properties.message_id) == (b"lost", "m")
    channel.publish(b"fine", "", queue, mandatory=True)
    channel.wait_for_confirms(10)


@pytest.mark.needs("rabbitmq")
def test_a_full_queue_that_rejects_nacks(rabbitmq: str) -> None:
    with BlockingConnection(rabbitmq, reconnect=False) as connection:
        channel = connection.channel()
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = channel.declare_queue("", durable=False, exclusive=True, arguments=arguments).name
        channel.confirm_select()
        channel.publish(b"fits", "", queue)
        channel.wait_for_confirms(10)
        channel.publish(b"too much", "", queue)
        with pytest.raises(Nacked, match="number 2"):
            channel.wait_for_confirms(10)


def test_channel_errors_have_code_and_text(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    channel.confirm_select()
    channel.publish(b"x", f"{queue}.missing", "k")
    with pytest.raises(ChannelClosed, match="no exchange") as caught:
        channel.wait_for_confirms(10)
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (404, 60, 40)
    with pytest.raises(ChannelClosed):
        channel.publish(b"x")
    assert not connection.is_closed


def test_deleting_the_queue_ends_the_consumer(channel: BlockingChannel, queue: str) -> None:
    tag = channel.consume(queue)
    channel.publish(b"last", "", queue)
    channel.declare_queue(queue, passive=True)
    channel.delete_queue(queue)
    last = channel.next_delivery(60)
    assert last is not None
    assert last.body == b"last"
    with pytest.raises(ConsumerCancelled, match=tag):
        channel.next_delivery(60)


def test_cancel_leaves_what_was_delivered(channel: BlockingChannel, queue: str) -> None:
    tag = channel.consume(queue, no_ack=True)
    channel.publish(b"there", "", queue)
    channel.declare_queue(queue, passive=True)
    channel.cancel(tag)
    assert [delivery.body for delivery in channel.deliveries(10, 10)] == [b"there"]


def test_three_megabytes_each_way(channel: BlockingChannel, queue: str) -> None:
    body = bytes(range(256)) * 12_000
    channel.consume(queue)
    for _ in range(3):
        channel.publish(body, "", queue)
    for _ in range(3):
        delivery = channel.next_delivery(60)
        assert delivery is not None
        assert delivery.body == body
        channel.ack(delivery.delivery_tag)


@pytest.mark.parametrize("reply_queue", [False, True])
def test_pipelined_requests_are_answered_in_order(
    connection: BlockingConnection, service: str, reply_queue: bool
) -> None:
    with connection.rpc(reply_queue) as rpc:
        bodies = [b"%d" % number for number in range(1000)]
        assert [reply.body for reply in rpc.calls(bodies, "", service, window=200)] == [body + b"!" for body in bodies]
        assert rpc.calls([], "", service) == []
        assert rpc.call(b"one", "", service, mandatory=True).body == b"one!"


def test_a_request_that_nobody_answers(connection: BlockingConnection, queue: str) -> None:
    rpc = connection.rpc()
    with pytest.raises(Unroutable, match="missing"):
        rpc.call(b"", "", f"{queue}.missing", mandatory=True, timeout_s=10)
    with pytest.raises(RpcTimeout):
        rpc.call(b"", "", queue, timeout_s=0.05)
    with pytest.raises(ChannelClosed, match="no exchange"):
        rpc.call(b"", f"{queue}.missing", "k")


def test_heartbeats_keep_an_idle_connection(url: str) -> None:
    """During a call or not, for more than the two intervals after which a broker closes the connection."""
    interval_s = 4  # on a busy machine, a thread that sends heartbeats may be late by this much
    with (
        BlockingConnection(url, interval_s, reconnect=False) as idle,
        BlockingConnection(url, interval_s, reconnect=False) as used,
    ):
        channel = used.channel()
        channel.consume(channel.declare_queue("", exclusive=True, durable=False).name)
        assert channel.next_delivery(2.5 * interval_s) is None
        for connection in (idle, used):
            assert not connection.is_closed
            assert connection.channel().declare_queue("", exclusive=True, durable=False).message_count == 0


def test_wrong_password_and_unknown_vhost_are_told_clearly(url: str) -> None:
    host = url.rsplit("@", maxsplit=1)[-1].split("/", maxsplit=1)[0]
    with pytest.raises(AuthenticationFailed, match=r"403 ACCESS_REFUSED.*check user 'guest' and its password"):
        BlockingConnection(f"amqp://guest:wrong@{host}/", reconnect=False)
    with pytest.raises(ConnectionClosed, match=r"530 NOT_ALLOWED - vhost nowhere not found"):
        BlockingConnection(f"amqp://guest:guest@{host}/nowhere", reconnect=False)


def test_a_closed_connection_says_so(url: str) -> None:
    connection = BlockingConnection(url, reconnect=False)
    channel = connection.channel()
    connection.close()
    connection.close()
    with pytest.raises(ConnectionClosed, match="closed by this client"):
        channel.get("x")

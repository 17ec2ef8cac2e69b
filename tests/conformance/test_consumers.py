"""Deliveries: which consumer gets what, how many at once, and what happens without an acknowledgement (pika)."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from ..waiting import until
from .raw import RawClient
from .support import Got, declare, drain, empty, get, listen, ready, serve, settle


@pytest.fixture
def channel(channel: BlockingChannel) -> BlockingChannel:
    """A channel with confirms: when a publish returns, the message is in its queues."""
    channel.confirm_delivery()
    return channel


def fill(channel: BlockingChannel, queue: str, count: int) -> None:
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number)


def bodies(seen: list[Got]) -> list[int]:
    return [int(each.body) for each in seen]


def test_deliveries(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 3)
    seen = serve(channel, listen(channel, queue, consumer_tag="mine"), 3)
    assert [(each.method.delivery_tag, each.method.redelivered, each.method.consumer_tag) for each in seen] == [
        (1, False, "mine"), (2, False, "mine"), (3, False, "mine")]
    assert bodies(seen) == [0, 1, 2]


def test_tags_count_per_channel_over_consumers_and_gets(channel: BlockingChannel) -> None:
    queues = [declare(channel) for _ in range(2)]
    for queue in queues:
        fill(channel, queue, 2)
    first = serve(channel, listen(channel, queues[0]), 2)
    second = [get(channel, queues[1], auto_ack=False) for _ in range(2)]
    assert [each.method.delivery_tag for each in first + second] == [1, 2, 3, 4]


def test_messages_published_later_are_delivered(channel: BlockingChannel) -> None:
    queue = declare(channel)
    seen = listen(channel, queue, auto_ack=True)
    fill(channel, queue, 3)
    assert bodies(serve(channel, seen, 3)) == [0, 1, 2]


def test_server_named_tags(raw: RawClient) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    tags = {raw.call("basic.consume", queue=queue)["consumer_tag"] for _ in range(3)}
    assert len(tags) == 3
    assert all(tag.startswith("amq.ctag-") for tag in tags)


def test_round_robin(channel: BlockingChannel) -> None:
    queue = declare(channel)
    consumers = [listen(channel, queue) for _ in range(3)]
    fill(channel, queue, 9)
    until(lambda: channel.connection.process_data_events(0.05) or sum(map(len, consumers)) == 9)
    assert [bodies(seen) for seen in consumers] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_prefetch_per_consumer(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.basic_qos(prefetch_count=2)
    consumers = [listen(channel, queue) for _ in range(2)]
    fill(channel, queue, 10)
    until(lambda: channel.connection.process_data_events(0.05) or sum(map(len, consumers)) == 4)
    settle(channel)
    assert [len(seen) for seen in consumers] == [2, 2]
    assert ready(channel, queue) == 6
    channel.basic_ack(consumers[0][0].method.delivery_tag)
    assert len(serve(channel, consumers[0], 3)) == 3
    assert len(consumers[1]) == 2


def test_prefetch_of_the_whole_channel(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    consumers = [listen(channel, queue) for _ in range(2)]
    fill(channel, queue, 10)
    until(lambda: channel.connection.process_data_events(0.05) or sum(map(len, consumers)) == 3)
    settle(channel)
    assert sum(map(len, consumers)) == 3
    channel.basic_ack(0, multiple=True)
    until(lambda: channel.connection.process_data_events(0.05) or sum(map(len, consumers)) == 6)
    settle(channel)
    assert sum(map(len, consumers)) == 6


def test_prefetch_changes_apply_to_later_consumers(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.basic_qos(prefetch_count=1)
    first = listen(channel, queue)
    channel.basic_qos(prefetch_count=0)
    fill(channel, queue, 5)
    serve(channel, first, 1)
    assert bodies(serve(channel, listen(channel, queue), 4)) == [1, 2, 3, 4]
    assert len(first) == 1


def test_prefetch_does_not_limit_automatic_acknowledgement(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 5)
    channel.basic_qos(prefetch_count=1)
    serve(channel, listen(channel, queue, auto_ack=True), 5)
    assert empty(channel, queue)


def test_ack_multiple(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.basic_qos(prefetch_count=5)
    fill(channel, queue, 10)
    seen = serve(channel, listen(channel, queue), 5)
    channel.basic_ack(seen[2].method.delivery_tag, multiple=True)
    assert bodies(serve(channel, seen, 8)) == list(range(8))
    channel.basic_ack(0, multiple=True)
    assert bodies(serve(channel, seen, 10)) == list(range(10))


def test_ack_out_of_order(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.basic_qos(prefetch_count=3)
    fill(channel, queue, 6)
    seen = serve(channel, listen(channel, queue), 3)
    for at in (2, 0, 1):
        channel.basic_ack(seen[at].method.delivery_tag)
    assert bodies(serve(channel, seen, 6)) == list(range(6))


def test_nack_multiple_requeues_in_place(channel: BlockingChannel) -> None:
    """Requeued messages take their old places, before those that were never delivered."""
    queue = declare(channel)
    fill(channel, queue, 6)
    held = [get(channel, queue, auto_ack=False) for _ in range(4)]
    channel.basic_ack(held[1].method.delivery_tag)
    channel.basic_nack(0, multiple=True, requeue=True)
    again = [get(channel, queue) for _ in range(5)]
    assert bodies(again) == [0, 2, 3, 4, 5]
    assert [each.method.redelivered for each in again] == [True, True, True, False, False]


def test_requeue_of_single_messages_in_any_order(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 5)
    held = [get(channel, queue, auto_ack=False) for _ in range(5)]
    for at in (3, 0, 4, 1):
        channel.basic_reject(held[at].method.delivery_tag, requeue=True)
    until(lambda: ready(channel, queue) == 4)
    channel.basic_reject(held[2].method.delivery_tag, requeue=True)
    until(lambda: ready(channel, queue) == 5)
    assert drain(channel, queue) == [b"0", b"1", b"2", b"3", b"4"]


def test_nack_and_reject_without_requeue_drop(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 4)
    held = [get(channel, queue, auto_ack=False) for _ in range(4)]
    channel.basic_reject(held[0].method.delivery_tag, requeue=False)
    channel.basic_nack(held[2].method.delivery_tag, multiple=True, requeue=False)
    channel.basic_nack(held[3].method.delivery_tag, requeue=True)
    assert get(channel, queue).body == b"3"
    assert empty(channel, queue)


def test_rejected_messages_come_again_to_a_lone_consumer(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 1)
    seen = serve(channel, listen(channel, queue), 1)
    channel.basic_reject(1, requeue=True)
    assert [(each.body, each.method.redelivered) for each in serve(channel, seen, 2)] == [(b"0", False), (b"0", True)]


def test_recover(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 3)
    seen = serve(channel, listen(channel, queue), 3)
    channel.basic_ack(2)
    channel.basic_recover(requeue=True)
    serve(channel, seen, 5)
    assert [(each.body, each.method.delivery_tag, each.method.redelivered) for each in seen[3:]] == [
        (b"0", 4, True), (b"2", 5, True)]


def test_cancel_stops_deliveries_and_keeps_what_is_held(raw: RawClient) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    raw.call("basic.consume", queue=queue, consumer_tag="c")
    raw.publish(b"held", routing_key=queue)
    tag = raw.read("basic.deliver")["delivery_tag"]
    raw.call("basic.cancel", consumer_tag="c")
    raw.call("confirm.select")
    raw.publish(b"later", routing_key=queue)
    raw.read("basic.ack")
    assert raw.call("queue.declare", queue=queue, passive=True).args == {
        "queue": queue, "message_count": 1, "consumer_count": 0}
    raw.send("basic.ack", delivery_tag=tag)
    assert raw.call("basic.get", queue=queue, no_ack=True).body == b"later"


def test_closing_a_channel_requeues(channel: BlockingChannel) -> None:
    queue = declare(channel)
    second = channel.connection.channel()
    fill(channel, queue, 3)
    serve(second, listen(second, queue), 3)
    second.close()
    until(lambda: ready(channel, queue) == 3)
    again = [get(channel, queue) for _ in range(3)]
    assert [(each.body, each.method.redelivered) for each in again] == [(b"0", True), (b"1", True), (b"2", True)]


def test_losing_a_connection_requeues(url: str, channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique)
    fill(channel, unique, 2)
    with RawClient.open(url) as lost:
        lost.call("basic.consume", queue=unique)
        lost.deliveries(2)
        assert ready(channel, unique) == 0
    until(lambda: ready(channel, unique) == 2)
    assert drain(channel, unique) == [b"0", b"1"]
    channel.queue_delete(unique)


def test_consumer_count(channel: BlockingChannel) -> None:
    queue = declare(channel)
    tags = [channel.basic_consume(queue, lambda *_: None) for _ in range(2)]
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 2
    channel.basic_cancel(tags[0])
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1


def test_consumer_is_told_when_its_queue_goes(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume(unique, lambda *_: None, consumer_tag="watcher")
    channel.connection.channel().queue_delete(unique)
    until(lambda: channel.connection.process_data_events(0.05) or cancelled)
    assert cancelled == ["watcher"]


def test_who_deletes_the_queue_has_the_answer_before_its_consumer_hears_of_it(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique)
    raw.call("basic.consume", queue=unique, consumer_tag="watcher")
    raw.call("queue.delete", queue=unique)
    assert raw.read("basic.cancel")["consumer_tag"] == "watcher"


def test_automatic_acknowledgement_leaves_nothing(channel: BlockingChannel) -> None:
    queue = declare(channel)
    second = channel.connection.channel()
    fill(channel, queue, 3)
    serve(second, listen(second, queue, auto_ack=True), 3)
    second.close()
    assert empty(channel, queue)


def test_exclusive_consumer_alone_gets_everything(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 3)
    assert bodies(serve(channel, listen(channel, queue, exclusive=True), 3)) == [0, 1, 2]


def test_many_messages_through_a_small_prefetch(channel: BlockingChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, 300)
    channel.basic_qos(prefetch_count=7)
    seen: list[int] = []

    def take(_: BlockingChannel, method: pika.spec.Basic.Deliver, __: pika.BasicProperties, body: bytes) -> None:
        seen.append(int(body))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, take)
    until(lambda: channel.connection.process_data_events(0.05) or len(seen) == 300)
    assert seen == list(range(300))

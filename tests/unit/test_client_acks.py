"""Acknowledgements of the client: those in the order of the deliveries travel as one, and each settles what it did."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.url import parse_url
from leveret.wire import grammar
from leveret.wire.frames import FRAME_END, FRAME_METHOD
from leveret.wire.method import Method, decode_method

COUNT = 8


class Client:
    """A channel that has got COUNT deliveries, and a broker's view of them."""

    def __init__(self) -> None:
        self.core = ConnectionCore(parse_url("amqp://guest:guest@memory"), 0, "memory")
        self.core.take()
        self.channel: ChannelCore[None] = ChannelCore(1, self.core, lambda *_: None, lambda _: None)
        self.unsettled = list(range(1, COUNT + 1))
        self.acked: set[int] = set()
        self.requeued: set[int] = set()

    def written(self) -> list[Method]:
        """Return the methods in the outbox, which is written now."""
        data, methods = self.core.take(), []
        while data:
            end = 7 + int.from_bytes(data[3:7], "big")
            assert data[end] == FRAME_END
            if data[0] == FRAME_METHOD:
                methods.append(decode_method(data[7:end]))
            data = data[end + 1 :]
        return methods

    def hear(self) -> None:
        """Settle what is written, as RabbitMQ does, which ends a channel for a tag that it does not know."""
        for method in self.written():
            tag = method.number("delivery_tag")
            has_many = method.spec is not grammar.BASIC_REJECT and bool(method.number("multiple"))
            assert tag in self.unsettled, f"unknown delivery tag {tag}"
            found = [each for each in self.unsettled if each == tag or (has_many and each < tag)]
            self.unsettled = [each for each in self.unsettled if each not in found]
            (self.acked if method.spec is grammar.BASIC_ACK else self.requeued).update(found)


def test_acks_in_order_are_one_frame() -> None:
    client = Client()
    for tag in (1, 2, 3):
        assert client.channel.ack(tag, multiple=False)
    [method] = client.written()
    assert (method.number("delivery_tag"), method.number("multiple")) == (3, 1)
    client.channel.ack(4, multiple=False)
    assert [each.number("delivery_tag") for each in client.written()] == [4]


def test_what_is_sent_in_between_keeps_its_place() -> None:
    client = Client()
    client.channel.ack(1, multiple=False)
    client.channel.ack(2, multiple=False)
    client.channel.publish(None, b"", "", "q", None, False)
    client.channel.ack(3, multiple=False)
    client.channel.ack(4, multiple=False)
    assert [method.spec.name for method in client.written()] == ["basic.ack", "basic.publish", "basic.ack"]


def test_a_tag_of_a_wrong_type_settles_nothing() -> None:
    client = Client()
    for tag in (1.0, "1", None):
        with pytest.raises(TypeError, match="delivery_tag"):
            client.channel.ack(tag, multiple=False)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="delivery_tag"):
            client.channel.acknowledge(grammar.BASIC_NACK, tag, multiple=False, requeue=True)  # type: ignore[arg-type]
    client.channel.ack(1, multiple=False)
    assert [each.number("delivery_tag") for each in client.written()] == [1]


def test_tags_of_a_lost_channel_acknowledge_nothing() -> None:
    client = Client()
    client.channel.begin_tags(2)
    assert not client.channel.ack(1, multiple=False)
    assert client.channel.ack(3, multiple=False)
    assert [each.number("delivery_tag") for each in client.written()] == [1]


def test_acks_of_a_transaction_are_sent_one_by_one() -> None:
    """After a rollback the deliveries are unsettled again."""
    client = Client()
    client.channel.request(requests.tx_select())
    client.core.take()
    for tag in (1, 2, 3):
        client.channel.ack(tag, multiple=False)
    assert [each.number("multiple") for each in client.written()] == [0, 0, 0]


ACK, NACK, REJECT = "ack", "nack", "reject"
STEPS = st.lists(
    st.tuples(st.sampled_from((ACK, ACK, ACK, NACK, REJECT)), st.integers(0, 20), st.booleans(), st.booleans())
)


@settings(max_examples=400)
@given(STEPS)
def test_each_delivery_is_settled_as_the_user_said(steps: list[tuple[str, int, bool, bool]]) -> None:
    client = Client()
    left = list(range(1, COUNT + 1))
    acked: set[int] = set()
    requeued: set[int] = set()
    for what, place, is_wide, is_written in steps:
        if not left:
            break
        tag = left[0] if place > COUNT else left[place % len(left)]  # mostly the oldest
        has_many = is_wide and what != REJECT and place % 3 == 0
        found = [each for each in left if each == tag or (has_many and each < tag)]
        left = [each for each in left if each not in found]
        if what == ACK:
            acked.update(found)
            client.channel.ack(tag, has_many)
        elif what == NACK:
            requeued.update(found)
            client.channel.acknowledge(grammar.BASIC_NACK, tag, multiple=has_many, requeue=True)
        else:
            requeued.update(found)
            client.channel.acknowledge(grammar.BASIC_REJECT, tag, requeue=True)
        if is_written:
            client.hear()
    client.hear()
    assert (client.unsettled, client.acked, client.requeued) == (left, acked, requeued)

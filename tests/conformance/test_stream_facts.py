"""The state of a stream, by basic.get; RabbitMQ has no such queue, which tells a client the difference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from leveret.client import BlockingConnection, ChannelClosed

from .raw import RawClient
from .streams import append, declare, numbers
from .test_permissions import READ, Place, place  # noqa: F401 (a fixture)

PREFIX = "amq.leveret.stream."


def test_pika_is_told(raw: RawClient, channel: BlockingChannel, unique: str, on_rabbitmq: bool) -> None:
    schema = '[{"name": "station", "type": "string"}]'
    declare(raw, unique, **({} if on_rabbitmq else {"x_leveret_schema": schema}))
    append(raw, unique, *numbers(3))
    try:
        if on_rabbitmq:
            with pytest.raises(ChannelClosedByBroker) as closed:
                channel.basic_get(PREFIX + unique, auto_ack=True)
            text = f"NOT_FOUND - no queue '{PREFIX}{unique}' in vhost '/'"
            assert (closed.value.reply_code, closed.value.reply_text) == (404, text)
            return
        method, properties, body = channel.basic_get(PREFIX + unique, auto_ack=True)
        assert (method.exchange, method.routing_key, method.message_count) == ("", PREFIX + unique, 0)
        assert properties.content_type == "application/json"
        facts: dict[str, Any] = json.loads(body)
        creation = facts.pop("creation")
        facts.pop("tables_dir")  # present if a client has asked for tables
        assert facts == {
            "name": unique, "vhost": "/", "first_offset": 0, "next_offset": 3, "sealed_offset": 0, "schema": schema,
        }  # fmt: skip
        assert len(bytes.fromhex(creation)) == 8
        # asking does not remove the answer
        assert json.loads(channel.basic_get(PREFIX + unique, auto_ack=True)[2])["creation"] == creation
        assert channel.queue_declare(unique, passive=True).method.message_count == 3
    finally:
        raw.call("queue.delete", queue=unique)


def test_our_client_is_told(url: str, unique: str, on_rabbitmq: bool) -> None:
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue(unique, arguments={"x-queue-type": "stream"})
        try:
            if on_rabbitmq:
                with pytest.raises(ChannelClosed) as closed:
                    channel.stream_facts(unique)
                assert closed.value.code == 404
                return
            channel.confirm_select()
            channel.publish(b"one", "", unique)
            channel.wait_for_confirms()
            facts = channel.stream_facts(unique)
            assert [facts[name] for name in ("name", "first_offset", "next_offset")] == [unique, 0, 1]
            channel.delete_queue(unique)
            channel.declare_queue(unique, arguments={"x-queue-type": "stream"})
            anew = channel.stream_facts(unique)
            assert anew["creation"] != facts["creation"]
            assert anew["next_offset"] == 0
        finally:
            connection.channel().delete_queue(unique)


def test_who_may_not_read_is_told_nothing(place: Place) -> None:  # noqa: F811
    """The permission to read the stream is needed, not one for the pseudo-queue."""
    question = PREFIX + "q"
    place.permit()
    with place.connect() as client:
        refused = client.fail("basic.get", queue=question, no_ack=True)
    if refused[0] == 403 and PREFIX in refused[1]:
        return  # RabbitMQ, for which the pseudo-queue is an ordinary name
    assert refused == place.refusal("basic.get", "queue 'q'")
    place.permit((READ, "q"))
    with place.connect() as client:
        assert client.fail("basic.get", queue=question, no_ack=True) == (
            406, f"PRECONDITION_FAILED - queue 'q' in vhost '{place.name}' is not a stream", 60, 70
        )  # fmt: skip

"""Recoverability: immediate retries, delayed retries, the error queue with full details; no message is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from leveret.client import Channel, Properties, Unroutable
from leveret.delay import RoutingTopology
from leveret.endpoint import Context, Discard, Endpoint, Failure, MoveToError, Recoverability, RetryLater
from leveret.wire.properties import encode_header

from .support import PlaceOrder, endpoint, fetched, within


class OutOfStock(Exception):
    """The error that a handler raises."""


def failing(node: Endpoint, error: Callable[[], Exception]) -> list[tuple[int, int]]:
    """Let orders fail; return the numbers of earlier retries at each attempt."""
    attempts: list[tuple[int, int]] = []

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        attempts.append((context.immediate_retries, context.delayed_retries))
        context.send_local(PlaceOrder(order.order + 1))
        raise error()

    return attempts


async def test_a_message_is_tried_at_once_then_later_then_put_away(
    url: str, name: str, routing: RoutingTopology, channel: Channel
) -> None:
    node = endpoint(name, url, routing)

    def error() -> Exception:
        raised = OutOfStock("no more apples")
        raised.__cause__ = KeyError("apples")
        return raised

    attempts = failing(node, error)
    async with node:
        await node.send(name, PlaceOrder(1), headers={"mine": "yes"})
        failed = await fetched(channel, f"{name}.error")
    assert attempts == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    headers = failed.properties.headers or {}
    assert failed.body == b'{"order":1}'
    assert headers["NServiceBus.FailedQ"] == name
    assert headers["NServiceBus.ProcessingEndpoint"] == name
    assert str(headers["NServiceBus.ExceptionInfo.ExceptionType"]).endswith(".OutOfStock")
    assert headers["NServiceBus.ExceptionInfo.InnerExceptionType"] == "KeyError"
    assert headers["NServiceBus.ExceptionInfo.Message"] == "no more apples"
    assert "in order\n    raise error()" in str(headers["NServiceBus.ExceptionInfo.StackTrace"])
    assert headers["NServiceBus.ExceptionInfo.Source"] == __name__
    assert str(headers["NServiceBus.TimeOfFailure"]).endswith(" Z")
    assert (headers["Leveret.ImmediateRetries"], headers["Leveret.DelayedRetries"]) == ("1", "2")
    assert headers["mine"] == "yes"
    assert "NServiceBus.Retries" not in headers
    assert not [header for header in headers if header.startswith("x-")]
    assert failed.properties.delivery_mode == 2


async def test_delayed_retries_are_counted_over_a_restart(url: str, name: str, channel: Channel) -> None:
    first, second = endpoint(name, url), endpoint(name, url)
    stopped: list[asyncio.Task[None]] = []

    def stop() -> Exception:
        stopped.append(asyncio.create_task(first.stop()))  # before the message can be redelivered
        return OutOfStock()

    attempts = failing(first, stop)
    await first.start()
    await first.send_local(PlaceOrder(1))
    async with asyncio.timeout(60):
        while not stopped:
            await channel.declare_queue(name, passive=True)
    await within(asyncio.gather(*stopped))
    later = failing(second, OutOfStock)
    async with second:
        await fetched(channel, f"{name}.error")
    assert attempts == [(0, 0), (1, 0)]
    assert later == [(0, 1), (1, 1), (0, 2), (1, 2)]


async def test_some_exceptions_are_not_retried(url: str, name: str, channel: Channel) -> None:
    node = endpoint(name, url, recoverability=Recoverability(unrecoverable=(OutOfStock,)))
    attempts = failing(node, OutOfStock)
    async with node:
        await node.send_local(PlaceOrder(1))
        await fetched(channel, f"{name}.error")
    assert attempts == [(0, 0)]


async def test_a_policy_decides(url: str, name: str, channel: Channel) -> None:
    asked: list[tuple[str, int]] = []

    def policy(recoverability: Recoverability, failure: Failure) -> Any:
        asked.append((str(failure.exception), failure.delayed_retries))
        match str(failure.exception), failure.delayed_retries:
            case "later", 0:
                return RetryLater(timedelta(milliseconds=5))
            case "later", _:
                return MoveToError(f"{name}.other")
            case "never", _:
                return Discard("it is too late")
            case "odd", _:
                return "what?"
            case "long", _:
                return RetryLater(timedelta(days=10_000))
            case "broken", _:
                raise KeyError("in the policy itself")
        return recoverability.default(failure)

    node = endpoint(name, url, recoverability=Recoverability(0, 0, policy=policy))

    @node.handler("Text")
    async def text(message: str, context: Context) -> None:
        raise RuntimeError(message)

    async with node:
        for word in ("never", "later"):
            await node.send(name, word, message_type="Text")
        moved = await _eventually(channel, f"{name}.other")
        for word in ("odd", "long", "broken"):
            await node.send(name, word, message_type="Text")
            assert (await fetched(channel, f"{name}.error")).body == b'"%s"' % word.encode()
    assert moved.body == b'"later"'
    assert asked == [("never", 0), ("later", 0), ("later", 1), ("odd", 0), ("long", 0), ("broken", 0)]


async def _eventually(channel: Channel, queue: str) -> Any:
    """Return the next message of a queue that is declared later."""
    connection = channel._link
    while True:
        other = await Channel.open(connection)
        try:
            return await fetched(other, queue)
        except Exception:
            assert other.is_closed


@pytest.mark.parametrize(
    ("properties", "body", "exception"),
    [
        (Properties(message_id="m", type="Sales.Unknown"), b"{}", "UnknownMessage"),
        (Properties(message_id="m"), b"{}", "UnknownMessage"),
        (Properties(message_id="m", type="Sales.PlaceOrder"), b"{", "UndecodableMessage"),
        (Properties(message_id="m", type="Sales.PlaceOrder"), b'{"order":"x"}', "UndecodableMessage"),
        (Properties(message_id="m", type="Sales.PlaceOrder"), b"\xff\xfe", "UndecodableMessage"),
        (
            Properties(message_id="m", type="Sales.PlaceOrder", content_type="text/xml"),
            b'{"order":1}',
            "UndecodableMessage",
        ),
        (Properties(type="Sales.PlaceOrder"), b'{"order":1}', "PoisonMessage"),
        (
            Properties(message_id="m", type="Sales.PlaceOrder", headers={"NServiceBus.Retries": "many"}),
            b'{"order":1}',
            "PoisonMessage",
        ),
    ],
)
async def test_what_cannot_be_read_is_put_away_at_once(
    url: str, name: str, channel: Channel, properties: Properties, body: bytes, exception: str
) -> None:
    node = endpoint(name, url)
    attempts = failing(node, OutOfStock)
    async with node:
        await channel.publish(body, "", name, properties, mandatory=True)
        failed = await fetched(channel, f"{name}.error")
    headers = failed.properties.headers or {}
    assert attempts == []
    assert failed.body == body
    assert str(headers["NServiceBus.ExceptionInfo.ExceptionType"]).endswith(f".{exception}")
    assert failed.properties.message_id


async def test_odd_headers_do_not_stop_an_endpoint(url: str, name: str, channel: Channel) -> None:
    node = endpoint(name, url)
    attempts = failing(node, OutOfStock)
    async with node:
        odd = Properties(message_id="m\udcff", headers={"bytes": b"\xff", "list": [1, {"a": None}], "n": 2**40})
        await channel.publish(b"{}", "", name, odd, mandatory=True)
        failed = await fetched(channel, f"{name}.error")
    headers = failed.properties.headers or {}
    assert "NServiceBus.ExceptionInfo.StackTrace" in headers
    assert (headers["list"], headers["n"]) == ([1, {"a": None}], 2**40)
    assert attempts == []


async def test_copies_are_not_sent_again_with_each_retry(
    url: str, name: str, routing: RoutingTopology, channel: Channel
) -> None:
    node = endpoint(name, url, routing)
    attempts = failing(node, OutOfStock)
    await channel.declare_queue(f"{name}.cc")
    async with node:
        copied = Properties(message_id="m", type="Sales.PlaceOrder", headers={"CC": [f"{name}.cc"]})
        await channel.publish(b'{"order":1}', "", name, copied, mandatory=True)
        await fetched(channel, f"{name}.error")
    assert len(attempts) == 6
    assert (await channel.declare_queue(f"{name}.cc", passive=True)).message_count == 1


async def test_a_huge_message_of_an_exception_is_shortened(url: str, name: str, channel: Channel) -> None:
    node = endpoint(name, url, recoverability=Recoverability(0, 0))
    failing(node, lambda: OutOfStock("ä\udcff" * 200_000))
    async with node:
        await node.send(name, PlaceOrder(1), headers={"long": "x" * 100_000})
        failed = await fetched(channel, f"{name}.error")
    headers = failed.properties.headers or {}
    assert str(headers["NServiceBus.ExceptionInfo.StackTrace"]).startswith("Traceback")
    assert len(str(headers["NServiceBus.ExceptionInfo.Message"])) < 5000


@pytest.mark.parametrize("room", [0, 1000, 12_000])
async def test_headers_that_leave_no_room_for_the_reason(url: str, name: str, channel: Channel, room: int) -> None:
    """Headers that fill their frame must cost neither the connection nor the message."""
    frame_max = channel._link.core.frame_max
    large = Properties(message_id="m", type="Sales.PlaceOrder", headers={"long": ""})
    space = frame_max - 8 - len(encode_header(large, 0)) - room
    large.headers = {"long": "x" * space}
    node = endpoint(name, url)
    attempts = failing(node, OutOfStock)
    async with node:
        await channel.publish(b'{"order":1}', "", name, large, mandatory=True)
        failed = await fetched(channel, f"{name}.error")
    headers = failed.properties.headers or {}
    assert headers["long"] == "x" * space
    assert ("NServiceBus.FailedQ" in headers) == (room >= 1000)
    assert len(attempts) == (6 if room else 2)  # no space for the count of delayed retries either


async def test_an_error_queue_that_was_deleted_is_declared_again(
    url: str, name: str, routing: RoutingTopology, channel: Channel
) -> None:
    node = endpoint(name, url, routing, recoverability=Recoverability(0, 0))
    failing(node, OutOfStock)
    async with node:
        await node.send(name, PlaceOrder(1))
        await fetched(channel, f"{name}.error")
        await channel.delete_queue(f"{name}.error")
        await channel.delete_exchange(f"{name}.error")
        await node.send(name, PlaceOrder(2))
        assert (await _eventually(channel, f"{name}.error")).body == b'{"order":2}'


async def test_a_message_that_can_not_be_put_away_stays(url: str, name: str, channel: Channel) -> None:
    """The error queue is full and refuses: the message is retried until there is space."""
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.declare_queue(f"{name}.error", arguments=full)
    await channel.publish(b"full", "", f"{name}.error")
    attempts: asyncio.Queue[int] = asyncio.Queue()
    node = endpoint(name, url, recoverability=Recoverability(0, 0))

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        await attempts.put(order.order)
        raise OutOfStock

    async with node:
        await node.send(name, PlaceOrder(1))
        for _ in range(2):
            assert await within(attempts.get()) == 1
        assert (await fetched(channel, f"{name}.error")).body == b"full"
        assert (await fetched(channel, f"{name}.error")).body == b'{"order":1}'
    assert (await channel.declare_queue(name, passive=True)).message_count == 0


async def test_a_handler_whose_destination_is_missing_fails(url: str, name: str, channel: Channel) -> None:
    node = endpoint(name, url, recoverability=Recoverability(0, 0))

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        context.send(name, {"n": 1}, message_type="Other")
        context.send(f"{name}.nobody", order)

    async with node:
        await node.send(name, PlaceOrder(1))
        failed = await fetched(channel, f"{name}.error")
        # one message of the batch could not be sent, so none was
        assert failed.properties.type == "Sales.PlaceOrder"
    assert f"{name}.nobody" in str((failed.properties.headers or {})["NServiceBus.ExceptionInfo.Message"])
    with pytest.raises(Unroutable):
        await channel.publish(b"", "", f"{name}.nobody", mandatory=True)

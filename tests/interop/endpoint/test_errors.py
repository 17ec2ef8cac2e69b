"""`leveret errors`, as a process on a broker that has failed messages."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime

import pytest

from leveret.client import Channel, Properties
from leveret.endpoint import Context, Recoverability
from leveret.testing.processes import free_port

from ...shared import vhost
from .support import OrderPlaced, PlaceOrder, endpoint, within


class OutOfStock(Exception):
    """The error that a handler raises."""


async def errors(url: str, name: str, *arguments: str) -> tuple[int, str, str]:
    """Run the command on the error queue of this test; return (exit code, output, error output)."""
    verb, *rest = arguments
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "leveret.cli.main", "errors", verb, "--url", url, "--queue", f"{name}.error", *rest),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error = await within(process.communicate())
    assert "Traceback" not in error.decode()
    assert process.returncode is not None
    return process.returncode, output.decode(), error.decode()


@pytest.fixture
async def failed(url: str, name: str, channel: Channel) -> str:
    """Fill an endpoint's error queue with three orders and an event, all different; return the endpoint's name."""
    node = endpoint(name, url, recoverability=Recoverability(0, 0))
    done = asyncio.Semaphore(0)

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        done.release()
        raise OutOfStock(f"no apples for {order.order}")

    @node.handler
    async def placed(event: OrderPlaced, context: Context) -> None:
        done.release()
        raise KeyError("total")

    async with node:
        for number in (1, 2, 3):
            await node.send(name, PlaceOrder(number), headers={"NServiceBus.MessageId": f"{name}-{number}"})
        await node.send_local(OrderPlaced(4))
        for _ in range(4):
            await within(done.acquire())
    await holds(channel, f"{name}.error", 4)
    return name


async def holds(channel: Channel, queue: str, count: int) -> None:
    """Wait until a queue has `count` ready messages."""
    async with asyncio.timeout(60):
        while (await channel.declare_queue(queue, passive=True)).message_count != count:
            continue


async def test_list_groups_shows_and_takes_nothing(url: str, failed: str, channel: Channel) -> None:
    code, output, _ = await errors(url, failed, "list")
    assert code == 0
    lines = [line.split() for line in output.splitlines()]
    assert lines[0] == ["messages", "exception", "endpoint", "message", "type"]
    assert lines[1][0] == "3"
    assert lines[1][1].endswith("OutOfStock")
    assert lines[1][2:] == [failed, "Sales.PlaceOrder"]
    assert lines[2] == ["1", "KeyError", failed, "Sales.OrderPlaced"]
    assert lines[3] == ["4", "messages"]
    code, output, _ = await errors(url, failed, "list", "--json", "--matching", "KEYERROR")
    assert json.loads(output) == [
        {"messages": 1, "exception": "KeyError", "endpoint": failed, "message_type": "Sales.OrderPlaced"}
    ]
    code, output, _ = await errors(url, failed, "list", "--single", "--json", "--matching", "apples")
    rows = json.loads(output)
    assert [row["message_id"] for row in rows] == [f"{failed}-{number}" for number in (1, 2, 3)]
    assert datetime.fromisoformat(rows[0]["failed_at"]) <= datetime.now(UTC)
    assert rows[0]["exception_message"] == "no apples for 1"
    code, output, _ = await errors(url, failed, "list", "--id", f"{failed}-2", "--full")
    assert code == 0
    assert "raise OutOfStock" in output
    assert '{"order":2}' in output
    code, _, error = await errors(url, failed, "list", "--id", "nobody")
    assert (code, error) == (1, f"not in {failed}.error: nobody\n")
    # all messages are where they were, in order
    bodies = []
    while (delivery := await channel.get(f"{failed}.error")) is not None:
        bodies.append(delivery.body[:10])
    assert bodies == [b'{"order":1', b'{"order":2', b'{"order":3', b'{"order":4']


async def test_retry_sends_back_what_was_chosen_as_new(url: str, failed: str, channel: Channel) -> None:
    code, output, _ = await errors(url, failed, "retry", "--id", f"{failed}-2")
    assert (code, output) == (0, "1 message sent back\n")
    await holds(channel, f"{failed}.error", 3)
    delivery = await channel.get(failed, no_ack=True)
    assert delivery is not None
    assert delivery.body == b'{"order":2}'
    headers = delivery.properties.headers or {}
    assert headers["NServiceBus.MessageId"] == f"{failed}-2"
    told = ("NServiceBus.ExceptionInfo", "NServiceBus.Failed", "NServiceBus.Retries", "Leveret.", "NServiceBus.Proc")
    assert not [header for header in headers if header.startswith((*told, "NServiceBus.TimeOfFailure"))]
    code, output, _ = await errors(url, failed, "retry", "--all", "--json")
    assert (code, json.loads(output)) == (0, {"sent": 3, "stayed": {}})
    await holds(channel, f"{failed}.error", 0)
    handled: asyncio.Queue[int] = asyncio.Queue()
    node = endpoint(failed, url)

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        await handled.put(order.order)

    @node.handler
    async def placed(event: OrderPlaced, context: Context) -> None:
        await handled.put(event.order)

    async with node:
        assert [await within(handled.get()) for _ in range(3)] == [1, 3, 4]


async def test_move_keeps_what_is_told_of_the_failure(url: str, failed: str, channel: Channel) -> None:
    await channel.declare_queue(f"{failed}.attic")
    code, output, _ = await errors(url, failed, "move", "--matching", "OutOfStock", "--to", f"{failed}.attic")
    assert (code, output) == (0, f"3 messages moved to {failed}.attic\n")
    await holds(channel, f"{failed}.error", 1)
    delivery = await channel.get(f"{failed}.attic")
    assert delivery is not None
    assert (delivery.properties.headers or {})["NServiceBus.FailedQ"] == failed


async def test_what_can_not_be_sent_on_stays(url: str, failed: str, channel: Channel) -> None:
    await channel.publish(b"odd", "", f"{failed}.error", Properties(message_id="odd"))
    code, output, error = await errors(url, failed, "retry", "--id", "odd")
    assert (code, output) == (1, "0 messages sent back\n")
    assert error == "odd stays: it does not say where it failed (no header NServiceBus.FailedQ)\n"
    code, _, error = await errors(url, failed, "move", "--id", "odd", "--to", f"{failed}.nowhere")
    assert code == 1
    assert f"{failed}.nowhere" in error
    await channel.delete_queue(failed)
    code, output, error = await errors(url, failed, "retry", "--matching", "apples")
    assert (code, output, error.count(f"the destination '{failed}' does not exist")) == (1, "0 messages sent back\n", 3)
    await holds(channel, f"{failed}.error", 5)


async def test_what_a_terminal_can_not_show_is_written_out(url: str, name: str, channel: Channel) -> None:
    odd = {"NServiceBus.ExceptionInfo.Message": "\x1b[31mred\udcff", "NServiceBus.ExceptionInfo.ExceptionType": "E"}
    await channel.declare_queue(f"{name}.error")
    await channel.publish(b"\x1b\xff", "", f"{name}.error", Properties(message_id="m\udcff", headers={**odd}))
    for arguments in (["--single"], ["--full"]):
        code, output, _ = await errors(url, name, "list", *arguments)
        assert code == 0
        assert "\\x1b[31mred" in output
    code, output, _ = await errors(url, name, "list", "--full", "--json")
    assert json.loads(output)[0]["message_id"] == "m\udcff"
    code, _, error = await errors(url, name, "retry", "--all")
    assert (code, error.partition(" stays")[0]) == (1, "m\\udcff")


async def test_wrong_words_and_missing_queues_are_told_in_one_line(url: str, name: str) -> None:
    code, _, error = await errors(url, name, "list")
    assert (code, error) == (4, f"404 NOT_FOUND - no queue '{name}.error' in vhost '{vhost(url)}'\n")
    for arguments, told in (
        (("retry",), "select messages with one of"),
        (("retry", "--all", "--id", "m"), "select messages with one of"),
        (("move", "--all"), "--to"),
        (("move", "--all", "--to", f"{name}.error"), "the messages are already in"),
    ):
        code, _, error = await errors(url, name, *arguments)
        assert code == 2
        assert told in error
    code, _, error = await errors("http://localhost", name, "list")
    assert code == 2
    assert "amqp://" in error
    code, _, error = await errors(f"amqp://127.0.0.1:{free_port()}", name, "list")
    assert code == 3
    assert error.count("\n") == 1

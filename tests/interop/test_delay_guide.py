"""docs/guides/delayed-delivery.md: each of its programs runs, on leveret and RabbitMQ, with the documented result."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from celery import Celery
from celery.utils.quorum_queues import detect_quorum_queues
from click.testing import CliRunner

from leveret.cli.main import main
from leveret.client import BlockingConnection, Channel, Properties, connect
from leveret.delay import CELERY, NSERVICEBUS, NSERVICEBUS_V2, Layout, Sender
from leveret.testing.processes import LeveretProcess

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "delayed-delivery.md"
BROKER = "amqp://guest:guest@localhost:5672/"


def program(url: str, mark: str) -> CodeType:
    """Compile the one program of the guide that contains these words; it may use await, as in `python -m asyncio`."""
    [found] = [text for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if mark in text]
    assert BROKER in found
    address = re.sub(re.escape(BROKER) + r"(%2F|/)?", url, found)
    return compile(address, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def run(url: str, mark: str) -> dict[str, Any]:
    """Run it; return the names that it sets."""
    names: dict[str, Any] = {}
    running = eval(program(url, mark), names)
    if inspect.isawaitable(running):
        await running
    return names


@pytest.fixture
async def channel(url: str) -> AsyncIterator[Channel]:
    async with await connect(url, reconnect=False) as connection:
        yield await connection.channel()


async def waiting(channel: Channel, layout: Layout) -> list[int]:
    """Return the levels in which messages wait."""
    counts = [
        (level, (await channel.declare_queue(layout.level_name(level), passive=True)).message_count)
        for level in range(layout.levels)
    ]
    return [level for level, count in counts for _ in range(count)]


async def empty(channel: Channel, layout: Layout) -> None:
    for level in range(layout.levels):
        await channel.purge_queue(layout.level_name(level))


def test_the_guide_has_no_other_programs() -> None:
    """A new program needs a test here."""
    assert GUIDE.read_text().count("```python\n") == 6


def test_what_it_points_to_is_there() -> None:
    targets = set(re.findall(r"\]\(([\w./-]+\.md)(#[\w-]+)?\)", GUIDE.read_text()))
    assert len(targets) >= 5
    for name, anchor in targets:
        headings = re.findall(r"^#+ (.*)$", (GUIDE.parent / name).read_text(), re.M)
        assert not anchor or anchor[1:] in [heading.lower().replace(" ", "-") for heading in headings]


async def test_commands(leveret_process: LeveretProcess) -> None:
    """Delayed messages are listed, moved and cancelled as documented."""
    commands = re.findall(r"^    leveret (ctl .*)$", GUIDE.read_text(), re.M)
    assert len(commands) == 4
    async with await connect(leveret_process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.declare_queue("billing")
        async with Sender(connection, NSERVICEBUS_V2) as sender:
            for message_id in ("7", "8"):
                await sender.send(b"x", "billing", 3600, Properties(message_id=message_id))
        environment = {"LEVERET_DATA_DIR": str(leveret_process.data_dir)}
        said = [CliRunner().invoke(main, shlex.split(each), env=environment) for each in commands]
        assert [each.exit_code for each in said] == [0, 0, 0, 0], [each.output for each in said]
        for listing in said[:2]:
            assert "billing" in listing.output
        assert len(await waiting(channel, NSERVICEBUS_V2)) == 1
        assert "1" in said[3].output
        await empty(channel, NSERVICEBUS_V2)
        await channel.delete_queue("billing")


async def test_the_first_program(url: str, channel: Channel) -> None:
    started = time.monotonic()
    names = await run(url, "MILLISECONDS.declare(channel)")
    assert time.monotonic() - started >= 0.25
    assert names["delivery"].body == b"landed"
    assert not names["properties"].headers
    await channel.delete_queue("notices")


async def test_a_sender(url: str, channel: Channel) -> None:
    await NSERVICEBUS_V2.declare(channel)
    await empty(channel, NSERVICEBUS_V2)
    await channel.delete_queue("billing")  # the other guide's Endpoint declares one, too
    names = await run(url, '"biling"')
    assert names["missing"] == "biling"
    fortnight = 14 * 24 * 3600
    until_2033 = int(names["datetime"](2033, 1, 1, tzinfo=names["UTC"]).timestamp() - time.time())
    expected = sorted(each.bit_length() - 1 for each in (fortnight, until_2033))
    assert await waiting(channel, NSERVICEBUS_V2) == expected
    delivery = await channel.get("billing", no_ack=True)
    assert delivery is not None
    assert delivery.body == b"now"
    await empty(channel, NSERVICEBUS_V2)
    await channel.delete_queue("billing")


async def test_another_client(url: str, channel: Channel) -> None:
    await NSERVICEBUS.declare(channel)
    await empty(channel, NSERVICEBUS)
    await run(url, "import pika")
    while await waiting(channel, NSERVICEBUS) != [3]:
        pass  # the program does not wait for a confirm
    await empty(channel, NSERVICEBUS)


async def test_beside_nservicebus(url: str, channel: Channel) -> None:
    await channel.declare_exchange("Sales", kind="fanout", durable=True)
    await channel.declare_queue("Sales")
    await channel.bind_queue("Sales", "Sales")
    await run(url, "Sales.RemindCustomer")
    delivery = await anext(await channel.consume("Sales", no_ack=True))
    headers = delivery.properties.headers or {}
    assert delivery.body == b'{"Customer": 7}'
    assert headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"] == 1
    await channel.delete_queue("Sales")
    await channel.delete_exchange("Sales")


async def test_celerys_settings(url: str) -> None:
    app = (await run(url, "task_default_queue_type"))["app"]
    assert isinstance(app, Celery)
    assert detect_quorum_queues(app, "amqp") == (True, "tasks")
    with BlockingConnection(app.conf.broker_url, reconnect=False) as connection:
        assert not connection.is_closed


async def test_a_task_of_ours(url: str, channel: Channel) -> None:
    await CELERY.declare(channel)
    await channel.declare_queue("tasks")
    await CELERY.bind_destination(channel, "tasks")
    names = await run(url, "shop.remind")
    delivery = await anext(await channel.consume("tasks", no_ack=True))
    assert delivery.routing_key == CELERY.routing_key(2, "tasks")
    assert (delivery.properties.headers or {})["id"] == names["task_id"]
    await channel.delete_queue("tasks")

"""docs/guides/frameworks.md: its programs run, on leveret and RabbitMQ."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leveret.client import connect
from leveret.delay import NSERVICEBUS_V2

from ..waiting import DEADLINE_S

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "frameworks.md"
URL = "amqp://guest:guest@localhost:5672/"


def programs(url: str) -> list[str]:
    return [text.replace(URL, url) for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)]


def write(url: str, directory: Path) -> None:
    """Write the programs whose first line is the name of their file."""
    for text in programs(url):
        if name := re.match(r"# (\w+\.py)\n", text):
            (directory / name[1]).write_text(text)


@asynccontextmanager
async def running(directory: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Python with these arguments in the directory; stop it at the end, if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{directory}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.fixture
async def clean(url: str) -> AsyncIterator[None]:
    """Delete what the programs declare, since they have fixed names."""
    yield
    async with await connect(url, reconnect=False) as connection, await connection.channel() as channel:
        for queue in (
            *("taskiq", "taskiq.dead_letter", "orders", "invoices"),
            *("reports.daily", "reports.adhoc", "reports.failed"),
        ):
            await channel.delete_queue(queue)
        for exchange in ("taskiq", "reports", NSERVICEBUS_V2.delivery_exchange):
            await channel.delete_exchange(exchange)


@pytest.mark.usefixtures("clean")
async def test_taskiq(url: str, tmp_path: Path) -> None:
    write(url, tmp_path)
    worker = running(tmp_path, "-m", "taskiq", "worker", "--workers", "1", "tasks:broker")
    async with asyncio.timeout(DEADLINE_S), worker as process, running(tmp_path, "send.py") as sender:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"Hello, world!\n"
        assert await process.stdout.readline() == b"Hello, later!\n"
        assert await sender.wait() == 0


@pytest.mark.usefixtures("clean")
async def test_faststream(url: str, tmp_path: Path) -> None:
    write(url, tmp_path)
    async with asyncio.timeout(DEADLINE_S), running(tmp_path, "app.py") as process:
        output, _ = await process.communicate()
    assert output == b"one tea\n" or b"\none tea\n" in output
    assert process.returncode == 0


@pytest.mark.usefixtures("clean")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the program is in no file
async def test_the_other_programs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [text for text in programs(url) if not re.match(r"# \w+\.py\n", text)]
    module = ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)  # where Taskiq looks for a task's function
    taskiq, faststream = [await run(text, dict(vars(module))) for text in others]
    broker = taskiq["broker"]
    await broker.startup()
    await taskiq["sales"].kiq("monday")
    await broker.shutdown()
    async with await connect(url, reconnect=False) as connection, await connection.channel() as channel:
        delivery = await channel.get("reports.daily", no_ack=True)
    assert delivery is not None
    assert (delivery.routing_key, delivery.properties.priority) == ("daily.sales", 5)
    assert faststream["reply"] == "TEXT"


async def run(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a program that may use await at its top level; return the names, with those that it sets."""
    awaitable = eval(compile(text, str(GUIDE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if awaitable is not None:
        await awaitable
    return names

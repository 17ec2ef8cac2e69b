"""docs/guides/endpoints.md: its programs run as described."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leveret.client import ChannelClosed, Connection, connect
from leveret.endpoint import Context, Endpoint

from .support import Price, program, within

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "endpoints.md"
URL = "amqp://guest:guest@localhost:5672/"


@dataclass
class GetPrice:
    of: str


def blocks(url: str) -> dict[str, str]:
    """Return the guide's Python blocks for this broker, by the file name in their first line, or by their number."""
    found = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    named = {}
    for number, text in enumerate(found):
        first = re.match(r"# (\w+\.py)\n", text)
        named[first[1] if first else str(number)] = text.replace(URL, url)
    return named


async def test_ten_minutes(url: str, tmp_path: Path) -> None:
    programs = blocks(url)
    for name in ("messages.py", "sales.py", "billing.py"):
        (tmp_path / name).write_text(programs[name])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(inspect.getfile(Endpoint)).parents[2]), "."))}

    options = {"cwd": tmp_path, "env": environment, "stdout": asyncio.subprocess.PIPE}
    async with program("sales.py", **options) as sales, await connect(url, reconnect=False) as connection:
        while not await consumes(connection, "sales"):
            continue
        async with program("billing.py", **options) as billing:
            output, _ = await within(billing.communicate())
        assert output == b"order 4711 is not paid yet\n"
        sales.terminate()
        assert await within(sales.wait()) == 0
        async with await connection.channel() as channel:
            for name in ("sales", "billing"):  # otherwise they would collect events forever
                await channel.delete_queue(name)


async def consumes(connection: Connection, name: str) -> bool:
    """Whether an endpoint of this name runs."""
    async with await connection.channel() as channel:
        try:
            return (await channel.declare_queue(name, passive=True)).consumer_count > 0
        except ChannelClosed:
            return False


async def test_the_other_examples(url: str, name: str) -> None:
    shop, prices = Endpoint(f"{name}.shop", url), Endpoint("prices", url)

    @prices.handler
    async def get(question: GetPrice, context: Context) -> None:
        context.reply(Price(2.5))

    for node in (shop, prices):
        node.disable_timeout_manager()
    names: dict[str, Any] = {"shop": shop, "GetPrice": GetPrice, "Price": Price, "Endpoint": Endpoint}
    async with shop, prices:
        for title, text in blocks(url).items():
            if not title.endswith(".py"):
                code = compile(text, str(GUIDE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                running = eval(code, names)
                if running is not None:
                    await within(running)
    assert names["price"] == Price(2.5)
    assert names["worker"].name == "worker"

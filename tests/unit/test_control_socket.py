"""The control socket's end: who waits for an answer gets it, who does not is let go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from leveret.control.address import SOCKET_NAME, Sender
from leveret.control.client import AsyncControlClient
from leveret.control.socket import ControlSocket


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def answer(self, line: bytes, sender: Sender) -> list[bytes]:
        self.asked.set()
        await self.may_answer.wait()
        return [b'{"ok":', b'"done"}']


async def test_an_answer_that_is_on_its_way_arrives_before_the_end(tmp_path: Path) -> None:
    slow = Slow()
    control = ControlSocket(slow, str(tmp_path))
    await control.listen()
    client = AsyncControlClient(str(tmp_path))
    asked = asyncio.create_task(client.call("anything"))
    reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET_NAME)
    await slow.asked.wait()
    closing = asyncio.create_task(control.close())
    await asyncio.sleep(0)
    slow.may_answer.set()
    await closing
    assert await asked == "done"
    assert await reader.read() == b""
    writer.close()
    assert not (tmp_path / SOCKET_NAME).exists()

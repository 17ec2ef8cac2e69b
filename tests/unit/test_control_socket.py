"""The control socket's end: callers that wait get their answers, others are disconnected."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leveret.control.calls.address import SOCKET_NAME, LocalProcess
from leveret.control.calls.blocking import ControlClient
from leveret.control.calls.client import AsyncControlClient
from leveret.control.calls.socket import ControlSocket


class Slow:
    """A control that answers when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def answer(self, line: bytes, sender: LocalProcess) -> AsyncIterator[bytes]:
        self.asked.set()
        await self.may_answer.wait()
        yield b'{"ok":'
        yield b'"done"}'


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


async def test_nothing_is_left_of_a_caller_that_goes_before_its_answer(tmp_path: Path) -> None:
    """For example a client of the HTTP API that stops reading a long list."""
    slow = Slow()
    control = ControlSocket(slow, str(tmp_path))
    await control.listen()
    gc.collect()
    gc.disable()
    try:
        _, writer = await asyncio.open_unix_connection(tmp_path / SOCKET_NAME)
        writer.write(b"anything\n")
        await slow.asked.wait()
        (served,) = [each for each in asyncio.all_tasks() if "ControlSocket._serve" in repr(each)]
        gone = weakref.ref(served)
        writer.transport.abort()
        await asyncio.sleep(0)
        slow.may_answer.set()
        await asyncio.wait([served])
        del served
        for _ in range(3):
            await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
    await control.close()


def test_a_call_that_ends_early_leaves_its_answer_to_nobody(tmp_path: Path) -> None:
    """The next call would take it for its own answer."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen()
        client = ControlClient(str(tmp_path), timeout_s=0.01)
        with pytest.raises(TimeoutError):
            client.call("first")
        broker, _ = listener.accept()
        with broker:
            with contextlib.suppress(BrokenPipeError):  # as expected
                broker.sendall(b'{"ok":"of the first"}\n')
            with pytest.raises(OSError, match="Bad file descriptor"):
                client.call("second")

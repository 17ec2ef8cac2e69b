"""The sealing process as the broker sees it: test programs take its place, which die, hang, or answer nonsense."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from leveret.net.disk import sealing_process
from leveret.net.disk.sealing_process import SealingProcess

ECHO = "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)"


class Told:
    """Reports of the process in order: answers as bytes, failures as text."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | str] = asyncio.Queue()

    async def next(self) -> bytes | str:
        return await self.events.get()


@asynccontextmanager
async def process(program: str) -> AsyncIterator[tuple[SealingProcess, Told]]:
    told = Told()
    found = SealingProcess("/nowhere", told.events.put_nowait, told.events.put_nowait)
    found._command = (sys.executable, "-c", program)  # type: ignore[assignment]
    try:
        yield found, told
    finally:
        await found.stop()


async def turns_until(holds: Callable[[], bool]) -> None:
    """Return after the turn of the loop in which the condition became true."""
    changed = asyncio.Event()

    def look() -> None:
        if holds():
            changed.set()
        else:
            asyncio.get_running_loop().call_soon(look)

    look()
    await changed.wait()


async def test_it_starts_with_the_first_request_and_serves_more() -> None:
    async with process(ECHO) as (it, told):
        assert it.pid is None
        for request in (b"one", b"two"):
            it.ask(request)
            assert await told.next() == request + b"\n"
        pid = it.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_one_that_dies_is_told_and_started_again() -> None:
    async with process("import os\ninput()\nos.kill(os.getpid(), 9)") as (it, told):
        it.ask(b"one")
        assert await told.next() == "the process was killed by signal 9; the process is restarted in 0.2 s"
        it.ask(b"two")
        assert await told.next() == "the process was killed by signal 9; the process is restarted in 0.4 s"


async def test_one_that_cannot_begin_is_told() -> None:
    async with process("import sys\nsys.exit(1)") as (it, told):
        it.ask(b"one")
        failure = await told.next()
        assert isinstance(failure, str)
        # the process may end before it reads the request, or before it answers
        assert failure.startswith(("the process exited with status 1;", "Connection lost;", "[Errno 32]"))


async def test_a_program_that_is_not_there_is_told() -> None:
    async with process(ECHO) as (it, told):
        it._command = ("/nowhere/python",)  # type: ignore[assignment]
        it.ask(b"one")
        assert "No such file" in str(await told.next())


async def test_one_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing_process, "ANSWER_S_MAX", 0.01)
    monkeypatch.setattr(sealing_process, "STOP_S_MAX", 0.01)
    async with process("import signal\nwhile True: signal.pause()") as (it, told):
        it.ask(b"one")
        assert str(await told.next()).startswith("no answer within 0 s;")
        assert it.pid is None


async def test_it_ends_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing_process, "IDLE_S_MAX", 0.01)
    async with process(ECHO) as (it, told):
        it.ask(b"one")
        assert await told.next() == b"one\n"
        await turns_until(lambda: it.pid is None)
        it.ask(b"two")
        assert await told.next() == b"two\n"


async def test_a_broker_that_stops_does_not_wait_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing_process, "STOP_S_MAX", 0.01)
    async with process("import signal\nwhile True: signal.pause()") as (it, _):
        it.ask(b"one")
        await turns_until(lambda: it.pid is not None)
        pid = it.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

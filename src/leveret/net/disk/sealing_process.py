"""The process that seals streams, from the broker's side: it gets one request at a time, and sends one answer to each.

It is started by the first request, ended after a long time without one, and restarted after it died or did not answer.
It ends when its standard input is closed, which happens however the broker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("leveret")

PAUSE_S_MIN: Final = 0.2
PAUSE_S_MAX: Final = 30.0
LIVED_S: Final = 60.0
"""The pause before a restart, doubled each time unless the process has lived for LIVED_S, as for the HTTP API's
process."""
ANSWER_S_MAX: Final = 600.0
"""One request concerns a native file at most: a process that takes longer hangs."""
IDLE_S_MAX: Final = 300.0
STOP_S_MAX: Final = 2.0
ANSWER_OCTETS_MAX: Final = 16 << 20


class SealingProcess:
    """Runs the sealing process.

    answered: called with the line that answers a request. failed: called with the reason why no answer comes.
    """

    def __init__(self, tables_dir: str, answered: Callable[[bytes], None], failed: Callable[[str], None]) -> None:
        self._command = (sys.executable, "-m", "leveret.lake", tables_dir)
        self._answered = answered
        self._failed = failed
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._process: Process | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def pid(self) -> int | None:
        """The process's id, None if it does not run."""
        return None if self._process is None else self._process.pid

    def ask(self, request: bytes) -> None:
        """Send a request. Only one may be under way."""
        self._requests.put_nowait(request)

    async def stop(self) -> None:
        """End the process, and wait until it is gone. The next one removes what is left half made."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            request = await self._requests.get()
            started_s = time.monotonic()
            try:
                await self._serve(request)
            except (OSError, EOFError, ValueError) as error:
                if time.monotonic() - started_s > LIVED_S:
                    pause_s = PAUSE_S_MIN
                self._failed(f"{error}; the process is restarted in {pause_s:.1f} s")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _serve(self, request: bytes | None) -> None:
        """Serve requests until none comes for IDLE_S_MAX. EOFError, OSError or ValueError if the process fails."""
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, limit=ANSWER_OCTETS_MAX)
        self._process = process
        try:
            while request is not None:
                self._answered(await self._exchange(process, request))
                request = await self._next()
        finally:
            self._process = None
            await self._end(process)

    async def _exchange(self, process: Process, request: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                process.stdin.write(request + b"\n")
                await process.stdin.drain()
                answer = await process.stdout.readline()
        except TimeoutError:
            raise EOFError(f"no answer within {ANSWER_S_MAX:.0f} s") from None
        if not answer.endswith(b"\n"):
            status = await process.wait()
            raise EOFError(
                f"the process was killed by signal {-status}"
                if status < 0
                else f"the process exited with status {status}"
            )
        return answer

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout(IDLE_S_MAX):
                return await self._requests.get()
        except TimeoutError:
            return None

    async def _end(self, process: Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        # this task may have been cancelled, and then Python 3.11.2's asyncio.timeout raises no TimeoutError
        ended = asyncio.ensure_future(process.wait())
        if not (await asyncio.wait({ended}, timeout=STOP_S_MAX))[0]:
            process.kill()
        await ended

"""The Unix socket in the data directory: one line of JSON per call and one per answer, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
from collections.abc import AsyncIterator
from typing import Final, Protocol

from leveret.control.calls.address import LINE_OCTETS_MAX, PEER, SOCKET_NAME, LocalProcess, socket_address

ANSWER_S_MAX: Final = 1.0


class Answers(Protocol):
    """Answers calls: Control, or its substitute while the broker is stopped."""

    def answer(self, line: bytes, sender: LocalProcess) -> AsyncIterator[bytes]:
        """Answer one line, in pieces, without the line end. A ConnectionError ends the connection."""


class ControlSocket:
    """Listens while the broker serves. Anyone who may open the socket may do everything, so its mode is 0600."""

    def __init__(self, control: Answers, data_dir: str) -> None:
        self.path = os.path.join(data_dir, SOCKET_NAME)
        self.was_killed = os.path.lexists(self.path)  # true after a crash: an orderly stop removes the socket
        self._data_dir = data_dir
        self._control = control
        self._server: asyncio.Server | None = None
        self._is_closing = False
        # the connections' tasks; True: an answer is in progress
        self._callers: dict[asyncio.Task[None], bool] = {}

    async def listen(self) -> None:
        """Begin to listen, replacing a socket left over from a crash. Raises OSError if the socket can't be created."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with socket_address(self._data_dir) as address:
                listener.bind(address)
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_OCTETS_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        sender = _sender(writer.get_extra_info("socket"))
        try:
            self._callers[task] = False
            while not self._is_closing and (line := await reader.readline()):
                self._callers[task] = True
                async for piece in self._control.answer(line, sender):
                    writer.write(piece)
                    await writer.drain()  # the next piece is made when the caller has taken this one
                writer.write(b"\n")
                await writer.drain()
                self._callers[task] = False
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # the caller has gone, its line is too long, or the broker stops
        finally:
            self._callers.pop(task, None)
            writer.close()
            failure = reader.exception()
            if failure is not None:  # the failure and the reader refer to each other, and the garbage collector is off
                with contextlib.suppress(Exception):
                    await writer.wait_closed()  # already closed; the exception raised here has a traceback of its own
                failure.__traceback__ = None

    async def close(self) -> None:
        """Stop listening. Answers in progress, such as that to `stop`, are still sent if ready within ANSWER_S_MAX."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        if waiting := [task for task, is_busy in self._callers.items() if is_busy]:
            await asyncio.wait(waiting, timeout=ANSWER_S_MAX)
        for task in self._callers:
            task.cancel()
        with contextlib.suppress(OSError):  # a file system may have gone read-only; the next start replaces the socket
            os.unlink(self.path)


def _sender(connection: socket.socket) -> LocalProcess:
    pid, uid, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return LocalProcess(f"unix:{name}", f"pid:{pid}")

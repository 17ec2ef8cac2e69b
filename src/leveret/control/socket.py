"""The Unix socket in the data directory: one line of JSON per call, one per answer, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
from collections.abc import AsyncIterator
from typing import Final, Protocol

from leveret.control.address import LINE_OCTETS_MAX, PEER, SOCKET_NAME, Sender, socket_address

ANSWER_S_MAX: Final = 1.0


class Answers(Protocol):
    """Control, or what stands in for it while the broker is stopped."""

    def answer(self, line: bytes, sender: Sender) -> AsyncIterator[bytes]:
        """The answer to one line, without its line end, in pieces. A ConnectionError ends the connection."""


class ControlSocket:
    """Listens while the broker serves. Whoever may open the socket may do everything: its mode is 0600."""

    def __init__(self, control: Answers, data_dir: str) -> None:
        self.path = os.path.join(data_dir, SOCKET_NAME)
        self.was_killed = os.path.lexists(self.path)  # the broker before: who ends in order takes its socket away
        self._data_dir = data_dir
        self._control = control
        self._server: asyncio.Server | None = None
        self._is_closing = False
        # who is connected; True: an answer is on its way
        self._callers: dict[asyncio.Task[None], bool] = {}

    async def listen(self) -> None:
        """Begin. OSError if the socket can't be made. A socket that a crash left is replaced: the directory is ours."""
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
            pass  # it has gone, or its line is too long, or we go
        finally:
            self._callers.pop(task, None)
            writer.close()
            failure = reader.exception()
            if failure is not None:  # its frames know the reader, which knows it, and the collector is off
                with contextlib.suppress(Exception):
                    await writer.wait_closed()  # it is closed, and has a traceback of its own
                failure.__traceback__ = None

    async def close(self) -> None:
        """Stop listening. Who waits for an answer gets it, if it comes soon: who asked us to stop does so."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        if waiting := [task for task, is_busy in self._callers.items() if is_busy]:
            await asyncio.wait(waiting, timeout=ANSWER_S_MAX)
        for task in self._callers:
            task.cancel()
        with contextlib.suppress(OSError):  # a file system may have gone read-only; the next start replaces the socket
            os.unlink(self.path)


def _sender(connection: socket.socket) -> Sender:
    pid, uid, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Sender(f"unix:{name}", f"pid:{pid}")

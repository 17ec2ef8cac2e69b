"""A blocking client of the control socket for the command line, with as few imports as possible."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Final, Self

from leveret.control.calls.address import LINE_OCTETS_MAX, PEER, socket_address
from leveret.control.calls.line import Caller, call_line, result_of
from leveret.control.refusal import BAD_REQUEST, Refused

READ_OCTETS: Final = 1 << 16
CTL: Final = Caller(interface="ctl")


class ControlClient:
    """A blocking connection to the control socket of a data directory. Raises OSError if no broker serves it."""

    def __init__(self, data_dir: str, by: Caller = CTL, timeout_s: float | None = None) -> None:
        self._by = by
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            with socket_address(data_dir) as address:
                self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, command: str, **fields: Any) -> Any:
        """Run a command and return its result.

        Raises Refused if the command fails and ConnectionError if the broker has gone. A call that is interrupted
        (TimeoutError, KeyboardInterrupt) closes the connection: its answer may still arrive and would be taken for that
        of the next call.
        """
        call = call_line(command, fields, self._by)
        if len(call) > LINE_OCTETS_MAX:
            reason = f"the request has {len(call)} bytes, and the broker accepts at most {LINE_OCTETS_MAX >> 20} MiB"
            raise Refused(BAD_REQUEST, f"{command}: {reason}")
        try:
            line = self._exchange(call)
        except BaseException:
            self.close()
            raise
        return result_of(line)

    def _exchange(self, call: bytes) -> bytes:
        self._socket.sendall(call)
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            part = self._socket.recv(READ_OCTETS)
            if not part:
                raise ConnectionError("the broker closed the control socket")
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def server_pid(self) -> int:
        """Return the process id of the broker at the other end."""
        return int(PEER.unpack(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))[0])

    def fileno(self) -> int:
        """Return the descriptor for select: readable when the broker has answered or closed the socket."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

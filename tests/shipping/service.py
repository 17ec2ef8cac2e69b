"""A broker as a service manager runs it: settings in a file, control by signals, status by a notify socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from leveret.testing.processes import LeveretProcess

DEADLINE_S = 60.0


class Service(LeveretProcess):
    """A running broker service; `config` is its settings file."""

    def __init__(self, directory: Path, settings: str = "", arguments: Sequence[str] = (), admin: bool = False) -> None:
        self.config = directory / "leveret.toml"
        self.config.write_text(settings)
        data_dir = directory / "data"
        super().__init__(data_dir, arguments=["--config", str(self.config), *arguments], admin=admin)

    def reload(self, settings: str) -> None:
        """Change the settings file and reload, as `systemctl reload` does."""
        self.config.write_text(settings)
        os.kill(self.pid, signal.SIGHUP)

    def terminate(self) -> None:
        """Send the signal with which `systemctl stop` begins."""
        os.kill(self.pid, signal.SIGTERM)

    def end(self) -> int:
        """Wait until it has stopped; return its exit status."""
        status = self.wait()
        self.clean_up()
        return status


class Manager:
    """Receives what a service sends to its notify socket."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(DEADLINE_S)

    def hear(self) -> dict[str, str]:
        """Return the next message."""
        text = self._socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    def hear_of(self, name: str) -> dict[str, str]:
        """Return the next message with this name; others are skipped."""
        while name not in (word := self.hear()):
            pass
        return word

    def hear_within(self, timeout_s: float) -> dict[str, str]:
        """Return the next message; raise TimeoutError if none arrives in time."""
        self._socket.settimeout(timeout_s)
        try:
            return self.hear()
        finally:
            self._socket.settimeout(DEADLINE_S)

    def close(self) -> None:
        self._socket.close()

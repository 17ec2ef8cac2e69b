"""What outlives a run of a broker in a test: its port, disk, network, and record."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.store.disk import Disk, MemoryDisk, RealDisk
from leveret.testing.kit.clock import VirtualClock
from leveret.testing.kit.disk import DiskFaults
from leveret.testing.kit.network import BrokerNetwork
from leveret.testing.kit.record import Record
from leveret.testing.kit.run import BrokerDown, BrokerRun

if TYPE_CHECKING:
    from leveret.net.server import Server

Definitions = Mapping[str, Any] | str | Path
HOST: Final = "127.0.0.1"
_IN_MEMORY: Final = "/data"


class BrokerFixture:
    """A broker over all its runs.

    Args:
        clock: a VirtualClock, or None for the system's clock.
        definitions: loaded before the first run serves, in addition to the defaults.
        data_dir: the directory of its files; None for a disk in memory.
        port: the TCP port; 0 for a free one.
        **settings: fields of `leveret.broker.broker.Settings`.
    """

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        definitions: Definitions | None = None,
        data_dir: Path | None = None,
        port: int = 0,
        **settings: Any,
    ) -> None:
        self.host = HOST
        self.clock = clock
        self.settings = settings
        self.blocked = {"disk": 0, "memory": 0}  # how many faults raise each alarm
        self.disk_faults = DiskFaults()
        self.network = BrokerNetwork()
        self.record = Record()
        self.broker_run: BrokerRun | None = None  # the current run; None while the broker is down
        self.disk: Disk = MemoryDisk() if data_dir is None else RealDisk()
        self.directory = _IN_MEMORY if data_dir is None else str(data_dir)
        self.is_kept = data_dir is not None
        self._lock: Any = None
        self._definitions = definitions
        self._port_holder = _hold_port(self.host, port)
        self.port: int = self._port_holder.getsockname()[1]

    def start(self) -> None:
        """Start a run. Does nothing while one is in progress."""
        if self.broker_run is not None:
            if not self.broker_run.is_over:
                return
            self.end("crash")  # the last run has stopped by itself
        if self.is_kept and self._lock is None:
            from leveret.store.lock import DirectoryLock

            self._lock = DirectoryLock(self.directory)
        self.broker_run = BrokerRun(self)

    def living(self) -> BrokerRun:
        """Return the current run. Raises BrokerDown while the broker is down."""
        if self.broker_run is None:
            raise BrokerDown("the broker is down; start() starts it again")
        if self.broker_run.failure is not None:
            raise BrokerDown(f"the broker stopped unexpectedly: {self.broker_run.failure}; start() starts it again")
        return self.broker_run

    def end(self, how: str) -> None:
        """End the current run, if any, by "stop", "hang_up" or "crash". RuntimeError if it stops on a stalled disk."""
        if how == "stop" and self.disk_faults.stalled:
            raise RuntimeError("an orderly stop would wait for the stalled disk; undo that fault, or crash()")
        broker_run, self.broker_run = self.broker_run, None
        if broker_run is None:
            return
        getattr(broker_run, how)()
        if how == "crash" and isinstance(self.disk, MemoryDisk):
            self.disk.crash()

    def close(self) -> None:
        """Stop for good and free all resources."""
        self.end("stop" if self.is_kept else "hang_up")
        self._port_holder.close()
        if self._lock is not None:
            self._lock.release()

    def load_definitions(self, server: Server) -> None:
        """Before a run serves: finish a begun import, and import the definitions once. Raises ValueError or OSError."""
        if server.broker.imports.begun:
            from leveret.control.definitions.loading import finish

            self.record.log += finish(server.broker, server.now_us())
        if self._definitions is None:
            return
        import msgspec

        from leveret.control.definitions.document import Document
        from leveret.control.definitions.importing import Import
        from leveret.control.refusal import Refused

        given = self._definitions
        try:
            if isinstance(given, Mapping):
                document = msgspec.convert(given, Document)
            else:
                document = msgspec.json.decode(Path(given).read_bytes(), type=Document)
            # guest is kept, and gets full permissions in new virtual hosts
            plan = Import(server.broker, document, user="guest").check()
        except (msgspec.MsgspecError, Refused) as error:
            raise ValueError(f"the definitions can't be imported: {error}") from None
        for line in plan.apply(server.now_us()):
            self.record.log.append(f"definitions: {line}")
        self._definitions = None


def _hold_port(host: str, port: int) -> socket.socket:
    """Return a socket that reserves the port while the broker is down. Raises OSError if the port is unavailable."""
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, port))
    except OSError as error:
        holder.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(error.errno, f"port {port} is in use; without a port, a free one is taken") from None
        raise
    return holder

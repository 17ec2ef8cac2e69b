"""What stays when a broker goes down and comes back: its port, its disk, its network, what was seen of it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.store.disk import Disk, MemoryDisk, RealDisk
from leveret.testing.kit.clock import VirtualClock
from leveret.testing.kit.disk import DiskFaults
from leveret.testing.kit.network import Network
from leveret.testing.kit.record import Record
from leveret.testing.kit.run import BrokerDown, BrokerRun

if TYPE_CHECKING:
    from leveret.net.server import Server

Definitions = Mapping[str, Any] | str | Path
HOST: Final = "127.0.0.1"
_IN_MEMORY: Final = "/data"


class BrokerFixture:
    """broker_run: the present one; None while it is down.

    definitions: imported before the first run serves, beside the defaults; data_dir: None = a disk in memory;
    settings: those of `leveret.broker.broker.Settings`. blocked: which alarms are on, by "disk" and "memory".
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
        self.blocked = {"disk": 0, "memory": 0}
        self.disk_faults = DiskFaults()
        self.network = Network()
        self.record = Record()
        self.broker_run: BrokerRun | None = None
        self.disk: Disk = MemoryDisk() if data_dir is None else RealDisk()
        self.directory = _IN_MEMORY if data_dir is None else str(data_dir)
        self.is_kept = data_dir is not None
        self._lock: Any = None
        self._definitions = definitions
        self._port_holder = _hold_port(self.host, port)
        self.port: int = self._port_holder.getsockname()[1]

    def start(self) -> None:
        """Begin a run; nothing happens during one."""
        if self.broker_run is not None:
            if not self.broker_run.is_over:
                return
            self.end("crash")  # it has ended by itself
        if self.is_kept and self._lock is None:
            from leveret.store.lock import DirectoryLock

            self._lock = DirectoryLock(self.directory)
        self.broker_run = BrokerRun(self)

    def living(self) -> BrokerRun:
        """The present run. BrokerDown if there is none."""
        if self.broker_run is None:
            raise BrokerDown("the broker is down; start() starts it again")
        if self.broker_run.failure is not None:
            raise BrokerDown(f"the broker stopped unexpectedly: {self.broker_run.failure}; start() starts it again")
        return self.broker_run

    def end(self, how: str) -> None:
        """End this run, if there is one: "stop", "hang_up" or "crash". RuntimeError if a stop would never end."""
        if how == "stop" and self.disk_faults.stalled:
            raise RuntimeError("an orderly stop would wait for the stalled disk; undo that fault, or crash()")
        broker_run, self.broker_run = self.broker_run, None
        if broker_run is None:
            return
        getattr(broker_run, how)()
        if how == "crash" and isinstance(self.disk, MemoryDisk):
            self.disk.crash()

    def close(self) -> None:
        """End for good, and give everything back."""
        self.end("stop" if self.is_kept else "hang_up")
        self._port_holder.close()
        if self._lock is not None:
            self._lock.release()

    def load_definitions(self, server: Server) -> None:
        """Before a run serves: finish imports; import the definitions, if that was not done. ValueError; OSError."""
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
            # guest stays, and may do everything in what is new
            plan = Import(server.broker, document, user="guest").check()
        except (msgspec.MsgspecError, Refused) as error:
            raise ValueError(f"the definitions can't be imported: {error}") from None
        for line in plan.apply(server.now_us()):
            self.record.log.append(f"definitions: {line}")
        self._definitions = None


def _hold_port(host: str, port: int) -> socket.socket:
    """A socket that keeps a port for us while nobody listens on it. OSError if it can't be had."""
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

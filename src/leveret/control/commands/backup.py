"""Online backup: a copy of the data directory while the broker serves."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from leveret.control.command import Command
from leveret.control.node import BrokerNode
from leveret.control.refusal import CONFLICT, Refused, bad_request
from leveret.net.disk.backup import BackupRefused


class Backup(Command):
    """Copy everything to a directory that is empty or does not exist; answers when the copy is on disk.

    It contains everything that was confirmed before. To restore it, use it, or a copy of it, as the data directory.
    """

    directory: str

    def run(self, node: BrokerNode) -> object:
        if not os.path.isabs(self.directory):
            raise bad_request(f"the directory of a backup must be an absolute path, not {self.directory!r}")
        home = os.path.realpath(node.data_dir)
        if os.path.commonpath([home, os.path.realpath(self.directory)]) == home:
            raise bad_request(f"{self.directory} is inside the data directory")
        return self._taken(node, os.path.normpath(self.directory))

    async def _taken(self, node: BrokerNode, directory: str) -> object:
        wall_us = int(node.broker.timeline.wall_us(node.host.now_us()))
        now = datetime.fromtimestamp(wall_us / 1e6, UTC).isoformat(timespec="seconds")
        facts = {"node": node.name, "leveret_version": node.version, "taken_at": now}
        try:
            files = await node.host.backups.take(directory, facts)
        except BackupRefused as error:
            raise Refused(CONFLICT, str(error)) from None
        except OSError as error:
            raise bad_request(f"{error.filename or self.directory}: {error.strerror or error}") from None
        return {"directory": self.directory, "files": len(files), "octets": sum(file.size for file in files)}

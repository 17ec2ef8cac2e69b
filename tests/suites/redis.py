"""Redis, where Celery's own tests record their progress."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from leveret.testing.processes import ProcessFailed, ServerProcess

__all__ = ["RedisProcess"]


class RedisProcess(ServerProcess):
    """A ``redis-server`` that listens on 127.0.0.1 and keeps its data in memory only."""

    name = "redis"
    ready_pattern = re.compile(r"Ready to accept connections")

    def prepare(self) -> None:
        if shutil.which("redis-server") is None:
            raise ProcessFailed("Celery's suite needs redis-server (Debian: apt-get install redis-server)")

    def command(self) -> Sequence[str | Path]:
        where: list[str | Path] = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.data_dir]
        return ["redis-server", *where, "--save", "", "--appendonly", "no"]

"""A private PostgreSQL for tests: its own cluster in a temporary directory, on 127.0.0.1."""

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from leveret.testing.processes import ProcessFailed, ServerProcess


class PostgreSQLProcess(ServerProcess):
    """PostgreSQL from Debian's packages. It refuses to run as root, so root runs it as user ``postgres``."""

    name = "postgresql"
    ready_pattern = re.compile(r"database system is ready to accept connections")
    DEBIAN: Final = Path("/usr/lib/postgresql")
    USER: Final = "postgres"

    @classmethod
    def program(cls, name: str) -> str | None:
        """Return the path of a program of the newest installed version, or None."""
        found = sorted(cls.DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
        return str(found[-1]) if found else shutil.which(name)

    @property
    def url(self) -> str:
        """The URL of the database ``postgres``."""
        return f"postgresql://{self.USER}@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        initdb = self.program("initdb")
        if initdb is None:
            raise ProcessFailed("PostgreSQL is not installed: apt-get install postgresql")
        if (self.data_dir / "data").exists():
            return
        if os.getuid() == 0:
            shutil.chown(self.data_dir, self.USER)
        options = ["-U", self.USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command = [*self._prefix(), initdb, "-D", str(self.data_dir / "data"), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode:
            raise ProcessFailed(f"initdb failed:\n{done.stdout}{done.stderr}")

    def command(self) -> Sequence[str | Path]:
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.data_dir}"]
        program = self.program("postgres") or "postgres"
        return [*self._prefix(), program, "-D", self.data_dir / "data", "-p", str(self.port), *settings]

    def _prefix(self) -> list[str]:
        if os.getuid():
            return []
        user = pwd.getpwnam(self.USER)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]

    def _terminate(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGINT)  # fast shutdown: it does not wait for its clients

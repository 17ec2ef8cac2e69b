"""Servers shared by all processes of a test run: one of each kind, and none outlives the run."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.shared import VARIABLE

ROOT = Path(__file__).parents[2]
# The owner prints its directory and what two processes of its run got; then it exits, or waits for its end.
OWNER = """
import os, subprocess, sys
from tests.shared import VARIABLE, SharedServers
servers = SharedServers()
command = [sys.executable, "-c", "from tests.shared import shared; print(shared('postgresql')['url'])"]
users = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
print(os.environ[VARIABLE], *(user.communicate()[0].decode().strip() for user in users), flush=True)
input()
servers.end()
"""


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("is_killed", [False, True])
def test_two_processes_get_one_server_that_ends_with_the_run(is_killed: bool) -> None:
    environment = {name: text for name, text in os.environ.items() if name != VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        directory, one, other = owner.stdout.readline().split()
        assert one == other
        address = ("127.0.0.1", urlsplit(one).port)
        socket.create_connection(address).close()
        with Path(directory, "postgresql.keeper").open("r+") as keeper:
            if is_killed:
                owner.send_signal(signal.SIGKILL)
            else:
                owner.communicate("end\n")
            fcntl.lockf(keeper, fcntl.LOCK_EX)  # released when the server has ended
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    assert Path(directory).exists() is is_killed
    shutil.rmtree(directory, ignore_errors=True)

"""The table of open files gets its full size before clients could have to wait for that."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.net.descriptors import ROOM
from leveret.testing.processes import LeveretProcess

TOLD = """
import os, resource, sys
from leveret.net.descriptors import take_room
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
before = os.listdir("/proc/self/fd")
take_room()
assert os.listdir("/proc/self/fd") == before, "one is open still"
print(open("/proc/self/status").read())
"""

CROWDED = """
import contextlib, os, resource
from leveret.net.descriptors import take_room
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
with contextlib.suppress(OSError):
    while True:
        os.dup(0)
take_room()
print("went on")
"""


def size_in(status: str) -> int:
    found = re.search(r"FDSize:\s+(\d+)", status)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("limit", "expected"), [(100, 128), (700, 1024), (1024, 1024)])
def test_it_has_room_for_all_that_may_be_opened(limit: int, expected: int) -> None:
    done = subprocess.run([sys.executable, "-c", TOLD, str(limit)], capture_output=True, text=True, check=True)
    assert size_in(done.stdout) >= expected


def test_a_process_that_may_open_nothing_more_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, check=True)
    assert done.stdout == "went on\n"


def test_a_broker_has_it() -> None:
    with LeveretProcess() as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
    assert size_in(status) >= min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], ROOM)

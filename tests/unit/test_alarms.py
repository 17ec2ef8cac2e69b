"""Resource alarms: what is measured, when an alarm begins and ends, and its text."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.quantity import octets
from leveret.net.resources import gauges, machine_memory_octets

MB = 1_000_000


class Machine:
    """The measured values."""

    def __init__(self) -> None:
        self.free = 500 * MB
        self.used = 30 * MB
        self.freed = 0
        self.given_back = 0

    def trim_memory(self) -> None:
        self.given_back += 1
        self.used -= self.freed
        self.freed = 0

    def alarms(self) -> Alarms:
        return Alarms(ResourceLimits(50 * MB, 100 * MB), Gauges(lambda: self.free, lambda: self.used, self.trim_memory))


def test_an_alarm_for_the_disk_begins_below_the_limit_and_ends_a_twentieth_above() -> None:
    machine = Machine()
    alarms = machine.alarms()
    seen = []
    for free in (50 * MB, 50 * MB - 1, 50 * MB, 52 * MB, 52_500_000 - 1, 52_500_000, 50 * MB):
        machine.free = free
        seen.append(alarms.check(False))
    on = "low on disk"
    assert seen == ["", on, on, on, on, "", ""]


def test_an_alarm_for_memory_begins_above_the_mark_and_ends_a_twentieth_below() -> None:
    machine = Machine()
    alarms = machine.alarms()
    seen = []
    for used in (100 * MB, 100 * MB + 1, 100 * MB, 95 * MB + 1, 95 * MB, 100 * MB):
        machine.used = used
        seen.append(alarms.check(False))
    on = "low on memory"
    assert seen == ["", on, on, on, "", ""]


def test_no_more_than_50_mb_beyond_a_large_limit_is_asked_for() -> None:
    machine = Machine()
    alarms = machine.alarms()
    alarms.limits = ResourceLimits(10_000 * MB, 10_000 * MB)
    seen = []
    for free, used in ((9_999, 10_001), (10_049, 9_951), (10_050, 9_950)):
        machine.free, machine.used = free * MB, used * MB
        seen.append(alarms.check(False))
    assert seen == ["low on disk & memory", "low on disk & memory", ""]


def test_memory_that_was_freed_is_given_back_so_that_its_alarm_can_end() -> None:
    machine = Machine()
    alarms = machine.alarms()
    alarms.check(False)
    assert machine.given_back == 0  # trimming takes time, so only under the alarm
    machine.used = 120 * MB
    assert alarms.check(False)
    machine.freed = 60 * MB
    assert alarms.check(False) == ""
    assert machine.used == 60 * MB


def test_a_journal_without_room_is_the_disks_alarm_whatever_is_measured() -> None:
    alarms = Machine().alarms()
    assert alarms.check(True) == "low on disk"
    assert alarms.is_low_on_disk
    assert alarms.check(True) == "low on disk"
    assert alarms.check(False) == ""
    assert not alarms.is_low_on_disk


def test_both_reasons_as_rabbitmq_joins_them() -> None:
    machine = Machine()
    machine.free, machine.used = 0, 200 * MB
    assert machine.alarms().check(False) == "low on disk & memory"


def test_a_watermark_of_0_is_always_exceeded_and_a_limit_of_0_never() -> None:
    machine = Machine()
    machine.free = 0
    alarms = Alarms(ResourceLimits(0, 0), Gauges(lambda: machine.free, lambda: machine.used, machine.trim_memory))
    assert alarms.check(False) == "low on memory"


def test_one_line_when_an_alarm_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    alarms = machine.alarms()
    with caplog.at_level(logging.INFO, "leveret"):
        for free, used in ((500, 30), (49, 30), (48, 130), (48, 130), (500, 90)):
            machine.free, machine.used = free * MB, used * MB
            alarms.check(False)
    assert caplog.messages == [
        "low on disk: 49.0 MB free, the limit is 50.0 MB; publishers are blocked",
        "low on memory: 130.0 MB in use, the high watermark is 100.0 MB; publishers are blocked",
        "no longer low on disk: 500.0 MB free, the limit is 50.0 MB",
        "no longer low on memory: 90.0 MB in use, the high watermark is 100.0 MB",
    ]


def test_this_disk_is_measured(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    free_octets = gauges(str(tmp_path)).free_octets()
    assert abs(free_octets - status.f_bavail * status.f_frsize) < status.f_blocks * status.f_frsize // 10


MEASURED = """
from leveret.net.resources import gauges, memory_octets

before = memory_octets()
ballast = bytearray(b"x" * (64 << 20))
assert memory_octets() - before > 60 << 20
del ballast
real = gauges(".")
real.trim_memory()
assert real.memory_octets() - before < 32 << 20
"""


def test_the_memory_of_a_process_is_measured(tmp_path: Path) -> None:
    """It has a process of its own: the tests' own has memory that other tests have left to it."""
    done = subprocess.run([sys.executable, "-c", MEASURED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def found(tmp_path: Path, own: str, limits: dict[str, str]) -> int:
    """Return the memory found by a process whose /proc/self/cgroup is `own`, with these files below /sys/fs/cgroup."""
    for name, text in limits.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)
    return machine_memory_octets(tmp_path / "groups", tmp_path / "own")


def test_the_smallest_limit_of_all_control_groups_around_counts(tmp_path: Path) -> None:
    whole = machine_memory_octets(tmp_path / "nothing", tmp_path / "nothing")
    assert whole > 64 * MB
    assert found(tmp_path, "0::/outer/inner\n", {"memory.max": "max\n"}) == whole
    limits = {"outer/memory.max": f"{32 * MB}\n", "outer/inner/memory.max": f"{48 * MB}\n"}
    assert found(tmp_path, "0::/outer/inner\n", limits) == 32 * MB
    assert found(tmp_path, "0::/elsewhere\n", {}) == whole


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    limits = {"memory/box/memory.limit_in_bytes": f"{32 * MB}\n"}
    assert found(tmp_path, "5:cpu,cpuacct:/box\n4:memory:/box\n", limits) == 32 * MB


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (12345, 12345),
        ("12345", 12345),
        ("50MB", 50_000_000),
        ("50 MB", 50_000_000),
        ("50mb", 50_000_000),
        ("50M", 50 << 20),
        ("50MiB", 50 << 20),
        ("2kB", 2000),
        ("2k", 2048),
        ("1GiB", 1 << 30),
        ("1TB", 10**12),
        (0.4, 400),
        ("0.4", 400),
        (".5", 500),
        (1.5, 1500),
        (0, 0),
        (1, 1000),
        (1.0, 1000),
    ],
)
def test_amounts(given: object, expected: int) -> None:
    assert octets(given, 1000) == expected


@pytest.mark.parametrize("given", ["", "much", "-1", -1, -0.5, "5XB", "1e3", "0.5GB", True, None, [1], float("nan")])
def test_what_is_no_amount(given: object) -> None:
    with pytest.raises(ValueError, match=r"write a number of octets, 50MB, 1GiB, or 0\.4 for a share"):
        octets(given, 1000)

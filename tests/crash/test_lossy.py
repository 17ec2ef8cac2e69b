"""The disk that loses what was not synced, tested with small programs whose every system call is known."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.testing.lossy import LossyDisk, LossyError

from ..waiting import until

pytestmark = pytest.mark.needs("compiler")

# The rest runs in a process of its own, in the watched directory, which is then killed.
PROGRAM = """
import os, signal, sys
os.chdir(sys.argv[1])
def sync(name):
    fd = os.open(name, os.O_RDONLY); os.fsync(fd); os.close(fd)
def create(name):
    return os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
exec(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(disk: LossyDisk, program: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(disk.directory), program]
    done = subprocess.run(command, env=disk.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert disk.absorb() == 0


@pytest.fixture
def disk(tmp_path: Path) -> LossyDisk:
    return LossyDisk(tmp_path / "data", tmp_path)


def files(disk: LossyDisk) -> dict[str, bytes]:
    return {str(path.relative_to(disk.directory)): path.read_bytes() for path in disk.directory.rglob("*.x")}


def test_what_was_synced_stays_and_the_rest_goes(disk: LossyDisk) -> None:
    run(
        disk,
        """
fd = create("a.x"); os.write(fd, b"one "); os.pwrite(fd, b"two ", 4); os.pwritev(fd, [b"thr", b"ee "], 8)
os.fdatasync(fd); sync("."); os.write(fd, b"1")
os.close(create("b.x"))
""",
    )
    assert files(disk) == {"a.x": b"one 1wo three ", "b.x": b""}
    assert disk.power_loss() == 2
    assert files(disk) == {"a.x": b"one two three "}


def test_a_synced_file_without_a_synced_name_is_gone(disk: LossyDisk) -> None:
    run(disk, 'fd = create("a.x"); os.write(fd, b"1"); os.fsync(fd); os.rename("a.x", "b.x")')
    assert files(disk) == {"b.x": b"1"}
    disk.power_loss()
    assert files(disk) == {}


def test_a_file_system_that_keeps_names(tmp_path: Path) -> None:
    disk = LossyDisk(tmp_path / "data", tmp_path, names_are_safe=True)
    run(disk, 'fd = create("a.x"); os.write(fd, b"1"); os.fsync(fd); os.write(fd, b"2"); os.rename("a.x", "b.x")')
    disk.power_loss()
    assert files(disk) == {"b.x": b"1"}


def test_renames_removals_and_directories(disk: LossyDisk) -> None:
    run(
        disk,
        """
os.mkdir("d"); sync(".")
for name in ("d/a.x", "d/b.x", "d/c.x"):
    fd = create(name); os.write(fd, name.encode()); os.fsync(fd); os.close(fd)
sync("d")
os.replace("d/a.x", "d/b.x"); os.remove("d/c.x")
""",
    )
    assert files(disk) == {"d/b.x": b"d/a.x"}
    disk.power_loss()
    assert files(disk) == {"d/a.x": b"d/a.x", "d/b.x": b"d/b.x", "d/c.x": b"d/c.x"}
    run(disk, 'os.replace("d/a.x", "d/b.x"); os.remove("d/c.x"); sync("d")')
    disk.power_loss()
    assert files(disk) == {"d/b.x": b"d/a.x"}


def test_lengths(disk: LossyDisk) -> None:
    run(
        disk,
        """
fd = create("a.x"); os.write(fd, b"0123456789"); os.fsync(fd); sync(".")
os.ftruncate(fd, 4); os.fdatasync(fd)
os.posix_fallocate(fd, 0, 8); os.fdatasync(fd)
os.truncate("a.x", 2); os.close(os.open("a.x", os.O_RDWR | os.O_TRUNC))
""",
    )
    assert files(disk) == {"a.x": b""}
    disk.power_loss()
    assert files(disk) == {"a.x": b"0123\0\0\0\0"}


def test_a_kill_keeps_the_page_cache_and_a_later_power_loss_takes_it(disk: LossyDisk) -> None:
    run(disk, 'fd = create("a.x"); os.fsync(fd); sync("."); os.write(fd, b"unsynced")')
    run(disk, 'fd = create("a.x"); assert os.read(fd, 99) == b"unsynced"; os.pwrite(fd, b"U", 0)')
    assert files(disk) == {"a.x": b"Unsynced"}
    disk.power_loss()
    assert files(disk) == {"a.x": b""}


def test_any_part_may_survive_and_the_last_may_be_torn(disk: LossyDisk) -> None:
    """Over many cuts, each page survives with and without the others, and files have lengths between writes."""
    seen = set()
    for seed in range(60):
        run(
            disk,
            """
fd = create("a.x"); os.ftruncate(fd, 0); os.fsync(fd); sync("."); os.write(fd, b"1" * 4096 + b"2" * 4096 + b"3" * 9)
""",
        )
        disk.power_loss(random.Random(seed))
        content = files(disk)["a.x"]
        assert len(content) <= 8201
        seen.add((b"1" in content, b"2" in content, b"3" in content))
        if len(content) % 4096 not in (0, 9):
            seen.add((True, True, True, True))
    assert {(False, False, False), (True, False, False), (True, True, True), (True, True, True, True)} <= seen
    assert any(not first and (second or third) for first, second, third, *_ in seen)


def test_a_change_without_its_record_takes_nothing_else_with_it(disk: LossyDisk) -> None:
    """A process may be killed between a change and its record. Whatever a crash keeps of it, synced data stays."""
    run(disk, 'fd = create("a.x"); os.write(fd, b"1" * 9000); os.fsync(fd); sync(".")')
    for seed in range(60):
        with (disk.directory / "a.x").open("ab") as file:
            file.write(b"2" * 9000)
        assert disk.absorb() == 1
        disk.power_loss(random.Random(seed))
        content = files(disk)["a.x"]
        assert content[:9000] == b"1" * 9000
        assert set(content[9000:]) <= set(b"\x002")


def test_a_rename_without_its_record_is_one_step(disk: LossyDisk) -> None:
    run(disk, 'fd = create("a0.x"); os.write(fd, b"1"); os.fsync(fd); sync(".")')
    for seed in range(20):
        [name] = files(disk)
        (disk.directory / name).rename(disk.directory / f"b{seed}.x")
        assert disk.absorb() == 1
        disk.power_loss(random.Random(seed))
        assert list(files(disk).values()) == [b"1"]


def test_a_change_that_the_library_does_not_see_is_an_error(disk: LossyDisk) -> None:
    for name in ("a.x", "b.x", "c.x"):
        (disk.directory / name).write_bytes(b"by somebody else")
    with pytest.raises(LossyError):
        disk.absorb()


def test_syncs_can_be_stopped(disk: LossyDisk) -> None:
    program = 'fd = create("a.x"); os.fsync(fd); print("synced", flush=True)'
    command = [sys.executable, "-c", PROGRAM, str(disk.directory), program]
    with subprocess.Popen(command, env=disk.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with disk.syncs_stopped():
            disk.wait_for_a_sync()
            assert process.poll() is None
        assert process.stdout.readline() == "synced\n"
    assert disk.count_syncs() == 1


# A file of synced zeros, and writes to it synced by the kernel, as a broker syncs small batches.
KERNEL = """
from leveret.store.disk import RealDisk
from leveret.store.kernel_sync import KernelSync
kernel = KernelSync()
file = RealDisk().create("a.x"); file.write(0, [bytes(9)]); file.sync(); sync(".")
"""


@pytest.mark.parametrize(
    ("program", "left"),
    [
        ('file.write(0, [b"one"]); kernel.begin(file); kernel.end(); file.write(3, [b"two"])', b"one\0\0\0\0\0\0"),
        ('file.write(0, [b"one"]); kernel.begin(file); file.write(3, [b"two"]); kernel.end()', b"one\0\0\0\0\0\0"),
    ],
    ids=["after the end", "while it is under way"],
)
def test_the_kernels_own_sync_covers_what_was_written_before_it_began(
    disk: LossyDisk, program: str, left: bytes
) -> None:
    run(disk, KERNEL + program)
    assert files(disk)["a.x"] == b"onetwo\0\0\0"
    assert disk.power_loss() == 1
    assert files(disk)["a.x"] == left


def test_a_sync_of_the_kernel_that_has_not_ended_covers_nothing(disk: LossyDisk) -> None:
    program = KERNEL + 'file.write(0, [b"one"]); input(); kernel.begin(file); print("begun", flush=True); kernel.end()'
    command = [sys.executable, "-c", PROGRAM, str(disk.directory), program]
    environment = disk.environment()
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        until(lambda: disk.count_syncs() == 2)  # the sync of the file and of the directory
        with disk.syncs_stopped():
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"begun\n"
            disk.wait_for_a_sync()
            process.kill()
    assert disk.absorb() == 0
    assert files(disk)["a.x"] == b"one" + bytes(6)
    assert disk.power_loss() == 1
    assert files(disk)["a.x"] == bytes(9)

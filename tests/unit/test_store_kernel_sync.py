"""Syncs carried out by the kernel: completion reports and refusals."""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.store import kernel_sync as module
from leveret.store.disk import DiskFile, MemoryDisk, RealDisk, SyncFailed
from leveret.store.kernel_sync import KernelSync, kernel_sync


@pytest.fixture
def kernel() -> Iterator[KernelSync]:
    made = KernelSync()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DiskFile]:
    created = RealDisk().create(str(tmp_path / "file"))
    yield created
    created.close()


def is_told(kernel: KernelSync, timeout_s: float = 0) -> bool:
    return bool(select.select([kernel], [], [], timeout_s)[0])


def test_it_is_readable_when_a_sync_is_done_and_then_no_more(kernel: KernelSync, file: DiskFile) -> None:
    assert not is_told(kernel)
    for n in range(100):
        file.write(n * 6, [b"%06d" % n])
        kernel.begin(file)
        assert is_told(kernel, 60)
        kernel.end()
        assert not is_told(kernel)


def test_end_waits(kernel: KernelSync, file: DiskFile) -> None:
    for n in range(20):
        file.write(n << 20, [bytes(1 << 20)])
        kernel.begin(file)
        kernel.end()
        assert not is_told(kernel)


def test_a_signal_is_no_failure_of_the_disk(kernel: KernelSync, file: DiskFile) -> None:
    heard: list[int] = []
    is_over = threading.Event()
    here = threading.get_ident()

    def disturb() -> None:
        while not is_over.wait(0.00005):
            signal.pthread_kill(here, signal.SIGUSR1)

    # not SIGALRM: a late one would be taken for pytest's time limit
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        while len(heard) < 100:
            file.write(0, [bytes(1 << 20)])
            kernel.begin(file)
            kernel.end()
    finally:
        is_over.set()
        disturbing.join()
        signal.signal(signal.SIGUSR1, before)
    assert not is_told(kernel)


def test_what_cannot_be_synced_is_refused_and_the_next_is_not(kernel: KernelSync, file: DiskFile) -> None:
    device = RealDisk().open("/dev/null")
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.begin(device)
    device.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.begin(device)
    with pytest.raises(OSError, match="not supported"):
        kernel.begin(MemoryDisk().create("/file"))
    kernel.begin(file)
    kernel.end()


def test_an_error_of_the_disk_is_the_callers(
    kernel: KernelSync, file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.begin(file)
    assert is_told(kernel, 60)
    ask = kernel._ask

    def failed(number: int, *arguments: object) -> None:
        ask(number, *arguments)
        event = arguments[3]
        module._EVENT.pack_into(event, 0, 1, 0, -errno.EIO, 0)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel, "_ask", failed)
    with pytest.raises(SyncFailed) as caught:
        kernel.end()
    assert caught.value.errno == errno.EIO
    monkeypatch.undo()
    kernel.begin(file)
    kernel.end()


def test_a_system_without_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel_sync()
    assert made is not None
    made.close()
    monkeypatch.setattr(module, "_CALLS", {})
    assert kernel_sync() is None
    with pytest.raises(OSError, match="not known"):
        KernelSync()


def test_a_system_that_refuses_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # no system call has this number
    monkeypatch.setattr(module, "_CALLS", {os.uname().machine: (100_000, 0, 0, 0)})
    assert kernel_sync() is None
    with pytest.raises(OSError, match="not implemented"):
        KernelSync()


def test_a_process_in_real_time_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # the kernel's threads would not get processor time
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_RR)
    assert kernel_sync() is None

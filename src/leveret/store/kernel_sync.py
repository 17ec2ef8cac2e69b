"""fdatasync that the kernel carries out while the caller goes on (Linux AIO, IOCB_CMD_FDSYNC; io_submit(2)).

A thread that waits for the disk has to be woken twice, which takes as long as a sync on a fast disk. Here no thread is
woken: a descriptor becomes readable when the sync is done, like a socket.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from typing import Final

from leveret.store.disk import DiskFile, SyncFailed

# numbers of io_setup, io_submit, io_getevents, io_destroy: they have no functions in the C library
_CALLS: Final = {"x86_64": (206, 209, 208, 207), "aarch64": (0, 2, 4, 1), "riscv64": (0, 2, 4, 1)}
# struct iocb of linux/aio_abi.h: data, key, rw_flags, opcode, reqprio, fildes, buf, nbytes, offset, reserved2, flags,
# resfd
_REQUEST: Final = struct.Struct("<QIIHhIQQqQII")
_FDSYNC: Final = 3
_TELL_RESFD: Final = 1
# struct io_event: data, obj, res, res2
_EVENT: Final = struct.Struct("<QQqq")


class KernelSync:
    """One sync at a time. OSError if this system does not support it; then a thread does the same."""

    def __init__(self) -> None:
        if os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR}:
            raise OSError("the kernel's own threads would wait for those with real-time priority")
        if os.uname().machine not in _CALLS or struct.calcsize("P") != 8:
            raise OSError("the numbers of its system calls are not known for this machine")
        self._setup, self._submit, self._getevents, self._destroy = _CALLS[os.uname().machine]
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = ctypes.create_string_buffer(_EVENT.size)
        self._ask(self._setup, ctypes.c_long(1), ctypes.byref(self._context))
        self._told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """A descriptor that becomes readable when a sync that has begun is done."""
        return self._told

    def begin(self, file: DiskFile) -> None:
        """Sync what was written to this file up to now. OSError if the system refuses; then nothing has begun."""
        fields = (1, 0, 0, _FDSYNC, 0, file.descriptor(), 0, 0, 0, 0, _TELL_RESFD, self._told)
        _REQUEST.pack_into(self._request, 0, *fields)
        self._ask(self._submit, self._context, ctypes.c_long(1), self._requests)

    def end(self) -> None:
        """Wait until the sync that has begun is done. SyncFailed if what was written is not on the medium."""
        try:
            self._wait()
            one = ctypes.c_long(1)
            self._ask(self._getevents, self._context, one, one, self._event, None)
        except OSError as error:
            raise SyncFailed(*error.args) from error
        result = _EVENT.unpack(self._event)[2]
        if result < 0:
            raise SyncFailed(-result, os.strerror(-result))

    def _wait(self) -> None:
        """Wait for the descriptor to be readable.

        It is done before io_getevents, which a signal would interrupt, and which may return before the descriptor is
        readable.
        """
        try:
            os.eventfd_read(self._told)
        except BlockingIOError:
            poll = select.poll()
            poll.register(self._told, select.POLLIN)
            poll.poll()
            os.eventfd_read(self._told)

    def close(self) -> None:
        """Release the kernel's context. No sync may be under way."""
        self._ask(self._destroy, self._context)
        os.close(self._told)

    def _ask(self, number: int, *arguments: object) -> None:
        if self._call(ctypes.c_long(number), *arguments) < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


def kernel_sync() -> KernelSync | None:
    """A KernelSync, or None if the system does not support it, or has no more contexts to give."""
    try:
        return KernelSync()
    except (OSError, AttributeError):
        return None

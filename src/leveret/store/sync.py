"""The thread that waits for the disk, so that the event loop never does; and a way to do without it.

This is group commit without a timer: the owner collects what arrives while a batch is being synced, and submits it as
the next batch when `on_done` reports the last one. So on an idle broker a single message is synced at once; under load
the batches grow by themselves to what the disk can take.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from leveret.store.disk import SyncFailed
from leveret.store.journal import Journal, JournalFailed, JournalFull
from leveret.store.kernel_sync import KernelSync
from leveret.store.reserve import Reserve

# A payload is bytes, or parts that are joined. A batch: its id, its payload, the snapshot to rotate with afterwards.
Payload = bytes | Sequence[bytes]
_Batch = tuple[int, Payload, Payload | None]
# A call between two batches. Its argument is False if the last batch waits for room.
_Look = Callable[[bool], None]
# A request to the thread: a batch, the number of the first file to keep, a look at the journal, or None to stop.
_Request = _Batch | int | _Look | None


class SyncWork:
    """A journal's appends, rotations and removals, carried out in the order of submission by the caller of `perform`.

    `on_done(batch_id, error)` is called there when a batch is on the medium (error None) or will never be (the
    exception; every later batch fails, too). It must not raise, and should only hand over to another thread.

    On a full disk the batch waits, `on_done` gets a JournalFull, and `retry` writes it again. Batches submitted later
    wait behind it. Spare files and the `reserve` are released first; `retry` fills the reserve again.
    """

    def __init__(
        self, journal: Journal, on_done: Callable[[int, Exception | None], None], reserve: Reserve | None = None,
        kernel: KernelSync | None = None,
    ) -> None:  # fmt: skip
        self._journal = journal
        self._on_done = on_done
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        self._is_stopped = False
        self.saves_room = False  # set by the owner while the disk is nearly full: spare files are deleted
        self._reserve = reserve
        self._unwritten: deque[_Batch] = deque()
        self._turn = threading.Lock()  # held by the thread that uses the journal
        self._appended: int | None = None
        self.took_us = 0  # how long the last reported append took
        self.kernel = kernel  # for `begin` and `end`; None = only the thread syncs
        self._begun: int | None = None  # the batch that the kernel syncs
        self._began_ns = 0
        self._is_refused = False  # the kernel cannot sync this journal, so it need not be asked again
        self._holds = False  # a backup runs: files that are no longer needed stay
        self._first_to_keep = 0

    @property
    def has_begun(self) -> bool:
        """Whether the kernel is syncing a batch."""
        return self._begun is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits to be carried out."""
        return not self._requests.empty()

    def submit(self, batch_id: int, payload: Payload, rotate_snapshot: Payload | None = None) -> None:
        """Append `payload` (nothing if it is empty), then, with a snapshot, begin a new file; report both as one.

        The payload goes into the file that is current now, and batches submitted later into the new one, so the
        snapshot is the state INCLUDING this payload's records. RuntimeError after `stop`.
        """
        if self._is_stopped:
            raise RuntimeError("the sync thread has been stopped")
        self._requests.put((batch_id, payload, rotate_snapshot))

    def begin(self, batch_id: int, payload: Payload) -> bool:
        """Write `payload` on the caller's thread, and let the kernel sync it; returns whether that was begun.

        It is not unless nothing else is under way and the kernel can do it. When `kernel` is readable, `end` must be
        called on the same thread. This saves waking another thread twice, which takes about as long as a sync.
        """
        if self.kernel is None or self._is_refused or self._is_stopped or self._unwritten or not self._requests.empty():
            return False
        if not self._turn.acquire(blocking=False):
            return False
        self._began_ns = time.perf_counter_ns()
        if not self._begin(payload, self.kernel):
            self._turn.release()
            return False
        self._begun = batch_id
        return True

    def _begin(self, payload: Payload, kernel: KernelSync) -> bool:
        try:
            file = self._journal.begin(payload)
        except Exception:  # whatever the error is, the thread meets it again, and handles it
            return False
        try:
            kernel.begin(file)
        except OSError:
            self._is_refused = True
            return False
        return True

    def end(self) -> None:
        """Wait until the batch that has begun, if any, is on the medium or has failed, and report it."""
        if self.kernel is None or self._begun is None:
            return
        failure: SyncFailed | None = None
        try:
            self.kernel.end()
        except SyncFailed as error:
            failure = error
        batch_id, self._begun = self._begun, None
        ended: Exception | None = None
        try:
            self._journal.end(failure)
        except JournalFailed as error:
            ended = error
        self.took_us = (time.perf_counter_ns() - self._began_ns) // 1000
        self._turn.release()
        self._on_done(batch_id, ended)

    def remove_before(self, number: int) -> None:
        """Remove the journal's files older than `number`, in turn with the batches; never the current one.

        A file that cannot be deleted stays and is still in `Journal.files`: it costs disk space, not messages.
        """
        self._requests.put(number)

    def retry(self) -> None:
        """Write the batch that waits for room, and fill the reserve; called when there may be room again."""
        self._requests.put(0)

    def hold(self, look: Callable[[bool], None]) -> None:
        """Call `look` between two batches, and remove no file of the journal from then on until `release`.

        Its argument says whether everything submitted before is on the medium. It must not raise. RuntimeError after
        `stop`.
        """
        if self._is_stopped:
            raise RuntimeError("the sync thread has been stopped")
        self._requests.put(look)

    def release(self) -> None:
        """Remove files again, beginning with those whose removal was postponed."""
        self._holds = False
        self.retry()

    def perform(self) -> bool:
        """Carry out the next request, waiting for one; False if it was the last."""
        request = self._requests.get()
        if request is None:
            return False
        with self._turn:
            self._carry_out(request)
        return True

    def _carry_out(self, request: _Batch | int | _Look) -> None:
        if callable(request):
            self._holds = True
            request(not self._unwritten)
        elif isinstance(request, int):
            self._first_to_keep = max(self._first_to_keep, request)
            while self._unwritten and self._write(self._unwritten[0]):
                self._unwritten.popleft()
            # a file is removed only after the batch is written that makes it superfluous
            if not self._unwritten:
                self._remove_before(self._first_to_keep)
                if self.saves_room:
                    self._journal.drop_spares()
                if self._reserve is not None:
                    self._reserve.fill()
        elif self._unwritten or not self._write(request):
            self._unwritten.append(request)

    def _write(self, batch: _Batch) -> bool:
        """Write a batch and report it; False if it has to wait for room."""
        batch_id, payload, snapshot = batch
        error: Exception | None = None
        try:
            if payload and self._appended != batch_id:
                began_ns = time.perf_counter_ns()
                self._journal.append(payload)
                self.took_us = (time.perf_counter_ns() - began_ns) // 1000
                self._appended = batch_id  # if the rotation finds no room it is tried again without the append
            if snapshot is not None:
                self._journal.rotate(snapshot)
        except JournalFull as full:
            if full.has_made_room or (self._reserve is not None and self._reserve.release()):
                return self._write(batch)
            self._on_done(batch_id, full)
            return False
        except Exception as failure:  # whatever the error is, waiting publishers must not get a confirm
            error = failure
        self._on_done(batch_id, error)
        return True

    def _remove_before(self, number: int) -> None:
        if self._holds:
            return
        for oldest in self._journal.files():
            if oldest >= min(number, self._journal.current):
                return
            try:
                self._journal.remove(oldest)
            except (OSError, JournalFailed):
                return


class SyncThread(SyncWork):
    """SyncWork on a thread of its own, which calls `on_done`."""

    def __init__(
        self, journal: Journal, on_done: Callable[[int, Exception | None], None], reserve: Reserve | None = None,
        kernel: KernelSync | None = None,
    ) -> None:  # fmt: skip
        super().__init__(journal, on_done, reserve, kernel)
        self._thread = threading.Thread(target=self._run, name="leveret-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what was submitted, and return when the thread has ended. A second call does nothing.

        A batch that waits for room is given up.
        """
        if not self._is_stopped:
            self._is_stopped = True
            self.end()  # the thread may wait for it
            self._requests.put(None)
            self._thread.join()
            if self.kernel is not None:
                self.kernel.close()

    def _run(self) -> None:
        while self.perform():
            pass

"""The one thread that waits for the disk, so that the event loop never does; and how to do without it.

Group commit without a timer: the owner collects what arrives while a batch is being synced, and submits it as the next
batch when `on_done` reports the last. On an idle broker a single message is therefore synced at once; under load the
batches grow by themselves to what the disk can take.
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

# A batch: its id, its payload, the snapshot to rotate with afterwards.
# one, or parts that are joined
Payload = bytes | Sequence[bytes]
_Batch = tuple[int, Payload, Payload | None]
# Who wants to look at the journal between two batches; False: the last one waits for room.
_Look = Callable[[bool], None]
# What is asked of the thread: a batch, the first file to keep, a look, or None: stop.
_Request = _Batch | int | _Look | None


class SyncWork:
    """A journal's appends, rotations and removals, carried out in the order of submission by whoever calls `perform`.

    `on_done(batch_id, error)` is called there when a batch is on the medium (error None) or will never be (the
    exception; every later batch fails, too). It must not raise, and should only hand over to another thread.

    On a full disk the batch waits, `on_done` is told so by a JournalFull, and `retry` writes it again. What is
    submitted later waits behind it. Spare files and the `reserve` are given up first; `retry` fills it again.

    took_us: how long the last append took that was reported. kernel: for `begin` and `end`, None = there is only the
    thread.
    """

    def __init__(
        self, journal: Journal, on_done: Callable[[int, Exception | None], None], reserve: Reserve | None = None,
        kernel: KernelSync | None = None,
    ) -> None:  # fmt: skip
        self._journal = journal
        self._on_done = on_done
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        self._is_stopped = False
        self.saves_room = False  # set by the owner while the disk is nearly full: spare files go
        self._reserve = reserve
        self._unwritten: deque[_Batch] = deque()
        self._turn = threading.Lock()  # held by who is at the journal
        self._appended: int | None = None
        self.took_us = 0
        self.kernel = kernel
        self._begun: int | None = None  # the batch that the kernel syncs
        self._began_ns = 0
        self._is_refused = False  # the kernel can't sync this journal: it need not be asked again
        self._holds = False  # files that are not needed any more stay
        self._first_to_keep = 0

    @property
    def has_begun(self) -> bool:
        """The kernel syncs a batch."""
        return self._begun is not None

    @property
    def is_waiting(self) -> bool:
        """A request waits to be carried out."""
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
        """Write `payload` on the caller's thread and let the kernel sync it; False, and nothing is done, unless all is
        idle and the kernel can. When `kernel` is readable, `end` must be called on the same thread.

        It saves waking another thread twice, which takes about as long as a sync.
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
        except Exception:  # whatever it is, the thread meets it again, and knows what follows
            return False
        try:
            kernel.begin(file)
        except OSError:
            self._is_refused = True
            return False
        return True

    def end(self) -> None:
        """Report the batch that has begun, if one has; returns when it is on the medium, or never will be."""
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
        """Take out the journal's files older than `number`, in turn with the batches; never the current one.

        A file that can't be deleted stays and is still in `Journal.files`: it costs disk, not messages.
        """
        self._requests.put(number)

    def retry(self) -> None:
        """There may be room again: write the batch that waits for it, and fill the reserve."""
        self._requests.put(0)

    def hold(self, look: Callable[[bool], None]) -> None:
        """Call `look` between two batches, and remove no file of the journal from then on until `release`.

        look is told whether all that was submitted before is on the medium, and must not raise. RuntimeError after
        `stop`.
        """
        if self._is_stopped:
            raise RuntimeError("the sync thread has been stopped")
        self._requests.put(look)

    def release(self) -> None:
        """Files may go again, and those that were to go meanwhile do."""
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
            # A file goes only when the batch is written that makes it superfluous.
            if not self._unwritten:
                self._remove_before(self._first_to_keep)
                if self.saves_room:
                    self._journal.drop_spares()
                if self._reserve is not None:
                    self._reserve.fill()
        elif self._unwritten or not self._write(request):
            self._unwritten.append(request)

    def _write(self, batch: _Batch) -> bool:
        """Write and report; False if the batch has to wait for room."""
        batch_id, payload, snapshot = batch
        error: Exception | None = None
        try:
            if payload and self._appended != batch_id:
                began_ns = time.perf_counter_ns()
                self._journal.append(payload)
                self.took_us = (time.perf_counter_ns() - began_ns) // 1000
                self._appended = batch_id  # a rotation that finds no room is tried again without it
            if snapshot is not None:
                self._journal.rotate(snapshot)
        except JournalFull as full:
            if full.has_made_room or (self._reserve is not None and self._reserve.release()):
                return self._write(batch)
            self._on_done(batch_id, full)
            return False
        except Exception as failure:  # whatever it is, the waiting publishers must not be told "done"
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
    """The same on a thread of its own, which calls `on_done`."""

    def __init__(
        self, journal: Journal, on_done: Callable[[int, Exception | None], None], reserve: Reserve | None = None,
        kernel: KernelSync | None = None,
    ) -> None:  # fmt: skip
        super().__init__(journal, on_done, reserve, kernel)
        self._thread = threading.Thread(target=self._run, name="leveret-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what was submitted and end the thread; returns when it has ended. A second call does nothing.

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

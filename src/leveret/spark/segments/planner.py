"""Plans tasks for the sealed files of a stream's range, in the driver's Python process."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.client.protocol.url import parse_url
from leveret.client.segments.api import NotThere, StreamApi
from leveret.client.segments.errors import SealedFileDamaged, SegmentsUnavailable
from leveret.client.segments.ranged import RangedFile
from leveret.spark.segments.files import SealedFile, covering, listed, named
from leveret.spark.segments.lease import StreamLease
from leveret.spark.segments.options import AMQP, HTTP, PATH, SegmentOptions
from leveret.spark.segments.pruning import EVERYTHING, Pruning
from leveret.spark.segments.task import SealedTask

ROWS_PER_TASK: Final = 524_288
"""Approximate rows of a task by default: about a second's work."""
_FOOTERS_MAX: Final = 1024

Facts = dict[str, Any]


class SealedPlanner:
    """The sealed part of one stream. It connects only when called; only constructor arguments are pickled."""

    def __init__(self, url: str, options: SegmentOptions, stream: str) -> None:
        self._url = url
        self._options = options
        self._stream = stream
        vhost = parse_url(url).vhost
        self._api = None if options.api_url is None else StreamApi.of(options.api_url, url, vhost, stream)
        self._forget()

    def _forget(self) -> None:
        self._creation = ""
        self._files: list[SealedFile] = []
        self._groups: dict[str, list[int]] = {}
        self._lease: StreamLease | None = None

    def __getstate__(self) -> tuple[str, SegmentOptions, str]:
        return self._url, self._options, self._stream

    def __setstate__(self, state: tuple[str, SegmentOptions, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def plan(
        self, facts: Facts, start: int, end: int, min_partitions: int = 1, pruning: Pruning = EVERYTHING
    ) -> list[SealedTask]:
        """Plan tasks that read the messages from `start` on, in order, as far as sealed files reach without a gap.

        They end at `end` or earlier; the list is empty if all messages must be read over AMQP. facts: result of
        BlockingChannel.stream_facts. min_partitions: least number of tasks, if there are enough rows. Raises
        SegmentsUnavailable if option segments requires what is not available.
        """
        end = min(end, facts["sealed_offset"])
        if self._options.segments == AMQP or start >= end:
            return []
        files = covering(self._known(facts, start, end), start, end)
        if not files:
            return []
        end = min(end, files[-1].last + 1)
        tasks_min = max(min_partitions, -(-(end - start) // ROWS_PER_TASK))
        bounds = self._bounds(files, start, end, min(tasks_min, end - start))
        lease = None if self._lease is None else self._lease.id
        tasks = []
        for first, stop in pairwise(bounds):
            own = tuple(covering(files, first, stop))
            tasks.append(SealedTask(self._stream, first, stop, own, self._options.segments, self._api, lease, pruning))
        return tasks

    @staticmethod
    def planned_until(tasks: list[SealedTask], start: int) -> int:
        """Return the offset after the last message of these tasks, `start` without tasks."""
        return tasks[-1].end if tasks else start

    def hold(self, facts: Facts, first: int) -> None:
        """Have the broker keep all messages from `first` on, if option apiUrl is set; may be called at any rate.

        Raises SegmentsUnavailable if the API refuses or is unreachable.
        """
        if self._api is None or self._options.segments == AMQP:
            return
        if self._lease is None:
            self._lease = StreamLease(self._api)
        self._lease.hold(first)

    def close(self) -> None:
        """End the lease."""
        if self._lease is not None:
            self._lease.release()

    # -- files ---------------------------------------------------------------------------------------------------------

    def _known(self, facts: Facts, start: int, end: int) -> list[SealedFile]:
        """Return the stream's files; they are listed again only if the known ones do not reach `end`."""
        if facts["creation"] != self._creation:
            self._creation, self._files, self._groups = facts["creation"], [], {}
        self._files = [file for file in self._files if file.last >= facts["first_offset"]]
        found = covering(self._files, start, end)
        if not found or found[-1].last + 1 < end:
            self._files = self._found(facts)
        return self._files

    def _found(self, facts: Facts) -> list[SealedFile]:
        mode = self._options.segments
        if mode != HTTP:
            try:
                files = listed(self._directory(facts), self._creation)
            except OSError as error:
                files = []
                if mode == PATH:
                    raise SegmentsUnavailable(
                        f"option segments=path: the tables of stream {self._stream!r} can't be read here"
                        f" ({error.strerror or error}: {error.filename}); option tablesDir says where they are, option"
                        " apiUrl where they are served"
                    ) from error
            if files or mode == PATH or self._api is None:
                return files
        assert self._api is not None  # the options require it for segments=http
        try:
            rows = self._api.segments()
        except NotThere:
            raise SegmentsUnavailable(
                f"the HTTP API at {self._api.url} (option apiUrl) knows no stream {self._stream!r}: does it belong to "
                "the same broker?"
            ) from None
        served = [named(row["file"], self._creation, None, row["size_bytes"]) for row in rows]
        return sorted(file for file in served if file is not None)

    def _directory(self, facts: Facts) -> str:
        """Return the directory of the stream's files as this machine sees it."""
        told: str | None = facts["tables_dir"]
        if told is None:
            raise FileNotFoundError(2, "the broker does not write tables", self._stream)
        if self._options.tables_dir is None:
            return told
        vhost, stream = told.split("/")[-2:]
        return os.path.join(self._options.tables_dir, vhost, stream)

    # -- cutting -------------------------------------------------------------------------------------------------------

    def _bounds(self, files: list[SealedFile], start: int, end: int, tasks: int) -> list[int]:
        """Return the bounds of this many tasks of about equal length, moved to a near file or row group boundary if
        possible."""
        size = (end - start) / tasks
        marks: list[int] = []
        for file in files:
            marks += [file.first] if file.last - file.first < size else self._row_groups(file)
        bounds = [start]
        for number in range(1, tasks):
            goal = start + (end - start) * number // tasks
            at = bisect_left(marks, goal)
            near = min(marks[max(0, at - 1) : at + 1], key=lambda mark: abs(mark - goal))
            bounds.append(near if abs(near - goal) <= size / 3 and start < near < end else goal)
        return [*bounds, end]

    def _row_groups(self, file: SealedFile) -> Iterable[int]:
        """Return the offsets at which a file's row groups begin."""
        if file.name not in self._groups:
            if len(self._groups) >= _FOOTERS_MAX:
                self._groups.clear()
            try:
                with self._opened(file) as source:
                    metadata = pq.read_metadata(source)
            except FileNotFoundError:
                return [file.first]  # the task will raise SegmentGone
            except pa.ArrowException as error:
                raise SealedFileDamaged(file.name, str(error)) from error
            sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
            self._groups[file.name] = [file.first + sum(sizes[:index]) for index in range(len(sizes))]
        return self._groups[file.name]

    def _opened(self, file: SealedFile) -> Any:
        if file.path is not None:
            return pa.OSFile(file.path)
        assert self._api is not None  # it listed the file
        return RangedFile(self._api, file.name)

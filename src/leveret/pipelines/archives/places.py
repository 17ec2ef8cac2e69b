"""The locations of an archive: its tables, its state, and each source's checkpoint, spool and lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from leveret.pipelines.archives.batches import STATE
from leveret.pipelines.archives.checkpoints import Checkpoint
from leveret.pipelines.archives.lake import ICEBERG
from leveret.pipelines.archives.sources import QUEUE, ArchiveSource
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.errors import PipelineError


@dataclass(frozen=True)
class LakeLocations:
    """The locations of a lake.

    Attributes:
        form: form of the lake.
        lake, dead: the tables, as Spark names them.
        state: where notes and, for Parquet, files are.
        dead_files: where the files of dead letters are, for Parquet.
        checkpoint, spool: directories with a subdirectory per source; None for within ``state``.
    """

    form: str
    lake: str
    dead: str
    state: Storage
    dead_files: Storage
    checkpoint: str | None = None
    spool: str | None = None

    @staticmethod
    def of(lake: str, form: str, dead: str | None, checkpoint: str | None, spool: str | None) -> LakeLocations:
        """Return the locations of a lake.

        Raises:
            PipelineError: a location is unusable or missing.
        """
        if form == ICEBERG:
            if checkpoint is None:
                raise PipelineError(f"{lake} is the name of a table: set checkpoint, a directory for everything else")
            state = Storage.at(checkpoint)
            return LakeLocations(form, lake, dead or f"{lake}_dead_letters", state, state, checkpoint, spool)
        state = Storage.at(lake)
        dead_files = Storage.at(dead) if dead else state.beside("_dead_letters")
        return LakeLocations(form, state.spark(), dead_files.spark(), state, dead_files, checkpoint, spool)

    def checkpoint_of(self, source: ArchiveSource) -> Checkpoint:
        """Return Spark's checkpoint of the query that archives this source."""
        if self.checkpoint is not None:
            return Checkpoint(Storage.at(self.checkpoint).below(source.slug))
        return Checkpoint(self.state.below(f"{STATE}/{source.slug}/checkpoint"))

    def spool_of(self, source: ArchiveSource) -> str:
        """Return the spool directory of a queue, '' for a stream.

        Raises:
            PipelineError: it must be given, since a spool cannot be in an object store.
        """
        if source.kind != QUEUE:
            return ""
        if self.spool is not None:
            return os.path.join(os.path.abspath(self.spool), source.slug)
        if not self.state.is_local:
            raise PipelineError(
                f"queue {source.name!r}: set spool_dir, a directory that driver and executors share, since "
                f"{self.state.location} is not one"
            )
        return f"{self.state.root}/{STATE}/{source.slug}/spool"

    @contextmanager
    def held(self, slug: str) -> Iterator[None]:
        """Lock the source of this name in the lake, for this process; stores that are not local have no locks.

        Raises:
            PipelineError: another process has locked it.
        """
        if not self.state.is_local:
            yield
            return
        import fcntl  # missing on some platforms

        home = f"{STATE}/{slug}"
        self.state.make_directory(home)
        descriptor = os.open(f"{self.state.root}/{home}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PipelineError(
                f"{slug} is being archived into {self.state.location} by another process: stop that process first"
            ) from None
        try:
            yield
        finally:
            os.close(descriptor)

"""Where everything of an archive is: its tables, its state, each source's checkpoint, spool and lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from leveret.pipelines.archives.batches import STATE
from leveret.pipelines.archives.checkpoints import Checkpoint
from leveret.pipelines.archives.lake import ICEBERG
from leveret.pipelines.archives.sources import QUEUE, Source
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.errors import PipelineError


@dataclass(frozen=True)
class Places:
    """form: of the lake; lake, dead: its tables, as Spark calls them; state: where notes and, for Parquet, files are;
    dead_files: where the files of dead letters are, for Parquet.

    checkpoint, spool: directories with one of their own for each source; None = beside the notes.
    """

    form: str
    lake: str
    dead: str
    state: Storage
    dead_files: Storage
    checkpoint: str | None = None
    spool: str | None = None

    @staticmethod
    def of(lake: str, form: str, dead: str | None, checkpoint: str | None, spool: str | None) -> Places:
        """The places of a lake.

        Raises:
            PipelineError: a place can't be used, or is missing.
        """
        if form == ICEBERG:
            if checkpoint is None:
                raise PipelineError(f"{lake} is the name of a table: set checkpoint, a directory for everything else")
            state = Storage.at(checkpoint)
            return Places(form, lake, dead or f"{lake}_dead_letters", state, state, checkpoint, spool)
        state = Storage.at(lake)
        dead_files = Storage.at(dead) if dead else state.beside("_dead_letters")
        return Places(form, state.spark(), dead_files.spark(), state, dead_files, checkpoint, spool)

    def checkpoint_of(self, source: Source) -> Checkpoint:
        """Spark's checkpoint of the query that archives this source."""
        if self.checkpoint is not None:
            return Checkpoint(Storage.at(self.checkpoint).below(source.slug))
        return Checkpoint(self.state.below(f"{STATE}/{source.slug}/checkpoint"))

    def spool_of(self, source: Source) -> str:
        """The directory through which the messages of a queue go; '' for a stream.

        Raises:
            PipelineError: it must be said, for a spool is a directory of hosts and not of an object store.
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
        """The source of this name in the lake, for this process alone. Stores that are not local can't tell who lives.

        Raises:
            PipelineError: another process has it.
        """
        if not self.state.is_local:
            yield
            return
        import fcntl  # not everywhere

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

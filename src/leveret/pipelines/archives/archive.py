"""The pipeline ``archive``: copies streams and queues into a lake, each message once. See
docs/guides/spark/archive.md."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leveret.client.protocol.url import parse_url
from leveret.pipelines.archives import tables
from leveret.pipelines.archives.batches import DEAD, LAKE, STATE, ArchiveBatches, totals
from leveret.pipelines.archives.following import Followed, follow_all
from leveret.pipelines.archives.lake import FORMS, ICEBERG, PARQUET, PARTITION_COLUMNS, Identity
from leveret.pipelines.archives.merging import MIB, MergeSizes, Merging
from leveret.pipelines.archives.parsing import Parsing
from leveret.pipelines.archives.places import LakeLocations
from leveret.pipelines.archives.rows import source_columns
from leveret.pipelines.archives.schemas import Schemas
from leveret.pipelines.archives.sources import QUEUE, STREAM, ArchiveSource
from leveret.pipelines.archives.tasks import TaskSource
from leveret.pipelines.archives.telling import by_partition, by_source
from leveret.pipelines.archives.writing import ParquetSink, at_work
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Table
from leveret.spark.options import URL_DEFAULT
from leveret.spark.source import LeveretDataSource

PARSES: Final = ("json",)


def archive(
    spark: SparkSession,
    lake: str,
    *,
    url: str = URL_DEFAULT,
    streams: Sequence[str] = (),
    queues: Sequence[str] = (),
    broker: str | None = None,
    form: str = PARQUET,
    partition_by: Sequence[str] = ("day", "exchange"),
    parse: str | None = None,
    exact: bool = False,
    follow: bool = False,
    compact_only: bool = False,
    checkpoint: str | None = None,
    dead_letters: str | None = None,
    spool_dir: str | None = None,
    options: Mapping[str, str] | None = None,
    max_fields: int = 1000,
    max_rows_per_trigger: int = 500_000,
    compact_files: int = 8,
    compact_below_mib: int = 32,
    compact_to_mib: int = 128,
    trigger_s: float = 10.0,
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Summary:
    """Archive the messages of streams and queues in a lake, each once; with ``follow``, also those that arrive later.

    Args:
        spark: the session.
        lake: directory or URI; for Iceberg the name of a table, ``catalog.database.table``.
        url: the broker, as driver and executors reach it.
        streams: names of streams, which keep their messages.
        queues: names of queues, whose messages are taken away.
        broker: the broker's name in rows and file names, by default its host and port. It must stay the same.
        form: ``parquet``, ``delta`` or ``iceberg``.
        partition_by: any of ``day``, ``exchange``, ``source`` and ``broker``; must not change for an existing lake.
        parse: ``json``: rows have ``data``, and bodies that cannot be parsed go to the dead-letter table.
        exact: whether rows have ``content_header``, the exact octets of the properties.
        follow: go on until the reporter requests the end.
        compact_only: read nothing, and merge all small files of the lake.
        checkpoint: directory or URI for Spark's checkpoints, by default within the lake.
        dead_letters: the dead-letter table, by default the lake's name with ``_dead_letters`` appended.
        spool_dir: directory that driver and executors share, for queues; by default within a local lake.
        options: more options of ``format("leveret")``, for all sources.
        max_fields: most fields that ``data`` may have.
        max_rows_per_trigger: most messages of a micro-batch.
        compact_files: number of small files of about the same size that triggers a merge.
        compact_below_mib: size below which a file counts as small; 0 disables merging.
        compact_to_mib: largest size of merged files.
        trigger_s: with ``follow``, seconds between micro-batches.
        dry_run: count the waiting messages, and change nothing.
        reporter: receives the progress.

    Raises:
        PipelineError: wrong options; the broker, a source or the lake is unusable; a query failed.
    """
    asked = _Asked(
        spark=spark, form=form, partition_by=tuple(partition_by), is_exact=exact,
        parsing=None if parse is None else Parsing(max_fields),
        sizes=MergeSizes(compact_below_mib * MIB, compact_to_mib * MIB, compact_files),
        trigger={"processingTime": f"{trigger_s} seconds"} if follow else {"availableNow": True},
        reporter=reporter or Reporter(),
    )  # fmt: skip
    _check(asked, parse, [*streams, *queues], compact_only)
    places = LakeLocations.of(lake, form, dead_letters, checkpoint, spool_dir)
    if form != PARQUET:
        tables.require(spark, form)
    settings = {**(options or {}), "maxRowsPerTrigger": str(max_rows_per_trigger)}
    sources = _sources(url, streams, queues, broker, settings)
    try:
        if compact_only:
            return _compacted(asked, places, dry_run)
        waiting = [one.waiting(places.checkpoint_of(one).done(), places.spool_of(one)) for one in sources]
        if dry_run:
            return _planned(places, sources, waiting)
        return _archived(asked, places, sources, waiting)
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"the lake {lake} can't be used: {error}") from error


@dataclass(frozen=True)
class _Asked:
    """The arguments of a run that do not depend on its sources."""

    spark: SparkSession
    form: str
    partition_by: tuple[str, ...]
    is_exact: bool
    parsing: Parsing | None
    sizes: MergeSizes
    trigger: Mapping[str, Any]
    reporter: Reporter

    @property
    def is_merging(self) -> bool:
        return self.sizes.below_octets > 0

    @property
    def is_local(self) -> bool:
        """Whether foreachBatch runs in this process, not on a Connect server."""
        return not type(self.spark).__module__.startswith("pyspark.sql.connect")


def _check(asked: _Asked, parse: str | None, names: Sequence[str], compact_only: bool) -> None:
    if asked.form not in FORMS:
        raise PipelineError(f"form must be one of {', '.join(FORMS)}, not {asked.form!r}")
    if parse is not None and parse not in PARSES:
        raise PipelineError(f"parse must be one of {', '.join(PARSES)}, not {parse!r}")
    if unknown := [name for name in asked.partition_by if name not in PARTITION_COLUMNS]:
        raise PipelineError(f"partition_by can't be {unknown[0]!r}; it can be any of {', '.join(PARTITION_COLUMNS)}")
    if len(set(asked.partition_by)) < len(asked.partition_by):
        raise PipelineError(f"partition_by names a column twice: {', '.join(asked.partition_by)}")
    if bool(names) == compact_only:
        what = "compact_only reads no" if compact_only else "name at least one"
        raise PipelineError(f"{what} stream or queue")
    if len(set(names)) < len(names):
        raise PipelineError("a stream or queue is named twice")
    sizes = asked.sizes
    if sizes.files_min < 2:
        raise PipelineError(f"compact_files must be 2 or more, not {sizes.files_min}")
    if not 0 <= sizes.below_octets <= sizes.target_octets:
        raise PipelineError("compact_below_mib must be from 0 (merge nothing) to compact_to_mib")


def _sources(
    url: str, streams: Sequence[str], queues: Sequence[str], broker: str | None, options: Mapping[str, str]
) -> list[ArchiveSource]:
    try:
        address = parse_url(url)
    except ValueError as error:
        raise PipelineError(f"url: {error}") from error
    name = broker or f"{address.host}:{address.port}"
    kinds = [*((STREAM, each) for each in streams), *((QUEUE, each) for each in queues)]
    return [ArchiveSource(kind, each, url, name, options) for kind, each in kinds]


def _planned(places: LakeLocations, sources: Sequence[ArchiveSource], waiting: Sequence[int]) -> Summary:
    rows = tuple((one.name, one.kind, count, places.checkpoint_of(one).last() + 1)
                 for one, count in zip(sources, waiting, strict=True))  # fmt: skip
    columns = ("source", "kind", "messages waiting", "micro-batches before")
    note = f"They would go to {places.lake}, and what can't be parsed to {places.dead}."
    return Summary("archive", {"messages_waiting": sum(waiting)}, (Table("sources", columns, rows),), (note,),
                   is_dry=True)  # fmt: skip


def _archived(
    asked: _Asked, places: LakeLocations, sources: Sequence[ArchiveSource], waiting: Sequence[int]
) -> Summary:
    began_s = time.monotonic()
    Identity(asked.form, asked.partition_by).claim(places.state)
    Schemas(places.state).grow(lambda newest: replace(newest, is_exact=newest.is_exact or asked.is_exact))
    with ExitStack() as held:
        followed = []
        for source, count in zip(sources, waiting, strict=True):
            held.enter_context(places.held(source.slug))
            followed.append(_recovered(asked, places, source, count))
        asked.reporter.phase(f"{sum(waiting):,} messages are waiting and go to {places.lake}")
        try:
            for one in followed:
                one.begin(_started(asked, places, one.source))
            follow_all(followed, asked.reporter)
        finally:
            for one in followed:
                one.stop()
                _settle(asked, places, one.source)
        if asked.form != PARQUET and asked.is_merging and any(one.rows for one in followed):
            asked.reporter.phase("small files are merged")
            tables.compact(asked.spark, asked.form, places.lake)
    return _summary(asked, places, followed, time.monotonic() - began_s)


def _recovered(asked: _Asked, places: LakeLocations, source: ArchiveSource, waiting: int) -> Followed:
    """Complete the last run of a source, and return the source ready to be followed."""
    if asked.form != PARQUET:
        return Followed(source, waiting, None, None)
    batches, merging = _batches(places, source.slug), Merging(source.slug, places.state, asked.sizes)
    last, planned = max(batches.numbers(), default=-1), places.checkpoint_of(source).last()
    if last > planned:
        raise PipelineError(
            f"{places.lake} has batch {last} of {source.name!r}, but its checkpoint "
            f"{places.checkpoint_of(source).location} has only {planned + 1} batches: use the checkpoint with which "
            "the lake was filled, or name another lake"
        )
    batches.recover()
    merging.recover()
    return Followed(source, waiting, batches, merging if asked.is_merging else None)


def _batches(places: LakeLocations, slug: str) -> ArchiveBatches:
    return ArchiveBatches(slug, {LAKE: places.state, DEAD: places.dead_files})


def _started(asked: _Asked, places: LakeLocations, source: ArchiveSource) -> StreamingQuery:
    options = source.reader_options(places.spool_of(source))
    columns = ",".join(source_columns(source, asked.is_exact))
    checkpoint = places.checkpoint_of(source)
    try:
        asked.spark.dataSource.register(TaskSource)
        kind = TaskSource if asked.form == PARQUET else LeveretDataSource
        frame = asked.spark.readStream.format(kind.name()).options(**options).option("columns", columns).load()
        writer = frame.writeStream.queryName(f"archive {source.name} into {places.lake}")
        writer = writer.option("checkpointLocation", checkpoint.location).trigger(**asked.trigger)
        return writer.foreachBatch(_sink(asked, places, source)).start()
    except Exception as error:
        raise PipelineError(f"{source.kind} {source.name!r} can't be read: {cause(error)}") from error


def _sink(asked: _Asked, places: LakeLocations, source: ArchiveSource) -> ParquetSink | tables.TableSink:
    checkpoint = places.checkpoint_of(source)
    if asked.form == PARQUET:
        return ParquetSink(source, places.state, places.dead_files, checkpoint, asked.partition_by, asked.parsing,
                           asked.is_exact)  # fmt: skip
    lake, dead = places.lake, places.dead
    if asked.form != ICEBERG:
        lake, dead = lake.removeprefix("file://"), dead.removeprefix("file://")
    return tables.TableSink(source, asked.form, lake, dead, places.state, checkpoint, asked.partition_by, asked.parsing,
                            asked.is_exact)  # fmt: skip


def _settle(asked: _Asked, places: LakeLocations, source: ArchiveSource) -> None:
    """Wait for the batch during which a query was stopped, and complete it."""
    if not asked.is_local:
        return
    with at_work(f"{places.state.location} {source.slug}"):
        if asked.form == PARQUET:
            _batches(places, source.slug).recover()


def _compacted(asked: _Asked, places: LakeLocations, dry_run: bool) -> Summary:
    """Merge the small files of a lake that no run writes to."""
    identity = Identity.of(places.state)
    if identity is None:
        raise PipelineError(f"{places.lake} is not a lake, so there is nothing to merge")
    if asked.form != PARQUET:
        if not dry_run:
            tables.compact(asked.spark, asked.form, places.lake)
        return Summary("archive", {}, notes=(f"{places.lake} is merged by {asked.form}'s own means",), is_dry=dry_run)
    began_s = time.monotonic()
    replaced = merged = 0
    for slug in places.state.names(STATE):
        if not places.state.exists(f"{STATE}/{slug}/batches"):
            continue
        merging = Merging(slug, places.state, asked.sizes)
        if dry_run:
            counts = [merging.planned(partition) for partition in merging.partitions()]
        else:
            with places.held(slug):
                _batches(places, slug).recover()
                merging.recover()
                counts = [merging.run(partition, all_tiers=True) for partition in merging.partitions()]
        replaced, merged = replaced + sum(one for one, _ in counts), merged + sum(other for _, other in counts)
        asked.reporter.show("merged", replaced)
    figures = {"merged_files": replaced, "files_from_them": merged, "seconds": round(time.monotonic() - began_s, 3)}
    return Summary("archive", dict(figures), is_dry=dry_run)


def _summary(asked: _Asked, places: LakeLocations, followed: Sequence[Followed], seconds: float) -> Summary:
    records = [record for one in followed for record in one.records]
    rows = sum(one.rows for one in followed)
    found: dict[str, Any] = totals(records) if asked.form == PARQUET else {"rows": rows}
    if asked.form == PARQUET and asked.is_merging:
        found |= {
            "merged_files": sum(one.replaced for one in followed),
            "files_from_them": sum(one.merged for one in followed),
        }
    found |= {"seconds": round(seconds, 3), "rows_per_second": round(rows / seconds)}
    partitions = by_partition(records, asked.partition_by)
    notes = [f"The lake is {places.lake}."]
    if found.get("dead_letters"):
        notes.append(
            f"{found['dead_letters']:,} messages could not be parsed: {places.dead} contains them and the reasons."
        )
    shown = (by_source(followed), *([partitions] if partitions else []))
    return Summary("archive", found, shown, tuple(notes))

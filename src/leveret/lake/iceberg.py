"""Streams as tables of an Apache Iceberg catalogue: the Parquet files that are there already, registered as they are.

A table's files are made to be those of its stream's directory: what is missing is added, what is gone is taken out, in
one commit, decided by what the newest version of the table says. So it does not matter what a crash left undone, or
that somebody else registers as well. Namespace and table have the names of the directories.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform
from sqlalchemy.exc import IntegrityError, OperationalError

from leveret.store.tables import TableFile

logger = logging.getLogger("leveret.lake")

Identifier = tuple[str, str]
Listing = Callable[[], Sequence[TableFile]]

CATALOG: Final = "leveret"
PARTITION: Final = "day"
# how many files go into one commit; their footers are read for it
FILES_MAX: Final = 1000
# others may commit at the same time; each time one of them gets on. And a stream may have many files
ATTEMPTS_MAX: Final = 100
PROPERTIES: Final[dict[str, str]] = {
    # each commit brings one manifest, and a reader opens all of them
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "8",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # a commit that is only repeated would add files that another one has added meanwhile: we look again instead
    "commit.retry.num-retries": "0",
}


class NotRegistered(Exception):
    """The files of a stream can't be in its table; its text says why."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What one call of `register` did. added, removed: numbers of files; first: the oldest offset that the table holds
    now, None if it holds none."""

    added: int
    removed: int
    first: int | None


def open_catalog(uri: str, warehouse: str) -> Catalog:
    """The catalogue at this URI: sqlite:///PATH, postgresql://…, or http://… of a REST catalogue.

    warehouse: the URI under which the metadata of new tables goes.
    """
    io = {"py-io-impl": "leveret.lake.synced_io.SyncedFileIO"} if warehouse.startswith("file:") else {}
    try:
        return load_catalog(CATALOG, uri=uri, warehouse=warehouse, **io)
    except OperationalError:  # another one has made its tables just now
        return load_catalog(CATALOG, uri=uri, warehouse=warehouse, **io)


def location(file: TableFile) -> str:
    """A file as the table names it."""
    return f"file://{file.path}"


def register(catalog: Catalog, identifier: Identifier, listing: Listing) -> Registered:
    """Make a table hold just these files. listing: tells which, and is asked again when they have changed meanwhile.

    NotRegistered if a file does not fit into the table, or others leave no room for a commit.
    """
    added = removed = 0
    for _ in range(ATTEMPTS_MAX):
        wanted = {location(file): file for file in listing()}
        first = min((file.first for file in wanted.values()), default=None)
        try:
            table = _table(catalog, identifier, wanted)
            there = {} if table is None else data_files(table)
            missing = [uri for uri in wanted if uri not in there]
            stale = [file for uri, file in there.items() if uri not in wanted]
            if table is not None and (missing or stale):
                with table.transaction() as change:
                    _take_out(change, stale)
                    _put_in(change, missing[:FILES_MAX])
                added, removed = added + len(missing[:FILES_MAX]), removed + len(stale)
            if len(missing) <= FILES_MAX:
                return Registered(added, removed, first)
        except (CommitFailedException, TableAlreadyExistsError, IntegrityError, FileNotFoundError) as error:
            logger.info("%s was changed by another process (%s); retrying", ".".join(identifier), error)
    raise NotRegistered(f"{'.'.join(identifier)} keeps being changed by another process")


def data_files(table: Table) -> dict[str, DataFile]:
    """The files that a table holds now, by their locations."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    entries = chain.from_iterable(manifest.fetch_manifest_entry(table.io) for manifest in manifests)
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _table(catalog: Catalog, identifier: Identifier, wanted: dict[str, TableFile]) -> Table | None:
    """The table, made if there is something to put into it. FileNotFoundError if that has gone meanwhile."""
    with contextlib.suppress(NoSuchTableError):
        return catalog.load_table(identifier)
    if not wanted:
        return None
    catalog.create_namespace_if_not_exists(identifier[:-1])
    schema = pq.read_schema(next(iter(wanted.values())).path)
    with (
        catalog.create_table_transaction(identifier, schema, properties=PROPERTIES) as change,
        change.update_spec() as spec,
    ):
        spec.add_field("timestamp", DayTransform(), PARTITION)
    return catalog.load_table(identifier)


def _take_out(change: Transaction, stale: Sequence[DataFile]) -> None:
    if stale:
        with change.update_snapshot().overwrite() as snapshot:
            for file in stale:
                snapshot.delete_data_file(file)


def _put_in(change: Transaction, missing: Sequence[str]) -> None:
    if not missing:
        return
    seen: list[Any] = []
    try:
        for uri in missing:
            schema = pq.read_schema(uri.removeprefix("file://"))
            if schema not in seen:
                seen.append(schema)
                with change.update_schema() as update:
                    update.union_by_name(schema)
        change.add_files(list(missing), check_duplicate_files=False)
    except (ValueError, ValidationError) as error:
        raise NotRegistered(f"the columns of the new files do not match the table: {error}") from error


def forget_old(table: Table, keep: timedelta, now: datetime | None = None) -> int:
    """Forget the versions of a table that are older than `keep`, but the newest; returns how many.

    Their manifests are deleted, as far as no younger version needs them. A crash in between leaves small files that
    nothing refers to.
    """
    before_ms = ((now or datetime.now(UTC)) - keep).timestamp() * 1000
    newest = table.current_snapshot()
    snapshots = table.metadata.snapshots
    old = [each for each in snapshots if each.timestamp_ms < before_ms and each != newest]
    if not old:
        return 0
    kept = [each for each in snapshots if each not in old]
    unneeded = _metadata_files(table, old) - _metadata_files(table, kept)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    for uri in sorted(unneeded):
        with contextlib.suppress(FileNotFoundError):
            table.io.delete(uri)
    return len(old)


def _metadata_files(table: Table, snapshots: Sequence[Snapshot]) -> set[str]:
    found: set[str] = set()
    for snapshot in snapshots:
        with contextlib.suppress(FileNotFoundError):  # a crash between the commit and the deletion of others
            found |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
    return found

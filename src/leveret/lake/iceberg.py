"""Streams as tables of an Apache Iceberg catalogue: registers the existing Parquet files without copying them.

A commit makes the files of a table equal to those of its stream's directory: missing files are added, and deleted ones
removed, compared with the newest version of the table. So an earlier crash does no harm, nor do other processes that
register the same table. Namespace and table have the names of the directories.
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
# maximum number of files per commit, which reads their footers
FILES_MAX: Final = 1000
# attempts fail when other processes commit at the same time (one of them succeeds each time), and a stream with very
# many files needs several
ATTEMPTS_MAX: Final = 100
PROPERTIES: Final[dict[str, str]] = {
    # each commit adds a manifest, and readers open all of them
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "8",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # a repeated commit would add files that another process has added meanwhile; register() compares again instead
    "commit.retry.num-retries": "0",
}


class NotRegistered(Exception):
    """The files of a stream cannot be added to its table; the text says why."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The result of `register`.

    Attributes:
        added: Number of files that were added.
        removed: Number of files that were removed.
        first: Oldest offset in the table now, None if it is empty.
    """

    added: int
    removed: int
    first: int | None


def open_catalog(uri: str, warehouse: str) -> Catalog:
    """Open a catalogue.

    Args:
        uri: sqlite:///PATH, postgresql://…, or http://… of a REST catalogue.
        warehouse: URI under which the metadata of new tables is stored.
    """
    io = {"py-io-impl": "leveret.lake.synced_io.SyncedFileIO"} if warehouse.startswith("file:") else {}
    try:
        return load_catalog(CATALOG, uri=uri, warehouse=warehouse, **io)
    except OperationalError:  # another process has just created the catalogue's tables
        return load_catalog(CATALOG, uri=uri, warehouse=warehouse, **io)


def location(file: TableFile) -> str:
    """Return the URI of a file in the table."""
    return f"file://{file.path}"


def register(catalog: Catalog, identifier: Identifier, listing: Listing) -> Registered:
    """Make a table hold exactly the files that `listing` returns; it is called again if they change meanwhile.

    Raises:
        NotRegistered: A file does not fit the table's schema, or other processes commit all the time.
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
    """Return the files of a table's newest version, by their locations."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    entries = chain.from_iterable(manifest.fetch_manifest_entry(table.io) for manifest in manifests)
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _table(catalog: Catalog, identifier: Identifier, wanted: dict[str, TableFile]) -> Table | None:
    """Return the table; create it if files are wanted. Raises FileNotFoundError if a file was deleted meanwhile."""
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
    """Expire the versions of a table that are older than `keep`, except the newest; return their number.

    Their manifests are deleted unless a younger version needs them. A crash in between leaves small unreferenced files.
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
        with contextlib.suppress(FileNotFoundError):  # deleted, but a crash prevented the rest of the work
            found |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
    return found

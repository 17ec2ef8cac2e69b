"""Decides when files are registered in an Iceberg catalogue, and protects them from retention meanwhile.

Files that retention is about to delete are removed from the table first. The registrar holds a lease on each stream. It
knows from the broker which files would be kept without leases, removes the others from the table, and only then
advances the lease, after a grace period for readers of an older version of the table. The time is a parameter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from pyiceberg.catalog import Catalog

from leveret.lake.iceberg import NotRegistered, Registered, forget_old, register
from leveret.store.disk import RealDisk
from leveret.store.tables import TableFile, stream_directories, table_files

logger = logging.getLogger("leveret.lake")

SECOND_US: Final = 1_000_000
LEASE_MS: Final = 600_000
RENEW_US: Final = LEASE_MS * 1000 // 3
FORGET_US: Final = 3600 * SECOND_US


class RegisteredStreams(Protocol):
    """The broker's part. Methods raise OSError if the broker cannot be reached."""

    def files(self) -> Sequence[dict[str, Any]]:
        """Return all streams, with the fields of list_stream_files."""

    def hold(self, vhost: str, stream: str, lease: str, first: int, duration_ms: int) -> str:
        """Renew a lease ("" = a new one) for the messages from offset first on; return its id, "" if refused."""


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When to commit, and how long to keep files and versions.

    Attributes:
        files: Number of changed files from which a commit is made at once.
        after_us: Microseconds after the first change until a commit is made in any case.
        grace_us: Microseconds for which files stay after they were removed from the table.
        keep: How long older versions of the table are kept.
    """

    files: int = 100
    after_us: int = 60 * SECOND_US
    grace_us: int = 300 * SECOND_US
    keep: timedelta = timedelta(days=1)


@dataclass(slots=True)
class _Table:
    """The registrar's state of one table."""

    registered: frozenset[str] | None = None  # paths of the files in the table; None before the first commit
    since_us: int = -1  # time of the first uncommitted change, -1 = no change
    first: int | None = None  # first offset in the table; None if it has none, or before the first commit
    before: list[tuple[int, int]] = field(default_factory=list)  # (until when, earlier first offset)
    lease: str = ""  # id of the lease
    held: int = -1  # first offset that the lease holds
    renewed_us: int = 0
    forgot_us: int = -FORGET_US


class Registrar:
    """Registers the tables of all streams under `tables_dir`.

    Args:
        catalog: The Iceberg catalogue.
        tables_dir: Directory of the tables' Parquet files.
        streams: Access to the broker; None = no broker, all files are registered.
        policy: When to commit, and how long to keep files and versions.
        holds: Take leases, because step() is called repeatedly.
    """

    def __init__(
        self,
        catalog: Catalog,
        tables_dir: str,
        streams: RegisteredStreams | None,
        policy: CommitPolicy,
        holds: bool = True,
    ) -> None:
        self._catalog = catalog
        self._tables_dir = tables_dir
        self._streams = streams
        self._policy = policy
        self._holds = holds
        self._tables: dict[str, _Table] = {}

    def step(self, now_us: int, at_once: bool = False) -> list[tuple[str, Registered | NotRegistered]]:
        """Commit the tables whose changes are due and renew the leases; to be called periodically.

        Args:
            now_us: The time in microseconds.
            at_once: Commit all changes, due or not.

        Returns:
            (namespace/table, result or error) for each table that was or should have been committed.
        """
        facts = self._facts()
        done: list[tuple[str, Registered | NotRegistered]] = []
        for directory in stream_directories(RealDisk(), self._tables_dir):
            table = self._tables.setdefault(directory, _Table())
            fact = None if facts is None else facts.get(directory)
            if fact is not None and self._holds:
                self._hold(table, fact, now_us)
            listing = _listing(directory, facts is not None, fact)
            try:
                registered = self._commit(table, directory, listing, now_us, at_once)
            except Exception as error:  # any library may be behind a catalogue; other tables must be registered still
                table.since_us = now_us  # try again after after_us
                if not isinstance(error, NotRegistered):
                    error = NotRegistered(f"{type(error).__name__}: {error}")
                done.append((_name(directory), error))
            else:
                if registered is not None:
                    done.append((_name(directory), registered))
            if fact is not None and self._holds:
                self._hold(table, fact, now_us)
        return done

    def _facts(self) -> dict[str, dict[str, Any]] | None:
        if self._streams is None:
            return None
        try:
            return {os.path.abspath(fact["tables"]): fact for fact in self._streams.files()}
        except OSError:
            return None

    def _commit(
        self, table: _Table, directory: str, listing: Callable[[], list[TableFile]], now_us: int, at_once: bool
    ) -> Registered | None:
        wanted = frozenset(file.path for file in listing())
        changes = len(wanted ^ table.registered) if table.registered is not None else max(1, len(wanted))
        if not changes:
            table.since_us = -1
            return None
        if table.since_us < 0:
            table.since_us = now_us
        if not at_once and changes < self._policy.files and now_us - table.since_us < self._policy.after_us:
            return None
        identifier = (os.path.basename(os.path.dirname(directory)), os.path.basename(directory))
        registered = register(self._catalog, identifier, listing)
        if table.first is not None and registered.first != table.first:
            table.before.append((now_us, table.first))
        table.registered, table.first, table.since_us = wanted, registered.first, -1
        if registered.first is not None and now_us - table.forgot_us >= FORGET_US:
            table.forgot_us = now_us
            now = datetime.fromtimestamp(now_us / SECOND_US, UTC)
            forget_old(self._catalog.load_table(identifier), self._policy.keep, now)
        return registered

    def _hold(self, table: _Table, fact: dict[str, Any], now_us: int) -> None:
        """Renew the lease: for all messages before the first commit, then for those in the table or in grace."""
        assert self._streams is not None
        table.before = [each for each in table.before if now_us - each[0] < self._policy.grace_us]
        firsts = [first for _, first in table.before]
        if table.registered is None:
            first = 0
        else:
            first = min([*firsts, fact["retained_from_offset"] if table.first is None else table.first])
        if table.lease and first == table.held and now_us - table.renewed_us < RENEW_US:
            return
        try:
            lease = self._streams.hold(fact["vhost"], fact["name"], table.lease, first, LEASE_MS)
        except OSError:
            return  # the next step tries again
        if not lease:
            logger.warning(
                "%s: could not get a lease, so retention may delete files before they are registered",
                _name(fact["tables"]),
            )
        table.lease, table.held, table.renewed_us = lease, first, now_us


def _listing(directory: str, is_known: bool, fact: dict[str, Any] | None) -> Callable[[], list[TableFile]]:
    """Return a function that lists the files that the table should have.

    is_known: the broker has answered; then fact is what it knows of the stream, None if the stream does not exist.
    """

    def listing() -> list[TableFile]:
        files = table_files(RealDisk(), directory)
        if not is_known:
            return files
        if fact is None:
            return []
        creation, first = fact["creation"], fact["retained_from_offset"]
        return [file for file in files if file.creation == creation and file.last >= first]

    return listing


def _name(directory: str) -> str:
    return "/".join(directory.rstrip("/").split("/")[-2:])

"""When tables are registered in an Iceberg catalogue, and what is kept from retention meanwhile.

Files that retention is about to take leave the table first: the registrar has a lease on each stream, tells from what
the broker would keep without leases what is to go, takes that out of the table, and only then lets the lease move on,
after a time of grace for those who are reading an older version of the table. Nothing here knows a clock.
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


class Streams(Protocol):
    """What the registrar asks of the broker. OSError if it is not there."""

    def files(self) -> Sequence[dict[str, Any]]:
        """All streams, as list_stream_files has them."""

    def hold(self, vhost: str, stream: str, lease: str, first: int, duration_ms: int) -> str:
        """Renew a lease, "" = a new one; returns its id, "" if it can't be had."""


@dataclass(frozen=True, slots=True)
class Policy:
    """files: so many new ones are committed at once; after_us: all of them so long after the first; grace_us: so long
    files stay that have left the table; keep: for so long its older versions are remembered."""

    files: int = 100
    after_us: int = 60 * SECOND_US
    grace_us: int = 300 * SECOND_US
    keep: timedelta = timedelta(days=1)


@dataclass(slots=True)
class _Table:
    """What is known of one. since_us: since when it is not as it should be, -1 = it is; before: which first offsets it
    had until when; first: that of now, None before the first commit."""

    registered: frozenset[str] | None = None
    since_us: int = -1
    first: int | None = None
    before: list[tuple[int, int]] = field(default_factory=list)
    lease: str = ""
    held: int = -1
    renewed_us: int = 0
    forgot_us: int = -FORGET_US


class Registrar:
    """Registers all streams' tables under `tables_dir`. streams: None = there is no broker to ask.

    holds: whether it takes leases, because it will come again.
    """

    def __init__(
        self, catalog: Catalog, tables_dir: str, streams: Streams | None, policy: Policy, holds: bool = True
    ) -> None:
        self._catalog = catalog
        self._tables_dir = tables_dir
        self._streams = streams
        self._policy = policy
        self._holds = holds
        self._tables: dict[str, _Table] = {}

    def step(self, now_us: int, at_once: bool = False) -> list[tuple[str, Registered | NotRegistered]]:
        """From time to time: commit what is due, at_once = all that is new; hold what must stay. Returns what was done,
        by namespace and table."""
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
            except Exception as error:  # a catalogue may be anything, and other tables are none the worse for this one
                table.since_us = now_us  # it is tried again when as much time has passed
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
        """Before the first commit all is held; then what the table has, or had not long ago."""
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
            return  # the next step sees
        if not lease:
            logger.warning(
                "%s: could not get a lease, so retention may delete files before they are registered",
                _name(fact["tables"]),
            )
        table.lease, table.held, table.renewed_us = lease, first, now_us


def _listing(directory: str, is_known: bool, fact: dict[str, Any] | None) -> Callable[[], list[TableFile]]:
    """The files that the table should have. is_known: the broker was asked, and said `fact` of this stream."""

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

"""The queries of a virtual host and their stages: attached, released, aborted, expired, closed, forgotten.

A release is one journal record. The moves that follow from it (releases.py) happen after a crash, too; the same record
drops everything else: the other attempts of this batch and of earlier ones.

A query that has not been used for very long is closed: only a digest of its name remains. Its producer is refused when
it comes back, because the broker does not know any more whether it repeats a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker import closed_names
from leveret.broker.closed_names import CLOSED_MAX, digest
from leveret.broker.staging.query import QUERY, Producer
from leveret.broker.staging.releases import Releases
from leveret.broker.staging.report import QueryReport
from leveret.broker.staging.stage import DROP, OPEN, STAGED_LIST, Stage
from leveret.broker.storage.log import meta_record
from leveret.broker.timers import Timer
from leveret.wire.errors import quoted
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

RELEASE: Final = "query.release"
FORGET: Final = "query.delete"
CLOSE: Final = "query.close"
CLOSED: Final = "query.closed"
OPS: Final = (QUERY, RELEASE, FORGET, CLOSE, CLOSED, OPEN, STAGED_LIST, DROP)
# limits of one virtual host
QUERIES_MAX: Final = 10_000
STAGES_MAX: Final = 100_000
# queries that are closed in one turn; the next ones follow after a second
CLOSED_IN_TURN: Final = 1000
DAY_US: Final[i64] = 86_400_000_000
SECOND_US: Final[i64] = 1_000_000


class StageError(Exception):
    """An operation on a stage is refused; the text says why."""


class Producers(Timer):
    """The queries of one virtual host."""

    def __init__(self, vhost: VHost) -> None:
        super().__init__(vhost.timers)
        self.vhost = vhost
        self.by_name: dict[str, Producer] = {}  # all known queries
        self.reports: dict[str, QueryReport] = {}  # by name of the query, which need not be known otherwise
        self.by_number: dict[int, Stage] = {}  # all stages, including those being released
        self.releases = Releases(vhost, self)
        self.closed: dict[int, str] = {}  # owners of closed queries, by the digests of their names
        self.unused_days_max = -1  # days until an unused query is closed, -1 = never; no stage lives longer either
        self._turns = 0

    def of(self, name: str, owner: str, now_us: i64) -> Producer:
        """Return the query of this name, created if necessary. Raises StageError if too many exist or it is closed."""
        self.check_open(name)
        query = self.by_name.get(name)
        if query is not None:
            if now_us - query.used_us >= DAY_US:
                query.used_us = now_us
                self.vhost.log.meta(query.record(self.vhost.name))
            return query
        if len(self.by_name) >= QUERIES_MAX:
            raise StageError(
                f"vhost '{self.vhost.name}' has reached the limit of {QUERIES_MAX} queries: forget some (forget_query)"
            )
        query = self._made(name, owner, now_us)
        self.vhost.log.meta(query.record(self.vhost.name))
        self.wake(now_us + DAY_US)
        return query

    def _made(self, name: str, owner: str, used_us: i64) -> Producer:
        query = self.by_name.get(name)
        if query is None:
            query = self.by_name[name] = Producer(name, owner, used_us)
        return query

    def owner_of(self, name: str) -> str | None:
        """Return the owner of a query, even if it is closed or only reported; None if it is unknown."""
        query = self.by_name.get(name)
        if query is not None:
            return query.owner
        report = self.reports.get(name)
        return self.closed.get(digest(name)) if report is None else report.owner

    def owned(self, owner: str) -> list[Producer]:
        """Return the queries of one user."""
        return [query for query in self.by_name.values() if query.owner == owner]

    def check_open(self, name: str) -> None:
        """Raise StageError if the query is closed."""
        if self.closed and digest(name) in self.closed:
            raise StageError(
                f"query '{name}' was closed after {self.unused_days_max} days without use, so repeated batches are no "
                'longer recognized: forget it (op "forget", leveret ctl forget_query) or use another name'
            )

    def attach(
        self, name: str, owner: str, batch: int, attempt: str, expires_after_us: i64, now_us: i64
    ) -> tuple[Producer, Stage | None]:
        """Return the query and a new stage, or None in its place if the batch is released.

        Raises StageError if this attempt has a stage, or if there are too many stages.
        """
        known = self.by_name.get(name)
        if known is not None:
            if batch <= known.last_batch:
                return known, None
            if (batch, attempt) in known.stages:
                raise StageError(f"attempt '{attempt}' of batch {batch} of query '{name}' already has a stage")
        if len(self.by_number) >= STAGES_MAX:
            raise StageError(
                f"vhost '{self.vhost.name}' has reached the limit of {STAGES_MAX} stages: release or abort some"
            )
        query = self.of(name, owner, now_us)
        if self.unused_days_max >= 0:
            expires_after_us = min(expires_after_us, max(self.unused_days_max, 1) * DAY_US)
        stage = Stage(self.vhost, name, batch, attempt, expires_after_us, now_us)
        query.stages[(batch, attempt)] = stage
        self._number(stage, 0)
        self.vhost.log.meta(stage.record())
        stage.wake(stage.ends_us())
        return query, stage

    def _number(self, stage: Stage, number: int) -> None:
        self.vhost.give_number(stage, number)
        self.by_number[int(stage.number)] = stage

    # -- decisions -----------------------------------------------------------------------------------------------------

    def release(self, query: Producer, batch: int, attempts: list[str], now_us: int) -> None:
        """Release a batch: the messages of these attempts go to their queues, in this order.

        All other stages of this batch and of earlier ones are dropped. Without effect if this batch or a later one is
        released. Raises StageError, without effect, if one of the attempts has no stage.
        """
        if batch <= query.last_batch:
            return
        chosen: list[Stage] = []
        for attempt in attempts:
            stage = query.stages.get((batch, attempt))
            if stage is None:
                raise StageError(f"{_which(query, batch, attempt)} does not exist (expired, aborted or never created)")
            if stage.is_damaged:
                raise StageError(f"{_which(query, batch, attempt)} is incomplete: the broker has lost part of it")
            chosen.append(stage)
        if len(set(attempts)) < len(attempts):
            raise StageError(f"an attempt of batch {batch} of query '{query.name}' is listed twice")
        query.messages += sum([int(stage.count()) for stage in chosen])
        query.octets += sum([int(stage.octets) for stage in chosen])
        log = self.vhost.log
        numbers: list[Value] = [int(stage.number) for stage in chosen]
        fields: dict[str, Value] = {"op": RELEASE, "vhost": self.vhost.name, "query": query.name, "batch": batch}
        log.meta(fields | {"stages": numbers})
        for stage in self._decide(query, batch, chosen, now_us):
            self._let_go(stage)
        self.releases.released()

    def _decide(self, query: Producer, batch: int, chosen: list[Stage], now_us: int) -> list[Stage]:
        """Mark the stages as released now (0 = when the broker has recovered); return those that are to be dropped."""
        query.last_batch = batch
        for stage in chosen:
            self._turns += 1
            stage.decide(self._turns, self.vhost.log.batch, now_us)
            del query.stages[(batch, stage.attempt)]
            self.releases.add(stage)
        return [stage for stage in query.stages.values() if stage.batch <= batch]

    def abort(self, query: Producer, batch: int) -> None:
        """Drop the stages of a batch."""
        for stage in list(query.stages.values()):
            if stage.batch == batch:
                self.drop(stage)
        self._tidy(query)

    def forget_closed(self, name: str) -> bool:
        """Allow a closed query's name to be used anew; False if there is no such closed query."""
        if self.closed.pop(digest(name), None) is None:
            return False
        self.vhost.log.meta({"op": FORGET, "vhost": self.vhost.name, "query": name})
        return True

    def forget(self, query: Producer) -> None:
        """Remove a query and its stages, except those that are released."""
        for stage in list(query.stages.values()):
            self.drop(stage)
        self._forget(query)
        self.vhost.log.meta({"op": FORGET, "vhost": self.vhost.name, "query": query.name})

    def _tidy(self, query: Producer) -> None:
        """Remove a query that has no stages and never released a batch: there is nothing to know about it."""
        if query.last_batch < 0 and not query.stages and not query.is_forgotten:
            self.forget(query)

    def _forget(self, query: Producer) -> None:
        query.is_forgotten = True
        self.by_name.pop(query.name, None)

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Close queries that have not been used for too long and have no stages; once a day."""
        self.timer_us = 0
        left = CLOSED_IN_TURN
        unused_us_max = (self.unused_days_max + 1) * DAY_US  # use is recorded to within a day
        for query in list(self.by_name.values()) if unused_us_max > 0 else []:
            if query.stages or now_us - query.used_us < unused_us_max:
                continue
            if left == 0 or len(self.closed) >= CLOSED_MAX:
                break
            left -= 1
            self.vhost.log.meta({"op": CLOSE, "vhost": self.vhost.name, "query": query.name})
            self._close(query)
            self.vhost.on_event(
                f"query {quoted(query.name)} in vhost {quoted(self.vhost.name)} was not used for "
                f"{self.unused_days_max} days and is closed: the broker can no longer recognize a repetition of "
                f"its last batch, {query.last_batch}, or of an earlier one, so it refuses new stages of this query "
                "until the query is forgotten (leveret ctl forget_query)"
            )
        if self.by_name:
            self.wake(now_us + (SECOND_US if left == 0 else DAY_US))
        return 1

    def _close(self, query: Producer) -> None:
        self._forget(query)
        self.closed[digest(query.name)] = query.owner

    def expire(self, stage: Stage, now_us: i64) -> None:
        """Drop a stage if it has expired."""
        if not stage.is_open:
            return
        if now_us < stage.ends_us():
            stage.wake(stage.ends_us())
            return
        self.vhost.on_event(f"{stage.what()} has expired, and its messages were dropped ({stage.count()})")
        query = self.by_name[stage.query]
        self.drop(stage)
        self._tidy(query)

    def drop(self, stage: Stage) -> None:
        """Drop a stage with its messages."""
        self.vhost.log.meta({"op": DROP, "vhost": self.vhost.name, "number": int(stage.number)})
        self._let_go(stage)

    def _let_go(self, stage: Stage) -> None:
        stage.is_deleted = True
        self.vhost.timers.forget_deleted()
        del self.by_number[int(stage.number)]
        query = self.by_name.get(stage.query)
        if query is not None and query.stages.get((stage.batch, stage.attempt)) is stage:
            del query.stages[(stage.batch, stage.attempt)]
        self.releases.remove(stage)
        self.vhost.forget_messages(stage)
        stage.clear()

    # -- stages --------------------------------------------------------------------------------------------------------

    def stages(self) -> list[Stage]:
        """Return all stages, including those being released."""
        return list(self.by_number.values())

    # -- the journal ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[bytes]:
        """Return the records of the queries for the beginning of a journal file; stages have records of their own."""
        records = [meta_record(query.record(self.vhost.name)) for query in self.by_name.values()]
        for owner, each in closed_names.by_owner(self.closed).items():
            fields: dict[str, Value] = {"op": CLOSED, "vhost": self.vhost.name, "owner": owner}
            records.append(meta_record(fields | {"queries": each}))
        return records

    def restore(self, record: dict[str, Value]) -> list[Stage]:
        """Apply a journal record; return the stages that it drops, for the caller to remove what it has of them."""
        op, name = record["op"], str(record.get("query", ""))
        if op == QUERY:
            query = self._made(name, str(record["owner"]), 0)
            query.last_batch = max(query.last_batch, _number(record, "last_batch"))
            used_us = record.get("used_us")  # missing in journals of older brokers
            query.used_us = max(query.used_us, used_us if isinstance(used_us, int) else 0)
        elif op == OPEN:
            self._restore_stage(record)
        elif op == STAGED_LIST:
            self._restore_list(record)
        elif op == RELEASE:
            return self._restore_release(record)
        elif op == FORGET:
            self.closed.pop(digest(name), None)
            if name in self.by_name:
                self._forget(self.by_name[name])
        elif op == CLOSE:
            if name in self.by_name:
                self._close(self.by_name[name])
        elif op == CLOSED:
            closed_names.restore(self.closed, str(record["owner"]), record["queries"])
        else:
            stage = self.by_number.get(_number(record, "number"))
            return [] if stage is None else [stage]
        return []

    def gone(self, stages: list[Stage]) -> None:
        """Drop the stages that restore() returned."""
        for stage in stages:
            self._let_go(stage)

    def _restore_stage(self, record: dict[str, Value]) -> None:
        number = _number(record, "number")
        if number in self.by_number:
            known = self.by_number[number]
            known.published(_number(record, "published_us"))
            known.is_damaged = known.is_damaged or bool(record["is_damaged"])
            return
        batch, expires_after_us = _number(record, "batch"), _number(record, "expires_after_us")
        name, attempt = str(record["query"]), str(record["attempt"])
        stage = Stage(self.vhost, name, batch, attempt, expires_after_us, _number(record, "published_us"))
        stage.is_damaged = bool(record["is_damaged"])
        turn = _number(record, "turn")
        if turn:
            self._turns = max(self._turns, turn)
            stage.decide(turn, 0, 0)
            self.releases.add(stage)
        else:
            self._made(name, "", 0).stages[(batch, attempt)] = stage
        self._number(stage, number)

    def _restore_list(self, record: dict[str, Value]) -> None:
        stage = self.by_number.get(_number(record, "number"))
        queues, exchanges = record["queues"], record["exchanges"]
        if stage is None or not isinstance(queues, list) or not isinstance(exchanges, list):
            return
        if _number(record, "index") == len(stage.message_lists):  # each journal file repeats it
            stage.add_list([str(name) for name in queues], [str(name) for name in exchanges])

    def _restore_release(self, record: dict[str, Value]) -> list[Stage]:
        query, numbers = self._made(str(record["query"]), "", 0), record["stages"]
        assert isinstance(numbers, list)
        chosen = [self.by_number[number] for number in numbers if isinstance(number, int) and number in self.by_number]
        return self._decide(query, _number(record, "batch"), [stage for stage in chosen if stage.is_open], 0)

    def recovered(self, now_us: int, is_damaged: bool) -> None:
        """Handle the end of recovery: releases continue, and the timers of open stages start.

        is_damaged: a part of the journal was unreadable, which may have contained messages of any stage.
        """
        for query in self.by_name.values():
            if query.used_us == 0:
                query.used_us = now_us
        if self.by_name:
            self.wake(now_us + DAY_US)
        for stage in self.by_number.values():
            stage.decided_in = 0
            if stage.is_open:
                stage.wake(max(now_us, stage.ends_us()))
                if is_damaged and not stage.is_damaged:
                    stage.is_damaged = True
                    self.vhost.log.meta(stage.record())
        self.releases.recovered(now_us)


def _which(query: Producer, batch: int, attempt: str) -> str:
    return f"the stage of attempt '{attempt}' of batch {batch} of query '{query.name}'"


def _number(record: dict[str, Value], name: str) -> int:
    found = record[name]
    assert isinstance(found, int)
    return found

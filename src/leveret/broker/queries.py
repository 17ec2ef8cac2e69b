"""The queries of a virtual host and their stages: attached, released, aborted, expired, closed, forgotten.

A release is one record of the journal. What follows from it (unstaging.py) follows after a crash, too; what does not
follow is gone with it: the other attempts of this batch and of those before.

A query that nobody uses for very long is closed: a digest of its name remains. Whoever comes back is refused, since it
is not known any more whether what it brings is a repetition.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.log import meta_record
from leveret.broker.query import QUERY, Query
from leveret.broker.queue import Queue
from leveret.broker.stage import DROP, OPEN, STAGED_LIST, Stage
from leveret.broker.unstaging import Unstaging
from leveret.wire.errors import quoted
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

RELEASE: Final = "query.release"
FORGET: Final = "query.delete"
CLOSE: Final = "query.close"
CLOSED: Final = "query.closed"
OPS: Final = (QUERY, RELEASE, FORGET, CLOSE, CLOSED, OPEN, STAGED_LIST, DROP)
# of one virtual host
QUERIES_MAX: Final = 10_000
STAGES_MAX: Final = 100_000
CLOSED_MAX: Final = 10_000
# queries that are closed in one turn; the next ones follow after a second
CLOSED_IN_TURN: Final = 1000
DAY_US: Final[i64] = 86_400_000_000
SECOND_US: Final[i64] = 1_000_000


class StageError(Exception):
    """Why something cannot be done with a stage, for people."""


class Queries:
    """by_name: all that are known; by_number: all stages, those that move included, by their numbers.

    closed: the owners of those that were not used for too long, by digests of their names. unused_days_max: after so
    many days, -1 = never; no stage waits longer either. ageing: stands in the timers for them.
    """

    def __init__(self, vhost: VHost) -> None:
        self.vhost = vhost
        self.by_name: dict[str, Query] = {}
        self.by_number: dict[int, Stage] = {}
        self.unstaging = Unstaging(vhost, self)
        self.closed: dict[int, str] = {}
        self.unused_days_max = -1
        self.ageing = Queue(vhost, "", False, False, {})
        self._turns = 0

    def of(self, name: str, owner: str, now_us: i64) -> Query:
        """The query of this name, made if need be. StageError if there are too many, or if it is closed."""
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
        self.ageing.wake(now_us + DAY_US)
        return query

    def _made(self, name: str, owner: str, used_us: i64) -> Query:
        query = self.by_name.get(name)
        if query is None:
            query = self.by_name[name] = Query(name, owner, used_us)
        return query

    def owner_of(self, name: str) -> str | None:
        """Whose query this is, or was until it was closed. None: nobody's."""
        query = self.by_name.get(name)
        return self.closed.get(_digest(name)) if query is None else query.owner

    def owned(self, owner: str) -> list[Query]:
        """Those of one user."""
        return [query for query in self.by_name.values() if query.owner == owner]

    def check_open(self, name: str) -> None:
        """StageError if the query was closed."""
        if self.closed and _digest(name) in self.closed:
            raise StageError(
                f"query '{name}' was closed after {self.unused_days_max} days without use, so repeated batches are no "
                'longer recognized: forget it (op "forget", leveret ctl forget_query) or use another name'
            )

    def attach(
        self, name: str, owner: str, batch: int, attempt: str, expires_after_us: i64, now_us: i64
    ) -> tuple[Query, Stage | None]:
        """The query, and a new stage, None if the batch is released. StageError if there is one of this name, or if
        there are too many."""
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

    def release(self, query: Query, batch: int, attempts: list[str]) -> None:
        """Release a batch: what these attempts have staged goes to its queues, in this order; all others of
        this batch, and of those before, are dropped. Without effect if it is released, or a later one. StageError if
        one of them is not there, and nothing has happened."""
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
        log = self.vhost.log
        numbers: list[Value] = [int(stage.number) for stage in chosen]
        fields: dict[str, Value] = {"op": RELEASE, "vhost": self.vhost.name, "query": query.name, "batch": batch}
        log.meta(fields | {"stages": numbers})
        for stage in self._decide(query, batch, chosen):
            self._let_go(stage)
        self.unstaging.released()

    def _decide(self, query: Query, batch: int, chosen: list[Stage]) -> list[Stage]:
        """Returns the stages that are to be dropped."""
        query.last_batch = batch
        for stage in chosen:
            self._turns += 1
            stage.decide(self._turns, self.vhost.log.batch)
            del query.stages[(batch, stage.attempt)]
            self.unstaging.add(stage)
        return [stage for stage in query.stages.values() if stage.batch <= batch]

    def abort(self, query: Query, batch: int) -> None:
        """Drop what is staged for a batch."""
        for stage in list(query.stages.values()):
            if stage.batch == batch:
                self.drop(stage)
        self._tidy(query)

    def forget_closed(self, name: str) -> bool:
        """Whoever uses this name begins anew. False if it is not that of a query that was closed."""
        if self.closed.pop(_digest(name), None) is None:
            return False
        self.vhost.log.meta({"op": FORGET, "vhost": self.vhost.name, "query": name})
        return True

    def forget(self, query: Query) -> None:
        """The query is no more, nor is what it has staged; what was released goes its way."""
        for stage in list(query.stages.values()):
            self.drop(stage)
        self._forget(query)
        self.vhost.log.meta({"op": FORGET, "vhost": self.vhost.name, "query": query.name})

    def _tidy(self, query: Query) -> None:
        """There is nothing to know of a query that never released a batch, once its stages are gone."""
        if query.last_batch < 0 and not query.stages and not query.is_forgotten:
            self.forget(query)

    def _forget(self, query: Query) -> None:
        query.is_forgotten = True
        self.by_name.pop(query.name, None)

    def age(self, now_us: i64) -> None:
        """A day has passed: close those that were not used for too long. One with stages waits for them."""
        self.ageing.alarm_us = 0
        left = CLOSED_IN_TURN
        unused_us_max = (self.unused_days_max + 1) * DAY_US  # use is noted to within a day
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
            self.ageing.wake(now_us + (SECOND_US if left == 0 else DAY_US))

    def _close(self, query: Query) -> None:
        self._forget(query)
        self.closed[_digest(query.name)] = query.owner

    def ring(self, stage: Stage, now_us: i64) -> None:
        """An alarm of this stage is due: drop it if it has expired."""
        stage.alarm_us = 0
        if not stage.is_open:
            return
        if now_us < stage.ends_us():
            stage.wake(stage.ends_us())
            return
        self.vhost.on_event(f"{stage.what()} has expired: its {stage.count()} messages were dropped")
        query = self.by_name[stage.query]
        self.drop(stage)
        self._tidy(query)

    def drop(self, stage: Stage) -> None:
        """A stage goes, with what it has."""
        self.vhost.log.meta({"op": DROP, "vhost": self.vhost.name, "number": int(stage.number)})
        self._let_go(stage)

    def _let_go(self, stage: Stage) -> None:
        stage.is_deleted = True
        self.vhost.timers.forget_deleted()
        del self.by_number[int(stage.number)]
        query = self.by_name.get(stage.query)
        if query is not None and query.stages.get((stage.batch, stage.attempt)) is stage:
            del query.stages[(stage.batch, stage.attempt)]
        self.unstaging.remove(stage)
        self.vhost.forget_messages(stage)
        stage.clear()

    # -- what there is -------------------------------------------------------------------------------------------------

    def stages(self) -> list[Stage]:
        """All, those that move included."""
        return list(self.by_number.values())

    # -- the journal ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[bytes]:
        """What a journal file says of the queries at its beginning; of stages it says more."""
        records = [meta_record(query.record(self.vhost.name)) for query in self.by_name.values()]
        digests: dict[str, list[Value]] = {}
        for digest, owner in self.closed.items():
            digests.setdefault(owner, []).append(digest)
        for owner, each in digests.items():
            fields: dict[str, Value] = {"op": CLOSED, "vhost": self.vhost.name, "owner": owner}
            records.append(meta_record(fields | {"queries": each}))
        return records

    def restore(self, record: dict[str, Value]) -> list[Stage]:
        """What a record says; returns the stages that are gone with it, of which everything is to be forgotten."""
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
            self.closed.pop(_digest(name), None)
            if name in self.by_name:
                self._forget(self.by_name[name])
        elif op == CLOSE:
            if name in self.by_name:
                self._close(self.by_name[name])
        elif op == CLOSED:
            self._restore_closed(str(record["owner"]), record["queries"])
        else:
            stage = self.by_number.get(_number(record, "number"))
            return [] if stage is None else [stage]
        return []

    def gone(self, stages: list[Stage]) -> None:
        """Those that restore() returned."""
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
            stage.decide(turn, 0)
            self.unstaging.add(stage)
        else:
            self._made(name, "", 0).stages[(batch, attempt)] = stage
        self._number(stage, number)

    def _restore_closed(self, owner: str, digests: Value) -> None:
        assert isinstance(digests, list)
        for digest in digests:
            assert isinstance(digest, int)
            self.closed[digest] = owner

    def _restore_list(self, record: dict[str, Value]) -> None:
        stage = self.by_number.get(_number(record, "number"))
        queues, exchanges = record["queues"], record["exchanges"]
        if stage is None or not isinstance(queues, list) or not isinstance(exchanges, list):
            return
        if _number(record, "index") == len(stage.message_lists):  # a new file tells of it again
            stage.add_list([str(name) for name in queues], [str(name) for name in exchanges])

    def _restore_release(self, record: dict[str, Value]) -> list[Stage]:
        query, numbers = self._made(str(record["query"]), "", 0), record["stages"]
        assert isinstance(numbers, list)
        chosen = [self.by_number[number] for number in numbers if isinstance(number, int) and number in self.by_number]
        return self._decide(query, _number(record, "batch"), [stage for stage in chosen if stage.is_open])

    def recovered(self, now_us: int, is_damaged: bool) -> None:
        """The journal has been read: what was decided goes on, and time counts for the others. is_damaged: a part of it
        was not to be read, and nobody knows what of the stages was in it."""
        for query in self.by_name.values():
            if query.used_us == 0:
                query.used_us = now_us
        if self.by_name:
            self.ageing.wake(now_us + DAY_US)
        for stage in self.by_number.values():
            stage.decided_in = 0
            if stage.is_open:
                stage.wake(max(now_us, stage.ends_us()))
                if is_damaged and not stage.is_damaged:
                    stage.is_damaged = True
                    self.vhost.log.meta(stage.record())
        self.unstaging.recovered(now_us)


def _which(query: Query, batch: int, attempt: str) -> str:
    return f"the stage of attempt '{attempt}' of batch {batch} of query '{query.name}'"


def _digest(name: str) -> int:
    """What remains of the name of a query that was closed."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "big")


def _number(record: dict[str, Value], name: str) -> int:
    found = record[name]
    assert isinstance(found, int)
    return found

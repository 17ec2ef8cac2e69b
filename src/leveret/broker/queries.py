"""The queries of a virtual host and their stages: attached, released, aborted, expired, forgotten.

A release is one record of the journal. What follows from it (unstaging.py) follows after a crash, too; what does not
follow is gone with it: the other attempts of this batch and of those before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.log import meta_record
from leveret.broker.query import QUERY, Query
from leveret.broker.stage import DROP, OPEN, SHELF, Stage
from leveret.broker.unstaging import Unstaging
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

RELEASE: Final = "query.release"
FORGET: Final = "query.delete"
OPS: Final = (QUERY, RELEASE, FORGET, OPEN, SHELF, DROP)
# of one virtual host
QUERIES_MAX: Final = 10_000
STAGES_MAX: Final = 100_000


class StageError(Exception):
    """Why something cannot be done with a stage, for people."""


class Queries:
    """by_name: all that are known; by_number: all stages, those that move included, by their numbers."""

    def __init__(self, vhost: VHost) -> None:
        self.vhost = vhost
        self.by_name: dict[str, Query] = {}
        self.by_number: dict[int, Stage] = {}
        self.unstaging = Unstaging(vhost, self)
        self._turns = 0

    def of(self, name: str, owner: str) -> Query:
        """The query of this name, made if need be. StageError if there are too many."""
        query = self.by_name.get(name)
        if query is None:
            if len(self.by_name) >= QUERIES_MAX:
                raise StageError(f"vhost '{self.vhost.name}' knows {QUERIES_MAX} queries: forget some (forget_query)")
            query = self.by_name[name] = Query(name, owner)
            self.vhost.log.meta(query.record(self.vhost.name))
        return query

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
                raise StageError(f"attempt '{attempt}' of batch {batch} of query '{name}' has a stage already")
        if len(self.by_number) >= STAGES_MAX:
            raise StageError(f"vhost '{self.vhost.name}' has {STAGES_MAX} stages: release or abort some")
        query = self.of(name, owner)
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
        """Release a batch: what these attempts have staged goes to its queues, in this order; all others of this batch,
        and of those before, are dropped. Without effect if it is released, or a later one. StageError if one of them
        is not there, and nothing has happened."""
        if batch <= query.last_batch:
            return
        chosen: list[Stage] = []
        for attempt in attempts:
            stage = query.stages.get((batch, attempt))
            if stage is None:
                raise StageError(f"{_which(query, batch, attempt)} is not there: it expired, was aborted or never made")
            if stage.is_damaged:
                raise StageError(f"{_which(query, batch, attempt)} is not complete: the broker has lost a part of it")
            chosen.append(stage)
        if len(set(attempts)) < len(attempts):
            raise StageError(f"an attempt of batch {batch} of query '{query.name}' is named twice")
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

    def ring(self, stage: Stage, now_us: i64) -> None:
        """An alarm of this stage is due: drop it if it has expired."""
        stage.alarm_us = 0
        if not stage.is_open:
            return
        if now_us < stage.ends_us():
            stage.wake(stage.ends_us())
            return
        self.vhost.on_event(f"{stage.what()} has expired: its {stage.count()} messages are dropped")
        query = self.by_name[stage.query]
        self.drop(stage)
        self._tidy(query)

    def drop(self, stage: Stage) -> None:
        """A stage goes, with what it has."""
        self.vhost.log.meta({"op": DROP, "vhost": self.vhost.name, "number": int(stage.number)})
        self._let_go(stage)

    def drop_all(self) -> None:
        """The virtual host is being deleted."""
        for query in list(self.by_name.values()):
            self.forget(query)
        for stage in list(self.by_number.values()):
            self.drop(stage)

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
        return [meta_record(query.record(self.vhost.name)) for query in self.by_name.values()]

    def restore(self, record: dict[str, Value]) -> list[Stage]:
        """What a record says; returns the stages that are gone with it, of which everything is to be forgotten."""
        op, name = record["op"], str(record.get("query", ""))
        if op == QUERY:
            query = self.of(name, str(record["owner"]))
            query.last_batch = max(query.last_batch, _number(record, "last_batch"))
        elif op == OPEN:
            self._restore_stage(record)
        elif op == SHELF:
            self._restore_shelf(record)
        elif op == RELEASE:
            return self._restore_release(record)
        elif op == FORGET:
            if name in self.by_name:
                self._forget(self.by_name[name])
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
            self.of(name, "").stages[(batch, attempt)] = stage
        self._number(stage, number)

    def _restore_shelf(self, record: dict[str, Value]) -> None:
        stage = self.by_number.get(_number(record, "number"))
        queues, exchanges = record["queues"], record["exchanges"]
        if stage is None or not isinstance(queues, list) or not isinstance(exchanges, list):
            return
        if _number(record, "index") == len(stage.shelves):  # a new file tells of it again
            stage.add_shelf([str(name) for name in queues], [str(name) for name in exchanges])

    def _restore_release(self, record: dict[str, Value]) -> list[Stage]:
        query, numbers = self.of(str(record["query"]), ""), record["stages"]
        assert isinstance(numbers, list)
        chosen = [self.by_number[number] for number in numbers if isinstance(number, int) and number in self.by_number]
        return self._decide(query, _number(record, "batch"), [stage for stage in chosen if stage.is_open])

    def recovered(self, now_us: int, is_damaged: bool) -> None:
        """The journal has been read: what was decided goes on, and time counts for the others. is_damaged: a part of it
        was not to be read, and nobody knows what of the stages was in it."""
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


def _number(record: dict[str, Value], name: str) -> int:
    found = record[name]
    assert isinstance(found, int)
    return found

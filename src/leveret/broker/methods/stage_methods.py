"""Stages over AMQP 0-9-1 (docs/guides/stages.md), by methods on a pseudo-queue.

basic.consume attaches a channel; a publish releases, aborts, forgets or reports; basic.get tells what is known of a
query. A broker without stages has no such queue: it answers 404, or returns the message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.access.access import EXCHANGE, check
from leveret.broker.access.quotas import check_staged_producers
from leveret.broker.access.users import WRITE
from leveret.broker.channel import BrokerChannel
from leveret.broker.delayed.delay import DELAY_MS_MAX
from leveret.broker.messages.contents import body_of
from leveret.broker.methods.queue_methods import fail
from leveret.broker.staging.queries import StageError
from leveret.broker.staging.query import Producer
from leveret.broker.staging.report import keep, read_report
from leveret.broker.staging.stage import Stage
from leveret.broker.staging.staging import Staging
from leveret.session.confirms import HANDLED, JOURNALLED, SYNCING
from leveret.wire.errors import ACCESS_REFUSED, PRECONDITION_FAILED, ProtocolError
from leveret.wire.method import Method
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

EXPIRES_MS: Final = 86_400_000
"""A stage expires so long after its last publish, unless its client gives another time."""
NAME_OCTETS_MAX: Final = 200
"""Of queries and attempts; for basic.get, a query's name is part of the name of a queue."""
ADMINISTRATOR: Final = "administrator"


def attach(peer: Peer, channel: BrokerChannel, method: Method, tag: str) -> None:
    """Handle basic.consume from the pseudo-queue: publishes of the channel are staged from now on.

    The answer follows when the stage is on disk. Raises 406 for missing or invalid arguments, an attempt that has a
    stage, a channel with a stage or transaction, or too many stages of the user; 403 for another user's query, and for
    users who may not write to the default exchange, since they could not release the stage.
    """
    check(peer, method, WRITE, EXCHANGE, "")
    if not method.flag("no_ack"):
        raise fail(method, PRECONDITION_FAILED, "a channel that attaches to a stage must consume with no-ack")
    if channel.tx is not None:
        raise fail(method, PRECONDITION_FAILED, "cannot attach a channel in tx mode to a stage")
    if channel.staging is not None:
        raise fail(method, PRECONDITION_FAILED, "the channel is already attached to a stage")
    if channel.publisher is not None:
        raise fail(method, PRECONDITION_FAILED, "the channel is attached to a publisher reference")
    arguments = method.table("arguments")
    try:
        name = _name(arguments.get("x-leveret-query"), "x-leveret-query")
        batch = _batch(arguments.get("x-leveret-batch"), "x-leveret-batch")
        attempt = _name(arguments.get("x-leveret-attempt"), "x-leveret-attempt")
        expires_ms = arguments.get("x-leveret-expires-ms", EXPIRES_MS)
        if not _is_integer(expires_ms, 1, DELAY_MS_MAX):
            raise StageError(f"x-leveret-expires-ms must be an integer from 1 to {DELAY_MS_MAX}")
        assert isinstance(expires_ms, int)
        queries = peer.vhost.queries
        _check_owner(peer, name, 60, 20)
        queries.check_open(name)
        known = queries.by_name.get(name)
        if known is None or batch > known.last_batch:
            check_staged_producers(peer, known)
        query, stage = queries.attach(name, peer.user, batch, attempt, expires_ms * 1000, peer.now_us)
    except StageError as error:
        raise fail(method, PRECONDITION_FAILED, str(error)) from None
    channel.staging = Staging(tag, query, batch, stage)
    channel.is_kept_back = True
    peer.hold_until_synced()


def detach(channel: BrokerChannel) -> None:
    """Handle basic.cancel of the tag: publishes of the channel go to their queues at once again."""
    channel.staging = None
    channel.is_kept_back = False


def order(peer: Peer, channel: BrokerChannel, content: bytes) -> i64:
    """Handle a publish to the pseudo-queue: release, abort, forget or report. Returns the state of its confirm.

    The confirm says that the change is on disk. Raises 406 for an invalid body or an attempt without a stage, 403 for
    another user's query.
    """
    if channel.tx is not None:
        raise _refused("stages cannot be released or aborted within a transaction")
    try:
        fields = json.loads(body_of(content))
        if not isinstance(fields, dict):
            raise StageError("the body must be a JSON object")
        op = fields.get("op")
        name = _name(fields.get("query"), "query")
        queries = peer.vhost.queries
        query = queries.by_name.get(name)
        _check_owner(peer, name, 60, 40)
        if op != "forget":
            queries.check_open(name)
        if op == "release":
            _release(peer, query, name, fields)
        elif op == "abort":
            batch = _batch(fields.get("batch"), "batch")
            if query is not None:
                queries.abort(query, batch)
        elif op == "report":
            _report(peer, name, fields)
        elif op == "forget":
            queries.reports.pop(name, None)
            queries.forget_closed(name)
            if query is not None:
                queries.forget(query)
        else:
            raise StageError('"op" must be "release", "abort", "forget" or "report"')
    except StageError as error:
        raise _refused(str(error)) from None
    except (ValueError, RecursionError):
        raise _refused("the body must be JSON in UTF-8") from None
    return _standing(peer)


def _release(peer: Peer, query: Producer | None, name: str, fields: dict[str, object]) -> None:
    batch = _batch(fields.get("batch"), "batch")
    attempts = [_name(attempt, "attempts") for attempt in _list(fields.get("attempts"))]
    queries = peer.vhost.queries
    if query is None:
        if attempts:
            raise StageError(f"query '{name}' is unknown: no attempt of batch {batch} exists")
        check_staged_producers(peer, None)
    query = queries.of(name, peer.user, peer.now_us)
    queries.release(query, batch, attempts)


def _report(peer: Peer, name: str, fields: dict[str, object]) -> None:
    """Keep what a query tells of its progress. Raises StageError for invalid fields."""
    try:
        report = read_report(fields, peer.user, peer.now_us)
    except ValueError as error:
        raise StageError(str(error)) from None
    keep(peer.vhost.queries.reports, name, report)


def _standing(peer: Peer) -> i64:
    """Return the state of a confirm that says that everything before it is on disk."""
    log = peer.broker.log
    if log.size():
        log.is_awaited = True
        return JOURNALLED
    return SYNCING if log.synced < log.batch - 1 else HANDLED


def told(peer: Peer, method: Method, name: str) -> dict[str, Value] | None:
    """Return what is known of a query, None if nothing. Raises 403 if it is another user's, 406 if it is closed."""
    queries = peer.vhost.queries
    _check_owner(peer, name, method.spec.class_id, method.spec.method_id)
    try:
        queries.check_open(name)
    except StageError as error:
        raise fail(method, PRECONDITION_FAILED, str(error)) from None
    query = queries.by_name.get(name)
    if query is None:
        return None
    peer.hold_until_synced()  # its contents must not be undone by a crash
    stages: list[Value] = [_stage_facts(stage, peer.now_us) for stage in query.stages.values()]
    facts: dict[str, Value] = {"query": name, "last_batch": None, "stages": stages}
    if query.last_batch >= 0:
        facts["last_batch"] = query.last_batch
    return facts


def _stage_facts(stage: Stage, now_us: int) -> dict[str, Value]:
    """Return a stage's figures; expires_ms: in how many milliseconds it expires if nothing is published until then."""
    expires_ms = max(0, int(stage.ends_us()) - now_us) // 1000
    facts: dict[str, Value] = {"batch": stage.batch, "attempt": stage.attempt, "messages": int(stage.count())}
    return facts | {"octets": int(stage.octets), "expires_ms": expires_ms}


def _check_owner(peer: Peer, name: str, class_id: int, method_id: int) -> None:
    queries = peer.vhost.queries
    owner = queries.owner_of(name)
    if owner is None and name in queries.reports:
        owner = queries.reports[name].owner
    if owner not in (None, peer.user) and not peer.broker.users.has_tag(peer.user, ADMINISTRATOR):
        text = f"access to query '{name}' in vhost '{peer.vhost.name}' refused for user '{peer.user}'"
        raise ProtocolError(ACCESS_REFUSED, text, class_id, method_id)


def _refused(text: str) -> ProtocolError:
    return ProtocolError(PRECONDITION_FAILED, text, 60, 40)


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "surrogateescape")) <= NAME_OCTETS_MAX:
        raise StageError(f"{what} must be a string of 1 to {NAME_OCTETS_MAX} octets")
    return value


def _batch(value: object, what: str) -> int:
    if not _is_integer(value, 0, (1 << 63) - 1):
        raise StageError(f"{what} must be an integer from 0 to 2^63-1")
    assert isinstance(value, int)
    return value


def _is_integer(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise StageError("attempts must be a list of names")
    return value

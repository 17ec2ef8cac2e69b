"""Stages over AMQP 0-9-1 (docs/guides/stages.md): who attaches a channel consumes from a pseudo-queue, who releases,
aborts or forgets publishes to it, and basic.get tells what is known of a query.

A broker without stages has no such queue: it answers 404, or returns the message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.access import EXCHANGE, check
from leveret.broker.channel import BrokerChannel
from leveret.broker.contents import body_of
from leveret.broker.delay import DELAY_MS_MAX
from leveret.broker.queries import StageError
from leveret.broker.query import Query
from leveret.broker.queue_methods import fail
from leveret.broker.quotas import check_staged_producers
from leveret.broker.stage import Stage
from leveret.broker.staging import Staging
from leveret.broker.users import WRITE
from leveret.session.confirms import HANDLED, JOURNALLED, SYNCING
from leveret.wire.errors import ACCESS_REFUSED, PRECONDITION_FAILED, ProtocolError
from leveret.wire.method import Method
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

EXPIRES_MS: Final = 86_400_000
"""A stage expires so long after something came to it, where its client says nothing else."""
NAME_OCTETS_MAX: Final = 200
"""Of queries and attempts; basic.get has the query's in the name of a queue."""
ADMINISTRATOR: Final = "administrator"


def attach(peer: Peer, channel: BrokerChannel, method: Method, tag: str) -> None:
    """basic.consume from the pseudo-queue: from here on what the channel publishes is staged.

    Answered when the stage is on disk. 406 for arguments that are missing or wrong, for an attempt that has a stage,
    for a channel that has one, or a transaction, and where the user has too many; 403 for another user's query, and for
    who may not write the default exchange: without that nobody could release what is staged.
    """
    check(peer, method, WRITE, EXCHANGE, "")
    if not method.flag("no_ack"):
        raise fail(method, PRECONDITION_FAILED, "who attaches to a stage cannot acknowledge")
    if channel.tx is not None:
        raise fail(method, PRECONDITION_FAILED, "cannot attach a channel in tx mode to a stage")
    if channel.staging is not None:
        raise fail(method, PRECONDITION_FAILED, "the channel is attached to a stage already")
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
    """basic.cancel of the tag: what is published from here on goes to its queues at once."""
    channel.staging = None
    channel.is_kept_back = False


def order(peer: Peer, channel: BrokerChannel, content: bytes) -> i64:
    """A message to the pseudo-queue: release, abort or forget. Returns how its confirm stands, which says that this is
    on disk.

    406 for what it does not understand, and for an attempt that is not there; 403 for another user's query.
    """
    if channel.tx is not None:
        raise _refused("nothing can be said of stages in a transaction")
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
        elif op == "forget":
            queries.forget_closed(name)
            if query is not None:
                queries.forget(query)
        else:
            raise StageError('"op" must be "release", "abort" or "forget"')
    except StageError as error:
        raise _refused(str(error)) from None
    except (ValueError, RecursionError):
        raise _refused("the body must be JSON in UTF-8") from None
    return _standing(peer)


def _release(peer: Peer, query: Query | None, name: str, fields: dict[str, object]) -> None:
    batch = _batch(fields.get("batch"), "batch")
    attempts = [_name(attempt, "attempts") for attempt in _list(fields.get("attempts"))]
    queries = peer.vhost.queries
    if query is None:
        if attempts:
            raise StageError(f"query '{name}' is not known: no attempt of batch {batch} is there")
        check_staged_producers(peer, None)
    query = queries.of(name, peer.user, peer.now_us)
    queries.release(query, batch, attempts)


def _standing(peer: Peer) -> i64:
    """That of a message whose answer says that all before it is on disk."""
    log = peer.broker.log
    if log.size():
        log.is_awaited = True
        return JOURNALLED
    return SYNCING if log.synced < log.batch - 1 else HANDLED


def told(peer: Peer, method: Method, name: str) -> dict[str, Value] | None:
    """What is known of a query, for basic.get; None if nothing. 403 if it is another user's, 406 if it was closed."""
    queries = peer.vhost.queries
    _check_owner(peer, name, method.spec.class_id, method.spec.method_id)
    try:
        queries.check_open(name)
    except StageError as error:
        raise fail(method, PRECONDITION_FAILED, str(error)) from None
    query = queries.by_name.get(name)
    if query is None:
        return None
    peer.hold_until_synced()  # what it says must not be undone
    stages: list[Value] = [_stage_facts(stage, peer.now_us) for stage in query.stages.values()]
    facts: dict[str, Value] = {"query": name, "last_batch": None, "stages": stages}
    if query.last_batch >= 0:
        facts["last_batch"] = query.last_batch
    return facts


def _stage_facts(stage: Stage, now_us: int) -> dict[str, Value]:
    """expires_ms: in how many milliseconds, if nothing comes until then."""
    expires_ms = max(0, int(stage.ends_us()) - now_us) // 1000
    facts: dict[str, Value] = {"batch": stage.batch, "attempt": stage.attempt, "messages": int(stage.count())}
    return facts | {"octets": int(stage.octets), "expires_ms": expires_ms}


def _check_owner(peer: Peer, name: str, class_id: int, method_id: int) -> None:
    owner = peer.vhost.queries.owner_of(name)
    if owner not in (None, peer.user) and not peer.broker.users.has_tag(peer.user, ADMINISTRATOR):
        text = f"access to query '{name}' in vhost '{peer.vhost.name}' refused for user '{peer.user}'"
        raise ProtocolError(ACCESS_REFUSED, text, class_id, method_id)


def _refused(text: str) -> ProtocolError:
    return ProtocolError(PRECONDITION_FAILED, text, 60, 40)


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "surrogateescape")) <= NAME_OCTETS_MAX:
        raise StageError(f"{what} must be a text of 1 to {NAME_OCTETS_MAX} octets")
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

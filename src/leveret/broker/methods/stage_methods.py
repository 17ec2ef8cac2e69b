"""Stages over AMQP 0-9-1 (docs/guides/stages.md), by methods on a pseudo-queue.

basic.consume attaches a channel; a publish releases, aborts, forgets or reports; basic.get tells what is known of a
query. A broker without stages has no such queue: it answers 404, or returns the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.access.access import EXCHANGE, check
from leveret.broker.access.quotas import check_staged_producers
from leveret.broker.access.users import WRITE
from leveret.broker.channel import BrokerChannel
from leveret.broker.delayed.delay import DELAY_MS_MAX
from leveret.broker.methods.orders import check_name, check_owner, is_integer, parse, refused
from leveret.broker.methods.queue_methods import fail
from leveret.broker.staging.queries import StageError
from leveret.broker.staging.query import Producer
from leveret.broker.staging.report import keep, read_report
from leveret.broker.staging.stage import Stage
from leveret.broker.staging.staging import Staging
from leveret.wire.errors import PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

EXPIRES_MS: Final = 86_400_000
"""A stage expires so long after its last publish, unless its client gives another time."""


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
        name = check_name(arguments.get("x-leveret-query"), "x-leveret-query", method.spec)
        batch = _batch(arguments.get("x-leveret-batch"), "x-leveret-batch")
        attempt = check_name(arguments.get("x-leveret-attempt"), "x-leveret-attempt", method.spec)
        expires_ms = arguments.get("x-leveret-expires-ms", EXPIRES_MS)
        if not is_integer(expires_ms, 1, DELAY_MS_MAX):
            raise StageError(f"x-leveret-expires-ms must be an integer from 1 to {DELAY_MS_MAX}")
        assert isinstance(expires_ms, int)
        queries = peer.vhost.queries
        check_owner(peer, queries.owner_of(name), f"query '{name}'", method.spec)
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
        raise refused("stages cannot be released or aborted within a transaction")
    fields = parse(content)
    op = fields.get("op")
    name = check_name(fields.get("query"), "query")
    queries = peer.vhost.queries
    query = queries.by_name.get(name)
    check_owner(peer, queries.owner_of(name), f"query '{name}'")
    try:
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
        raise refused(str(error)) from None
    return peer.broker.log.standing()


def _release(peer: Peer, query: Producer | None, name: str, fields: dict[str, object]) -> None:
    batch = _batch(fields.get("batch"), "batch")
    attempts = [check_name(attempt, "attempts") for attempt in _list(fields.get("attempts"))]
    queries = peer.vhost.queries
    if query is None:
        if attempts:
            raise StageError(f"query '{name}' is unknown: no attempt of batch {batch} exists")
        check_staged_producers(peer, None)
    query = queries.of(name, peer.user, peer.now_us)
    queries.release(query, batch, attempts, peer.now_us)


def _report(peer: Peer, name: str, fields: dict[str, object]) -> None:
    """Keep what a query tells of its progress. Raises StageError for invalid fields."""
    try:
        report = read_report(fields, peer.user, peer.now_us)
    except ValueError as error:
        raise StageError(str(error)) from None
    keep(peer.vhost.queries.reports, name, report)


def told(peer: Peer, method: Method, name: str) -> dict[str, Value] | None:
    """Return what is known of a query, None if nothing. Raises 403 if it is another user's, 406 if it is closed."""
    queries = peer.vhost.queries
    check_owner(peer, queries.owner_of(name), f"query '{name}'", method.spec)
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


def _batch(value: object, what: str) -> int:
    if not is_integer(value, 0, (1 << 63) - 1):
        raise StageError(f"{what} must be an integer from 0 to 2^63-1")
    assert isinstance(value, int)
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise StageError("attempts must be a list of names")
    return value

"""queue.declare, queue.delete and queue.purge (AMQP 0-9-1 reference; error texts as in RabbitMQ)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.access.access import QUEUE, check, check_onward
from leveret.broker.access.quotas import check_queues
from leveret.broker.access.users import CONFIGURE, READ
from leveret.broker.channel import BrokerChannel
from leveret.broker.messages.content import POSITIONS
from leveret.broker.methods.arguments import are_equivalent, plain, typed
from leveret.broker.names import REPLY_TO, generated
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.priority import PriorityQueue
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_arguments import COMPARED, NAMES, refused_declaration, refused_property
from leveret.broker.queues.queue_settings import configure, reconfigure
from leveret.broker.queues.queue_types import QUORUM, STREAM, queue_type
from leveret.broker.streams.stream import Stream
from leveret.broker.terms import type_of
from leveret.wire import grammar
from leveret.wire.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    ProtocolError,
)
from leveret.wire.method import Method
from leveret.wire.table import Value, encode_table

if TYPE_CHECKING:
    from leveret.broker.peer import Peer
    from leveret.broker.vhost import VHost

# what a link may declare anew for the queue that it has
RENEWED: Final = ("x-expires", "x-message-ttl")


def fail(method: Method, code: int, text: str) -> ProtocolError:
    """Return an error that names the method which caused it."""
    return ProtocolError(code, text, method.spec.class_id, method.spec.method_id)


def inequivalent(method: Method, name: str, what: str, received: str, current: str) -> ProtocolError:
    """Return a 406 for a declaration that differs from the existing object."""
    text = f"inequivalent arg '{name}' for {what}: received '{received}' but current is '{current}'"
    return fail(method, PRECONDITION_FAILED, text)


def compare_arguments(method: Method, what: str, names: tuple[str, ...], current: dict[str, bytes]) -> None:
    """Raise 406 if a declaration differs in one of these arguments from the existing object's, `current`, encoded."""
    given = typed(method.tables["arguments"])
    for name in names:
        if are_equivalent(name, given, current):
            continue
        if name in given and name in current:
            received = "none" if given[name] == b"V" else f"'{plain(given[name])}'"
            is_now = f"'{plain(current[name])}'"
        else:
            received, is_now = _with_type(given.get(name)), _with_type(current.get(name))
        text = f"inequivalent arg '{name}' for {what}: received {received} but current is {is_now}"
        raise fail(method, PRECONDITION_FAILED, text)


def _with_type(value: bytes | None) -> str:
    return "none" if value is None else f"the value '{plain(value)}' of type '{type_of(value)}'"


def find(peer: Peer, method: Method, channel: BrokerChannel, field: str = "queue") -> Queue:
    """Return the queue that a method reads from; an empty name is the channel's last declared queue.

    Raises 403 without read permission, 404 if it does not exist, 405 if it is exclusive to another connection.
    """
    name = method.text(field) or last_declared(channel, method)
    check(peer, method, READ, QUEUE, name)
    queue = lookup(peer, name)
    if queue is None:
        raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{peer.vhost.name}'")
    check_owner(peer, method, queue)
    return queue


def lookup(peer: Peer, name: str) -> Queue | None:
    """Return the queue of this name, None if it does not exist.

    An exclusive queue whose client has hung up is deleted first, so that the client can reconnect and redeclare it at
    once.
    """
    queue = peer.vhost.queues.get(name)
    if queue is None or queue.owner is None or queue.owner is peer or not peer.broker.has_hung_up(queue.owner):
        return queue
    owner = queue.owner
    peer.vhost.delete_queue(queue)
    owner.drop_exclusive()
    return None


def last_declared(channel: BrokerChannel, method: Method) -> str:
    """Return the queue that an empty name stands for. Raises 404 if the channel has declared none."""
    if channel.last_queue == "":
        raise fail(method, NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def check_owner(peer: Peer, method: Method, queue: Queue) -> None:
    """Raise 405 if the queue is exclusive to another connection."""
    if queue.owner is not None and queue.owner is not peer:
        raise _locked(peer, method, queue)


def _locked(peer: Peer, method: Method, queue: Queue) -> ProtocolError:
    return fail(
        method,
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost '{peer.vhost.name}'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the "
        "original declaration.",
    )


def declare(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle queue.declare, passive or not; for an empty name the broker generates one."""
    name = _name(method)
    vhost = peer.vhost
    if name.startswith(REPLY_TO):
        _declare_reply(peer, channel, method, name)
        return
    is_passive = method.flag("passive")
    if not is_passive:
        name = _permitted(peer, method, name)
    queue = lookup(peer, name)
    if queue is not None and queue.awaiting != 0:
        peer.is_unfinished = True
        return
    if is_passive:
        if queue is None:
            raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{vhost.name}'")
        check_owner(peer, method, queue)
    elif queue is not None:
        _check_same(peer, method, queue)
        if queue.is_journalled:
            # whoever declared it first may still be waiting for its sync
            peer.hold_until_synced()
    else:
        queue = _create(peer, method, name)
    if not method.flag("passive"):
        peer.broker.churn.queue_declared += 1
    channel.last_queue = queue.name
    if queue.idle_us:
        vhost.used(queue, peer.now_us)
    _declared(peer, channel, method, queue.name, int(queue.count()), int(queue.consumers.count))


def _permitted(peer: Peer, method: Method, name: str) -> str:
    """Return the name, or a generated one for an empty name. Raises 403 if it is reserved, or without permission."""
    if name.startswith("amq."):
        # even if it exists: only the broker gives such names
        raise fail(method, ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
    if not name:
        kind = queue_type(method.table("arguments"))
        if kind in (QUORUM, STREAM):
            text = f"Cannot declare a server-named queue for type rabbit_{kind}_queue"
            raise fail(method, PRECONDITION_FAILED, text)
        name = generated("amq.gen-", peer.broker.random_bytes)
    check(peer, method, CONFIGURE, QUEUE, name)
    return name


def _name(method: Method) -> str:
    """Return the queue's name without line ends, as RabbitMQ reads it in declarations and deletions."""
    return method.text("queue").replace("\r", "").replace("\n", "")


def _declared(peer: Peer, channel: BrokerChannel, method: Method, name: str, messages: int, consumers: int) -> None:
    if not method.flag("no_wait"):
        spec = grammar.QUEUE_DECLARE_OK
        peer.send(channel.number, spec, queue=name, message_count=messages, consumer_count=consumers)


def _declare_reply(peer: Peer, channel: BrokerChannel, method: Method, name: str) -> None:
    """Handle queue.declare of a direct reply-to name, which is no queue.

    The answer is 0 messages and 1 consumer while its requester exists, else 404. As with any declared queue, an empty
    name stands for it afterwards.
    """
    if name != REPLY_TO and name not in peer.vhost.replies:
        raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{peer.vhost.name}'")
    channel.last_queue = name
    _declared(peer, channel, method, name, 0, 1)


def _create(peer: Peer, method: Method, name: str) -> Queue:
    check_queues(peer, method, name)
    onward = method.table("arguments").get("x-dead-letter-exchange")
    if isinstance(onward, str):
        key = method.table("arguments").get("x-dead-letter-routing-key")
        check_onward(peer, method, QUEUE, name, onward, key if isinstance(key, str) else None)
    check_new(peer.vhost.name, method, name)
    queue = new_queue(peer.vhost, method, name)
    if method.flag("exclusive"):
        queue.owner = peer
        peer.exclusive[name] = queue
    peer.vhost.add_queue(queue, 0, peer.now_us)
    if queue.is_journalled:
        peer.hold_until_synced()
    return queue


def new_queue(vhost: VHost, method: Method, name: str) -> Queue:
    """Return a queue for a queue.declare that was checked; the virtual host still has to add it."""
    queue = make_queue(vhost, name, _is_durable(method), method.flag("auto_delete"), method.table("arguments"))
    queue.declared = method.tables["arguments"]
    vhost.strangers.look(queue.arguments, NAMES, "queue", name)
    return queue


def check_new(vhost: str, method: Method, name: str) -> None:
    """Raise 406 if no queue with the arguments and properties of this queue.declare can exist."""
    arguments, what = method.table("arguments"), f"queue '{name}' in vhost '{vhost}'"
    if not arguments:
        return  # a classic queue, which may have any properties
    flags = (method.flag("durable"), method.flag("exclusive"), method.flag("auto_delete"))
    refused = refused_declaration(arguments, typed(method.tables["arguments"]), what)
    refused = refused or refused_property(arguments, *flags, what)
    if refused:
        raise fail(method, PRECONDITION_FAILED, refused)


def _check_same(peer: Peer, method: Method, queue: Queue) -> None:
    what = f"queue '{queue.name}' in vhost '{peer.vhost.name}'"
    check_owner(peer, method, queue)
    if method.flag("exclusive") != (queue.owner is not None):
        raise _locked(peer, method, queue)
    given = {"durable": _is_durable(method), "auto_delete": method.flag("auto_delete")}
    for flag, current in (("durable", queue.durable), ("auto_delete", queue.auto_delete)):
        if given[flag] != current:
            raise inequivalent(method, flag, what, str(given[flag]).lower(), str(current).lower())
    names = COMPARED[queue_type(queue.arguments)]
    declared = typed(queue.declared or encode_table(queue.arguments))
    if method.table("arguments").get(POSITIONS) is True and queue.arguments.get(POSITIONS) is True:
        compare_arguments(method, what, tuple(name for name in names if name not in RENEWED), declared)
        _renew(peer, method, queue, declared)
    else:
        compare_arguments(method, what, names, declared)


def _renew(peer: Peer, method: Method, queue: Queue, current: dict[str, bytes]) -> None:
    """Let a federation link change the TTLs of its upstream queue, at once and without the loss of its messages.

    With a 406 instead, the link could only empty the queue and redeclare it.
    """
    given = typed(method.tables["arguments"])
    if all(are_equivalent(name, given, current) for name in RENEWED):
        return
    check_new(peer.vhost.name, method, queue.name)
    queue.arguments = method.table("arguments")
    queue.declared = method.tables["arguments"]
    reconfigure(queue, queue.effect, peer.now_us)
    if queue.is_journalled:
        peer.broker.log.meta(queue.record())


def _is_durable(method: Method) -> bool:
    """Return the durable flag; False for an exclusive queue, which never outlives its connection. So does RabbitMQ."""
    return method.flag("durable") and not method.flag("exclusive")


def make_queue(vhost: VHost, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Value]) -> Queue:
    """Return an undeclared queue of the type that its checked arguments ask for, with policies applied."""
    kind = queue_type(arguments)
    priority = arguments.get("x-max-priority")
    if isinstance(priority, int):
        queue: Queue = PriorityQueue(vhost, name, durable, auto_delete, arguments, priority)
    elif kind == STREAM:
        queue = Stream(vhost, name, durable, auto_delete, arguments)
    else:
        queue = Queue(vhost, name, durable, auto_delete, arguments)
    queue.is_quorum = kind == QUORUM
    queue.keeps_all = queue.is_stream or queue.is_quorum or (durable and arguments.get(POSITIONS) is True)
    queue.consumers.has_active = arguments.get("x-single-active-consumer") is True
    configure(queue, vhost.policies.effect(kind, name))
    return queue


def delete(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle queue.delete; for a queue that does not exist it succeeds with 0 messages."""
    name = _name(method) or last_declared(channel, method)
    check(peer, method, CONFIGURE, QUEUE, name)
    queue = lookup(peer, name)
    if queue is not None and queue.awaiting != 0:
        peer.is_unfinished = True
        return
    count = 0
    consumers: list[Consumer] = []
    if queue is not None:
        check_owner(peer, method, queue)
        what = f"queue '{name}' in vhost '{peer.vhost.name}'"
        _check_deletable(method, queue, what)
        if method.flag("if_empty") and (queue.count() or queue.undeliverable_count()):
            raise fail(method, PRECONDITION_FAILED, f"{what} not empty")
        if method.flag("if_unused") and queue.consumers.count > 0:
            raise fail(method, PRECONDITION_FAILED, f"{what} in use")
        consumers = queue.consumers.all()
        count = peer.vhost.delete_queue(queue)
    if queue is None or queue.is_journalled:
        # whoever deleted it first may still be waiting for the sync
        peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.QUEUE_DELETE_OK, message_count=count)
    # as in RabbitMQ, consumers are cancelled after the client that deleted the queue has its answer; clients rely on it
    for consumer in consumers:
        consumer.tell_cancelled()


def _check_deletable(method: Method, queue: Queue, what: str) -> None:
    """Raise 540 for the deletion of a quorum queue with if-unused or if-empty."""
    for flag, word in (("if_unused", "if-unused"), ("if_empty", "if-empty")):
        if queue.is_quorum and method.flag(flag):
            text = f"cannot delete {what}. queue.delete operations with {word} flag set are not supported by quorum"
            raise fail(method, NOT_IMPLEMENTED, f"{text} queues")


def purge(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle queue.purge; a large queue takes several turns."""
    queue = channel.purging
    if queue is None:  # else this is at least its second turn
        queue = find(peer, method, channel)
        check_queue(method, queue, "queue.purge")
        if queue.awaiting != 0:
            peer.is_unfinished = True
            return
        channel.purged = peer.vhost.purge(queue)
    if queue.leaving != 0:
        channel.purging = queue
        peer.is_unfinished = True
        return
    channel.purging = None
    if queue.is_journalled:
        peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.QUEUE_PURGE_OK, message_count=channel.purged)


def check_queue(method: Method, queue: Queue, what: str) -> None:
    """Raise 540 if the queue is a stream, which does not support the operation."""
    if queue.is_stream:
        text = f"{what} not supported by stream queues queue '{queue.name}' in vhost '{queue.vhost.name}'"
        raise fail(method, NOT_IMPLEMENTED, text)


def not_default(method: Method, name: str) -> None:
    if name == "":
        raise fail(method, ACCESS_REFUSED, "operation not permitted on the default exchange")

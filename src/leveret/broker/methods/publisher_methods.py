"""Publisher references over AMQP 0-9-1 (docs/guides/exactly-once.md), by methods on a pseudo-queue.

basic.consume attaches a channel; a publish forgets a reference; basic.get tells what is known of one. A broker without
them has no such queue: it answers 404, or returns the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.access.access import EXCHANGE, check
from leveret.broker.access.quotas import check_publishers
from leveret.broker.access.users import WRITE
from leveret.broker.channel import BrokerChannel
from leveret.broker.methods.orders import check_name, check_owner, is_integer, parse, refused
from leveret.broker.methods.queue_methods import fail
from leveret.broker.publishers.references import PublisherError
from leveret.wire.errors import PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

NUMBER_MAX: Final = 1 << 62


def attach(peer: Peer, channel: BrokerChannel, method: Method, tag: str) -> dict[str, Value]:
    """Handle basic.consume from the pseudo-queue: publishes of the channel are numbered from now on.

    Answers follow when the new epoch is on disk. Returns what the client is told then. Raises 406 for missing or
    invalid arguments, a channel without confirms, with a stage or with a reference, and all that
    PublisherReferences.attach() refuses; 403 for another user's reference, and for users who may not write to the
    default exchange, since they could not forget it.
    """
    check(peer, method, WRITE, EXCHANGE, "")
    if not method.flag("no_ack"):
        raise fail(method, PRECONDITION_FAILED, "a channel that attaches to a publisher reference must use no-ack")
    if channel.confirms is None:
        text = "a channel must be in confirm mode (confirm.select) before it attaches to a publisher reference"
        raise fail(method, PRECONDITION_FAILED, text)
    if channel.staging is not None:
        raise fail(method, PRECONDITION_FAILED, "the channel is attached to a stage")
    if channel.publisher is not None:
        text = f"the channel is already attached to publisher reference '{channel.publisher.name}'"
        raise fail(method, PRECONDITION_FAILED, text)
    if peer.broker.has_hung_up(peer):
        # it was on its way when its client gave the connection up, and must not end the attachment that followed
        raise fail(method, PRECONDITION_FAILED, "the client has closed the connection")
    arguments = method.table("arguments")
    try:
        name = check_name(arguments.get("x-leveret-publisher"), "x-leveret-publisher", method.spec)
        epoch = _number(arguments, "x-leveret-epoch", 0)
        first_id = _number(arguments, "x-leveret-first-id", 1)
        publishers = peer.vhost.publishers
        check_owner(peer, publishers.owner_of(name), f"publisher reference '{name}'", method.spec)
        publishers.check_open(name)
        check_publishers(peer, name)
        reference = publishers.attach(channel, tag, name, peer.user, epoch, first_id, peer.now_us)
    except PublisherError as error:
        raise fail(method, PRECONDITION_FAILED, str(error)) from None
    peer.hold_until_synced()
    return reference.facts(first_id)


def order(peer: Peer, channel: BrokerChannel, content: bytes) -> i64:
    """Handle a publish to the pseudo-queue: forget a reference. Returns the state of its confirm.

    The confirm says that the change is on disk. Raises 406 for an invalid body, 403 for another user's reference.
    """
    if channel.tx is not None:
        raise refused("a publisher reference cannot be forgotten within a transaction")
    fields = parse(content)
    if fields.get("op") != "forget":
        raise refused('"op" must be "forget"')
    name = check_name(fields.get("publisher"), "publisher")
    check_owner(peer, peer.vhost.publishers.owner_of(name), f"publisher reference '{name}'")
    if channel.publisher is not None and channel.publisher.name == name:
        channel.publisher.detach(peer.now_us)
    peer.vhost.publishers.forget(name)
    return peer.broker.log.standing()


def told(peer: Peer, method: Method, name: str) -> dict[str, Value] | None:
    """Return what is known of a reference, None if nothing. Raises 403 if it is another user's, 406 if it is closed."""
    publishers = peer.vhost.publishers
    check_owner(peer, publishers.owner_of(name), f"publisher reference '{name}'", method.spec)
    try:
        publishers.check_open(name)
    except PublisherError as error:
        raise fail(method, PRECONDITION_FAILED, str(error)) from None
    reference = publishers.by_name.get(name)
    if reference is None:
        return None
    if reference.holder is not None:
        reference.record()  # the publishes of this turn count
    peer.hold_until_synced()  # its contents must not be undone by a crash
    holder = reference.holder
    return reference.facts() | {"connection": None if holder is None else holder.peer.name}


def _number(arguments: dict[str, Value], name: str, default: int) -> int:
    if name not in arguments:
        return default
    value = arguments[name]
    if not is_integer(value, 1, NUMBER_MAX):
        raise PublisherError(f"{name} must be an integer from 1 to 2^62")
    assert isinstance(value, int)
    return value
